# SPDX-License-Identifier: MIT
"""How many kernels run for chains that people write, by the recorder's counters on the device."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from programs import composites

import hologram_torch
from hologram_torch import _C

pytestmark = [
    pytest.mark.skipif(not _C.can_defer, reason="deferred execution needs PyTorch 2.13 or later"),
    pytest.mark.usefixtures("deferred"),
]

Tensor = torch.Tensor
DEVICE = "hologram"


def make(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(dtype).to(DEVICE)


@pytest.fixture(autouse=True)
def nothing_before() -> None:
    """How earlier tests looked at their results decides whether a small op waits for others."""
    _C.reset_recorder_stats()


def counted(call: Callable[[], object]) -> tuple[int, int]:
    """Run what is recorded, call, and run what that recorded: (ops recorded, kernels)."""
    torch.hologram.synchronize()
    before = _C.recorder_stats()
    kept = call()
    torch.hologram.synchronize()
    after = _C.recorder_stats()
    del kept
    return after["ops_recorded"] - before["ops_recorded"], after["kernels"] - before["kernels"]


def kernels(call: Callable[[], object], at_least: int = 2) -> int:
    """Return the kernels of a call that records at least `at_least` ops, and of a second."""
    ops, first = counted(call)
    assert ops >= at_least, f"only {ops} ops were recorded"
    again, second = counted(call)
    assert (again, second) == (ops, first)
    return first


def five_ops(x: Tensor) -> Tensor:
    return ((x * 2 + 1).tanh() - x).abs()


@pytest.mark.parametrize("shape", [(5,), (1000,), (64, 768), (300, 1000)])
def test_a_chain_is_one_kernel(shape: tuple[int, ...]) -> None:
    x = make(*shape)
    assert kernels(lambda: five_ops(x), at_least=5) == 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_a_chain_is_one_kernel_in_other_types(dtype: torch.dtype) -> None:
    x = make(64, 100, dtype=dtype)
    assert kernels(lambda: five_ops(x), at_least=5) == 1


def test_casts_broadcasts_and_transposes_join_a_chain() -> None:
    x, row, column = make(64, 100), make(100), make(64, 1)
    assert kernels(lambda: ((x + row) * column).to(torch.bfloat16).float() - 1, at_least=5) == 1
    y = make(100, 64)
    assert kernels(lambda: (x + y.t()).exp() * 2, at_least=3) == 1


def test_views_of_a_chain_join_it() -> None:
    x = make(64, 100)
    assert kernels(lambda: (x * 2).view(6400).sin().reshape(100, 64) + 1, at_least=3) == 1


def test_ops_in_place_join_a_chain() -> None:
    x, y = make(64, 100), make(64, 100, seed=1)
    assert kernels(lambda: x.mul_(0.5).add_(y).clamp_(-1, 1), at_least=3) == 1


def test_an_expression_joins_a_chain() -> None:
    op = hologram_torch.elementwise("x * tanh(softplus(x)) + y")
    x, y = make(64, 100), make(100)
    assert kernels(lambda: op(x * 2, y).abs() - 1, at_least=7) == 1
    half = make(64, 100, dtype=torch.bfloat16)
    assert kernels(lambda: op(half * 2, half).abs(), at_least=7) == 1


def test_the_gradient_of_an_expression_is_one_kernel() -> None:
    op = hologram_torch.elementwise("x * tanh(softplus(x)) * y")
    x, y = make(64, 100).requires_grad_(), make(64, 100).requires_grad_()
    seed = make(64, 100)
    out = op(x, y)
    torch.hologram.synchronize()
    assert kernels(lambda: torch.autograd.grad(out, (x, y), seed, retain_graph=True), 5) == 1


def test_gated_units_are_one_kernel() -> None:
    x, y = make(64, 100), make(64, 100, seed=1)
    assert kernels(lambda: torch.ops.hologram.swiglu(x, y)) == 1
    assert kernels(lambda: torch.ops.hologram.geglu(x * 2, y) + 1) == 1


def test_a_dead_chain_is_no_kernel() -> None:
    x = make(64, 100)

    def dead() -> None:
        five_ops(x)

    assert kernels(dead, at_least=5) == 0


def test_what_is_dead_in_part_runs_in_part() -> None:
    x, y = make(64, 100), make(64, 100, seed=1)

    def mostly_dead() -> Tensor:
        five_ops(y)
        x.fill_(1)
        x.copy_(y)
        return x

    assert kernels(mostly_dead, at_least=7) == 1


def test_equal_computations_are_one() -> None:
    x = make(64, 100)
    torch.hologram.synchronize()
    before = _C.recorder_stats()
    a, b = five_ops(x), five_ops(x)
    torch.hologram.synchronize()
    after = _C.recorder_stats()
    assert after["kernels"] - before["kernels"] == 1
    assert torch.equal(a, b)


@pytest.mark.parametrize("rows", [1, 7, 512])
def test_layer_norm_by_hand_is_one_kernel(rows: int) -> None:
    x, w, b = make(rows, 768), make(768, seed=1), make(768, seed=2)
    assert kernels(lambda: composites.layer_norm(x, w, b), at_least=8) == 1


def test_layer_norm_by_var_is_one_kernel() -> None:
    x = make(512, 768)
    assert kernels(lambda: composites.layer_norm_var(x), at_least=5) == 1


def test_rms_norm_is_one_kernel() -> None:
    x = make(512, 768)
    assert kernels(lambda: composites.rms_norm(x), at_least=5) == 1


def test_softmax_by_hand_is_one_kernel() -> None:
    x = make(512, 1000)
    assert kernels(lambda: composites.softmax_by_hand(x), at_least=5) == 1


def test_softmax_joins_what_is_around_it() -> None:
    x, y = make(512, 256), make(512, 256, seed=1)
    assert kernels(lambda: (x * 0.125 + y).softmax(-1) * 2, at_least=4) == 1


def test_several_folds_of_one_input_are_one_kernel() -> None:
    x = make(512, 256)
    assert kernels(lambda: composites.moments(x), at_least=4) == 1


def test_swiglu_is_one_kernel() -> None:
    x, y = make(512, 256), make(512, 256, seed=1)
    assert kernels(lambda: composites.swiglu(x, y), at_least=3) == 1


def test_gelu_by_hand_is_one_kernel() -> None:
    x = make(512, 256)
    assert kernels(lambda: composites.gelu_by_hand(x), at_least=7) == 1


def test_adam_by_hand_is_one_kernel() -> None:
    p, g, m, v = (make(1000, seed=i).abs() for i in range(4))
    assert kernels(lambda: composites.adam(p, g, m, v, 3), at_least=8) == 1


def test_adam_on_twenty_parameters_is_a_kernel_for_each() -> None:
    lists = [[make(100, seed=20 * k + i).abs() for i in range(20)] for k in range(4)]
    assert kernels(lambda: composites.adam_foreach(*lists, 3), at_least=140) == 20


def test_adam_on_two_shapes_is_a_kernel_for_each() -> None:
    lists = [
        [make(100 if i % 2 else 300, seed=20 * k + i).abs() for i in range(20)] for k in range(4)
    ]
    assert kernels(lambda: composites.adam_foreach(*lists, 3), at_least=140) == 20


@pytest.mark.parametrize(
    "kind",
    [
        partial(torch.optim.AdamW, lr=0.01),
        partial(torch.optim.SGD, lr=0.01, momentum=0.9, nesterov=True, maximize=True),
        partial(torch.optim.RMSprop, lr=0.01, momentum=0.9, centered=True),
    ],
)
def test_an_optimizer_of_many_parameters_is_a_kernel_for_each(kind: Callable[..., Any]) -> None:
    def trained(execution: str) -> list[torch.Tensor]:
        with hologram_torch.execution(execution):
            torch.manual_seed(0)
            shapes = [(5,), (7, 3), (300,)]
            sizes = [shapes[i % 3] for i in range(210)]
            parameters = [torch.randn(s, device="hologram", requires_grad=True) for s in sizes]
            optimizer = kind(parameters, weight_decay=0.1, foreach=True)
            for p in parameters:
                p.grad = torch.randn_like(p)
            optimizer.step()
            torch.hologram.synchronize()
            e = hologram_torch.explain(optimizer.step)
        if execution == "deferred":
            # One circuit of more ops than others have.
            assert len(e.circuits) == 1
            assert e.stats["kernels_run"] == len(parameters)
        return [p.detach() for p in parameters]

    for a, b in zip(trained("deferred"), trained("eager"), strict=True):
        assert torch.equal(a, b)


def test_numbers_change_no_plan() -> None:
    x = make(64, 100)
    counted(lambda: five_ops(x) * 0.3)
    misses = _C.recorder_stats()["plan_misses"]
    for i in range(1, 6):
        assert counted(lambda n=0.3 + i: five_ops(x) * n)[1] == 1
    assert _C.recorder_stats()["plan_misses"] == misses


def test_a_training_loop_plans_nothing_new() -> None:
    x, y = make(32, 20), make(32, 4, seed=1)
    w = make(20, 4, seed=2).requires_grad_()
    b = torch.zeros(4, device=DEVICE, requires_grad=True)
    optimizer = torch.optim.Adam([w, b], lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(torch.tanh(x @ w + b), y).backward()
        optimizer.step()

    def epoch() -> None:
        for _ in range(5):
            step()
        torch.hologram.synchronize()

    for _ in range(3):
        epoch()
    before = _C.recorder_stats()
    epoch()
    after = _C.recorder_stats()
    assert after["plan_misses"] == before["plan_misses"]
    assert after["plan_hits"] > before["plan_hits"]


def test_a_look_runs_what_was_recorded() -> None:
    x = make(64, 100)
    torch.hologram.synchronize()
    before = _C.recorder_stats()["kernels"]
    y = five_ops(x)
    assert _C.recorder_stats()["kernels"] == before
    total = y.sum().item()
    assert _C.recorder_stats()["kernels"] > before
    assert total == pytest.approx(five_ops(x.cpu()).sum().item(), rel=1e-4)


def test_eager_mode_records_nothing() -> None:
    x = make(64, 100)
    with hologram_torch.execution("eager"):
        assert counted(lambda: five_ops(x))[0] == 0


# --- Calls: whole-tensor work is a kernel of its own, or begins one ---------------------------


def own_products() -> bool:
    """Whether products are recorded here; where PyTorch's BLAS computes them they are not."""
    x = make(4, 4)
    before = _C.recorder_stats()["ops_recorded"]
    kept = x @ x
    return kept is not None and _C.recorder_stats()["ops_recorded"] > before


