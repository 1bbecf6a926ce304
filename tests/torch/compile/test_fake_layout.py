# SPDX-License-Identifier: MIT
"""Traces know how results of convolutions lie: fake results have the strides of real ones."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

DEVICE = "hologram"
LAYOUTS = ("row by row", "channels last", "swapped")


def laid(t: Tensor, layout: str) -> Tensor:
    """Return the elements of a tensor in another order in memory."""
    if layout == "row by row":
        return t.contiguous()
    if layout == "swapped":
        return t.transpose(0, 1).contiguous().transpose(0, 1)
    order = [0, *range(2, t.dim()), 1]
    back = [order.index(d) for d in range(t.dim())]
    return t.permute(order).contiguous().permute(back)


def strides(t: Tensor) -> list[int]:
    """Strides that place elements: that of one element means nothing."""
    return [stride for stride, size in zip(t.stride(), t.shape, strict=True) if size > 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("batch", "channels", "out", "groups", "kernel", "step", "dilation"),
    [
        (1, 4, 6, 2, 3, 2, 1),
        (2, 4, 4, 4, 3, 1, 2),
        (2, 4, 8, 2, 1, 1, 1),
        (1, 1, 1, 1, 5, 1, 1),
        (0, 4, 6, 1, 3, 1, 1),
    ],
)
def test_convolutions(
    dtype: torch.dtype,
    dims: int,
    transposed: bool,
    batch: int,
    channels: int,
    out: int,
    groups: int,
    kernel: int,
    step: int,
    dilation: int,
) -> None:
    shape = (channels, out // groups) if transposed else (out, channels // groups)
    weight = torch.randn(*shape, *[kernel] * dims).to(dtype)
    x = torch.randn(batch, channels, *[6] * dims).to(dtype)
    numbers = ([step] * dims, [1] * dims, [dilation] * dims, transposed, [0] * dims, groups)
    aten = torch.ops.aten
    for of_x, of_weight in itertools.product(LAYOUTS, LAYOUTS):
        args = [laid(x, of_x).to(DEVICE), laid(weight, of_weight).to(DEVICE)]
        mode = FakeTensorMode()
        fakes = [mode.from_tensor(t) for t in args]
        y = aten.convolution(*args, None, *numbers)
        with mode:
            fake_y = aten.convolution(*fakes, None, *numbers)
        found = [(y, fake_y)]
        for of_grad in LAYOUTS[:2] if of_x == of_weight else LAYOUTS[:1]:
            grad = laid(torch.randn(y.shape).to(dtype), of_grad).to(DEVICE)
            mask = [True, True, True]
            real = aten.convolution_backward(grad, *args, [out], *numbers, mask)
            with mode:
                fake = aten.convolution_backward(
                    mode.from_tensor(grad), *fakes, [out], *numbers, mask
                )
            found += list(zip(real, fake, strict=True))
        for real, fake in found:
            assert real.shape == fake.shape and fake.device == real.device
            assert real.dtype == fake.dtype
            if real.numel():
                assert strides(real) == strides(fake), (of_x, of_weight)


def test_other_devices_are_as_they_were() -> None:
    x = torch.randn(1, 3, 5, 5).contiguous(memory_format=torch.channels_last)
    weight = torch.randn(4, 3, 3, 3)
    with FakeTensorMode() as mode:
        y = torch.conv2d(mode.from_tensor(x), mode.from_tensor(weight))
        assert y.device.type == "cpu" and y.is_contiguous(memory_format=torch.channels_last)
        if torch.__version__ >= "2.14":  # before, PyTorch mixes devices without a word
            with pytest.raises(RuntimeError, match=r"(?i)device"):
                torch.conv2d(mode.from_tensor(x).to(DEVICE), mode.from_tensor(weight))
