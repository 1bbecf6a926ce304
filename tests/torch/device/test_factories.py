# SPDX-License-Identifier: MIT
"""Tensors of undefined contents: what deterministic mode fills in, and what PyTorch warns of."""

from __future__ import annotations

import warnings

import pytest
import torch

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16,
    torch.uint32, torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
    torch.complex32, torch.complex64, torch.complex128,
]  # fmt: skip


@pytest.fixture
def deterministic():
    before = torch.are_deterministic_algorithms_enabled()
    fill = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.utils.deterministic.fill_uninitialized_memory = fill
    torch.use_deterministic_algorithms(before)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "make",
    [
        lambda **k: torch.empty(3, 5, **k),
        lambda **k: torch.empty(0, **k),
        lambda **k: torch.empty_strided((3, 5), (1, 4), **k),
        lambda **k: torch.empty(2, 3, 4, 5, memory_format=torch.channels_last, **k),
        lambda **k: torch.empty_permuted((2, 3, 5), (1, 0, 2), **k),
    ],
)
def test_deterministic_mode_fills_as_on_cpu(deterministic, dtype, make):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, expected = make(dtype=dtype, device="hologram"), make(dtype=dtype)
    assert ours.stride() == expected.stride()
    if expected.is_complex():
        ours, expected = torch.view_as_real(ours), torch.view_as_real(expected)
    assert torch.equal(
        ours.cpu().nan_to_num(nan=7) if ours.is_floating_point() else ours.cpu(),
        expected.nan_to_num(nan=7) if ours.is_floating_point() else expected,
    )


@pytest.mark.parametrize("name", ["empty", "zeros", "ones", "rand", "randn"])
def test_a_tensor_of_complex32_is_warned_of(name):
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with pytest.warns(UserWarning, match="ComplexHalf support is experimental"):
            getattr(torch, name)(3, dtype=torch.complex32, device="hologram")
        with pytest.warns(UserWarning, match="ComplexHalf support is experimental"):
            torch.empty_strided((2, 2), (1, 2), dtype=torch.complex32, device="hologram")
    finally:
        torch.set_warn_always(before)
