# SPDX-License-Identifier: MIT
"""What a model is, and those written out here: random weights, nothing downloaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.core import Side, Work

Function = Callable[..., Any]


@dataclass
class Model:
    """A model, what it is asked, and how far it is off."""

    module: nn.Module
    inputs: list[Tensor]
    ask: Function = lambda module, *inputs: module(*inputs)
    loss: Function | None = None


def placed(make: Callable[[], Model], side: Side, training: bool = False) -> Model:
    """Make a model after a seed, on cpu, and move it."""
    torch.manual_seed(0)
    model = make()
    model.module = model.module.to(side.device).train(training)
    model.inputs = [t.to(side.device) for t in model.inputs]
    return model


def as_it_is(function: Function) -> Function:
    """Return the function itself: what eager work does with it."""
    return function


def inference_work(
    make: Callable[[], Model],
    side: Side,
    prepare: Callable[[Function], Function] = as_it_is,
    steps: int = 2,
    answers: int = 1,
) -> Work:
    """Return some answers of a model as work; `prepare` may compile what gives them."""
    model = placed(make, side)
    ask = prepare(model.ask)
    ask_all = torch.no_grad()(lambda: [ask(model.module, *model.inputs) for _ in range(steps)])
    return Work(ask_all, steps * answers)


class Block(nn.Module):
    """Two 3 x 3 convolutions and a way around them."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.around: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels:
            self.around = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Apply it."""
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + self.around(x))


def resnet18(classes: int = 1000) -> nn.Module:
    """Return ResNet-18 for images of 224 x 224."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, padding=1),
    ]
    channels = 64
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(channels, width, stride), Block(width, width, 1)]
        channels = width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]
    return nn.Sequential(*layers)


class Attention(nn.Module):
    """Attention over `heads` heads; with a cache, over what came before too."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, cache: tuple[Tensor, Tensor] | None = None, at: int = 0) -> Tensor:
        """Attend; a cache is written from position `at` on."""
        batch, length, width = x.shape
        q, k, v = (
            t.view(batch, length, self.heads, -1).transpose(1, 2)
            for t in self.qkv(x).split(width, -1)
        )
        causal = self.causal
        if cache is not None:
            cache[0][:, :, at : at + length] = k
            cache[1][:, :, at : at + length] = v
            k, v = cache[0][:, :, : at + length], cache[1][:, :, : at + length]
            causal = causal and length > 1
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    """One layer of a transformer: norms before (GPT-2) or after (BERT) each half."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, cache: tuple[Tensor, Tensor] | None = None, at: int = 0) -> Tensor:
        """Apply it."""
        if self.causal:
            x = x + self.attention(self.norm1(x), cache, at)
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Transformer(nn.Module):
    """GPT-2 (causal, with a head that shares the embedding) or BERT's encoder (neither)."""

    def __init__(
        self, vocabulary: int, positions: int, width: int, heads: int, layers: int, causal: bool
    ) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width)
        self.layers = nn.ModuleList(Layer(width, heads, causal) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)

    def forward(
        self, tokens: Tensor, caches: list[tuple[Tensor, Tensor]] | None = None, at: int = 0
    ) -> Tensor:
        """Return logits (GPT-2) or hidden states (BERT)."""
        x = self.tokens(tokens) + self.positions.weight[at : at + tokens.shape[1]]
        if not self.causal:
            x = self.norm(x)
        for index, layer in enumerate(self.layers):
            x = layer(x, caches[index] if caches else None, at)
        return F.linear(self.norm(x), self.tokens.weight) if self.causal else x

    def new_caches(self, batch: int, length: int, device: torch.device) -> list:
        """Return empty caches of keys and values, one pair for each layer."""
        width = self.tokens.weight.shape[1] // self.heads
        shape = (batch, self.heads, length, width)
        return [
            (torch.zeros(shape, device=device), torch.zeros(shape, device=device))
            for _ in self.layers
        ]


def small_gpt() -> Transformer:
    """Return the GPT-2 shape of the targets: 4 layers x 128 wide, 4 heads."""
    return Transformer(1024, 128, 128, heads=4, layers=4, causal=True)


def gpt2() -> Transformer:
    """Return the smallest GPT-2 of those published."""
    return Transformer(50257, 1024, 768, heads=12, layers=12, causal=True)


def bert() -> Transformer:
    """Return the encoder of BERT base."""
    return Transformer(30522, 512, 768, heads=12, layers=12, causal=False)


class States(nn.LSTM):
    """An LSTM that answers with the states of its last layer alone."""

    def forward(self, x: Tensor) -> Any:  # type: ignore[override]
        """Apply it."""
        return super().forward(x)[0]


def lstm() -> States:
    """Return two layers of LSTM, 128 to 256 wide."""
    return States(128, 256, num_layers=2)


def mlp(*widths: int) -> Callable[[], nn.Module]:
    """Return what makes linear layers of these widths, with ReLU between them."""

    def make() -> nn.Module:
        layers = [m for a, b in pairwise(widths) for m in (nn.ReLU(), nn.Linear(a, b))]
        return nn.Sequential(*layers[1:])

    return make


def cnn() -> nn.Module:
    """Return two convolutions and two linear layers for images of 8 x 8."""
    convolutions = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1)]
    pooled = [nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*convolutions, *pooled, *mlp(32 * 4 * 4, 64, 10)())
