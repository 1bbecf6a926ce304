# SPDX-License-Identifier: MIT
"""Small models that tests of torch.compile share, and the loop that runs them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

DEVICE = "hologram"
Batch = Callable[[int], Tensor]


class Block(nn.Module):
    """Of a ResNet."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y))
        y += x
        return F.relu(y)


class Gpt(nn.Module):
    """One layer of a GPT-2, its attention written out or PyTorch's."""

    def __init__(self, fused: bool = False, words: int = 50, width: int = 32) -> None:
        super().__init__()
        self.fused = fused
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.randn(64, width) * 0.1)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.register_buffer("mask", torch.ones(64, 64).tril().bool())

    def forward(self, index: Tensor) -> Tensor:
        batch, length = index.shape
        x = self.words(index) + self.places[:length]
        parts = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (t.view(batch, length, 4, -1).transpose(1, 2) for t in parts)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
            y = scores.masked_fill(~self.mask[:length, :length], -math.inf).softmax(-1) @ v
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, -1))
        x = x + self.narrow(F.gelu(self.wide(self.norm2(x)), approximate="tanh"))
        return x @ self.words.weight.T


class Lstm(nn.Module):
    """Dynamo leaves the LSTM to eager code and compiles what follows it."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.out = nn.LSTM(16, 24, num_layers=2, batch_first=True), nn.Linear(24, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y, (h, _) = self.lstm(x)
        return self.out(y), h


class Broken(nn.Module):
    """Writes buffers and views, with a graph break between."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.linear(x)
        self.seen.add_(x.detach().mean(0))
        torch._dynamo.graph_break()
        y = x * 2
        y[:, 1:3] = 1
        y.mul_(self.seen)
        v = y.t()
        return v.contiguous().view(-1)[::2], v[1]


class Random(nn.Module):
    """Draws in four ways."""

    def forward(self, x: Tensor) -> Tensor:
        noise = torch.rand_like(x) + torch.randn(x.shape, device=x.device)
        return F.dropout(x, 0.3) + noise + torch.bernoulli(x.sigmoid())


class Losses(nn.Module):
    """Reductions that are defaults."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y, target = self.linear(x), x[:, :5]
        return (
            F.cross_entropy(y, (x.sum(-1) > 0).long()),
            F.mse_loss(y, target),
            F.smooth_l1_loss(y, target),
            F.binary_cross_entropy_with_logits(y, target.sigmoid()),
        )


class Resampling(nn.Module):
    """Interpolation, which PyTorch would trace as indexing."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = self.conv(x)
        return (
            F.interpolate(y, scale_factor=2.0, mode="bilinear"),
            F.interpolate(y, size=(7, 9), mode="bicubic", align_corners=True),
            F.interpolate(y, scale_factor=1.5, mode="nearest"),
            F.interpolate(y[0], size=5, mode="linear"),
        )


def numbers(*shape: int, grows: tuple[int, ...] = ()) -> Batch:
    """Return what makes the input of a step; each dimension grows by so much."""
    steps = grows or (0,) * len(shape)

    def batch(step: int) -> Tensor:
        sizes = [size + step * more for size, more in zip(shape, steps, strict=True)]
        return torch.randn(sizes, generator=torch.Generator().manual_seed(step))

    return batch


def words(*shape: int, grows: tuple[int, ...] = ()) -> Batch:
    """Return what makes a text of 50 words."""
    make = numbers(*shape, grows=grows)
    return lambda step: (make(step).abs() * 20).long() % 50


def run(
    make: Callable[[], nn.Module],
    batch: Batch,
    *,
    compiled: bool,
    train: bool = True,
    steps: int = 3,
    context: Callable[[], Any] = contextlib.nullcontext,
    **options: Any,
) -> list[Tensor]:
    """Run steps of a model; return results, gradients, parameters, buffers and random state."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = make().to(DEVICE).train(train)
    call = torch.compile(model, **options) if compiled else model
    optimizer = torch.optim.AdamW([*model.parameters(), nn.Parameter(torch.zeros(1))], lr=1e-2)
    torch.hologram.manual_seed(5)
    results: list[Tensor] = []
    for step in range(steps):
        with context():
            out = call(batch(step).to(DEVICE))
        outputs = [out] if isinstance(out, Tensor) else list(out)
        results += [t.detach().clone() for t in outputs]
        followed = [t for t in outputs if t.requires_grad]
        if followed:
            optimizer.zero_grad()
            torch.stack([t.float().square().mean() for t in followed]).sum().backward()
            results += [p.grad.clone() for p in model.parameters() if p.grad is not None]
            optimizer.step()
    return [*results, *model.state_dict().values(), torch.hologram.get_rng_state()]
