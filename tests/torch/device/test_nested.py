# SPDX-License-Identifier: MIT
"""Nested tensors: in inference mode, and what takes a tensor of the cpu beside them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

DEVICE = torch.device("hologram", 0)


def nested(device="cpu"):
    rows = [torch.arange(6.0).view(2, 3), torch.arange(9.0).view(3, 3) + 10]
    return torch.nested.nested_tensor(rows, device=device)


def padded(t):
    return torch.nested.to_padded_tensor(t, -1.0).cpu()


@pytest.mark.parametrize("made_in", ["normal", "inference"])
def test_views_in_inference_mode(made_in):
    with torch.inference_mode(made_in == "inference"):
        ours, expected = nested(DEVICE), nested()
    with torch.inference_mode():
        for view in (lambda t: t.transpose(1, 2), lambda t: t.view(2, -1, 3, 1), lambda t: t + 1):
            found, wanted = view(ours), view(expected)
            assert found.is_inference() == wanted.is_inference()
            for a, b in zip(found.unbind(), wanted.unbind(), strict=True):
                assert torch.equal(a.cpu(), b)
        assert torch.equal(padded(ours), padded(expected))
    assert ours.is_inference() == (made_in == "inference")
    if made_in == "normal":
        before = ours._version
        ours.mul_(2)
        assert ours._version == before + 1
        assert torch.equal(padded(ours)[0, :2], padded(expected)[0, :2] * 2)


def test_gradients_go_through_views():
    found, expected = nested(DEVICE).requires_grad_(), nested().requires_grad_()
    for t in (found, expected):
        torch.nested.to_padded_tensor((t * 2).view(2, -1, 3, 1), 0.0).square().sum().backward()
    assert torch.equal(padded(found.grad), padded(expected.grad))


@pytest.mark.parametrize("fused", [False, True])
def test_the_shapes_of_a_padded_tensor_are_on_cpu(fused):
    sizes = torch.tensor([[2, 4], [3, 4]])
    x = torch.arange(48.0).view(2, 2, 3, 4) if fused else torch.arange(24.0).view(2, 3, 4)
    sizes = torch.tensor([[2, 8], [3, 8]]) if fused else sizes
    expected = torch._nested_from_padded(x, sizes, fused)
    found = torch._nested_from_padded(x.to(DEVICE), sizes, fused)
    assert found.device == DEVICE
    for a, b in zip(found.unbind(), expected.unbind(), strict=True):
        assert torch.equal(a.cpu(), b)


# --- Strided ones, from cpu and back --------------------------------------------------------------


def pieces_of(dtype=torch.float32, lengths=(2, 5, 0, 3)):
    torch.manual_seed(0)
    return [torch.randn(n, 4).to(dtype) for n in lengths]


def strided(pieces):
    return torch.nested.nested_tensor(pieces, layout=torch.strided)


def assert_pieces(found, expected, device=DEVICE):
    assert found.device == torch.device(device)
    found, expected = list(found.unbind()), list(expected.unbind())
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == theirs.dtype and ours.stride() == theirs.stride()
        torch.testing.assert_close(ours.cpu(), theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("lengths", [(2, 5, 0, 3), (1,), ()])
def test_strided_ones_move_both_ways(dtype, lengths):
    there = strided(pieces_of(dtype, lengths)).to(dtype)
    ours = there.to(DEVICE)
    assert ours.is_nested and ours.layout == torch.strided and ours.dtype == dtype
    assert_pieces(ours, there)
    assert_pieces(ours.cpu(), there, "cpu")
    assert_pieces(there.hologram(), there)
    if lengths:
        copied = torch.zeros_like(ours).copy_(there)
        assert_pieces(copied, there)
        back = torch.zeros_like(there)
        assert back.copy_(ours) is back
        assert_pieces(back, there, "cpu")
        assert_pieces(torch.zeros_like(ours).copy_(ours), there)


def test_strided_ones_are_cast():
    there = strided(pieces_of())
    for dtype in (torch.float64, torch.float16, torch.int32, torch.complex64):
        assert_pieces(there.to(DEVICE, dtype), there.to(dtype))
        assert_pieces(there.to(DEVICE).to(dtype), there.to(dtype))
        assert_pieces(there.to(DEVICE).to("cpu", dtype), there.to(dtype), "cpu")
    assert_pieces(there.to(DEVICE).double().float(), there)
    same = there.to(DEVICE)
    assert same.to(DEVICE) is same
    assert same.to(DEVICE, copy=True) is not same


def test_strided_ones_keep_how_they_lie():
    there = strided(pieces_of(lengths=(2, 5, 3))).transpose(1, 2)
    ours = there.to(DEVICE)
    assert not ours.is_contiguous()
    assert_pieces(ours, there)
    assert_pieces(ours.cpu(), there, "cpu")
    packed = there.to(DEVICE, memory_format=torch.contiguous_format)
    assert packed.is_contiguous()
    assert_pieces(packed, there.contiguous())
    assert_pieces(torch.zeros_like(packed).copy_(there), there.contiguous())


def test_what_copies_of_nested_tensors_refuse():
    there = strided(pieces_of())
    ours = there.to(DEVICE)
    with pytest.raises(RuntimeError, match="only supports tensors that are the same size"):
        ours.copy_(strided(pieces_of(lengths=(2, 5, 0, 4))))
    with pytest.raises(RuntimeError, match="expected two nested tensors"):
        ours.copy_(torch.ones(4, 5, 4))
    with pytest.raises(RuntimeError, match="memory_format preserve or contiguous, got Channels"):
        there.to(DEVICE, memory_format=torch.channels_last)


@pytest.mark.parametrize(
    "function",
    [
        lambda t, w: t.to_padded_tensor(-1.0),
        lambda t, w: F.linear(t, w, w[:, 0]),
        lambda t, w: F.layer_norm(t, (4,), w[0], w[1]),
        lambda t, w: torch.softmax(t, -1),
        lambda t, w: F.gelu(t) * 2 + t,
        lambda t, w: torch.matmul(t, t.transpose(1, 2)),
        lambda t, w: F.dropout(t, 0.5, training=False).sum(-1, keepdim=True),
        lambda t, w: t.reshape(3, -1, 2, 2),
    ],
    ids="padded linear layer_norm softmax pointwise matmul sum reshape".split(),
)
def test_strided_ones_compute_as_on_cpu(function):
    results = []
    for device in ("cpu", DEVICE):
        there = strided(pieces_of(lengths=(2, 5, 3))).requires_grad_()
        weight = torch.linspace(-1, 2, 16).view(4, 4).to(device).requires_grad_()
        out = function(there.to(device), weight)
        assert out.device == torch.device(device)
        parts = list(out.unbind())
        sum(part.pow(3).sum() for part in parts).backward()
        assert there.grad.device.type == "cpu"
        results.append([*parts, *there.grad.unbind(), weight.grad])
    for ours, theirs in zip(*reversed(results), strict=True):
        if theirs is None:
            assert ours is None
        else:
            torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("needs_grad", [False, True])
def test_attention_of_strided_ones(needs_grad):
    results = []
    for device in ("cpu", DEVICE):
        torch.manual_seed(3)
        heads = [torch.randn(2, n, 4) for n in (2, 5, 3)]
        there = strided(heads).requires_grad_(needs_grad)
        x = there.to(device)
        out = F.scaled_dot_product_attention(x, x * 2, x + 1)
        parts = list(out.unbind())
        if needs_grad:
            sum(part.square().sum() for part in parts).backward()
            parts += there.grad.unbind()
        results.append(parts)
    for ours, theirs in zip(*reversed(results), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-5, atol=1e-5)


def test_an_encoder_takes_strided_ones():
    torch.manual_seed(4)
    layer = torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()
    there = strided(pieces_of(lengths=(2, 5, 3)))
    with torch.no_grad():
        expected = layer(there)
        assert_pieces(layer.to(DEVICE)(there.to(DEVICE)), expected)


def test_jagged_ones_move_as_before():
    there = torch.nested.nested_tensor(pieces_of(), layout=torch.jagged)
    for found in (there.to(DEVICE), there.to(DEVICE, torch.float64)):
        assert found.device == DEVICE and found.layout == torch.jagged
        assert_pieces(found, there.to(found.dtype))
        assert_pieces(found.cpu(), there.to(found.dtype), "cpu")
