# SPDX-License-Identifier: MIT
"""What the tests of bench/ share."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench import peers  # noqa: E402
from bench.context import Context  # noqa: E402
from bench.core import Unavailable  # noqa: E402
from bench.machine import Bandwidth  # noqa: E402
from bench.measure import Timing  # noqa: E402

FAST = Timing(min_time=0.001, batch_time=1e-5, min_pairs=3, max_pairs=5)


def make_context(device: str = "cpu") -> Context:
    context = Context(device, quick=True, timing=FAST)
    context.sizes = [1_000]
    context._bandwidth = Bandwidth([])
    return context


def comes_true(condition, seconds: float = 30.0) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture(autouse=True)
def keep_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # OpenMP's barriers take milliseconds when the machine is busy
    yield
    torch.set_num_threads(before)


@pytest.fixture
def without_compile(monkeypatch):
    """Leave torch.compile out: its first call takes tens of seconds."""

    def unavailable():
        raise Unavailable("left out")

    monkeypatch.setattr(peers, "prepare_compile", unavailable)