def test_cross_entropy_and_its_gradient_are_five_kernels() -> None:
    x, target = make(32, 10).requires_grad_(), (torch.arange(32) % 10).to(DEVICE)

    def step() -> list[Tensor]:
        loss = torch.nn.functional.cross_entropy(x, target)
        return [loss.detach(), *torch.autograd.grad(loss, x)]

    # log_softmax, nll_loss; the gradient of 1, nll_loss's, log_softmax's.
    assert kernels(step, at_least=5) == 5


@pytest.mark.parametrize("fused", [False, True])
def test_a_training_step_of_an_mlp(fused: bool) -> None:
    if not own_products():
        pytest.skip("PyTorch's BLAS computes products here")
    torch.manual_seed(0)
    nn = torch.nn
    net = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 10)).to(DEVICE)
    x, target = make(32, 20), (torch.arange(32) % 10).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01, fused=fused)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step()
    # The fused optimizer is one kernel, beside one for each of the four counts of steps.
    assert kernels(step, at_least=19) == (16 if fused else 13)


class Block(torch.nn.Module):
    """A block of a GPT."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        nn = torch.nn
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, t, width = x.shape
        q, k, v = (
            part.view(n, t, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.first(x)).split(width, 2)
        )
        weights = (q @ k.transpose(-2, -1) * 0.35).softmax(-1)
        x = x + self.project((weights @ v).transpose(1, 2).reshape(n, t, width))
        return x + self.down(torch.nn.functional.gelu(self.up(self.second(x))))


def test_a_gpt_block_and_its_gradient() -> None:
    if not own_products():
        pytest.skip("PyTorch's BLAS computes products here")
    torch.manual_seed(0)
    block, x = Block().to(DEVICE), make(4, 8, 16)

    def step() -> list[Tensor]:
        return list(torch.autograd.grad(block(x).square().mean(), list(block.parameters())))

    # 37 where the step is one circuit, three more where parts of it are given to the worker.
    assert 37 <= kernels(step, at_least=45) <= 40
