# SPDX-License-Identifier: MIT
"""PyTorch's own module database: modules made on cpu and moved compute and train as they did."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing._internal.common_modules import module_db

from conformance.modules import check_input, inputs_of

# Fewer would mean that the database was not run.
FEWEST = 105

CASES = [
    pytest.param(info, training, id=f"{info.name}-{'train' if training else 'eval'}")
    for info in module_db
    for training in ((True, False) if info.train_and_eval_differ else (True,))
    if torch.float32 in info.dtypes
]


def test_the_database_is_whole() -> None:
    assert len(CASES) >= FEWEST


@pytest.mark.parametrize(("info", "training"), CASES)
def test_one_input_of_every_module(info: Any, training: bool) -> None:
    check_input(info, inputs_of(info, training)[0], 0, training)


@pytest.mark.heavy
@pytest.mark.parametrize(("info", "training"), CASES)
def test_every_input_of_every_module(info: Any, training: bool) -> None:
    for k, given in enumerate(inputs_of(info, training)):
        check_input(info, given, k, training)
