# SPDX-License-Identifier: MIT
"""The examples that share memory between NumPy, the SDK and PyTorch."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest


def load(name: str) -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pipeline_copies_nothing(capsys: pytest.CaptureFixture) -> None:
    assert load("pipeline").main() == 0  # it asserts the addresses
    text = capsys.readouterr().out
    assert "deviations 1.00" in text
    assert re.search(r"entropy of the answers: 1\.\d+", text)


def test_training_from_buffers(capsys: pytest.CaptureFixture) -> None:
    program = load("buffers_training")
    assert program.main(["--epochs", "5"]) == 0
    text = capsys.readouterr().out
    losses = [float(x) for x in re.findall(r"loss ([0-9.]+)", text)]
    assert len(losses) == 2
    assert losses[1] < losses[0] / 3
    accuracy = re.search(r"clean images ([0-9.]+)", text)
    assert accuracy is not None
    assert float(accuracy.group(1)) > 0.9
    with pytest.raises(SystemExit):
        program.main(["--epochs", "0"])
    assert "--epochs: 0 is not at least 1" in capsys.readouterr().err
