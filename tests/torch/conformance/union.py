# SPDX-License-Identifier: MIT
"""Dtypes that the database lists for CUDA and not for cpu, compared with cpu's in a wider dtype."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from accuracy import Rounding, double_precision, moved_results, tensors_of, widen
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

from conformance import harness
from conformance.exceptions import FACTORIES

# What a narrow dtype is computed in, results and samples alike.
WIDE = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.complex32: torch.complex64,
}
_NARROW_OF = {
    torch.float16: {torch.float32: torch.float16, torch.complex64: torch.complex32},
    torch.complex32: {torch.float32: torch.float16, torch.complex64: torch.complex32},
    torch.bfloat16: {torch.float32: torch.bfloat16},
}


# Types whose values a wider one has, so that results are the same.
_EXACT = {
    d: {d: torch.float64} for d in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
}
_EXACT |= {torch.bool: {torch.bool: torch.uint8}}
_EXACT |= {
    d: {d: torch.float32}
    for d in (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz)
}


def _nansum(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return x.masked_fill(x.isnan(), 0).sum(*args, **kwargs)


def _nanmean(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    count = (~x.isnan()).sum(*args, **{k: v for k, v in kwargs.items() if k != "dtype"})
    return _nansum(x, *args, **kwargs) / count


# What cpu has for no dtype of the kind, made of what it has.
_COMPOSED = {"nansum": _nansum, "nanmean": _nanmean}


def _reference(op: Any, sample: Any) -> Any:
    """Run an op on cpu."""
    value, args, kwargs = sample
    if op.name in _COMPOSED and value.is_complex():
        torch.manual_seed(1234)
        return _COMPOSED[op.name](value, *args, **kwargs)
    return harness.run_op(op, sample)


def more_dtypes(op: Any) -> tuple[set[torch.dtype], set[torch.dtype]]:
    """Return the dtypes that CUDA has beyond cpu's, forward and with gradients."""
    forward = op.supported_dtypes("cuda") - op.supported_dtypes("cpu")
    backward = op.supported_backward_dtypes("cuda") - op.supported_backward_dtypes("cpu")
    return set(forward), set(backward)


def entries() -> Iterator[tuple[Any, list[tuple[torch.dtype, bool]]]]:
    """Yield the ops that have such dtypes, each with dtypes and whether to take gradients."""
    for op in op_db:
        forward, backward = more_dtypes(op)
        known = op.supported_dtypes("cuda")
        both = [(d, d in op.supported_backward_dtypes("cuda")) for d in forward]
        both += [(d, True) for d in backward - forward if d in known]
        if both:
            yield op, sorted(both, key=str)


def narrowed(sample: Any, dtype: torch.dtype) -> Any:
    """Round a sample to a dtype: its tensors, and dtypes that it names."""
    table = _NARROW_OF.get(dtype, {})

    def one(x: Any) -> Any:
        if isinstance(x, torch.dtype):
            return table.get(x, x)
        if not isinstance(x, torch.Tensor) or x.dtype not in table:
            return x
        return x.detach().to(table[x.dtype]).requires_grad_(x.requires_grad)

    return tree_map(one, sample)


def widened(sample: Any, dtype: torch.dtype) -> Any:
    """Undo `narrowed`, without undoing the rounding; integers become float64."""
    table = {narrow: wide for wide, narrow in _NARROW_OF.get(dtype, {}).items()}
    table = table or _EXACT.get(dtype, {})

    def one(x: Any) -> Any:
        if isinstance(x, torch.dtype):
            return table.get(x, x)
        if not isinstance(x, torch.Tensor) or x.dtype not in table:
            return x
        return x.detach().to(table[x.dtype]).requires_grad_(x.requires_grad)

    return tree_map(one, sample)


