# SPDX-License-Identifier: MIT
"""flip, roll, eye and glu beside PyTorch's cpu: shapes, dtypes, strides, derivatives, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import hologram_torch

DEVICE = "hologram"
REAL = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
)
COMPLEX = (torch.complex64, torch.complex128)
SHAPES = ((16,), (1,), (17, 33), (3, 1, 5), (2, 3, 4, 5), (2, 1, 2, 3, 2), (300, 7), (5, 1000))
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.transpose(0, -1),
    "strided": lambda t: t[..., ::2],
    "expanded": lambda t: t[..., :1].expand(t.shape),
    "channels last": lambda t: t.contiguous(memory_format=torch.channels_last),
}


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(len(shape))
    return torch.randint(0, 120, shape, generator=generator).to(dtype)


# The last wants four dimensions.
CASES = [
    (shape, layout)
    for shape in SHAPES
    for layout in LAYOUTS
    if layout != "channels last" or len(shape) == 4
]


def same(function: Callable[[Tensor], Tensor], x: Tensor) -> None:
    want = function(x)
    before = dict(hologram_torch.fallback_counts())
    # The device's tensor has x's strides.
    got = function(torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=DEVICE).copy_(x))
    assert dict(hologram_torch.fallback_counts()) == before
    assert got.dtype == want.dtype and got.shape == want.shape and got.stride() == want.stride()
    assert torch.equal(got.cpu(), want)


def flips(ndim: int) -> list[tuple[int, ...]]:
    every = [tuple(d for d in range(ndim) if bits >> d & 1) for bits in range(2**ndim)]
    return [*every, (-1,), tuple(range(ndim))[::-1]]


@pytest.mark.parametrize(("shape", "layout"), CASES)
def test_flip_turns_any_dimensions(shape: tuple[int, ...], layout: str) -> None:
    x = LAYOUTS[layout](numbers(*shape))
    if layout == "expanded":
        x = x.contiguous()
    for dims in flips(x.dim()):
        same(lambda t, dims=dims: t.flip(dims), x)


@pytest.mark.parametrize("dtype", [*REAL, *COMPLEX])
def test_dtypes(dtype: torch.dtype) -> None:
    for shape in ((5,), (3, 70), (70, 3)):
        x = numbers(*shape, dtype=dtype)
        for dims in flips(x.dim()):
            same(lambda t, dims=dims: t.flip(dims), x)
        same(lambda t: t.roll(2, -1), x)


def test_flip_of_an_expanded_tensor_reads_it_as_it_is() -> None:
    x = numbers(4, 1)
    assert torch.equal(x.to(DEVICE).expand(4, 6).flip(0, 1).cpu(), x.expand(4, 6).flip(0, 1))


@pytest.mark.parametrize(("shape", "layout"), CASES)
def test_roll_moves_along_any_dimensions(shape: tuple[int, ...], layout: str) -> None:
    x = LAYOUTS[layout](numbers(*shape))
    calls: list[tuple[Any, Any]] = [(s, ()) for s in (0, 1, -3, 1000)]
    calls += [((s,), (d,)) for d in range(-1, x.dim()) for s in (0, 1, -1, 7)]
    calls += [(tuple(range(1, x.dim() + 1)), tuple(range(x.dim()))), ((1, 2), (0, 0))]
    on_device = torch.empty_strided(x.shape, x.stride(), device=DEVICE)
    on_device = x.to(DEVICE) if layout == "expanded" else on_device.copy_(x)
    before = dict(hologram_torch.fallback_counts())
    for shifts, dims in calls:
        got, want = on_device.roll(shifts, dims), x.roll(shifts, dims)
        assert torch.equal(got.cpu(), want), (shifts, dims)
        assert got.is_contiguous() or got.is_contiguous(memory_format=torch.channels_last)
    assert dict(hologram_torch.fallback_counts()) == before


def test_results_of_what_is_lazy_or_empty() -> None:
    z = torch.randn(3, 4, dtype=torch.complex64)
    assert torch.equal(z.to(DEVICE).conj().flip(0).cpu(), z.conj().flip(0))
    assert torch.equal(z.to(DEVICE).conj().imag.flip(1).cpu(), z.conj().imag.flip(1))
    assert torch.equal(z.to(DEVICE).conj().roll(1, 1).cpu(), z.conj().roll(1, 1))
    for shape in ((0,), (0, 3), ()):
        x = torch.ones(shape)
        assert torch.equal(x.to(DEVICE).flip(0).cpu(), x.flip(0))
        assert torch.equal(x.to(DEVICE).roll(1).cpu(), x.roll(1))


def test_a_flip_is_read_by_the_kernel_behind_it() -> None:
    x = torch.randn(100, 50)
    on_device = x.to(DEVICE)
    torch.hologram.synchronize()
    results: list[Tensor] = []
    with hologram_torch.execution("deferred"):
        report = hologram_torch.explain(lambda: results.append(on_device.flip(1) * 2 + on_device))
    assert torch.equal(results[0].cpu(), x.flip(1) * 2 + x)
    assert report.stats["kernels_run"] == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda t: t.flip(1, 1),
        lambda t: t.flip(2),
        lambda t: t.flip(0, -3),
        lambda t: t.roll((1, 2), (0,)),
        lambda t: t.roll((), ()),
        lambda t: t.roll(1, 2),
        lambda t: F.glu(t, 1),
        lambda t: F.glu(t, 2),
        lambda t: torch.eye(-1, device=t.device),
        lambda t: torch.eye(2, -3, device=t.device),
    ],
)
def test_refusals_are_pytorchs(function: Callable[[Tensor], Tensor]) -> None:
    messages = []
    for device in ("cpu", DEVICE):
        with pytest.raises((RuntimeError, IndexError)) as caught:
            function(torch.ones(4, 3, device=device))
        messages.append((caught.type, str(caught.value)))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("dtype", [*REAL, *COMPLEX])
def test_eye(dtype: torch.dtype) -> None:
    hologram_torch.reset_fallback_counts()
    for sizes in ((3,), (2, 5), (5, 2), (0,), (0, 3)):
        want = torch.eye(*sizes, dtype=dtype)
        got = torch.eye(*sizes, dtype=dtype, device=DEVICE)
        assert got.dtype == want.dtype and torch.equal(got.cpu(), want)
        given = torch.ones(7, 7, dtype=dtype, device=DEVICE)[:, ::2]
        assert torch.equal(torch.eye(7, 4, out=given).cpu(), torch.eye(7, 4, dtype=dtype))
    assert not hologram_torch.fallback_counts()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("shape", "dim"), [((8,), 0), ((4, 6), -1), ((4, 6), 0), ((2, 6, 5, 3), 1)]
)
def test_glu_and_its_derivative(dtype: torch.dtype, shape: tuple[int, ...], dim: int) -> None:
    x = torch.linspace(-9, 9, torch.Size(shape).numel()).view(shape).to(dtype)
    results = []
    hologram_torch.reset_fallback_counts()
    # The half types are computed in float32 and rounded once; cpu rounds the gate as well.
    for device, compute in (("cpu", torch.float64), (DEVICE, dtype)):
        leaf = x.clone().to(device, compute).requires_grad_()
        y = F.glu(leaf, dim)
        grad = torch.linspace(-1, 1, y.numel()).view(y.shape).to(dtype)
        y.backward(grad.to(device, compute))
        assert leaf.grad is not None
        results.append((y.detach().cpu(), leaf.grad.cpu()))
    assert not hologram_torch.fallback_counts()
    for got, want in zip(results[1], results[0], strict=True):
        assert got.dtype == dtype and got.stride() == want.stride()
        torch.testing.assert_close(got, want.to(dtype))


def test_derivatives() -> None:
    x = torch.randn(4, 6, dtype=torch.float64, device=DEVICE, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: t.flip(1) * t, x)
    assert torch.autograd.gradcheck(lambda t: t.roll((1, 2), (0, 1)) * t, x)
    assert torch.autograd.gradcheck(lambda t: F.glu(t, 1), x)
    assert torch.autograd.gradgradcheck(lambda t: F.glu(t, 1), x)
