# SPDX-License-Identifier: MIT
"""embedding of the device against cpu: dtypes, index types, padding, gradients, errors."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from native_compare import ACCURATE, FLOATS, check, check_native, layouts, values


def gradient(w: torch.Tensor, index: torch.Tensor, **kwargs: object) -> torch.Tensor:
    w = w.detach().requires_grad_()
    out = F.embedding(index, w, **kwargs)
    g = torch.arange(out.numel(), dtype=torch.float64).reshape(out.shape).to(w.dtype) / 8
    return torch.autograd.grad(out, w, g.to(w.device))[0]


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.complex64])
@pytest.mark.parametrize("index_type", [torch.int64, torch.int32])
def test_embedding(dtype: torch.dtype, index_type: torch.dtype) -> None:
    w = values(11, 7, dtype=dtype)
    for shape in [(), (4,), (3, 5), (2, 3, 4), (0,)]:
        generator = torch.Generator().manual_seed(2)
        index = torch.randint(0, 11, shape, generator=generator).to(index_type)
        for x in layouts(w):
            check(F.embedding, index, x)
        if dtype.is_floating_point:
            check(gradient, w, index, tol=ACCURATE)
            check(gradient, w, index, padding_idx=3, tol=ACCURATE)
            check(gradient, w, index, scale_grad_by_freq=True, tol=ACCURATE)


def test_embedding_is_native() -> None:
    index = torch.randint(0, 100, (8, 16))
    check_native(F.embedding, index, values(100, 64))
    many = torch.randint(0, 10, (4096,))
    check(gradient, values(10, 200), many, tol=ACCURATE)


def test_errors_are_pytorchs() -> None:
    w = values(5, 3)
    check(F.embedding, torch.tensor([5]), w)
    check(F.embedding, torch.tensor([-1]), w)
    check(F.embedding, torch.tensor([0.5]), w)
    check(F.embedding, torch.tensor([0]), w[0])


def test_the_dtype_of_indices_is_refused_before_the_device() -> None:
    with pytest.raises(RuntimeError, match=r"argument #1 'indices' .* Long, Int.*FloatType"):
        F.embedding(torch.tensor([0.5], device="hologram"), values(5, 3))
    with pytest.raises(RuntimeError, match="on the same device"):
        F.embedding(torch.tensor([1], device="hologram"), values(5, 3))


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_of_bags_are_rounded_once(dtype: torch.dtype, mode: str) -> None:
    """PyTorch's kernel rounds at each addition: 4,096 gradients of one row end as 256 or 2,048."""
    index = torch.zeros(4096, dtype=torch.int64)
    offsets = torch.arange(0, 4096, 4)
    for weights in (None, torch.ones(4096, dtype=dtype)) if mode == "sum" else (None,):
        w = values(3, 5, dtype=dtype).to("hologram").requires_grad_()
        given = {} if weights is None else {"per_sample_weights": weights.to("hologram")}
        F.embedding_bag(index.to(w.device), w, offsets.to(w.device), mode=mode, **given).sum(
        ).backward()  # fmt: skip
        expected = torch.zeros(3, 5)
        expected[0] = 4096 if mode == "sum" else 1024
        assert w.grad.dtype == dtype
        assert torch.equal(w.grad.cpu(), expected.to(dtype))
