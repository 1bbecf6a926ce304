# SPDX-License-Identifier: MIT
"""The NumPy tour runs, and compares itself with NumPy at every step."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOUR = Path(__file__).resolve().parents[2] / "examples" / "numpy_tour.py"


def test_the_tour_reaches_its_end() -> None:
    done = subprocess.run([sys.executable, str(TOUR)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("five ops, one kernel: [")
    assert any(line.startswith("<hologram.Buffer") for line in lines), done.stdout
    assert lines[-1].startswith("the chain on a million elements: ")
