# SPDX-License-Identifier: MIT
"""Products with int8 weights: PyTorch's op, weights converted at each call, quantized layers."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from native_compare import (
    ACCURATE,
    DEVICE,
    assert_close,
    check,
    check_native,
    in_both_modes,
    to_device,
    values,
)
from torch import nn

import hologram_torch

HALVES = [torch.bfloat16, torch.float16]
FLOATS = [torch.float32, *HALVES]
STEPS = {torch.float32: 2.0**-23, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}

# Whether the built-in GEMM computes small products; another one gets converted weights.
BUILTIN = os.environ.get("HOLOGRAM_GEMM") != "torch"


def _weight(n: int, k: int, seed: int = 7) -> torch.Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.randint(-128, 128, (n, k), dtype=torch.int8, generator=random)


def _operands(m: int, k: int, n: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    return values(m, k, dtype=dtype), _weight(n, k), values(n, dtype=dtype, seed=1) / 64


def _linear(x: torch.Tensor, weight: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """The op under test; in float64, which it does not take, what it means."""
    if x.dtype == torch.float64:
        return (x @ weight.double().t()) * scales
    return torch._weight_int8pack_mm(x, weight, scales)


def _assert_near(result: torch.Tensor, x: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> None:
    """Compare with float64: half a step of the result, and the errors of sums in float32."""
    exact = _linear(x.double(), w, s.double())
    size = (x.double().abs() @ w.double().abs().t()) * s.double().abs()
    bound = 2 * STEPS[x.dtype] * exact.abs() + 2.0**-21 * size + 2.0**-24
    assert result.dtype == x.dtype and result.shape == exact.shape
    assert bool(((result.cpu().double() - exact).abs() <= bound).all())


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "m,k,n", [(1, 768, 300), (2, 96, 50), (4, 256, 33), (8, 64, 70), (9, 64, 33), (40, 1056, 30)]
)
def test_is_as_accurate_as_cpu(dtype: torch.dtype, m: int, k: int, n: int) -> None:
    x, w, s = _operands(m, k, n, dtype)
    result = check_native(_linear, x, w, s, tol=ACCURATE)
    assert result.is_contiguous()


# Some of these sizes make PyTorch's kernel for bfloat16 read what is not there.
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "m,k,n",
    [
        (1, 33, 17),
        (1, 40, 1),
        (2, 100, 50),
        (3, 1027, 65),
        (8, 31, 3),
        (70, 45, 1),
        (130, 1500, 70),
    ],
)
def test_odd_sizes(dtype: torch.dtype, m: int, k: int, n: int) -> None:
    x, w, s = _operands(m, k, n, dtype)
    hologram_torch.reset_fallback_counts()
    _assert_near(_linear(*to_device((x, w, s))), x, w, s)
    assert not hologram_torch.fallback_counts()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("m,k,n", [(0, 32, 5), (3, 0, 5), (3, 32, 0), (0, 0, 0)])
def test_nothing_to_compute(dtype: torch.dtype, m: int, k: int, n: int) -> None:
    check_native(torch._weight_int8pack_mm, *_operands(m, k, n, dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_operands_with_gaps(dtype: torch.dtype) -> None:
    x, w, s = _operands(5, 64, 33, dtype)
    wide, twice = values(5, 100, dtype=dtype), values(66, dtype=dtype)
    hologram_torch.reset_fallback_counts()
    # PyTorch's kernels take such scales as if they had no gaps, and rows of bfloat16 too.
    for operands in (
        (wide[:, 3:67], w, s),
        (wide[::2, :64], w, s),
        (x, _weight(40, 64)[4:37], s),
        (x, w, twice[::2]),
    ):
        _assert_near(_linear(*to_device(operands)), *operands)
    assert not hologram_torch.fallback_counts()


def test_errors_are_those_of_cpu() -> None:
    x, w, s = _operands(3, 8, 5, torch.float32)
    call = torch._weight_int8pack_mm
    check(call, x.double(), w, s.double())
    check(call, x.int(), w, s)
    check(call, x, w.int(), s)
    check(call, x, w, s.bfloat16())
    check(call, x[0], w, s)
    check(call, x, w[0], s)
    check(call, x, w[None], s)
    check(call, x, w[:, :4].contiguous(), s)
    check(call, x, _weight(8, 5).t(), s)
    check(call, values(8, 3).t(), w, s)
    check(call, x, w, s[:4])
    check(call, x, w, s[:, None])


def _kernels(call: Callable[[], object]) -> list[str]:
    with hologram_torch.execution("deferred"):
        found = hologram_torch.explain(call)
        return [kernel.name for circuit in found.circuits for kernel in circuit.after]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("m", [2, 20, 40])
def test_what_follows_joins_the_product(dtype: torch.dtype, m: int) -> None:
    x, w, s = to_device(_operands(m, 96, 50, dtype))
    bias, residual = to_device((values(50, dtype=dtype), values(m, 50, dtype=dtype)))

    def layer() -> torch.Tensor:
        return F.gelu(torch._weight_int8pack_mm(x, w, s) + bias) + residual

    in_both_modes(layer)
    # Fewer rows are over before anything could join them; some processors have an instruction for
    # more of bfloat16.
    if m > (32 if dtype == torch.bfloat16 else 8):
        assert len(_kernels(layer)) == 1


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n,k", [(50, 96), (600, 512), (40, 1100)])
def test_functions_of_whole_rows_follow(dtype: torch.dtype, n: int, k: int) -> None:
    x, w, s = to_device(_operands(30, k, n, dtype))
    bias = values(n, dtype=dtype).to(DEVICE)
    soft = in_both_modes(lambda: torch.softmax(torch._weight_int8pack_mm(x, w, s) + bias, -1))
    assert bool(((soft.double().sum(-1) - 1).abs() < 0.02).all())
    in_both_modes(lambda: (torch._weight_int8pack_mm(x, w, s) * 0.5).sum(-1))


def test_threads_change_no_bits() -> None:
    threads = torch.get_num_threads()
    found = []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            for m, k, n in [(1, 1024, 3000), (5, 1024, 900), (40, 1024, 300), (300, 1100, 90)]:
                x, w, s = to_device(_operands(m, k, n, torch.float32))
                found.append(in_both_modes(lambda: torch._weight_int8pack_mm(x, w, s)))  # noqa: B023
                found.append(in_both_modes(lambda: _torchao(x, w, s)))  # noqa: B023
    finally:
        torch.set_num_threads(threads)
    half = len(found) // 2
    assert all(torch.equal(a, b) for a, b in zip(found[:half], found[half:], strict=True))


def _torchao(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """What torchao's weight-only layers do on devices that they do not know."""
    return torch.mm(x, w.t().to(x.dtype)) * s


