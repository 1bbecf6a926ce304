# SPDX-License-Identifier: MIT
"""The products of a program alone: which there are, and that calling them again computes them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
import torch.nn.functional as F
from bench_support import FAST, keep_threads  # noqa: F401
from torch import Tensor, nn

from bench.core import Work, make_side, tensors_of
from bench.measure import take_turns
from bench.products import PRODUCTS, Products, limit


def names(products: Products) -> Counter[str]:
    """Return how often each operator is called."""
    found: Counter[str] = Counter()
    for product, count in products.counts.items():
        found[product.operator.overloadpacket.__name__] += count
    return found


def test_products_of_layers_are_found() -> None:
    torch.manual_seed(0)
    conv, linear = nn.Conv2d(3, 4, 3), nn.Linear(16, 16)
    image, q = torch.randn(2, 3, 8, 8), torch.randn(2, 4, 16)

    def step() -> None:
        attended = F.scaled_dot_product_attention(linear(q), q, q)
        (conv(image).sum() + attended.square().sum()).backward()

    found = names(Products.of(step))
    assert found == {
        "convolution": 1,
        "convolution_backward": 1,
        "mm": 2,  # linear and the gradient of its weight: its input has none
        "bmm": 4,  # two of attention, and what reaches its queries
    }


def test_recurrent_layers_and_encoders_are_taken_apart() -> None:
    lstm = nn.LSTM(8, 8)
    encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    with torch.no_grad():
        assert sum(names(Products.of(lambda: lstm(torch.randn(5, 2, 8)))).values()) == 6
        assert names(Products.of(lambda: encoder(torch.randn(2, 5, 8)))) == {"mm": 4, "bmm": 2}
    assert torch.backends.mha.get_fastpath_enabled()


def test_products_are_made_again_as_they_were() -> None:
    seen: list[tuple[Any, ...]] = []
    a = torch.randn(6, 4).T
    products = Products.of(lambda: torch.addmm(torch.zeros(5), a, torch.randn(6, 5)))
    ((product, count),) = products.counts.items()
    assert count == 1
    assert product.operator == torch.ops.aten.mm.default
    assert [like.size for like in product.arguments] == [(4, 6), (6, 5)]
    for name in ("cpu", "hologram"):
        side = make_side(name)
        result = product.call(side)()
        assert isinstance(result, Tensor)
        assert result.device.type == name
        assert result.shape == (4, 5)
        seen.append(tuple(like.make(side).stride() for like in product.arguments))
    assert seen == [(a.stride(), (5, 1))] * 2


def test_the_limit_is_of_all_products() -> None:
    weight = torch.randn(32, 32)
    device = make_side("hologram")

    def build(side: Any) -> Work:
        x, w = torch.randn(8, 32, device=side.device), weight.to(side.device)
        return Work(lambda: [x @ w, x @ w, (x @ w).T @ x], 2)

    peer = limit(build, device)
    assert peer.name == PRODUCTS
    assert peer.is_limit
    work, side = peer.build()
    assert side is device
    assert work.ops == 2
    assert sorted(tuple(t.shape) for t in tensors_of(work.run())) == 3 * [(8, 32)] + [(32, 32)]
    assert all(t > 0 for turns in take_turns([(work, side)], FAST) for t in turns)
