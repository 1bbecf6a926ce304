# SPDX-License-Identifier: MIT
"""PyTorch's own op database: what works on cpu works on hologram, with the same results."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.opinfo.core import SampleInput

import hologram_torch
from conformance import exceptions, harness

DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.bool,
    torch.complex64,
]
EAGER_DTYPES = (torch.float32, torch.complex64)
MODES = ["deferred", "eager"] if hologram_torch._C.can_defer else ["eager"]
# Fewer compared would mean that the database was not run. All it has of bool is 3,994 samples: cpu
# refuses 39, and the contents of 99 are random or unspecified.
FEWEST = {"quick": 500, "whole": 5000}
FEWEST_OF_BOOL = 3850
FEWEST_ERRORS = 600


@pytest.fixture(autouse=True)
def one_thread():
    """Thousands of tiny ops: on a busy machine OpenMP's barriers would be most of the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def run(dtype: torch.dtype, limit: int | None, fewest: int, mode: str) -> None:
    with hologram_torch.execution(mode):
        report = harness.run_database(dtype, limit)
    assert not report.failures, "\n".join(str(f) for f in report.failures[:40])
    assert report.compared >= fewest


# Deferred in every dtype, and eager in one that is recorded and one that mostly falls back.
QUICK = [
    pytest.param(mode, dtype, marks=[pytest.mark.heavy] if mode == "eager" and not quick else [])
    for mode in MODES
    for dtype, quick in [(d, MODES == ["eager"] or d in EAGER_DTYPES) for d in DTYPES]
]


@pytest.mark.parametrize(("mode", "dtype"), QUICK)
def test_a_few_samples_of_every_op(dtype: torch.dtype, mode: str) -> None:
    run(dtype, 3 if dtype == torch.float32 else 2, FEWEST["quick"], mode)


@pytest.mark.heavy
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d).removeprefix("torch."))
@pytest.mark.parametrize("mode", MODES)
def test_every_sample_of_every_op(dtype: torch.dtype, mode: str) -> None:
    fewest = FEWEST_OF_BOOL if dtype == torch.bool else FEWEST["whole"]
    run(dtype, None, fewest, mode)


@pytest.mark.parametrize("mode", MODES)
def test_what_is_wrong_raises_as_on_cpu(mode: str) -> None:
    with hologram_torch.execution(mode):
        report = harness.run_errors()
    assert not report.failures, "\n".join(str(f) for f in report.failures[:40])
    assert report.raised >= FEWEST_ERRORS


# --- The harness itself ---------------------------------------------------------------------------

# What only other variants, databases or dtypes of CUDA need is not looked at here.
_IN_OP_DB = {harness.op_name(op): op for op in harness.op_db}
LISTED = [
    pytest.param(kind, name, dtype, id=f"{kind}-{name}-{dtype}")
    for kind, names in exceptions.EXCEPTIONS.items()
    for name, (dtypes, _) in names.items()
    for dtype in dtypes
    if name in _IN_OP_DB
    and (dtype == exceptions.ERRORS or dtype in _IN_OP_DB[name].supported_dtypes("cpu"))
]


@pytest.mark.heavy
@pytest.mark.parametrize(("kind", "name", "dtype"), LISTED)
def test_an_exception_is_still_needed(kind: str, name: str, dtype: torch.dtype | str) -> None:
    ops = [op for op in harness.op_db if harness.op_name(op) == name]
    assert ops, f"the database has no {name}"
    report = harness.Report()
    with harness.quiet():
        for op in ops:
            if dtype == exceptions.ERRORS:
                harness.check_errors(op, report)
            else:
                harness.check_op(op, dtype, None, report)
    assert report.excused[kind, name, exceptions.dtype_name(dtype)]


@pytest.mark.parametrize("name", exceptions.RANDOM)
def test_what_is_called_random_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same op on cpu gives other numbers after another seed."""
    seed, differing = torch.manual_seed, 0
    with harness.quiet():
        for op in [op for op in harness.op_db if op.name == name]:
            dtype = next(d for d in DTYPES if d in op.supported_dtypes("cpu"))
            for _, sample in harness.samples_of(op, dtype, 12, False):
                results = []
                for more in (0, 1):
                    arguments = harness.to_device((sample.input, sample.args, sample.kwargs), "cpu")
                    with monkeypatch.context() as patch:
                        patch.setattr(torch, "manual_seed", lambda n, more=more: seed(n + more))
                        results.append(harness.run_op(op, arguments))
                found = harness.differences(*results, False)
                differing += any(kind == "values" for kind, _ in found)
    assert differing


def test_dropout_is_compared_without_its_chance() -> None:
    """Attention's values are compared in samples that would draw."""
    for name in ("multi_head_attention_forward", "scaled_dot_product_attention"):
        op = next(op for op in harness.op_db if op.name == f"nn.functional.{name}")
        for _, sample in harness.samples_of(op, torch.float32, None, True):
            assert [r for _, r in harness.parts_of(op, sample)][-1] is False


