# SPDX-License-Identifier: MIT
"""Ranks that die, ranks that never come, and torchrun, which starts them again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from distributed.ranks import FOLDER, environment

EXAMPLE = FOLDER.parents[2] / "examples" / "train_ddp.py"

PROGRAM = """
import os, sys, time
from datetime import timedelta
import torch, torch.distributed as dist
rank, store, what = int(sys.argv[1]), dist.FileStore(sys.argv[2], 2), sys.argv[3]
dist.init_process_group(store=store, rank=rank, world_size=2, timeout=timedelta(seconds=3))
t = torch.ones(100_000, device="hologram")
dist.all_reduce(t)
if rank == 1:
    if what == "dies":
        os._exit(9)
    time.sleep(6)
    os._exit(0)
start = time.perf_counter()
try:
    if what == "monitored":
        dist.monitored_barrier(timeout=timedelta(seconds=2))
    else:
        dist.all_reduce(t)
except RuntimeError as error:
    print("said:", str(error).replace(chr(10), " "))
    print("seconds:", time.perf_counter() - start)
print("still usable:", (torch.ones(3, device="hologram") + 1).sum().item())
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("dies", r"peer|reset|closed"),
        ("stays away", r"[Tt]imed out|timeout"),
        pytest.param(
            *("monitored", r"Rank 1 failed to pass monitoredBarrier in 2000 ms"),
            marks=pytest.mark.skipif(
                torch.__version__ < "2.14", reason="PyTorch looks at the default backend alone"
            ),
        ),
    ],
)
def test_a_lost_rank_is_a_clear_error(what: str, expected: str, tmp_path: Path) -> None:
    arguments = [str(tmp_path / "store"), what]
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(rank), *arguments],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = ranks[0].communicate(timeout=40)[0]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    message = re.search("said: (.*)", said)
    assert message is not None, said
    assert re.search(expected, message[1]), said
    seconds = re.search("seconds: (.*)", said)
    assert seconds is not None
    assert float(seconds[1]) < 10
    assert "still usable: 6.0" in said


def torchrun(*arguments: str) -> subprocess.Popen:
    """Start the example in two processes."""
    return subprocess.Popen(
        [
            sys.executable,
            *("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
            *("--max-restarts=1", "--monitor-interval=0.1", str(EXAMPLE), *arguments),
        ],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.heavy
def test_torchrun_restarts_from_the_last_checkpoint(tmp_path: Path) -> None:
    process = torchrun("--epochs", "40", "--checkpoint", str(tmp_path / "c.pt"))
    assert process.stdout is not None
    lines: list[str] = []
    ids: dict[str, int] = {}
    watch = threading.Timer(60, os.killpg, [process.pid, signal.SIGKILL])
    watch.start()
    try:
        for line in process.stdout:
            lines.append(line)
            if found := re.match(r"rank (\d) of 2, process (\d+): from epoch 0", line):
                ids[found[1]] = int(found[2])
            if line.startswith("epoch   2 "):
                os.kill(ids["1"], signal.SIGKILL)
    finally:
        process.wait()
        watch.cancel()
    said = "".join(lines)
    assert process.returncode == 0, said
    resumed = re.findall(r"rank \d of 2, process \d+: from epoch (\d+)", said)
    assert resumed[:2] == ["0", "0"]
    assert len(resumed) == 4
    assert resumed[2] == resumed[3]
    assert int(resumed[2]) >= 2  # the checkpoint's
    assert "epoch  40" in said
    accuracy = re.search("held out: ([0-9.]+)", said)
    assert accuracy is not None
    assert float(accuracy[1]) > 0.9
