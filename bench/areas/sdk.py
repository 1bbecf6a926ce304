# SPDX-License-Identifier: MIT
"""The SDK beside NumPy: what one small op, one handle and one exchange of memory cost.

Every op has inputs of its own, and all results are kept and looked at: where it has a result of its
own NumPy's has too, and where it writes memory that is there so does NumPy's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import hologram_ffi
import numpy as np
import torch

import hologram
from bench.context import Context, first_line
from bench.core import Case, Goal, Row, Side, Spread, Unavailable, Work, area
from bench.inputs import expression_work, number_of_sets
from bench.measure import take_batches
from bench.native import timed_case
from bench.selfcheck import check_all_run
from bench.verify import verify

_ELEMENTS, _CALLS = 16, 64
_ONE_BY_ONE = 1 << 60  # bytes of results that are waited for one by one
CPU = Side(torch.device("cpu"), lambda: None)


def arrays(size: int, count: int = _CALLS) -> list[np.ndarray]:
    """Return distinct arrays that lie in one block, shifted against each other."""
    block = np.random.default_rng(size).standard_normal(size + count, dtype=np.float32)
    return [block[n : n + size] for n in range(count)]


def _pairs(size: int, count: int = _CALLS) -> list[tuple[np.ndarray, np.ndarray]]:
    generator = np.random.default_rng(size)
    values = [generator.standard_normal(size, dtype=np.float32) for _ in range(2 * count)]
    return list(zip(values[::2], values[1::2]))


def calls_work(
    expression: str,
    calls: Sequence[Sequence[Any]],
    look: Callable[..., Any] = lambda result, *operands: result,
    side: Side = CPU,
    **scope: Any,
) -> Work:
    """Return an expression of a, b, c for each call; `look` at a result and its operands.

    Where calls write memory that is there, the caller times a loop that keeps nothing.
    """
    work = expression_work(expression, "abc"[: len(calls[0])], calls, side, 64, scope)

    def outputs() -> torch.Tensor:
        looked = [look(result, *call) for result, call in zip(work.run(), calls)]
        side.synchronize()
        return torch.from_numpy(np.stack([np.array(array) for array in looked]))

    return Work(work.run, work.ops, outputs, work.one)


# --- One op, many times --------------------------------------------------------------------------


def _executor_add(side: Side, size: int) -> Work:
    """Return `vector_add` on buffers that are there, each call on its own."""
    executor = hologram.Executor(backend="cpu")

    def buffer(array: np.ndarray) -> Any:
        made = executor.allocate(size, dtype=np.float32)
        made.from_numpy(array)
        return made

    calls = [(buffer(a), buffer(b), buffer(np.zeros_like(a))) for a, b in _pairs(size)]

    def look(result: Any, a: Any, b: Any, c: Any) -> np.ndarray:
        # to_numpy() would share the buffers, and ops on shared memory do not wait.
        return np.frombuffer(c.to_bytes(), "f4")

    add = hologram.ops.vector_add

    def run() -> None:
        for a, b, c in calls:
            add(executor, a, b, c)

    return replace(calls_work("add(ex, a, b, c)", calls, look, side, add=add, ex=executor), run=run)


def _handle_add(side: Side, size: int) -> Work:
    """Return `vector_add_f32` through handles, each call on buffers of its own."""
    executor = hologram_ffi.new_executor()

    def buffer(array: np.ndarray) -> int:
        made: int = hologram_ffi.executor_allocate_buffer(executor, size)
        hologram_ffi.buffer_copy_from_bytes(executor, made, array.tobytes())
        return made

    def look(result: Any, a: int, b: int, c: int) -> np.ndarray:
        return np.frombuffer(hologram_ffi.buffer_to_bytes(executor, c), "f4")

    calls = [(buffer(a), buffer(b), buffer(np.zeros_like(a))) for a, b in _pairs(size)]
    add = hologram_ffi.vector_add_f32

    def run() -> None:
        for a, b, c in calls:
            add(executor, a, b, c, size)

    scope = {"add": add, "ex": executor, "size": size}
    return replace(calls_work("add(ex, a, b, c, size)", calls, look, side, **scope), run=run)


def _tensor_add(side: Side, size: int) -> Work:
    """Return `x + y` of tensors, each of which makes its result."""
    calls = [(hologram.array(a), hologram.array(b)) for a, b in _pairs(size)]
    return calls_work("a + b", calls, side=side)


def _numpy_add(side: Side, size: int) -> Work:
    calls = [(a, b, np.empty_like(a)) for a, b in _pairs(size)]

    def run() -> None:
        for a, b, c in calls:
            np.add(a, b, out=c)

    return replace(calls_work("add(a, b, out=c)", calls, add=np.add), run=run)


def _numpy_fresh_add(side: Side, size: int) -> Work:
    return calls_work("a + b", _pairs(size))


# Name, ours, NumPy's, the most that recording one op may take.
_Make = Callable[[Side, int], Work]
_OPS: list[tuple[str, _Make, _Make, float]] = [
    ("ops.vector_add; np.add with out=", _executor_add, _numpy_add, 300e-9),
    ("x + y of tensors; of arrays", _tensor_add, _numpy_fresh_add, 300e-9),
    ("handle vector_add_f32; np.add with out=", _handle_add, _numpy_add, 500e-9),
]


def _record_alone(context: Context, name: str, make: _Make, side: Side, row: Row) -> None:
    """Time the calls alone: what they record is run outside the clock, and looked at before."""
    work = make(side, _ELEMENTS)
    want = _numpy_fresh_add(side, _ELEMENTS).outputs
    verify(name, work.outputs and work.outputs(), want and want())
    check_all_run(name, work, context.side)
    seconds = take_batches(work, side.synchronize, min(0.2, context.budget.share))
    row.spread = Spread.of(seconds)
    row.value = row.spread.median


# --- Memory shared -------------------------------------------------------------------------------


def _export(sources: Sequence[Any]) -> Work:
    """Return the export alone: capsules that are made and dropped unused."""
    return calls_work("a.__dlpack__()", [(x,) for x in sources], lambda _, x: np.from_dlpack(x))


def _take(take: Callable[[Any], Any], sources: Sequence[Any]) -> Work:
    """Return work that takes each source, of which the ends are looked at."""

    def ends(taken: Any, source: Any) -> np.ndarray:
        found = np.from_dlpack(taken)
        return np.concatenate([found[:8], found[-8:]])

    return calls_work("take(a)", [(x,) for x in sources], ends, take=take)


def _own() -> list[Any]:
    return [hologram.Tensor.from_dlpack(a) for a in arrays(_ELEMENTS)]


def _torch_tensors(side: Side) -> list[Any]:
    tensors = [torch.from_numpy(a).to(side.device) for a in arrays(_ELEMENTS)]
    try:
        np.from_dlpack(tensors[0])
    except (BufferError, RuntimeError) as error:
        raise Unavailable(f"NumPy refuses it: {first_line(error)}") from error
    return tensors


def _to_numpy(side: Side) -> Work:
    return _take(np.from_dlpack, _torch_tensors(side))


def _imports(take: Callable[[Any], Any], size: int = _ELEMENTS) -> Callable[[Side], Work]:
    return lambda side: _take(take, arrays(size))


# Name, ours, the reference, the most it may take.
_own_import, _torch_import = hologram.Tensor.from_dlpack, torch.from_dlpack
_EXCHANGES: list[tuple[str, Callable[[Side], Work], Callable[[Side], Work], float | None]] = [
    (
        "Tensor.__dlpack__ and its end; of an array",
        lambda _: _export(_own()),
        lambda _: _export(arrays(_ELEMENTS)),
        0.5e-6,
    ),
    (
        "np.from_dlpack of a hologram.Tensor; of a torch tensor on cpu",
        lambda _: _take(np.from_dlpack, _own()),
        _to_numpy,
        0.5e-6,
    ),
    (
        "Tensor.from_dlpack of an array; torch.from_dlpack",
        _imports(_own_import),
        _imports(_torch_import),
        1e-6,
    ),
    (
        "Tensor.from_dlpack of 10M elements; torch.from_dlpack",
        _imports(_own_import, 10_000_000),
        _imports(_torch_import, 10_000_000),
        1e-6,
    ),
    ("np.from_dlpack of a torch tensor on the device; on cpu", _to_numpy, _to_numpy, None),
]

# --- All -----------------------------------------------------------------------------------------

# Name, what native/record.cc does, the most it may take.
_FROM_CPP = [
    ("x + y from C++, the append alone", 30e-9),
    ("x + y from C++, with its result, recording alone", 100e-9),
    ("x + y from C++, with its result, recorded, run and read", None),
]
# Name, the expression, the least it must be faster than NumPy from 10K on.
_COMPUTED = [
    ("a + b of tensors, run; of arrays", "a + b", None),
    (
        "maximum(a * b + a, 0) * 2 + b of tensors, run; of arrays",
        "xp.maximum(a * b + a, 0.0) * 2.0 + b",
        4.0,
    ),
]


def _computed(expression: str, size: int, xp: Any, side: Side) -> Work:
    """Return work that waits for each result by itself, with fresh results from distinct inputs."""
    pairs = _pairs(size, number_of_sets(4 * size))
    calls = [tuple(map(xp.array, pair)) for pair in pairs]
    work = expression_work(expression, "ab", calls, side, _ONE_BY_ONE, {"xp": xp})
    one = work.one or work.run
    return Work(work.run, work.ops, lambda: torch.from_numpy(np.array(one())), one)


@area(
    "sdk",
    "The SDK: calls on 16 elements and chains of any size, beside NumPy and PyTorch",
    seconds=26,
)
def cases(context: Context) -> Iterator[Case]:
    # What waits for the SDK, whose executor is not the device of the side.
    own = Side(CPU.device, hologram.Executor(backend="cpu").synchronize)
    for which, (name, bound) in enumerate(_FROM_CPP):
        yield timed_case(name, "record", which, bound)
    for name, ours, _, bound in _OPS:
        name = f"{name.partition(';')[0]}, recording alone"
        measure = partial(_record_alone, context, name, ours, own)
        yield Case(name, measure=measure, size=_ELEMENTS, goal=Goal.at_most(bound))
    for name, ours, theirs, _ in _OPS:
        for size in (_ELEMENTS, 1_000):
            yield Case(
                f"{name}; recorded and run",
                partial(ours, size=size),
                partial(theirs, size=size),
                side=own,
                size=size,
                goal=Goal(1.0) if size > _ELEMENTS and "ops." in name else None,
                min_time=0.2,
            )
    for name, mine, others, bound in _EXCHANGES:
        yield Case(name, mine, others, size=_ELEMENTS, goal=Goal.at_most(bound), min_time=0.2)
    for name, expression, least in _COMPUTED:
        for size in context.sizes:
            yield Case(
                name,
                partial(_computed, expression, size, hologram),
                partial(_computed, expression, size, np),
                side=own,
                size=size,
                goal=Goal(least) if least and size >= 10_000 else None,
            )
