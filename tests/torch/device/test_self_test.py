# SPDX-License-Identifier: MIT
"""``python -m hologram`` and ``python -m hologram_torch``: what they find, and their checks."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

import hologram
import hologram_torch
from hologram import __main__ as library
from hologram import backend
from hologram_torch import __main__ as device


def test_the_library_describes_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert library.main() == 0
    text = capsys.readouterr().out
    assert hologram.__version__ in text
    assert str(hologram.cpu_info()["isa"]) in text
    assert "this build has no metal devices" in text
    assert text.count(": ok (") == len(library.CHECKS)


def test_the_device_describes_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert device.main() == 0
    text = capsys.readouterr().out
    assert torch.__version__ in text
    assert "float32 by " in text
    assert "hologram:0" in text
    assert text.count(": ok (") == len(device.TORCH_CHECKS)


def test_a_check_that_fails_is_the_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    def wrong() -> None:
        raise AssertionError("the sum is off by one")

    assert library.run({"a": "b"}, {"sums": wrong, "nothing": lambda: None}) == 1
    text = capsys.readouterr().out
    assert "self-test sums: FAILED: the sum is off by one" in text
    assert "self-test nothing: ok" in text


def test_errors_say_why_a_backend_is_absent() -> None:
    name, why = "metal", "this build has no metal devices"
    assert backend.why_unavailable(name) == why
    assert backend.why_unavailable("cpu") == ""
    with pytest.raises(ValueError, match=f"'{name}' is not available here: {why}; available: cpu"):
        backend.validate_backend(name)
    with pytest.raises(ValueError, match=f"'{name}' is not available: {why}; choose one of: 'cpu"):
        hologram_torch.set_backend(name)
    with pytest.raises(ValueError, match=f"'{name}' is not available.*{why}"):
        hologram.Executor(backend=name)


def test_a_backend_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="'tpu' is not available here: no backend has this name"):
        backend.validate_backend("tpu")
    with pytest.raises(ValueError, match="'tpu' is not available: no backend has this name"):
        hologram_torch.set_backend("tpu")


def test_a_backend_that_is_not_asked_for_says_so() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from hologram import backend; print(backend.why_unavailable('opencl'))",
        ],
        env={**os.environ, "HOLOGRAM_DEVICES": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.strip() == "HOLOGRAM_DEVICES does not name it"
