# SPDX-License-Identifier: MIT
"""Draw what became of LayerNorm written by hand: python examples/draw_layernorm.py [FILE.svg]."""

from __future__ import annotations

import sys

import torch
from torch import Tensor

import hologram_torch


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Normalize the rows of x, [m, n], and scale them by weight and bias, [n] each."""
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    return centred * torch.rsqrt(variance + 1e-5) * weight + bias


def main() -> None:
    """Explain one call, and show the times of later ones beside its own."""
    x = torch.randn(512, 1024, device="hologram")
    weight, bias = torch.randn(2, 1024, device="hologram").unbind()
    explained = hologram_torch.explain(layer_norm, x, weight, bias).warm()
    path = sys.argv[1] if len(sys.argv) > 1 else "layernorm.svg"
    explained.save_svg(path)
    print(explained)
    print("written:", path)


if __name__ == "__main__":
    main()
