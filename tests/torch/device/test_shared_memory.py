# SPDX-License-Identifier: MIT
"""One memory in PyTorch's tensors and in the SDK's: who overlaps whom, and what happens first."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

import hologram as hg
import hologram_torch
from hologram_torch import functional, utils

D = "hologram"
SIZES = [40, 40_000]


@pytest.fixture
def ex() -> Iterator[hg.Executor]:
    with hologram_torch.Executor() as executor:
        yield executor


# Two Tensors of the SDK on a device tensor's memory, or on that of a cpu tensor on the SDK's.
def twice_taken(x: torch.Tensor) -> tuple[hg.Tensor, hg.Tensor]:
    return hg.from_dlpack(x), hg.from_dlpack(x)


def through_utils(x: torch.Tensor) -> tuple[hg.Tensor, hg.Tensor]:
    with hologram_torch.Executor() as executor:
        buffer, _ = utils.tensor_to_buffer(executor, x)
        return hg.asarray(buffer, copy=False), hg.from_dlpack(utils.buffer_to_tensor(buffer))


def by_numpy(x: torch.Tensor) -> tuple[hg.Tensor, hg.Tensor]:
    array = np.from_dlpack(x, device="cpu")
    return hg.asarray(array, copy=False), hg.from_dlpack(torch.from_numpy(array))


def owned(x: torch.Tensor) -> tuple[hg.Tensor, hg.Tensor]:
    own = hg.array(x.cpu().numpy())
    if x.is_cpu:
        x.set_(torch.from_dlpack(own))
    return own, hg.from_dlpack(torch.from_dlpack(own))


WAYS = [twice_taken, through_utils, by_numpy, owned]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("device", ["cpu", D])
@pytest.mark.parametrize("n", SIZES)
def test_the_sdk_sees_that_it_is_one_memory(
    way: Callable[[torch.Tensor], tuple[hg.Tensor, hg.Tensor]], device: str, n: int
) -> None:
    x = torch.arange(float(n), device=device) * 2
    a, b = way(x)
    want = np.arange(n, dtype="float32") * 2
    hg.add(a[:-1], 3, out=b[1:])
    want[1:] = want[:-1] + 3
    np.testing.assert_array_equal(np.asarray(a), want)
    a[:] = b[::-1]
    want[:] = want[::-1].copy()
    b[2:] += a[:-2]
    want[2:] += want[:-2].copy()
    np.testing.assert_array_equal(np.asarray(b), want)
    if way is not owned or device == "cpu":
        np.testing.assert_array_equal(x.cpu().numpy(), want)


def test_what_either_side_does_is_in_order() -> None:
    x = torch.ones(1000, device=D) * 3
    kept = x * 10  # waits, and reads what is shared afterwards
    t, again = twice_taken(x)
    t += 1
    assert torch.equal(kept.cpu(), torch.full((1000,), 30.0))
    x.mul_(2)
    again[1:] += t[:-1]
    seen = x + 1
    x.zero_()
    assert seen.cpu().tolist() == [9.0] + [17.0] * 999
    assert t.sum().item() == 0


@pytest.mark.parametrize("n", SIZES)
def test_functions_on_cpu_tensors_of_our_memory(n: int, ex: hg.Executor) -> None:
    want = np.linspace(-1, 1, n, dtype="float32")
    own = hg.array(want)
    cpu = torch.from_dlpack(own)
    taken = hg.from_dlpack(cpu)
    own[:-1] = hg.from_dlpack(functional.relu(ex, cpu[1:]))
    want[:-1] = np.maximum(want[1:], 0)
    np.testing.assert_array_equal(np.asarray(own), want)
    functional.relu(ex, cpu[::2], inplace=True)
    want[::2] = np.maximum(want[::2], 0)
    taken[:] = hg.asarray(functional.add(ex, cpu, cpu.flip(0))[: n // 2].repeat(2), copy=False)
    half = (want + want[::-1])[: n // 2]
    want[:] = np.concatenate([half, half])
    np.testing.assert_array_equal(np.asarray(own), want)
    hg.sub(own[:-1], taken[1:], out=taken[1:])
    want[1:] = want[:-1] - want[1:]
    np.testing.assert_array_equal(cpu.numpy(), want)


@pytest.mark.parametrize("n", SIZES)
def test_buffers_on_parts_of_one_tensor(n: int, ex: hg.Executor) -> None:
    x = torch.arange(float(n))
    want = x.numpy().copy()
    whole, _ = utils.tensor_to_buffer(ex, x)
    left, _ = utils.tensor_to_buffer(ex, x[:-1])
    right, _ = utils.tensor_to_buffer(ex, x[1:])
    hg.ops.vector_add(ex, left, left, right)
    want[1:] = want[:-1] * 2
    assert x.tolist() == want.tolist()
    right.copy_from(left)
    want[1:] = want[:-1].copy()
    hg.ops.vector_add(ex, whole, 1, hg.asarray(torch.from_dlpack(whole).numpy()[::-1], copy=False))
    want[::-1] = want.copy() + 1
    assert x.tolist() == want.tolist()
