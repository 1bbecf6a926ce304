# SPDX-License-Identifier: MIT
"""torch.compile of checkpoints around random ops: the backward pass draws what the forward drew."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

DEVICE = "hologram"
inductor = pytest.param(
    "inductor",
    marks=[
        pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler"),
        pytest.mark.skipif(
            torch.__version__ < "2.15", reason="Inductor asks the device from PyTorch 2.15 on"
        ),
    ],
)


def body(x: Tensor, w: Tensor) -> Tensor:
    return F.dropout(torch.relu(x @ w), 0.4) @ w + torch.rand_like(x) * x


def step(x: Tensor, w: Tensor) -> Tensor:
    result: Tensor = checkpoint(body, x, w, use_reentrant=False)
    return F.dropout(result, 0.2)


def run(function: Callable[..., Tensor]) -> list[Tensor]:
    """Three steps after one seed, then one after it was set again."""
    generator = torch.Generator().manual_seed(1)
    x, w = (torch.randn(8, 8, generator=generator).to(DEVICE).requires_grad_() for _ in "xw")
    results: list[Tensor] = []
    for seeds in (True, False, False, True):
        if seeds:
            torch.manual_seed(3)
        y = function(x, w)
        results += [y.detach(), *torch.autograd.grad(y.square().sum(), (x, w))]
    return [*results, torch.hologram.get_rng_state()]


@pytest.mark.parametrize("backend", ["aot_eager", "hologram", inductor])
def test_gradients_are_those_of_eager_code(backend: str) -> None:
    torch._dynamo.reset()
    expected = run(step)
    options: dict[str, Any] = {}
    if backend == "inductor":
        options["options"] = {"fallback_random": True}  # draws as eager code does
    got = run(torch.compile(step, backend=backend, **options))
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b)
    assert torch.equal(got[0], got[9]) and not torch.equal(got[0], got[3])


def test_inductor_draws_alike_in_both_passes() -> None:
    """With its own random numbers, of which eager code knows nothing."""
    if shutil.which("g++") is None or torch.__version__ < "2.15":
        pytest.skip("Inductor needs a C++ compiler and PyTorch 2.15")
    torch._dynamo.reset()

    @torch.compile
    def function(x: Tensor) -> Tensor:
        # The sine makes the backward pass ask for what was dropped.
        result: Tensor = checkpoint(lambda t: F.dropout(t, 0.5).sin(), x, use_reentrant=False)
        return result

    torch.manual_seed(7)
    x = torch.rand(64, 64).add(0.1).to(DEVICE).requires_grad_()
    seen = []
    for _ in range(2):
        y = function(x)
        (grad,) = torch.autograd.grad(y.sum(), x)
        kept = y.detach().cpu() != 0
        want = torch.where(kept, 2 * (2 * x.detach().cpu()).cos(), torch.tensor(0.0))
        torch.testing.assert_close(grad.cpu(), torch.where(kept, want, torch.tensor(0.0)))
        seen.append(kept)
    assert 0.4 < seen[0].float().mean() < 0.6
    assert not torch.equal(*seen)


def test_operators() -> None:
    """The two operators by themselves, and what they say of the CPU."""
    from torch._prims.rng_prims import run_and_save_rng_state, run_with_rng_state

    aten = torch.ops.aten
    for place in (DEVICE, "cpu"):
        x = torch.ones(100, device=place)
        random_state = torch.get_rng_state if place == "cpu" else torch.hologram.get_rng_state
        state, first = run_and_save_rng_state(aten.bernoulli.p, x, 0.5)
        after = random_state()
        again = run_with_rng_state(state, aten.bernoulli.p, x, 0.5)
        assert torch.equal(first, again)
        assert torch.equal(after, random_state())
        _, made = run_and_save_rng_state(aten.rand.default, [5], device=torch.device(place))
        assert made.device.type == place
