# SPDX-License-Identifier: MIT
"""Matrix products of the device against cpu: dtypes, layouts, sizes, out=, gradients, errors."""

from __future__ import annotations

import itertools

import pytest
import torch
from native_compare import ACCURATE, DEVICE, FLOATS, check, check_native, layouts, to_device, values

import hologram_torch

SIZES = [(1, 1, 1), (2, 3, 4), (32, 784, 128), (65, 33, 17), (1, 64, 5), (64, 1, 64), (7, 9, 1)]
# One row or column, and few elements in each row of the other operand.
SIZES += [(300, 3, 1), (1, 500, 5), (40, 17, 1), (1, 1100, 33), (1, 30, 200)]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("m,k,n", SIZES)
def test_mm_in_every_layout(dtype: torch.dtype, m: int, k: int, n: int) -> None:
    a, b = values(m, k, dtype=dtype), values(k, n, dtype=dtype, seed=1)
    for x, y in itertools.product(layouts(a), layouts(b)):
        result = check(torch.mm, x, y, tol=ACCURATE)
        assert result.is_contiguous()
        bias = values(n, dtype=dtype, seed=2)
        check(torch.addmm, bias, x, y, tol=ACCURATE)
    full = values(m, n, dtype=dtype, seed=3)
    for bias in [full, full[:1], full[:, :1], full[0, 0], full[0, :1], *layouts(full)]:
        check(torch.addmm, bias, a, b, beta=0.5, alpha=2, tol=ACCURATE)


def test_hot_products_do_not_fall_back() -> None:
    x, w, b = values(32, 784), values(128, 784, seed=1), values(128, seed=2)
    check_native(torch.mm, x, w.t(), tol=ACCURATE)
    check_native(torch.addmm, b, x, w.t(), tol=ACCURATE)
    check_native(torch.nn.functional.linear, x, w, b, tol=ACCURATE)
    check_native(torch.bmm, values(4, 5, 6), values(4, 6, 7), tol=ACCURATE)
    check_native(torch.matmul, values(4, 5, 6), values(6, 7), tol=ACCURATE)
    check_native(torch.mv, x, values(784), tol=ACCURATE)
    check_native(torch.dot, values(784), values(784, seed=1), tol=ACCURATE)
    half = x.bfloat16()
    check_native(torch.mm, half, w.t().bfloat16(), tol=ACCURATE)


def test_beta_zero_ignores_the_bias() -> None:
    nan = torch.full((3, 5), float("nan"))
    check(torch.addmm, nan, values(3, 4), values(4, 5), beta=0, tol=ACCURATE)
    check(torch.addmm, nan[0], values(3, 4), values(4, 5), beta=0, tol=ACCURATE)
    check(torch.addmv, nan[0, :3], values(3, 4), values(4), beta=0, tol=ACCURATE)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32, torch.uint8])
def test_one_column_with_a_bias(dtype: torch.dtype) -> None:
    # Every layout of what is added: of the size of the result, one number, every second one.
    for m, k in [(70000, 3), (300, 17), (40, 2)]:
        x, w, v = values(m, k, dtype=dtype), values(1, k, dtype=dtype, seed=1), values(2 * m)
        v = v.to(dtype)
        tol = ACCURATE
        check(torch.nn.functional.linear, x, w, v[:1], tol=tol)
        for bias in [v[:m], v[::2], v[:1].expand(m), v[0]]:
            check(torch.addmv, bias, x, w[0], beta=2, alpha=3, tol=tol)
            column = bias[:, None] if bias.dim() == 1 else bias
            check(torch.addmm, column, x, w.t(), beta=2, tol=tol)
            column = column.expand(2, m, 1) if bias.dim() == 1 else bias
            check(torch.baddbmm, column, x.expand(2, m, k), w.t().expand(2, k, 1), tol=tol)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.int32, torch.uint8, torch.complex64])
