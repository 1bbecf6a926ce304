# SPDX-License-Identifier: MIT
"""Recurrent layers agree with cpu: as calls of the library, and in steps where it has none."""

from __future__ import annotations

import contextlib
import copy
import functools

import pytest
import torch
from accuracy import Rounding

import hologram_torch
from hologram_torch import _C

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


CELLS = {
    "LSTM": torch.nn.LSTM,
    "GRU": torch.nn.GRU,
    "RNN, tanh": torch.nn.RNN,
    "RNN, relu": functools.partial(torch.nn.RNN, nonlinearity="relu"),
}


def _results(layer: torch.nn.Module, x: torch.Tensor, grads: bool) -> list[torch.Tensor]:
    """Return output and states, and the gradients of input and parameters."""
    x = x.detach().requires_grad_(grads)
    with torch.set_grad_enabled(grads):
        output, states = layer(x)
    found = [output, *(states if isinstance(states, tuple) else (states,))]
    if grads:
        wanted = [x, *layer.parameters()]
        found += torch.autograd.grad(output.float().square().sum(), wanted)
    return [t.detach().float().cpu() for t in found]


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("grads", [False, True])
def test_half_types_agree_with_float64(
    cell: str, dtype: torch.dtype, autocast: bool, grads: bool
) -> None:
    """By the layer's calls: a step's rounding must not add up over the sequence."""
    torch.manual_seed(1)
    wide = CELLS[cell](16, 24, 2, bidirectional=True).double()
    x = torch.randn(20, 3, 16, dtype=torch.float64)
    if not autocast:  # what half types hold
        wide = wide.to(dtype).double()
        x = x.to(dtype).double()
    ours = copy.deepcopy(wide).to(torch.float32 if autocast else dtype).to("hologram")
    given = x.to(torch.float32 if autocast else dtype).to("hologram")
    before = dict(_C.recorder_stats())
    with torch.autocast("hologram", dtype=dtype, enabled=autocast):
        output = ours(given)[0]
        assert output.dtype == dtype
        ops = _C.recorder_stats()["ops_recorded"] - before["ops_recorded"]
        got = _results(ours, given, grads)
    assert ops < 150, "step by step"
    epsilon = torch.finfo(dtype).eps
    for index, (a, b) in enumerate(zip(got, _results(wide, x, grads), strict=True)):
        scale = b.abs().max()
        assert (a - b).abs().max() <= 16 * epsilon * scale, index


def test_half_networks_with_unlike_dtypes_are_refused() -> None:
    layer = torch.nn.GRU(4, 4).to("hologram", torch.bfloat16)
    x = torch.randn(3, 2, 4, device="hologram")
    with pytest.raises((RuntimeError, ValueError), match=r"dtype|same type"):
        layer(x)


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


USES = [(1, 1, 1), (1, 0, 0), (0, 1, 0), (0, 0, 1)]


def run(layer: torch.nn.RNNBase, x: torch.Tensor, states: list) -> list:
    """Return the output and the last states, one or two."""
    if isinstance(layer, torch.nn.LSTM):
        output, last = layer(x, tuple(states))
        return [output, *last]
    return list(layer(x, states[0]))


def first_states(layer: torch.nn.RNNBase, batch: int) -> list:
    """Draw as many states as the layer takes."""
    rows = layer.num_layers * (2 if layer.bidirectional else 1)
    sizes = [layer.proj_size or layer.hidden_size, layer.hidden_size]
    count = 2 if isinstance(layer, torch.nn.LSTM) else 1
    dtype = layer.weight_hh_l0.dtype
    return [torch.randn(rows, batch, n).to(dtype) for n in sizes[:count]]


