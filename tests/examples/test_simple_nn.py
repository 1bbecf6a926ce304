# SPDX-License-Identifier: MIT
"""The example of hologram_torch.nn: its two models learn the same."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "simple_nn.py"


def run(*arguments: str) -> int:
    spec = importlib.util.spec_from_file_location("simple_nn", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main(list(arguments))


def test_both_models_learn_alike(capsys: pytest.CaptureFixture) -> None:
    assert run("--epochs", "6") == 0
    text = capsys.readouterr().out
    losses = {
        name: [float(x) for x in re.findall(rf"^{name} .* loss ([0-9.]+)$", text, re.MULTILINE)]
        for name in (r"hologram_torch\.nn", r"torch\.nn")
    }
    ours, theirs = losses.values()
    assert len(ours) == 2
    assert ours == pytest.approx(theirs, rel=1e-2)
    assert ours[1] < ours[0] / 2
    accuracy = re.search(r"accuracy  ([0-9.]+) and ([0-9.]+)", text)
    assert accuracy is not None
    assert all(float(a) > 0.85 for a in accuracy.groups())
    assert "the same answers" in text


def test_bad_arguments_are_named(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        run("--epochs", "0")
    assert "--epochs: 0 is not at least 1" in capsys.readouterr().err
