# SPDX-License-Identifier: MIT
"""Snapshots of memory and its history, as PyTorch's viewer reads them; statistics."""

from __future__ import annotations

import gc
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.cuda import _memory_viz

import hologram_torch

D = "hologram"
MIB = 1 << 20
memory = torch.hologram.memory


@pytest.fixture
def _history() -> Iterator[None]:
    with hologram_torch.execution("deferred"):
        memory._record_memory_history()
        yield
        memory._record_memory_history(enabled=None)


def blocks_of(snapshot: dict[str, Any], state: str) -> list[dict[str, Any]]:
    return [b for s in snapshot["segments"] for b in s["blocks"] if b["state"] == state]


def block_at(snapshot: dict[str, Any], address: int) -> dict[str, Any]:
    (block,) = [b for b in blocks_of(snapshot, "active_allocated") if b["address"] == address]
    return block


def test_segments_hold_what_there_is() -> None:
    gc.collect()  # what earlier tests left in cycles could go between two looks
    small, large = torch.ones(1000, device=D), torch.ones(3 * MIB, device=D)
    snapshot = memory._snapshot()
    assert sum(s["total_size"] for s in snapshot["segments"]) == memory.memory_reserved()
    assert sum(s["allocated_size"] for s in snapshot["segments"]) == memory.memory_allocated()
    for segment in snapshot["segments"]:
        at = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == at  # they tile it
            at += block["size"]
        assert at == segment["address"] + segment["total_size"]
    block = block_at(snapshot, large.data_ptr())
    assert (block["size"], block["requested_size"]) == (12 * MIB, 12 * MIB)
    assert block_at(snapshot, small.data_ptr())["requested_size"] == 4000
    address = large.data_ptr()
    del large
    after = memory.memory_snapshot()
    assert not [
        b for s in after for b in s["blocks"]
        if b["address"] == address and b["state"] == "active_allocated"
    ]  # fmt: skip
    memory.empty_cache()
    assert address not in [s["address"] for s in memory.memory_snapshot()]


@pytest.mark.usefixtures("_history")
def test_blocks_know_the_lines_that_made_them() -> None:
    def compute(x: torch.Tensor) -> torch.Tensor:
        y = x * 2 + 1
        return y  # noqa: RET504

    x = torch.empty(MIB, device=D)
    x.data_ptr()  # now it has memory; ops on it run at their calls
    z = compute(x)
    y = compute(torch.zeros(MIB, device=D))
    torch.hologram.synchronize()
    snapshot = memory._snapshot()
    line = compute.__code__.co_firstlineno + 1
    frames = block_at(snapshot, y.data_ptr())["frames"]
    assert frames[0]["name"] == "compute"
    assert (frames[0]["filename"], frames[0]["line"]) == (__file__, line)
    assert memory._allocation_traceback(y.data_ptr()) == frames
    made = block_at(snapshot, x.data_ptr())["frames"]
    assert made[0]["name"] == "test_blocks_know_the_lines_that_made_them"
    assert memory._allocation_traceback(12345) is None
    eager = block_at(snapshot, z.data_ptr())["frames"]
    assert (eager[0]["name"], eager[0]["line"]) == ("compute", line)


@pytest.mark.usefixtures("_history")
def test_events_tell_allocations_and_frees() -> None:
    memory.empty_cache()
    x = torch.ones(5 * MIB, device=D)
    address = x.data_ptr()
    del x
    memory.empty_cache()
    snapshot = memory._snapshot()
    (trace, *_) = snapshot["device_traces"]
    mine = [e for e in trace if e.get("addr") == address]
    assert [e["action"] for e in mine] == [
        "segment_alloc", "alloc", "free_requested", "free_completed", "segment_free",
    ]  # fmt: skip
    assert all(e["size"] == 20 * MIB for e in mine)
    times = [e["time_us"] for e in trace]
    assert times == sorted(times)
    assert trace[-1]["action"] == "snapshot"
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 46, device=D)
    oom = [e for e in memory._snapshot()["device_traces"][0] if e["action"] == "oom"]
    assert oom[-1]["size"] == 1 << 48
    assert oom[-1]["device_free"] > 0


