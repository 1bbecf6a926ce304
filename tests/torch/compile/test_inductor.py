# SPDX-License-Identifier: MIT
"""torch.compile through Inductor: its C++ computes on the device's memory."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
import torch
from compile.models import DEVICE, Batch, Block, Broken, numbers, run
from torch import nn

from hologram_torch import _C

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler"),
    pytest.mark.skipif(
        torch.__version__ < "2.15", reason="Inductor asks the device from PyTorch 2.15 on"
    ),
]


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 2))


@pytest.mark.parametrize(
    ("make", "batch"),
    [
        (mlp, numbers(6, 8)),
        (mlp, numbers(3, 8, grows=(2, 0))),
        (Broken, numbers(5, 8)),
        (Block, numbers(4, 8, 12, 12)),
    ],
)
def test_training(make: Callable[[], nn.Module], batch: Batch) -> None:
    expected = run(make, batch, compiled=False)
    got = run(make, batch, compiled=True)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_kernels_borrow_addresses() -> None:
    torch._dynamo.reset()
    f = torch.compile(lambda x: (x * 2 + 1).sin())
    x = torch.randn(64, device=DEVICE)
    torch.testing.assert_close(f(x).cpu(), (x.cpu() * 2 + 1).sin())
    y = f(x)
    before = _C.recorder_stats()["kernels"]
    z = (y + x) * 2 - x
    assert _C.recorder_stats()["kernels"] == before  # recorded, as before the call
    torch.hologram.synchronize()
    assert _C.recorder_stats()["kernels"] == before + 1
    assert z.shape == (64,)
