# SPDX-License-Identifier: MIT
"""Fused optimizers and gradient scaling of the device against cpu's fused ones."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from accuracy import Rounding
from native_compare import DEVICE, check, to_device, values

import hologram_torch

SHAPES = [(3, 5), (1,), (64, 33), (20000,), (2, 3, 4)]
CASES: list[tuple[type[torch.optim.Optimizer], dict[str, Any]]] = [
    (torch.optim.Adam, {}),
    (torch.optim.Adam, {"weight_decay": 0.1, "betas": (0.8, 0.95), "eps": 1e-6}),
    (torch.optim.Adam, {"amsgrad": True, "maximize": True}),
    (torch.optim.AdamW, {"weight_decay": 0.05}),
    (torch.optim.AdamW, {"amsgrad": True, "weight_decay": 0.05}),
    (torch.optim.AdamW, {"lr": torch.tensor(0.01)}),
    (torch.optim.SGD, {}),
    (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}),
    (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "maximize": True}),
    (torch.optim.SGD, {"momentum": 0.9, "dampening": 0.3}),
    (torch.optim.Adagrad, {"lr_decay": 0.1, "weight_decay": 0.1}),
    (torch.optim.Adagrad, {"maximize": True, "initial_accumulator_value": 0.5}),
]
# Four steps, each of which rounds parameter and states: in half types to their own few digits.
STEPS = Rounding(units=16)


def train(
    kind: type[torch.optim.Optimizer],
    options: dict[str, Any],
    device: str | torch.device,
    dtype: torch.dtype,
    strided: bool = False,
    wide: bool = False,
) -> list[torch.Tensor]:
    """Some steps on fixed gradients; returns parameters and states.

    `wide` steps in double precision from the same numbers.
    """
    options = {"lr": 0.01} | {
        k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in options.items()
    }
    kept = torch.float64 if wide else dtype
    params = [values(*s, dtype=dtype, seed=i).to(device, kept) for i, s in enumerate(SHAPES)]
    if strided:
        params = [p.transpose(0, -1).contiguous().transpose(0, -1) for p in params]
    params = [torch.nn.Parameter(p) for p in params]
    optimizer = kind(params, fused=True, **options)
    for step in range(4):
        for i, p in enumerate(params):
            p.grad = values(*SHAPES[i], dtype=dtype, seed=100 * step + i).to(device, kept)
        optimizer.step()
    states = [v for p in params for v in optimizer.state[p].values() if isinstance(v, torch.Tensor)]
    return [t.detach().cpu().contiguous() for t in (*params, *states)]


@pytest.mark.parametrize("kind,options", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_fused_steps(
    kind: type[torch.optim.Optimizer], options: dict[str, Any], dtype: torch.dtype
) -> None:
    if dtype == torch.float16 and kind is torch.optim.Adam:
        options = options | {"eps": 1e-4}
    if kind is torch.optim.SGD and dtype.itemsize == 2 and torch.__version__ < (2, 14):
        pytest.skip("before 2.14 PyTorch's own fused SGD goes wrong in half types (by over 1)")
    expected = train(kind, options, "cpu", dtype)
    hologram_torch.reset_fallback_counts()
    actual = train(kind, options, DEVICE, dtype)
    assert not [name for name in hologram_torch.fallback_counts() if "fused" in name]
    exact = train(kind, options, "cpu", dtype, wide=True)
    for i, (a, e, w) in enumerate(zip(actual, expected, exact, strict=True)):
        problem = STEPS.excess(a, e, w.double(), w.double())
        assert problem is None, f"tensor {i}: {problem}"


@pytest.mark.parametrize("kind,options", CASES)
def test_layout_of_parameters_does_not_matter(
    kind: type[torch.optim.Optimizer], options: dict[str, Any]
) -> None:
    rows = train(kind, options, DEVICE, torch.float32)
    columns = train(kind, options, DEVICE, torch.float32, strided=True)
    for a, e in zip(columns, rows, strict=True):
        assert torch.equal(a, e)


@pytest.mark.parametrize("kind,options", CASES)
def test_threads_do_not_matter(kind: type[torch.optim.Optimizer], options: dict[str, Any]) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = train(kind, options, DEVICE, torch.float32)
        torch.set_num_threads(4)
        four = train(kind, options, DEVICE, torch.float32)
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(one, four, strict=True))


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD])
def test_fused_agrees_with_foreach(kind: type[torch.optim.Optimizer]) -> None:
    def run(**how: bool) -> list[torch.Tensor]:
        params = [torch.nn.Parameter(values(*s, seed=i).to(DEVICE)) for i, s in enumerate(SHAPES)]
        optimizer = kind(params, lr=0.01, **how)
        for step in range(3):
            for i, p in enumerate(params):
                p.grad = values(*SHAPES[i], seed=10 * step + i).to(DEVICE)
            optimizer.step()
        return [p.detach().cpu() for p in params]

    for a, b in zip(run(fused=True), run(foreach=True), strict=True):
        torch.testing.assert_close(a, b, rtol=2e-6, atol=2e-6)


def scaler_run(device: str | torch.device, poison: bool) -> list[Any]:
    model = torch.nn.Linear(6, 3)
    with torch.no_grad():
        model.weight.copy_(values(3, 6))
        model.bias.copy_(values(3, seed=1))
    model = copy.deepcopy(model).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    scaler = torch.amp.GradScaler(torch.device(device).type, init_scale=1024.0, growth_interval=2)
    for step in range(5):
        x = values(4, 6, seed=step).to(device)
        if poison and step == 2:
            x[0, 0] = float("inf")
        optimizer.zero_grad()
        scaler.scale(model(x).square().mean()).backward()
        if step == 3:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    return [scaler.get_scale(), *(p.detach().cpu() for p in model.parameters())]


@pytest.mark.parametrize("poison", [False, True])
def test_grad_scaler(poison: bool) -> None:
    expected, actual = scaler_run("cpu", poison), scaler_run(DEVICE, poison)
    assert actual[0] == expected[0]
    for a, e in zip(actual[1:], expected[1:], strict=True):
        torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("bad", [None, float("inf"), float("nan"), -float("inf")])
def test_unscale(dtype: torch.dtype, bad: float | None) -> None:
    def run(grads: list[torch.Tensor], found: torch.Tensor, inv: torch.Tensor) -> list:
        torch._amp_foreach_non_finite_check_and_unscale_(grads, found, inv)
        return [*grads, found]

    grads = [
        values(5000, dtype=dtype),
        values(30, 4, dtype=dtype, seed=1).t(),
        values(7, dtype=dtype),
    ]
    if bad is not None:
        grads[1][2, 3] = bad
    check(run, grads, torch.zeros(()), torch.tensor(0.25))


def test_update_scale() -> None:
    def run(scale: float, tracker: int, found: float, x: torch.Tensor) -> list[torch.Tensor]:
        s = torch.tensor(scale).to(x.device)
        t = torch.tensor(tracker, dtype=torch.int32).to(x.device)
        f = torch.tensor(found).to(x.device)
        torch._amp_update_scale_(s, t, f, 2.0, 0.5, 3)
        return [s, t]

    for scale, tracker, found in [(8.0, 0, 0.0), (8.0, 2, 0.0), (8.0, 2, 1.0), (3e38, 2, 0.0)]:
        check(run, scale, tracker, found, torch.zeros(1))


def test_bad_groups_raise() -> None:
    p = [to_device(values(3))]
    with pytest.raises(RuntimeError, match="length"):
        torch._fused_sgd_(
            p, [], [], weight_decay=0, momentum=0, lr=1, dampening=0, nesterov=False,
            maximize=False, is_first_step=True,
        )  # fmt: skip


def test_missing_states_raise_at_the_call() -> None:
    """Not when the circuit runs: the code that asks for the results then did nothing wrong."""
    p, g, m = ([to_device(values(3))] for _ in range(3))
    step = [torch.ones((), device=DEVICE)]
    numbers = {
        "lr": 1,
        "beta1": 0.9,
        "beta2": 0.9,
        "weight_decay": 0,
        "eps": 1,
        "maximize": False,
    }
    for name in ["_fused_adam_", "_fused_adamw_"]:
        fused, before = getattr(torch, name), p[0].clone()
        for states, amsgrad in [((m, [], []), False), (([], m, []), False), ((m, m, []), True)]:
            with pytest.raises(RuntimeError, match="lists must be of one length, got 0 and 1"):
                fused(p, g, *states, step, amsgrad=amsgrad, **numbers)
        torch.testing.assert_close(p[0].cpu(), before.cpu(), rtol=0, atol=0)
    with pytest.raises(RuntimeError, match="lists must be of one length, got 0 and 1"):
        torch._fused_adagrad_(
            p, g, [], step, lr=1, lr_decay=0, weight_decay=0, eps=1, maximize=False
        )
    with pytest.raises(RuntimeError, match="momentum needs a buffer per parameter, got 0 for 1"):
        torch._fused_sgd_(
            p, g, [], weight_decay=0, momentum=0.9, lr=1, dampening=0, nesterov=False,
            maximize=False, is_first_step=True,
        )  # fmt: skip
