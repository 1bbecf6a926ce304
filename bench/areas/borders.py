# SPDX-License-Identifier: MIT
"""The borders of the handle interface: JSON, bytes and shared memory, and what a handle costs."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from bench import native
from bench.context import Context, Job
from bench.core import Case, Goal, Row, Spread, Work, area

AREA = "borders"
_CALLS = 64


def _ffi() -> Any:
    return importlib.import_module("hologram_ffi")


class _Buffer:
    """A buffer of the handle interface that is freed with this object."""

    def __init__(self, size: int) -> None:
        self.ffi = _ffi()
        self.executor = self.ffi.new_executor()
        self.handle = self.ffi.executor_allocate_buffer(self.executor, size)
        self.shape = (size,)

    def __del__(self) -> None:
        self.ffi.buffer_cleanup(self.handle)
        self.ffi.executor_cleanup(self.executor)


def _work(trip: Callable[[np.ndarray], np.ndarray], arrays: Sequence[np.ndarray]) -> Work:
    """Return a trip for each of the arrays; what comes out is kept till all are through."""
    return Work(
        lambda: [trip(array) for array in arrays],
        len(arrays),
        lambda: torch.from_numpy(np.stack([np.array(trip(array)) for array in arrays])),
    )


def _arrays(size: int, count: int) -> list[np.ndarray]:
    """Return distinct arrays; large ones lie in one block, shifted against each other."""
    block = np.random.default_rng(size).standard_normal(size + count, dtype=np.float32)
    return [block[n : n + size] for n in range(count)]


def _json(size: int) -> Work:
    """Return an array's way into a buffer and out of it as text."""
    buffer, text = _Buffer(size), json.dumps(_arrays(size, 1)[0].tolist())

    def trip() -> str:
        buffer.ffi.buffer_copy_from_slice(buffer.executor, buffer.handle, text)
        return buffer.ffi.buffer_to_vec(buffer.executor, buffer.handle)

    return Work(trip, 1, lambda: torch.from_numpy(np.array(json.loads(trip()), np.float32)))


def _json_of_python(size: int) -> Work:
    text = json.dumps(_arrays(size, 1)[0].tolist())

    def trip() -> str:
        return json.dumps(np.array(json.loads(text), np.float32).tolist())

    return Work(trip, 1, lambda: torch.from_numpy(np.array(json.loads(trip()), np.float32)))


def _bytes(size: int) -> Work:
    buffer = _Buffer(size)

    def trip(array: np.ndarray) -> np.ndarray:
        buffer.ffi.buffer_copy_from_bytes(buffer.executor, buffer.handle, array)
        return np.frombuffer(buffer.ffi.buffer_to_bytes(buffer.executor, buffer.handle), np.float32)

    return _work(trip, _arrays(size, 4))


def _bytes_of_numpy(size: int) -> Work:
    held = np.empty(size, np.float32)

    def trip(array: np.ndarray) -> np.ndarray:
        np.copyto(held, array)
        return np.frombuffer(held.tobytes(), np.float32)

    return _work(trip, _arrays(size, 4))


def _shared(size: int) -> Work:
    tensor = _ffi().HologramTensor
    return _work(
        lambda array: np.from_dlpack(tensor.from_dlpack(array)), _arrays(size, _calls(size))
    )


def _shared_by_torch(size: int) -> Work:
    return _work(lambda array: torch.from_dlpack(array).numpy(), _arrays(size, _calls(size)))


def _calls(size: int) -> int:
    return _CALLS if size <= 100_000 else 8  # whose copies are compared


_LARGEST_TEXT = 100_000  # in a run that is not whole: a call on 1M takes most of a second
# Name, ours, theirs, the most it may take whatever the size.
_TRIPS: list[tuple[str, Callable[[int], Work], Callable[[int], Work], float | None]] = [
    ("in and out as JSON; json and NumPy", _json, _json_of_python, None),
    ("in and out as bytes; two copies by NumPy", _bytes, _bytes_of_numpy, None),
    ("in and out without a copy; through torch", _shared, _shared_by_torch, 1.5e-6),
]


def _trips(context: Context) -> Iterator[Case]:
    for name, ours, theirs, most in _TRIPS:
        largest = 1_000_000 if ours is not _json or context.whole else _LARGEST_TEXT
        for size in [size for size in context.sizes if size <= largest]:
            yield Case(
                name,
                lambda _, f=ours, n=size: f(n),  # type: ignore[misc]
                peer=lambda _, f=theirs, n=size: f(n),  # type: ignore[misc]
                size=size,
                goal=Goal(most, "most") if most else None,
                min_time=0.2,
            )


def _tensors() -> list[Any]:
    tensor = _ffi().HologramTensor
    return [tensor.from_dlpack(array) for array in _arrays(16, _CALLS)]


def _exports(sources: Sequence[Any]) -> Work:
    return Work(
        lambda: [x.__dlpack__(max_version=(1, 0)) for x in sources],
        len(sources),
        lambda: torch.from_numpy(np.stack([np.from_dlpack(x) for x in sources])),
    )


def _imports(take: Callable[[np.ndarray], Any]) -> Work:
    arrays = _arrays(16, _CALLS)
    return Work(
        lambda: [take(array) for array in arrays],
        len(arrays),
        lambda: torch.from_numpy(np.stack([np.from_dlpack(take(array)) for array in arrays])),
    )


# Name, what native/handles.cc does, the most it may take.
_NATIVE = [
    ("vector_add_f32 by handles from C, recording alone", 0, 500e-9),
    ("vector_add_f32 by handles from C, recorded and run", 3, None),
    ("a buffer allocated and freed from C", 1, None),
    ("buffer_length from C", 2, None),
]


def _native(which: int, row: Row) -> None:
    seconds = native.per_call("handles.cc", "hologram_bench_handles", which)
    if min(seconds) < 0:
        raise RuntimeError("a call failed" if min(seconds) == -1 else "wrong result: a sum")
    row.spread = Spread.of(seconds)
    row.value = row.spread.median


def _native_jobs() -> Iterator[Job]:
    for name, which, most in _NATIVE:
        goal = Goal(most, "most") if most else None
        yield Row(AREA, name, size=16, goal=goal), partial(_native, which)


def _exchanges() -> Iterator[Case]:
    tensor = _ffi().HologramTensor
    for name, ours, theirs in (
        (
            "HologramTensor.__dlpack__ and its end; of an array",
            lambda _: _exports(_tensors()),
            lambda _: _exports(_arrays(16, _CALLS)),
        ),
        (
            "HologramTensor.from_dlpack of an array; torch.from_dlpack",
            lambda _: _imports(tensor.from_dlpack),
            lambda _: _imports(torch.from_dlpack),
        ),
    ):
        yield Case(name, ours, peer=theirs, size=16, goal=Goal(1e-6, "most"), min_time=0.2)


@area(AREA, "The handle interface: JSON, bytes and shared memory in and out; what a handle costs")
def measure(context: Context) -> Iterator[Row]:
    cases = [*_exchanges(), *_trips(context)]
    yield from context.jobs([*_native_jobs(), *context.jobs_of(AREA, cases)])