def expected_dtype(wide: torch.dtype, dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of a result that is `wide` where the sample was widened."""
    if dtype in _NARROW_OF:
        return _NARROW_OF[dtype].get(wide, wide)
    return dtype if wide == _EXACT.get(dtype, {}).get(dtype) else wide


def _expected_of(op: Any, wide: torch.dtype, dtype: torch.dtype) -> torch.dtype:
    # Of bfloat16 there are no complex numbers, so transforms of it are those of float32.
    transform = op.name.startswith("fft.") or op.name == "stft"
    return wide if transform and dtype == torch.bfloat16 else expected_dtype(wide, dtype)


def _problems(
    op: Any, original: Any, dtype: torch.dtype, expected: Any, actual: Any, backward: bool
) -> Iterator[tuple[str, str]]:
    """Yield how results differ from the wide ones, rounded."""
    theirs = [t for t in tree_flatten(expected)[0] if isinstance(t, torch.Tensor)]
    ours = [t for t in tree_flatten(actual)[0] if isinstance(t, torch.Tensor)]
    if len(theirs) != len(ours):
        yield "structure", f"{len(ours)} tensors where cpu has {len(theirs)}"
        return
    for a, b in zip(theirs, ours, strict=True):
        # A gradient has the dtype of its argument.
        want = expected_dtype(a.dtype, dtype) if backward else _expected_of(op, a.dtype, dtype)
        if b.device.type != harness.DEVICE and op.name not in FACTORIES:
            yield "device", f"result on {b.device}"
        if b.dtype != want:
            yield "dtype", f"{b.dtype} where {want} is expected"
        if a.shape != b.shape:
            yield "shape", f"{tuple(b.shape)} where cpu has {tuple(a.shape)}"
        if a.shape != b.shape or b.dtype != want:
            return

    rounds = dtype not in _EXACT

    def evaluate(noise: int | None) -> list[torch.Tensor]:
        sample = widen(original, noise, dtype) if rounds else widened(original, dtype)
        result = _reference(op, sample)
        if not backward:
            return tensors_of(result)
        return tensors_of(harness.gradients_of(result, harness.leaves_of(sample), noise))

    with double_precision():
        exact = evaluate(None)
        moved = moved_results(evaluate) if rounds else []

    # Of complex32 little but copies is known to cpu: halves are compared.
    def parts(row: list[torch.Tensor]) -> list[torch.Tensor]:
        if all(t.dtype != torch.complex32 for t in row):
            return row
        return [torch.view_as_real(t.resolve_conj()) for t in row]

    right = [
        t.to(expected_dtype(t.dtype, dtype) if backward else _expected_of(op, t.dtype, dtype))
        for t in tensors_of(expected)
    ]
    bound = Rounding()
    for row in zip(tensors_of(actual), right, exact, *moved, strict=True):
        if problem := bound.excess(*parts(list(row))):
            yield "values", problem


def check_entry(
    op: Any, dtype: torch.dtype, grad: bool, limit: int | None, report: harness.Report
) -> None:
    """Run an op's samples in a dtype that cpu has not, and on cpu in a wider one."""
    name = harness.op_name(op)
    report.dtype = dtype
    try:
        made = list(harness.samples_of(op, WIDE.get(dtype, dtype), limit, grad))
    except Exception as error:
        report.add(name, -1, "samples", harness.short_text(error))
        return
    for index, sample in made:
        for part, is_random in harness.parts_of(op, sample):
            original = narrowed(part, dtype)
            differing = len(report.failures) + report.excused.total()
            ran = _check_part(op, index, original, dtype, is_random, grad, report)
            report.on_cpu += ran
            report.alike += ran and differing == len(report.failures) + report.excused.total()


def _check_part(
    op: Any,
    index: int,
    original: Any,
    dtype: torch.dtype,
    is_random: bool,
    grad: bool,
    report: harness.Report,
) -> bool:
    """Compare one sample; tell whether cpu computes it in the wider dtype."""
    name = harness.op_name(op)
    report.samples += 1
    cpu, ours = widened(original, dtype), harness.to_device(original, harness.DEVICE)
    expected, cpu_error = harness.attempt(_reference, op, cpu)
    actual, our_error = harness.attempt(harness.run_op, op, ours)
    if cpu_error is not None:
        if our_error is None:
            report.add(name, index, "no error", f"cpu raises {harness.short_text(cpu_error)}")
        return False
    if our_error is not None:
        report.add(name, index, "raises", harness.short_text(our_error))
        return True
    if is_random:
        return True
    stage = ""
    try:
        for kind, text in _problems(op, original, dtype, expected, actual, False):
            report.add(name, index, kind, text)
        report.compared += 1
        stage = "backward "
        if grad and harness.differentiable(expected):
            grads = harness.gradients_of(expected, harness.leaves_of(cpu))
            found = harness.gradients_of(actual, harness.leaves_of(ours))
            for kind, text in _problems(op, original, dtype, grads, found, True):
                report.add(name, index, stage + kind, text)
            report.backwards += 1
    except Exception as error:
        report.add(name, index, stage + "raises", harness.short_text(error))
    return True


if __name__ == "__main__":
    for entry, dtypes in entries():
        names = ", ".join(
            str(d).removeprefix("torch.") + (" with gradients" if g else "") for d, g in dtypes
        )
        print(f"{harness.op_name(entry)}: {names}")
