# SPDX-License-Identifier: MIT
"""The SDK beside NumPy: what one small op, one handle and one exchange of memory cost."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from bench import native
from bench.context import Context, first_line, outputs_of
from bench.core import Case, Goal, Row, Side, Spread, Unavailable, Work, area

AREA = "sdk"
_ELEMENTS = 16
_CALLS = 64


def _repeat(call: Callable[[], Any], outputs: Callable[[], Any]) -> Work:
    """Return work that calls so often that waiting for the last one counts for little."""
    return Work(lambda: [call() for _ in range(_CALLS)], _CALLS, outputs)


def _values() -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.standard_normal(_ELEMENTS, dtype=np.float32) for _ in range(2)]


def _numpy_add() -> Work:
    a, b = _values()
    c = np.empty_like(a)
    return _repeat(lambda: np.add(a, b, out=c), lambda: torch.from_numpy(a + b))


def _executor_add(side: Side) -> Work:
    """Return `vector_add` of buffers that are there."""
    hologram = importlib.import_module("hologram")
    executor = hologram.Executor(backend="cpu")
    a, b, c = (executor.allocate(_ELEMENTS, dtype=np.float32) for _ in range(3))
    for buffer, values in zip((a, b), _values()):
        buffer.from_numpy(values)
    add = hologram.ops.vector_add

    def outputs() -> torch.Tensor:
        add(executor, a, b, c)
        # to_numpy() would share c, and ops on shared memory do not wait.
        return torch.from_numpy(np.frombuffer(c.to_bytes(), "f4").copy())

    return _waited(_repeat(lambda: add(executor, a, b, c), outputs), executor.synchronize)


def _waited(work: Work, synchronize: Callable[[], Any]) -> Work:
    """Return work that waits for the SDK, whose executor is not the device of the side."""
    run = work.run

    def run_and_wait() -> Any:
        kept = run()
        synchronize()
        return kept

    return Work(run_and_wait, work.ops, work.outputs)


def _handle_add(side: Side) -> Work:
    """Return `vector_add_f32` through handles."""
    ffi = importlib.import_module("hologram_ffi")
    executor = ffi.new_executor()
    handles = [ffi.executor_allocate_buffer(executor, _ELEMENTS) for _ in range(3)]
    for handle, values in zip(handles, _values()):
        ffi.buffer_copy_from_bytes(executor, handle, values.tobytes())
    add = ffi.vector_add_f32

    def outputs() -> torch.Tensor:
        add(executor, *handles, _ELEMENTS)
        read = ffi.buffer_to_bytes(executor, handles[2])
        return torch.frombuffer(bytearray(read), dtype=torch.float32)

    work = _repeat(lambda: add(executor, *handles, _ELEMENTS), outputs)
    return _waited(work, lambda: ffi.buffer_to_bytes(executor, handles[2]))


def _tensor_add(side: Side) -> Work:
    """Return `x + y` of tensors, which makes its result."""
    hologram = importlib.import_module("hologram")
    x, y = (hologram.array(values) for values in _values())
    executor = hologram.Executor(backend="cpu")
    work = _repeat(lambda: x + y, lambda: torch.from_numpy(np.array(x + y)))
    return _waited(work, executor.synchronize)


def _numpy_fresh_add() -> Work:
    a, b = _values()
    return _repeat(lambda: a + b, lambda: torch.from_numpy(a + b))


def _five_ops(xp: Any, a: Any, b: Any) -> Any:
    return xp.maximum(a * b + a, 0.0) * 2.0 + b


def _arrays(size: int) -> list[np.ndarray]:
    generator = np.random.default_rng(size)
    return [generator.standard_normal(size, dtype=np.float32) for _ in range(2)]


def _computed(function: Callable[[Any, Any, Any], Any], size: int) -> Callable[[Side], Work]:
    """Return work on tensors that is waited for, each call by itself."""

    def build(side: Side) -> Work:
        hologram = importlib.import_module("hologram")
        a, b = (hologram.array(values) for values in _arrays(size))
        executor = hologram.Executor(backend="cpu")

        def outputs() -> torch.Tensor:
            return torch.from_numpy(np.array(function(hologram, a, b)))

        return _waited(Work(lambda: function(hologram, a, b), 1, outputs), executor.synchronize)

    return build


def _computed_by_numpy(function: Callable[[Any, Any, Any], Any], size: int) -> Work:
    a, b = _arrays(size)
    return Work(
        lambda: function(np, a, b), 1, lambda: torch.from_numpy(np.array(function(np, a, b)))
    )


def _capsules(make: Callable[[], Any]) -> Work:
    """Return the export alone: capsules that are made and dropped unused."""
    x = make()
    return _repeat(lambda: x.__dlpack__(), lambda: torch.from_numpy(np.array(np.from_dlpack(x))))


def _import_large(side: Side) -> Work:
    tensor = importlib.import_module("hologram").Tensor
    a = _arrays(10_000_000)[0]
    return _repeat(
        lambda: tensor.from_dlpack(a),
        lambda: torch.from_numpy(np.array(np.from_dlpack(tensor.from_dlpack(a)))),
    )


def _numpy_to_torch(size: int) -> Work:
    a = _arrays(size)[0]
    return _repeat(lambda: torch.from_dlpack(a), lambda: torch.from_dlpack(a).clone())


def _export(make: Callable[[Any], Any], side: Side) -> Work:
    x = make(side)
    return _repeat(lambda: np.from_dlpack(x), lambda: torch.from_numpy(np.array(np.from_dlpack(x))))


def _sdk_tensor(side: Side) -> Any:
    return importlib.import_module("hologram").Tensor.from_dlpack(_values()[0])


def _torch_tensor(side: Side) -> Any:
    return torch.from_numpy(_values()[0]).to(side.device)


def _import_dlpack(side: Side) -> Work:
    tensor = importlib.import_module("hologram").Tensor
    a = _values()[0]
    return _repeat(
        lambda: tensor.from_dlpack(a),
        lambda: torch.from_numpy(np.array(np.from_dlpack(tensor.from_dlpack(a)))),
    )


def _import_torch() -> Work:
    a = _values()[0]
    return _repeat(lambda: torch.from_dlpack(a), lambda: torch.from_dlpack(a).clone())


# Name, the work on our side, the reference, the most it may take.
_CASES: list[tuple[str, Callable[[Side], Work], Callable[[Side], Work], float | None]] = [
    ("ops.vector_add; np.add", _executor_add, lambda _: _numpy_add(), 300e-9),
    ("x + y of tensors; of arrays", _tensor_add, lambda _: _numpy_fresh_add(), 300e-9),
    ("handle vector_add_f32; np.add", _handle_add, lambda _: _numpy_add(), 500e-9),
    (
        "Tensor.__dlpack__ and its end; of an array",
        lambda side: _capsules(lambda: _sdk_tensor(side)),
        lambda _: _capsules(lambda: _values()[0]),
        0.5e-6,
    ),
    (
        "np.from_dlpack of a hologram.Tensor; of a torch tensor on cpu",
        lambda side: _export(_sdk_tensor, side),
        lambda side: _export(_torch_tensor, side),
        0.5e-6,
    ),
    (
        "Tensor.from_dlpack of an array; torch.from_dlpack",
        _import_dlpack,
        lambda _: _import_torch(),
        1e-6,
    ),
    (
        "Tensor.from_dlpack of 10M elements; torch.from_dlpack",
        _import_large,
        lambda _: _numpy_to_torch(10_000_000),
        1e-6,
    ),
    (
        "np.from_dlpack of a torch tensor on the device; on cpu",
        lambda side: _export(_torch_tensor, side),
        lambda side: _export(_torch_tensor, side),
        None,
    ),
]


def _many_arrays() -> list[np.ndarray]:
    generator = np.random.default_rng(1)
    return [generator.standard_normal(1_000, dtype=np.float32) for _ in range(2 * _CALLS)]


def _many_adds(side: Side) -> Work:
    """Return as many `vector_add` of 1K elements, each on buffers of its own, as are waited for."""
    hologram = importlib.import_module("hologram")
    executor = hologram.Executor(backend="cpu")
    inputs = [executor.allocate(1_000) for _ in range(2 * _CALLS)]
    for buffer, values in zip(inputs, _many_arrays()):
        buffer.from_numpy(values)
    calls = [(a, b, executor.allocate(1_000)) for a, b in zip(inputs[::2], inputs[1::2])]
    add = hologram.ops.vector_add

    def run() -> None:
        for a, b, c in calls:
            add(executor, a, b, c)

    def outputs() -> torch.Tensor:
        run()
        return torch.from_numpy(np.stack([np.frombuffer(c.to_bytes(), "f4") for *_, c in calls]))

    return _waited(Work(run, _CALLS, outputs), executor.synchronize)


def _many_numpy_adds() -> Work:
    inputs = _many_arrays()
    calls = [(a, b, np.empty_like(a)) for a, b in zip(inputs[::2], inputs[1::2])]

    def run() -> None:
        for a, b, c in calls:
            np.add(a, b, out=c)

    return Work(run, _CALLS, lambda: torch.from_numpy(np.stack([a + b for a, b, _ in calls])))


# Name, the function, the least it must be faster than NumPy from 10K on.
_COMPUTED: list[tuple[str, Callable[[Any, Any, Any], Any], float | None]] = [
    ("a + b of tensors, run; of arrays", lambda xp, a, b: a + b, None),
    ("maximum(a * b + a, 0) * 2 + b of tensors, run; of arrays", _five_ops, 4.0),
]


def _sized_cases(context: Context) -> Iterator[Case]:
    """Yield one op and five of every size beside NumPy."""
    yield Case(
        "vector_add, 64 of them run; np.add",
        _many_adds,
        peer=lambda _: _many_numpy_adds(),
        size=1_000,
        goal=Goal(1.0),
    )
    for name, function, least in _COMPUTED:
        for size in context.sizes:
            yield Case(
                name,
                _computed(function, size),
                peer=lambda _, f=function, n=size: _computed_by_numpy(f, n),  # type: ignore[misc]
                size=size,
                goal=Goal(least) if least and size >= 10_000 else None,
            )


# Name, whether each op makes its result, the most it may take.
_RECORDED = [
    ("recording x + y from C++, with its result", True, 100e-9),
    ("recording x + y from C++, the append alone", False, 30e-9),
]


def _record(context: Context, name: str, fresh: bool, most: float) -> Row:
    """Time native/record.cc, which checks its sums; nothing in PyTorch compares."""
    row = Row(AREA, name, size=_ELEMENTS, threads=context.threads[0])
    try:
        seconds = native.per_call("record.cc", "hologram_bench_record", fresh)
    except Unavailable as error:
        row.note = f"not measured: {first_line(error)}"
        return row
    if min(seconds) == -1:
        row.note = "not measured: the device does not record"
    elif min(seconds) < 0:
        row.fault = "wrong result: the recorded sum"
    else:
        row.spread = Spread.of(seconds)
        row.value, row.goal = row.spread.median, Goal(most, "most")
    return row


@area(AREA, "The SDK: calls on 16 elements and chains of any size, beside NumPy and PyTorch")
def measure(context: Context) -> Iterator[Row]:
    torch.set_num_threads(context.threads[0])
    for name, fresh, most in _RECORDED:
        if context.wants(name):
            yield context.done(_record(context, name, fresh, most))
    for name, ours, theirs, most in _CASES:
        if not context.wants(name):
            continue
        try:
            outputs_of(ours(context.side))
        except (ImportError, AttributeError, RuntimeError, BufferError) as error:
            note = f"not there yet: {first_line(error)}"
            yield context.done(Row(AREA, name, threads=context.threads[0], note=note))
            continue
        goal = Goal(most, "most") if most else None
        case = Case(name, ours, peer=theirs, size=_ELEMENTS, goal=goal, min_time=0.2)
        yield context.row(AREA, case, context.threads[0])
    yield from context.rows(AREA, lambda: _sized_cases(context))
