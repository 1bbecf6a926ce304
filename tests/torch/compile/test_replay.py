# SPDX-License-Identifier: MIT
"""Compiled graphs that run as circuits from their second call on."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from compile.models import DEVICE, Gpt, Random, numbers, words
from torch import Tensor, nn

from hologram_torch import _C, _replay


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[_replay.Replayed]]:
    """Collect what is compiled."""
    found: list[_replay.Replayed] = []
    original = _replay.Replayed.__init__

    def init(self: Any, run: Any) -> None:
        original(self, run)
        found.append(self)

    monkeypatch.setattr(_replay.Replayed, "__init__", init)
    torch._dynamo.reset()
    return found


def deep() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.LayerNorm(16)) for _ in range(4)]
    return nn.Sequential(*layers, nn.Linear(16, 2)).to(DEVICE)


def test_the_third_call_is_one_circuit(made: list[_replay.Replayed]) -> None:
    model = deep()
    compiled = torch.compile(model, backend="hologram", mode="reduce-overhead")
    x = torch.randn(8, 16, device=DEVICE)
    with torch.no_grad():
        expected = model(x)
        for _ in range(3):
            got = compiled(x)
            assert torch.equal(got, expected)
        torch.hologram.synchronize()
        before = _C.recorder_stats()
        got = compiled(x)
        torch.hologram.synchronize()
    after = _C.recorder_stats()
    assert after["circuits"] - before["circuits"] == 1
    assert torch.equal(got, expected)
    (replayed,) = made
    assert len(replayed.circuits) == 1 and not replayed.refusal
    assert replayed.circuits[0].ops > 8 and replayed.circuits[0].bytes_kept > 0


def test_forward_and_backward_are_circuits(made: list[_replay.Replayed]) -> None:
    model = torch.compile(Gpt().to(DEVICE), backend="hologram")
    for step in range(4):
        model(words(2, 12)(step).to(DEVICE)).square().mean().backward()
    assert [len(r.circuits) for r in made] == [1, 1], [r.refusal for r in made]


def test_results_that_are_held_keep_their_values() -> None:
    model = deep()
    compiled = torch.compile(model, backend="hologram")
    inputs = [numbers(8, 16)(step).to(DEVICE) for step in range(6)]
    with torch.no_grad():
        held = [compiled(x) for x in inputs]
        for x, y in zip(inputs, held, strict=True):
            assert torch.equal(y, model(x))


def test_backward_passes_come_in_any_order() -> None:
    grads = []
    for way in ("eager", "compiled"):
        torch._dynamo.reset()
        model = deep()
        call = torch.compile(model, backend="hologram") if way == "compiled" else model
        for round_ in range(4):
            losses = [call(numbers(8, 16)(10 * round_ + k).to(DEVICE)).square() for k in range(3)]
            for k in (2, 0, 1):
                losses[k].mean().backward()
        grads.append([p.grad for p in model.parameters()])
    for a, b in zip(*grads, strict=True):
        assert a is not None and b is not None and torch.equal(a, b)


def test_random_numbers_go_on() -> None:
    class Noise(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(*(Random() for _ in range(3)))

        def forward(self, x: Tensor) -> Tensor:
            return self.layers(x)

    x = torch.randn(4, 8, device=DEVICE)
    results = []
    for backend in ("eager", "hologram"):
        torch._dynamo.reset()
        call = torch.compile(Noise().to(DEVICE), backend=backend)
        torch.hologram.manual_seed(3)
        results.append([call(x) for _ in range(5)] + [torch.hologram.get_rng_state()])
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(results[1][3], results[1][4])


def test_parameters_that_move_are_seen(made: list[_replay.Replayed]) -> None:
    model = deep()
    compiled = torch.compile(model, backend="hologram")
    x = torch.randn(8, 16, device=DEVICE)
    with torch.no_grad():
        for step in range(6):
            for p in model.parameters():
                p.data = p.data + 0.1 * step  # other memory
            assert torch.equal(compiled(x), model(x))
    assert len(made[0].circuits) == 1


def test_arguments_that_are_written() -> None:
    def f(x: Tensor, y: Tensor) -> Tensor:
        for _ in range(4):
            y = (y * 2 + x).tanh()
        x.add_(y)
        return y.t()

    compiled = torch.compile(f, backend="hologram")
    a, y = torch.ones(4, 4, device=DEVICE), torch.ones(4, 4, device=DEVICE)
    b = a.clone()
    raised = set()
    for _ in range(5):
        version = b._version
        expected, got = f(a, y), compiled(b, y)
        assert torch.equal(a, b) and torch.equal(expected, got)
        assert got.stride() == expected.stride()
        raised.add(b._version - version)
    # Circuits count writes as the first call does, which ran op by op.
    assert len(raised) == 1 and raised.pop() > 0


def test_what_is_one_tensor_or_two() -> None:
    def f(x: Tensor, y: Tensor) -> Tensor:
        for _ in range(5):
            x = (x * y).sin() + y
        return x

    compiled = torch.compile(f, backend="hologram")
    x, y = torch.randn(6, device=DEVICE), torch.randn(6, device=DEVICE)
    both = torch.randn(12, device=DEVICE)
    for _ in range(4):
        for arguments in ((x, y), (x, x), (both[:6], both[6:])):
            assert torch.equal(compiled(*arguments), f(*arguments))


def test_memory_whose_address_is_known_runs_op_by_op(made: list[_replay.Replayed]) -> None:
    model = deep()
    compiled = torch.compile(model, backend="hologram")
    x = torch.randn(8, 16, device=DEVICE)
    with torch.no_grad():
        for _ in range(3):
            compiled(x)
        view = model[0][0].bias.detach().cpu()
        model[0][0].bias.data_ptr()
        for _ in range(5):
            assert torch.equal(compiled(x), model(x))
        assert view.shape == (16,)
    assert len(made[0].circuits) == 1


def test_what_cannot_be_captured_says_why(made: list[_replay.Replayed]) -> None:
    def f(x: Tensor) -> Tensor:
        for _ in range(4):
            x = torch.special.bessel_j0(x) + x.sin() * 2
        return x

    compiled = torch.compile(f, backend="hologram")
    x = torch.randn(6, device=DEVICE)
    for _ in range(4):
        assert torch.equal(compiled(x), f(x))
    assert not made[0].circuits
    assert "while a graph is captured" in made[0].refusal


def test_inside_a_graph_and_without_deferring() -> None:
    model = deep()
    compiled = torch.compile(model, backend="hologram")
    x = torch.randn(8, 16, device=DEVICE)
    with torch.no_grad():
        expected = model(x)
        for _ in range(3):
            compiled(x)
        graph = torch.accelerator.Graph()
        with graph:
            y = compiled(x)
        graph.replay()
        assert torch.equal(y, expected)
        _C.set_deferring(False)
        try:
            assert torch.equal(compiled(x), expected)
        finally:
            _C.set_deferring(True)


def _calls_and_eager(x: Tensor, compiled: Any, body: Any, turns: int) -> int:
    """Call a compiled function and its body in turns; return how many results are wrong."""
    wrong = 0
    expected = body(x.cpu())
    leaf = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(body(leaf).sum(), leaf)
    slope = slope.cpu()
    for turn in range(turns):
        results = [compiled(x).cpu(), body(x).cpu()]
        wrong += sum(not torch.equal(r, expected) for r in results)
        if turn % 4 == 0:
            (grad,) = torch.autograd.grad(body(leaf).sum(), leaf)
            wrong += not torch.equal(grad.cpu(), slope)
    return wrong


@pytest.mark.parametrize("calls", [2_000, pytest.param(200_000, marks=pytest.mark.heavy)])
def test_threads_call_what_is_compiled_and_eager_code(calls: int) -> None:
    threads = 8
    body = lambda x: (x * 2 + 1).relu() * x  # noqa: E731  (bit for bit that of cpu)
    compiled = torch.compile(body, backend="hologram")
    inputs = [torch.arange(i - 20.0, i + 20.0, device=DEVICE) for i in range(threads)]
    for _ in range(4):
        compiled(inputs[0])
    wrong = [0] * threads

    def work(i: int) -> None:
        wrong[i] = _calls_and_eager(inputs[i], compiled, body, calls // threads)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == [0] * threads


def test_threads_capture_beside_each_other() -> None:
    models = [deep() for _ in range(3)]
    calls = [torch.compile(m, backend="hologram") for m in models]
    x = torch.randn(8, 16, device=DEVICE)
    with torch.no_grad():
        expected = models[0](x)
        for call in calls:
            call(x)
    wrong: list[int] = []

    def work(index: int) -> None:
        with torch.no_grad():
            results = [calls[index](x) for _ in range(20)]
            wrong.extend(index for y in results if not torch.equal(y, expected))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_memory_goes_with_the_function(made: list[_replay.Replayed]) -> None:
    torch.hologram.synchronize()
    gc.collect()
    before = torch.hologram.memory_allocated()
    model = deep()
    compiled = torch.compile(model, backend="hologram")
    x = torch.randn(8, 16, device=DEVICE)
    for _ in range(4):
        compiled(x).sum().backward()
    del model, compiled, x
    made.clear()
    torch._dynamo.reset()
    torch.hologram.synchronize()
    gc.collect()
    assert torch.hologram.memory_allocated() <= before


def test_an_index_out_of_range_is_an_error_of_the_run() -> None:
    def f(table: Tensor, index: Tensor) -> Tensor:
        y = nn.functional.embedding(index, table)
        for _ in range(5):
            y = (y * 2).sin() + 1
        return y

    compiled = torch.compile(f, backend="hologram")
    table = torch.randn(3, 2, device=DEVICE)
    for _ in range(3):
        compiled(table, torch.tensor([1]).to(DEVICE))
    with pytest.raises(IndexError):
        compiled(table, torch.tensor([5]).to(DEVICE)).sum().item()
    assert compiled(table, torch.tensor([2]).to(DEVICE)).shape == (1, 2)
