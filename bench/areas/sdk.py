# SPDX-License-Identifier: MIT
"""The SDK beside NumPy: what one small op, one handle and one exchange of memory cost.

Every op has inputs of its own, and all results are kept and looked at: where it has a result of its
own NumPy's has too, and where it writes memory that is there so does NumPy's.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from bench import native
from bench.context import Context, Job, first_line
from bench.core import Case, Goal, Row, Side, Spread, Unavailable, Work, area
from bench.inputs import number_of_sets
from bench.measure import take_batches
from bench.selfcheck import check_all_run
from bench.verify import verify

AREA = "sdk"
_ELEMENTS = 16
_CALLS = 64

Pairs = list[tuple[np.ndarray, np.ndarray]]


def _pairs(size: int, count: int = _CALLS) -> Pairs:
    """Return distinct pairs of arrays."""
    generator = np.random.default_rng(size)
    values = [generator.standard_normal(size, dtype=np.float32) for _ in range(2 * count)]
    return list(zip(values[::2], values[1::2]))


def _stacked(arrays: Sequence[Any]) -> torch.Tensor:
    """Look at every result."""
    return torch.from_numpy(np.stack([np.array(a) for a in arrays]))


def _sums(pairs: Pairs) -> torch.Tensor:
    return _stacked([a + b for a, b in pairs])


def _executor() -> Any:
    return importlib.import_module("hologram").Executor(backend="cpu")


def _waited(work: Work, synchronize: Callable[[], Any]) -> Work:
    """Return work that waits for the SDK, whose executor is not the device of the side."""
    run = work.run

    def run_and_wait() -> Any:
        kept = run()
        synchronize()
        return kept

    return Work(run_and_wait, work.ops, work.outputs, work.one)


# --- One op, many times --------------------------------------------------------------------------


def _executor_add(size: int) -> tuple[Work, Callable[[], Any]]:
    """Return `vector_add` on buffers that are there, each call on its own, and how to wait."""
    hologram, executor, pairs = importlib.import_module("hologram"), _executor(), _pairs(size)
    calls = []
    for values in pairs:
        buffers = [executor.allocate(size, dtype=np.float32) for _ in range(3)]
        for buffer, array in zip(buffers, values):
            buffer.from_numpy(array)
        calls.append(buffers)
    add = hologram.ops.vector_add

    def run() -> None:
        for a, b, c in calls:
            add(executor, a, b, c)

    def outputs() -> torch.Tensor:
        run()
        # to_numpy() would share the buffers, and ops on shared memory do not wait.
        return _stacked([np.frombuffer(c.to_bytes(), "f4") for *_, c in calls])

    work = Work(run, _CALLS, outputs, lambda: add(executor, *calls[0]))
    return work, executor.synchronize


def _handle_add(size: int) -> tuple[Work, Callable[[], Any]]:
    """Return `vector_add_f32` through handles, each call on buffers of its own."""
    ffi, pairs = importlib.import_module("hologram_ffi"), _pairs(size)
    executor = ffi.new_executor()
    calls = []
    for values in pairs:
        handles = [ffi.executor_allocate_buffer(executor, size) for _ in range(3)]
        for handle, array in zip(handles, values):
            ffi.buffer_copy_from_bytes(executor, handle, array.tobytes())
        calls.append(handles)
    add = ffi.vector_add_f32

    def run() -> None:
        for a, b, c in calls:
            add(executor, a, b, c, size)

    def outputs() -> torch.Tensor:
        run()
        return _stacked([np.frombuffer(ffi.buffer_to_bytes(executor, c), "f4") for *_, c in calls])

    work = Work(run, _CALLS, outputs, lambda: add(executor, *calls[0], size))
    return work, lambda: ffi.executor_synchronize(executor)


def _tensor_add(size: int) -> tuple[Work, Callable[[], Any]]:
    """Return `x + y` of tensors, each of which makes its result."""
    hologram = importlib.import_module("hologram")
    tensors = [(hologram.array(a), hologram.array(b)) for a, b in _pairs(size)]
    x, y = tensors[0]

    def run() -> list[Any]:
        return [a + b for a, b in tensors]

    work = Work(run, _CALLS, lambda: _stacked(run()), lambda: x + y)
    return work, _executor().synchronize


def _numpy_add(size: int) -> Work:
    calls = [(a, b, np.empty_like(a)) for a, b in _pairs(size)]

    def run() -> None:
        for a, b, c in calls:
            np.add(a, b, out=c)

    return Work(run, _CALLS, lambda: _sums(_pairs(size)))


def _numpy_fresh_add(size: int) -> Work:
    pairs = _pairs(size)
    return Work(lambda: [a + b for a, b in pairs], _CALLS, lambda: _sums(pairs))


# Name, ours with how to wait for it, NumPy's, the most that recording one op may take.
_OPS: list[
    tuple[str, Callable[[int], tuple[Work, Callable[[], Any]]], Callable[[int], Work], float]
] = [
    ("ops.vector_add; np.add with out=", _executor_add, _numpy_add, 300e-9),
    ("x + y of tensors; of arrays", _tensor_add, _numpy_fresh_add, 300e-9),
    ("handle vector_add_f32; np.add with out=", _handle_add, _numpy_add, 500e-9),
]


def _record_alone(context: Context, name: str, make: Callable[..., Any], row: Row) -> None:
    """Time the calls alone: what they record is run outside the clock, and looked at before."""
    work, wait = make(_ELEMENTS)
    verify(name, work.outputs(), _sums(_pairs(_ELEMENTS)))
    check_all_run(name, work, context.side)
    seconds = take_batches(work, wait, min(0.2, context.budget.share))
    row.spread = Spread.of(seconds)
    row.value = row.spread.median


def _recording(context: Context) -> Iterator[Job]:
    for name, make, _, most in _OPS:
        name = f"{name.partition(';')[0]}, recording alone"
        row = Row(AREA, name, size=_ELEMENTS, goal=Goal(most, "most"))
        yield row, partial(_record_alone, context, name, make)


def _run_cases() -> Iterator[Case]:
    """Yield the same ops recorded and run, of all of which the results exist, beside NumPy."""
    for name, ours, theirs, _ in _OPS:
        for size in (_ELEMENTS, 1_000):
            yield Case(
                f"{name}; recorded and run",
                lambda _, f=ours, n=size: _waited(*f(n)),  # type: ignore[misc]
                peer=lambda _, f=theirs, n=size: f(n),  # type: ignore[misc]
                size=size,
                goal=Goal(1.0) if size > _ELEMENTS and "ops." in name else None,
                min_time=0.2,
            )


# --- Memory shared -------------------------------------------------------------------------------


def _each(take: Callable[[Any], Any], sources: Sequence[Any], look: Callable[[Any], Any]) -> Work:
    """Return work that takes each source once, and keeps what it got till all are taken."""
    return Work(
        lambda: [take(source) for source in sources],
        len(sources),
        lambda: _stacked([look(take(source)) for source in sources]),
    )


def _small() -> list[np.ndarray]:
    return [a for a, _ in _pairs(_ELEMENTS)]


def _large() -> list[np.ndarray]:
    """Return distinct arrays of 10M elements that lie in one block."""
    block = np.arange(10_000_000 + _CALLS, dtype=np.float32)
    return [block[n : n + 10_000_000] for n in range(_CALLS)]


def _ends(array: Any) -> np.ndarray:
    found = np.from_dlpack(array)
    return np.concatenate([found[:8], found[-8:]])


def _exports(sources: Sequence[Any]) -> Work:
    """Return the export alone: capsules that are made and dropped unused."""
    return Work(
        lambda: [x.__dlpack__() for x in sources],
        len(sources),
        lambda: _stacked([np.from_dlpack(x) for x in sources]),
    )


def _sdk_tensors() -> list[Any]:
    tensor = importlib.import_module("hologram").Tensor
    return [tensor.from_dlpack(a) for a in _small()]


def _torch_tensors(side: Side) -> list[Any]:
    return [torch.from_numpy(a).to(side.device) for a in _small()]


def _exports_to_numpy(tensors: list[Any]) -> Work:
    try:
        np.from_dlpack(tensors[0])
    except (BufferError, RuntimeError) as error:
        raise Unavailable(f"NumPy refuses it: {first_line(error)}") from error
    return _each(np.from_dlpack, tensors, np.asarray)


def _imports(make: Callable[[], list[np.ndarray]]) -> Work:
    return _each(importlib.import_module("hologram").Tensor.from_dlpack, make(), _ends)


def _imports_by_torch(make: Callable[[], list[np.ndarray]]) -> Work:
    return _each(torch.from_dlpack, make(), _ends)


# Name, the work on our side, the reference, the most it may take.
_EXCHANGES: list[tuple[str, Callable[[Side], Work], Callable[[Side], Work], float | None]] = [
    (
        "Tensor.__dlpack__ and its end; of an array",
        lambda _: _exports(_sdk_tensors()),
        lambda _: _exports(_small()),
        0.5e-6,
    ),
    (
        "np.from_dlpack of a hologram.Tensor; of a torch tensor on cpu",
        lambda _: _each(np.from_dlpack, _sdk_tensors(), np.asarray),
        lambda side: _each(np.from_dlpack, _torch_tensors(side), np.asarray),
        0.5e-6,
    ),
    (
        "Tensor.from_dlpack of an array; torch.from_dlpack",
        lambda _: _imports(_small),
        lambda _: _imports_by_torch(_small),
        1e-6,
    ),
    (
        "Tensor.from_dlpack of 10M elements; torch.from_dlpack",
        lambda _: _imports(_large),
        lambda _: _imports_by_torch(_large),
        1e-6,
    ),
    (
        "np.from_dlpack of a torch tensor on the device; on cpu",
        lambda side: _exports_to_numpy(_torch_tensors(side)),
        lambda side: _each(np.from_dlpack, _torch_tensors(side), np.asarray),
        None,
    ),
]


def _exchange_cases() -> Iterator[Case]:
    for name, ours, theirs, most in _EXCHANGES:
        goal = Goal(most, "most") if most else None
        yield Case(name, ours, peer=theirs, size=_ELEMENTS, goal=goal, min_time=0.2)


# --- Chains of any size --------------------------------------------------------------------------


def _five_ops(xp: Any, a: Any, b: Any) -> Any:
    return xp.maximum(a * b + a, 0.0) * 2.0 + b


# Name, the function, the least it must be faster than NumPy from 10K on.
_COMPUTED: list[tuple[str, Callable[[Any, Any, Any], Any], float | None]] = [
    ("a + b of tensors, run; of arrays", lambda xp, a, b: a + b, None),
    ("maximum(a * b + a, 0) * 2 + b of tensors, run; of arrays", _five_ops, 4.0),
]


def _computed(
    function: Callable[[Any, Any, Any], Any], xp: Any, operands: list[Any], wait: Callable[[], Any]
) -> Work:
    """Return work that waits for each result by itself, with fresh results from distinct inputs."""
    one = partial(function, xp, *operands[0])

    def run() -> Any:
        for a, b in operands:
            kept = function(xp, a, b)
            wait()
        return kept

    return Work(run, len(operands), lambda: torch.from_numpy(np.array(one())), one)


def _computed_by_us(function: Callable[[Any, Any, Any], Any], size: int) -> Work:
    hologram = importlib.import_module("hologram")
    operands = [
        (hologram.array(a), hologram.array(b)) for a, b in _pairs(size, number_of_sets(4 * size))
    ]
    return _computed(function, hologram, operands, _executor().synchronize)


def _computed_by_numpy(function: Callable[[Any, Any, Any], Any], size: int) -> Work:
    return _computed(function, np, _pairs(size, number_of_sets(4 * size)), lambda: None)


def _sized_cases(context: Context) -> Iterator[Case]:
    """Yield one op and five of every size beside NumPy."""
    for name, function, least in _COMPUTED:
        for size in context.sizes:
            yield Case(
                name,
                lambda _, f=function, n=size: _computed_by_us(f, n),  # type: ignore[misc]
                peer=lambda _, f=function, n=size: _computed_by_numpy(f, n),  # type: ignore[misc]
                size=size,
                goal=Goal(least) if least and size >= 10_000 else None,
            )


# --- From C++ ------------------------------------------------------------------------------------

# Name, what native/record.cc does, the most it may take.
_FROM_CPP = [
    ("x + y from C++, the append alone", 0, 30e-9),
    ("x + y from C++, with its result, recording alone", 1, 100e-9),
    ("x + y from C++, with its result, recorded, run and read", 2, None),
]


def _per_call(which: int, row: Row) -> None:
    """Time native/record.cc, which checks its sums; nothing in PyTorch compares."""
    seconds = native.per_call("record.cc", "hologram_bench_record", which)
    if min(seconds) == -1:
        raise RuntimeError("the device does not record")
    if min(seconds) < 0:
        raise RuntimeError("wrong result: a recorded sum")
    row.spread = Spread.of(seconds)
    row.value = row.spread.median


def _from_cpp() -> Iterator[Job]:
    for name, which, most in _FROM_CPP:
        goal = Goal(most, "most") if most else None
        yield Row(AREA, name, size=_ELEMENTS, goal=goal), partial(_per_call, which)


@area(AREA, "The SDK: calls on 16 elements and chains of any size, beside NumPy and PyTorch")
def measure(context: Context) -> Iterator[Row]:
    cases = [*_run_cases(), *_exchange_cases(), *_sized_cases(context)]
    yield from context.jobs([*_from_cpp(), *_recording(context), *context.jobs_of(AREA, cases)])
    context.inputs.clear()
