# SPDX-License-Identifier: MIT
"""Recurrent layers, attention, and what reads by index on hologram:1.

test_second_device runs this on each driver.
"""

from __future__ import annotations

import pytest
import torch
from second_device import ONE, costly, host_kernels, on_device

import hologram_torch

F = torch.nn.functional

# Recurrent layers and their options.
RECURRENT = {
    "lstm": (torch.nn.LSTM, {"bidirectional": True}),
    "lstm without bias": (torch.nn.LSTM, {"bias": False, "batch_first": True}),
    "lstm with projection": (torch.nn.LSTM, {"proj_size": 2}),
    "gru": (torch.nn.GRU, {"bidirectional": True}),
    "gru without bias": (torch.nn.GRU, {"bias": False, "batch_first": True}),
    "rnn": (torch.nn.RNN, {"num_layers": 2, "bidirectional": True}),
    "rnn with relu": (torch.nn.RNN, {"nonlinearity": "relu", "bias": False}),
}
QUICK = ("gru without bias", "rnn with relu")


@on_device
@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.heavy)]
)
@pytest.mark.parametrize("kind", [k if k in QUICK else costly(k) for k in RECURRENT])
def test_recurrent_layers_run_on_the_device(kind: str, dtype: torch.dtype) -> None:
    """Their values and gradients are cpu's in float64, deferred as eager; no kernel of the host."""
    make, options = RECURRENT[kind]
    before = host_kernels()

    def look(
        device: str, dtype: torch.dtype, sizes: tuple[int, int], given: bool
    ) -> list[torch.Tensor]:
        torch.manual_seed(0)
        layer = make(3, 5, **options).to(device, dtype)
        x = torch.randn(*sizes, 3).to(device, dtype).requires_grad_()
        batch = sizes[0] if options.get("batch_first") else sizes[1]
        rows = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
        widths = [options.get("proj_size") or 5] + [5] * (make is torch.nn.LSTM)
        states = [torch.randn(rows, batch, w).to(device, dtype).requires_grad_() for w in widths]
        with torch.no_grad():
            inferred, _ = layer(x)
        state = tuple(states) if make is torch.nn.LSTM else states[0]
        output, last = layer(x, state) if given else layer(x)
        results = [output, *(last if make is torch.nn.LSTM else [last])]
        # Of a step and the last state, of all, or of the last state alone.
        losses = [(r**2).sum() for r in (results if given else [output[-1:]])]
        leaves = [x, *layer.parameters(), *(states if given else [])]
        grads = torch.autograd.grad(sum(losses), leaves)
        grads += torch.autograd.grad((layer(x)[1][0] ** 2).sum(), leaves[:2])
        return [t.detach().cpu() for t in (inferred, *results, *grads)]

    tolerance = 1e-12 if dtype == torch.float64 else 2e-6
    for sizes, given in (((3, 2), True), ((2, 3), False), ((1, 1), True)):
        ours = look(ONE, dtype, sizes, given)
        with hologram_torch.execution("eager"):
            eager = look(ONE, dtype, sizes, given)
        for x, y, z in zip(ours, eager, look("cpu", torch.float64, sizes, given), strict=True):
            assert torch.equal(x, y)
            scale = max(1.0, z.abs().max().item())
            torch.testing.assert_close(x.double(), z, rtol=tolerance, atol=tolerance * scale)
    assert host_kernels() == before


@on_device
def test_packed_sequences_are_the_hosts() -> None:
    torch.manual_seed(0)
    layer, x = torch.nn.GRU(3, 4), torch.randn(5, 2, 3)
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, [5, 3])
    want = layer(packed)[0].data
    before = host_kernels()
    found = layer.to(ONE)(packed.to(ONE))[0].data
    torch.testing.assert_close(found.cpu(), want)
    assert host_kernels() > before


# Sizes of queries, and of keys and values (batch, heads, rows, width); what attention is told.
ATTENTION = {
    "plain": ((2, 2, 3, 4), (2, 2, 5, 4), {}),
    "scaled": ((1, 2, 1, 3), (1, 2, 1, 3), {"scale": 0.3}),
    "shared heads": ((2, 4, 3, 4), (2, 2, 5, 4), {"enable_gqa": True}),
    "causal": ((1, 2, 5, 4), (1, 2, 5, 4), {"is_causal": True}),
    "causal with fewer keys": ((1, 4, 5, 4), (1, 2, 3, 4), {"is_causal": True, "enable_gqa": True}),
    "causal with more keys": ((1, 1, 2, 4), (1, 1, 5, 4), {"is_causal": True}),
    "mask": ((2, 2, 3, 4), (2, 2, 5, 4), {"attn_mask": (2, 1, 3, 5)}),
    "mask for all": ((2, 4, 3, 4), (2, 2, 5, 4), {"attn_mask": (3, 5), "enable_gqa": True}),
    "mask of bool": ((2, 2, 3, 4), (2, 2, 5, 4), {"attn_mask": "rows"}),
}  # fmt: skip