def test_other_products(dtype: torch.dtype) -> None:
    def v(*shape: int, seed: int = 0) -> torch.Tensor:
        return values(*shape, dtype=dtype, seed=seed)

    tol = ACCURATE
    check(torch.mm, v(3, 4), v(4, 5), tol=tol)
    for x in layouts(v(3, 4, 5)):
        check(torch.bmm, x, v(3, 5, 6), tol=tol)
        check(torch.bmm, v(3, 6, 4), x, tol=tol)
        check(torch.baddbmm, v(3, 4, 6), x, v(3, 5, 6), tol=tol)
        check(torch.baddbmm, v(4, 1), x, v(3, 5, 6), beta=2, alpha=3, tol=tol)
    check(torch.bmm, v(1, 4, 5), v(1, 5, 6), tol=tol)
    for m in layouts(v(6, 7)):
        for x in layouts(v(7)):
            check(torch.mv, m, x, tol=tol)
            check(torch.addmv, v(6), m, x, beta=2, alpha=3, tol=tol)
    for x in layouts(v(50)):
        check(torch.dot, x, v(50, seed=1), tol=tol)
    check(torch.addbmm, v(4, 6), v(3, 4, 5), v(3, 5, 6), tol=tol)
    check(torch.matmul, v(2, 3, 4, 5), v(5, 6), tol=tol)
    check(torch.matmul, v(2, 1, 4, 5), v(3, 5, 6), tol=tol)


@pytest.mark.parametrize("m,k,n", [(0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0, 0)])
def test_empty(m: int, k: int, n: int) -> None:
    check(torch.mm, values(m, k), values(k, n))
    check(torch.addmm, values(n), values(m, k), values(k, n))
    check(torch.addmm, values(m, n), values(m, k), values(k, n), beta=0.5)
    check(torch.bmm, values(2, m, k), values(2, k, n))
    check(torch.mv, values(m, k), values(k))
    check(torch.nn.functional.linear, values(m, k), values(n, k), values(n))
    check(torch.dot, values(0), values(0))


def test_out() -> None:
    a, b, c = values(3, 4), values(4, 5), values(5)
    for shape in [(3, 5), (0,)]:
        check(lambda a, b, o: torch.mm(a, b, out=o), a, b, torch.zeros(shape))
        check(lambda c, a, b, o: torch.addmm(c, a, b, out=o), c, a, b, torch.zeros(shape))
    transposed = torch.zeros(5, 3).t()
    check(lambda a, b, o: torch.mm(a, b, out=o), a, b, transposed)
    check(lambda a, b, o: torch.bmm(a, b, out=o), a[None], b[None], torch.zeros(1, 3, 5))
    check(lambda a, b, o: torch.mv(a, b, out=o), a, values(4), torch.zeros(3))
    check(lambda x, a, b: x.addmm_(a, b, beta=2), values(3, 5), a, b)
    check(lambda x: x.addmm_(x, x), values(4, 4))
    out = to_device(torch.zeros(3, 5))
    address = out.data_ptr()
    assert torch.mm(to_device(a), to_device(b), out=out).data_ptr() == address


def test_errors_are_pytorchs() -> None:
    a, b = values(3, 4), values(5, 6)
    check(torch.mm, a, b)
    check(torch.mm, a, values(4, 5).double())
    check(torch.mm, a, values(4))
    check(torch.addmm, values(7), a, values(4, 5))
    check(torch.bmm, values(2, 3, 4), values(3, 4, 5))
    check(torch.mv, a, values(5))
    check(torch.dot, values(3), values(4))
    check(torch.dot, a, a)
    check(torch.nn.functional.linear, a, b)
    check(lambda a, b, o: torch.mm(a, b, out=o), a, values(4, 5), torch.zeros(3, 5).double())
    with pytest.raises(RuntimeError, match="same device"):
        torch.mm(to_device(a), values(4, 5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(6,), (5, 6), (2, 3, 6), (0, 6)])
