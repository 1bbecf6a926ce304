# SPDX-License-Identifier: MIT
"""Traces know how results lie: fake results have the shapes and strides of real ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

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


def assert_alike(real: Tensor | None, fake: Tensor | None) -> None:
    if real is None or fake is None:
        assert real is fake
        return
    assert real.shape == fake.shape and fake.device == real.device
    assert real.dtype == fake.dtype
    if real.numel():
        assert strides(real) == strides(fake)


def assert_alike_in_traces(function: Callable[..., Any], *args: Any) -> None:
    """Compare the results of a function with those that it has in a trace."""
    real = function(*args)
    with FakeTensorMode() as mode:
        fake = function(*[mode.from_tensor(t) if isinstance(t, Tensor) else t for t in args])
    for one, other in zip(pytree.tree_leaves(real), pytree.tree_leaves(fake), strict=True):
        assert_alike(one, other)


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
            assert_alike(real, fake)


@pytest.mark.parametrize("transposed", [False, True])
def test_convolutions_on_one_thread(transposed: bool) -> None:
    """PyTorch's CPU lays some results out by the number of threads, and the device as it does."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    FakeTensorMode.cache_clear()  # which does not know of threads
    try:
        for groups, step, dilation in itertools.product((1, 2), (1, 2), (1, 2)):
            test_convolutions(torch.float32, 3, transposed, 2, 4, 8, groups, 1, step, dilation)
    finally:
        torch.set_num_threads(threads)
        FakeTensorMode.cache_clear()


@pytest.mark.parametrize("outputs", [(), (1,), (5,)])
@pytest.mark.parametrize("rows", [(), (8,), (2, 4), (0,)])
def test_gradients_of_a_linear_layer(outputs: tuple[int, ...], rows: tuple[int, ...]) -> None:
    x = torch.randn(*rows, 3, device=DEVICE)
    grad = torch.randn((*rows, *outputs), device=DEVICE)
    weight = torch.randn(*outputs, 3, device=DEVICE)
    weights = [weight] if not outputs else [weight, laid(weight, "swapped")]
    for laid_weight, wanted in itertools.product(
        weights, itertools.product([True, False], repeat=3)
    ):
        assert_alike_in_traces(torch.ops.aten.linear_backward, x, grad, laid_weight, wanted)


def test_a_layer_whose_weight_is_a_vector_is_traced() -> None:
    def gradients(x: Tensor, weight: Tensor) -> list[Tensor]:
        y = torch.compile(F.linear, backend="aot_eager")(x, weight)
        return list(torch.autograd.grad(y.square().sum(), (x, weight)))

    x, weight = torch.randn(8, 3), torch.randn(3)
    found = gradients(*(t.to(DEVICE).requires_grad_() for t in (x, weight)))
    expected = gradients(*(t.requires_grad_() for t in (x, weight)))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.cpu(), other)


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_sampled_volumes(mode: int) -> None:
    x, where = torch.randn(2, 3, 5, 6, 7), torch.rand(2, 4, 3, 2, 3)
    aten = torch.ops.aten
    try:
        grad = torch.randn_like(aten.grid_sampler_3d(x, where, mode, 0, False))
    except RuntimeError:
        pytest.skip("this PyTorch has no bicubic interpolation of volumes")
    for of_x in LAYOUTS:
        ours = [t.to(DEVICE) for t in (laid(x, of_x), where, grad)]
        assert_alike_in_traces(aten.grid_sampler_3d, *ours[:2], mode, 0, False)
        for wanted in ([True, True], [False, True]):
            assert_alike_in_traces(
                aten.grid_sampler_3d_backward, ours[2], *ours[:2], mode, 0, False, wanted
            )


@pytest.mark.parametrize("queries", [(4, 3, 8), (2, 4, 3, 8)])
@pytest.mark.parametrize("of_mask", [None, (3, 6), (4, 3, 6)])
def test_attention_with_unlike_dimensions(
    queries: tuple[int, ...], of_mask: tuple[int, ...] | None
) -> None:
    q, k, v = (torch.randn(s, device=DEVICE) for s in (queries, (2, 4, 6, 8), (2, 4, 6, 8)))
    mask = None if of_mask is None else torch.randn(of_mask, device=DEVICE)
    assert_alike_in_traces(F.scaled_dot_product_attention, q, k, v, mask)


def test_other_devices_are_as_they_were() -> None:
    x = torch.randn(1, 3, 5, 5).contiguous(memory_format=torch.channels_last)
    weight = torch.randn(4, 3, 3, 3)
    with FakeTensorMode() as mode:
        y = torch.conv2d(mode.from_tensor(x), mode.from_tensor(weight))
        assert y.device.type == "cpu" and y.is_contiguous(memory_format=torch.channels_last)
        if torch.__version__ >= "2.14":  # before, PyTorch mixes devices without a word
            with pytest.raises(RuntimeError, match=r"(?i)device"):
                torch.conv2d(mode.from_tensor(x).to(DEVICE), mode.from_tensor(weight))
