# SPDX-License-Identifier: MIT
"""An op treats denormal numbers as the thread that calls it does, whatever thread runs it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F

import hologram_torch
from hologram_torch import _C

D = "hologram"

pytestmark = pytest.mark.skipif(
    not torch.set_flush_denormal(False), reason="this processor cannot flush denormal numbers"
)


@pytest.fixture(autouse=True)
def default_mode() -> Iterator[None]:
    """Each test starts deferred, with nothing recorded; all end in the default mode."""
    with hologram_torch.execution("deferred"):
        _C.flush()
        yield
        torch.set_flush_denormal(False)
        _C.flush()


def in_mode(flush: bool, call: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Return what a call gives while denormal numbers are zero, or are not."""
    torch.set_flush_denormal(flush)
    try:
        return call()
    finally:
        torch.set_flush_denormal(False)


def denormals(*shape: int, device: str = "cpu") -> torch.Tensor:
    """Return numbers of which half are denormal."""
    made = torch.Generator().manual_seed(1)
    x = torch.rand(shape, generator=made) * 2 - 1
    small = torch.rand(shape, generator=made) < 0.5
    return torch.where(small, x * 1e-38, x).to(device)


# Exact, so that cpu has the same bits.
EXACT: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "mul": lambda x: x * 0.1,
    "once": lambda x: x * 1,
    "nothing": lambda x: (x * 0.5) - 0.0,
    "chain": lambda x: (x * 0.25 + x) * 0.5 - x * 0.1,
    "into": lambda x: x.clone().mul_(0.1),
    "wide": lambda x: (x * 0.5).double().float(),
    "half": lambda x: (x * 0.1).bfloat16().float(),
    "foreach": lambda x: torch._foreach_mul([x, x], 0.1)[1],
    "full": lambda x: torch.full((16,), 1e-39, device=x.device) * 0.1,
    "where": lambda x: torch.where(x * 0.1 == 0, 1.0, 2.0),
    "fallback": lambda x: torch.nextafter(x * 0.1, torch.ones_like(x)) * 0.1,
}
# As accurate as they are; the same call, run at once, is what they are held against.
OURS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda x: (x * 0.1).sum(1),
    "columns": lambda x: (x * 0.1).mean(0),
    "matmul": lambda x: x @ x,
    "linear": lambda x: F.relu(F.linear(x, x)),
    "layer_norm": lambda x: F.layer_norm(x * 1e-10, (64,)),
    "softmax": lambda x: torch.softmax(x * 100, 1),
    "conv": lambda x: F.conv2d(x.view(1, 1, 64, 64), x[:3, :3].reshape(1, 1, 3, 3)),
    "norm": lambda x: torch.linalg.vector_norm(x * 1e-3, dim=1),
}


def ask_here(t: torch.Tensor) -> None:
    t.cpu()


def ask_elsewhere(t: torch.Tensor) -> None:
    thread = threading.Thread(target=t.cpu)
    thread.start()
    thread.join()


def grow_old(t: torch.Tensor) -> None:
    time.sleep(0.12)


def fill_up(t: torch.Tensor) -> None:
    s = torch.zeros(4, device=D)
    for _ in range(1100):
        s += 1


WAYS = [ask_here, ask_elsewhere, grow_old, fill_up]


def test_what_is_flushed_stays_flushed() -> None:
    small = torch.full((16,), 1e-39, device=D)
    torch.set_flush_denormal(True)
    x = torch.full((16,), 1e-39, device=D) * 0.1
    y = small * 0.1
    torch.set_flush_denormal(False)
    assert x.sum().item() == 0
    assert y.sum().item() == 0


def test_what_is_not_flushed_stays() -> None:
    x = torch.full((16,), 1e-39, device=D) * 0.5
    torch.set_flush_denormal(True)
    total = x.sum()
    torch.set_flush_denormal(False)
    assert total.item() == 0
    assert torch.equal(x.cpu(), torch.full((16,), 1e-39) * 0.5)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("flush", [False, True])
def test_bits_are_those_of_cpu(way: Callable[[torch.Tensor], None], flush: bool) -> None:
    cpu = denormals(64)
    ours = cpu.to(D)
    for name, call in EXACT.items():
        want = in_mode(flush, lambda call=call: call(cpu))
        # Work of the other mode on both sides, in every second case.
        before = in_mode(not flush, lambda: ours * 0.1)
        got = in_mode(flush, lambda call=call: call(ours))
        after = in_mode(not flush, lambda: ours * 0.1) if len(name) % 2 else before
        way(got)
        assert torch.equal(got.cpu(), want), name
        other = in_mode(not flush, lambda: cpu * 0.1)
        assert torch.equal(before.cpu(), other) and torch.equal(after.cpu(), other), name
    assert bool((torch.full((1,), 1e-39) * 1 != 0).item()), "the mode was given back"


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_calls_give_what_they_give_at_once(way: Callable[[torch.Tensor], None]) -> None:
    x = denormals(64, 64, device=D)
    for name, call in OURS.items():
        for flush in (True, False):
            with hologram_torch.execution("eager"):
                want = in_mode(flush, lambda call=call: call(x)).cpu()
            got = in_mode(flush, lambda call=call: call(x))
            in_mode(not flush, lambda: x * 0.1)
            way(got)
            assert torch.equal(got.cpu(), want), (name, flush)


def test_threads_in_two_modes_stay_apart() -> None:
    cpu = denormals(64)
    ours = cpu.to(D)
    wrong: list[str] = []

    def work(flush: bool) -> None:
        torch.set_flush_denormal(flush)
        want = EXACT["chain"](cpu)
        results = [EXACT["chain"](ours) for _ in range(100)]
        wrong.extend(str(flush) for got in results if not torch.equal(got.cpu(), want))

    threads = [threading.Thread(target=work, args=(flush,)) for flush in (True, False, True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize(
    "setting",
    [{"HOLOGRAM_WORKER": "0"}, {"HOLOGRAM_JIT": "0"}],
    ids=lambda setting: "=".join(*setting.items()),
)
@pytest.mark.skipif("HOLOGRAM_TEST_INNER" in os.environ, reason="is what runs here")
def test_in_another_setting(setting: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__],
        env=os.environ | setting | {"HOLOGRAM_TEST_INNER": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
