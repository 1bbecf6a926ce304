# SPDX-License-Identifier: MIT
"""The example of processes that share parameters: together they learn."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "train_hogwild.py"


def test_processes_train_one_network_together() -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "--epochs", "6", "--processes", "2"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    accuracy = re.search(r"accuracy on test images: ([0-9.]+)", done.stdout)
    assert accuracy is not None
    assert float(accuracy.group(1)) > 0.9
    for rank in (0, 1):
        assert f"process {rank}, epoch 6" in done.stdout
