# SPDX-License-Identifier: MIT
"""Variances, norms and their gradients of huge and tiny numbers have the values that cpu has."""

from __future__ import annotations

import pytest
import scales
import torch
from native_compare import DEVICE

SHAPES: dict[tuple[int, ...], list[object]] = {
    (1000,): [None],
    (9, 130): [None, 0, 1],
    (5, 33, 12): [0, 1, 2, (0, 2)],
    (3, 5): [0, 1],
    (70, 3): [0, 1],
    (1, 70_000): [1, None],
    (300, 1200): [0],
}


def drawn(shape: tuple[int, ...], scale: float, mean: float = 0) -> torch.Tensor:
    torch.manual_seed(len(shape) + shape[-1])
    return (torch.randn(shape, dtype=torch.float64) + mean) * scale


@pytest.mark.parametrize("name", scales.SPREADS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_spreads_at_every_scale(name: str, dtype: torch.dtype) -> None:
    found = []
    for shape, dims in SHAPES.items():
        for scale in scales.SCALES:
            for mean in (0, 3):
                x = drawn(shape, scale, mean).to(dtype)
                for dim in dims:
                    text = scales.excess(scales.SPREADS[name](dim), x, DEVICE, elementwise=True)
                    found += [f"{shape} {dim} {scale} {mean}: {text}"] if text else []
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", scales.SPREADS)
def test_gradients_of_spreads_at_every_scale(name: str) -> None:
    found = []
    for shape, dims in SHAPES.items():
        for scale in scales.SCALES:
            x = drawn(shape, scale).float()
            for dim in dims:
                function = scales.gradient(scales.SPREADS[name](dim))
                text = scales.excess(function, x, DEVICE, elementwise=False)
                found += [f"{shape} {dim} {scale}: {text}"] if text else []
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", scales.NORMS)
def test_norms_at_every_scale(name: str) -> None:
    found = []
    for function in (scales.NORMS[name], scales.gradient(scales.NORMS[name])):
        for shape in ((9, 132), (64, 20), (10, 4000)):
            for scale in scales.SCALES:
                x = drawn(shape, scale).float()
                text = scales.excess(function, x, DEVICE, elementwise=False)
                found += [f"{shape} {scale}: {text}"] if text else []
    assert not found, "\n".join(found)


def test_a_small_deviation_from_a_large_mean() -> None:
    found = []
    for shape, dims in SHAPES.items():
        for scale in (1e-30, 1.0, 1e25):
            x = drawn(shape, scale, 1e5).float()
            for name, spread in scales.SPREADS.items():
                for dim in dims:
                    text = scales.excess(spread(dim), x, DEVICE, elementwise=True)
                    found += [f"{name} {shape} {dim} {scale}: {text}"] if text else []
    assert not found, "\n".join(found)


def test_scales_differ_from_row_to_row_and_from_column_to_column() -> None:
    powers = 10.0 ** torch.linspace(-36, 36, 200, dtype=torch.float64)
    x = (torch.randn(200, 300, dtype=torch.float64) * powers[:, None]).float()
    for rows, dim in ((x, 1), (x.t(), 0), (x.t().contiguous(), 0)):
        text = scales.excess(scales.SPREADS["std"](dim), rows, DEVICE, elementwise=True)
        assert text is None, text


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e-150, 1e150, 1e153, 1e300])
def test_float64(scale: float) -> None:
    """Squares overflow on cpu, too: where it has a value, it is the same."""
    for shape, dims in SHAPES.items():
        x = drawn(shape, scale, 3)
        for dim in dims:
            # A variance below 1e-290 is a sum of squares some of which lack digits.
            has = x.var(dim).isfinite() & (x.var(dim) > 1e-290)
            for name in ("var", "std"):
                theirs = scales.SPREADS[name](dim)(x)
                ours = scales.SPREADS[name](dim)(x.to(DEVICE)).cpu()
                torch.testing.assert_close(ours[has], theirs[has], rtol=1e-9, atol=0)


def test_what_has_no_spread_has_none() -> None:
    for value in (0.0, 1e-44, 1e-30, 3.5, 1e30, 3e38):
        x = torch.full((40, 150), value, device=DEVICE)
        for dim in (None, 0, 1):
            assert not x.var(dim).any(), (value, dim)
    for value in (torch.inf, torch.nan):
        x = torch.full((40, 150), 1e30)
        x[3, 5] = value
        for dim in (None, 0, 1):
            found, theirs = x.to(DEVICE).var(dim).cpu(), x.var(dim)
            torch.testing.assert_close(found.isnan(), theirs.isnan())
