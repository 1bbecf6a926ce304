# SPDX-License-Identifier: MIT
"""What the device says of itself: its dtypes, pinned results, and the pools that it has not."""

from __future__ import annotations

import itertools

import pytest
import torch

DEVICE = "hologram"
ALL = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}


def dtypes() -> set[torch.dtype]:
    found: set[torch.dtype] = torch.accelerator.get_device_capability()["supported_dtypes"]
    assert found == torch.hologram.get_device_capability()["supported_dtypes"]
    return found


def test_dtypes_that_are_claimed_convert_among_each_other() -> None:
    for a, b in itertools.product(dtypes(), dtypes()):
        x = torch.ones(3, device=DEVICE).to(a).to(b)
        assert x.dtype == b and x.device.type == DEVICE
        assert x.to(torch.float32).tolist() == [1, 1, 1], (a, b)


def test_others_do_not() -> None:
    """The claim has no gaps: no other dtype converts to numbers and back."""
    for dtype in ALL - dtypes():
        with pytest.raises(Exception):
            torch.ones(4, device=DEVICE).to(dtype).to(torch.float32).tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16, torch.complex64])
def test_copies_that_are_not_waited_for_are_pinned(dtype: torch.dtype) -> None:
    x = torch.arange(12).reshape(3, 4).to(dtype).to(DEVICE)
    for t in (x, x.t(), x[:, 1:], x[:0], x + x):
        y = t.to("cpu", non_blocking=True)
        torch.hologram.synchronize()
        assert y.is_pinned() == (y.numel() > 0) and torch.equal(y, t.cpu())
        assert y.stride() == t.cpu().stride()
    assert not x.to("cpu").is_pinned() and not x.cpu().is_pinned()
    narrowed = x.to("cpu", torch.float64 if dtype != torch.complex64 else dtype, non_blocking=True)
    assert narrowed.is_pinned()
    assert not x.to(DEVICE, non_blocking=True).is_pinned()


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.hologram.MemPool(),
        lambda: torch.hologram.use_mem_pool(None),
        lambda: torch.hologram.memory.PluggableAllocator("a.so", "malloc", "free"),
        lambda: torch.hologram.memory.change_current_allocator(None),
    ],
)
def test_pools_are_refused(make: object) -> None:
    with pytest.raises(
        NotImplementedError, match=r"not available on the device 'hologram'.*one pool"
    ):
        make()  # type: ignore[operator]
