# SPDX-License-Identifier: MIT
"""softmax and log_softmax of the device against cpu, forward and backward."""

from __future__ import annotations

import math
import re

import pytest
import torch
from accuracy import Rounding
from native_compare import ACCURATE, DEVICE, FLOATS, check, check_native, layouts, to_device, values

OPS = [torch.softmax, torch.log_softmax]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(7,), (1, 1), (5, 10), (3, 4, 17), (2, 300, 3), (64, 1000)])
def test_forward_and_backward(op: object, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    def grad(x: torch.Tensor, g: torch.Tensor, dim: int) -> torch.Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(op(x, dim), x, g)[0]

    x, g = values(*shape, dtype=dtype), values(*shape, dtype=dtype, seed=1)
    for dim in range(-1, len(shape)):
        for y in layouts(x):
            check_native(op, y, dim, tol=ACCURATE)
        # An ulp of the output counts as often as there are gradients to sum.
        check_native(grad, x, g, dim, tol=Rounding(units=2 + 2 * shape[dim] ** 0.5))
        tol = Rounding(units=2 * (1 + shape[dim]))
        check(grad, x, g[..., :1].expand(shape), dim, tol=tol)


@pytest.mark.parametrize("op", OPS)
def test_special_values(op: object) -> None:
    x = values(6, 8) * 50
    x[0, 3] = math.inf
    x[1, 2] = -math.inf
    x[2] = -math.inf
    x[3, 1] = math.nan
    x[4] = 1e30
    check_native(op, x, 1, tol=ACCURATE)
    check_native(op, x, 0, tol=ACCURATE)
    check(op, torch.tensor(2.0), 0)
    check(op, torch.tensor(2.0), -1)
    for shape in [(0,), (0, 3), (3, 0)]:
        check(op, torch.zeros(shape), 0)


@pytest.mark.parametrize("op", OPS)
def test_other_dtypes_and_errors(op: object) -> None:
    x = values(3, 4)
    check(op, x, 2)
    check(op, x, -3)
    check(op, values(3, 4, dtype=torch.int64), 1)
    check(op, values(3, 4, dtype=torch.int64), 1, dtype=torch.float32, tol=ACCURATE)
    check(op, x.half(), 1, dtype=torch.float32, tol=ACCURATE)
    check(op, values(3, 4, dtype=torch.complex64), 1, tol=ACCURATE)


@pytest.mark.parametrize("name", ["_softmax", "_log_softmax"])
def test_half_to_float(name: str) -> None:
    op = getattr(torch, name)
    x = values(5, 9).half()
    result = op(to_device(x), 1, True)
    assert result.dtype == torch.float32 and result.device.type == "hologram"
    torch.testing.assert_close(result.cpu(), op(x.float(), 1, False))
    backward = getattr(torch, name + "_backward_data")
    g = values(5, 9, seed=1)
    grad = backward(to_device(g), result, 1, torch.float16)
    assert grad.dtype == torch.float16
    expected = backward(g, result.cpu(), 1, torch.float32)
    problem = Rounding(units=1).excess(grad.cpu(), expected.half(), *[expected.double()] * 2)
    assert problem is None, problem


@pytest.mark.parametrize("name", ["_softmax", "_log_softmax"])
def test_out(name: str) -> None:
    op = getattr(torch, name)
    x = values(5, 9)
    for out in [torch.zeros(5, 9), torch.zeros(0)]:
        check(lambda x, o: op(x, 1, False, out=o), x, out, tol=ACCURATE)
    # cpu writes a strided out as if it were contiguous (2.15), so it is no oracle here.
    strided = torch.zeros(9, 5, device=DEVICE).t()
    op(to_device(x), 1, False, out=strided)
    torch.testing.assert_close(strided.cpu(), op(x, 1, False))
    alias = to_device(x)
    op(alias, 1, False, out=alias)
    torch.testing.assert_close(alias.cpu(), op(x, 1, False))


def test_second_derivative() -> None:
    x = values(3, 4, dtype=torch.float64).to(DEVICE).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda t: torch.softmax(t, 1), (x,))
    assert torch.autograd.gradcheck(lambda t: torch.log_softmax(t, 0), (x,))


@pytest.mark.parametrize("name", ["_softmax_backward_data", "_log_softmax_backward_data"])
@pytest.mark.parametrize("shape", [(1, 16), (768, 0), (9,), (18, 16)])
def test_backward_compares_shapes(name: str, shape: tuple[int, ...]) -> None:
    """PyTorch's kernel of log_softmax does not, and reads what lies behind the output."""
    backward = getattr(torch.ops.aten, name)
    grad, output = torch.ones(9, 16, device=DEVICE), torch.ones(shape, device=DEVICE)
    into = "out" if "log" in name else "grad_input"
    message = re.escape(f"gradient of the output's shape {list(shape)}, got [9, 16]")
    with pytest.raises(RuntimeError, match=message):
        backward(grad, output, -1, torch.float32)
    with pytest.raises(RuntimeError, match=message):
        backward.out(grad, output, -1, torch.float32, **{into: torch.empty_like(grad)})
