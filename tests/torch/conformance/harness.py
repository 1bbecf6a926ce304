# SPDX-License-Identifier: MIT
"""Run PyTorch's OpInfo samples on cpu and on hologram and compare: values, gradients, errors."""

from __future__ import annotations

import contextlib
import math
import random
import re
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from accuracy import Rounding, double_precision, moved_results, tensors_of, widen
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

from conformance.exceptions import (
    ERRORS,
    EXCEPTIONS,
    FACTORIES,
    RANDOM,
    UNITS,
    UNITS_KIND,
    UNSPECIFIED,
    dtype_name,
)

DEVICE = "hologram"

# What runs an op on a sample: (op, (input, args, kwargs)) -> results.
Run = Callable[[Any, Any], Any]

# Where an op that draws has its probability: position among the arguments after the first, name.
# At 0 it draws nothing, so that values and gradients can be compared.
DROPOUT = {
    "nn.functional.multi_head_attention_forward": (9, "dropout_p"),
    "nn.functional.scaled_dot_product_attention": (4, "dropout_p"),
    "nn.functional.alpha_dropout": (0, "p"),
    "nn.functional.dropout": (0, "p"),
    "nn.functional.dropout2d": (0, "p"),
    "nn.functional.dropout3d": (0, "p"),
    "nn.functional.feature_alpha_dropout": (0, "p"),
}


# Set while an op runs in double precision on inputs that are rounded: what a variant draws besides
# is rounded with the same seed.
noise_of_inputs: int | None = None


class NotApplicable(Exception):
    """A sample cannot be run in the way that is asked for, on any device: it is not counted."""


@dataclass
class Failure:
    """One sample that behaves otherwise on hologram."""

    op: str
    sample: int
    stage: str
    text: str

    def __str__(self) -> str:
        return f"{self.op}[{self.sample}] {self.stage}: {self.text}"


@dataclass
class Report:
    """What a run over the database did."""

    dtype: torch.dtype | str | None = None
    samples: int = 0
    # Samples that cpu runs, forward and backward, and those of them that are the same on hologram.
    on_cpu: int = 0
    alike: int = 0
    compared: int = 0
    backwards: int = 0
    raised: int = 0
    failures: list[Failure] = field(default_factory=list)
    # How often each listed exception of what differs was needed, and each bound of an op's own.
    excused: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    bounds: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def add(self, op: str, sample: int, stage: str, text: str) -> None:
        """Note what differs; `stage` may carry "backward " before the kind that is listed."""
        kind = stage.removeprefix("backward ")
        dtypes, _ = EXCEPTIONS.get(kind, {}).get(op, ((), ""))
        if self.dtype in dtypes:
            self.excused[kind, op, dtype_name(self.dtype)] += 1
        else:
            self.failures.append(Failure(op, sample, stage, text))


def op_name(op) -> str:
    return op.name if not op.variant_test_name else f"{op.name}.{op.variant_test_name}"


def _is_device(x: object) -> bool:
    return isinstance(x, torch.device) or (isinstance(x, str) and x == "cpu")


def to_device(value, device: str, stay: frozenset[int] = frozenset()):
    """Copy a sample's arguments to a device; those in `stay` PyTorch wants on the CPU."""
    memo: dict[int, torch.Tensor] = {}
    storages: dict[Any, torch.Tensor] = {}

    def move(x):
        if isinstance(x, torch.Tensor):
            if id(x) not in memo:
                memo[id(x)] = _copy(x, "cpu" if id(x) in stay else device, storages)
            return memo[id(x)]
        if _is_device(x):
            return torch.device(device)
        return x

    return tree_map(move, value)


