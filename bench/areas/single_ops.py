# SPDX-License-Identifier: MIT
"""Single ops: each row of the op table that PyTorch can call, reductions, softmax and losses."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from bench.areas.op_table import Op, all_ops
from bench.context import Context
from bench.core import Case, Goal, Row, Side, Work, area, geometric_mean, size_name
from bench.inputs import expression_work, number_of_sets

AREA = "single"
# No op may lose.
_PARITY = Goal(0.95)
_TWICE = Goal(2.0)
# Ops whose geometric mean the targets bound.
_TARGET_OPS = "add mul div relu sigmoid tanh gelu exp softmax sum mean mse_loss"

# Ops measured in other dtypes too, and those dtypes.
_MORE_DTYPES = {
    torch.bfloat16: "add mul relu exp gelu sigmoid sum softmax",
    torch.float64: "add mul exp tanh sum",
    torch.int64: "add mul maximum eq sum",
}
_MORE_SIZES = (10_000, 1_000_000)
_EVERY_OP_SIZE = 10_000  # where every op is measured even in a run that is not whole
_ORACLE_MOST = 100_000


def _shape(text: str, size: int) -> tuple[int, ...]:
    """Return the shape that n/100x100 means for a size."""
    parts = []
    for part in text.split("x"):
        whole, _, divisor = part.partition("/")
        count = size if whole == "n" else int(whole)
        parts.append(count // int(divisor) if divisor else count)
    return tuple(parts)


def make_case(context: Context, name: str, op: Op, size: int, dtype: torch.dtype) -> Case:
    """Return the comparison of one op at one size."""
    parsed = []
    for operand in op.operands:
        letter, kind, *shape = operand.split(":")
        own = {"int32": torch.int32, "mask": torch.bool}.get(kind, dtype)
        kind = "normal" if kind == "int32" else kind
        parsed.append((letter, kind, own, _shape(shape[0] if shape else "n", size)))
    names = [letter for letter, *_ in parsed]
    elements = torch.Size(_shape(op.result, size)).numel()
    read = sum(torch.Size(s).numel() * _width(kind, own) for _, kind, own, s in parsed)
    in_place = "_(" in op.expression

    def sets(device: torch.device, count: int) -> list[list[torch.Tensor]]:
        found = [
            [
                context.inputs.get(kind, own, shape, 8 * n + ord(letter) % 8, device)
                for letter, kind, own, shape in parsed
            ]
            for n in range(count)
        ]
        if in_place:
            found = [[first.clone(), *rest] for first, *rest in found]
        return found

    # Where little is returned, the inputs bound how many sets stay in cache.
    count = number_of_sets(max(elements * dtype.itemsize, read // 2))

    def build(side: Side) -> Work:
        return expression_work(
            op.expression, names, sets(side.device, count), side, elements * dtype.itemsize
        )

    def oracle() -> object:
        exact = [t.double() if t.is_floating_point() else t for t in sets(context.cpu.device, 1)[0]]
        work = expression_work(op.expression, names, [exact], context.cpu, 0)
        assert work.outputs is not None
        return work.outputs()

    # Sums may cancel: their absolute error grows with what was added up.
    tolerance = (1e-4, 2e-6 * size**0.5) if op.result != "n" and dtype == torch.float32 else None
    return Case(
        name,
        build,
        size=size,
        dtype=str(dtype).removeprefix("torch."),
        oracle=oracle if size <= _ORACLE_MOST and dtype == torch.float32 else None,
        tolerance=tolerance,
        bytes=read + elements * dtype.itemsize,
        goal=_goal(name, size, dtype),
        group=name,
    )


def _width(kind: str, dtype: torch.dtype) -> int:
    return 8 if kind.startswith("classes") else dtype.itemsize


def _goal(name: str, size: int, dtype: torch.dtype) -> Goal:
    if dtype == torch.float32 and (
        (name == "add" and size == 10_000_000)
        or (name in ("gelu", "mse_loss", "softmax") and size == 10_000)
    ):
        return _TWICE
    return _PARITY


def summarize(rows: list[Row]) -> list[Row]:
    """Return geometric means for the ops of the target and over all rows, by setting."""
    found = []
    for setting in sorted({r.setting for r in rows}):
        for about in _about([r for r in rows if r.setting == setting]):
            about.cores, about.threads = setting.cores, setting.threads
            found.append(about)
    return found


def _about(rows: list[Row]) -> Iterator[Row]:
    def mean(name: str, among: list[Row], goal: Goal | None = None) -> Row:
        ratio = geometric_mean([r.ratio for r in among])
        return Row(AREA, f"{name}, {len(among)} rows", 1.0, ratio, unit="x", goal=goal)

    target = [r for r in rows if r.name in _TARGET_OPS.split() and r.dtype == "float32"]
    if target:
        bound = Goal(2.0, source="targets: single ops")
        yield mean("geometric mean of " + _TARGET_OPS, target, bound)
    yield mean("geometric mean of all", rows)
    for size in sorted({r.size for r in rows}):
        yield mean(f"geometric mean at {size_name(size)}", [r for r in rows if r.size == size])
    worst = min(rows, key=lambda r: r.ratio)
    name = f"least ratio: {worst.name} at {size_name(worst.size)}"
    yield Row(AREA, name, 1.0, worst.ratio, unit="x", goal=_PARITY)


@area(AREA, "Single ops: float32 at 1K to 10M elements, and a few in other dtypes", summarize)
def measure(context: Context) -> Iterator[Row]:
    def cases() -> Iterator[Case]:
        ops = all_ops()
        if context.quick:
            ops = {name: ops[name] for name in _TARGET_OPS.split()}
        for size in context.sizes:
            for name, op in ops.items():
                if not (context.whole or name in _TARGET_OPS.split() or size == _EVERY_OP_SIZE):
                    continue
                yield make_case(context, name, op, size, torch.float32)
        for dtype, names in _MORE_DTYPES.items():
            for size in _MORE_SIZES:
                if size in context.sizes and context.whole:
                    for name in names.split():
                        if name in ops:
                            yield make_case(context, name, ops[name], size, dtype)

    yield from context.rows(AREA, cases)