class Doctored:
    """An op whose results on the device are changed."""

    variant_test_name, supports_autograd, error_inputs_func = "", True, None

    def __init__(self, change, name: str = "doctored") -> None:
        self.change, self.name = change, name

    def supported_backward_dtypes(self, device: str) -> set[torch.dtype]:
        return {torch.float32}

    def sample_inputs_func(self, op, device: str, dtype: torch.dtype, grad: bool):
        made = [torch.full((2, 3), float(i), dtype=dtype, requires_grad=grad) for i in range(9)]
        return [SampleInput(x) for x in made]

    def __call__(self, x: torch.Tensor):
        result = x.exp() * 2
        return self.change(result) if x.device.type == "hologram" else result


def fail(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("no")


class Wrong(torch.autograd.Function):
    """The identity, with a gradient that `how` changes."""

    @staticmethod
    def forward(ctx, x, how):
        ctx.how = how
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return ctx.how(g), None


CHANGES = {
    "device": lambda x: x.cpu(),
    "values": lambda x: x * (1 + 1e-5),
    "strides": lambda x: x.t().contiguous().t(),
    "offset": lambda x: torch.cat([x[:1], x])[1:],
    "dtype": lambda x: x.double(),
    "shape": lambda x: x[None],
    "layout": lambda x: x.to_sparse(),
    "requires_grad": lambda x: x.detach(),
    "conjugated": lambda x: torch.complex(x, x).conj(),
    "negated": lambda x: torch._neg_view(x),
    "structure": lambda x: (x,),
    "raises": fail,
    "backward raises": lambda x: Wrong.apply(x, fail),
    "backward values": lambda x: Wrong.apply(x, lambda g: g * (1 + 1e-5)),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_the_harness_sees(kind: str) -> None:
    report = harness.Report()
    harness.check_op(Doctored(lambda x: x), torch.float32, None, report)
    assert not report.failures
    assert (report.samples, report.compared, report.backwards) == (9, 9, 9)
    harness.check_op(Doctored(CHANGES[kind]), torch.float32, None, report)
    assert kind in {f.stage for f in report.failures}


def test_the_harness_wants_the_errors_of_cpu() -> None:
    def both(cpu, ours) -> list[str]:
        report = harness.Report()

        class Raising(Doctored):
            def __call__(self, x: torch.Tensor):
                return (ours if x.device.type == "hologram" else cpu)(x)

        harness.check_op(Raising(None), torch.float32, 1, report)
        assert report.samples == 1
        return [f.stage for f in report.failures]

    def other(x: torch.Tensor):
        raise ValueError("yes")

    def another(x: torch.Tensor):
        raise TypeError("no")

    assert both(fail, fail) == []
    assert both(fail, torch.exp) == ["no error"]
    assert both(fail, other) == ["message"]
    assert both(fail, another) == ["error"]
    assert both(lambda x: Wrong.apply(x.exp(), fail), torch.exp) == ["backward no error"]


def test_samples_are_taken_from_first_to_last() -> None:
    op = Doctored(None)
    taken = [i for i, _ in harness.samples_of(op, torch.float32, 3, False)]
    assert taken == [0, 4, 8]
    assert [i for i, _ in harness.samples_of(op, torch.float32, 1, False)] == [0]
    assert [i for i, _ in harness.samples_of(op, torch.float32, 99, False)] == list(range(9))


def test_accuracy_is_that_of_the_format() -> None:
    op, x = Doctored(None), torch.ones(3)
    good, sample = op(x), (x, (), {})
    assert harness.as_accurate(op, sample, good, good, False)
    assert harness.as_accurate(op, sample, good, good * (1 + 2**-22), False)
    assert not harness.as_accurate(op, sample, good, good * (1 + 1e-5), False)
