# SPDX-License-Identifier: MIT
"""Recurrent layers in traces, whose tensors have no memory and whose sizes may be symbols."""

from __future__ import annotations

import pytest
import torch
from torch._functorch.aot_autograd import aot_module
from torch._functorch.compilers import nop

LAYERS = [torch.nn.RNN, torch.nn.GRU, torch.nn.LSTM]
OPTIONS = [{}, {"num_layers": 2, "batch_first": True}, {"bidirectional": True}]


@pytest.mark.parametrize("symbols", [False, True])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("make", LAYERS)
def test_layers_are_traced(make: type, options: dict, symbols: bool) -> None:
    torch.manual_seed(0)
    layer = make(5, 6, **options).to("hologram")
    traced = aot_module(layer, nop, nop, dynamic=symbols)
    x = torch.randn(4, 3, 5, device="hologram")
    for call in (layer, traced):
        layer.zero_grad()
        given = x.clone().requires_grad_()
        output, _ = call(given)
        output.square().sum().backward()
        found = [output, given.grad, *(p.grad for p in layer.parameters())]
        if call is layer:
            expected = [t.detach().cpu() for t in found]
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.detach().cpu(), theirs, rtol=1e-4, atol=1e-5)