def gradients(layer: torch.nn.RNNBase, x: torch.Tensor, states: list, use: tuple) -> list:
    """Return results, and the gradients of everything."""
    leaves = [t.detach().requires_grad_() for t in (x, *states)]
    results = run(layer, leaves[0], leaves[1:])
    loss = sum((t.sin() * t).sum() for t, used in zip(results, use, strict=False) if used)
    wanted = [*leaves, *layer.parameters()]
    found = torch.autograd.grad(loss, wanted, allow_unused=True)
    return [t if t is None else t.detach().cpu() for t in (*results, *found)]


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("kind", [*KINDS, "three layers both ways"])
@pytest.mark.parametrize(("steps", "batch", "width"), [(1, 1, 70), (5, 3, 16), (9, 8, 130)])
def test_gradients_agree_with_cpu(cell: str, kind: str, steps: int, batch: int, width: int) -> None:
    torch.manual_seed(0)
    options = KINDS.get(kind, {"num_layers": 3, "bidirectional": True})
    if cell != "LSTM" and "proj_size" in options:
        return  # PyTorch's others have none
    cpu = CELLS[cell](6, width, **options).double()
    x = torch.randn(*((batch, steps) if cpu.batch_first else (steps, batch)), 6).double()
    states = first_states(cpu, batch)
    ours = copy.deepcopy(cpu).to("hologram")
    for use in USES[: 2 + len(states)]:
        want = gradients(cpu, x, states, use)
        results = []
        for mode in ("eager", "deferred"):
            with hologram_torch.execution(mode):
                moved = [t.to("hologram") for t in (x, *states)]
                results.append(gradients(ours, moved[0], moved[1:], use))
        for a, b, c in zip(want, *results, strict=True):
            assert (a is None) == (b is None) == (c is None)
            if a is not None:
                torch.testing.assert_close(b, a, rtol=1e-9, atol=1e-11)
                assert torch.equal(b, c)


@pytest.mark.parametrize("cell", CELLS)
def test_gradients_are_as_accurate_as_cpus(cell: str) -> None:
    torch.manual_seed(2)
    narrow = CELLS[cell](24, 65, 2, bidirectional=True)
    wide = copy.deepcopy(narrow).double()
    x, states = torch.randn(12, 5, 24), first_states(narrow, 5)
    exact = gradients(wide, x.double(), [s.double() for s in states], (1, 1, 1))
    cpu = gradients(narrow, x, states, (1, 1, 1))
    moved = [t.to("hologram") for t in (x, *states)]
    ours = gradients(narrow.to("hologram"), moved[0], moved[1:], (1, 1, 1))
    for got, want, right in zip(ours, cpu, exact, strict=True):
        problem = Rounding(units=8).excess(got, want, right, right)
        assert problem is None, problem


@pytest.mark.parametrize("cell", CELLS)
def test_layers_in_training_are_calls(cell: str) -> None:
    """No op for each step, whatever its number: the kernels of a layer are counted."""
    torch.func.grad(torch.sin)(torch.ones(()))  # leaves state on the thread for good
    layer = CELLS[cell](8, 16, 2, bidirectional=True).to("hologram")
    kernels = []
    for steps in (3, 30):
        x = torch.randn(steps, 4, 8, device="hologram")
        hologram_torch.reset_fallback_counts()
        with hologram_torch.profile() as p:
            layer(x)[0].sum().backward()
        kernels.append(sum(row.calls for row in p.kernels))
        assert not hologram_torch.fallback_counts()
    # Four directions of 27 more steps would be a hundred.
    assert kernels[1] - kernels[0] < 27, kernels


@pytest.mark.parametrize("cell", CELLS)
def test_gradients_pass_gradcheck_twice(cell: str) -> None:
    torch.manual_seed(3)
    layer = CELLS[cell](2, 3, 2, bidirectional=True).double().to("hologram")
    x = torch.randn(3, 2, 2, dtype=torch.float64)
    given = [t.to("hologram").requires_grad_() for t in (x, *first_states(layer.cpu(), 2))]
    layer.to("hologram")
    states = len(given) - 1

    def results(x: torch.Tensor, *rest: torch.Tensor) -> tuple:
        return tuple(run(layer, x, list(rest[:states])))

    assert torch.autograd.gradcheck(results, (*given, *layer.parameters()))
    small = CELLS[cell](2, 2).double().to("hologram")
    assert torch.autograd.gradgradcheck(
        lambda x, *_: small(x)[0], (x[:, :1].to("hologram").requires_grad_(), *small.parameters())
    )


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_results_have_the_same_bits_with_and_without_gradients(
    cell: str, dtype: torch.dtype
) -> None:
    torch.manual_seed(5)
    layer = CELLS[cell](6, 70, 2, bidirectional=True, batch_first=True).to(dtype)
    x, states = torch.randn(4, 11, 6, dtype=dtype), first_states(layer, 4)
    layer, given = layer.to("hologram"), [t.to("hologram") for t in (x, *states)]
    threads = torch.get_num_threads()
    found = []
    for count, mode in ((threads, "deferred"), (1, "deferred"), (threads, "eager")):
        torch.set_num_threads(count)
        with hologram_torch.execution(mode):
            trained = [t.detach().cpu() for t in run(layer, given[0], given[1:])]
            with torch.no_grad():
                found += [trained, [t.cpu() for t in run(layer, given[0], given[1:])]]
    torch.set_num_threads(threads)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_gru_takes_what_cpu_takes() -> None:
    """Packed sequences, no batch and half types; errors are PyTorch's."""
    torch.manual_seed(6)
    cpu = torch.nn.GRU(5, 7, 2, dropout=0.5).eval()
    ours = copy.deepcopy(cpu).to("hologram")
    x = torch.randn(4, 3, 5)
    lengths = torch.tensor([4, 2, 1])
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths)
    for given in (x, x[:, 0], packed):
        want, got = cpu(given)[0], ours(given.to("hologram"))[0]
        want, got = (t.data if hasattr(t, "batch_sizes") else t for t in (want, got))
        torch.testing.assert_close(got.cpu(), want)
    half, wide = ours.to(torch.bfloat16), copy.deepcopy(cpu).to(torch.bfloat16)
    got, want = half(x.to("hologram", torch.bfloat16))[0], wide(x.bfloat16())[0]
    torch.testing.assert_close(got.cpu(), want, atol=2e-2, rtol=2e-2)
    flat = [p.detach().to("hologram") for p in cpu.parameters()]
    state = torch.zeros(2, 9, 7, device="hologram")
    message = r"gru: expected states of batch size 3, .*\[4, 3, 5\], got one of shape \[2, 9, 7\]"
    with pytest.raises(RuntimeError, match=message):
        torch.gru(x.to("hologram"), state, flat, True, 2, 0.0, False, False, False)


