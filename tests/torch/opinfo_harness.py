# SPDX-License-Identifier: MIT
"""Run PyTorch's OpInfo samples on cpu and on hologram and compare: values, gradients, errors.

HOLOGRAM_EXECUTION=eager or =deferred chooses how hologram's ops run.
"""

from __future__ import annotations

import itertools
import math
import random
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

import hologram_torch

DEVICE = "hologram"

# Ops whose result is unspecified memory or random numbers: only shape, dtype and device compare.
NONDETERMINISTIC = {
    "bernoulli": "random",
    "cauchy": "random",
    "empty": "unspecified contents",
    "empty_like": "unspecified contents",
    "empty_permuted": "unspecified contents",
    "empty_strided": "unspecified contents",
    "exponential": "random",
    "geometric": "random",
    "log_normal": "random",
    "multinomial": "random",
    "new_empty": "unspecified contents",
    "new_empty_strided": "unspecified contents",
    "nn.functional.alpha_dropout": "random",
    "nn.functional.dropout": "random",
    "nn.functional.dropout2d": "random",
    "nn.functional.dropout3d": "random",
    "nn.functional.feature_alpha_dropout": "random",
    "nn.functional.fractional_max_pool2d": "random",
    "nn.functional.fractional_max_pool3d": "random",
    "nn.functional.multi_head_attention_forward": "dropout inside",
    "nn.functional.rrelu": "random",
    "nn.functional.scaled_dot_product_attention": "dropout in some samples",
    "normal": "random",
    "pca_lowrank": "random projections",
    "rand_like": "random",
    "randint": "random",
    "randint_like": "random",
    "randn": "random",
    "randn_like": "random",
    "svd_lowrank": "random projections",
    "uniform": "random",
}

# Ops that cannot be compared, each with its reason.
EXCLUDED: dict[str, str] = {}
_ACCUMULATES_BY_NAME = "PyTorch accumulates in float32 only where the device's name is cpu or cuda"
EXCLUDED_DTYPES: dict[tuple[str, torch.dtype], str] = {
    (f"nn.functional.linear_cross_entropy.{variant}", dtype): _ACCUMULATES_BY_NAME
    for variant in ("chunked", "chunked_none")
    for dtype in (torch.bfloat16, torch.float16)
}


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

    samples: int = 0
    backwards: int = 0
    skipped_on_cpu: int = 0
    failures: list[Failure] = field(default_factory=list)


def op_name(op) -> str:
    return op.name if not op.variant_test_name else f"{op.name}.{op.variant_test_name}"


def to_device(value, device: str, stay: frozenset[int] = frozenset()):
    """Copy a sample's arguments to a device; those in `stay` PyTorch wants on the CPU."""

    def move(x):
        if isinstance(x, torch.Tensor):
            if device == "cpu" or id(x) in stay:
                moved = x.detach().clone() if x.layout != torch.strided else _clone_strided(x)
            else:
                moved = x.detach().to(device)
            return moved.requires_grad_(x.requires_grad)
        if isinstance(x, torch.device):
            return torch.device(device)
        return x

    def special(x):
        return torch.device(device) if x == "cpu" else x

    return tree_map(lambda x: special(x) if isinstance(x, str) else move(x), value)


def _stays_on_cpu(op, sample) -> frozenset[int]:
    """Ids of the arguments that PyTorch's devices require on the CPU."""
    if op.name == "tensor_split":
        return frozenset(id(x) for x in sample[1] if isinstance(x, torch.Tensor))
    return frozenset()


def _clone_strided(x: torch.Tensor) -> torch.Tensor:
    return x.detach().clone()


def tolerance(dtype: torch.dtype) -> dict[str, float]:
    """How far results may be apart: the same kernels mostly run, so not far."""
    return {
        torch.float16: {"rtol": 2e-3, "atol": 2e-3},
        torch.bfloat16: {"rtol": 1.6e-2, "atol": 1e-2},
        torch.float32: {"rtol": 2e-5, "atol": 2e-5},
        torch.complex64: {"rtol": 2e-5, "atol": 2e-5},
        torch.float64: {"rtol": 1e-7, "atol": 1e-7},
        torch.complex128: {"rtol": 1e-7, "atol": 1e-7},
    }.get(dtype, {"rtol": 0, "atol": 0})


