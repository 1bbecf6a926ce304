# SPDX-License-Identifier: MIT
"""Collectives, point to point, objects and groups, in two ranks and in four."""

from __future__ import annotations

import pytest
from distributed.ranks import case_names, run_ranks

MODULE = "cases_collectives"


@pytest.fixture(scope="module")
def faults_of_two() -> dict[str, str]:
    return run_ranks(MODULE, 2)


@pytest.fixture(scope="module")
def faults_of_four() -> dict[str, str]:
    return run_ranks(MODULE, 4)


@pytest.mark.parametrize("case", case_names(MODULE))
def test_two_ranks(case: str, faults_of_two: dict[str, str]) -> None:
    assert not faults_of_two[case], faults_of_two[case]


@pytest.mark.heavy
@pytest.mark.parametrize("case", case_names(MODULE))
def test_four_ranks(case: str, faults_of_four: dict[str, str]) -> None:
    assert not faults_of_four[case], faults_of_four[case]
