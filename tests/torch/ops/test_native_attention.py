# SPDX-License-Identifier: MIT
"""Scaled dot-product attention of the device against cpu, forward and backward."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from accuracy import Rounding
from native_compare import ACCURATE, DEVICE, check, check_native, to_device, values
from torch import Tensor

import hologram_torch
from hologram_torch import _C

DTYPES = [torch.float32, torch.float64, torch.bfloat16]
# A score's gradient is the difference of two sums over a head, and may cancel wholly.
BOUND = Rounding(cancels=16)
FUSED = torch.ops.aten._scaled_dot_product_fused_attention_overrideable


def _heads(batch: int, heads: int, rows: int, dim: int, dtype: torch.dtype, seed: int) -> Tensor:
    """Return heads as a layer makes them: rows of all heads side by side."""
    rows_of_heads = values(batch, rows, heads * dim, dtype=dtype, seed=seed)
    return rows_of_heads.view(batch, rows, heads, dim).transpose(1, 2)


def _gradients(q: Tensor, k: Tensor, v: Tensor, g: Tensor, **options: Any) -> tuple[Tensor, ...]:
    q, k, v = (t.detach().requires_grad_() for t in (q, k, v))
    return torch.autograd.grad(F.scaled_dot_product_attention(q, k, v, **options), (q, k, v), g)


def _check(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> None:
    check_native(F.scaled_dot_product_attention, q, k, v, tol=BOUND, **options)
    g = values(*q.shape, dtype=q.dtype, seed=9)
    check_native(_gradients, q, k, v, g, tol=BOUND, **options)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", [(2, 3, 64, 64, 32), (1, 2, 300, 280, 20), (2, 2, 7, 40, 5)])
def test_layouts(dtype: torch.dtype, causal: bool, sizes: tuple[int, ...]) -> None:
    batch, heads, queries, keys, dim = sizes
    q = _heads(batch, heads, queries, dim, dtype, 1)
    k, v = (_heads(batch, heads, keys, dim, dtype, seed) for seed in (2, 3))
    _check(q, k, v, is_causal=causal)
    _check(q.contiguous(), k, v.contiguous(), is_causal=causal)
    # One key for every head, and a gradient that is one number.
    shared = k[:, :1].expand_as(k)
    _check(q, shared, v, is_causal=causal)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(9, 11), (2, 1, 9, 11), (1, 3, 1, 11), (2, 3, 9, 1), (1, 11)])
def test_masks(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    q = _heads(2, 3, 9, 16, dtype, 1)
    k, v = (_heads(2, 3, 11, 16, dtype, seed) for seed in (2, 3))
    mask = values(*shape, dtype=dtype, seed=4)
    _check(q, k, v, attn_mask=mask)
    _check(q, k, v, attn_mask=mask.transpose(-1, -2).contiguous().transpose(-1, -2), scale=0.3)
    # Some queries see nothing.
    seen = values(*shape, dtype=torch.bool, seed=5)
    seen[..., 0, :] = False
    _check(q, k, v, attn_mask=seen)


def test_mask_of_another_dtype() -> None:
    q, k, v = (_heads(2, 3, 9, 16, torch.float64, seed) for seed in (1, 2, 3))
    args = (0.0, False, False)
    mask = values(2, 3, 9, 9)
    ours = FUSED(*to_device((q, k, v, mask)), *args)[0].cpu()
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask.double())
    torch.testing.assert_close(ours, expected, rtol=1e-13, atol=1e-13)


def test_heads_that_share_keys() -> None:
    for causal in (False, True):
        q = _heads(2, 6, 40, 16, torch.float32, 1)
        k, v = (_heads(2, 2, 40, 16, torch.float32, seed) for seed in (2, 3))
        _check(q, k, v, is_causal=causal, enable_gqa=True)


def test_one_query_and_a_long_cache() -> None:
    cache = [values(1, 4, 2000, 64, seed=seed) for seed in (1, 2)]
    q = values(1, 4, 1, 64, seed=3)
    for length in (1, 2, 513, 1999):
        _check(q, *(c[:, :, :length] for c in cache))


def test_what_pytorch_keeps_for_the_gradient() -> None:
    q, k, v = (_heads(2, 3, 9, 16, torch.float32, seed) for seed in (1, 2, 3))
    ours = FUSED(*to_device((q, k, v)), None, 0.0, True, False)
    cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, True)
    for got, expected in zip(ours[:2], cpu, strict=True):
        assert got.stride() == expected.stride()
        torch.testing.assert_close(got.cpu(), expected, rtol=2e-6, atol=2e-6)


def test_empty_batches_and_special_values() -> None:
    for shape in [(0, 2, 5, 8), (2, 0, 5, 8), (2, 2, 0, 8), (2, 2, 5, 0)]:
        if shape[1] == 0 and torch.__version__.startswith("2.11."):
            continue  # there cpu itself divides by the number of heads, which ends the process
        empty = [values(*shape, seed=seed) for seed in (1, 2, 3, 4)]
        check(F.scaled_dot_product_attention, *empty[:3])
        check(_gradients, *empty)
    q, k, v = (values(1, 1, 6, 8, seed=seed) for seed in (1, 2, 3))
    q[0, 0, 1, 2] = math.inf
    v[0, 0, 3, 5] = math.inf
    check_native(F.scaled_dot_product_attention, q, k, v, tol=ACCURATE)
    # A NaN reaches its own row, and no other.
    q[0, 0, 4, 0] = math.nan
    rows = F.scaled_dot_product_attention(*to_device((q, k, v))).cpu()[0, 0, :, 0]
    assert rows.isnan().tolist() == [False, True, False, False, True, False]


@pytest.mark.parametrize("causal", [False, True])
def test_gradcheck(causal: bool) -> None:
    def attend(*heads: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(*heads, is_causal=causal)

    heads = tuple(
        values(2, 2, rows, 3, dtype=torch.float64, seed=rows).to(DEVICE).requires_grad_()
        for rows in (5, 7, 7)
    )
    assert torch.autograd.gradcheck(attend, heads, fast_mode=True)


def test_threads_do_not_change_bits() -> None:
    q, k, v, g = (_heads(2, 3, 200, 32, torch.float32, seed).to(DEVICE) for seed in (1, 2, 3, 4))
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            results.append([out.cpu(), *(t.cpu() for t in _gradients(q, k, v, g, is_causal=True))])
    finally:
        torch.set_num_threads(threads)
    for one, two in zip(*results, strict=True):
        assert torch.equal(one, two)


@pytest.mark.skipif(not _C.can_defer, reason="PyTorch before 2.13 cannot defer")
@pytest.mark.parametrize("masked", [False, True])
def test_it_waits_and_has_the_same_bits(masked: bool) -> None:
    options = {"attn_mask": values(40, 40, seed=5)} if masked else {"is_causal": True}
    heads = [_heads(2, 3, 40, 32, torch.float32, seed) for seed in (1, 2, 3, 4)]
    with hologram_torch.execution("eager"):
        expected = _gradients(*to_device(heads), **to_device(options))
    with hologram_torch.execution("deferred"):
        waiting = [t.mul_(1) for t in to_device(heads)]
        options = to_device(options)
        before = _C.recorder_stats()
        actual = _gradients(*waiting, **options)
        after = _C.recorder_stats()
        assert after["ops_recorded"] >= before["ops_recorded"] + 2
        # The worker may be given the forward call before the backward one is recorded.
        assert after["circuits"] <= before["circuits"] + 1
        for got, want in zip(actual, expected, strict=True):
            assert got.stride() == want.stride()
            assert torch.equal(got.cpu(), want.cpu())


@pytest.mark.parametrize("heads", [(2, 2), (4, 2)])
def test_the_choice_is_that_of_cpu(heads: tuple[int, int]) -> None:
    def choose(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *args: Any) -> bool:
        return torch._fused_sdp_choice(q, k, v, mask, *args[:2], enable_gqa=args[2]) != 0

    q, short = values(2, heads[0], 5, 8), values(2, heads[0], 0, 8)
    k, v = values(2, heads[1], 6, 8), values(2, heads[1], 6, 4)
    masks = [None, *(values(*shape) for shape in [(5, 6), (1, 6), (2, 1, 5, 6), (1, 1, 1, 1)])]
    masks += [values(*shape) for shape in [(heads[0], 5, 6), (5, 5)]]
    masks.append(values(5, 6, dtype=torch.bool))
    for a, b, c in [(q, k, k), (q, k, v), (short, k, k), (q, k.transpose(2, 3), k), (q[0], k, k)]:
        for mask in masks:
            for dropout, causal, gqa in [
                (0.0, False, False),
                (0.0, True, False),
                (0.5, False, True),
                (0.0, False, True),
            ]:
                check(choose, a, b, c, mask, dropout, causal, gqa)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        check(choose, q, k, k, None, 0.0, False, True)


def test_dropout_takes_the_composite() -> None:
    q, k, v = (values(1, 2, 64, 16, seed=seed).to(DEVICE).requires_grad_() for seed in (1, 2, 3))
    out = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    plain = F.scaled_dot_product_attention(q, k, v)
    assert not torch.equal(out.cpu(), plain.cpu())
    out.sum().backward()
    assert torch.isfinite(q.grad.cpu()).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_backward_compares_shapes(dtype: torch.dtype) -> None:
    """PyTorch's kernel does not, and reads past the end of what is too small."""
    q, k, v = (values(2, 3, 8, 16, dtype=dtype, seed=seed).to(DEVICE) for seed in (1, 2, 3))
    forward = torch.ops.aten._scaled_dot_product_fused_attention_overrideable
    backward = torch.ops.aten._scaled_dot_product_fused_attention_overrideable_backward
    out, logsumexp, *rest = forward(q, k, v)
    good = [torch.ones_like(out), out, logsumexp]
    for i in range(3):
        for bad in [good[i][:, :, :5], good[i][:1], good[i][0], good[i][None]]:
            grad, o, lse = [bad if j == i else good[j] for j in range(3)]
            with pytest.raises(RuntimeError, match=r"backward: expected .* \[2, 3, 8, 16\]"):
                backward(
                    grad, q, k, v, None, [True, True, True, False], o, lse, *rest[:4], 0.0, False,
                    *rest[4:6],
                )  # fmt: skip


