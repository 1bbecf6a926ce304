# SPDX-License-Identifier: MIT
"""Strides of results where dimensions of one element leave a choice: those of PyTorch's cpu."""

from __future__ import annotations

import itertools

import pytest
import torch

SHAPES = [(10, 3, 1, 1), (1, 3, 4, 4), (2, 1, 4, 4), (5, 1), (1, 5), (1, 1, 1), (0, 3, 1, 1)]
OPS = {
    "add": lambda x: x + 5,
    "radd": lambda x: 5 + x,
    "mul": lambda x: x * 2.0,
    "rsub": lambda x: 1 - x,
    "sub": lambda x: torch.sub(x, 1, alpha=2),
    "pow": lambda x: x**2,
    "rpow": lambda x: 2**x,
    "gt": lambda x: x > 0,
    "maximum": lambda x: torch.maximum(x, torch.tensor(0.5, device=x.device)),
    "remainder": lambda x: x % 2,
    "clamp": lambda x: x.clamp(0, 1),
    "leaky_relu": lambda x: torch.nn.functional.leaky_relu(x, 0.1),
    "neg": lambda x: -x,
    "with_itself": lambda x: x + x,
    "clone": torch.clone,
    "double": lambda x: x.double(),
    "flip": lambda x: x.flip(0),
    "broadcast": lambda x: x + torch.ones(x.shape[-1], device=x.device),
}


def layouts(shape):
    """Every order of the dimensions in memory."""
    for order in itertools.permutations(range(len(shape))):
        inverse = sorted(range(len(shape)), key=order.__getitem__)
        yield torch.randn([shape[d] for d in order]).permute(inverse)


@pytest.mark.parametrize("op", OPS.values(), ids=OPS.keys())
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_results_have_the_strides_of_cpu(op, shape):
    for x in layouts(shape):
        ours = torch.empty_strided(x.shape, x.stride(), device="hologram").copy_(x)
        assert ours.stride() == x.stride()
        expected, result = op(x), op(ours)
        assert result.stride() == expected.stride(), x.stride()
        assert torch.equal(result.cpu(), expected) or torch.allclose(result.cpu(), expected)