@on_device
@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.heavy)]
)
@pytest.mark.parametrize("heads_first", [True, costly(False)])
def test_attention_runs_on_the_device(heads_first: bool, dtype: torch.dtype) -> None:
    """Its values and gradients are cpu's in float64, deferred as eager; no kernel of the host."""
    before = host_kernels()

    def look(device: str, dtype: torch.dtype, name: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        queries, keys, options = ATTENTION[name]
        given = [torch.randn(s) for s in (queries, keys, keys)]
        if not heads_first:
            given = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in given]
        leaves = [t.to(device, dtype).requires_grad_() for t in given]
        mask = options.get("attn_mask")
        if mask == "rows":  # of which the second sees nothing
            mask = torch.tensor([[True, False, True, True, False], [False] * 5, [True] * 5])
        elif mask is not None:
            mask = torch.randn(mask).to(dtype)
        moved = {} if mask is None else {"attn_mask": mask.to(device)}
        out = F.scaled_dot_product_attention(*leaves, **(options | moved))
        grads = torch.autograd.grad((out**2).sum() + out.sum(), leaves)
        return [t.detach().cpu() for t in (out, *grads)]

    tolerance = 1e-12 if dtype == torch.float64 else 2e-6
    for name in ATTENTION:
        ours = look(ONE, dtype, name)
        with hologram_torch.execution("eager"):
            eager = look(ONE, dtype, name)
        for x, y, z in zip(ours, eager, look("cpu", torch.float64, name), strict=True):
            assert torch.equal(x, y), name
            scale = max(1.0, z.abs().max().item())
            torch.testing.assert_close(
                x.double(), z, rtol=tolerance, atol=tolerance * scale,
                msg=lambda text, name=name: f"{name}: {text}",
            )  # fmt: skip
    assert host_kernels() == before


@on_device
@pytest.mark.parametrize("mode", ["deferred", "eager"])
def test_rows_and_elements_are_taken_on_the_device(mode: str) -> None:
    """Bit for bit the CPU's, of every dtype; no kernel of the host."""
    before = host_kernels()
    index = torch.tensor([[3, 0], [-1, 2]])
    for dtype in (torch.float32, torch.bfloat16, torch.float64, torch.int8, torch.bool, torch.long):
        x = (torch.arange(60).reshape(4, 5, 3) % 7).to(dtype)

        def look(device: str, x: torch.Tensor = x) -> list[torch.Tensor]:
            t, at = x.to(device), index.to(device)
            positive = at.abs()
            found = [
                t[at],
                t[:, at],
                t.index_select(1, positive.flatten()),
                t[:0, at],
                t.gather(0, positive[:, :, None].expand(2, 2, 3)),
                t.gather(2, positive[:, :, None].clamp(max=2)),
                torch.nn.functional.embedding(positive, t.reshape(4, 15)),
            ]
            return [f.cpu() for f in found]

        with hologram_torch.execution(mode):
            for k, (ours, cpus) in enumerate(zip(look(ONE), look("cpu"), strict=True)):
                assert torch.equal(ours, cpus), (dtype, k)
    assert host_kernels() == before


@on_device
@pytest.mark.parametrize("mode", ["deferred", costly("eager")])
def test_losses_of_classes_run_on_the_device(mode: str) -> None:
    """Values and gradients are cpu's in float64; no kernel of the host."""
    before = host_kernels()
    shapes = ((5, 7), (7,), (2, 7, 3, 2))

    def look(device: str, dtype: torch.dtype, shape: tuple[int, ...]) -> list[torch.Tensor]:
        torch.manual_seed(0)
        x = torch.randn(shape).to(device, dtype).requires_grad_()
        target = torch.randint(0, 7, shape[:1] + shape[2:] if len(shape) > 1 else ())
        if len(shape) > 1:
            target[0] = 2
        weight = torch.rand(7).to(device, dtype)
        results = []
        for reduction in ("none", "mean", "sum"):
            for chosen in ({}, {"weight": weight}, {"ignore_index": 2}):
                loss = F.nll_loss(
                    F.log_softmax(x, 0 if x.dim() == 1 else 1),
                    target.to(device),
                    reduction=reduction,
                    **chosen,
                )
                results += [loss, *torch.autograd.grad((loss**2).sum(), x)]
        return [r.detach().cpu() for r in results]

    for shape in shapes:
        exact = look("cpu", torch.float64, shape)
        for dtype, tolerance in ((torch.float32, 3e-6), (torch.float64, 1e-13)):
            with hologram_torch.execution(mode):
                ours = look(ONE, dtype, shape)
            for k, (found, want) in enumerate(zip(ours, exact, strict=True)):
                torch.testing.assert_close(
                    found.double(),
                    want,
                    rtol=tolerance,
                    atol=tolerance,
                    equal_nan=True,
                    msg=lambda m, k=k, shape=shape: f"{shape}[{k}]: {m}",
                )
    assert host_kernels() == before
    x, classes = torch.randn(2, 4, device=ONE), torch.tensor([1, -1], device=ONE)
    for bad in (classes, classes + 5):
        with pytest.raises(IndexError, match=r"an index is outside a dimension of size 4 \(in "):
            F.nll_loss(x, bad).item()
    kept = x[:, classes + 3]
    with pytest.raises(IndexError, match="in take, which ran before"):
        kept.cpu()
    torch.accelerator.synchronize(ONE)
