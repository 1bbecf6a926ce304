# SPDX-License-Identifier: MIT
"""Tensors that several processes share: sent through queues, or in memory shared in place."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp
from torch import nn

D = "hologram"
TIMEOUT = 60


# --- What the other process does --------------------------------------------------------------


def echo(x: Any) -> Any:
    return x


def describe(x: torch.Tensor) -> tuple[str, tuple[int, ...], tuple[int, ...], int, bool, Any]:
    return (
        str(x.device),
        tuple(x.shape),
        x.stride(),
        x.storage_offset(),
        x.requires_grad,
        x.detach().cpu(),
    )


def add_one(x: torch.Tensor) -> None:
    x += 1


def same_storage(pair: list[torch.Tensor]) -> tuple[bool, torch.Tensor]:
    a, b = pair
    a.fill_(7)
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata, b.cpu()


def keep(x: torch.Tensor) -> None:
    _kept.append(x)


def kept_sum(_: None) -> float:
    return float(sum(x.sum().item() for x in _kept))


def drop(_: None) -> int:
    _kept.clear()
    return gc.collect()


def make(n: int) -> torch.Tensor:
    return torch.arange(float(n), device=D) * 2


def step(model: nn.Module) -> float:
    x = torch.ones(4, 8, device=D)
    loss = model(x).square().mean()
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            assert p.grad is not None
            p -= 0.1 * p.grad
            p.grad = None
    return loss.item()


def open_descriptors(_: None) -> int:
    return len(os.listdir("/proc/self/fd"))


_kept: list[torch.Tensor] = []


def serve(inbox: Any, outbox: Any) -> None:
    torch.set_num_threads(1)
    while (job := inbox.get()) is not None:
        function, value = job
        try:
            outbox.put(("ok", function(value)))
        except Exception as error:
            outbox.put(("failed", repr(error)))
        del job, value


class Peer:
    """A process that runs functions on what it is sent."""

    def __init__(self, method: str) -> None:
        self.method = method
        context = mp.get_context(method)
        self.inbox, self.outbox = context.Queue(), context.Queue()
        self.process = context.Process(target=serve, args=(self.inbox, self.outbox), daemon=True)
        self.process.start()

    def __call__(self, function: Callable[[Any], Any], value: Any = None) -> Any:
        self.inbox.put((function, value))
        state, result = self.outbox.get(timeout=TIMEOUT)
        assert state == "ok", result
        return result

    def end(self) -> None:
        self.inbox.put(None)
        self.process.join(TIMEOUT)
        assert self.process.exitcode == 0


@pytest.fixture(scope="module", params=["spawn", "forkserver", "fork"])
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    other = Peer(request.param)
    yield other
    other.end()


# --- Through queues ---------------------------------------------------------------------------

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.complex64]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_tensor_arrives_as_it_is(peer: Peer, dtype: torch.dtype) -> None:
    x = (torch.arange(24).reshape(4, 6) % 5).to(dtype).to(D)
    for view in (x, x.t(), x[1:, ::2], x[2], x[1, 1], x[:0], x.expand(2, 4, 6)):
        device, shape, stride, offset, requires_grad, values = peer(describe, view)
        assert device == "hologram:0"
        assert (shape, stride, offset) == (view.shape, view.stride(), view.storage_offset())
        assert not requires_grad
        assert torch.equal(values, view.cpu())


def test_what_is_recorded_is_computed_before_it_is_sent(peer: Peer) -> None:
    x = torch.arange(1000.0, device=D)
    y = (x * 2 + 1).square()
    assert torch.equal(peer(describe, y)[-1], (torch.arange(1000.0) * 2 + 1).square())
    assert torch.equal(peer(make, 50).cpu(), torch.arange(50.0) * 2)


def test_both_sides_write_the_same_memory(peer: Peer) -> None:
    x = torch.zeros(100, device=D)
    view = x[10:20]
    peer(add_one, x)
    assert torch.equal(x.cpu(), torch.ones(100))
    x.mul_(3)
    peer(add_one, view)
    assert x.sum().item() == 310
    assert view.sum().item() == 40
    # Ops that fuse see what the other process wrote as well.
    peer(add_one, x)
    assert (x * 2 + 1).sum().item() == 2 * 410 + 100


def test_views_of_one_storage_stay_together(peer: Peer) -> None:
    x = torch.zeros(6, device=D)
    shared, values = peer(same_storage, [x, x[2:4]])
    assert shared
    assert torch.equal(values, torch.full((2,), 7.0))
    assert x.sum().item() == 42
    # Sent one by one they meet as well, for as long as one of them lives.
    peer(keep, x)
    peer(keep, x[:3])
    x.fill_(1)
    assert peer(kept_sum) == 9
    peer(drop)


def test_a_tensor_that_comes_back_is_the_one_that_was_sent(peer: Peer) -> None:
    x = torch.zeros(5, device=D)
    back = peer(echo, x)
    assert back.untyped_storage()._cdata == x.untyped_storage()._cdata
    back.add_(2)
    assert x.sum().item() == 10


def test_memory_lives_as_long_as_either_side_wants_it(peer: Peer) -> None:
    x = torch.full((64,), 2.0, device=D)
    peer(keep, x)
    del x
    gc.collect()
    assert peer(kept_sum) == 128
    peer(drop)
    y = peer(make, 10)
    peer(drop)
    assert y.sum().item() == 90


def test_parameters_and_modules(peer: Peer) -> None:
    parameter = nn.Parameter(torch.ones(3, device=D))
    assert peer(describe, parameter)[4]
    assert isinstance(peer(echo, parameter), nn.Parameter)
    if peer.method == "fork":
        return  # PyTorch's autograd does not work in a child that is forked after a backward pass
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)).to(D)
    alone = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)).to(D)
    alone.load_state_dict(model.state_dict())
    losses = [peer(step, model) for _ in range(3)]
    assert losses == [step(alone) for _ in range(3)]
    for p, q in zip(model.parameters(), alone.parameters(), strict=True):
        assert torch.equal(p.cpu(), q.cpu())
    assert model[0].weight.grad is None


def test_a_gradient_that_is_no_leaf_is_refused(peer: Peer) -> None:
    x = torch.ones(3, device=D, requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf tensor"):
        mp.reductions.reduce_tensor(x)


def test_no_descriptor_is_left(peer: Peer) -> None:
    def use() -> tuple[int, int]:
        for n in range(1, 30):
            assert peer(echo, torch.zeros(n, device=D)).numel() == n
        gc.collect()
        return len(os.listdir("/proc/self/fd")), peer(open_descriptors)

    use()
    before = use()
    after = use()
    assert after[0] <= before[0] + 2
    assert after[1] <= before[1] + 2


# --- In place ---------------------------------------------------------------------------------


def test_share_memory_moves_a_storage_once() -> None:
    x = torch.arange(10.0, device=D)
    view = x[2:5]
    version = x._version
    assert not x.is_shared()
    assert x.share_memory_() is x
    assert x.is_shared()
    assert view.is_shared()
    assert x._version == version
    address = x.data_ptr()
    x.share_memory_()
    assert x.data_ptr() == address
    assert view.data_ptr() == address + 8
    assert torch.equal(x.cpu(), torch.arange(10.0))
    with pytest.raises(RuntimeError, match="resiz"):
        x.resize_(1000)
    assert torch.empty(0, device=D).share_memory_().is_shared()


def test_a_forked_child_shares_what_was_shared_before() -> None:
    x, own = torch.zeros(4, device=D).share_memory_(), torch.zeros(4, device=D)
    child = mp.get_context("fork").Process(target=lambda: (add_one(x), add_one(own), None)[-1])
    child.start()
    child.join(TIMEOUT)
    assert child.exitcode == 0
    assert x.sum().item() == 4
    assert own.sum().item() == 0


@pytest.mark.parametrize("kept", ["input", "result"])
def test_what_a_graph_has_captured_is_not_moved_away(kept: str) -> None:
    x = torch.arange(4.0, device=D)
    graph = torch.accelerator.Graph()
    with graph:
        y = x * 2 + 5
    t = x if kept == "input" else y
    message = "captured graph cannot move into shared memory.*share a clone\\(\\) of it, or reset"
    with pytest.raises(RuntimeError, match=message):
        t.share_memory_()
    with pytest.raises(RuntimeError, match=message):
        ForkingPickler.dumps(t)
    assert not t.is_shared()
    x.copy_(torch.tensor([3.0, 2.0, 1.0, 0.0]))
    graph.replay()
    assert y.tolist() == [11.0, 9.0, 7.0, 5.0]
    graph.reset()
    assert t.share_memory_().is_shared()


def test_autograd_sees_shared_parameters_as_others() -> None:
    torch.manual_seed(0)
    model = nn.Linear(6, 3).to(D)
    twin = nn.Linear(6, 3).to(D)
    twin.load_state_dict(model.state_dict())
    model.share_memory()
    x = torch.randn(5, 6, device=D)
    for m in (model, twin):
        optimizer = torch.optim.AdamW(m.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            m(x).square().sum().backward()
            optimizer.step()
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(p.cpu(), q.cpu())


def test_the_other_sharing_strategy() -> None:
    before = mp.get_sharing_strategy()
    mp.set_sharing_strategy("file_system")
    try:
        other = Peer("fork")
        x = torch.zeros(7, device=D)
        other(add_one, x)
        assert x.sum().item() == 7
        other.end()
    finally:
        mp.set_sharing_strategy(before)


def wait_forever(x: torch.Tensor, ready: Any) -> None:
    x += 1
    ready.set()
    time.sleep(TIMEOUT)


def test_a_child_that_is_killed_leaves_nothing() -> None:
    before = {p.name for p in Path("/dev/shm").iterdir()}
    context = mp.get_context("spawn")
    x, ready = torch.zeros(100_000, device=D), context.Event()
    child = context.Process(target=wait_forever, args=(x, ready))
    child.start()
    assert ready.wait(TIMEOUT)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join(TIMEOUT)
    assert child.exitcode == -signal.SIGKILL
    assert x.sum().item() == 100_000
    x += 1
    assert x.sum().item() == 200_000
    del x
    gc.collect()
    left = {p.name for p in Path("/dev/shm").iterdir() if p.name.startswith("torch_")}
    assert left <= before
