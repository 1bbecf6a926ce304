# SPDX-License-Identifier: MIT
"""A GPU that fails, over the fake of CUDA: what programs see, and that they end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import opencl_drivers
import pytest

TESTS = Path(__file__).resolve().parents[2]
missing = opencl_drivers.why_missing(opencl_drivers.FAKE_CUDA)
pytestmark = pytest.mark.skipif(bool(missing), reason=missing)

BEGIN = """
import torch, hologram_torch

def say(act):
    try:
        print("result", act())
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0])

x = torch.arange(4.0, device="hologram:1")
"""


def run(fails: str, program: str, log: Path) -> list[str]:
    """Run a program whose driver fails as FAKE_CUDA_FAIL says; return its lines."""
    env = os.environ | opencl_drivers.environment(opencl_drivers.FAKE_CUDA, log)
    env |= {"FAKE_CUDA_FAIL": fails, "PYTHONPATH": str(TESTS)}
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program],
        env=env, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not opencl_drivers.complaints(log)
    return done.stdout.splitlines()


def test_a_kernel_that_fails_is_an_error_of_all_that_follows(tmp_path: Path) -> None:
    program = """
say(lambda: (x + 1).tolist())
say(lambda: (x * 2).tolist())
say(lambda: (x * 3).tolist())
say(lambda: torch.hologram.synchronize(1))
say(lambda: torch.ones(1000, device="hologram:1").sum().item())
say(lambda: torch.hologram.empty_cache())
say(lambda: (torch.arange(3.0, device="hologram:0") + 1).tolist())
"""
    lines = run("kernel:1:719", program, tmp_path / "log")
    lost = "RuntimeError cuda: the GPU cannot be used by this process any more"
    assert lines[0] == "result [1.0, 2.0, 3.0, 4.0]"
    assert lines[1].startswith("RuntimeError cuda: cuMemcpyDtoH of 16 bytes from 0x")
    assert "returned 719 (CUDA_ERROR_LAUNCH_FAILED)" in lines[1]
    for line in lines[2:5]:
        assert line.startswith(lost)
        assert "before, cuda: cuMemcpyDtoH of 16 bytes" in line
    assert lines[5:] == ["result None", "result [1.0, 2.0, 3.0]"]


def test_memory_that_is_refused_is_out_of_memory(tmp_path: Path) -> None:
    program = """
y = torch.zeros(1000, device="hologram:1")
say(lambda: y.sum().item())
say(lambda: y.sum().item())
say(lambda: torch.ones(1 << 40, device="hologram:1"))
"""
    lines = run("cuMemAlloc_v2:1:2", program, tmp_path / "log")
    assert lines[0].startswith("OutOfMemoryError out of memory: tried to allocate 3.91 KiB")
    assert lines[1] == "result 0.0"
    assert lines[2].startswith("OutOfMemoryError out of memory: tried to allocate 4.00 TiB")
