# SPDX-License-Identifier: MIT
"""What attention and encoder layers call without gradients, against cpu."""

from __future__ import annotations

import copy

import pytest
import torch
from native_compare import DEVICE, check_native, values
from torch import Tensor, nn

import hologram_torch


def _ask(layer: nn.Module, *inputs: Tensor, **options: object) -> None:
    """Compare a layer on both devices, without gradients."""
    layers = {True: layer.eval(), False: copy.deepcopy(layer).to(DEVICE).eval()}

    def run(*inputs: Tensor) -> object:
        with torch.no_grad():
            return layers[inputs[0].is_cpu](*inputs, **options)

    check_native(run, *inputs)


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


def _causal(length: int) -> Tensor:
    return torch.ones(length, length).triu(1) > 0


def _padding(*lengths: int) -> Tensor:
    return torch.arange(max(lengths))[None] >= torch.tensor(lengths)[:, None]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize(
    "masks",
    [
        {"src_mask": _causal(7)},
        {"src_mask": torch.zeros(7, 7).masked_fill(_causal(7), -torch.inf)},
        {"src_key_padding_mask": _padding(7, 3)},
        {"src_key_padding_mask": torch.zeros(2, 7).masked_fill(_padding(7, 3), -torch.inf)},
        {"src_mask": _causal(7), "src_key_padding_mask": _padding(4, 7)},
        # All of a text, and some rows: NaN, as on cpu.
        {"src_key_padding_mask": _padding(7, 0)},
        {"src_mask": torch.ones(7, 7).tril(-2) == 0},
    ],
)
def test_encoder_layer_with_masks(
    dtype: torch.dtype, norm_first: bool, masks: dict[str, Tensor]
) -> None:
    layer = nn.TransformerEncoderLayer(24, 4, 40, norm_first=norm_first, batch_first=True)
    layer = layer.to(dtype).eval()
    x = values(2, 7, 24, dtype=dtype)
    on_device = copy.deepcopy(layer).to(DEVICE)
    given = {name: mask.to(DEVICE) for name, mask in masks.items()}
    with torch.no_grad():
        explained = hologram_torch.explain(lambda: on_device(x.to(DEVICE), **given))
        torch.testing.assert_close(explained.result.cpu(), layer(x, **masks), equal_nan=True)
    assert "_transformer_encoder_layer_fwd" in str(explained.ops)
    assert not any("encoder" in name or "softmax" in name for name in explained.fallbacks)


@pytest.mark.parametrize("average", [False, True])
def test_attention_weights_with_masks(average: bool) -> None:
    layer = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    on_device = copy.deepcopy(layer).to(DEVICE)
    x = values(2, 9, 16)
    for masks in ({"attn_mask": _causal(9)}, {"key_padding_mask": _padding(9, 4)}):
        options = {"need_weights": True, "average_attn_weights": average}
        with torch.no_grad():
            expected = layer(x, x, x, **masks, **options)
            y = x.to(DEVICE)
            given = {name: mask.to(DEVICE) for name, mask in masks.items()}
            result = on_device(y, y, y, **given, **options)
        for a, b in zip(result, expected, strict=True):
            torch.testing.assert_close(a.cpu(), b)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("lengths", [(7, 3, 5), (1, 7, 7), (7, 7, 7), (7,), (7, 0, 2)])
def test_encoder_of_texts_of_different_lengths(
    dtype: torch.dtype, norm_first: bool, lengths: tuple[int, ...]
) -> None:
    # The encoder makes a nested tensor of them, unless norms come first.
    layer = nn.TransformerEncoderLayer(24, 4, 40, norm_first=norm_first, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=not norm_first)
    encoder = encoder.to(dtype).eval()
    on_device = copy.deepcopy(encoder).to(DEVICE)
    x, padding = values(len(lengths), 7, 24, dtype=dtype), _padding(*lengths)
    with torch.no_grad():
        expected = encoder(x, src_key_padding_mask=padding)
        explained = hologram_torch.explain(
            lambda: on_device(x.to(DEVICE), src_key_padding_mask=padding.to(DEVICE))
        )
    torch.testing.assert_close(explained.result.cpu(), expected, equal_nan=True)
    assert not any("encoder" in name for name in explained.fallbacks)


def test_a_layer_of_a_nested_tensor() -> None:
    layer = nn.TransformerEncoderLayer(24, 4, 40, batch_first=True).eval()
    on_device = copy.deepcopy(layer).to(DEVICE)
    rows = [values(length, 24, seed=length) for length in (4, 1, 6)]
    with torch.no_grad():
        expected = layer(torch.nested.nested_tensor(rows))
        result = on_device(torch.nested.nested_tensor([row.to(DEVICE) for row in rows]))
    assert result.is_nested
    assert result.device == on_device.linear1.weight.device
    for a, b in zip(result.unbind(), expected.unbind(), strict=True):
        torch.testing.assert_close(a.cpu(), b)


def test_errors_are_those_of_pytorch() -> None:
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
