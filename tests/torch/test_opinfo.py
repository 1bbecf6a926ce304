# SPDX-License-Identifier: MIT
"""PyTorch's own op database: what works on cpu works on hologram, with the same results."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

import hologram_torch

_spec = importlib.util.spec_from_file_location(
    "opinfo_harness", Path(__file__).with_name("opinfo_harness.py")
)
harness = importlib.util.module_from_spec(_spec)
__import__("sys").modules["opinfo_harness"] = harness
_spec.loader.exec_module(harness)

DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.bool,
    torch.complex64,
]
MODES = ["deferred", "eager"] if hologram_torch._C.can_defer else ["eager"]
# Fewer would mean that the database was not run. All that it has of bool is 3,993 samples.
FEWEST = {"quick": 500, "whole": 5000}
FEWEST_OF_BOOL = 3900


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
    assert report.samples >= fewest


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d).removeprefix("torch."))
@pytest.mark.parametrize("mode", MODES)
def test_a_few_samples_of_every_op(dtype: torch.dtype, mode: str) -> None:
    run(dtype, 3 if dtype == torch.float32 else 2, FEWEST["quick"], mode)


@pytest.mark.heavy
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d).removeprefix("torch."))
@pytest.mark.parametrize("mode", MODES)
def test_every_sample_of_every_op(dtype: torch.dtype, mode: str) -> None:
    fewest = FEWEST_OF_BOOL if dtype == torch.bool else FEWEST["whole"]
    run(dtype, None, fewest, mode)


def test_the_harness_sees_a_wrong_result() -> None:
    good = torch.ones(3)
    assert harness.compare(good, good.to("hologram"), False) is None
    assert harness.compare(good, (good + 1e-3).to("hologram"), False) is not None
    assert harness.compare(good, torch.ones(4, device="hologram"), True) is not None
    sample = (good, (), {})
    wrong = good.exp() * (1 + 1e-4)
    assert harness.as_accurate(torch.exp, sample, good.exp(), good.exp(), False)
    assert not harness.as_accurate(torch.exp, sample, good.exp(), wrong, False)
