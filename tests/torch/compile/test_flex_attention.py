# SPDX-License-Identifier: MIT
"""flex_attention with and without torch.compile, beside attention written out in float64."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

flex = pytest.importorskip("torch.nn.attention.flex_attention")
DEVICE = "hologram"
BACKENDS = [
    None,
    "aot_eager",
    "hologram",
    pytest.param(
        "inductor",
        marks=[
            pytest.mark.heavy,
            pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a compiler"),
            pytest.mark.skipif(torch.__version__ < "2.15", reason="Inductor needs PyTorch 2.15"),
        ],
    ),
]
TOLERANCE = {
    torch.float64: {"rtol": 1e-10, "atol": 1e-12},
    torch.float32: {"rtol": 1e-4, "atol": 1e-5},
    torch.bfloat16: {"rtol": 0.05, "atol": 0.05},
}
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without")


def attention(backend: str | None) -> Callable[..., Any]:
    torch._dynamo.reset()
    function: Callable[..., Any] = flex.flex_attention
    return function if backend is None else torch.compile(function, backend=backend)


def inputs(dtype: torch.dtype, kv_heads: int = 4, rows: int = 40, keys: int = 56) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 4, rows, 16), (2, kv_heads, keys, 16), (2, kv_heads, keys, 8))
    made = [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]
    return [t.to(dtype).to(DEVICE).requires_grad_() for t in made]


def causal(b: Any, h: Any, i: Any, j: Any) -> Any:
    return j <= i + 16


def window(b: Any, h: Any, i: Any, j: Any) -> Any:
    return (j <= i + 16) & (j >= i - 9)


def some(b: Any, h: Any, i: Any, j: Any) -> Any:
    return (i % 3 != 0) & (j % 5 != h)  # rows without any key


def distance(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
    return s + (i - j) / 16


def capped(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
    return 3 * torch.tanh(s / 3)


def reference(
    query: Tensor, key: Tensor, value: Tensor, score: Any, mask: Any, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """Return the result and the logarithm of each row's sum."""
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scores = query @ key.mT * (scale or 1 / math.sqrt(query.shape[-1]))
    places = torch.meshgrid(*(torch.arange(n) for n in scores.shape), indexing="ij")
    scores = scores if score is None else score(scores, *places)
    if mask is not None:
        scores = scores.masked_fill(~mask(*places), -math.inf)
    weights = scores.softmax(-1).nan_to_num(0.0)
    return weights @ value, scores.logsumexp(-1)


def wide(tensors: list[Tensor]) -> list[Tensor]:
    return [t.detach().cpu().double().requires_grad_() for t in tensors]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("score", "mask", "kv_heads"),
    [(None, None, 4), (distance, causal, 4), (capped, window, 2), (distance, some, 1)],
)
def test_forward_and_backward(
    backend: str | None, dtype: torch.dtype, score: Any, mask: Any, kv_heads: int
) -> None:
    tensors = inputs(dtype, kv_heads)
    blocks = None
    if mask is not None:
        blocks = flex.create_block_mask(mask, None, 4, 40, 56, device=DEVICE, BLOCK_SIZE=16)
        assert blocks.kv_indices.device.type == DEVICE
    out = attention(backend)(*tensors, score_mod=score, block_mask=blocks, enable_gqa=kv_heads != 4)
    out.square().sum().backward()
    assert out.dtype == dtype and out.device.type == DEVICE
    exact = wide(tensors)
    # Scores that are all masked have no gradient, and NaN in plain PyTorch.
    expected, _ = reference(*exact, score, mask)
    expected.square().sum().backward()
    for got, want in zip(
        (out, *(t.grad for t in tensors)), (expected, *(t.grad for t in exact)), strict=True
    ):
        want = want.detach().nan_to_num(0.0)
        scale = want.abs().max()
        torch.testing.assert_close(
            got.detach().cpu().double() / scale, want / scale, **TOLERANCE[dtype]
        )


@pytest.mark.parametrize("backend", BACKENDS)
def test_captured_tensors_have_gradients(backend: str | None) -> None:
    tensors = inputs(torch.float64)
    bias = torch.randn(4, dtype=torch.float64).to(DEVICE).requires_grad_()
    out = attention(backend)(*tensors, score_mod=lambda s, b, h, i, j: s + bias[h] * (i - j) / 8)
    out.square().sum().backward()
    *exact, plain = wide([*tensors, bias])
    expected, _ = reference(*exact, lambda s, b, h, i, j: s + plain[h] * (i - j) / 8, None)
    expected.square().sum().backward()
    for t, want in zip((*tensors, bias), (*exact, plain), strict=True):
        torch.testing.assert_close(t.grad.cpu(), want.grad, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("backend", BACKENDS)
def test_sums_of_rows(backend: str | None) -> None:
    tensors = inputs(torch.float32)
    request = flex.AuxRequest(lse=True)
    out, more = attention(backend)(*tensors, scale=0.3, return_aux=request)
    (out.sum() + more.lse.square().sum()).backward()
    exact = wide(tensors)
    expected, sums = reference(*exact, None, None, 0.3)
    (expected.sum() + sums.square().sum()).backward()
    torch.testing.assert_close(
        more.lse.detach().cpu().double(), sums.detach(), **TOLERANCE[out.dtype]
    )
    for t, want in zip(tensors, exact, strict=True):
        torch.testing.assert_close(t.grad.cpu().double(), want.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("backend", [None, "hologram"])
def test_autocast_chooses_the_dtype(backend: str | None) -> None:
    tensors = inputs(torch.float32)
    with torch.autocast(DEVICE, torch.bfloat16):
        out = attention(backend)(*tensors)
    assert out.dtype == torch.bfloat16
    out.float().sum().backward()
    assert all(t.grad.dtype == torch.float32 for t in tensors)


def test_in_a_compiled_network() -> None:
    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)

        def forward(self, x: Tensor, mask: Any) -> Tensor:
            parts = self.qkv(x).view(2, -1, 3, 4, 8).permute(2, 0, 3, 1, 4)
            y = flex.flex_attention(*parts.unbind(0), score_mod=distance, block_mask=mask)
            return self.out(y.transpose(1, 2).reshape(x.shape))

    torch._dynamo.reset()
    torch.manual_seed(0)
    layer = Layer().to(DEVICE)
    mask = flex.create_block_mask(causal, None, None, 40, 40, device=DEVICE, BLOCK_SIZE=16)
    x = torch.randn(2, 40, 32, device=DEVICE)
    found = []
    for call in (layer, torch.compile(layer, backend="hologram")):
        layer.zero_grad()
        for _ in range(3):  # a circuit from the second on
            y = call(x, mask)
        y.square().sum().backward()
        found.append([y.detach(), *(p.grad for p in layer.parameters())])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_other_devices_are_as_they_were() -> None:
    q = torch.randn(1, 1, 16, 16, requires_grad=True)
    with pytest.raises(NotImplementedError, match="backward on CPU"):
        flex.flex_attention(q, q, q)
    with pytest.raises(ValueError, match="only supported on"):
        flex.flex_attention(*[torch.randn(1, 1, 16, 16, device="meta")] * 3)
