# SPDX-License-Identifier: MIT
"""Products with packed int4 weights: as PyTorch's CPU packs them, and as accelerators have them."""

from __future__ import annotations

import pytest
import torch
from native_compare import DEVICE, check, in_both_modes, to_device, values

import hologram_torch

GROUP = 32
FLOATS = [torch.float32, torch.bfloat16, torch.float16]
Operands = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _operands(m: int, k: int, n: int, group: int = GROUP) -> Operands:
    random = torch.Generator().manual_seed(3)
    weight = torch.randint(0, 16, (n, k), generator=random)
    scales = torch.rand(k // group, n, generator=random) / 8 + 0.01
    zeros = torch.randn(k // group, n, generator=random)
    return values(m, k, dtype=torch.float64), weight, torch.stack([scales, zeros], -1)


def _assert_near(found: torch.Tensor, operands: Operands, group: int = GROUP) -> None:
    """Compare with float64: one rounding of the result, and the errors of sums in float32."""
    x, weight, scales_and_zeros = operands
    scale, zero = scales_and_zeros.double().repeat_interleave(group, 0).unbind(-1)
    exact = (weight.t() - 8) * scale + zero
    expected = x.double() @ exact
    size = x.double().abs() @ ((weight.t() - 8).abs() * scale + zero.abs())
    bound = torch.finfo(x.dtype).eps * expected.abs() + 2.0**-20 * size + 2.0**-24
    assert found.dtype == x.dtype and found.shape == expected.shape
    assert ((found.cpu().double() - expected).abs() <= bound).all()


def _packed(m: int, k: int, n: int, group: int, dtype: torch.dtype) -> tuple[Operands, Operands]:
    """Operands, and the same as PyTorch's product for the CPU takes them."""
    x, weight, pairs = _operands(m, k, n, group)
    x, pairs = x.to(dtype), pairs.to(dtype)
    packed = torch._convert_weight_to_int4pack_for_cpu(weight.int(), 2)
    return (x, weight, pairs), (x, packed, pairs)


SIZES = [
    *[(1, 64, 64), (1, 256, 16), (2, 2048, 320), (3, 512, 80), (7, 256, 112), (16, 1024, 128)],
    *[(17, 256, 192), (40, 512, 336), (130, 256, 64), (1, 5632, 96)],
]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_products_of_what_the_cpu_packs(m: int, k: int, n: int, dtype: torch.dtype) -> None:
    for group in (32, 64, 128, 256):
        if k % group:
            continue
        operands, given = _packed(m, k, n, group, dtype)
        x, packed, pairs = to_device(given)
        before = hologram_torch.fallback_counts()
        found = torch._weight_int4pack_mm_for_cpu(x, packed, group, pairs)
        _assert_near(found, operands, group)
        assert hologram_torch.fallback_counts() == before
        assert found.is_contiguous()


def test_modes_threads_and_strides_change_no_bits() -> None:
    threads = torch.get_num_threads()
    found = []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            for m, k, n in [(1, 1024, 3008), (4, 1024, 912), (40, 1024, 320)]:
                x, w, s = to_device(_packed(m, k, n, 64, torch.float32)[1])
                wide = torch.stack([x, x], -1)[..., 0]
                turned = s.transpose(0, 1).contiguous().transpose(0, 1)
                for rows, pairs in [(x, s), (wide, turned)]:
                    found += [
                        in_both_modes(
                            lambda rows=rows, w=w, pairs=pairs: torch._weight_int4pack_mm_for_cpu(
                                rows, w, 64, pairs
                            )
                        )
                    ]
    finally:
        torch.set_num_threads(threads)
    for i in range(0, len(found), 2):
        assert torch.equal(found[i], found[i + 1])
    half = len(found) // 2
    assert all(torch.equal(a, b) for a, b in zip(found[:half], found[half:], strict=True))


def test_what_is_not_finite_stays_so() -> None:
    for value in (float("inf"), float("-inf"), float("nan"), 1e-40, 3e38):
        _, (x, w, s) = _packed(2, 64, 64, 32, torch.float32)
        x[0, 5] = value
        expected = torch._weight_int4pack_mm_for_cpu(x, w, 32, s)
        found = torch._weight_int4pack_mm_for_cpu(*to_device((x, w)), 32, s.to(DEVICE))
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-5, atol=1e-4, equal_nan=True)


def test_errors_are_those_of_cpu() -> None:
    _, (x, w, s) = _packed(3, 64, 32, 32, torch.float32)
    call = torch._weight_int4pack_mm_for_cpu
    check(call, x.double(), w, 32, s.double())
    check(call, x, w.int(), 32, s)
    check(call, x, w, 32, s.bfloat16())
    check(call, x, w, 16, s)
    check(call, x[0], w, 32, s)
    check(call, x, w[:, :16].contiguous(), 32, s)
    check(call, x, w, 32, s[..., 0])


@pytest.mark.parametrize("tiles", [2, 4, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("m", "n"), [(1, 16), (5, 48), (64, 64), (3, 4112)])
def test_products(tiles: int, dtype: torch.dtype, m: int, n: int) -> None:
    k = 256
    x, weight, scales_and_zeros = _operands(m, k, n)
    x, scales_and_zeros = x.to(dtype), scales_and_zeros.to(dtype)
    given = (weight[:, ::2] * 16 + weight[:, 1::2]).to(torch.uint8).to(DEVICE)
    packed = torch._convert_weight_to_int4pack(given, tiles)
    assert packed.device.type == "hologram" and packed.dtype == torch.int32
    assert packed.shape == (n // 8, k // (tiles * 16), 32, tiles // 2)
    found = torch._weight_int4pack_mm(x.to(DEVICE), packed, GROUP, scales_and_zeros.to(DEVICE))
    assert found.dtype == dtype and found.shape == (m, n)
    _assert_near(found, (x, weight, scales_and_zeros))


def test_what_does_not_fit_is_refused() -> None:
    pack, product = torch._convert_weight_to_int4pack, torch._weight_int4pack_mm
    given = torch.zeros(16, 64, dtype=torch.uint8, device=DEVICE)
    with pytest.raises(
        RuntimeError, match=r"expected a matrix of uint8.* got Int of shape \[16, 64"
    ):
        pack(given.int(), 2)
    with pytest.raises(RuntimeError, match="innerKTiles can be 2, 4 or 8, got 3"):
        pack(given, 3)
    with pytest.raises(
        RuntimeError, match="a multiple of 16 rows and of 32 columns, got 8 and 128"
    ):
        pack(given[:8], 2)
    x, scales = torch.ones(2, 96, device=DEVICE), torch.ones(4, 16, 2, device=DEVICE)
    with pytest.raises(RuntimeError, match=r"expected rows of 128 .* got shape \[2, 96\]"):
        product(x, pack(given, 2), GROUP, scales)
    with pytest.raises(RuntimeError, match="expected a weight from _convert_weight_to_int4pack"):
        product(x, given, GROUP, scales)
