# SPDX-License-Identifier: MIT
"""The borders of the handle interface: JSON, bytes and shared memory, and what a handle costs."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from bench import native
from bench.context import Context, first_line
from bench.core import Case, Goal, Row, Side, Spread, Unavailable, Work, area

AREA = "borders"
_CALLS = 64


def _ffi() -> Any:
    return importlib.import_module("hologram_ffi")


def _array(size: int) -> np.ndarray:
    return np.random.default_rng(size).standard_normal(size, dtype=np.float32)


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


def _work(trip: Callable[[], np.ndarray], calls: int = 1) -> Work:
    def run() -> Any:
        for _ in range(calls):
            trip()

    return Work(run, calls, lambda: torch.from_numpy(np.array(trip())))


def _json(size: int) -> Work:
    """Return an array's way into a buffer and out of it as text."""
    buffer, text = _Buffer(size), json.dumps(_array(size).tolist())

    def trip() -> str:
        buffer.ffi.buffer_copy_from_slice(buffer.executor, buffer.handle, text)
        return buffer.ffi.buffer_to_vec(buffer.executor, buffer.handle)

    return Work(trip, 1, lambda: torch.from_numpy(np.array(json.loads(trip()), np.float32)))


def _json_of_python(size: int) -> Work:
    text = json.dumps(_array(size).tolist())

    def trip() -> str:
        return json.dumps(np.array(json.loads(text), np.float32).tolist())

    return Work(trip, 1, lambda: torch.from_numpy(np.array(json.loads(trip()), np.float32)))


def _bytes(size: int) -> Work:
    buffer, array = _Buffer(size), _array(size)

    def trip() -> np.ndarray:
        buffer.ffi.buffer_copy_from_bytes(buffer.executor, buffer.handle, array)
        return np.frombuffer(buffer.ffi.buffer_to_bytes(buffer.executor, buffer.handle), np.float32)

    return _work(trip, 4)


def _bytes_of_numpy(size: int) -> Work:
    array, held = _array(size), np.empty(size, np.float32)

    def trip() -> np.ndarray:
        np.copyto(held, array)
        return np.frombuffer(held.tobytes(), np.float32)

    return _work(trip, 4)


def _shared(size: int) -> Work:
    tensor, array = _ffi().HologramTensor, _array(size)
    return _work(lambda: np.from_dlpack(tensor.from_dlpack(array)), _CALLS)


def _shared_by_torch(size: int) -> Work:
    array = _array(size)
    return _work(lambda: torch.from_dlpack(array).numpy(), _CALLS)


# Name, ours, theirs, the most it may take whatever the size.
_TRIPS: list[tuple[str, Callable[[int], Work], Callable[[int], Work], float | None]] = [
    ("in and out as JSON; json and NumPy", _json, _json_of_python, None),
    ("in and out as bytes; two copies by NumPy", _bytes, _bytes_of_numpy, None),
    ("in and out without a copy; through torch", _shared, _shared_by_torch, 1.5e-6),
]


def _trips(context: Context) -> Iterator[Case]:
    for name, ours, theirs, most in _TRIPS:
        for size in [size for size in context.sizes if size <= 1_000_000]:
            yield Case(
                name,
                lambda _, f=ours, n=size: f(n),  # type: ignore[misc]
                peer=lambda _, f=theirs, n=size: f(n),  # type: ignore[misc]
                size=size,
                goal=Goal(most, "most") if most else None,
                min_time=0.2,
            )


def _capsule(side: Side) -> Work:
    tensor = _ffi().HologramTensor.from_dlpack(_array(16))
    return _exports(tensor)


def _exports(tensor: Any) -> Work:
    return Work(
        lambda: [tensor.__dlpack__(max_version=(1, 0)) for _ in range(_CALLS)],
        _CALLS,
        lambda: torch.from_numpy(np.array(np.from_dlpack(tensor))),
    )


def _imports(take: Callable[[np.ndarray], Any]) -> Work:
    array = _array(16)
    return Work(
        lambda: [take(array) for _ in range(_CALLS)],
        _CALLS,
        lambda: torch.from_numpy(np.array(np.from_dlpack(take(array)))),
    )


_NATIVE = [
    ("vector_add_f32 by handles from C", 0, 500e-9),
    ("a buffer allocated and freed from C", 1, None),
    ("buffer_length from C", 2, None),
]


def _native(context: Context, name: str, which: int, most: float | None) -> Row:
    row = Row(AREA, name, size=16, threads=context.threads[0])
    try:
        seconds = native.per_call("handles.cc", "hologram_bench_handles", which)
    except Unavailable as error:
        row.note = f"not measured: {first_line(error)}"
        return row
    if min(seconds) < 0:
        row.fault = "a call failed" if min(seconds) == -1 else "wrong result: the sum"
        return row
    row.spread = Spread.of(seconds)
    row.value = row.spread.median
    row.goal = Goal(most, "most") if most else None
    return row


@area(AREA, "The handle interface: JSON, bytes and shared memory in and out; what a handle costs")
def measure(context: Context) -> Iterator[Row]:
    torch.set_num_threads(context.threads[0])
    for name, which, most in _NATIVE:
        if context.wants(name):
            yield context.done(_native(context, name, which, most))
    try:
        tensor = _ffi().HologramTensor
    except ImportError as error:
        note = f"not measured: {first_line(error)}"
        yield context.done(Row(AREA, "hologram_ffi", threads=context.threads[0], note=note))
        return
    handles: list[tuple[str, Callable[[Side], Work], Callable[[Side], Work], float]] = [
        (
            "HologramTensor.__dlpack__ and its end; of an array",
            _capsule,
            lambda _: _exports(_array(16)),
            1e-6,
        ),
        (
            "HologramTensor.from_dlpack of an array; torch.from_dlpack",
            lambda _: _imports(tensor.from_dlpack),
            lambda _: _imports(torch.from_dlpack),
            1e-6,
        ),
    ]
    for name, ours, theirs, limit in handles:
        if context.wants(name):
            case = Case(name, ours, peer=theirs, size=16, goal=Goal(limit, "most"), min_time=0.2)
            yield context.row(AREA, case, context.threads[0])
    yield from context.rows(AREA, lambda: _trips(context))