@pytest.mark.parametrize("proj_size", [0, 5])
def test_lstm_follows_transforms(proj_size: int) -> None:
    torch.manual_seed(4)
    cpu = torch.nn.LSTM(3, 12, proj_size=proj_size).double()
    ours = copy.deepcopy(cpu).to("hologram")
    x = torch.randn(5, 2, 3).double()
    want, got = (
        torch.func.grad(lambda x, layer=layer: layer(x)[0].sin().sum())(x.to(device))
        for layer, device in ((cpu, "cpu"), (ours, "hologram"))
    )
    torch.testing.assert_close(got.cpu(), want)


def test_lstm_has_no_forward_derivative_as_on_cuda() -> None:
    layer = torch.nn.LSTM(3, 4).double().to("hologram")
    x = torch.randn(5, 2, 3).double().to("hologram")
    message = "forward AD with _thnn_fused_lstm_cell"
    with pytest.raises(NotImplementedError, match=message):
        torch.func.jvp(lambda x: layer(x)[0], (x,), (x,))
    forward = torch.autograd.forward_ad
    with torch.no_grad(), forward.dual_level(), pytest.raises(NotImplementedError, match=message):
        layer(forward.make_dual(x, x))


def test_lstm_gives_only_the_gradients_that_are_asked_for() -> None:
    layer = torch.nn.LSTM(3, 4, 2).to("hologram")
    layer.weight_ih_l0.requires_grad_(False)
    layer.bias_hh_l1.requires_grad_(False)
    x = torch.randn(5, 2, 3, device="hologram")
    layer(x)[0].sum().backward()
    missing = {name for name, p in layer.named_parameters() if p.grad is None}
    assert missing == {"weight_ih_l0", "bias_hh_l1"}
    with torch.no_grad():
        layer.weight_hh_l0.mul_(2)
    y = layer(x)[0].sum()
    with torch.no_grad():
        layer.weight_hh_l0.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


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


@pytest.mark.parametrize("way", ["is_grads_batched", "vmap", "a graph of gradients"])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_many_gradients_at_once(kind: str, way: str) -> None:
    torch.manual_seed(0)
    layer = getattr(torch.nn, kind)(3, 4, 2, bidirectional=True).double().to("hologram")
    x = torch.randn(5, 2, 3).double().to("hologram").requires_grad_()
    y = layer(x)[0]
    inputs = (x, *layer.parameters())
    if way == "a graph of gradients":
        (y,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    many = torch.randn(4, *y.shape).double().to("hologram")

    def gradients(grad: torch.Tensor, **options: bool) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(y, inputs, grad, retain_graph=True, **options)

    expected = [gradients(grad) for grad in many]
    found = torch.vmap(gradients)(many) if way == "vmap" else gradients(many, is_grads_batched=True)
    for i, one in enumerate(expected):
        for ours, other in zip(found, one, strict=True):
            torch.testing.assert_close(ours[i], other)
