# SPDX-License-Identifier: MIT
"""torch.compile through Inductor: its C++ computes on the device's memory."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
import torch
from compile.models import DEVICE, Batch, Block, Broken, Gpt, numbers, run, words
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


def encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)


@pytest.mark.parametrize(
    ("make", "batch"),
    [(encoder, numbers(2, 10, 32)), (lambda: Gpt(fused=True), words(2, 12))],
)
@pytest.mark.parametrize("dynamic", [None, True])
def test_attention(make: Callable[[], nn.Module], batch: Batch, dynamic: bool | None) -> None:
    # No steps of an optimizer: gradients of biases of keys are zero but for rounding.
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = make().to(DEVICE)
    found = []
    for call in (model, torch.compile(model, dynamic=dynamic)):
        model.zero_grad()
        out = call(batch(0).to(DEVICE))
        out.square().mean().backward()
        found.append([out.detach(), *(p.grad for p in model.parameters())])
    for a, b in zip(*found, strict=True):
        assert a is not None and b is not None and a.stride() == b.stride()
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_packages_are_refused() -> None:
    program = torch.export.export(mlp().to(DEVICE), (torch.randn(4, 8, device=DEVICE),))
    with pytest.raises(Exception, match=r"AOTInductor and its C\+\+ wrapper cannot compile"):
        torch._inductor.aoti_compile_and_package(program)


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
