# SPDX-License-Identifier: MIT
"""Inputs of random programs, named by a few words so that a printed program can make them."""

from __future__ import annotations

import functools

import numpy as np
import torch

KINDS = ("plain", "special", "bits")


def make(kind: str, shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Return plain numbers, numbers at the edges of the type, or random bits."""
    rng = np.random.default_rng(seed)
    n = int(np.prod(shape))
    if dtype == torch.bool:
        return torch.from_numpy(rng.random(n) < 0.5).reshape(shape)
    if kind == "bits" and n:
        raw = torch.from_numpy(rng.integers(0, 256, n * dtype.itemsize, dtype=np.uint8))
        return raw.view(dtype).reshape(shape)
    if dtype.is_floating_point:
        values = rng.normal(size=n)
        if kind == "special":
            info = torch.finfo(dtype)
            edges = np.array([0.0, -0.0, 1, -1, 2, 0.5, 3e-41, -1e-320, 88.7, -104, 709.8, 7e4])
            limits = [info.max, -info.max, info.tiny, -info.tiny / 4, info.eps]
            nans = [np.nan, -np.nan, np.uint64(0x7FF8123450000000).view(np.float64)]
            edges = np.concatenate([edges, limits, [np.inf, -np.inf], nans])
            values = np.where(rng.random(n) < 0.5, rng.choice(edges, n), values)
        return torch.from_numpy(values).to(dtype).reshape(shape)
    least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    numbers = rng.integers(max(least, -9), 10, n)
    if kind == "special":
        edges = np.array([least, most, least + 1, most - 1, 0, 1, most // 2 + 1])
        numbers = np.where(rng.random(n) < 0.5, rng.choice(edges, n), numbers)
    return torch.from_numpy(numbers).to(dtype).reshape(shape)


@functools.lru_cache(maxsize=1024)
def small(kind: str, shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Make, kept; callers only read it."""
    return make(kind, shape, dtype, seed)


def cached(kind: str, shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Make, remembered if it is small; callers only read it."""
    n = 1
    for s in shape:
        n *= s
    return (small if n <= 8192 else make)(kind, shape, dtype, seed)
