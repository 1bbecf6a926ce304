# SPDX-License-Identifier: MIT
"""Modules and functions whose operators are compared with cpu's: what makes one, and its inputs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Case = tuple[Callable[[], nn.Module], tuple[Tensor, ...]]

CASES: dict[str, Case] = {}


class Call(nn.Module):
    """A function of parameters of these shapes, then of what the module is called with."""

    def __init__(self, function: Callable[..., Tensor], *shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.function = function
        self.operands = nn.ParameterList(nn.Parameter(torch.randn(s)) for s in shapes)

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*self.operands, *inputs)


class Packed(nn.Module):
    """A recurrent network of sequences of two lengths."""

    def __init__(self, kind: Callable[[int, int], nn.Module]) -> None:
        super().__init__()
        self.network = kind(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3]))
        return nn.utils.rnn.pad_packed_sequence(self.network(packed)[0])[0]


def tensors_of(result) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    return [t for part in result or () for t in tensors_of(part)]


def run(name: str, device: str, backward: bool, mode: contextlib.AbstractContextManager) -> None:
    """Run a case under a mode; its parameters and inputs are made before."""
    make, inputs = CASES[name]
    torch.manual_seed(1)
    model, inputs = make().to(device), [t.to(device) for t in inputs]
    with mode, torch.set_grad_enabled(backward):
        results = tensors_of(model(*inputs))
        if backward:
            results = [t for t in results if t.requires_grad]
            torch.autograd.backward(results, [torch.ones_like(t) for t in results])


def _module(name: str, make: Callable[[], nn.Module], *shape: int) -> None:
    CASES[name] = (make, (torch.randn(shape),))


def _function(
    name: str, function: Callable[..., Tensor], shapes: list[tuple[int, ...]], *inputs: Tensor
) -> None:
    CASES[name] = (lambda: Call(function, *shapes), inputs)


def _modules() -> None:
    _module("Linear", lambda: nn.Linear(4, 5), 3, 4)
    _module("Linear, 3-d", lambda: nn.Linear(4, 5), 2, 3, 4)
    _module("Linear without bias", lambda: nn.Linear(4, 5, bias=False), 2, 3, 4)
    _module("Conv1d", lambda: nn.Conv1d(2, 3, 3), 2, 2, 8)
    _module("Conv2d", lambda: nn.Conv2d(2, 4, 3, groups=2), 2, 2, 8, 8)
    _module("Conv3d", lambda: nn.Conv3d(2, 3, 3), 2, 2, 6, 6, 6)
    _module("ConvTranspose2d", lambda: nn.ConvTranspose2d(2, 3, 3), 2, 2, 6, 6)
    _module("MaxPool2d", lambda: nn.MaxPool2d(2), 2, 2, 8, 8)
    _module("AvgPool2d", lambda: nn.AvgPool2d(2), 2, 2, 8, 8)
    _module("AdaptiveAvgPool2d", lambda: nn.AdaptiveAvgPool2d(3), 2, 2, 8, 8)
    _module("BatchNorm2d", lambda: nn.BatchNorm2d(2), 2, 2, 8, 8)
    _module("BatchNorm2d, eval", lambda: nn.BatchNorm2d(2).eval(), 2, 2, 8, 8)
    _module("InstanceNorm2d", lambda: nn.InstanceNorm2d(2), 2, 2, 8, 8)
    _module("LayerNorm", lambda: nn.LayerNorm(4), 2, 3, 4)
    _module("RMSNorm", lambda: nn.RMSNorm(4), 2, 3, 4)
    _module("GroupNorm", lambda: nn.GroupNorm(2, 4), 2, 4, 3)
    _module("Dropout", lambda: nn.Dropout(0.5), 2, 4, 3)
    _module("GELU", nn.GELU, 2, 3, 4)
    _module("SiLU", nn.SiLU, 2, 3, 4)
    _module("PReLU", nn.PReLU, 2, 3, 4)
    _module("GLU", nn.GLU, 2, 4)
    _module("LogSoftmax", lambda: nn.LogSoftmax(-1), 2, 4)
    _module("LSTM", lambda: nn.LSTM(3, 4), 5, 2, 3)
    _module("GRU", lambda: nn.GRU(3, 4), 5, 2, 3)
    _module("RNN", lambda: nn.RNN(3, 4), 5, 2, 3)
    _module("RNN, relu", lambda: nn.RNN(3, 4, nonlinearity="relu", bidirectional=True), 5, 2, 3)
    _module("packed RNN", lambda: Packed(nn.RNN), 5, 2, 3)
    _module("packed GRU", lambda: Packed(nn.GRU), 5, 2, 3)
    _module("LSTMCell", lambda: nn.LSTMCell(3, 4), 5, 3)
    _module("RNNCell", lambda: nn.RNNCell(3, 4), 5, 3)
    layer = (8, 2, 16, 0.0)
    _module(
        "TransformerEncoderLayer",
        lambda: nn.TransformerEncoderLayer(*layer, batch_first=True),
        *(2, 5, 8),
    )
    _module(
        "TransformerEncoderLayer, eval",
        lambda: nn.TransformerEncoderLayer(*layer, batch_first=True).eval(),
        *(2, 5, 8),
    )
    three = tuple(torch.randn(2, 5, 8) for _ in range(3))
    CASES["MultiheadAttention"] = (lambda: nn.MultiheadAttention(8, 2, batch_first=True), three)
    CASES["TransformerDecoderLayer"] = (
        lambda: nn.TransformerDecoderLayer(*layer, batch_first=True),
        three[:2],
    )
    CASES["Embedding"] = (lambda: nn.Embedding(10, 4), (torch.randint(10, (3, 2)),))
    CASES["Bilinear"] = (lambda: nn.Bilinear(4, 5, 3), (torch.randn(2, 4), torch.randn(2, 5)))


def _attention() -> None:
    heads, sdpa = (2, 2, 5, 4), F.scaled_dot_product_attention
    below = torch.ones(5, 5, dtype=torch.bool).tril()
    _function("attention", sdpa, [heads] * 3)
    _function("attention, causal", lambda *t: sdpa(*t, is_causal=True), [heads] * 3)
    _function("attention, mask", sdpa, [heads] * 3, below)
    _function("attention, mask of 3-d", sdpa, [heads] * 3, below.expand(2, 5, 5))
    shared = [(2, 4, 5, 4), heads, heads]
    _function("attention, shared keys", lambda *t: sdpa(*t, enable_gqa=True), shared)
    _function("attention, wide values", sdpa, [heads, heads, (2, 2, 5, 6)])
    _function("attention, learned mask", sdpa, [heads] * 3 + [(5, 5)])
    _function("attention, dropout", lambda *t: sdpa(*t, dropout_p=0.1), [heads] * 3)


def _functions() -> None:
    _function("linear, weight of 1-d", F.linear, [(3, 4), (4,)])
    _function("linear, input of 1-d", F.linear, [(4,), (5, 4), (5,)])
    _function("matmul, 2-d", torch.matmul, [(3, 4), (4, 5)])
    _function("matmul, 3-d and 2-d", torch.matmul, [(2, 3, 4), (4, 5)])
    _function("matmul, 4-d", torch.matmul, [(2, 2, 3, 4), (2, 2, 4, 5)])
    _function("matmul, vector", torch.matmul, [(3, 4), (4,)])
    _function("einsum", lambda a, b: torch.einsum("bij,bjk->bik", a, b), [(2, 3, 4), (2, 4, 5)])
    _function("addmm", torch.addmm, [(5,), (3, 4), (4, 5)])
    _function("baddbmm", torch.baddbmm, [(2, 3, 5), (2, 3, 4), (2, 4, 5)])
    classes, soft = torch.randint(4, (3,)), torch.rand(3, 4)
    _function("mse_loss", F.mse_loss, [(3, 4)], soft)
    _function("smooth_l1_loss", F.smooth_l1_loss, [(3, 4)], soft)
    _function("cross_entropy", F.cross_entropy, [(3, 4)], classes)
    _function("cross_entropy of probabilities", F.cross_entropy, [(3, 4)], soft)
    _function("nll_loss", F.nll_loss, [(3, 4)], classes)
    _function("bce_with_logits", F.binary_cross_entropy_with_logits, [(3, 4)], soft)
    _function("cosine_similarity", F.cosine_similarity, [(3, 4)] * 2)
    _function("cdist", torch.cdist, [(3, 4)] * 2)
    _function("nearest", lambda a: F.interpolate(a, scale_factor=2), [(1, 2, 4, 4)])
    _function(
        "bilinear", lambda a: F.interpolate(a, scale_factor=2, mode="bilinear"), [(1, 2, 4, 4)]
    )
    _function("pad", lambda a: F.pad(a, (1, 1), mode="reflect"), [(2, 3)])
    _function("unfold", lambda a: F.unfold(a, 2), [(1, 2, 4, 4)])
    _function("sum", lambda a: a.sum(1), [(3, 4)])
    _function("mean", lambda a: a.mean(), [(3, 4)])
    _function("std_mean", lambda a: torch.std_mean(a, 1)[0], [(3, 4)])
    _function("vector_norm", lambda a: torch.linalg.vector_norm(a, dim=1), [(3, 4)])
    _function("logsumexp", lambda a: a.logsumexp(1), [(3, 4)])
    _function("topk", lambda a: a.topk(2)[0], [(3, 4)])
    _function("cumsum", lambda a: a.cumsum(1), [(3, 4)])
    _function("index", lambda a, i: a[i], [(3, 4)], torch.randint(3, (2,)))
    _function("gather", lambda a, i: a.gather(1, i), [(3, 4)], torch.randint(4, (3, 2)))
    _function("where", lambda a, b: torch.where(a > b, a, b), [(3, 4)] * 2)
    _function("cat", lambda a, b: torch.cat([a, b]), [(3, 4)] * 2)
    _function("casts", lambda a: a.to(torch.bfloat16) * 2, [(3, 4)])
    _function("in place", lambda a: (a * 1).add_(1).mul_(2).relu_(), [(3, 4)])
    _function("weight_norm", lambda v, g: torch._weight_norm(v, g, 0), [(3, 4), (3, 1)])
    _function("rfft", lambda a: torch.fft.rfft(a).abs(), [(3, 4)])
    _function("solve", torch.linalg.solve, [(4, 4), (4, 2)])


torch.manual_seed(0)
_modules()
_attention()
_functions()