def _cast(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    return F.linear(x, w.to(x.dtype)) * s


def _scaled_bias(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    return F.linear(x, w.to(x.dtype), s)


@pytest.mark.parametrize("call", [_torchao, _cast, _scaled_bias])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("m,k,n", [(1, 1024, 40), (3, 100, 50), (1, 33, 17), (20, 96, 33)])
def test_conversions_join_the_product(
    call: Callable[..., torch.Tensor], dtype: torch.dtype, m: int, k: int, n: int
) -> None:
    operands = _operands(m, k, n, dtype)
    on_device = to_device(operands)
    check_native(call, *operands, tol=ACCURATE)
    in_both_modes(lambda: call(*on_device))
    names = _kernels(lambda: call(*on_device))
    assert ("convert" not in names) == names[0].startswith("gemm_int8") == BUILTIN


@pytest.mark.parametrize("call,factor", [(_torchao, 1.0), (_cast, 1.0), (_scaled_bias, 2.0**-12)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_conversions_follow_the_product_into_its_circuit(
    call: Callable[..., torch.Tensor], factor: float, dtype: torch.dtype
) -> None:
    """A costly product ends a circuit. What is converted for the next one is not left behind."""
    k = 512
    x = values(1, k, dtype=dtype)
    layers = [(_weight(k, k, seed), values(k, dtype=dtype, seed=seed) / 4096) for seed in range(6)]

    def model(x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        for w, s in zip(rest[::2], rest[1::2], strict=True):
            x = F.relu(call(x, w, s) * factor) + x
        return x

    operands = [x, *(t for layer in layers for t in layer)]
    on_device = to_device(operands)
    check_native(model, *operands, tol=ACCURATE)
    in_both_modes(lambda: model(*on_device))
    names = _kernels(lambda: model(*on_device))
    assert sum(name.startswith("gemm_int8") for name in names) == (6 if BUILTIN else 0)
    assert ("convert" not in names) == BUILTIN


def test_conversions_that_others_read_stay_with_them() -> None:
    x, w, _ = to_device(_operands(1, 512, 512, torch.float32))
    v = _weight(512, 512, 1).to(DEVICE)

    def model() -> torch.Tensor:
        y = F.linear(x, w.float())
        first, second = v.float(), w.float()
        z = F.linear(y, first) + F.linear(y, second)
        return z + first[0] + second.sum(0)

    exact = x.double() @ w.double().t()
    exact = exact @ (v.double() + w.double()).t() + v[0].double() + w.double().sum(0)
    # Two sums of 512 products in float32: an element that is small by chance is no more exact.
    error = 1e-6 * exact.abs().max().item()
    torch.testing.assert_close(in_both_modes(model).double(), exact.cpu(), rtol=0, atol=error)


def test_conversions_of_what_the_circuit_writes_stay_in_it() -> None:
    x, w, _ = to_device(_operands(1, 512, 512, torch.float32))
    other = _weight(512, 512, 1).to(DEVICE)

    def model() -> torch.Tensor:
        weight = w.clone()
        y = F.linear(x, weight.float())
        weight.copy_(other)
        return F.linear(y, weight.float())

    exact = x.double() @ w.double().t() @ other.double().t()
    torch.testing.assert_close(in_both_modes(model).double(), exact.cpu(), rtol=1e-4, atol=1.0)


def test_conversions_of_parts_of_a_weight() -> None:
    """Plans of one structure serve weights of other sizes, at other places."""
    x, w = values(3, 40), _weight(90, 40)
    dx, dw = to_device((x, w))
    for first, rows in [(4, 33), (0, 50), (21, 60), (4, 33), (30, 59)]:
        part, on_device = w[first : first + rows], dw[first : first + rows]
        result = in_both_modes(lambda: F.linear(dx, on_device.float()))  # noqa: B023
        _assert_near(result, x, part, torch.ones(rows))
        names = _kernels(lambda: F.linear(dx, on_device.float()))  # noqa: B023
        assert (names == ["gemm_int8"]) == BUILTIN


@pytest.mark.parametrize("narrow", HALVES)
def test_conversions_of_half_weights_join_the_product(narrow: torch.dtype) -> None:
    for m in (1, 4, 20):
        x, w = values(m, 70), values(33, 70, dtype=narrow)
        check_native(lambda x, w: F.linear(x, w.to(x.dtype)), x, w, tol=ACCURATE)
        dx, dw = to_device((x, w))
        in_both_modes(lambda: F.linear(dx, dw.float()))  # noqa: B023
        names = _kernels(lambda: F.linear(dx, dw.float()))  # noqa: B023
        assert (names == [f"gemm_{str(narrow).removeprefix('torch.')}"]) == BUILTIN


def test_converted_weights_that_are_kept_and_changed() -> None:
    x, w, _ = to_device(_operands(4, 64, 33, torch.float32))
    with hologram_torch.execution("deferred"):
        wide = w.float()
        before = F.linear(x, wide)
        wide[0, 0] = 3.5
        after = F.linear(x, wide)
        w.zero_()
        zeros = F.linear(x, w.float())
    want = wide.cpu()
    assert want[0, 0] == 3.5 and torch.equal(
        want.flatten()[1:], _weight(33, 64).float().flatten()[1:]
    )
    _assert_near(before, x.cpu(), _weight(33, 64), torch.ones(33))
    torch.testing.assert_close(after.cpu(), x.cpu() @ want.t(), rtol=1e-4, atol=1e-2)
    assert not zeros.cpu().any()


@pytest.mark.filterwarnings("ignore:torch.ao.quantization")
def test_dynamically_quantized_layers_run_on_cpu() -> None:
    """They hold weights packed for the cpu, as torch.ao made them; the input has to come there."""
    model = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 4)).eval()
    quantized = torch.ao.quantization.quantize_dynamic(model, {nn.Linear})
    x = values(3, 16)
    assert_close(quantized(x.to(DEVICE)), quantized(x))
    assert_close(quantized.to(DEVICE)(x.to(DEVICE)), quantized(x))