def test_how_much_is_kept() -> None:
    def events() -> list[dict[str, Any]]:
        return memory._snapshot()["device_traces"][0]

    try:
        memory._record_memory_history(enabled="state")
        x = torch.ones(MIB, device=D)
        x.data_ptr()
        assert events() == []
        assert block_at(memory._snapshot(), x.data_ptr())["frames"]
        memory._record_memory_history(max_entries=3, clear_history=True)
        for i in range(20):
            (x * i).data_ptr()
        assert len(events()) == 3
        memory._record_memory_history(context=None, clear_history=True)
        (x + 1).data_ptr()
        assert all(e["frames"] == [] for e in events())
        memory._record_memory_history(context="alloc", clear_history=True)
        (x + 1).data_ptr()
        assert {e["action"]: bool(e["frames"]) for e in events()} == {
            "alloc": True, "free_requested": False, "free_completed": False, "snapshot": False,
        }  # fmt: skip
        memory._record_memory_history(skip_actions=["free_requested", "snapshot"])
        before = len(events())
        (x + 1).data_ptr()
        assert [e["action"] for e in events()[before:]] == ["alloc", "free_completed"]
    finally:
        memory._record_memory_history(enabled=None)
    assert events() == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"enabled": "yes"}, "enabled='yes' is not None, 'state' or 'all'"),
        ({"context": "some"}, "context='some' is not None, 'state', 'alloc' or 'all'"),
        ({"stacks": "cpp"}, "stacks='cpp' is not 'all' or 'python'"),
        ({"max_entries": -1}, "max_entries=-1 is negative"),
        ({"skip_actions": ["fre"]}, "skip_actions has fre; the actions are alloc, free_requested"),
        ({"device": "hologram:99"}, "no device hologram:99; there"),
    ],
)
def test_wrong_arguments_of_the_history(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        memory._record_memory_history(**arguments)


@pytest.mark.usefixtures("_history")
def test_pytorchs_viewer_opens_a_dump(tmp_path: Path) -> None:
    model = torch.nn.Linear(512, 512).to(D)
    for _ in range(3):
        model(torch.rand(64, 512, device=D)).sum().backward()
    held = model.weight.grad
    path = tmp_path / "snapshot.pickle"
    memory._dump_snapshot(str(path))
    with path.open("rb") as file:
        snapshot = pickle.load(file)
    assert held is not None
    assert f"segments: {len(snapshot['segments'])}" in _memory_viz.segsum(snapshot)
    assert "alloc" in _memory_viz.trace(snapshot)
    assert "test_pytorchs_viewer" in json.dumps(snapshot)
    for plot in (_memory_viz.trace_plot, _memory_viz.segment_plot):
        page = plot(snapshot)
        assert "MemoryViz" in page
        assert len(page) > 1000


def test_statistics_have_cudas_keys() -> None:
    x = torch.ones(MIB, device=D)
    stats = torch.hologram.memory_stats()
    for kind in (
        "active", "active_bytes", "allocated_bytes", "allocation", "inactive_split",
        "inactive_split_bytes", "requested_bytes", "reserved_bytes", "segment",
    ):  # fmt: skip
        for pool in ("all", "large_pool", "small_pool"):
            for metric in ("allocated", "current", "freed", "peak"):
                assert stats[f"{kind}.{pool}.{metric}"] >= 0
    for key in (
        "max_split_size", "num_alloc_retries", "num_device_alloc", "num_device_free", "num_ooms",
        "num_sync_all_streams", "oversize_allocations.current", "oversize_segments.peak",
    ):  # fmt: skip
        assert stats[key] >= 0
    assert stats["allocated_bytes.all.current"] >= 4 * MIB
    text = memory.memory_summary()
    for row in ("allocated bytes", "reserved bytes", "allocations", "out of memory"):
        assert row in text
    assert "out of memory" not in memory.memory_summary(abbreviated=True)
    assert f"{stats['allocated_bytes.all.current']:,}" in text
    assert x.numel() == MIB
