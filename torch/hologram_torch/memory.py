# SPDX-License-Identifier: MIT
"""``torch.hologram.memory``: what memory is used for, now and over time."""

from __future__ import annotations

import pickle
import sys
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch.types import Device

from hologram_torch import _C
from hologram_torch._indices import device_index

__all__ = [
    "empty_cache",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
]


def memory_stats(device: Device = None) -> OrderedDict[str, Any]:
    """Return the allocator's statistics, keys as in ``torch.cuda.memory_stats``.

    Runs what was recorded first: a tensor has no memory before. Results that the CPU fallback made
    live in PyTorch's CPU memory and are not counted. The counts are of both pools together: those
    of ``small_pool`` and ``large_pool`` are 0, and so are ``segment`` and ``inactive_split``;
    ``memory_snapshot()`` has the segments.
    """
    return torch.accelerator.memory_stats(device_index(device))


def memory_allocated(device: Device = None) -> int:
    """Return the bytes held by live tensors."""
    return int(memory_stats(device).get("allocated_bytes.all.current", 0))


def max_memory_allocated(device: Device = None) -> int:
    """Return the most bytes ever held by live tensors since the last reset."""
    return int(memory_stats(device).get("allocated_bytes.all.peak", 0))


def memory_reserved(device: Device = None) -> int:
    """Return the bytes taken from the operating system, in use or cached."""
    return int(memory_stats(device).get("reserved_bytes.all.current", 0))


def max_memory_reserved(device: Device = None) -> int:
    """Return the most bytes ever taken from the operating system since the last reset."""
    return int(memory_stats(device).get("reserved_bytes.all.peak", 0))


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Return the bytes free and the bytes there are."""
    return torch.accelerator.get_memory_info(device_index(device))


def empty_cache() -> None:
    """Give cached memory back to the operating system."""
    torch._C._accelerator_emptyCache()


def reset_peak_memory_stats(device: Device = None) -> None:
    """Make the peaks start from what is in use now."""
    torch.accelerator.reset_peak_memory_stats(device_index(device))


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Make the totals start from zero."""
    torch.accelerator.reset_accumulated_memory_stats(device_index(device))


_ROWS = [
    ("allocated bytes", "allocated_bytes.all"),
    ("requested bytes", "requested_bytes.all"),
    ("reserved bytes", "reserved_bytes.all"),
    ("allocations", "allocation.all"),
]
_COUNTS = [
    ("allocations from the system", "num_device_alloc"),
    ("given back to the system", "num_device_free"),
    ("retries after emptying the cache", "num_alloc_retries"),
    ("out of memory", "num_ooms"),
]


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """Return the statistics as text: a row for each kind, bytes as numbers.

    ``abbreviated`` leaves out how often memory was asked of the system.
    """
    stats = memory_stats(device)
    columns = ("current", "peak", "allocated", "freed")
    lines = [f"{'hologram memory':<34}" + "".join(f"{'total ' * (c > 1) + n:>18}"
             for c, n in enumerate(columns))]  # fmt: skip
    for label, key in _ROWS:
        cells = "".join(f"{stats.get(f'{key}.{column}', 0):>18,}" for column in columns)
        lines.append(f"{label:<34}{cells}")
    if not abbreviated:
        lines += [f"{label:<34}{stats.get(key, 0):>18,}" for label, key in _COUNTS]
    return "\n".join(lines)


# --- History and snapshots ---------------------------------------------------------------------

_CONTEXTS = {None: 0, "state": 1, "alloc": 2, "all": 3}
_ACTIONS = (
    "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "oom", "snapshot",
)  # fmt: skip


