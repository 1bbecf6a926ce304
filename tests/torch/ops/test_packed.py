# SPDX-License-Identifier: MIT
"""Packed sequences and projections: recurrent layers on them as calls, packing and padding."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable

import pytest
import torch
from accuracy import Rounding
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import hologram_torch
from hologram_torch import _C

aten = torch.ops.aten

CELLS = {
    "LSTM": torch.nn.LSTM,
    "GRU": torch.nn.GRU,
    "RNN, tanh": torch.nn.RNN,
    "RNN, relu": functools.partial(torch.nn.RNN, nonlinearity="relu"),
    "projected": functools.partial(torch.nn.LSTM, proj_size=9),
}
KINDS = {
    "plain": {},
    "two layers both ways": {"num_layers": 2, "bidirectional": True},
    "both ways without bias": {"bidirectional": True, "bias": False},
}
# Not sorted, sorted, all alike, one of one step.
LENGTHS = [[5, 9, 1, 4], [7, 3, 3], [6, 6, 6], [1]]


def _states(layer: torch.nn.RNNBase, batch: int) -> list[torch.Tensor]:
    rows = layer.num_layers * (2 if layer.bidirectional else 1)
    sizes = [layer.proj_size or layer.hidden_size, layer.hidden_size]
    count = 2 if isinstance(layer, torch.nn.LSTM) else 1
    dtype = layer.weight_hh_l0.dtype
    return [torch.randn(rows, batch, n).to(dtype) for n in sizes[:count]]


def _run(
    layer: torch.nn.RNNBase, x: torch.Tensor, states: list[torch.Tensor], lengths: list[int] | None
) -> list[torch.Tensor]:
    """Return the padded output and the last states; without lengths of what is not packed."""
    if lengths is not None:
        packed = pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False)
        assert packed.batch_sizes.device.type == "cpu"
        x = packed
    output, last = layer(x, tuple(states) if len(states) > 1 else states[0])
    if lengths is not None:
        output = pad_packed_sequence(output)[0]
    return [output, *(last if isinstance(last, tuple) else (last,))]


def _with_gradients(
    layer: torch.nn.RNNBase, x: torch.Tensor, states: list[torch.Tensor], lengths: list[int] | None
) -> list[torch.Tensor]:
    """Return the results and the gradients of everything."""
    leaves = [t.detach().requires_grad_() for t in (x, *states)]
    results = _run(layer, leaves[0], leaves[1:], lengths)
    loss = sum((t.sin() * t).sum() for t in results)
    found = torch.autograd.grad(loss, [*leaves, *layer.parameters()])
    return [t.detach().cpu() for t in (*results, *found)]


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("hidden", [16, 130])
def test_packed_layers_agree_with_cpu(
    cell: str, kind: str, lengths: list[int], hidden: int
) -> None:
    """And have the same bits however they run, with gradients and without."""
    torch.manual_seed(0)
    cpu = CELLS[cell](6, hidden, **KINDS[kind]).double()
    x = torch.randn(max(lengths), len(lengths), 6).double()
    states = _states(cpu, len(lengths))
    ours = copy.deepcopy(cpu).to("hologram")
    want = _with_gradients(cpu, x, states, lengths)
    moved = [t.to("hologram") for t in (x, *states)]
    threads = torch.get_num_threads()
    found = []
    for count, mode in ((threads, "deferred"), (1, "deferred"), (threads, "eager")):
        torch.set_num_threads(count)
        with hologram_torch.execution(mode):
            found.append(_with_gradients(ours, moved[0], moved[1:], lengths))
            with torch.no_grad():
                plain = [t.cpu() for t in _run(ours, moved[0], moved[1:], lengths)]
        assert all(torch.equal(a, b) for a, b in zip(plain, found[-1], strict=False))
    torch.set_num_threads(threads)
    for got, *others in zip(*found, strict=True):
        assert all(torch.equal(got, other) for other in others)
    for got, right in zip(found[0], want, strict=True):
        torch.testing.assert_close(got, right, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("packed", [False, True])
def test_floats_are_as_accurate_as_cpus(cell: str, packed: bool) -> None:
    torch.manual_seed(2)
    narrow = CELLS[cell](24, 65, 2, bidirectional=True)
    wide = copy.deepcopy(narrow).double()
    lengths = [12, 10, 10, 3, 1] if packed else None
    x, states = torch.randn(12, 5, 24), _states(narrow, 5)
    exact = _with_gradients(wide, x.double(), [s.double() for s in states], lengths)
    cpu = _with_gradients(narrow, x, states, lengths)
    moved = [t.to("hologram") for t in (x, *states)]
    ours = _with_gradients(narrow.to("hologram"), moved[0], moved[1:], lengths)
    for got, want, right in zip(ours, cpu, exact, strict=True):
        problem = Rounding(units=8).excess(got, want, right, right)
        assert problem is None, problem


@pytest.mark.parametrize("cell", CELLS)
def test_sequences_of_one_length_have_the_bits_of_a_batch(cell: str) -> None:
    torch.manual_seed(3)
    layer = CELLS[cell](6, 70, 2, bidirectional=True)
    given = [t.to("hologram") for t in (torch.randn(8, 5, 6), *_states(layer, 5))]
    layer.to("hologram")
    packed = _with_gradients(layer, given[0], given[1:], [8] * 5)
    batch = _with_gradients(layer, given[0], given[1:], None)
    for a, b in zip(packed[: len(given)], batch, strict=False):
        assert torch.equal(a, b)
    for a, b in zip(packed, batch, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("grads", [False, True])
def test_layers_are_calls(cell: str, grads: bool) -> None:
    """No op for each step, and nothing that falls back."""
    layer = CELLS[cell](8, 16, 2, bidirectional=True).to("hologram")
    kernels = []
    for steps in (4, 40):
        x = torch.randn(steps, 4, 8, device="hologram")
        lengths = torch.tensor([steps, steps - 1, steps // 2, 1])
        hologram_torch.reset_fallback_counts()
        with hologram_torch.profile() as p, torch.set_grad_enabled(grads):
            output = pad_packed_sequence(layer(pack_padded_sequence(x, lengths))[0])[0]
            total = output.sum()
            if grads:
                total.backward()
            total.item()
        kernels.append(sum(row.calls for row in p.kernels))
        assert not hologram_torch.fallback_counts()
    assert kernels[1] - kernels[0] < 27, kernels


def test_other_lengths_find_the_plan() -> None:
    layer = torch.nn.LSTM(8, 16, bidirectional=True, proj_size=4).to("hologram").eval()
    made = []
    for lengths in ([9, 7, 3], [11, 8, 2], [17, 5, 4], [14, 13, 6], [21, 10, 9]):
        packed = pack_padded_sequence(torch.randn(max(lengths), 3, 8), torch.tensor(lengths))
        data = packed.data.to("hologram")
        states = [torch.zeros(2, 3, n, device="hologram") for n in (4, 16)]
        torch.hologram.synchronize()
        before = _C.recorder_stats()["plan_misses"]
        with torch.no_grad():
            output = layer(PackedSequence(data, packed.batch_sizes), tuple(states))[0].data
        output.cpu()
        made.append(_C.recorder_stats()["plan_misses"] - before)
    assert made[2:] == [0, 0, 0], made


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("grads", [False, True])
def test_half_types_agree_with_float64(
    cell: str, packed: bool, autocast: bool, grads: bool
) -> None:
    torch.manual_seed(1)
    dtype = torch.bfloat16
    wide = CELLS[cell](16, 24, 2, bidirectional=True).to(dtype).double()
    x = torch.randn(20, 3, 16).to(dtype).double()
    states = [t.to(dtype).double() for t in _states(wide, 3)]
    own = torch.float32 if autocast else dtype
    ours = copy.deepcopy(wide).to("hologram", own)
    given = [t.to("hologram", own) for t in (x, *states)]
    lengths = [20, 11, 4] if packed else None
    with torch.set_grad_enabled(grads), torch.autocast("hologram", dtype, enabled=autocast):
        got = _run(ours, given[0], given[1:], lengths)
        assert got[0].dtype == dtype
        if grads:
            got += torch.autograd.grad(got[0].float().square().sum(), list(ours.parameters()))
    want = _run(wide, x, states, lengths)
    if grads:
        want += torch.autograd.grad(want[0].square().sum(), list(wide.parameters()))
    epsilon = torch.finfo(dtype).eps
    for index, (a, b) in enumerate(zip(got, want, strict=True)):
        assert (a.cpu() - b).abs().max() <= 16 * epsilon * b.abs().max(), index


@pytest.mark.parametrize("cell", CELLS)
def test_dropout_between_layers_draws_alike_with_gradients_and_without(cell: str) -> None:
    layer = CELLS[cell](6, 12, 3, dropout=0.5).to("hologram")
    given = [t.to("hologram") for t in (torch.randn(7, 4, 6), *_states(layer.cpu(), 4))]
    layer.to("hologram")
    results = []
    for grads in (True, False):
        torch.hologram.manual_seed(3)
        with torch.set_grad_enabled(grads):
            results.append(_run(layer, given[0], given[1:], [7, 5, 2, 2])[0].detach().cpu())
    assert torch.equal(*results)
    torch.hologram.manual_seed(4)
    other = _run(layer, given[0], given[1:], [7, 5, 2, 2])[0].detach().cpu()
    assert not torch.equal(results[0], other)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("packed", [False, True])
def test_gradients_pass_gradcheck_twice(cell: str, packed: bool) -> None:
    torch.manual_seed(3)
    make = functools.partial(torch.nn.LSTM, proj_size=2) if cell == "projected" else CELLS[cell]
    layer = make(2, 3, 2, bidirectional=True).double()
    lengths = [3, 1] if packed else None
    given = [torch.randn(3, 2, 2, dtype=torch.float64), *_states(layer, 2)]
    given = [t.to("hologram").requires_grad_() for t in given]
    layer.to("hologram")

    def results(x: torch.Tensor, *rest: torch.Tensor) -> tuple:
        return tuple(_run(layer, x, list(rest[: len(given) - 1]), lengths))

    assert torch.autograd.gradcheck(results, (*given, *layer.parameters()))
    small = make(2, 3).double().to("hologram")

    def output(x: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        states = [t[:1].detach() for t in given[1:]]
        return _run(small, x, states, lengths)[0]

    assert torch.autograd.gradgradcheck(output, (given[0], *small.parameters()))


def test_projected_layers_give_only_the_gradients_that_are_asked_for() -> None:
    layer = torch.nn.LSTM(3, 6, 2, proj_size=4).to("hologram")
    layer.weight_hr_l0.requires_grad_(False)
    layer.weight_hh_l1.requires_grad_(False)
    layer(torch.randn(5, 2, 3, device="hologram"))[0].sum().backward()
    missing = {name for name, p in layer.named_parameters() if p.grad is None}
    assert missing == {"weight_hr_l0", "weight_hh_l1"}


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("device", ["cpu", "hologram"])
def test_transforms_of_packed_sequences_are_refused_as_on_cpu(cell: str, device: str) -> None:
    layer = CELLS[cell](3, 12).to(device)
    x, sizes = torch.randn(8, 3, device=device), torch.tensor([3, 3, 2])
    with pytest.raises(RuntimeError, match="Cannot access data pointer"):
        torch.func.grad(lambda x: layer(PackedSequence(x, sizes))[0].data.sum())(x)


def test_layers_of_packed_sequences_can_be_captured() -> None:
    layer = torch.nn.GRU(4, 5).to("hologram").eval()
    packed = pack_padded_sequence(torch.randn(6, 3, 4).to("hologram"), torch.tensor([6, 4, 2]))
    state = torch.zeros(1, 3, 5, device="hologram")
    with torch.no_grad():
        layer(packed, state)[0].data.cpu()
        graph = torch.accelerator.Graph()
        with graph:
            output = layer(packed, state)[0].data
        packed.data.copy_(torch.randn(12, 4))
        graph.replay()
        want = layer.cpu()(PackedSequence(packed.data.cpu(), packed.batch_sizes), state.cpu())[0]
    torch.testing.assert_close(output.cpu(), want.data)


def _lstm(
    device: str, projected: bool, x: torch.Tensor, sizes: list[int] | None, *hx: torch.Tensor
) -> list[torch.Tensor]:
    torch.manual_seed(0)
    layer = torch.nn.LSTM(3, 4, proj_size=2 if projected else 0).to(device)
    params = [p.detach() for p in layer.parameters()]
    batch = () if sizes is None else (torch.tensor(sizes),)
    options = (True, 1, 0.0, False, False, False)
    states = tuple(h.to(device) for h in hx)
    return torch._VF.lstm(
        x.to(device), *batch, states, params, *(options[:-1] if batch else options)
    )


@pytest.mark.parametrize(
    ("projected", "shape", "sizes", "h", "c"),
    [
        (False, (6, 3), [3, 2, 2], (1, 3, 4), (1, 3, 4)),  # more rows than there are
        (False, (6, 3), [2, 3, 1], (1, 3, 4), (1, 3, 4)),
        (False, (6, 3), [4, 2], (1, 3, 4), (1, 3, 4)),
        (False, (6, 3), [3, 2, 1], (1, 2, 4), (1, 3, 4)),
        (False, (6, 3), [3, 2, 1], (1, 3, 3), (1, 3, 4)),
        (False, (6, 2), [3, 2, 1], (1, 3, 4), (1, 3, 4)),
        (True, (6, 3), [3, 2, 1], (1, 3, 4), (1, 3, 4)),
        (True, (5, 3, 3), None, (1, 3, 3), (1, 3, 4)),
        (True, (5, 3, 3), None, (1, 2, 2), (1, 3, 4)),
        (True, (5, 3, 2), None, (1, 3, 2), (1, 3, 4)),
    ],
)
def test_layers_refuse_what_cpu_refuses(
    projected: bool, shape: tuple, sizes: list[int] | None, h: tuple, c: tuple
) -> None:
    x = torch.randn(shape)
    for device in ("cpu", "hologram"):
        with pytest.raises(RuntimeError):
            [t.cpu() for t in _lstm(device, projected, x, sizes, torch.zeros(h), torch.zeros(c))]


def test_fewer_rows_than_given_and_empty_steps_go_as_on_cpu() -> None:
    x, state = torch.randn(6, 3), torch.zeros(1, 3, 4)
    for sizes in ([3, 2], [3, 3, 0]):
        want, got = (_lstm(d, False, x, sizes, state, state) for d in ("cpu", "hologram"))
        for a, b in zip(want, got, strict=True):
            torch.testing.assert_close(b.cpu(), a)


DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.complex128,
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_packing_and_padding_agree_with_cpu(
    dtype: torch.dtype, batch_first: bool, shape: tuple
) -> None:
    lengths = torch.tensor([5, 3, 3, 1])
    x = torch.randn(*((4, 6) if batch_first else (6, 4)), *shape).abs().mul(3).to(dtype)
    value = 1 if dtype in (torch.bool, torch.uint8, torch.int64) else -2.5
    for own, theirs in ((x, x.to("hologram")), (x[..., :], x.mT.contiguous().to("hologram").mT)):
        data, sizes = aten._pack_padded_sequence(own, lengths, batch_first)
        our_data, our_sizes = aten._pack_padded_sequence(theirs, lengths, batch_first)
        assert torch.equal(our_data.cpu(), data)
        assert our_sizes.device.type == "cpu" and torch.equal(our_sizes, sizes)
        for padding, total in ((0, 0), (value, 7)):
            options = batch_first, padding, total
            want, lens = aten._pad_packed_sequence(data, sizes, *options)
            got, our_lens = aten._pad_packed_sequence(our_data, our_sizes, *options)
            assert torch.equal(got.cpu(), want) and got.stride() == want.stride()
            assert torch.equal(our_lens, lens)
        backward = aten._pack_padded_sequence_backward
        want = backward(data, x.shape, sizes, batch_first)
        got = backward(our_data, x.shape, our_sizes, batch_first)
        assert torch.equal(got.cpu(), want) and got.stride() == want.stride()


@pytest.mark.parametrize("batch_first", [False, True])
def test_packing_and_padding_pass_gradcheck_twice(batch_first: bool) -> None:
    x = torch.randn((4, 6, 2) if batch_first else (6, 4, 2), dtype=torch.float64)
    x = x.to("hologram").requires_grad_()
    lengths = torch.tensor([6, 4, 4, 2])

    def both(x: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first)
        return pad_packed_sequence(packed, batch_first, padding_value=1.0, total_length=8)[0]

    assert torch.autograd.gradcheck(both, x)
    assert torch.autograd.gradgradcheck(both, x)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: aten._pack_padded_sequence(x, torch.tensor([3, 4, 1, 1]), False),
        lambda x: aten._pack_padded_sequence(x, torch.tensor([4, 3, 1, 0]), False),
        lambda x: aten._pack_padded_sequence(x, torch.tensor([4, 3, 1]), False),
        lambda x: aten._pack_padded_sequence(x, torch.tensor([4, 3, 1, 1]).int(), False),
        lambda x: aten._pack_padded_sequence(x[:0], torch.tensor([4, 3, 1, 1]), False),
        lambda x: aten._pack_padded_sequence(x[0, 0], torch.tensor([4]), False),
        lambda x: aten._pad_packed_sequence(x[0], torch.tensor([3, 2]), False, 0.0, 0),
        lambda x: aten._pad_packed_sequence(x[0], torch.tensor([3, 1]), False, 0.0, 1),
        lambda x: aten._pad_packed_sequence(x[0], torch.tensor([3, 1]).int(), False, 0.0, 0),
        lambda x: aten._pad_packed_sequence(x[0], torch.zeros(0).long(), False, 0.0, 0),
    ],
)
def test_packing_refuses_in_the_words_of_cpu(call: Callable[[torch.Tensor], object]) -> None:
    x, messages = torch.randn(6, 4, 3), []
    for device in ("cpu", "hologram"):
        with pytest.raises((RuntimeError, IndexError)) as error:
            call(x.to(device))
        messages.append(str(error.value).splitlines()[0])
    assert messages[0] == messages[1]
