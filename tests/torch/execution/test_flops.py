# SPDX-License-Identifier: MIT
"""FlopCounterMode counts what it counts on cpu."""

from __future__ import annotations

import pytest
import torch
from execution.dispatch_cases import CASES, run
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import hologram_torch


# On cpu an LSTM is one operator of oneDNN, of which nothing is counted.
@pytest.mark.parametrize("name", [name for name in CASES if name != "LSTM"])
def test_flops_are_those_of_cpu(name: str) -> None:
    counted = []
    for device in ("cpu", "hologram"):
        run(name, device, True, counter := FlopCounterMode(display=False))
        counted.append(counter.get_total_flops())
    assert counted[1] == counted[0]


def test_flops_of_a_product_with_a_weight_of_four_bits() -> None:
    model = nn.Sequential(nn.Linear(32, 64)).to("hologram")
    x = torch.randn(3, 32).to("hologram")
    hologram_torch.quantize_(model, "int4", group_size=32)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(x)
    assert counter.get_total_flops() == 2 * 3 * 32 * 64