def _copy(x: torch.Tensor, device: str, storages: dict[Any, torch.Tensor]) -> torch.Tensor:
    """Copy a tensor with its strides, its offset and what overlaps in it, or with another one."""
    plain = x.detach()
    if x.device.type != "cpu":
        return plain.clone().requires_grad_(x.requires_grad)  # meant to be elsewhere
    if type(plain) is not torch.Tensor or x.layout != torch.strided or x.is_quantized:
        moved = plain.clone() if device == "cpu" else plain.to(device)
    else:
        bits = (plain.is_conj(), plain.is_neg())
        plain = torch._neg_view(plain) if bits[1] else plain
        plain = plain.conj() if bits[0] else plain
        key = (plain.untyped_storage()._cdata, plain.dtype, device)
        if key not in storages:
            size = plain.untyped_storage().nbytes() // plain.element_size()
            flat = plain.as_strided((size,), (1,), 0)
            storages[key] = flat.clone() if device == "cpu" else flat.to(device)
        moved = storages[key].as_strided(plain.shape, plain.stride(), plain.storage_offset())
        moved = moved.conj() if bits[0] else moved
        moved = torch._neg_view(moved) if bits[1] else moved
    # A view's leaf would be a view, too, and refused by ops that write in place.
    return moved.detach().requires_grad_(x.requires_grad)


def _stays_on_cpu(op, sample) -> frozenset[int]:
    """Ids of the arguments that PyTorch's devices require on the CPU."""
    if op.name == "tensor_split":
        return frozenset(id(x) for x in sample[1] if isinstance(x, torch.Tensor))
    return frozenset()


def differences(
    expected, actual, random_result: bool, device: str = DEVICE
) -> Iterator[tuple[str, str]]:
    """Yield the kind and the description of each difference of two results.

    `device` is where tensors have to be.
    """
    left, spec_left = tree_flatten(expected)
    right, spec_right = tree_flatten(actual)
    if spec_left != spec_right:
        yield "structure", f"{spec_right} where cpu has {spec_left}"
        return
    for a, b in zip(left, right, strict=True):
        if isinstance(a, torch.Tensor):
            yield from _tensor_differences(a, b, random_result, device)
        elif isinstance(a, torch.device):
            if (torch.device(DEVICE) if a.type == "cpu" else a) != b and b.type != DEVICE:
                yield "device", f"{b} where cpu has {a}"
        elif type(a) is not type(b):
            yield "structure", f"{b!r} where cpu has {a!r}"
        elif isinstance(a, (float, complex)):
            # Numbers are results of item(), computed by kernels that may round otherwise.
            nan = isinstance(a, float) and math.isnan(a) and math.isnan(b)
            near = abs(a - b) <= 4 * torch.finfo(torch.float32).eps * abs(a) if a != b else True
            if not (random_result or nan or near):
                yield "values", f"{b} where cpu has {a}"
        elif a != b and not random_result and not isinstance(a, torch.Generator):
            yield "values", f"{b!r} where cpu has {a!r}"


def _facts(t: torch.Tensor) -> dict[str, Any]:
    """What of a tensor can be told without its values."""
    ragged = t.layout == torch.jagged
    facts = {
        "dtype": t.dtype,
        # The length of a ragged dimension is a symbol of each tensor.
        "shape": (t.dim(), tuple(t.detach().values().shape)) if ragged else tuple(t.shape),
        "layout": t.layout,
        "requires_grad": t.requires_grad,
        "conjugated": t.is_conj(),
        "negated": t.is_neg(),
    }
    if t.layout == torch.strided:
        # Where there is but one element to step over, a stride means nothing.
        steps = tuple(s if n > 1 else None for n, s in zip(t.shape, t.stride(), strict=True))
        facts |= {"strides": steps if t.numel() else (), "offset": t.storage_offset()}
    elif t.layout == torch.sparse_coo:
        facts |= {"coalesced": t.is_coalesced(), "sparse dims": t.sparse_dim()}
    return facts


def _tensor_differences(
    a: torch.Tensor, b: torch.Tensor, random_result: bool, device: str
) -> Iterator[tuple[str, str]]:
    if not isinstance(b, torch.Tensor):
        yield "structure", f"{b!r} where cpu has a tensor"
        return
    if b.device.type != device:
        yield "device", f"result on {b.device}, not on {device}"
    theirs, ours = _facts(a), _facts(b)
    for name in theirs:
        if theirs[name] != ours.get(name):
            yield name, f"{name} {ours.get(name)} where cpu has {theirs[name]}"
    if random_result or any(theirs[n] != ours.get(n) for n in ("dtype", "shape", "layout")):
        return
    text = _value_difference(a.detach(), b.detach().cpu())
    if text is not None:
        yield "values", text


