# SPDX-License-Identifier: MIT
"""Products with packed int4 weights, in the form in which accelerators are given them."""

from __future__ import annotations

import pytest
import torch
from native_compare import DEVICE, values

GROUP = 32


def _operands(m: int, k: int, n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(3)
    weight = torch.randint(0, 16, (n, k), generator=random)
    scales = torch.rand(k // GROUP, n, generator=random) / 8 + 0.01
    zeros = torch.randn(k // GROUP, n, generator=random)
    return values(m, k, dtype=torch.float64), weight, torch.stack([scales, zeros], -1)


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
    scale, zero = scales_and_zeros.double().repeat_interleave(GROUP, 0).unbind(-1)
    exact = (weight.t() - 8) * scale + zero
    expected = x.double() @ exact
    # Each product is rounded once at most, and the result to its dtype.
    bound = (x.double().abs() @ exact.abs()) * torch.finfo(dtype).eps
    assert ((found.cpu().double() - expected).abs() <= 2 * bound).all()


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
