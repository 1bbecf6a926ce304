# SPDX-License-Identifier: MIT
"""The borders of the handle interface: JSON, bytes and shared memory, and what a handle costs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import hologram_ffi as ffi
import numpy as np
import torch

from bench.areas.sdk import arrays, calls_work
from bench.context import Context
from bench.core import Case, Goal, Side, Work, area
from bench.native import timed_case

_LARGEST_TEXT = 100_000  # in a run that is not whole: a call on 1M takes most of a second


class _Buffer:
    """A buffer of the handle interface that is freed with this object."""

    def __init__(self, size: int) -> None:
        self.executor = ffi.new_executor()
        self.handle = ffi.executor_allocate_buffer(self.executor, size)

    def __del__(self) -> None:
        ffi.buffer_cleanup(self.handle)
        ffi.executor_cleanup(self.executor)

    def through_json(self, text: str) -> str:
        ffi.buffer_copy_from_slice(self.executor, self.handle, text)
        return ffi.buffer_to_vec(self.executor, self.handle)

    def through_bytes(self, array: np.ndarray) -> np.ndarray:
        ffi.buffer_copy_from_bytes(self.executor, self.handle, array)
        return np.frombuffer(ffi.buffer_to_bytes(self.executor, self.handle), np.float32)


def _json(size: int, trip: Callable[[str], str]) -> Work:
    """Return an array's way into a buffer and out of it as text."""
    text = json.dumps(arrays(size, 1)[0].tolist())

    def look(found: str, given: str) -> np.ndarray:
        return np.array(json.loads(found), np.float32)

    return calls_work("trip(a)", [(text,)], look, trip=trip)


def _python_json(text: str) -> str:
    return json.dumps(np.array(json.loads(text), np.float32).tolist())


def _trip(size: int, count: int, trip: Callable[[np.ndarray], Any]) -> Work:
    return calls_work("trip(a)", [(a,) for a in arrays(size, count)], trip=trip)


def _numpy_bytes(size: int) -> Callable[[np.ndarray], np.ndarray]:
    held = np.empty(size, np.float32)

    def trip(array: np.ndarray) -> np.ndarray:
        np.copyto(held, array)
        return np.frombuffer(held.tobytes(), np.float32)

    return trip


def _shared(size: int, trip: Callable[[np.ndarray], Any]) -> Work:
    return _trip(size, 64 if size <= 100_000 else 8, trip)  # whose copies are compared


# Name, ours, theirs, the most it may take whatever the size.
_tensor = ffi.HologramTensor
_TRIPS: list[tuple[str, Callable[[int], Work], Callable[[int], Work], float | None]] = [
    (
        "in and out as JSON; json and NumPy",
        lambda n: _json(n, _Buffer(n).through_json),
        lambda n: _json(n, _python_json),
        None,
    ),
    (
        "in and out as bytes; two copies by NumPy",
        lambda n: _trip(n, 4, _Buffer(n).through_bytes),
        lambda n: _trip(n, 4, _numpy_bytes(n)),
        None,
    ),
    (
        "in and out without a copy; through torch",
        lambda n: _shared(n, lambda a: np.from_dlpack(_tensor.from_dlpack(a))),
        lambda n: _shared(n, lambda a: torch.from_dlpack(a).numpy()),
        1.5e-6,
    ),
]

# Name, the expression, what our side and the other take of arrays.
_EXCHANGES: list[tuple[str, str, Callable[[Any], Any], Callable[[Any], Any]]] = [
    (
        "HologramTensor.__dlpack__ and its end; of an array",
        "a.__dlpack__(max_version=(1, 0))",
        _tensor.from_dlpack,
        lambda a: a,
    ),
    (
        "HologramTensor.from_dlpack of an array; torch.from_dlpack",
        "take(a)",
        _tensor.from_dlpack,
        torch.from_dlpack,
    ),
]

# Name, what native/handles.cc does, the most it may take.
_NATIVE = [
    ("vector_add_f32 by handles from C, recording alone", 0, 500e-9),
    ("vector_add_f32 by handles from C, recorded and run", 3, None),
    ("a buffer allocated and freed from C", 1, None),
    ("buffer_length from C", 2, None),
]


def _exchange(expression: str, take: Callable[[Any], Any], side: Side) -> Work:
    exports = "take" not in expression
    calls = [(take(a) if exports else a,) for a in arrays(16)]
    look = (lambda _, x: np.from_dlpack(x)) if exports else (lambda x, _: np.from_dlpack(x))
    return calls_work(expression, calls, look, take=take)


@area(
    "borders",
    "The handle interface: JSON, bytes and shared memory in and out; what a handle costs",
    seconds=12,
)
def cases(context: Context) -> Iterator[Case]:
    for name, which, bound in _NATIVE:
        yield timed_case(name, "handles", which, bound)
    for name, expression, mine, others in _EXCHANGES:
        build, peer = partial(_exchange, expression, mine), partial(_exchange, expression, others)
        yield Case(name, build, peer, size=16, goal=Goal.at_most(1e-6), min_time=0.2)
    for name, ours, theirs, bound in _TRIPS:
        largest = 1_000_000 if "JSON" not in name or context.whole else _LARGEST_TEXT
        for size in [size for size in context.sizes if size <= largest]:
            yield Case(
                name,
                lambda _, f=ours, n=size: f(n),
                peer=lambda _, f=theirs, n=size: f(n),
                size=size,
                goal=Goal.at_most(bound),
                min_time=0.2,
            )