def compare(expected, actual, random_result: bool) -> str | None:
    """Describe the first difference of two results, or return None."""
    left, spec_left = tree_flatten(expected)
    right, spec_right = tree_flatten(actual)
    if len(left) != len(right):
        return f"structure {spec_left} against {spec_right}"
    for a, b in zip(left, right, strict=True):
        if isinstance(a, torch.Tensor):
            if not isinstance(b, torch.Tensor):
                return f"a tensor against {b!r}"
            if a.shape != b.shape or a.dtype != b.dtype:
                return f"{a.dtype}{tuple(a.shape)} against {b.dtype}{tuple(b.shape)}"
            if a.layout != b.layout:
                return f"layout {a.layout} against {b.layout}"
            if b.device.type != DEVICE and not (b.device.type == "cpu"):
                return f"result on {b.device}"
            if random_result:
                continue
            try:
                torch.testing.assert_close(
                    b.detach().cpu(),
                    a.detach(),
                    equal_nan=True,
                    check_stride=False,
                    **tolerance(a.dtype),
                )
            except AssertionError as error:
                return str(error).strip().replace("\n", " ")[:300]
        elif isinstance(a, float) and isinstance(b, float):
            if not (a == b or (math.isnan(a) and math.isnan(b)) or random_result):
                if not math.isclose(a, b, rel_tol=2e-5):
                    return f"{a} against {b}"
        elif isinstance(a, torch.device):
            continue
        elif a != b and not random_result and not isinstance(a, (torch.Size, torch.Generator)):
            return f"{a!r} against {b!r}"
    return None


WIDER = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}


def _tensors(result) -> list[torch.Tensor]:
    return [t.detach().cpu() for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor)]


def as_accurate(op, original, expected, actual, backward: bool) -> bool:
    """Tell whether results that differ from cpu's are as near to float64's as cpu's own are.

    Ill-conditioned samples differ by rounding alone; the largest error over each result decides.
    """

    def widen(x):
        if isinstance(x, torch.Tensor) and x.dtype in WIDER:
            return x.detach().to(WIDER[x.dtype]).requires_grad_(x.requires_grad)
        return WIDER.get(x, x) if isinstance(x, torch.dtype) else x

    try:
        sample = tree_map(widen, original)
        reference = _run(op, sample)
        if backward:
            reference = _backward(reference, _leaves(sample))
    except Exception:
        return False
    for want, cpu, ours in zip(
        _tensors(reference), _tensors(expected), _tensors(actual), strict=True
    ):
        if cpu.dtype not in WIDER:
            if not torch.equal(cpu, ours):
                return False
            continue
        if not torch.equal(cpu.isfinite(), ours.isfinite()):
            return False
        finite = cpu.isfinite() & want.isfinite()
        if not finite.any():
            continue
        error = [(t.to(want.dtype) - want)[finite].abs().max() for t in (cpu, ours)]
        unit = torch.finfo(cpu.dtype).eps * want[finite].abs().max()
        if error[1] > 4 * error[0] + unit:
            return False
    return True


def _differentiable(result) -> list[torch.Tensor]:
    return [
        t
        for t in tree_flatten(result)[0]
        if isinstance(t, torch.Tensor) and t.requires_grad and t.layout == torch.strided
    ]


def _leaves(sample) -> list[torch.Tensor]:
    return [
        t
        for t in tree_flatten((sample[0], sample[1], sample[2]))[0]
        if isinstance(t, torch.Tensor) and t.requires_grad
    ]


def _run(op, sample):
    value, args, kwargs = sample
    torch.manual_seed(1234)
    return op(value, *args, **kwargs)


