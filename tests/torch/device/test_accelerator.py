# SPDX-License-Identifier: MIT
"""Every public function of torch.accelerator on this device."""

from __future__ import annotations

import pytest
import torch

D = "hologram"
acc = torch.accelerator


def test_every_function_is_tested_here() -> None:
    tested = {
        "Graph", "current_accelerator", "current_device_idx", "current_device_index",
        "get_device_capability", "current_stream", "device_count", "device_index", "empty_cache",
        "empty_host_cache", "get_memory_info", "is_available", "max_memory_allocated",
        "max_memory_reserved", "memory_allocated", "memory_reserved", "memory_stats",
        "reset_accumulated_memory_stats", "reset_peak_memory_stats", "set_device_idx",
        "set_device_index", "set_stream", "synchronize",
    }  # fmt: skip
    assert set(acc.__all__) <= tested
    if hasattr(acc, "random"):
        assert set(acc.random.__all__) <= {"initial_seed", "get_rng_state", "get_rng_state_all"}


def test_devices() -> None:
    assert acc.is_available()
    assert acc.current_accelerator() == torch.device(D)
    assert acc.current_accelerator(check_available=True) == torch.device(D)
    count = acc.device_count()
    assert count == torch.hologram.device_count() >= 1
    assert acc.current_device_index() == 0
    acc.set_device_index(0)
    acc.set_device_index("hologram:0")
    with pytest.warns(FutureWarning, match="current_device_index"):
        assert acc.current_device_idx() == 0
    with pytest.warns(FutureWarning, match="set_device_index"):
        acc.set_device_idx(0)
    with acc.device_index(0):
        assert torch.empty(1, device=D).device.index == 0
    with acc.device_index(None):
        assert acc.current_device_index() == 0
    with pytest.raises(RuntimeError, match=f"no device hologram:{count}; there"):
        acc.set_device_index(count)
    assert acc.current_device_index() == 0
    with pytest.raises(ValueError, match="doesn't match the current accelerator"):
        acc.set_device_index("cuda:0")


def test_capability_tells_dtypes() -> None:
    dtypes = acc.get_device_capability()["supported_dtypes"]
    assert {torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool} <= dtypes
    for dtype in dtypes & {torch.float16, torch.complex64, torch.int8, torch.uint8}:
        assert torch.ones(2, dtype=dtype, device=D).cpu().tolist() == [1, 1]
    assert acc.get_device_capability(0) == acc.get_device_capability("hologram:0")


def test_streams() -> None:
    before = acc.current_stream()
    assert before.device == torch.device("hologram:0")
    other = torch.Stream(device=D)
    acc.set_stream(other)
    try:
        assert acc.current_stream() == other
        x = torch.ones(8, device=D) * 3
        acc.synchronize()
        assert x.cpu().tolist() == [3.0] * 8
    finally:
        acc.set_stream(before)
    assert acc.current_stream(0) == before
    with other:
        assert acc.current_stream() == other
    assert acc.current_stream() == before
    acc.synchronize("hologram:0")
    event = torch.Event(D, enable_timing=True)
    event.record()
    end = torch.Event(D, enable_timing=True)
    end.record(other)
    acc.synchronize()
    assert event.elapsed_time(end) >= 0


def test_memory() -> None:
    free, total = acc.get_memory_info()
    assert 0 < free <= total
    acc.empty_cache()
    acc.empty_host_cache()
    acc.reset_peak_memory_stats()
    before = acc.memory_allocated()
    assert acc.max_memory_allocated() == before
    x = torch.ones(1 << 20, device=D)
    assert acc.memory_allocated() - before == 4 << 20
    assert acc.memory_reserved() >= acc.memory_allocated()
    y = torch.ones(1 << 20, device=D)
    assert acc.memory_allocated("hologram:0") - before == 8 << 20
    del y
    assert acc.memory_allocated() - before == 4 << 20
    assert acc.max_memory_allocated() - before >= 8 << 20
    assert acc.max_memory_reserved() >= acc.memory_reserved()
    acc.reset_peak_memory_stats()
    assert acc.max_memory_allocated() == acc.memory_allocated()
    acc.reset_accumulated_memory_stats()
    for kind in ("active", "active_bytes", "allocated_bytes", "allocation", "requested_bytes"):
        for metric in ("allocated", "freed"):
            assert acc.memory_stats()[f"{kind}.all.{metric}"] == 0, (kind, metric)
    z = x + 1
    assert acc.memory_stats(0)["allocated_bytes.all.allocated"] == 4 << 20
    assert acc.memory_stats()["allocation.all.allocated"] == 1
    assert z.numel() == 1 << 20
    del x  # made before the totals began again
    assert acc.memory_stats()["allocated_bytes.all.freed"] == 4 << 20
    assert acc.memory_stats()["allocation.all.freed"] == 1


@pytest.mark.skipif(not hasattr(acc, "Graph"), reason="this PyTorch has no accelerator graphs")
def test_graphs() -> None:
    x = torch.ones(16, device=D)
    graph = acc.Graph()
    with graph:
        y = x * 2 + 1
    x.fill_(5)
    graph.replay()
    assert y.tolist() == [11.0] * 16
    graph.reset()


@pytest.mark.skipif(not hasattr(acc, "random"), reason="this PyTorch has no accelerator.random")
def test_random_state() -> None:
    torch.manual_seed(77)
    assert acc.random.initial_seed() == 77
    state = acc.random.get_rng_state()
    a = torch.rand(4, device=D).cpu()
    torch.hologram.set_rng_state(state)
    assert torch.equal(torch.rand(4, device=D).cpu(), a)
    states = acc.random.get_rng_state_all()
    assert len(states) == acc.device_count()
    assert states[0].shape == state.shape
