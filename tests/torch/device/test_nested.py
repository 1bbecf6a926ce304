# SPDX-License-Identifier: MIT
"""Nested tensors: in inference mode, and what takes a tensor of the cpu beside them."""

from __future__ import annotations

import pytest
import torch

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