def _value_difference(a: torch.Tensor, b: torch.Tensor) -> str | None:
    if a.layout == torch.jagged:
        if not torch.equal(a.offsets(), b.offsets()):
            return "other offsets"
        a, b = a.values(), b.values()
    elif a.layout != torch.strided:
        a, b = a.to_dense(), b.to_dense()
    unit = torch.finfo(a.dtype).eps if a.dtype.is_floating_point or a.dtype.is_complex else 0.0
    try:
        torch.testing.assert_close(b, a, equal_nan=True, rtol=4 * unit, atol=0.0)
    except AssertionError as error:
        return str(error).strip().replace("\n", " ")[:300]
    return None


def as_accurate(
    op,
    original,
    expected,
    actual,
    backward: bool,
    run: Run | None = None,
    report: Report | None = None,
) -> bool:
    """Tell whether results that differ from cpu's are as near to double precision's as they may.

    Ill-conditioned samples differ by rounding alone; the largest error over each result decides.
    """

    def evaluate(noise: int | None) -> list[torch.Tensor]:
        global noise_of_inputs
        sample = widen(original, noise)
        noise_of_inputs = noise
        try:
            result = (run or run_op)(op, sample)
        finally:
            noise_of_inputs = None
        return tensors_of(gradients_of(result, leaves_of(sample), noise) if backward else result)

    ours, theirs = tensors_of(actual), tensors_of(expected)
    with double_precision():
        try:
            exact = evaluate(None)
        except Exception:
            return False
        moved = moved_results(evaluate)
    if {len(exact), *map(len, moved)} != {len(ours)} or len(theirs) != len(ours):
        return False
    # Another dtype is a difference of its own: the bound is that of the dtype of ours.
    theirs = [t.to(o.dtype) for t, o in zip(theirs, ours, strict=True)]
    largest = max((t.abs().max().item() for t in exact if t.numel()), default=0.0)

    def cancels(mine: torch.Tensor, wide: torch.Tensor) -> bool:
        """Tell whether a gradient is 0, as terms cancel, and ours what their rounding leaves."""
        if not (backward and mine.numel() and mine.dtype.is_floating_point):
            return False
        unit = torch.finfo(mine.dtype).eps * largest
        tiny = torch.finfo(wide.dtype).eps * 16 * largest
        return bool((wide.abs() <= tiny).all() and (mine.abs() <= 16 * unit).all())

    def within(bound: Rounding) -> bool:
        return all(
            row[0].shape == row[2].shape and (bound.excess(*row) is None or cancels(row[0], row[2]))
            for row in zip(ours, theirs, exact, *moved, strict=True)
        )

    name = op_name(op)
    if within(Rounding()):
        return True
    if name not in UNITS or not within(Rounding(UNITS[name][0])):
        return False
    if report is not None:
        report.bounds[UNITS_KIND, name, ""] += 1
    return True


def differentiable(result) -> list[torch.Tensor]:
    """Return the results of an op whose gradients can be taken."""
    return [
        t
        for t in tree_flatten(result)[0]
        if isinstance(t, torch.Tensor) and t.requires_grad and t.layout == torch.strided
    ]


def leaves_of(sample) -> list[torch.Tensor]:
    """Return the arguments that ask for a gradient, each once."""
    leaves = [
        t
        for t in tree_flatten((sample[0], sample[1], sample[2]))[0]
        if isinstance(t, torch.Tensor) and t.requires_grad
    ]
    return list({id(t): t for t in leaves}.values())


def run_op(op, sample):
    """Call an op as the database has it."""
    value, args, kwargs = sample
    torch.manual_seed(1234)
    return op(value, *args, **kwargs)


def gradients_of(result, leaves, noise: int | None = None):
    """Return the gradients of results for drawn ones of theirs; `noise` rounds these."""
    outputs = differentiable(result)
    if not outputs or not leaves:
        return None
    grads = []
    for output in outputs:
        torch.manual_seed(7)
        # Drawn alike for every precision, so that results of two can be compared.
        kind = torch.complex64 if output.dtype.is_complex else torch.float32
        grad = torch.randn(output.shape, dtype=kind).to(output.device, output.dtype)
        grads.append(grad if noise is None else widen(grad, noise, torch.float32))
    return torch.autograd.grad(outputs, leaves, grads, allow_unused=True)


