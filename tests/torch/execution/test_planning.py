# SPDX-License-Identifier: MIT
"""Loops that write one tensor piece by piece: planned in time that grows with the ops."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

import hologram_torch
from hologram_torch import _C

Tensor = torch.Tensor

pytestmark = pytest.mark.skipif(not _C.can_defer, reason="PyTorch before 2.13 cannot defer")


@pytest.fixture(autouse=True)
def deferred() -> Iterator[None]:
    with hologram_torch.execution("deferred"):
        yield


def columns_twice(device: str, n: int) -> list[Tensor]:
    s = torch.zeros(n, n, device=device)
    for k in range(2):
        for i in range(n):
            s[:, i] = i + k
    return [s, s.double().sum()]


def filled_and_read_in_part(device: str, n: int) -> list[Tensor]:
    s = torch.zeros(64, device=device)
    y = s
    for i in range(n):
        s.fill_(i)
        y = s[:5] + 1
    return [s, y]


def shrinking(device: str, n: int) -> list[Tensor]:
    s = torch.zeros(n, device=device)
    for i in range(n):
        s[: n - i] = i
    return [s]


def neighbours(device: str, n: int) -> list[Tensor]:
    s = torch.arange(float(4 * n), device=device).reshape(4, n)
    for i in range(n - 1):
        s[:, i] += s[:, i + 1]
    return [s]


def halves_in_turns(device: str, n: int) -> list[Tensor]:
    s = torch.arange(64.0, device=device)
    for i in range(n):
        s[i % 2 :: 2] += 1
        s[: 32 + i % 5] *= 0.5
    return [s]


def gathered_and_read(device: str, n: int) -> list[Tensor]:
    s = torch.zeros(n, device=device)
    x = torch.arange(float(n), device=device)
    for i in range(n):
        s[i] = x[i] * 2
    read = [s + i for i in range(n)]
    for i in range(n):
        s[i] = x[i] * 3
    return [s, torch.stack(read).sum(0)]


@pytest.mark.parametrize("n", [5, 60, 400])
@pytest.mark.parametrize(
    "program",
    [
        columns_twice,
        filled_and_read_in_part,
        shrinking,
        neighbours,
        halves_in_turns,
        gathered_and_read,
    ],
)
def test_pieces(program: Callable[[str, int], list[Tensor]], n: int) -> None:
    for ours, expected in zip(program("hologram", n), program("cpu", n), strict=True):
        torch.testing.assert_close(ours.cpu(), expected, rtol=0, atol=0)