def test_heads_that_do_not_fit_are_refused() -> None:
    forward = torch.ops.aten._scaled_dot_product_fused_attention_overrideable
    q, k = (torch.ones(1, heads, 5, 4, device=DEVICE) for heads in (3, 2))
    for bad in [(q, k, k), (k, k[:, :0], k[:, :0]), (k, k, k[:, :, :4]), (k, k, q), (k[0], k, k)]:
        with pytest.raises(RuntimeError, match="attention: expected queries, keys and values"):
            forward(*bad)
    # With values of another size it is PyTorch's kernel, which divides by the rows.
    none, half = q[:, :, :0].bfloat16(), q.bfloat16()
    for bad in [(none, half, k.bfloat16()), (half, none, none[:, :1])]:
        with pytest.raises(RuntimeError, match="none empty"):
            forward(*bad)
    assert F.scaled_dot_product_attention(none, half, half).shape == (1, 3, 0, 4)


MASKS = {
    "none": {},
    "causal": {"is_causal": True},
    "a bias": {"attn_mask": values(5, 7, dtype=torch.float64, seed=4)},
    "a row masked whole": {"attn_mask": (torch.arange(35).view(5, 7) % 3 > 0).index_fill(
        0, torch.tensor([2]), False)},
    "scaled": {"scale": 0.3},
    "shared heads": {"enable_gqa": True},
}  # fmt: skip


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_gradients_have_gradients(kind: str, dtype: torch.dtype) -> None:
    """The reference is PyTorch's composite in float64 on cpu."""
    shared = 2 if kind == "shared heads" else 4
    shapes = [(2, 4, 5, 8), (2, shared, 7, 8), (2, shared, 7, 8), (2, 4, 5, 8)]
    given = [values(*s, dtype=dtype, seed=i) for i, s in enumerate(shapes)]

    def second(*inputs: Tensor, **options: Any) -> tuple[Tensor, ...]:
        q, k, v, g = (t.detach().requires_grad_() for t in inputs)
        out = F.scaled_dot_product_attention(q, k, v, **options)
        first = torch.autograd.grad(out, (q, k, v), g, create_graph=True)
        again = torch.autograd.grad(sum(t.sin().sum() for t in first), (q, k, v, g))
        return (*(t.detach() for t in first), *again)

    options = {
        k: o.to(dtype) if isinstance(o, Tensor) and o.is_floating_point() else o
        for k, o in MASKS[kind].items()
    }
    on_device = {k: o.to(DEVICE) if isinstance(o, Tensor) else o for k, o in options.items()}
    found = second(*(t.to(DEVICE) for t in given), **on_device)
    exact = {k: o.double() if isinstance(o, Tensor) and o.is_floating_point() else o
             for k, o in options.items()}  # fmt: skip
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        expected = second(*(t.double() for t in given), **exact)
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 0.03}[dtype]
    for ours, other in zip(found, expected, strict=True):
        assert ours.dtype == dtype and ours.device.type == "hologram"
        scale = float(other.abs().max())
        torch.testing.assert_close(ours.cpu().double(), other, rtol=0, atol=tolerance * scale)


def test_only_gradients_that_may_have_gradients_are_computed_in_steps() -> None:
    q, k, v, g = (values(1, 2, 8, 16, seed=seed).to(DEVICE) for seed in (1, 2, 3, 4))
    q.requires_grad_()
    out = F.scaled_dot_product_attention(q, k, v)
    (plain,) = torch.autograd.grad(out, q, g, retain_graph=True)
    assert plain.grad_fn is None
    (tracked,) = torch.autograd.grad(out, q, g, create_graph=True)
    torch.testing.assert_close(tracked.detach(), plain)
    assert tracked.grad_fn is not None


def test_gradients_of_layers_check_out() -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    layer = layer.double().to(DEVICE)
    x = torch.randn(2, 3, 8, dtype=torch.float64, device=DEVICE, requires_grad=True)
    assert torch.autograd.gradgradcheck(layer, (x,), fast_mode=True)
