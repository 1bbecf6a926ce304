# SPDX-License-Identifier: MIT
"""A small GPT trained for as long as HOLOGRAM_SOAK_SECONDS says (`make soak`: an hour)."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("train_gpt.py")
SECONDS = float(os.environ.get("HOLOGRAM_SOAK_SECONDS", "20"))


def train(folder: Path, *arguments: str) -> dict:
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), *arguments],
        capture_output=True,
        text=True,
        timeout=600 + 20 * SECONDS,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


def quarters(samples: list[int]) -> list[list[int]]:
    """Cut samples into four parts of equal length, the oldest first."""
    n = len(samples) // 4
    return [samples[i * n : (i + 1) * n] for i in range(4)]


@pytest.mark.heavy
def test_training_for_long_stays_as_it_is(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", "--seconds", str(SECONDS))
    losses = [float.fromhex(text) for text in whole["losses"]]
    steps = len(losses)
    report = f"{steps} steps in {whole['seconds']:.0f} s, loss {losses[0]:.3f} to {losses[-1]:.3f}"
    assert all(math.isfinite(x) for x in losses)
    assert steps >= 160, report
    # It learns: a token drawn by chance costs log(96) = 4.56.
    assert statistics.fmean(losses[-20:]) < losses[0] - 0.5, report

    # The same again, cut in two by a checkpoint and a new process.
    half = train(tmp_path / "halves", "--steps", str(steps // 2))
    assert half["steps"] == steps // 2
    again = train(tmp_path / "halves", "--steps", str(steps))
    assert (again["first"], again["steps"]) == (steps // 2, steps)
    assert again["losses"] == whole["losses"]
    assert again["evaluations"] == whole["evaluations"]

    _, second, _, last = quarters(whole["held"])
    assert max(last) == max(second), f"{report}: the device's bytes grow: {whole['held'][::8]}"
    _, second, _, last = quarters(whole["resident"])
    grown = statistics.median(last) - statistics.median(second)
    print(f"{report}; resident {statistics.median(last) / 2**20:.1f} MiB, {grown / 2**20:+.2f} MiB")
    assert grown < 8 << 20, f"{report}: resident memory grew by {grown} bytes"
    assert whole["fallbacks"] == {}