def _record_memory_history(
    enabled: str | None = "all",
    context: str | None = "all",
    stacks: str = "all",
    max_entries: int = sys.maxsize,
    device: Device = None,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: Sequence[str] | None = None,
) -> None:
    """Begin or end to note what becomes of memory; arguments as in ``torch.cuda.memory``.

    ``enabled``: None ends it and forgets, ``"state"`` notes who has what memory, ``"all"`` keeps
    the last ``max_entries`` events too. ``context``: for which of them lines of Python are kept:
    None, ``"state"`` (live memory), ``"alloc"`` or ``"all"`` (frees as well). Memory of a result
    that was deferred is noted with the lines that called its op. ``skip_actions`` leaves events of
    these names out. All devices are watched, whatever ``device`` is. ``stacks`` may be ``"all"`` or
    ``"python"``; frames of C++ are not kept. ValueError for other values.
    """
    if enabled not in (None, "state", "all"):
        raise ValueError(
            f"_record_memory_history: enabled={enabled!r} is not None, 'state' or 'all'"
        )
    if context not in _CONTEXTS:
        raise ValueError(
            f"_record_memory_history: context={context!r} is not None, 'state', 'alloc' or 'all'"
        )
    if stacks not in ("all", "python"):
        raise ValueError(f"_record_memory_history: stacks={stacks!r} is not 'all' or 'python'")
    if max_entries < 0:
        raise ValueError(f"_record_memory_history: max_entries={max_entries} is negative")
    unknown = set(skip_actions or ()) - set(_ACTIONS)
    if unknown:
        raise ValueError(
            f"_record_memory_history: skip_actions has {', '.join(sorted(unknown))}; "
            f"the actions are {', '.join(_ACTIONS)}"
        )
    device_index(device)
    _C.record_memory_history(
        enabled is not None,
        enabled == "all",
        _CONTEXTS[context],
        max_entries,
        clear_history,
        set(skip_actions or ()),
    )


def _snapshot(device: Device = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    """Return the memory that there is and its history, in the form of ``torch.cuda.memory``.

    Runs what was recorded first. ``segments`` are pieces that the pool has from the system, with
    their blocks; ``device_traces`` has for each device the events since
    ``_record_memory_history()``. ``device`` selects nothing, as with CUDA: all are in it.
    """
    device_index(device)
    snapshot = _C.memory_snapshot()
    if augment_with_fx_traces:
        from torch.cuda.memory import _augment_memory_snapshot_stack_traces

        snapshot = _augment_memory_snapshot_stack_traces(snapshot)
    return snapshot


def memory_snapshot(device: Device = None) -> list[dict[str, Any]]:
    """Return the segments of ``_snapshot()``."""
    return _snapshot(device)["segments"]


def _dump_snapshot(
    filename: str = "dump_snapshot.pickle", augment_with_fx_traces: bool = False
) -> None:
    """Write ``_snapshot()`` to a file for pytorch.org/memory_viz."""
    snapshot = _snapshot(augment_with_fx_traces=augment_with_fx_traces)
    with open(filename, "wb") as file:
        pickle.dump(snapshot, file)


def _allocation_traceback(data_ptr: int) -> list[dict[str, Any]] | None:
    """Return the frames that allocated the block at an address; None where they are not known."""
    return _C.allocation_lines(data_ptr)


def _refuse(what: str) -> NoReturn:
    raise NotImplementedError(
        f"{what} is not available on the device 'hologram': all its tensors are in one pool, which "
        f"is the library's own. empty_cache() gives back what no tensor uses; memory from "
        f"elsewhere becomes a tensor without a copy by torch.from_dlpack or "
        f"hologram_torch.utils.buffer_to_tensor"
    )


class MemPool:
    """What ``torch.cuda.MemPool`` is: there is none, and making one raises."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Raise NotImplementedError, which says what to do instead."""
        _refuse("MemPool")


def use_mem_pool(pool: Any, device: Device = None) -> NoReturn:
    """Raise NotImplementedError: there are no pools to choose from."""
    _refuse("use_mem_pool")


class PluggableAllocator:
    """What ``torch.cuda.memory.CUDAPluggableAllocator`` is: there is none, making one raises."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Raise NotImplementedError, which says what to do instead."""
        _refuse("PluggableAllocator")


def change_current_allocator(allocator: Any) -> NoReturn:
    """Raise NotImplementedError: memory comes from the library's pool."""
    _refuse("change_current_allocator")
