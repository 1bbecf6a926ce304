# SPDX-License-Identifier: MIT
"""PyTorch's own optimizer database: every configuration steps as on cpu, and as in float64."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._internal.common_optimizers import optim_db

from conformance.optimizers import check, configurations, start, variants

D = "hologram"

CASES = [
    pytest.param(info, variant, id="-".join([info.name, *(f"{k}={v}" for k, v in variant.items())]))
    for info in optim_db
    for variant in variants(info)
]


def test_the_database_is_whole() -> None:
    assert len({info.name for info in optim_db}) >= 14
    assert all(configurations(info) for info in optim_db)


@pytest.mark.parametrize(("info", "variant"), CASES)
def test_every_configuration(info: Any, variant: dict[str, bool]) -> None:
    for options in configurations(info):
        check(info, copy.deepcopy({**options, **variant}))


@pytest.mark.parametrize("info", optim_db, ids=lambda i: i.name)
def test_state_goes_from_cpu_to_the_device_and_back(info: Any) -> None:
    params = start(info, torch.float32)
    module = torch.nn.Module()
    for i, p in enumerate(params):
        module.register_parameter(f"p{i}", torch.nn.Parameter(p.detach()))
    if info.step_requires_closure or info.only_supports_sparse_grads:
        pytest.skip("needs a closure, or gradients that are sparse")
    optimizer = info.optim_cls(module.parameters())

    def once() -> None:
        for i, p in enumerate(module.parameters()):
            p.grad = torch.full_like(p, 0.1 * (i + 1))
        optimizer.step()

    once()
    saved = copy.deepcopy(optimizer.state_dict())
    values = copy.deepcopy(module.state_dict())
    once()
    expected = [p.detach().clone() for p in module.parameters()]
    module.to(D)
    module.load_state_dict(values)
    optimizer.load_state_dict(saved)
    for state in optimizer.state.values():
        for name, value in state.items():
            if isinstance(value, Tensor) and name != "step":
                assert value.device.type == D
    once()
    for ours, cpu in zip(module.parameters(), expected, strict=True):
        assert ours.device.type == D
        torch.testing.assert_close(ours.detach().cpu(), cpu)
