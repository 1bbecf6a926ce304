# SPDX-License-Identifier: MIT
"""cat, stack and the gradients of slices on the device against cpu."""

from __future__ import annotations

import itertools

import pytest
import torch
from native_compare import FLOATS, INTEGERS, check, check_native, layouts, values

ALL = [*FLOATS, *INTEGERS, torch.bool, torch.complex64]


@pytest.mark.parametrize("dtype", ALL)
def test_cat_and_stack(dtype: torch.dtype) -> None:
    a, b = values(2, 3, 4, dtype=dtype), values(2, 3, 4, dtype=dtype, seed=1)
    for dim in range(-3, 3):
        for x in layouts(a):
            check_native(torch.cat, [x, b, x], dim)
    for dim in range(-4, 4):
        for x in layouts(a):
            check_native(torch.stack, [x, b], dim)
    check_native(torch.cat, [a, b[:, :1], b[:, 1:]], 1)
    check_native(torch.stack, [a.sum(), b.sum()] if dtype != torch.bool else [a[0, 0, 0]])


@pytest.mark.parametrize("rows,sizes", [(1, [300_000, 5, 700_000]), (700, [100, 3, 200]),
                                        (5, [65_536, 0, 1]), (3, [1_000_000, 16])])  # fmt: skip
def test_cat_of_many_bytes(rows: int, sizes: list[int]) -> None:
    parts = [values(rows, n, seed=n) for n in sizes]
    check_native(torch.cat, parts, 1)
    check_native(torch.cat, [p.t().contiguous() for p in parts], 0)
    check_native(torch.cat, [p[:, 1:] if p.shape[1] > 1 else p for p in parts], 1)


def test_cat_keeps_memory_formats() -> None:
    last = torch.channels_last
    a, b = values(2, 3, 4, 5), values(2, 6, 4, 5, seed=1).to(memory_format=last)
    for tensors in [[a, b], [b, a], [b, b], [b[:, :3], b[:, 3:]], [b[:, :1], b]]:
        for dim in (1, 0) if tensors[0].shape == tensors[1].shape else (1,):
            ours = check_native(torch.cat, tensors, dim)
            assert ours.stride() == torch.cat(tensors, dim).stride()
    c = values(1, 2, 2, 3, 4).to(memory_format=torch.channels_last_3d)
    assert check_native(torch.cat, [c, c], 4).stride() == torch.cat([c, c], 4).stride()


def test_cat_of_mixed_and_empty() -> None:
    a = values(2, 3)
    check_native(torch.cat, [a, a.half(), a.long()], 1)
    check_native(torch.cat, [torch.zeros(0), a], 1)
    check_native(torch.cat, [torch.zeros(0).double(), a], 1)
    check_native(torch.cat, [a[:0], a])
    check(torch.cat, [torch.zeros(0), torch.zeros(0)])
    check(torch.cat, [torch.zeros(2, 0), torch.zeros(2, 0)], 1)
    check(lambda x, o: torch.cat([x, x], out=o), a, torch.zeros(4, 3))
    check(lambda x, o: torch.cat([x, x], out=o), a, torch.zeros(0))


def test_errors_are_pytorchs() -> None:
    a = values(2, 3)
    check(torch.cat, [a, values(3, 2)], 1)
    check(torch.cat, [a, values(2, 3, 1)], 1)
    check(torch.cat, [a, a], 2)
    check(torch.cat, [])
    check(torch.cat, [a.sum(), a.sum()])
    check(torch.stack, [])
    check(torch.stack, [a, a], 3)
    check(torch.stack, [a, a[:1]])
    with pytest.raises(RuntimeError, match="same device"):
        torch.cat([a.to("hologram"), a])


def gradient(f: object, x: torch.Tensor, *scale: torch.Tensor) -> torch.Tensor:
    x = x.detach().requires_grad_()
    y = f(x)
    g = torch.arange(y.numel(), dtype=torch.float64).reshape(y.shape).to(x.dtype).to(x.device)
    return torch.autograd.grad(y, x, g)[0]


@pytest.mark.parametrize("dtype", [*FLOATS, torch.complex64])
@pytest.mark.parametrize(
    "f",
    [
        lambda x: x[:, 1:3],
        lambda x: x[1:],
        lambda x: x[..., ::2],
        lambda x: x[..., -3:-1].transpose(0, 2),
        lambda x: x[:, 2],
        lambda x: x[-1],
        lambda x: x[..., 0].t(),
        lambda x: x[:, 2:2],
        lambda x: x[:, 1:100],
        lambda x: x.narrow(2, 1, 2),
        lambda x: x.diagonal(dim1=1, dim2=2),
        lambda x: x.split(2, 2)[1],
        lambda x: torch.cat(x.chunk(5, 2), 1),
        lambda x: torch.stack(x.unbind(1), 0),
    ],
)
def test_gradients_of_views(f: object, dtype: torch.dtype) -> None:
    for x in layouts(values(3, 4, 5, dtype=dtype)):
        check_native(gradient, f, x)


def test_gradient_of_a_large_slice() -> None:
    check_native(gradient, lambda x: x[:, 100:900], values(600, 1000))
    check_native(gradient, lambda x: x[5:590], values(600, 1000))


def test_second_derivatives() -> None:
    x = values(3, 4, dtype=torch.float64).to("hologram").requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: (x[:, 1:3] ** 2).sum(), (x,))
    assert torch.autograd.gradgradcheck(lambda x: torch.cat([x[1] ** 2, x[0]]), (x,))


def test_padding_of_integers_is_native() -> None:
    labels = values(2, 3, dtype=torch.int64)
    check_native(torch.nn.functional.pad, labels, (0, 1), value=-100)
    check_native(lambda x: x.clone().fill_(7.0), labels)
    check(lambda x: x.clone().fill_(2.5), labels)
    check(lambda x: x.clone().fill_(float("nan")), labels.bool())
    check(lambda x: x.clone().fill_(-1.0), labels.to(torch.uint8))


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (2, 3, 4, 5), (2, 1, 4, 5), (2, 3, 1, 1)])
def test_cat_and_stack_have_the_strides_of_cpu(shape: tuple[int, ...]) -> None:
    for order in itertools.permutations(range(len(shape))):
        inverse = sorted(range(len(shape)), key=order.__getitem__)
        x = values(*(shape[d] for d in order)).permute(inverse)
        ours = x.to("hologram")
        assert ours.stride() == x.stride()
        for dim in range(len(shape) + 1):
            expected, found = (torch.stack([t, t + 1], dim) for t in (x, ours))
            assert found.stride() == expected.stride(), (order, dim)
            assert torch.equal(found.cpu(), expected)
        for dim in range(len(shape)):
            expected, found = (torch.cat([t, t + 1], dim) for t in (x, ours))
            assert found.stride() == expected.stride(), (order, dim)
