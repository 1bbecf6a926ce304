# SPDX-License-Identifier: MIT
"""Containers and tuned servers: how many threads a process has, and where they may run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROCESSORS = sorted(os.sched_getaffinity(0))
two = pytest.mark.skipif(len(PROCESSORS) < 2, reason="there is one processor")

# Two long chains, so that the workers of parallel_for and the recorder's worker have begun.
REPORT = """
import json, os, torch
import hologram
import hologram_torch
torch.manual_seed(0)
x = torch.randn(1 << 21, device="hologram")
for _ in range(30):
    y = (x * 2 + 1).exp().sin().add(x)
    y.sum().item()
names = {}
for thread in os.listdir("/proc/self/task"):
    with open(f"/proc/self/task/{thread}/comm") as file:
        names[int(thread)] = file.read().strip()
worker = [thread for thread, name in names.items() if name == "hologram-worker"]
print(json.dumps({
    "hologram": hologram.cpu_info()["threads"],
    "processors": hologram.cpu_info()["processors"],
    "pytorch": torch.get_num_threads(),
    "main": sorted(os.sched_getaffinity(0)),
    "worker": sorted(set().union(*(os.sched_getaffinity(t) for t in worker))) if worker else None,
    "all": sorted(set().union(*(os.sched_getaffinity(t) for t in names))),
}))
"""

_UNSET = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "HOLOGRAM_WORKER", "HOLOGRAM_SYSTEM_ROOT")


def report(mask: list[int] | None = None, code: str = REPORT, **environment: str) -> dict[str, Any]:
    env = {name: value for name, value in os.environ.items() if name not in _UNSET}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**env, "HOLOGRAM_AUTOLOAD": "1", **environment},
        preexec_fn=None if mask is None else lambda: os.sched_setaffinity(0, mask),
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def container(folder: Path, cpu_max: str) -> str:
    """Make the files of a container on a large machine, version 2 of control groups."""
    files = {
        "proc/self/cgroup": "0::/kubepods/pod3\n",
        "proc/self/mountinfo": "35 24 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        "sys/fs/cgroup/kubepods/cpu.max": "max 100000\n",
        "sys/fs/cgroup/kubepods/pod3/cpu.max": cpu_max,
        "sys/devices/system/cpu/online": "0-191\n",
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(folder)


def test_without_limits() -> None:
    found = report()
    count = len(PROCESSORS)
    assert found["hologram"] == found["processors"] == count
    assert (found["worker"] is not None) == (count > 1)


@two
def test_a_mask_of_the_process_holds_for_all_threads() -> None:
    found = report(mask=PROCESSORS[:1])
    assert found["hologram"] == found["processors"] == 1
    assert found["worker"] is None and found["all"] == PROCESSORS[:1]


@two
@pytest.mark.parametrize(
    "setting",
    [
        {"OMP_PROC_BIND": "close"},
        {"OMP_PROC_BIND": "spread"},
        {"OMP_PROC_BIND": "true"},
        {"OMP_PLACES": "cores"},
        {"GOMP_CPU_AFFINITY": " ".join(map(str, PROCESSORS))},
        {"KMP_AFFINITY": "granularity=fine,compact,1,0"},
    ],
    ids=str,
)
def test_openmp_that_binds_its_threads_takes_no_processor_away(setting: dict[str, str]) -> None:
    """OpenMP binds the thread that imports it to one processor, as guides for servers advise."""
    found = report(**setting)
    assert found["hologram"] == found["processors"] == len(PROCESSORS)
    assert found["worker"] is not None
    # The worker runs anywhere, or anywhere but beside the thread that woke it.
    assert set(found["worker"]) - set(found["main"]) or len(found["main"]) > 1, found
    assert found["all"] == PROCESSORS


@two
def test_openmp_bound_to_one_processor_means_it() -> None:
    found = report(mask=PROCESSORS[:1], OMP_PROC_BIND="close")
    assert found["processors"] == 1 and found["worker"] is None
    assert found["all"] == PROCESSORS[:1]


def test_quota_of_a_container(tmp_path: Path) -> None:
    root = container(tmp_path, "150000 100000\n")
    found = report(HOLOGRAM_SYSTEM_ROOT=root)
    assert found["hologram"] == found["processors"] == 1 and found["worker"] is None
    # PyTorch knows no quotas, and what it has chosen is left to it.
    assert found["pytorch"] == report()["pytorch"]


def test_quota_beyond_the_processors(tmp_path: Path) -> None:
    root = container(tmp_path, "6400000 100000\n")
    assert report(HOLOGRAM_SYSTEM_ROOT=root)["processors"] == len(PROCESSORS)


@two
def test_a_number_of_threads_that_is_given_wins_over_a_quota(tmp_path: Path) -> None:
    root = container(tmp_path, "100000 100000\n")
    found = report(HOLOGRAM_SYSTEM_ROOT=root, OMP_NUM_THREADS="2")
    assert found["hologram"] == found["pytorch"] == 2 and found["processors"] == 1
    chosen = "import torch; torch.set_num_threads(3)\n" + REPORT
    found = report(code=chosen, HOLOGRAM_SYSTEM_ROOT=root)
    assert found["hologram"] == found["pytorch"] == 3


def test_values_do_not_depend_on_the_number_of_threads_under_a_quota(tmp_path: Path) -> None:
    """Products are cut by what the container gets, whatever the number of threads is."""
    root = container(tmp_path, "700000 100000\n")
    code = """
import hashlib, json, torch, hologram_torch
torch.manual_seed(0)
a, b = torch.randn(700, 900, device="hologram"), torch.randn(900, 500, device="hologram")
found = set()
for threads in (1, 2, 3, 5, 8):
    torch.set_num_threads(threads)
    found.add(hashlib.sha256((a @ b).cpu().numpy().tobytes()).hexdigest())
print(json.dumps({"found": sorted(found)}))
"""
    found = [
        report(code=code, HOLOGRAM_SYSTEM_ROOT=root, HOLOGRAM_GEMM=gemm)["found"]
        for gemm in ("torch", "hologram")
    ]
    assert [len(bits) for bits in found] == [1, 1]