def _backward(result, leaves):
    outputs = _differentiable(result)
    if not outputs or not leaves:
        return None
    grads = []
    for output in outputs:
        torch.manual_seed(7)
        # Drawn alike for every precision, so that results of two can be compared.
        kind = torch.complex64 if output.dtype.is_complex else torch.float32
        grad = torch.randn(output.shape, dtype=kind).to(output.device, output.dtype)
        grads.append(grad)
    return torch.autograd.grad(outputs, leaves, grads, allow_unused=True)


def samples_of(op, dtype: torch.dtype, limit: int | None, grad: bool) -> Iterator:
    """Yield the samples of an op, at most `limit` of them spread by a stride."""
    torch.manual_seed(0)
    random.seed(0)
    # Not op.sample_inputs(): that walks the whole Python stack for every sample, which under pytest
    # takes ten times as long as the sample.
    every = op.sample_inputs_func(op, "cpu", dtype, grad)
    if limit is None:
        yield from enumerate(every)
        return
    yield from itertools.islice(enumerate(every), limit)


def check_op(op, dtype: torch.dtype, limit: int | None, report: Report) -> None:
    """Run one op's samples on both devices."""
    name = op_name(op)
    if name in EXCLUDED or (name, dtype) in EXCLUDED_DTYPES:
        return
    grad = (
        (dtype.is_floating_point or dtype.is_complex)
        and op.supports_autograd
        and dtype in op.supported_backward_dtypes("cpu")
    )
    is_random = op.name in NONDETERMINISTIC
    try:
        samples = list(samples_of(op, dtype, limit, grad))
    except Exception:
        report.skipped_on_cpu += 1
        return
    for index, sample in samples:
        original = (sample.input, sample.args, sample.kwargs)
        cpu = to_device(original, "cpu")
        try:
            ours = to_device(original, DEVICE, _stays_on_cpu(op, original))
        except Exception as error:
            report.failures.append(Failure(name, index, "transfer", _short(error)))
            continue
        cpu_error = None
        try:
            expected = _run(op, cpu)
        except Exception as error:
            cpu_error = error
        report.samples += 1
        try:
            actual = _run(op, ours)
        except Exception as error:
            if cpu_error is None:
                report.failures.append(Failure(name, index, "forward", _short(error)))
            elif type(error) is not type(cpu_error):
                report.failures.append(
                    Failure(name, index, "error", f"{_short(error)} where cpu: {_short(cpu_error)}")
                )
            continue
        if cpu_error is not None:
            report.failures.append(
                Failure(name, index, "no error", f"cpu raises {_short(cpu_error)}")
            )
            continue
        difference = compare(expected, actual, is_random)
        if difference is not None and not as_accurate(op, original, expected, actual, False):
            report.failures.append(Failure(name, index, "forward", difference))
            continue
        if not grad:
            continue
        try:
            expected_grads = _backward(expected, _leaves(cpu))
        except Exception:
            continue
        if expected_grads is None:
            continue
        report.backwards += 1
        try:
            actual_grads = _backward(actual, _leaves(ours))
        except Exception as error:
            report.failures.append(Failure(name, index, "backward", _short(error)))
            continue
        difference = compare(expected_grads, actual_grads, is_random)
        if difference is not None and not as_accurate(
            op, original, expected_grads, actual_grads, True
        ):
            report.failures.append(Failure(name, index, "backward", difference))


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"[
        :260
    ]


def run_database(dtype: torch.dtype, limit: int | None = None, only: str | None = None) -> Report:
    """Run the whole database (or ops whose name contains `only`) for one dtype."""
    report = Report()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
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


if __name__ == "__main__":
    import sys
    import time

    dtype = getattr(torch, sys.argv[1] if len(sys.argv) > 1 else "float32")
    limit = int(sys.argv[2]) if len(sys.argv) > 2 and sys.argv[2] != "all" else None
    start = time.time()
    result = run_database(dtype, limit, sys.argv[3] if len(sys.argv) > 3 else None)
    for failure in result.failures:
        print(failure)
    print(
        f"{dtype}, {hologram_torch.execution.mode()}: {result.samples} samples, "
        f"{result.backwards} backwards, "
        f"{len(result.failures)} failures, {time.time() - start:.1f} s"
    )