@pytest.mark.parametrize("biased", [True, False])
def test_linear_and_its_gradients(dtype: torch.dtype, shape: tuple[int, ...], biased: bool) -> None:
    def run(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None, g: torch.Tensor) -> list:
        leaves = [t.detach().requires_grad_() for t in (x, w, b) if t is not None]
        y = torch.nn.functional.linear(*leaves)
        return [y.detach(), *torch.autograd.grad(y, leaves, g)]

    w = values(4, 6, dtype=dtype, seed=1)
    b = values(4, dtype=dtype, seed=2) if biased else None
    g = values(*shape[:-1], 4, dtype=dtype, seed=3)
    for x in layouts(values(*shape, dtype=dtype)):
        for weight in layouts(w):
            check(run, x, weight, b, g, tol=ACCURATE)
    expanded = values(1, dtype=dtype).expand(g.shape)
    check(run, values(*shape, dtype=dtype), w, b, expanded, tol=ACCURATE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("shape", [(6,), (5, 6), (2, 3, 6)])
def test_the_gradient_of_a_weight_has_cpu_strides(
    dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    for weight in (*layouts(values(4, 6, dtype=dtype)), values(1, 6, dtype=dtype)):
        strides = []
        for device in ("cpu", "hologram"):
            # Not by to(), which packs what has gaps.
            kept = torch.empty_strided(weight.size(), weight.stride(), dtype=dtype, device=device)
            w = kept.copy_(weight).requires_grad_()
            x = values(*shape, dtype=dtype).to(device)
            y = torch.nn.functional.linear(x, w)
            strides.append(torch.autograd.grad(y, w, torch.ones_like(y))[0].stride())
        assert strides[0] == strides[1], (weight.stride(), strides)


def test_linear_has_second_derivatives() -> None:
    def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        y = torch.nn.functional.linear(x, w).square().sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        return torch.autograd.grad(g.square().sum(), w)[0]

    check(run, values(3, 4), values(5, 4, seed=1), tol=ACCURATE)
    x, w = (to_device(values(3, 4, dtype=torch.float64, seed=s)).requires_grad_() for s in (0, 1))
    assert torch.autograd.gradcheck(torch.nn.functional.linear, (x, w))


def test_thread_settings_survive() -> None:
    before = torch.get_num_threads()
    a = to_device(values(256, 256))
    for _ in range(10):
        a @ a
    assert torch.get_num_threads() == before


def test_linear_of_complex_numbers() -> None:
    def run(x: torch.Tensor, w: torch.Tensor, g: torch.Tensor) -> list:
        leaves = [t.detach().requires_grad_() for t in (x, w)]
        return list(torch.autograd.grad(torch.nn.functional.linear(*leaves), leaves, g))

    x, w, g = (values(*s, dtype=torch.complex64) for s in ((2, 3, 4), (5, 4), (2, 3, 5)))
    check(run, x, w, g, tol=ACCURATE)


def test_linear_backward_compares_shapes() -> None:
    x, w = torch.ones(4, 5, 6, device=DEVICE), torch.ones(7, 6, device=DEVICE)
    for shape in [(4, 5, 6), (4, 4, 7), (1, 5, 7), (5, 7)]:
        with pytest.raises(RuntimeError, match=r"shape|size"):
            torch.ops.aten.linear_backward(x, torch.ones(shape, device=DEVICE), w, [True] * 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("k", [0, 1, 3, 17, 300])
def test_products_of_one_row_and_one_column_each(dtype: torch.dtype, k: int) -> None:
    def run(x: torch.Tensor, y: torch.Tensor) -> list:
        return [
            torch.bmm(x[:, None], y[:, :, None]),
            torch.einsum("bi,bi->b", x, y),
            torch.bmm(x[::2, None], y[:1, :, None].expand(len(x[::2]), k, 1)),
            torch.bmm(x[:1, None], y[:1, :, None]),
        ]

    x, y = values(50, k, dtype=dtype), values(50, k, dtype=dtype, seed=1)
    # As wide columns, whose elements do not lie side by side.
    for a, b in ((x, y), (x.t().contiguous().t(), y)):
        exact = [r.to(dtype) for r in run(a.double(), b.double())]
        found = run(to_device(a), to_device(b))
        with hologram_torch.execution("eager"):
            eager = run(to_device(a), to_device(b))
        assert all(torch.equal(x.cpu(), y.cpu()) for x, y in zip(found, eager, strict=True))
        for got, want in zip(found, exact, strict=True):
            tol = {torch.bfloat16: 1e-2, torch.float32: 1e-5, torch.float64: 1e-13}[dtype]
            torch.testing.assert_close(got.cpu(), want, rtol=tol, atol=tol * max(1, k) ** 0.5)
    if dtype == torch.float64 and k == 3:
        leaves = [to_device(t[:4]).requires_grad_() for t in (x, y)]
        assert torch.autograd.gradcheck(lambda a, b: run(a, b)[0], leaves)
