# SPDX-License-Identifier: MIT
"""What attention and encoder layers call without gradients, against cpu."""

from __future__ import annotations

import copy

import pytest
import torch
from native_compare import DEVICE, check, check_native, values
from torch import Tensor, nn

import hologram_torch


def _ask(layer: nn.Module, *inputs: Tensor, native: bool = True, **options: object) -> None:
    """Compare a layer on both devices, without gradients."""
    layers = {True: layer.eval(), False: copy.deepcopy(layer).to(DEVICE).eval()}

    def run(*inputs: Tensor) -> object:
        with torch.no_grad():
            return layers[inputs[0].is_cpu](*inputs, **options)

    (check_native if native else check)(run, *inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_encoder_layer(
    dtype: torch.dtype, activation: str, norm_first: bool, batch_first: bool
) -> None:
    layer = nn.TransformerEncoderLayer(
        24, 4, 40, activation=activation, norm_first=norm_first, batch_first=batch_first
    ).to(dtype)
    for shape in [(2, 7, 24), (1, 1, 24), (3, 130, 24)]:
        _ask(layer, values(*shape, dtype=dtype))


def test_the_fast_path_is_taken() -> None:
    layer = nn.TransformerEncoderLayer(24, 4, 40, batch_first=True).to(DEVICE).eval()
    x = values(2, 7, 24).to(DEVICE)
    with torch.no_grad(), hologram_torch.execution("deferred"):
        text = str(hologram_torch.explain(lambda: layer(x)))
    assert "_transformer_encoder_layer_fwd" in text
    assert "0 cpu kernels ran" in text
    assert "attention" in text


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("average", [False, True])
def test_multi_head_attention(dtype: torch.dtype, need_weights: bool, average: bool) -> None:
    layer = nn.MultiheadAttention(16, 4, batch_first=True).to(dtype)
    nn.init.normal_(layer.in_proj_bias)
    options = {"need_weights": need_weights, "average_attn_weights": average}
    x = values(2, 9, 16, dtype=dtype)
    _ask(layer, x, x, x, **options)
    # The operator itself takes three tensors, too.
    others = [values(2, 9, 16, dtype=dtype, seed=seed) for seed in (1, 2, 3)]

    def call(*tensors: Tensor) -> object:
        parameters = (layer.in_proj_weight, layer.in_proj_bias, layer.out_proj.weight)
        given = [p.detach().to(x.device) for p in (*parameters, layer.out_proj.bias)]
        return torch._native_multi_head_attention(
            *tensors, 16, 4, *given, None, need_weights, average
        )

    x = others[0]
    expected = call(*others)
    x = x.to(DEVICE)
    result = call(*(t.to(DEVICE) for t in others))
    torch.testing.assert_close(result[0].cpu(), expected[0])
    if need_weights:
        torch.testing.assert_close(result[1].cpu(), expected[1])
    else:
        assert result[1] is None


def test_what_is_left_to_cpu() -> None:
    layer = nn.TransformerEncoderLayer(24, 4, 40, batch_first=True)
    x = values(2, 7, 24)
    masked = torch.zeros(7, 7).masked_fill(torch.ones(7, 7).triu(1) > 0, -torch.inf)
    _ask(layer, x, native=False, src_mask=None)
    with torch.no_grad():
        expected = layer.eval()(x, src_mask=masked)
        on_device = copy.deepcopy(layer).to(DEVICE)
        torch.testing.assert_close(on_device(x.to(DEVICE), masked.to(DEVICE)).cpu(), expected)
        padding = torch.tensor([[False] * 7, [False] * 5 + [True] * 2])
        encoder = nn.TransformerEncoder(layer, 2).eval()
        expected = encoder(x, src_key_padding_mask=padding)
        result = copy.deepcopy(encoder).to(DEVICE)(
            x.to(DEVICE), src_key_padding_mask=padding.to(DEVICE)
        )
        torch.testing.assert_close(result.cpu(), expected)
    # Errors are PyTorch's.
    attention = nn.MultiheadAttention(16, 4)
    bad = [p.detach().to(DEVICE) for p in attention.parameters()]
    query = values(2, 9, 12).to(DEVICE)
    with pytest.raises(RuntimeError, match="passed-in embed_dim 16 didn't match last dim of query"):
        torch._native_multi_head_attention(query, query, query, 16, 4, *bad)


def test_training_goes_by_the_parts() -> None:
    layer = nn.TransformerEncoderLayer(24, 4, 40, dropout=0, batch_first=True)
    on_device = copy.deepcopy(layer).to(DEVICE)
    x = values(2, 7, 24)
    for mode in (True, False):
        expected, result = layer.train(mode)(x), on_device.train(mode)(x.to(DEVICE))
        torch.testing.assert_close(result.cpu(), expected)
        gradients = torch.autograd.grad(expected.square().sum(), list(layer.parameters()))
        others = torch.autograd.grad(result.square().sum(), list(on_device.parameters()))
        for a, b in zip(gradients, others, strict=True):
            torch.testing.assert_close(b.cpu(), a, rtol=1e-4, atol=1e-4)
