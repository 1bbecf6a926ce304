# SPDX-License-Identifier: MIT
"""Recurrent layers agree with cpu: whole where no gradient is asked for, in steps otherwise."""

from __future__ import annotations

import contextlib
import copy

import pytest
import torch
from accuracy import Rounding

import hologram_torch

KINDS = {
    "plain": {},
    "two layers": {"num_layers": 2},
    "both ways, batch first": {"bidirectional": True, "batch_first": True},
    "without bias": {"bias": False},
    "projected": {"proj_size": 8},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("mode", ["no_grad", "inference_mode", "enable_grad"])
def test_lstm_agrees_with_cpu(kind: str, dtype: torch.dtype, mode: str) -> None:
    torch.manual_seed(0)
    cpu = torch.nn.LSTM(16, 32, **KINDS[kind]).to(dtype).eval()
    ours = copy.deepcopy(cpu).to("hologram")
    x = torch.randn(5, 3, 16, dtype=dtype)
    with getattr(torch, mode)():
        expected, (h, c) = cpu(x)
        actual, (our_h, our_c) = ours(x.to("hologram"))
        exact, (wide_h, wide_c) = copy.deepcopy(cpu).double()(x.double())
    rows = ((expected, actual, exact), (h, our_h, wide_h), (c, our_c, wide_c))
    for want, got, right in rows:
        assert got.device.type == "hologram"
        # Five steps of four gates each, in up to two layers.
        problem = Rounding(units=8).excess(got.cpu(), want, right, right)
        assert problem is None, problem


@pytest.mark.parametrize("kind", ["plain", "two layers", "both ways, batch first", "without bias"])
@pytest.mark.parametrize("steps, batch, width", [(1, 1, 33), (2, 8, 40), (9, 3, 64), (40, 5, 130)])
def test_lstm_goes_on_from_states_and_has_one_result(
    kind: str, steps: int, batch: int, width: int
) -> None:
    """Against float64, whose results only differ by rounding; the same bits however it runs."""
    torch.manual_seed(1)
    options = KINDS[kind]
    oracle = torch.nn.LSTM(24, width, **options).double().eval()
    ours = copy.deepcopy(oracle).float().to("hologram")
    first = options.get("batch_first", False)
    x = torch.randn(*((batch, steps) if first else (steps, batch)), 24)
    rows = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    # States that are not contiguous, as after a beam search.
    states = [torch.randn(rows, width, batch).transpose(1, 2) for _ in range(2)]
    with torch.no_grad():
        want, (h, c) = oracle(x.double(), tuple(s.double() for s in states))
        results = []
        for mode in ("eager", "deferred", "deferred"):
            with hologram_torch.execution(mode):
                moved = tuple(
                    s.to("hologram").transpose(1, 2).contiguous().transpose(1, 2) for s in states
                )
                got, (our_h, our_c) = ours(x.to("hologram"), moved)
                results.append([t.cpu() for t in (got, our_h, our_c)])
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        got, (our_h, our_c) = ours(x.to("hologram"), tuple(s.to("hologram") for s in states))
        results.append([t.cpu() for t in (got, our_h, our_c)])
        torch.set_num_threads(threads)
    for a, b in zip((want, h, c), results[0], strict=True):
        assert b.shape == a.shape
        torch.testing.assert_close(b.double(), a, atol=3e-6, rtol=1e-5)
    assert results[0][0].stride() == want.float().stride()
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_lstm_refuses_what_cpu_refuses() -> None:
    cpu = torch.nn.LSTM(6, 5).eval()
    ours = copy.deepcopy(cpu).to("hologram")
    x, state = torch.randn(4, 3, 6), torch.zeros(1, 3, 5)
    flat = [p.detach() for p in cpu.parameters()]
    for hx, params in (((state,), flat), ((state, state), flat[:3]), ((state, state), [])):
        messages = []
        for device in ("cpu", "hologram"):
            with torch.no_grad(), pytest.raises((RuntimeError, IndexError)) as error:
                torch.lstm(
                    x.to(device),
                    [t.to(device) for t in hx],
                    [p.to(device) for p in params],
                    True,
                    1,
                    0.0,
                    False,
                    False,
                    False,
                )
            messages.append(str(error.value).splitlines()[0])
        assert messages[0] == messages[1]
    with torch.no_grad(), pytest.raises(RuntimeError, match="Expected hidden"):
        ours(x.to("hologram"), (state[:, :2].to("hologram"), state.to("hologram")))


def test_lstm_under_autocast_has_the_dtype_of_steps() -> None:
    layer = torch.nn.LSTM(8, 8).to("hologram").eval()
    x = torch.randn(4, 2, 8, device="hologram")
    with torch.no_grad(), torch.autocast("hologram", dtype=torch.bfloat16):
        whole = layer(x)[0].dtype
    with torch.autocast("hologram", dtype=torch.bfloat16):
        steps = layer(x)[0].dtype
    assert whole == steps


@pytest.mark.parametrize("train", [False, True])
def test_lstm_dropout_uses_the_generator_of_the_device(train: bool) -> None:
    layer = torch.nn.LSTM(8, 8, num_layers=2, dropout=0.5).to("hologram").train(train)
    x = torch.randn(4, 2, 8, device="hologram")
    results = []
    for gradients in (contextlib.nullcontext, torch.no_grad):
        torch.hologram.manual_seed(3)
        with gradients():
            results.append(layer(x)[0].detach().cpu())
    torch.testing.assert_close(*results)


def test_lstm_gradients_agree_with_cpu() -> None:
    torch.manual_seed(0)
    cpu = torch.nn.LSTM(6, 5, num_layers=2).double()
    ours = copy.deepcopy(cpu).to("hologram")
    x = torch.randn(4, 3, 6, dtype=torch.float64)
    cpu(x)[0].sin().sum().backward()
    ours(x.to("hologram"))[0].sin().sum().backward()
    for want, got in zip(cpu.parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(got.grad.cpu(), want.grad)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_states_have_the_batch_of_the_input(batch_first: bool, dtype: torch.dtype) -> None:
    """torch.lstm does not look, and PyTorch's cpu reads past the end of what is too small."""
    layer = torch.nn.LSTM(3, 4).to("hologram", dtype)
    weights = [p.detach() for p in layer.parameters()]
    x = torch.randn(5, 6, 3, device="hologram").to(dtype)
    batch = 5 if batch_first else 6
    for wrong in (2, 9):
        h = torch.zeros(1, wrong, 4, device="hologram", dtype=dtype)
        right = torch.zeros(1, batch, 4, device="hologram", dtype=dtype)
        for states in [(h, right), (right, h)]:
            message = rf"states of batch size {batch}, .* got one of shape \[1, {wrong}, 4\]"
            with torch.no_grad(), pytest.raises(RuntimeError, match=message):
                torch.lstm(x, states, weights, True, 1, 0.0, False, False, batch_first)


def test_cells_refuse_what_has_not_their_parts() -> None:
    aten = torch.ops.aten
    rows, odd, none = (torch.ones(2, n, device="hologram") for n in (4, 1, 0))
    with pytest.raises(RuntimeError, match=r"expected 4 equal parts .* shape \[2, 1\]"):
        aten._thnn_fused_lstm_cell(odd, odd, rows)
    with pytest.raises(RuntimeError, match=r"expected 4 equal parts .* shape \[1, 2, 4\]"):
        aten._thnn_fused_lstm_cell(rows[None], rows, rows)
    with pytest.raises(RuntimeError, match=r"expected 4 equal parts .* shape \[2, 1\]"):
        aten._thnn_fused_lstm_cell_backward_impl(rows, rows, rows, rows, odd, True)
    with pytest.raises(RuntimeError, match=r"expected 3 equal parts .* shape \[2, 4\]"):
        aten._thnn_fused_gru_cell(rows, rows, rows)
    with pytest.raises(RuntimeError, match=r"expected 5 equal parts .* shape \[2, 4\]"):
        aten._thnn_fused_gru_cell_backward(rows, rows, True)
    assert aten._thnn_fused_lstm_cell(none, none, none)[0].shape == (2, 0)