def samples_of(op, dtype: torch.dtype, limit: int | None, grad: bool) -> Iterator:
    """Yield the samples of an op with their numbers; at most `limit`, from first to last."""
    torch.manual_seed(0)
    random.seed(0)
    # Not op.sample_inputs(): that walks the whole Python stack for every sample, which under pytest
    # takes ten times as long as the sample.
    yield from spread(list(op.sample_inputs_func(op, "cpu", dtype, grad)), limit)


def spread(every: list, limit: int | None) -> Iterator[tuple[int, Any]]:
    """Yield at most `limit` samples, from first to last, with their numbers."""
    if limit is None or len(every) <= limit:
        yield from enumerate(every)
        return
    for i in range(limit):
        place = i * (len(every) - 1) // max(limit - 1, 1)
        yield place, every[place]


def parts_of(op, sample) -> Iterator[tuple[tuple, bool]]:
    """Yield what to run of a sample, and whether its values are random."""
    whole = (sample.input, sample.args, sample.kwargs)
    if op.name in DROPOUT:
        place, name = DROPOUT[op.name]
        args, kwargs = list(sample.args), dict(sample.kwargs)
        chance = args[place] if place < len(args) else kwargs.get(name, 0.5)
        draws = chance > 0 and kwargs.get("training", True)
        if not draws:
            yield whole, False
            return
        yield whole, True
        if place < len(args):
            args[place] = 0.0
        else:
            kwargs[name] = 0.0
        yield (sample.input, tuple(args), kwargs), False
    else:
        yield whole, op.name in RANDOM or op.name in UNSPECIFIED


def _message(error: BaseException) -> str:
    """The first line of a message, as it would be on cpu."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else ""
    # What PyTorch goes on to say is a list of the keys that have a kernel.
    text = text.split(" with arguments from the ")[0]
    # Ragged lengths are numbered.
    text = re.sub(r"\bj\d+\b", "j", text)
    return text.replace(f"{DEVICE}:0", "cpu").replace(DEVICE, "cpu")


def attempt(call, *arguments) -> tuple[Any, Exception | None]:
    """Return the result of a call, or the error that it raises."""
    try:
        return call(*arguments), None
    except Exception as error:
        return None, error


def _same_error(
    report: Report, name: str, index: int, stage: str, cpu: Exception | None, ours: Exception | None
) -> None:
    """Compare what was raised on both devices, if anything was."""
    if cpu is None and ours is not None:
        report.add(name, index, f"{stage}raises", short_text(ours))
    elif cpu is not None and ours is None:
        report.add(name, index, f"{stage}no error", f"cpu raises {short_text(cpu)}")
    elif type(cpu) is not type(ours):
        report.add(name, index, f"{stage}error", f"{short_text(ours)} where cpu: {short_text(cpu)}")
    elif _message(cpu) != _message(ours):
        report.add(
            name, index, f"{stage}message", f"{short_text(ours)} where cpu: {short_text(cpu)}"
        )


def check_sample(
    op, index: int, original, is_random: bool, grad: bool, report: Report, run: Run | None = None
) -> None:
    """Run one sample on both devices, forward and backward."""
    failures, excused = len(report.failures), report.excused.total()
    if _same_sample(op, index, original, is_random, grad, report, run or run_op):
        report.on_cpu += 1
        report.alike += (len(report.failures), report.excused.total()) == (failures, excused)


def _same_sample(
    op, index: int, original, is_random: bool, grad: bool, report: Report, run: Run
) -> bool:
    """Compare one sample; tell whether cpu ran it."""
    name = op_name(op)
    cpu = to_device(original, "cpu")
    ours, error = attempt(to_device, original, DEVICE, _stays_on_cpu(op, original))
    if error is not None:
        report.add(name, index, "transfer", short_text(error))
        return True
    report.samples += 1
    expected, cpu_error = attempt(run, op, cpu)
    if isinstance(cpu_error, NotApplicable):
        report.samples -= 1
        return False
    actual, our_error = attempt(run, op, ours)
    if cpu_error is not None or our_error is not None:
        report.raised += 1
        _same_error(report, name, index, "", cpu_error, our_error)
        return cpu_error is None
    chosen = any(_is_device(x) for x in tree_flatten(original)[0])
    where = "cpu" if op.name in FACTORIES and not chosen else DEVICE
    found = list(differences(expected, actual, is_random, where))
    if any(kind == "values" for kind, _ in found) and as_accurate(
        op, original, expected, actual, False, run, report
    ):
        found = [(kind, text) for kind, text in found if kind != "values"]
    for kind, text in found:
        report.add(name, index, kind, text)
    report.compared += not is_random
    if not grad or any(kind == "structure" for kind, _ in found):
        return True
    expected_grads, cpu_error = attempt(gradients_of, expected, leaves_of(cpu))
    actual_grads, our_error = attempt(gradients_of, actual, leaves_of(ours))
    if cpu_error is not None or our_error is not None:
        report.raised += 1
        _same_error(report, name, index, "backward ", cpu_error, our_error)
        return cpu_error is None
    if expected_grads is None:
        return True
    report.backwards += 1
    found = list(differences(expected_grads, actual_grads, is_random))
    if any(kind == "values" for kind, _ in found) and as_accurate(
        op, original, expected_grads, actual_grads, True, run, report
    ):
        found = [(kind, text) for kind, text in found if kind != "values"]
    for kind, text in found:
        report.add(name, index, f"backward {kind}", text)
    return True


def has_gradient(op, dtype: torch.dtype, device: str = "cpu") -> bool:
    """Tell whether the database has gradients of an op for a dtype."""
    differentiable = dtype.is_floating_point or dtype.is_complex
    return differentiable and op.supports_autograd and dtype in op.supported_backward_dtypes(device)


def check_op(op, dtype: torch.dtype, limit: int | None, report: Report) -> None:
    """Run one op's samples on both devices."""
    report.dtype = dtype
    grad = has_gradient(op, dtype)
    samples, error = attempt(lambda: list(samples_of(op, dtype, limit, grad)))
    if error is not None:
        report.add(op_name(op), -1, "samples", short_text(error))
        return
    for index, sample in samples:
        for original, is_random in parts_of(op, sample):
            check_sample(op, index, original, is_random, grad, report)


