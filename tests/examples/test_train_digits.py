# SPDX-License-Identifier: MIT
"""The digits example as a user meets it: its results, its files, its complaints."""

from __future__ import annotations

import importlib.util
import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "train_digits.py"


def load_program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("train_digits", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["train_digits"] = module
    spec.loader.exec_module(module)
    return module


program = load_program()


def run(*arguments: str) -> int:
    return program.main(list(arguments))


def accuracy_of(text: str) -> float:
    found = re.search(r"held-out accuracy ([0-9.]+)", text)
    assert found is not None, text
    return float(found.group(1))


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_hologram_learns_as_cpu_does(model: str, tmp_path: Path) -> None:
    device = torch.device("hologram")
    data = program.load_data()
    runs = [program.start_run(model, d, 3, 2e-3) for d in (device, torch.device("cpu"))]
    program.train(runs, data, program.DEFAULT_EPOCHS[model], 32, 3)
    assert all(r.accuracy > 0.96 for r in runs)
    # The same weights and batches: the first steps agree, before rounding has had time to grow.
    assert runs[0].losses[:20] == pytest.approx(runs[1].losses[:20], rel=1e-4)
    path = tmp_path / "model.pt"
    program.save_checkpoint(path, model, runs[0])
    assert program.check_checkpoint(path, runs[0], data) < 1e-4


def test_training_writes_a_checkpoint_and_a_plot(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert run("--device", "cpu", "--epochs", "2", "--out", str(tmp_path)) == 0
    table = capsys.readouterr().out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mlp.png", "mlp.pt"]
    assert (tmp_path / "mlp.png").read_bytes().startswith(b"\x89PNG")
    reported = float(re.search(r"^cpu .* ([0-9.]+)$", table, re.MULTILINE).group(1))
    assert run("--device", "cpu", "--evaluate", str(tmp_path / "mlp.pt")) == 0
    assert accuracy_of(capsys.readouterr().out) == reported


def test_an_accuracy_below_the_required_one_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    arguments = [
        "--device",
        "cpu",
        "--epochs",
        "1",
        "--min-accuracy",
        "0.999",
        "--out",
        str(tmp_path),
    ]
    assert run(*arguments) == 1
    assert "not above 0.999" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--epochs", "0"],
        ["--epochs", "many"],
        ["--batch-size", "-4"],
        ["--seed", "-1"],
        ["--learning-rate", "nan"],
        ["--min-accuracy", "2"],
        ["--model", "rnn"],
        ["--unheard-of"],
    ],
)
def test_bad_arguments_are_named(arguments: list[str], capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as stopped:
        run("--device", "cpu", *arguments)
    assert stopped.value.code == 2
    assert arguments[0] in capsys.readouterr().err


@pytest.mark.parametrize("device", ["warp", "", "cpu:x", "xpu", "meta"])
def test_a_device_that_cannot_train_is_refused(device: str, capsys: pytest.CaptureFixture) -> None:
    assert run("--device", device, "--epochs", "1") == 1
    error = capsys.readouterr().err
    assert error.startswith("train_digits: --device")
    assert "Traceback" not in error


@pytest.mark.parametrize("damage", ["missing", "folder", "empty", "half", "noise", "other"])
def test_a_damaged_checkpoint_is_refused(
    damage: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path = tmp_path / "model.pt"
    cpu = torch.device("cpu")
    program.save_checkpoint(path, "mlp", program.start_run("mlp", cpu, 0, 1e-3))
    whole = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "folder":
        path.unlink()
        path.mkdir()
    elif damage == "other":
        torch.save({"some": torch.ones(3)}, path)
    else:
        path.write_bytes(
            {"empty": b"", "half": whole[: len(whole) // 2], "noise": b"\0\xff" * 999}[damage]
        )
    assert run("--device", "cpu", "--evaluate", str(path)) == 1
    assert str(path) in capsys.readouterr().err


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    program.write_atomically(path, b"old")

    def interrupt(_handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        program.write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def start_program(*arguments: str, limit: int | None = None) -> subprocess.Popen:
    def prepare() -> None:
        # Programs that a shell started in the background ignore interrupts, and so do their own.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.Popen(
        [sys.executable, str(PROGRAM), "--device", "cpu", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=prepare,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"},
    )


def test_a_refused_write_leaves_nothing_half_written(tmp_path: Path) -> None:
    # A limit on the size of files is refused by the kernel at the same place as a full disk.
    _, error = start_program("--epochs", "1", "--out", str(tmp_path), limit=4096).communicate(
        timeout=120
    )
    assert "cannot write" in error
    assert "Traceback" not in error
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_ends_the_run_cleanly(tmp_path: Path) -> None:
    process = start_program("--epochs", "100000", "--out", str(tmp_path / "results"))
    assert process.stdout is not None
    assert "images to learn from" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in error
    assert "Traceback" not in error
    assert not (tmp_path / "results").exists()
