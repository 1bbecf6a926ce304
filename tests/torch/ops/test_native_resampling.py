# SPDX-License-Identifier: MIT
"""Pooling by means and interpolation against cpu: values, gradients, layouts, errors."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from native_compare import DEVICE, check, values
from torch import Tensor

import hologram_torch

LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
TOLERANCE = {
    torch.float32: {"rtol": 2e-5, "atol": 2e-5},
    torch.float64: {"rtol": 1e-9, "atol": 1e-9},
}


def compare(f: Callable[[Tensor], Tensor], x: Tensor) -> None:
    """Values, gradients and how both lie in memory, without the fallback; or both refuse."""
    here = x.to(DEVICE)
    if x.dim() in LAST and x.is_contiguous(memory_format=LAST[x.dim()]):
        here = here.contiguous(memory_format=LAST[x.dim()])
    x, here = x.clone().requires_grad_(), here.requires_grad_()
    try:
        want = f(x)
    except RuntimeError as error:
        with pytest.raises(type(error)):
            f(here)
        return
    hologram_torch._C.reset_fallback_counts()
    got = f(here)
    weight = values(*want.shape, dtype=x.dtype, seed=5)
    want.backward(weight)
    got.backward(weight.to(DEVICE))
    assert x.grad is not None and here.grad is not None
    assert not hologram_torch._C.fallback_counts()
    assert got.stride() == want.stride()
    torch.testing.assert_close(got.detach().cpu(), want.detach(), **TOLERANCE[x.dtype])
    torch.testing.assert_close(here.grad.cpu(), x.grad, **TOLERANCE[x.dtype])


def images(some: random.Random, spatial: int) -> Tensor:
    sizes = [some.randint(1, 9 if spatial == 3 else 40) for _ in range(spatial)]
    dtype = some.choice([torch.float32, torch.float64])
    x = values(some.choice([1, 2, 3]), some.choice([1, 2, 5, 17]), *sizes, dtype=dtype)
    if spatial > 1 and some.random() < 0.5:
        return x.contiguous(memory_format=LAST[spatial + 2])
    return x


@pytest.mark.parametrize("seed", range(60))
def test_interpolation(seed: int) -> None:
    some = random.Random(seed)
    for mode, spatial in (
        ("nearest", 1), ("nearest", 2), ("nearest", 3), ("nearest-exact", 1),
        ("nearest-exact", 2), ("nearest-exact", 3), ("linear", 1), ("bilinear", 2),
        ("trilinear", 3), ("bicubic", 2),
    ):  # fmt: skip
        x = images(some, spatial)
        options: dict[str, Any] = {"mode": mode}
        if "linear" in mode or "cubic" in mode:
            options["align_corners"] = some.random() < 0.5
        if some.random() < 0.5:
            most = 14 if spatial == 3 else 60
            options["size"] = [some.randint(1, most) for _ in range(spatial)]
        else:
            scales = [2, 0.5, 1.3, 0.7, 3, 1.0, 1.1, 2.1]
            options["scale_factor"] = [some.choice(scales) for _ in range(spatial)]
            options["recompute_scale_factor"] = some.random() < 0.5
        if mode == "bicubic" and "scale_factor" in options:
            # PyTorch's gradient is the identity where sizes are equal, whatever the scale.
            factors = zip(x.shape[2:], options["scale_factor"], strict=True)
            if all(int(size * factor) == size for size, factor in factors):
                continue
        compare(lambda t, options=options: F.interpolate(t, **options), x)


@pytest.mark.parametrize("seed", range(60))
def test_means_of_windows(seed: int) -> None:
    some = random.Random(seed)
    for spatial in (2, 3):
        kernel = [some.randint(1, 4) for _ in range(spatial)]
        options: dict[str, Any] = {
            "kernel_size": kernel,
            "stride": [some.randint(1, 4) for _ in range(spatial)],
            "padding": [k // 2 if some.random() < 0.5 else 0 for k in kernel],
            "ceil_mode": some.random() < 0.5,
            "count_include_pad": some.random() < 0.5,
            "divisor_override": some.choice([None, None, 3, -2]),
        }
        x = images(some, spatial)
        size = [some.randint(2, 9) for _ in range(spatial)]
        pool = F.avg_pool2d if spatial == 2 else F.avg_pool3d
        adaptive = F.adaptive_avg_pool2d if spatial == 2 else F.adaptive_avg_pool3d
        for t in (x, x[0].contiguous()):
            compare(lambda t, pool=pool, options=options: pool(t, **options), t)
            compare(lambda t, adaptive=adaptive, size=size: adaptive(t, size), t)


def test_one_dimension_and_one_number_for_all() -> None:
    x = values(2, 3, 20)
    compare(lambda t: F.avg_pool1d(t, 3, 2, 1), x)
    compare(lambda t: F.adaptive_avg_pool1d(t, 7), x)
    compare(lambda t: F.avg_pool2d(t, 2), values(2, 3, 8, 9))
    compare(lambda t: F.interpolate(t, scale_factor=2), values(1, 2, 4, 5)[:, :, :, ::2])


def test_what_is_not_read_does_not_matter() -> None:
    x = values(1, 2, 6, 6)
    x[0, 0, 2, 3] = float("nan")
    x[0, 1, 5, 5] = float("inf")
    for f in (
        lambda t: F.avg_pool2d(t, 2),
        lambda t: F.avg_pool2d(t, 3, 2, 1, ceil_mode=True),
        lambda t: F.adaptive_avg_pool2d(t, 4),
        lambda t: F.interpolate(t, size=(11, 4)),
    ):
        for images in (x, x.contiguous(memory_format=torch.channels_last)):
            check(f, images)


def test_means_of_equal_elements_are_exact() -> None:
    x = torch.full((1, 2, 9, 9), 0.1, device=DEVICE)
    for size in (3, 5, 7):
        assert torch.all((F.avg_pool2d(x * 10, size) - 1).abs() <= 2e-7)
    assert torch.equal(F.avg_pool2d(torch.ones_like(x), 3, 1, 1, count_include_pad=False),
                       torch.ones(1, 2, 9, 9, device=DEVICE))  # fmt: skip


@pytest.mark.parametrize(
    "f",
    [
        lambda t: F.avg_pool2d(t, 0),
        lambda t: F.avg_pool2d(t, 9),
        lambda t: F.avg_pool2d(t, 2, padding=2),
        lambda t: F.avg_pool2d(t, 2, divisor_override=0),
        lambda t: F.adaptive_avg_pool2d(t, (-1, 2)),
        lambda t: F.interpolate(t, size=(0, 2)),
        lambda t: F.interpolate(t, size=(3,)),
        lambda t: F.interpolate(t[:, :, :0], size=(3, 3)),
    ],
)
def test_refuses_what_cpu_refuses(f: Callable[[Tensor], Tensor]) -> None:
    x = values(1, 2, 6, 6)
    with pytest.raises((RuntimeError, ValueError)) as here:
        f(x.to(DEVICE))
    with pytest.raises(type(here.value)):
        f(x)


def test_other_dtypes_and_empty_batches() -> None:
    for dtype in (torch.bfloat16, torch.float16, torch.uint8):
        x = (values(1, 3, 8, 8) * 20).abs().to(dtype)
        check(lambda t: F.interpolate(t, scale_factor=2), x)
    check(lambda t: F.avg_pool2d(t, 2), values(1, 3, 8, 8).bfloat16())
    check(lambda t: F.avg_pool2d(t, 2), values(0, 3, 8, 8))
    check(lambda t: F.interpolate(t, scale_factor=2, mode="linear"), values(1, 1, 70_000))
    check(lambda t: F.avg_pool1d(t, 2), values(1, 1, 70_000))
    check(lambda t: F.interpolate(t, scale_factor=2), values(0, 3, 8, 8))
