# SPDX-License-Identifier: MIT
"""Indexing, gather, scatter, ranges and triangles of the device against cpu."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from accuracy import Rounding
from native_compare import ACCURATE, DEVICE, FLOATS, INTEGERS, check, check_native, layouts, values

import hologram_torch

ALL = [*FLOATS, *INTEGERS, torch.bool, torch.complex64]
# cpu adds halves as halves; a sum that is kept in float32 is rounded once, at the end.
SUMS = Rounding(units=1, cancels=0)
ADDED = [*FLOATS, torch.int32, torch.int64]


def positions(*shape: int, below: int, seed: int = 5) -> torch.Tensor:
    return torch.randint(0, below, shape, generator=torch.Generator().manual_seed(seed))


def gradient(f: object, x: torch.Tensor, *args: object) -> torch.Tensor:
    x = x.detach().requires_grad_()
    y = f(x, *args)
    g = torch.arange(y.numel(), dtype=torch.float64).reshape(y.shape).to(x.dtype).to(x.device) / 64
    return torch.autograd.grad(y, x, g)[0]


@pytest.mark.parametrize("dtype", ALL)
def test_index_select_and_index(dtype: torch.dtype) -> None:
    x = values(5, 6, 7, dtype=dtype)
    for dim in range(-3, 3):
        for index in (positions(9, below=5), positions(9, below=5).int(), torch.tensor(2)):
            check_native(torch.index_select, x, dim, index)
    for index in (positions(4, below=5), positions(2, 3, below=5) - 5, positions(0, below=5)):
        check_native(lambda x, i: x[i], x, index)
        check_native(lambda x, i: x[:, i], x, index)
        check_native(lambda x, i: x[..., i], x, index)
        check_native(lambda x, i: x[i, i], x, index)
        check_native(lambda x, i: x[:, i, i], x, index)
    check_native(lambda x, i, j: x[i[:, None], j], x, positions(4, below=5), positions(3, below=6))
    check_native(lambda x, i, j: x[i, j], x, positions(4, below=5), positions(1, below=6))
    check_native(lambda x, i: x[i, i, i], x, positions(2, 2, below=5))
    for y in layouts(x)[1:]:
        check(lambda x, i: x[i, :, i], y, positions(4, below=5))
        call = check_native if dtype.itemsize >= 4 else check
        call(torch.index_select, y, 1, positions(4, below=5))
        check(torch.index_select, y, 0, positions(1, below=5))
    check(lambda x: x[x != x], x)


@pytest.mark.parametrize("dtype", ALL)
def test_take(dtype: torch.dtype) -> None:
    x = values(5, 6, 7, dtype=dtype)
    for y in layouts(x):
        check_native(torch.take, y, positions(4, 30, below=420) - 210)
        check(torch.take, y, positions(3, below=210))
    check_native(torch.take, x, positions(0, below=1))
    check_native(torch.take, x[0, 0, 0], torch.tensor([0, -1]))
    check_native(torch.take, x, positions(8, 20, below=210).t())
    for bad in (210, -211):
        check(torch.take, x, torch.tensor([0, bad]))
        check(torch.take, x[:0], torch.tensor([0]))
    if dtype in FLOATS:
        check(gradient, torch.take, x, positions(60, below=210), tol=SUMS)


# Lines and rows longer than the blocks in which positions are read, and short ones.
@pytest.mark.parametrize("dtype", ADDED)
@pytest.mark.parametrize("shape", [(3000, 3), (3, 3000), (40, 1025, 2), (2, 7, 1100), (5000,)])
def test_long_and_short_lines(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x, source = values(*shape, dtype=dtype), values(*shape, dtype=dtype, seed=2)
    for dim in range(len(shape)):
        index = positions(shape[dim], below=shape[dim])
        check_native(torch.index_select, x, dim, index)
        check_native(torch.index_copy, x, dim, torch.randperm(shape[dim]), source)
        # Halves are summed in float32: as the exact sums, rounded.
        exact = x.double().index_add(dim, index, source.double())
        ours = x.to(DEVICE).index_add(dim, index.to(DEVICE), source.to(DEVICE)).cpu()
        torch.testing.assert_close(ours, exact.to(dtype))
        at = positions(*shape, below=shape[dim])
        check_native(torch.gather, x, dim, at)
        if dtype.itemsize > 2:
            check_native(torch.scatter_add, x, dim, at, source, tol=ACCURATE)
        at.view(-1)[at.numel() // 2] = index[shape[dim] // 2] = shape[dim]
        check(torch.gather, x, dim, at)
        check(torch.index_select, x, dim, index)


@pytest.mark.parametrize("dtype", FLOATS)
def test_gradients(dtype: torch.dtype) -> None:
    x = values(5, 6, 3, dtype=dtype)
    i = positions(40, below=5)
    for f in (lambda x, i: x[i], lambda x, i: x[:, i], lambda x, i: x.index_select(1, i),
              lambda x, i: x[i, i]):  # fmt: skip
        check_native(gradient, f, x, i, tol=SUMS)
    index = positions(5, 4, 3, below=6)
    if dtype.itemsize > 2:
        check_native(gradient, lambda x, i: x.gather(1, i), x, index, tol=SUMS)


@pytest.mark.parametrize("dtype", ALL)
def test_index_put(dtype: torch.dtype) -> None:
    x, v = values(6, 4, 5, dtype=dtype), values(3, 4, 5, dtype=dtype, seed=1)
    index = torch.tensor([4, -6, 2])

    def put(x: torch.Tensor, i: torch.Tensor, v: torch.Tensor, accumulate: bool) -> torch.Tensor:
        return x.clone().index_put_((i,), v, accumulate)

    check_native(put, x, index, v, False)
    check_native(put, x, index.int(), v[:1], False)
    check_native(put, x, index, v[0, 0, 0], False)
    check_native(lambda x, i, v: put(x[0], i, v[0, :2], False), x, torch.tensor([3, 1]), v)
    check(lambda x, i: x.index_fill(0, i, 1), x, torch.tensor([1, 3]))
    columns = torch.tensor([0, 2, 1])
    check_native(lambda x, i, j, v: x.clone().index_put((i, j), v[:, 0]), x, index, columns, v)
    if dtype in ADDED:
        twice = torch.tensor([4, 4, -2])
        check_native(put, x, twice, v, True, tol=ACCURATE)
        check_native(
            lambda x, i, j, v: x.clone().index_put_((i, j), v[:, 0], True), x, twice,
            torch.tensor([-1, 3, 2]), v,
            tol=ACCURATE,
        )  # fmt: skip
    else:
        check(put, x, index, v, True)
    check(lambda x, i: x.clone().t()[0].index_put_((i,), x[0, :3]), x[..., 0], index)
    check(put, x, torch.tensor([0, 6, 1]), v, False)
    check(put, x, index, v[:2], False)


def test_many_values_for_one_place() -> None:
    x, v = torch.zeros(3, 50), values(5000, 50)
    index = positions(5000, below=3)
    ours = check_native(
        lambda x, i, v: x.clone().index_put_((i,), v, True), x, index, v, tol=ACCURATE
    ).cpu()
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            again = x.to(DEVICE).index_put_((index.to(DEVICE),), v.to(DEVICE), True).cpu()
            assert torch.equal(ours, again)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", ADDED)
def test_index_add(dtype: torch.dtype) -> None:
    x = values(5, 6, 3, dtype=dtype)
    for dim in range(-3, 3):
        index = positions(7, below=x.shape[dim])
        shape = list(x.shape)
        shape[dim] = 7
        source = values(*shape, dtype=dtype, seed=2)
        for y in layouts(x):
            check_native(torch.index_add, y, dim, index, source, tol=ACCURATE)
        check_native(
            lambda x, d, i, s: x.clone().index_add_(d, i, s), x, dim, index, source,
            tol=ACCURATE,
        )  # fmt: skip
        check(torch.index_add, x, dim, index, source, alpha=2, tol=ACCURATE)
    check(torch.index_add, x, 0, torch.tensor([7]), x[:1])
    check(torch.index_add, x, 0, torch.tensor([1]), x)


@pytest.mark.parametrize("dtype", ALL)
def test_index_copy(dtype: torch.dtype) -> None:
    x = values(5, 6, 3, dtype=dtype)
    for dim in range(-3, 3):
        index = positions(4, below=x.shape[dim])  # the last of equal ones stays
        shape = list(x.shape)
        shape[dim] = 4
        source = values(*shape, dtype=dtype, seed=2)
        for y in layouts(x):
            check_native(torch.index_copy, y, dim, index, source)
        check_native(lambda x, d, i, s: x.clone().index_copy_(d, i, s), x, dim, index, source)
        check(lambda x, d, i, s: x.mT.index_copy_(d, i, s.mT), x, dim, index, source.mT)
    check(torch.index_copy, x, 0, torch.tensor([7]), x[:1])
    check(torch.index_copy, x, 0, torch.tensor([1]), x)
    check(torch.index_copy, x, 0, torch.tensor([1], dtype=torch.int32), x[:1])
    check(torch.index_copy, x, 0, torch.tensor(1), x[:1])
    check(torch.index_copy, x[0, 0], 0, torch.tensor(1), x[0, 0, 0])


@pytest.mark.parametrize("dtype", ALL)
def test_gather_and_scatter(dtype: torch.dtype) -> None:
    x = values(4, 5, 6, dtype=dtype)
    for dim in range(-3, 3):
        shape = list(x.shape)
        shape[dim] = 3
        # Distinct places: which of several values stays is not defined.
        index = torch.argsort(torch.rand(x.shape), dim).narrow(dim, 0, 3)
        check_native(torch.gather, x, dim, index)
        source = values(*shape, dtype=dtype, seed=3)
        check_native(torch.scatter, x, dim, index, source)
        check_native(lambda x, d, i, s: x.clone().scatter_(d, i, s), x, dim, index, source)
        # A number is turned into a half, a bool or a complex element by PyTorch.
        call = check_native if dtype in (*INTEGERS, torch.float32, torch.float64) else check
        call(torch.scatter, x, dim, index, 1)
        call(lambda x, d, i: x.clone().scatter_(d, i, 1), x, dim, index)
        if dtype in (torch.float32, torch.float64, torch.int32, torch.int64):
            repeated = positions(*shape, below=x.shape[dim])
            check_native(torch.scatter_add, x, dim, repeated, source)
            check_native(
                lambda x, d, i, s: x.clone().scatter_add_(d, i, s), x, dim, repeated, source
            )
    check(torch.gather, x, 0, torch.full((1, 5, 6), 4))
    check(torch.gather, x, 1, positions(2, 3, 4, below=5))
    check_native(torch.gather, x.transpose(0, 1), 1, positions(5, 2, 6, below=4))
    check(torch.gather, x.transpose(0, 1), 1, positions(5, 1, 6, below=4)[:, :, :3])
    for y in layouts(x)[1:]:
        check_native(torch.gather, y, 1, positions(4, 3, 6, below=5))
    check(torch.scatter, x, 1, positions(2, 1, 4, below=5), values(3, 3, 4, dtype=dtype))
    if dtype == torch.int64:
        check_native(F.one_hot, positions(3, 4, below=7), 7)


@pytest.mark.parametrize("dtype", ALL)
def test_triangles(dtype: torch.dtype) -> None:
    for shape, diagonal in itertools.product([(5, 5), (3, 4, 7), (2, 8, 3)], [-9, -2, 0, 1, 9]):
        for x in layouts(values(*shape, dtype=dtype)):
            check_native(torch.tril, x, diagonal)
            check_native(torch.triu, x, diagonal)
        check_native(lambda x, d: x.clone().tril_(d), x.contiguous(), diagonal)
        check_native(lambda x, d: x.clone().triu_(d), x.contiguous(), diagonal)
    check(torch.tril, values(4, dtype=dtype))
    check(torch.tril, values(0, 4, dtype=dtype))


def test_ranges() -> None:
    cases = [(5,), (0,), (2, 9), (2, 9, 3), (9, 2, -2), (0.0, 1.0, 0.1), (1.5, 7), (-3, 3.0),
             (100_000,), (0, 1, 1e-5)]  # fmt: skip
    hologram_torch.reset_fallback_counts()
    for args in cases:
        for dtype in (None, torch.int64, torch.int32, torch.float32, torch.float64):
            whole = all(isinstance(a, int) for a in args)
            if dtype in (torch.int64, torch.int32) and not whole:
                continue
            ours = torch.arange(*args, dtype=dtype, device=DEVICE)
            torch.testing.assert_close(ours.cpu(), torch.arange(*args, dtype=dtype))
    out = torch.empty(4, device=DEVICE)
    assert torch.arange(4, out=out).cpu().tolist() == [0, 1, 2, 3]
    assert not hologram_torch.fallback_counts()
    for dtype in (torch.float16, torch.int8, torch.int64):
        ours = torch.arange(0.5, 6, 2, dtype=dtype, device=DEVICE)
        torch.testing.assert_close(ours.cpu(), torch.arange(0.5, 6, 2, dtype=dtype))
    for bad in [(1, 0), (0, 1, 0), (0, float("nan"))]:
        errors = []
        for device in ("cpu", DEVICE):
            with pytest.raises(RuntimeError) as error:
                torch.arange(*bad, device=device)
            errors.append(str(error.value))
        assert errors[0] == errors[1]


@pytest.mark.parametrize("dtype", FLOATS)
def test_infinities_and_counts(dtype: torch.dtype) -> None:
    x = values(4, 5, dtype=dtype)
    x[0, 0], x[1, 1], x[2, 2], x[3] = float("inf"), -float("inf"), float("nan"), 0.0
    check_native(torch.isneginf, x)
    check_native(torch.isposinf, x)
    for dim in (None, 0, -1, (0, 1)):
        check_native(torch.count_nonzero, x, dim)
    check_native(torch.count_nonzero, x != 0)


def test_dropout_gradient_of_another_layout() -> None:
    x = values(4, 6, 8)
    _, mask = torch.native_dropout(x, 0.5, True)
    backward = torch.ops.aten.native_dropout_backward
    for g in [*layouts(x), x[:1].expand(4, 6, 8), x.transpose(1, 2).contiguous().transpose(1, 2)]:
        check_native(backward, g, mask, 2.0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int32])
@pytest.mark.parametrize("shape", [(20,), (4, 5)])
def test_put_sums_as_index_add_does(dtype, shape):
    x = (torch.randn(shape) * 4).to(dtype)
    at = torch.tensor([[3, -1], [3, 3], [0, -20]])
    source = (torch.randn(3, 2) * 4).to(dtype)
    ours = x.to("hologram")
    result = ours.put(at.to("hologram"), source.to("hologram"), accumulate=True)
    flat = (
        ours.flatten()
        .clone()
        .index_add_(0, at.flatten().remainder(20).to("hologram"), source.flatten().to("hologram"))
    )
    assert torch.equal(result.flatten(), flat)
    exact = x.double().put(at, source.double(), accumulate=True)
    torch.testing.assert_close(result.cpu(), exact.to(dtype))
    ours.put_(at.to("hologram"), source.to("hologram"), accumulate=True)
    assert torch.equal(ours, result)


def test_put_refuses_positions_that_are_not_there():
    x = torch.zeros(4, device="hologram")
    with pytest.raises(IndexError, match=r"out of (range|bounds)"):
        x.put_(torch.tensor([4], device="hologram"), x[:1] + 1, accumulate=True)


def test_a_cpu_tensor_takes_no_indices_of_the_device():
    x, at = torch.randn(3, 4), torch.tensor([0, 2], device="hologram")
    message = r"indices should be either on cpu or on the same device as the indexed tensor \(cpu\)"
    with pytest.raises(RuntimeError, match=message):
        x[at]
    with pytest.raises(RuntimeError, match=message):
        x[:, at, None]
    with pytest.raises(RuntimeError, match=message):
        x[at] = 1.0
