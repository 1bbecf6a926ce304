# SPDX-License-Identifier: MIT
"""Max pooling of the device against cpu: values, positions, gradients, errors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from native_compare import DEVICE, check, check_native, values
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import hologram_torch

EXACT = {"rtol": 0.0, "atol": 0.0}


def _pool(x: Tensor, **options: Any) -> list[Tensor]:
    x = x.detach().requires_grad_()
    y, positions = F.max_pool2d(x, return_indices=True, **options)
    weight = torch.arange(y.numel(), dtype=torch.float64).mul(0.7).sin().to(y.dtype)
    return [y, positions, *torch.autograd.grad(y, x, weight.view(y.shape).to(y.device))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 2},
        {"kernel_size": 3, "stride": 2, "padding": 1},
        {"kernel_size": (2, 3), "stride": (1, 4), "padding": (1, 0)},
        {"kernel_size": 3, "stride": 1, "dilation": 2},
        {"kernel_size": 3, "stride": 2, "ceil_mode": True},
        {"kernel_size": 1, "stride": 5},
        {"kernel_size": (7, 40), "padding": (3, 20), "stride": 3},
    ],
)
def test_values_positions_and_gradients(dtype: torch.dtype, options: dict[str, Any]) -> None:
    for shape in ((2, 3, 9, 41), (5, 8, 45), (1, 64, 32, 56), (3, 2, 7, 40)):
        x = values(*shape, dtype=dtype, seed=3)
        # Few different values: many are equal.
        for images in (x, (x * 2).round()):
            found = check_native(_pool, images, tol={"rtol": 1e-6, "atol": 1e-6}, **options)
            torch.testing.assert_close(found[0].cpu(), _pool(images, **options)[0], **EXACT)
            # Without positions, as no gradient is wanted.
            check_native(F.max_pool2d, images, tol=EXACT, **options)


def test_special_values() -> None:
    x = values(2, 3, 8, 9)
    x[0, 0, 2:5, 3] = float("nan")
    x[0, 1] = -float("inf")
    x[1, 2, 4, 4] = float("inf")
    for options in ({"kernel_size": 3, "padding": 1, "stride": 2}, {"kernel_size": 2}):
        check_native(F.max_pool2d, x, return_indices=True, tol=EXACT, **options)
        check_native(F.max_pool2d, x, tol=EXACT, **options)


def test_positions_are_made_where_a_gradient_is_wanted() -> None:
    class Seen(TorchDispatchMode):
        """Names of the ops that a mode sees."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            names.append(func.name())
            return func(*args, **(kwargs or {}))

    names: list[str] = []
    x = values(1, 2, 6, 6).to(DEVICE)
    want = F.max_pool2d(x, 2, return_indices=True)[0]
    with torch.inference_mode():
        assert torch.equal(F.max_pool2d(x, 2), want)
    with Seen():
        assert torch.equal(F.max_pool2d(x, 2), want)
    assert "aten::max_pool2d_with_indices" in names, "modes see what they see on cpu"
    x.requires_grad_()
    y = F.max_pool2d(x, 2)
    assert torch.equal(y, want)
    assert y.grad_fn is not None
    tangent = torch.ones_like(x)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x.detach(), tangent)
        found = torch.autograd.forward_ad.unpack_dual(F.max_pool2d(dual, 2))
    assert torch.equal(found.primal, want)
    assert torch.equal(found.tangent, torch.ones_like(want))
    batched = torch.func.vmap(lambda t: F.max_pool2d(t, 2))(values(3, 1, 2, 6, 6).to(DEVICE))
    assert batched.shape == (3, 1, 2, 3, 3)


def test_what_goes_another_way() -> None:
    x = values(2, 4, 8, 8)
    check(F.max_pool2d, x.contiguous(memory_format=torch.channels_last), 2, tol=EXACT)
    check(F.max_pool2d, x.transpose(2, 3), 2, tol=EXACT)
    check(F.max_pool2d, x.bfloat16(), 2, tol=EXACT)
    check(_pool, x.contiguous(memory_format=torch.channels_last), kernel_size=3, tol=EXACT)


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 3, "padding": 2},
        {"kernel_size": 9},
        {"kernel_size": 2, "stride": 0},
        {"kernel_size": (2, 2, 2)},
    ],
)
def test_errors_are_those_of_pytorch(options: dict[str, Any]) -> None:
    assert check(F.max_pool2d, values(1, 2, 6, 6), **options) is None


def test_bits_do_not_depend_on_execution_or_threads() -> None:
    x = values(4, 9, 66, 50).to(DEVICE)
    threads = torch.get_num_threads()
    results = []
    try:
        for mode in ("deferred", "eager"):
            for count in (1, 3):
                torch.set_num_threads(count)
                with hologram_torch.execution(mode):
                    found = _pool(x * 2, kernel_size=3, stride=2, padding=1)
                    results.append([t.cpu() for t in found])
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("outside", [-1, 36, 2**40])
def test_gradients_stay_in_their_plane(layout: torch.memory_format, outside: int) -> None:
    """PyTorch's kernel writes wherever an index says."""
    x = values(2, 2, 6, 6).to(DEVICE).to(memory_format=layout)
    y, index = F.max_pool2d(x, 2, return_indices=True)
    index[1, 0, 2, 2] = outside
    with pytest.raises((RuntimeError, IndexError), match="outside of the plane of 36 elements"):
        torch.ops.aten.max_pool2d_with_indices_backward(
            y, x, [2, 2], [2, 2], [0, 0], [1, 1], False, index
        ).cpu()