def check_errors(op, report: Report) -> None:
    """Run what the database says must raise: hologram raises the same."""
    if op.error_inputs_func is None:
        return
    report.dtype, name = ERRORS, op_name(op)
    inputs, error = attempt(lambda: list(op.error_inputs_func(op, "cpu")))
    if error is not None:
        report.add(name, -1, "samples", short_text(error))
        return
    for index, wrong in enumerate(inputs):
        sample = wrong.sample_input
        original = (sample.input, sample.args, sample.kwargs)
        cpu, ours = to_device(original, "cpu"), to_device(original, DEVICE)
        _, cpu_error = attempt(run_op, op, cpu)
        _, our_error = attempt(run_op, op, ours)
        report.samples += 1
        report.raised += cpu_error is not None
        report.on_cpu += cpu_error is not None
        differing = len(report.failures) + report.excused.total()
        _same_error(report, name, index, "", cpu_error, our_error)
        same = differing == len(report.failures) + report.excused.total()
        report.alike += cpu_error is not None and same


def short_text(error: BaseException) -> str:
    """Return the kind of an error and its first line."""
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"[
        :260
    ]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Leave out the warnings of thousands of samples."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def run_database(dtype: torch.dtype, limit: int | None = None, only: str | None = None) -> Report:
    """Run the whole database (or ops whose name contains `only`) for one dtype."""
    report = Report()
    with quiet():
        for op in op_db:
            if only is not None and only not in op_name(op):
                continue
            if dtype not in op.supported_dtypes("cpu"):
                continue
            try:
                check_op(op, dtype, limit, report)
            except Exception:
                report.failures.append(
                    Failure(op_name(op), -1, "harness", traceback.format_exc()[-300:])
                )
    return report


def run_errors(only: str | None = None) -> Report:
    """Run every input that the database says is wrong."""
    report = Report()
    with quiet():
        for op in op_db:
            if only is None or only in op_name(op):
                check_errors(op, report)
    return report
