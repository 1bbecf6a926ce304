# SPDX-License-Identifier: MIT
"""Recurrent layers: whole where no gradient is asked for, in steps otherwise; both agree with cpu."""

from __future__ import annotations

import contextlib
import copy

import hologram_torch  # noqa: F401
import pytest
import torch

KINDS = {
    "plain": {},
    "two layers": {"num_layers": 2},
    "both ways, batch first": {"bidirectional": True, "batch_first": True},
    "without bias": {"bias": False},
    "projected": {"proj_size": 8},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("mode", ["no_grad", "inference_mode", "enable_grad"])
def test_lstm_agrees_with_cpu(kind: str, dtype: torch.dtype, mode: str) -> None:
    torch.manual_seed(0)
    cpu = torch.nn.LSTM(16, 32, **KINDS[kind]).to(dtype).eval()
    ours = copy.deepcopy(cpu).to("hologram")
    x = torch.randn(5, 3, 16, dtype=dtype)
    with getattr(torch, mode)():
        expected, (h, c) = cpu(x)
        actual, (our_h, our_c) = ours(x.to("hologram"))
    tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-5
    for want, got in ((expected, actual), (h, our_h), (c, our_c)):
        assert got.device.type == "hologram"
        torch.testing.assert_close(got.cpu(), want, atol=tolerance, rtol=tolerance)


def test_lstm_under_autocast_has_the_dtype_of_steps() -> None:
    layer = torch.nn.LSTM(8, 8).to("hologram").eval()
    x = torch.randn(4, 2, 8, device="hologram")
    with torch.no_grad(), torch.autocast("hologram", dtype=torch.bfloat16):
        whole = layer(x)[0].dtype
    with torch.autocast("hologram", dtype=torch.bfloat16):
        steps = layer(x)[0].dtype
    assert whole == steps


@pytest.mark.parametrize("train", [False, True])
def test_lstm_dropout_uses_the_generator_of_the_device(train: bool) -> None:
    layer = torch.nn.LSTM(8, 8, num_layers=2, dropout=0.5).to("hologram").train(train)
    x = torch.randn(4, 2, 8, device="hologram")
    results = []
    for gradients in (contextlib.nullcontext, torch.no_grad):
        torch.hologram.manual_seed(3)
        with gradients():
            results.append(layer(x)[0].detach().cpu())
    torch.testing.assert_close(*results)


def test_lstm_gradients_agree_with_cpu() -> None:
    torch.manual_seed(0)
    cpu = torch.nn.LSTM(6, 5, num_layers=2).double()
    ours = copy.deepcopy(cpu).to("hologram")
    x = torch.randn(4, 3, 6, dtype=torch.float64)
    cpu(x)[0].sin().sum().backward()
    ours(x.to("hologram"))[0].sin().sum().backward()
    for want, got in zip(cpu.parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(got.grad.cpu(), want.grad)
