# SPDX-License-Identifier: MIT
"""torch.accelerator.Graph and make_graphed_callables: replays do what the captured code does."""

from __future__ import annotations

import copy
import gc
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import hologram_torch
from hologram_torch import _C

pytestmark = [
    pytest.mark.skipif(
        not _C.can_defer or not hasattr(torch.accelerator, "Graph"),
        reason="needs torch.accelerator.Graph",
    ),
    pytest.mark.usefixtures("deferred"),
]

Tensor = torch.Tensor
DEVICE = "hologram"


def make(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(DEVICE)


def capture(call: Callable[[], Any], **options: Any) -> tuple[Any, Any]:
    graph = torch.accelerator.Graph(**options)
    with graph:
        result = call()
    return graph, result


def test_a_replay_reads_and_writes_the_same_tensors() -> None:
    x, w = make(50, 20), make(20, 30, seed=1)
    graph, (y, total) = capture(lambda: ((y := (x @ w + 1).relu()), y.sum(-1)))
    for seed in range(3):
        x.copy_(make(50, 20, seed=seed))
        graph.replay()
        expected = (x @ w + 1).relu()
        assert torch.equal(y, expected)
        assert torch.equal(total, expected.sum(-1))


def test_nothing_runs_while_it_is_captured() -> None:
    x = make(100)
    before = x.clone()
    kernels = _C.recorder_stats()["kernels"]
    graph, _ = capture(lambda: x.mul_(2).add_(1))
    assert _C.recorder_stats()["kernels"] == kernels + 1  # the clone's
    assert torch.equal(x, before)
    graph.replay()
    graph.replay()
    assert torch.equal(x, (before * 2 + 1) * 2 + 1)


def test_what_was_recorded_before_comes_first_and_what_follows_after() -> None:
    x = make(100)
    graph, y = capture(lambda: x * 3)
    for k in range(5):
        x.fill_(k)
        graph.replay()
        z = y + 1
        x.fill_(-1)
        assert torch.equal(z, torch.full((100,), 3.0 * k + 1, device=DEVICE))


def test_views_and_in_place_results_outside() -> None:
    x = make(8, 6)
    column, row = x[:, 2], x.t()[4]
    graph, _ = capture(lambda: (column.add_(1), row.mul_(2)))
    expected = x.cpu()
    for _ in range(3):
        graph.replay()
        expected[:, 2] += 1
        expected.t()[4] *= 2
        assert torch.equal(x.cpu(), expected)
        assert torch.equal(column.cpu(), expected[:, 2])


def test_results_keep_their_memory_and_values_share_theirs() -> None:
    x = make(1000)

    def long_chain() -> tuple[Tensor, Tensor]:
        y = x
        for _ in range(30):
            y = torch.cumsum(y * 0.01, 0)
        return y, y + 1

    graph, (y, z) = capture(long_chain)
    graph.replay()
    expected, more = long_chain()
    assert torch.equal(y, expected)
    first = y.clone()
    others = [make(1000, seed=k) * 2 for k in range(20)]  # would get memory that was given back
    graph.replay()
    assert torch.equal(y, first)
    assert torch.equal(z, more)
    assert all(torch.equal(o, make(1000, seed=k) * 2) for k, o in enumerate(others))


class Net(nn.Module):
    """Norms, dropout and an embedding, as models have them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 24)
        self.norm = nn.LayerNorm(24)
        self.up, self.down = nn.Linear(24, 48), nn.Linear(48, 40)

    def forward(self, ids: Tensor) -> Tensor:
        """Predict."""
        x = self.norm(self.embed(ids))
        x = x + F.scaled_dot_product_attention(x, x, x, is_causal=True)
        return self.down(F.gelu(self.up(x)))


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p, lr=1e-2, capturable=True),
    "Adam, one by one": lambda p: torch.optim.Adam(p, lr=1e-2, capturable=True, foreach=False),
    "AdamW, fused": lambda p: torch.optim.AdamW(p, lr=1e-2, capturable=True, fused=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_captured_training_step_gives_the_bits_of_the_steps(name: str) -> None:
    torch.manual_seed(0)
    base = Net()
    ids = torch.randint(0, 40, (6, 4, 9), generator=torch.Generator().manual_seed(1))

    def start() -> tuple[nn.Module, Tensor, Callable[[], Tensor]]:
        model = copy.deepcopy(base).to(DEVICE)
        optimizer = OPTIMIZERS[name](model.parameters())
        x = ids[0].to(DEVICE)

        def step() -> Tensor:
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model(x).flatten(0, 1), x.flatten())
            loss.backward()
            optimizer.step()
            return loss

        for _ in range(3):
            step()
        return model, x, step

    eager, x, step = start()
    losses = []
    for k in range(6):
        x.copy_(ids[k])
        losses.append(step().item())
    model, x, step = start()
    graph, loss = capture(step)
    for k in range(6):
        x.copy_(ids[k])
        graph.replay()
        assert loss.item() == losses[k], k
    for ours, theirs in zip(model.parameters(), eager.parameters(), strict=True):
        assert torch.equal(ours, theirs)
        assert torch.equal(ours.grad, theirs.grad)


def test_random_numbers_go_on_from_replay_to_replay() -> None:
    x = torch.ones(500, device=DEVICE)
    own = torch.Generator(device=DEVICE).manual_seed(5)

    def draw() -> tuple[Tensor, ...]:
        return (
            F.dropout(x, 0.5),
            torch.rand(30, device=DEVICE),
            torch.randn(40, device=DEVICE, generator=own),
            torch.empty(20, device=DEVICE).uniform_(2, 3),
        )

    torch.manual_seed(3)
    own.manual_seed(5)
    expected = [[t.clone() for t in draw()] for _ in range(3)]
    torch.manual_seed(3)
    own.manual_seed(5)
    graph, drawn = capture(draw)
    for values in expected:
        graph.replay()
        for ours, theirs in zip(drawn, values, strict=True):
            assert torch.equal(ours, theirs)
    # Eager numbers follow those of the replays, and a seed begins anew.
    torch.manual_seed(3)
    own.manual_seed(5)
    graph.replay()
    assert torch.equal(drawn[0], expected[0][0])
    assert all(torch.equal(a, b) for a, b in zip(draw(), expected[1], strict=True))


def test_indices_are_looked_at_by_each_replay() -> None:
    table, index = make(10, 4), torch.tensor([1, 3, 3, 9]).to(DEVICE)

    def wide(index: Tensor) -> Tensor:
        return index[:, None].repeat(1, 4)

    graph, (rows, embedded, picked) = capture(
        lambda: (table[index], F.embedding(index, table), table.gather(0, wide(index)))
    )
    for values in ([1, 3, 3, 9], [0, 0, 8, 2]):
        index.copy_(torch.tensor(values))
        graph.replay()
        assert torch.equal(rows, table[index])
        assert torch.equal(embedded, F.embedding(index, table))
        assert torch.equal(picked, table.gather(0, wide(index)))
    cache, source = make(3, 10, 4), make(3, 4, 4)
    written, _ = capture(lambda: cache.index_copy_(1, index, source))
    cache.zero_()
    index.copy_(torch.tensor([1, 5, 8, 2]))
    written.replay()
    assert torch.equal(cache[:, index], source)
    assert not cache[:, [0, 3, 4, 6, 7, 9]].any()
    index.copy_(torch.tensor([1, 3, 3, 10]))
    with pytest.raises(IndexError, match="outside a dimension of size 10"):
        graph.replay()
    index.copy_(torch.tensor([1, 2, 3, 4]))
    graph.replay()
    assert torch.equal(rows, table[index])


def test_replays_are_seen_by_traces() -> None:
    x = make(64, 64)
    graph, y = capture(lambda: ((x @ x).relu() + x).sum())
    graph.replay()
    explanation = hologram_torch.explain(graph.replay)
    (circuit,) = explanation.circuits
    assert len(circuit.before) == 4
    assert "its replay as a graph" in str(explanation)
    assert explanation.stats["kernels_run"] == len(circuit.after)
    with hologram_torch.profile() as profile:
        for _ in range(3):
            x.mul_(2)
            graph.replay()
    assert re.search(r"gemm\w* +3 ", profile.table())
    assert torch.equal(y, ((x @ x).relu() + x).sum())
    with torch.profiler.profile() as profiler:
        graph.replay()
        torch.accelerator.synchronize()
    assert any("hologram::gemm" in event.key for event in profiler.key_averages())


def test_indices_in_several_dimensions_are_captured() -> None:
    table = make(10, 6, 4)
    rows, columns = torch.tensor([1, -1, 3]).to(DEVICE), torch.tensor([[0], [5]]).to(DEVICE)

    def put() -> Tensor:
        copy = table.clone()
        copy[rows, columns] = 7.0
        return copy.index_put((rows, columns), torch.ones_like(copy[rows, columns]), True)

    graph, (taken, changed) = capture(lambda: (table[rows, columns], put()))
    for places in ([[0], [5]], [[-6], [2]]):
        columns.copy_(torch.tensor(places))
        graph.replay()
        assert torch.equal(taken.cpu(), table.cpu()[rows.cpu(), columns.cpu()])
        expected = table.cpu().clone()
        expected[rows.cpu(), columns.cpu()] = 8.0
        assert torch.equal(changed.cpu(), expected)
    columns.copy_(torch.tensor([[0], [6]]))
    with pytest.raises(IndexError, match="outside a dimension of size 6"):
        graph.replay()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_step_with_a_scaler_is_captured(dtype: torch.dtype) -> None:
    def train(captured: bool) -> tuple[Tensor, float, Tensor]:
        w, factor = make(5, 3).to(dtype).requires_grad_(), torch.ones((), device=DEVICE)
        optimizer = torch.optim.AdamW([w], lr=0.1, fused=True, capturable=True)
        scaler = torch.amp.GradScaler(DEVICE, init_scale=1000.0, growth_interval=3)

        def step() -> None:
            optimizer.zero_grad()
            scaler.scale((w.square() * factor).sum()).backward()
            scaler.step(optimizer)
            scaler.update()

        step()
        run = capture(step)[0].replay if captured else step
        for i in range(6):
            factor.fill_(float("inf") if i == 2 else 1.0)
            run()
        return w.detach().cpu(), scaler.get_scale(), optimizer.state[w]["step"].cpu()

    for ours, theirs in zip(train(captured=True), train(captured=False), strict=True):
        assert ours == theirs if isinstance(ours, float) else torch.equal(ours, theirs)


def test_tensors_without_elements_are_captured() -> None:
    x = make(3, 1)
    empty = x.diagonal(1)
    graph, results = capture(
        lambda: (empty + 1, empty.float() * 2, torch.cat([empty, x[:, 0]]), empty.double())
    )
    graph.replay()
    assert [r.shape for r in results] == [(0,), (0,), (3,), (0,)]
    assert torch.equal(results[2], x[:, 0])


def test_ranges_are_made_by_each_replay() -> None:
    def count() -> Tensor:
        x = torch.arange(6, device=DEVICE)
        x += 1
        return x

    graph, x = capture(count)
    for _ in range(2):
        graph.replay()
        assert x.tolist() == [1, 2, 3, 4, 5, 6]


REFUSED = {
    "item": lambda x: x[0, 0].item(),
    "cpu": lambda x: x.cpu(),
    "bool": lambda x: bool(x[0, 0] > 0),
    "data_ptr": lambda x: x.data_ptr(),
    "from the cpu": lambda x: x.copy_(torch.ones(5, 5)),
}


def _square_of_complex() -> Tensor:
    x = torch.empty(5, 5, dtype=torch.complex64, device=DEVICE)
    return x @ x


NAMED = {
    "sort": (lambda x: x.sort(), "aten::sort"),
    "nonzero": (lambda x: x.nonzero(), "aten::nonzero"),
    "complex": (lambda x: _square_of_complex(), "a matrix product of complex types"),
    "svd": (lambda x: torch.linalg.svd(x), "aten::_linalg_svd"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_values_cannot_be_looked_at(name: str) -> None:
    x = make(5, 5)
    with pytest.raises(RuntimeError, match="asked for while a graph is captured"):
        capture(lambda: REFUSED[name](x + 1 if name != "from the cpu" else x))
    with pytest.raises(RuntimeError, match="asked for while a graph is captured"):
        capture(lambda: REFUSED[name](x))
    assert torch.equal(x.cpu(), make(5, 5).cpu()), "all is as it was"


@pytest.mark.parametrize("name", NAMED)
def test_what_cannot_be_captured_is_named(name: str) -> None:
    x = make(5, 5)
    call, message = NAMED[name]
    with pytest.raises(RuntimeError, match=re.escape(message)):
        capture(lambda: call(x))
    assert torch.equal((x + 1).cpu(), make(5, 5).cpu() + 1)


def test_optimizers_that_count_on_the_host_are_refused() -> None:
    w = make(5).requires_grad_()
    optimizer = torch.optim.Adam([w])
    w.square().sum().backward()
    if torch.__version__ >= "2.15":
        with pytest.raises(RuntimeError, match="capturable is False"):
            capture(optimizer.step)
    # Our own check, for PyTorch versions that have none.
    check = hologram_torch.graphs.check_capturable
    with pytest.raises(RuntimeError, match="Adam but param_groups' capturable is False"):
        capture(lambda: check(optimizer, (), {}))
    capture(lambda: check(torch.optim.SGD([w], lr=0.1), (), {}))
    check(optimizer, (), {})


def test_errors_of_use() -> None:
    graph, _ = capture(lambda: make_nothing())
    with pytest.raises(RuntimeError, match="holds what it captured before"):
        graph.capture_begin()
    graph.reset()
    with pytest.raises(RuntimeError, match="nothing was captured"):
        graph.replay()
    with pytest.raises(RuntimeError, match="not being captured"):
        graph.capture_end()
    other = torch.accelerator.Graph()
    with graph:
        with pytest.raises(RuntimeError, match="being recorded already"):
            other.capture_begin()
        with pytest.raises(RuntimeError, match="a graph is being captured"):
            captured_before().replay()


def make_nothing() -> None:
    torch.zeros(3, device=DEVICE).add_(1)


def captured_before() -> Any:
    return _BEFORE[0]


_BEFORE: list[Any] = []


@pytest.fixture(autouse=True, scope="module")
def one_before() -> Iterator[None]:
    if _C.can_defer and hasattr(torch.accelerator, "Graph"):
        with hologram_torch.execution("deferred"):
            _BEFORE.append(capture(make_nothing)[0])
    yield
    _BEFORE.clear()


def test_an_empty_graph_warns() -> None:
    with pytest.warns(UserWarning, match="The graph is empty"):
        graph, _ = capture(lambda: None)
    graph.replay()


def test_a_failed_body_leaves_the_device_usable() -> None:
    x = make(10)
    with pytest.raises(ValueError, match="own"):
        capture(lambda: (x.add_(1), (_ for _ in ()).throw(ValueError("own"))))
    assert torch.equal(x + 1, make(10) + 1)
    graph, y = capture(lambda: x * 2)
    graph.replay()
    assert torch.equal(y, make(10) * 2)


def test_keep_graph_and_dump(tmp_path: Path) -> None:
    x = make(10)
    graph = torch.accelerator.Graph(keep_graph=True)
    graph.enable_debug_mode()
    with graph:
        y = x * 2 + 1
    assert isinstance(graph.pool(), tuple)
    graph.replay()
    assert torch.equal(y, x * 2 + 1)
    graph.debug_dump(str(tmp_path / "graph.txt"))
    assert (
        "mul_add" in (tmp_path / "graph.txt").read_text()
        or "mul" in (tmp_path / "graph.txt").read_text()
    )


def test_a_graph_lives_as_long_as_it_is_needed() -> None:
    before = torch.hologram.memory_allocated()

    def captured() -> Tensor:
        x = make(1 << 20)
        graph, y = capture(lambda: torch.cumsum(torch.cumsum(x, 0) * 2, 0))
        graph.replay()
        return y

    y = captured()
    gc.collect()
    x = make(1 << 20)
    assert torch.equal(y, torch.cumsum(torch.cumsum(x, 0) * 2, 0))
    del x, y
    gc.collect()
    torch.hologram.synchronize()
    assert torch.hologram.memory_allocated() <= before + (1 << 16)


def test_other_threads_may_work_between_replays() -> None:
    x = make(1000)
    graph, y = capture(lambda: (x * 2).tanh().sum())
    graph.replay()
    expected = y.item()
    wrong: list[str] = []

    def work(seed: int) -> None:
        for _ in range(50):
            z = make(300, seed=seed)
            if not torch.equal((z * 2 + 1).cpu(), make(300, seed=seed).cpu() * 2 + 1):
                wrong.append(f"thread {seed}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(200):
        graph.replay()
        assert y.item() == expected
    for thread in threads:
        thread.join()
    assert not wrong


def test_orders_of_a_search_are_checked_at_each_replay() -> None:
    line, values = make(9), make(20, seed=1)
    order = line.argsort()
    graph, found = capture(lambda: torch.searchsorted(line, values, sorter=order))
    for seed in range(3):
        line.copy_(make(9, seed=seed))
        order.copy_(line.argsort())
        graph.replay()
        want = torch.searchsorted(line.cpu(), values.cpu(), sorter=order.cpu())
        assert torch.equal(found.cpu(), want)
    for outside in (-1, 9):
        order[4] = outside
        with pytest.raises(IndexError, match="outside a dimension of size 9"):
            graph.replay()


def test_other_threads_go_on_after_replays_that_fail() -> None:
    table, index = make(10, 4), torch.tensor([11]).to(DEVICE)
    graph, _ = capture(lambda: table[index])
    done = []

    def work() -> None:
        for _ in range(200):
            assert (make(300) * 2).sum().isfinite().item()
        done.append(True)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while thread.is_alive() and len(done) == 0:
        with pytest.raises(IndexError):
            graph.replay()
    thread.join(timeout=60)
    assert done == [True]


def test_streams_say_that_they_are_captured() -> None:
    stream = torch.accelerator.current_stream()
    if torch.__version__ < "2.15":
        pytest.skip("this PyTorch does not ask the device")
    assert not stream.is_capturing()
    seen = []
    capture(lambda: (make_nothing(), seen.append(stream.is_capturing())))
    assert seen == [True]


# --- make_graphed_callables ----------------------------------------------------------------------


def test_a_graphed_module_trains_as_the_module() -> None:
    torch.manual_seed(0)
    base = nn.Sequential(nn.Linear(20, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 5))
    x = [make(7, 20, seed=k) for k in range(5)]
    target = make(7, 5, seed=9)

    def train(model: nn.Module) -> list[float]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for batch in x:
            optimizer.zero_grad()
            loss = F.mse_loss(model(batch), target)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    expected = train(copy.deepcopy(base).to(DEVICE))
    model = copy.deepcopy(base).to(DEVICE)
    assert torch.hologram.make_graphed_callables(model, (x[0].clone(),)) is model
    assert train(model) == expected
    # In the other mode it runs as it did.
    model.eval()
    assert model(make(3, 20)).shape == (3, 5)


def test_graphed_functions_one_after_another() -> None:
    def first(inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        return inputs["a"] * inputs["b"], inputs["a"].sin()

    def second(x: Tensor, y: Tensor) -> Tensor:
        return (x + y).square().sum(-1)

    def samples() -> dict[str, Tensor]:
        return {"a": make(4, 6).requires_grad_(), "b": make(4, 6, seed=1)}

    other = [make(4, 6, seed=2).requires_grad_(), make(4, 6, seed=3).requires_grad_()]
    f, g = torch.hologram.make_graphed_callables(
        (first, second), ((samples(),), (other[0], other[1]))
    )
    for seed in range(4):
        given = {"a": make(4, 6, seed=seed).requires_grad_(), "b": make(4, 6, seed=seed + 10)}
        ours = g(*f(given))
        ours.sum().backward()
        grad = given["a"].grad.clone()
        result = ours.clone()
        given["a"].grad = None
        theirs = second(*first(given))
        theirs.sum().backward()
        assert torch.equal(result, theirs)
        torch.testing.assert_close(grad, given["a"].grad)


def test_graphed_callables_without_gradients() -> None:
    f = torch.hologram.make_graphed_callables(lambda x: x * 2 + 1, (make(6),))
    assert torch.equal(f(make(6, seed=4)), make(6, seed=4) * 2 + 1)


def test_graphed_callables_refuse() -> None:
    make_graphed = torch.hologram.make_graphed_callables
    f = make_graphed(lambda x: x * 2, (make(6),))
    with pytest.raises(ValueError, match=re.escape("captured with (6,)")):
        f(make(7))
    with pytest.raises(TypeError, match="structure of its sample"):
        f(make(6), make(6))
    with pytest.raises(ValueError, match="must be tensors on device"):
        make_graphed(lambda x: x * 2, (torch.ones(3),))
    with pytest.raises(ValueError, match="2 callables, but 1 tuples"):
        make_graphed((torch.sin, torch.cos), ((make(3),),))
    with pytest.raises(TypeError, match="results must be tensors"):
        make_graphed(lambda x: 3, (make(3),))
    module = nn.Linear(2, 2).to(DEVICE)
    module.register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="has hooks"):
        make_graphed(module, (make(2, 2),))
    with pytest.raises(RuntimeError, match="aten::sort"):
        make_graphed(lambda x: x.sort()[0], (make(6),))
