# SPDX-License-Identifier: MIT
"""Which tests every row of `make test-matrix` runs, and which files are long and so begin first."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# `import torch` brings the device along also beside a GPU, here and in the processes of tests.
os.environ.setdefault("HOLOGRAM_AUTOLOAD", "1")

TESTS = Path(__file__).resolve().parent

# Deferred beside eager execution, walks of bits, random programs, and the database of operators.
MATRIX = (
    "bits/",
    "sdk/test_random_programs.py",
    "torch/conformance/test_opinfo.py::test_a_few_samples_of_every_op",
    "torch/execution/",
    "torch/programs/",
)

# Two workers take whole files, in this order: a long one at the end would keep the other waiting.
LONGEST = (
    "torch/device/test_second_device.py",
    "torch/conformance/test_opinfo.py",
    "torch/soak/test_failures.py",
    "torch/programs/test_programs.py",
    "bench/test_bench.py",
    "torch/device/test_run.py",
    "torch/compile/test_backend.py",
    "bench/test_bench_runs.py",
    "torch/device/test_limits.py",
    "torch/ops/test_native_elementwise.py",
    "torch/ops/test_packed.py",
    "sdk/test_dlpack.py",
    "torch/compile/test_flex_attention.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the matrix, and put the long files first."""
    ranks = {name: rank for rank, name in enumerate(LONGEST)}
    names = {item.path: item.path.relative_to(TESTS).as_posix() for item in items}
    for item in items:
        if f"{names[item.path]}::{item.name}".startswith(MATRIX):
            item.add_marker(pytest.mark.matrix)
    items.sort(key=lambda item: ranks.get(names[item.path], len(ranks)))
