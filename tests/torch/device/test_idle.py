# SPDX-License-Identifier: MIT
"""What a process that does nothing costs: no processor time, and no memory for long."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.alone


def child(code: str, **environment: str) -> dict[str, Any]:
    env = {name: value for name, value in os.environ.items() if name != "HOLOGRAM_TRIM_SECONDS"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**env, "HOLOGRAM_AUTOLOAD": "1", **environment},
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("worker", ["0", "1"])
def test_a_process_that_records_nothing_uses_no_processor_time(worker: str) -> None:
    """Ten seconds after a second without an op: what getrusage() counts of all threads."""
    code = """
import json, resource, time, torch
import hologram_torch
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 10))
model.to("hologram")
for _ in range(20):
    x = torch.randn(512, 256, device="hologram")
    model(x).square().mean().backward()
    (x * 2 + 1).exp().sum().item()
x = torch.randn(1 << 21, device="hologram")
y = (x * 2 + 1).sin().sqrt().add(x).cpu()
del x, y
time.sleep(1.5)
before = resource.getrusage(resource.RUSAGE_SELF)
time.sleep(10)
after = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({
    "seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
    "switches": after.ru_nvcsw - before.ru_nvcsw,
}))
"""
    found = child(code, HOLOGRAM_WORKER=worker)
    # The main thread's sleep, and one look at what memory is to be given back.
    assert found["switches"] <= 10, found
    assert found["seconds"] < 0.02, found


_RESIDENT = """
import json, os, time, torch
import hologram_torch

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

torch.ones(8, device="hologram").sum().item()
before = resident()
"""


@pytest.mark.parametrize("asleep", [False, True])
def test_a_tensor_that_is_dropped_leaves_the_process(asleep: bool) -> None:
    """1.2 GB, also where the process has recorded nothing for long as it drops it."""
    code = (
        _RESIDENT
        + f"""
x = torch.ones(300_000_000, device="hologram")
x.add_(1)
assert x[-1].item() == 2
held = resident()
time.sleep({12.5 if asleep else 0})
del x
since = time.monotonic()
while resident() > before + (200 << 20) and time.monotonic() - since < 12:
    time.sleep(0.1)
print(json.dumps({{"held": held - before, "left": resident() - before}}))
"""
    )
    found = child(code, HOLOGRAM_WORKER="1")
    assert found["held"] > 1_150_000_000, found
    if len(os.sched_getaffinity(0)) > 1:
        assert found["left"] < 200 << 20, found


def test_without_a_worker_synchronize_gives_memory_back() -> None:
    code = (
        _RESIDENT
        + """
x = torch.ones(100_000_000, device="hologram")
assert x[-1].item() == 1
del x
time.sleep(1.5)
kept = resident() - before
torch.hologram.synchronize()
print(json.dumps({"kept": kept, "left": resident() - before}))
"""
    )
    found = child(code, HOLOGRAM_WORKER="0", HOLOGRAM_TRIM_SECONDS="1")
    assert found["kept"] > 390_000_000 and found["left"] < 100_000_000, found
    never = child(code, HOLOGRAM_WORKER="0", HOLOGRAM_TRIM_SECONDS="0")
    assert never["left"] > 390_000_000, never
