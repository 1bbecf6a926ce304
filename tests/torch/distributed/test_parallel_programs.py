# SPDX-License-Identifier: MIT
"""PyTorch's distributed examples, started by torchrun: the losses are those of cpu."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from distributed.parallel_programs import PROGRAMS, STEPS
from distributed.ranks import FOLDER, environment

SCRIPT = FOLDER / "parallel_programs.py"
NAMES = [program.__name__ for program in PROGRAMS]

Losses = dict[str, dict[str, list[float] | str]]


def losses_of(world: int, folder: Path) -> Losses:
    path = folder / "losses.json"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={world}", str(SCRIPT), str(path)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def losses_of_two(tmp_path_factory: pytest.TempPathFactory) -> Losses:
    return losses_of(2, tmp_path_factory.mktemp("two"))


@pytest.fixture(scope="module")
def losses_of_four(tmp_path_factory: pytest.TempPathFactory) -> Losses:
    return losses_of(4, tmp_path_factory.mktemp("four"))


def check(losses: dict[str, list[float] | str]) -> None:
    ours, theirs = losses["hologram"], losses["cpu"]
    assert isinstance(theirs, list), theirs
    assert isinstance(ours, list), ours
    assert len(theirs) == STEPS and len(set(theirs)) == STEPS
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_two_processes(name: str, losses_of_two: Losses) -> None:
    check(losses_of_two[name])


@pytest.mark.heavy
@pytest.mark.parametrize("name", NAMES)
def test_four_processes(name: str, losses_of_four: Losses) -> None:
    check(losses_of_four[name])
