# SPDX-License-Identifier: MIT
"""Losses of the device against cpu: reductions, weights, dtypes, layouts, gradients, errors."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from native_compare import (
    ACCURATE,
    FLOATS,
    check,
    check_native,
    layouts,
    values,
)

POINT: dict[str, Callable[..., torch.Tensor]] = {
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "smooth_l1": lambda x, y, **k: F.smooth_l1_loss(x, y, beta=0.7, **k),
    "huber": lambda x, y, **k: F.huber_loss(x, y, delta=0.7, **k),
    "bce": lambda x, y, **k: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), **k),
    "bce_with_logits": lambda x, y, **k: F.binary_cross_entropy_with_logits(x, y.sigmoid(), **k),
    "kl_div": lambda x, y, **k: F.kl_div(x, y.sigmoid(), **k),
}
REDUCTIONS = ["none", "mean", "sum"]


def with_grad(
    loss: Callable[..., torch.Tensor], x: torch.Tensor, *rest: object, **kwargs: object
) -> list:
    x = x.detach().requires_grad_()
    value = loss(x, *rest, **kwargs)
    weights = torch.arange(value.numel(), dtype=torch.float64).reshape(value.shape) + 0.5
    (grad,) = torch.autograd.grad(value, x, weights.to(value.dtype).to(value.device))
    return [value.detach(), grad]


@pytest.mark.parametrize("name", POINT)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_point_losses(name: str, dtype: torch.dtype, reduction: str) -> None:
    y = values(5, 7, dtype=dtype, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for x in layouts(values(5, 7, dtype=dtype)):
            check(with_grad, POINT[name], x, y, reduction=reduction, tol=ACCURATE)
        check(
            POINT[name], values(0, 3, dtype=dtype), values(0, 3, dtype=dtype), reduction=reduction
        )
        check(
            POINT[name], values(dtype=dtype), values(dtype=dtype), reduction=reduction, tol=ACCURATE
        )
        check(
            POINT[name],
            values(4, 3, dtype=dtype),
            values(3, dtype=dtype),
            reduction=reduction,
            tol=ACCURATE,
        )
        # One value for all elements, as broadcasting a prediction of one element makes it.
        check(
            lambda x, *rest, **kwargs: with_grad(POINT[name], x.expand(6), *rest, **kwargs),
            values(dtype=dtype),
            values(6, dtype=dtype, seed=1),
            reduction=reduction,
            tol=ACCURATE,
        )


def test_point_losses_are_native() -> None:
    x, y = values(64, 50), values(64, 50, seed=1)
    for loss in (F.mse_loss, F.smooth_l1_loss, F.huber_loss):
        for reduction in REDUCTIONS:
            check_native(loss, x, y, reduction=reduction, tol=ACCURATE)
    p = y.sigmoid()
    check_native(F.binary_cross_entropy, x.sigmoid(), p, tol=ACCURATE)
    check_native(F.binary_cross_entropy_with_logits, x, p, tol=ACCURATE)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_weights(reduction: str) -> None:
    x, y = values(5, 7), values(5, 7, seed=1).sigmoid()
    for shape in [(5, 7), (7,), (5, 1), ()]:
        w = values(*shape, seed=2).abs()
        for loss in (
            lambda x, y, w: F.binary_cross_entropy(x.sigmoid(), y, w, reduction=reduction),
            lambda x, y, w: F.binary_cross_entropy_with_logits(x, y, w, reduction=reduction),
            lambda x, y, w: F.binary_cross_entropy_with_logits(
                x, y, pos_weight=w, reduction=reduction
            ),
        ):
            check(with_grad, loss, x, y, w, tol=ACCURATE)


def test_edges_of_bce() -> None:
    x = torch.tensor([0.0, 1.0, 0.0, 1.0])
    y = torch.tensor([0.0, 0.0, 1.0, 1.0])
    check(F.binary_cross_entropy, x, y, reduction="none")
    for bad in (-0.1, 1.1, math.nan):
        check(F.binary_cross_entropy, torch.tensor([0.5, bad]), torch.tensor([0.0, 1.0]))
    big = torch.tensor([1e4, -1e4, 88.0, -120.0])
    check(F.binary_cross_entropy_with_logits, big, y, reduction="none", tol=ACCURATE)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
def test_nll(dtype: torch.dtype, reduction: str, weighted: bool) -> None:
    w = values(6, dtype=dtype, seed=3).abs() if weighted else None
    for shape in [(6,), (8, 6), (4, 6, 5), (3, 6, 4, 5), (2, 6, 2, 3, 2)]:
        x = values(*shape, dtype=dtype)
        target_shape = shape[:0] if len(shape) == 1 else (shape[0], *shape[2:])
        target = torch.randint(0, 6, target_shape, generator=torch.Generator().manual_seed(1))
        check(with_grad, F.nll_loss, x, target, weight=w, reduction=reduction, tol=ACCURATE)

        def run(x: torch.Tensor, *rest: torch.Tensor) -> list:
            x = x.contiguous() if x.is_cpu else x  # cpu refuses some layouts
            return with_grad(F.nll_loss, x, rest[0], weight=rest[1], reduction=reduction)

        for y in layouts(x):
            check(run, y, target, w, tol=ACCURATE)
        ignored = target.clone()
        ignored.flatten()[::2] = 2
        check(
            with_grad,
            F.nll_loss,
            x,
            ignored,
            weight=w,
            reduction=reduction,
            ignore_index=2,
            tol=ACCURATE,
        )
        check(
            with_grad,
            F.cross_entropy,
            x,
            ignored,
            weight=w,
            reduction=reduction,
            ignore_index=2,
            tol=ACCURATE,
        )
        check(
            with_grad,
            F.cross_entropy,
            x,
            target,
            reduction=reduction,
            label_smoothing=0.1,
            tol=ACCURATE,
        )


def test_nll_corners() -> None:
    x = values(4, 6)
    target = torch.tensor([0, 5, 2, 1])
    check_native(F.nll_loss, x, target)
    check_native(F.cross_entropy, x, target, tol=ACCURATE)
    check_native(
        F.cross_entropy,
        values(4, 6, 3, 3),
        target[:, None, None].expand(4, 3, 3).contiguous(),
        tol=ACCURATE,
    )
    check(F.nll_loss, x, torch.full((4,), -100))  # nothing left: NaN
    check(F.nll_loss, x, torch.full((4,), -100), reduction="sum")
    check(F.nll_loss, values(0, 6), target[:0], reduction="sum")
    check(F.nll_loss, values(0, 6), target[:0])
    check(F.nll_loss, x, torch.tensor([0, 6, 2, 1]))
    check(F.nll_loss, x, torch.tensor([0, -1, 2, 1]))
    check(F.nll_loss, x, target[:3])
    check(F.nll_loss, x, target.float())
    check(F.nll_loss, x, target, weight=values(5))
    check(F.nll_loss, x, target.to(torch.uint8))


def test_shape_errors_are_pytorchs() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(F.mse_loss, values(3, 4), values(5))
        check(F.smooth_l1_loss, values(3), values(3), beta=-1.0)
        check(F.smooth_l1_loss, values(3), values(3, seed=1), beta=0.0)
        check(F.huber_loss, values(3), values(3), delta=0.0)
        check(F.binary_cross_entropy, values(3, 4).sigmoid(), values(3))
        check(F.mse_loss, values(3), values(3).double())
        check(F.mse_loss, values(3, dtype=torch.int64), values(3, dtype=torch.int64))
