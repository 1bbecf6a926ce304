# SPDX-License-Identifier: MIT
"""What PyTorch refuses is refused here, too: by the same type of exception, at the call."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from native_compare import DEVICE
from torch.testing._internal.common_modules import ModuleErrorEnum, module_db

import hologram_torch
from conformance import harness, wrong
from conformance.exceptions import WRONG

MODES = ["deferred", "eager"] if hologram_torch._C.can_defer else ["eager"]
# Fewer would mean that nothing was tried.
FEWEST, FEWEST_RAISED = 2000, 1000


@pytest.fixture(autouse=True)
def one_thread():
    """Thousands of tiny ops: on a busy machine OpenMP's barriers would be most of the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def run(samples: int, step: int) -> harness.Report:
    report = harness.Report()
    with harness.quiet():
        for op in harness.op_db:
            wrong.check_op(op, samples, step, report)
    assert not report.failures, "\n".join(str(f) for f in report.failures[:40])
    return report


def test_some_changes_of_a_sample_of_every_op() -> None:
    report = run(1, 4)
    assert report.samples >= FEWEST
    assert report.raised >= FEWEST_RAISED


@pytest.mark.heavy
@pytest.mark.parametrize("mode", MODES)
def test_every_change_of_two_samples_of_every_op(mode: str) -> None:
    with hologram_torch.execution(mode):
        report = run(2, 1)
    assert report.samples >= 6 * FEWEST
    needed = {name for _, name, _ in report.excused}
    assert needed == set(WRONG), f"not needed: {set(WRONG) - needed}"


def test_tensors_of_two_devices() -> None:
    report = harness.Report()
    with harness.quiet():
        for op in harness.op_db:
            wrong.check_mixed_devices(op, report)
    assert not report.failures, "\n".join(str(f) for f in report.failures[:40])
    assert report.raised >= 300


MODULES = [
    pytest.param(info, id=info.name)
    for info in module_db
    if info.module_error_inputs_func is not None and torch.float32 in info.dtypes
]


@pytest.mark.parametrize("info", MODULES)
def test_what_modules_refuse(info: Any) -> None:
    def raised(given: Any, device: str) -> type | None:
        def call() -> None:
            made = given.constructor_input
            module = info.module_cls(*made.args, **made.kwargs).to(device)
            if given.forward_input is not None:
                inputs = (given.forward_input.args, given.forward_input.kwargs)
                args, kwargs = harness.to_device(inputs, device)
                module(*args, **kwargs)

        return type(harness.attempt(call)[1])

    wrongs = info.module_error_inputs_func(info, "cpu", torch.float32, False, True)
    assert wrongs
    for one in wrongs:
        expected = raised(one.module_error_input, "cpu")
        assert issubclass(expected, one.error_type)
        assert raised(one.module_error_input, DEVICE) is expected
        assert one.error_on in ModuleErrorEnum
