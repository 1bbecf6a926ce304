# SPDX-License-Identifier: MIT
"""PyTorch's databases as pieces of work: a piece is a few ops in one variant, dtype and mode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.testing._internal import autograd_function_db as autograd_functions
from torch.testing._internal import common_methods_invocations as invocations
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import optim_db

import hologram_torch
from conformance import exceptions, harness, modules, optimizers, union, variants

DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.complex128,
]
LAYOUTS = {
    "sparse_coo": torch.sparse_coo,
    "sparse_csr": torch.sparse_csr,
    "sparse_csc": torch.sparse_csc,
    "sparse_bsr": torch.sparse_bsr,
    "sparse_bsc": torch.sparse_bsc,
}
# Ops of a piece: few enough that all cores have work until the end.
_CHUNK = 60


@dataclass(frozen=True)
class Piece:
    """What one call of `run_piece` does."""

    database: str
    variant: str
    dtype: str  # "float32", or "" where the database has its own
    mode: str
    begin: int
    end: int
    limit: int | None
    only: str | None


@dataclass
class Outcome:
    """What a piece found: samples, how many cpu runs, how many of those are alike, the others."""

    piece: Piece
    samples: int = 0
    on_cpu: int = 0
    alike: int = 0
    excused: int = 0
    failures: list[str] = field(default_factory=list)
    # How often each entry of exceptions.py was needed.
    needed: Counter[tuple[str, str, str]] = field(default_factory=Counter)


def _custom_ops() -> list[Any]:
    from torch.testing._internal.custom_op_db import custom_op_db

    return custom_op_db


def _higher_order_ops() -> list[Any]:
    from torch.testing._internal.hop_db import hop_db

    return hop_db


def _nested_ops() -> list[Any]:
    from torch.testing._internal.opinfo.definitions.nested import njt_op_db

    return njt_op_db


def _foreach_ops() -> list[Any]:
    """Return PyTorch's database of these; before 2.15 there are its parts alone."""
    parts = ("unary", "binary", "pointwise", "reduce", "other")
    found = getattr(invocations, "foreach_op_db", None)
    return found or [op for part in parts for op in getattr(invocations, f"foreach_{part}_op_db")]


# A database of OpInfo objects.
DATABASES: dict[str, Callable[[], list[Any]]] = {
    "op_db": lambda: invocations.op_db,
    "foreach_op_db": _foreach_ops,
    "autograd_function_db": lambda: autograd_functions.autograd_function_db,
    "custom_op_db": _custom_ops,
    "hop_db": _higher_order_ops,
    "njt_op_db": _nested_ops,
    "module_db": lambda: module_db,
    "optim_db": lambda: optim_db,
    "union": lambda: [op for op, _ in union.entries()],
}
_EAGER = ("functional", "in-place", "out= fitting")
_OF: dict[str, tuple[str, ...]] = {
    "op_db": (*variants.VARIANTS, "errors", *LAYOUTS),
    "foreach_op_db": ("functional", "in-place"),
    "autograd_function_db": ("functional", "forward mode", "vmap", "gradcheck"),
    "custom_op_db": ("functional", "vmap", "fake", "opcheck"),
    "hop_db": ("functional",),
    "njt_op_db": ("functional",),
    "module_db": ("train", "eval"),
    "optim_db": ("steps",),
    "union": ("functional",),
}


def _dtypes(database: str, variant: str) -> list[str]:
    """Return the dtypes that a variant of a database is run in."""
    names = [str(d).removeprefix("torch.") for d in DTYPES]
    if database in ("module_db", "optim_db"):
        return ["float32"]
    if variant in ("errors", "opcheck"):
        return [""]
    if variant == "gradcheck":
        return [str(d).removeprefix("torch.") for d in variants.FLOATS]
    if database == "union":
        found = {d for _, dtypes in union.entries() for d, _ in dtypes}
        return sorted(str(d).removeprefix("torch.") for d in found)
    if variants.VARIANTS.get(variant, variants.VARIANTS["functional"]).needs_gradients:
        return [n for n in names if getattr(torch, n).is_floating_point or "complex" in n]
    return names


def pieces(
    databases: list[str], only_variants: list[str], dtypes: list[str], modes: list[str],
    limit: int | None, only: str | None,
) -> Iterator[Piece]:  # fmt: skip
    """Yield all work; empty lists mean everything."""
    for database in databases or list(DATABASES):
        count = len(DATABASES[database]())
        size = _CHUNK if database in ("op_db", "foreach_op_db", "njt_op_db") else 16
        for variant in _OF[database]:
            if only_variants and variant not in only_variants:
                continue
            for mode in modes or ["deferred", "eager"]:
                if mode == "eager" and database == "op_db" and variant not in _EAGER:
                    continue
                for dtype in _dtypes(database, variant):
                    if dtypes and dtype and dtype not in dtypes:
                        continue
                    for begin in range(0, count, size):
                        end = min(begin + size, count)
                        yield Piece(database, variant, dtype, mode, begin, end, limit, only)


