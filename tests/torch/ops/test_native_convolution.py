# SPDX-License-Identifier: MIT
"""Convolutions of the device against cpu: values, gradients, layouts, errors, bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from accuracy import Rounding
from native_compare import ACCURATE, DEVICE, check, check_native, to_device, values
from torch import Tensor

import hologram_torch

DTYPES = [torch.float32, torch.float64]
# A bias's gradient is the sum of hundreds of numbers about 1, which here cancel to a tenth.
SUMS = Rounding(units=64)
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def _convolution(dims: int, transposed: bool = False) -> Callable[..., Tensor]:
    return getattr(F, f"conv{'_transpose' if transposed else ''}{dims}d")


def _gradients(
    function: Callable[..., Tensor], *operands: Tensor, step: float = 0.7, **options: Any
) -> list[Tensor]:
    operands = tuple(t.detach().requires_grad_() for t in operands)
    y = function(*operands, **options)
    # A gradient that differs from place to place, and that both devices agree on.
    weight = torch.arange(y.numel(), dtype=torch.float64).mul(step).sin().to(y.dtype)
    return [y, *torch.autograd.grad(y, operands, weight.view(y.shape).to(y.device))]


def _check(function: Callable[..., Tensor], *operands: Tensor, **options: Any) -> None:
    def redraw(seed: int) -> tuple[Any, dict[str, Any]]:
        torch.manual_seed(seed)
        others = [torch.randn_like(t) * t.std() for t in operands]
        # Sums of a sine are off by what its period makes of the order of additions.
        return (function, *others), {**options, "step": 3.1 * torch.rand(()).item()}

    check_native(_gradients, function, *operands, tol=SUMS, redraw=redraw, **options)


CASES = [
    ((2, 3, 9, 10), 8, 3, {"padding": 1}),
    ((1, 5, 12, 33), 7, 3, {}),
    ((3, 4, 15, 14), 6, 5, {"stride": 2, "padding": 2}),
    ((2, 6, 8, 8), 9, 1, {}),
    ((2, 6, 9, 8), 4, 1, {"stride": 2}),
    ((2, 4, 13, 12), 6, 3, {"padding": 4, "dilation": 3, "groups": 2}),
    ((2, 6, 10, 40), 6, 3, {"padding": 1, "groups": 6}),
    ((2, 6, 11, 9), 6, 3, {"padding": 1, "stride": 2, "groups": 6}),
    ((2, 3, 5, 5), 12, 3, {"groups": 3, "stride": 3, "padding": 3}),
    ((6, 5, 4), 10, 3, {"padding": 1}),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(dtype: torch.dtype, transposed: bool, case: Any) -> None:
    (*shape, size), results, kernel, options = case
    groups = options.get("groups", 1)
    channels = shape[1] if len(shape) == 3 else shape[0]
    sides = (channels, results // groups) if transposed else (results, channels // groups)
    for dims in (1, 2, 3):
        images = [shape[0]] if len(shape) == 3 else []
        x = values(*images, channels, *[size, shape[-1], 5][3 - dims :], dtype=dtype, seed=1)
        w = values(*sides, *[kernel] * dims, dtype=dtype, seed=2)
        # As large as a layer's weights are, so that results are about 1.
        w = w / max(w[0].numel(), w[:, 0].numel()) ** 0.5
        _check(_convolution(dims, transposed), x, w, values(results, dtype=dtype), **options)


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_channels_last_gives_channels_last(dims: int, transposed: bool, dtype: torch.dtype) -> None:
    function = _convolution(dims, transposed)
    x = values(2, 6, *[7] * dims, dtype=dtype, seed=1)
    w = values(6, 6, *[3] * dims, dtype=dtype, seed=2) / 12
    for first, second in ((True, False), (False, True), (True, True)):
        images = x.contiguous(memory_format=LAST[x.dim()]) if first else x
        weight = w.contiguous(memory_format=LAST[x.dim()]) if second else w
        for options in ({}, {"padding": 1, "stride": 2}):
            result = check_native(function, images, weight, tol=ACCURATE, **options)
            assert result.stride() == function(images, weight, **options).stride()
            _check(function, images, weight, **options)


def test_operands_that_lie_otherwise() -> None:
    x, w, bias = values(2, 9, 8, 12, seed=1), values(5, 4, 3, 6, seed=2), values(10, seed=3)
    _check(F.conv2d, x[:, 1::2, :, 2:], w[..., ::2], bias[::2], padding=1)
    _check(F.conv2d, x.transpose(2, 3)[:, ::2], w[:, :1].expand(5, 5, 3, 6), padding=(0, 3))
    _check(F.conv2d, x[:, :1, ::2].expand(2, 4, 4, 12), w.transpose(2, 3), stride=(1, 2), padding=2)
    y = values(2, 4, 6, 6, seed=4).requires_grad_()
    ours = y.detach().to(DEVICE).requires_grad_()
    for t, weight in ((y, w), (ours, w.to(DEVICE))):
        F.conv2d(t, weight, padding=1).sum().backward()  # whose gradient is one number
    torch.testing.assert_close(ours.grad.cpu(), y.grad)


def test_transposed_with_more_output() -> None:
    x, w = values(2, 4, 5, 6, seed=1), values(4, 3, 3, 3, seed=2) / 4
    _check(F.conv_transpose2d, x, w, stride=2, output_padding=1)
    _check(F.conv_transpose2d, x, w, stride=3, padding=1, output_padding=(2, 0))
    _check(F.conv_transpose2d, x, w, dilation=3, output_padding=2)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("dtype", [*DTYPES, torch.bfloat16])
def test_transposed_takes_less_than_a_stride_or_a_dilation_more(
    dims: int, dtype: torch.dtype
) -> None:
    function = _convolution(dims, True)
    x, w = values(2, 3, *[4] * dims, dtype=dtype), values(3, 2, *[3] * dims, dtype=dtype)
    for stride, dilation, more in [(s, d, m) for s in (1, 2) for d in (1, 3) for m in range(4)]:
        options = {"stride": stride, "dilation": dilation, "output_padding": more}
        for batch in (x, x[0]):
            if more < max(stride, dilation):
                expected = function(batch, w, **options)
                assert function(batch.to(DEVICE), w.to(DEVICE), **options).shape == expected.shape
                continue
            for device in ("cpu", DEVICE):
                with pytest.raises(RuntimeError, match="output padding must be smaller"):
                    function(batch.to(device), w.to(device), **options)


def test_empty_batches_and_special_values() -> None:
    w = values(4, 2, 3, 3, seed=2)
    check(F.conv2d, values(0, 2, 5, 5), w)
    check(F.conv_transpose2d, values(0, 4, 5, 5), w)
    check(_gradients, F.conv2d, values(0, 2, 5, 5), w)
    x = values(1, 2, 6, 6)
    x[0, 1, 2, 2] = float("inf")
    x[0, 0, 5, 5] = float("nan")
    check_native(F.conv2d, x, w, padding=1, tol=ACCURATE)


@pytest.mark.parametrize(
    ("x", "w", "options"),
    [
        ((2, 3, 5, 5), (4, 2, 3, 3), {}),
        ((2, 3, 5, 5), (4, 3, 7, 7), {}),
        ((2, 4, 5, 5), (5, 2, 3, 3), {"groups": 2}),
        ((2, 3, 5, 5), (4, 3, 3, 3), {"stride": 0}),
        ((2, 3, 5, 5), (4, 3, 3, 3), {"padding": -1}),
        ((2, 3, 5, 5), (4, 3, 3), {}),
        ((2, 3, 5, 5), (4, 3, 3, 3), {"bias": (3,)}),
    ],
)
def test_errors_are_those_of_pytorch(x: Any, w: Any, options: dict[str, Any]) -> None:
    if "bias" in options:
        options = {"bias": values(*options["bias"])}
    assert check(F.conv2d, values(*x), values(*w), **options) is None


def test_mixed_dtypes_are_refused() -> None:
    x, w = values(1, 2, 4, 4), values(3, 2, 3, 3, dtype=torch.float64)
    with pytest.raises(RuntimeError, match=r"[Ee]xpected|should be the same"):
        F.conv2d(*to_device((x, w)))


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
def test_gradcheck(dims: int, transposed: bool, groups: int) -> None:
    function = _convolution(dims, transposed)
    x = values(2, 4, *[5] * dims, dtype=torch.float64, seed=1).to(DEVICE).requires_grad_()
    w = values(4, 4 // groups, *[3] * dims, dtype=torch.float64, seed=2).to(DEVICE)
    options = {"stride": 2, "padding": 1, "groups": groups}
    operands = (x, w.requires_grad_())
    assert torch.autograd.gradcheck(lambda a, b: function(a, b, **options), operands)
    assert torch.autograd.gradgradcheck(lambda a, b: function(a, b, **options), operands)


def _network(x: Tensor, *weights: Tensor) -> list[Tensor]:
    first, second, third = weights
    y = F.relu(F.conv2d(x, first, padding=1) * 0.5 + 1)
    y = F.relu(F.conv2d(y, second, stride=2, groups=2))
    return _gradients(F.conv_transpose2d, y, third, stride=2)


def test_bits_do_not_depend_on_execution_or_threads() -> None:
    operands = to_device(
        (
            values(3, 8, 40, 37, seed=1),
            values(32, 8, 3, 3, seed=2),
            values(16, 16, 3, 3, seed=3),
            values(16, 24, 2, 2, seed=4),
        )
    )
    threads = torch.get_num_threads()
    results = []
    try:
        for mode in ("deferred", "eager"):
            for count in (1, 2, 3):
                torch.set_num_threads(count)
                with hologram_torch.execution(mode):
                    results.append([t.cpu() for t in _network(*operands)])
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert torch.equal(a, b)


def test_convolutions_wait_to_be_asked_for() -> None:
    x, w = to_device((values(2, 3, 8, 8), values(4, 3, 3, 3)))
    with hologram_torch.execution("deferred"):
        text = str(hologram_torch.explain(lambda: F.relu(F.conv2d(x, w))))
    assert "convolution" in text