def covers(
    databases: list[str], dtypes: list[str], only: str | None
) -> Callable[[tuple[str, str, str]], bool]:
    """Return what tells whether a run of all variants, modes and samples meets an entry."""
    of_op: dict[str, set[str]] = {}
    for name, entries in DATABASES.items():
        if name not in ("module_db", "optim_db"):
            for op in entries():
                of_op.setdefault(harness.op_name(op), set()).add(name)

    def met(entry: tuple[str, str, str]) -> bool:
        _, op, dtype = entry
        if dtypes and dtype not in (*dtypes, exceptions.ERRORS):
            return False
        where = {"op_db"} if dtype == exceptions.ERRORS else of_op.get(op, set())
        chosen = not databases or where <= set(databases)
        return chosen and (only is None or only in op)

    return met


# --- One piece ------------------------------------------------------------------------------------


def _check_layout(
    op: Any, layout: str, dtype: torch.dtype, limit: int | None, report: harness.Report
) -> None:
    """Run an op's samples of a sparse layout, where cpu has them."""
    if not op.supports_sparse_layout(LAYOUTS[layout]):
        return
    report.dtype = dtype
    make = getattr(op, f"sample_inputs_{layout}")
    torch.manual_seed(0)
    made, error = harness.attempt(lambda: list(make("cpu", dtype, requires_grad=False)))
    if error is not None:
        if isinstance(error, NotImplementedError):
            return  # the database has no samples for the layout
        report.add(harness.op_name(op), -1, "samples", harness.short_text(error))
        return
    for index, sample in harness.spread(made, limit):
        for original, is_random in harness.parts_of(op, sample):
            harness.check_sample(op, index, original, is_random, False, report)


# The fourth, test_autograd_registration, says of itself that it is written for cpu, cuda and xpu.
_OPCHECKS = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")


def _check_opcheck(op: Any, limit: int | None, report: harness.Report) -> None:
    """Run PyTorch's own checks of a custom operator with tensors of each device."""
    target = (
        op.op if isinstance(op.op, torch._ops.OpOverload) else getattr(op.op, "_opoverload", None)
    )
    if target is None:
        return

    def run(_: Any, sample: Any) -> Any:
        value, args, kwargs = sample
        arguments = (value, *args)
        return torch.library.opcheck(target, arguments, kwargs, test_utils=_OPCHECKS)

    dtype = next(d for d in DTYPES if d in op.supported_dtypes("cpu"))
    report.dtype = dtype
    for index, sample in harness.samples_of(op, dtype, limit, harness.has_gradient(op, dtype)):
        original = (sample.input, sample.args, sample.kwargs)
        harness.check_sample(op, index, original, True, False, report, run)


def _check_one(entry: Any, piece: Piece, report: harness.Report) -> None:
    """Run what a piece asks for on one entry of its database."""
    dtype = getattr(torch, piece.dtype) if piece.dtype else None
    if piece.variant == "errors":
        harness.check_errors(entry, report)
    elif piece.variant == "opcheck":
        _check_opcheck(entry, piece.limit, report)
    elif piece.database == "union":
        for d, grad in next(found for op, found in union.entries() if op is entry):
            if d == dtype:
                union.check_entry(entry, d, grad, piece.limit, report)
    elif dtype not in entry.supported_dtypes("cpu"):
        return
    elif piece.variant in LAYOUTS:
        _check_layout(entry, piece.variant, dtype, piece.limit, report)
    else:
        variants.check_variant(entry, piece.variant, dtype, piece.limit, report)


def _check_by_asserts(piece: Piece, entry: Any, outcome: Outcome) -> None:
    """Run an entry of module_db or optim_db, whose checks are asserts."""
    checks: Iterator[tuple[str, Callable[[], None]]]
    if piece.database == "module_db":
        checks = modules.checks(entry, piece.variant == "train", piece.limit)
    else:
        checks = optimizers.checks(entry, piece.limit)
    for name, check in checks:
        outcome.samples += 1
        outcome.on_cpu += 1
        try:
            check()
            outcome.alike += 1
        except Exception as error:
            outcome.failures.append(f"{name}: {harness.short_text(error)}")


def run_piece(piece: Piece) -> Outcome:
    """Run one piece of work."""
    torch.set_num_threads(1)
    outcome, report = Outcome(piece), harness.Report()
    by_asserts = piece.database in ("module_db", "optim_db")
    with harness.quiet(), hologram_torch.execution(piece.mode):
        for entry in DATABASES[piece.database]()[piece.begin : piece.end]:
            name = entry.name if by_asserts else harness.op_name(entry)
            if piece.only is not None and piece.only not in name:
                continue
            try:
                if by_asserts:
                    _check_by_asserts(piece, entry, outcome)
                else:
                    _check_one(entry, piece, report)
            except Exception as error:
                outcome.failures.append(f"{name}: harness: {harness.short_text(error)}")
    outcome.samples += report.samples
    outcome.on_cpu += report.on_cpu
    outcome.alike += report.alike
    outcome.excused += report.excused.total()
    outcome.needed += report.excused + report.bounds
    outcome.failures += [str(f) for f in report.failures]
    return outcome
