# SPDX-License-Identifier: MIT
"""A full disk, a broken checkpoint, no memory, many threads: an error that says so, and no harm."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

import hologram_torch

D = "hologram"


def run(code: str, *arguments: str, **env: str) -> str:
    """Run a program that must end well and quietly; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        timeout=240,
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-4000:])
    assert done.stderr == ""
    return done.stdout


# --- Disk ------------------------------------------------------------------------------------


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
def test_a_full_disk_is_said_and_nothing_is_lost() -> None:
    x = torch.randn(1 << 18, device=D)
    pending = x * 2
    with pytest.raises(OSError, match="No space left on device"), open("/dev/full", "wb") as full:
        torch.save({"x": pending}, full)
    with pytest.raises((OSError, RuntimeError), match=r"No space left|unexpected pos"):
        torch.save({"x": pending}, "/dev/full")
    with hologram_torch.profile() as profile:
        (x + 1).sum().item()
    with pytest.raises(OSError, match="No space left on device"):
        profile.export_chrome_trace("/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        torch.hologram.memory._dump_snapshot("/dev/full")
    assert torch.equal(pending.cpu(), x.cpu() * 2)


SMALL_FILES = """
import os, resource, signal, sys, torch
path = sys.argv[1]
x = torch.arange(1 << 20, dtype=torch.float32).to("hologram")
torch.save(x[:1000].clone(), path)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
for attempt in range(3):
    try:
        torch.save(x + attempt, path + ".new")
        print("written")
    except (OSError, RuntimeError) as error:
        print(type(error).__name__)
    assert (x + attempt).sum().item() == (x.cpu() + attempt).sum().item()
print(torch.load(path, map_location="hologram").equal(x[:1000]))
"""


def test_a_limit_on_files_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    said = run(SMALL_FILES, str(tmp_path / "x.pt")).split()
    assert said[-1] == "True"
    assert len(said) == 4
    assert set(said[:3]) <= {"OSError", "RuntimeError"}


def damaged(good: bytes, how: str) -> bytes:
    """Return a checkpoint's bytes as a broken disk or an interrupted copy leaves them."""
    if how == "empty":
        return b""
    if how == "cut":
        return good[: len(good) // 2]
    if how == "noise":
        return bytes(range(256)) * 16
    # The archive's directory, which ends the file.
    return good[:-400] + b"\0" * 400


@pytest.mark.parametrize("how", ["empty", "cut", "noise", "directory"])
def test_a_broken_checkpoint_is_refused(tmp_path: Path, how: str) -> None:
    model = nn.Linear(64, 64).to(D)
    path = tmp_path / "model.pt"
    torch.save(model.state_dict(), path)
    before = {name: p.detach().cpu() for name, p in model.state_dict().items()}
    path.write_bytes(damaged(path.read_bytes(), how))
    kinds = (EOFError, OSError, RuntimeError, ValueError, pickle.UnpicklingError)
    with pytest.raises(kinds) as expected:
        torch.load(path, map_location="cpu")
    with pytest.raises(kinds) as raised:
        torch.load(path, map_location=D)
    assert type(raised.value) is type(expected.value)
    assert str(raised.value) == str(expected.value)
    after = model.state_dict()
    assert all(torch.equal(after[name].cpu(), before[name]) for name in before)


def test_a_checkpoint_with_a_short_tensor_is_refused(tmp_path: Path) -> None:
    path, short = tmp_path / "x.pt", tmp_path / "short.pt"
    torch.save(torch.randn(1000), path)
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(short, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, data[:100] if name.endswith("/data/0") else data)
    with pytest.raises(RuntimeError):
        torch.load(short, map_location=D)
    assert torch.ones(3, device=D).sum().item() == 3


def test_a_checkpoint_of_another_model_is_refused_by_name() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).to(D)
    other = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 5)).to(D)
    with pytest.raises(RuntimeError, match=r"size mismatch for 1\.weight"):
        model.load_state_dict(other.state_dict())
    assert model(torch.ones(2, 4, device=D)).shape == (2, 4)


# --- Memory ----------------------------------------------------------------------------------

NO_MEMORY = """
import torch
x = torch.ones(1 << 20, device="hologram")       # 4 MiB
held = x.clone()
torch.hologram.synchronize()

def refused(call):
    try:
        call()
        torch.hologram.synchronize()
    except torch.OutOfMemoryError as error:
        return str(error)
    raise AssertionError("there was memory")

# Refused at the call: more than there can be.
text = refused(lambda: torch.empty(1 << 28, device="hologram"))
assert "tried to allocate 1.00 GiB (1073741824 bytes) on cpu:0" in text, text
assert "limit 100.00 MiB" in text and "HOLOGRAM_MEMORY_LIMIT" in text, text

# Refused when it runs: what was there before is as it was, and what is written in place too.
big = []
def fill():
    for i in range(40):
        big.append(x * i)
        torch.hologram.synchronize()
text = refused(fill)
assert "out of memory: tried to allocate 4.00 MiB" in text, text
assert 10 < len(big) < 40, len(big)
for i, tensor in enumerate(big[:-1]):
    assert tensor[7].item() == i
big.clear()
y = x * 3
assert y.sum().item() == 3 << 20
x.add_(1)
assert x.sum().item() == 2 << 20
assert held.sum().item() == 1 << 20
torch.hologram.empty_cache()
print(torch.hologram.memory_stats()["num_ooms"] > 0)
"""


def test_no_memory_is_said_and_the_program_goes_on() -> None:
    assert run(NO_MEMORY, HOLOGRAM_MEMORY_LIMIT=str(100 << 20)) == "True\n"


NO_ADDRESSES = """
import resource, torch
torch.set_num_threads(1)
model = torch.nn.Linear(256, 256).to("hologram")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.ones(64, 256, device="hologram")
model(x).sum().backward()
optimizer.step()
torch.hologram.synchronize()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), used + (64 << 20)))
before = [p.detach().cpu() for p in model.parameters()]
for attempt in range(3):
    held = []
    try:
        while True:
            held.append(torch.zeros(4 << 20, device="hologram") + len(held))
            held[-1].sum().item()
    except torch.OutOfMemoryError as error:
        assert "out of memory: tried to allocate 16.00 MiB" in str(error), error
    assert len(held) >= 1
    for i, tensor in enumerate(held[:-1]):
        assert tensor[-1].item() == i
    del held, tensor
    assert all(torch.equal(p.cpu(), b) for p, b in zip(model.parameters(), before))
optimizer.zero_grad()
model(x).sum().backward()
optimizer.step()
print(all(torch.isfinite(p).all().item() for p in model.parameters()))
"""


def test_no_addresses_left_is_said_and_the_program_goes_on() -> None:
    assert run(NO_ADDRESSES) == "True\n"


# --- Threads ---------------------------------------------------------------------------------


def test_two_hundred_threads_compute_at_once() -> None:
    x = torch.randn(32, 32)
    shared = x.to(D)
    expected = [((x * i + 1) @ x).tanh().sum(dim=1) for i in range(20)]
    start = threading.Barrier(200)
    wrong: list[str] = []

    def work(number: int) -> None:
        try:
            start.wait()
            mine = x.to(D).requires_grad_()
            for i in range(20):
                y = ((shared * i + 1) @ shared).tanh().sum(dim=1)
                torch.testing.assert_close(y.cpu(), expected[i], rtol=1e-4, atol=1e-4)
            (mine * number).sum().backward()
            assert mine.grad is not None
            assert torch.equal(mine.grad.cpu(), torch.full((32, 32), float(number)))
            if number % 10 == 0:
                torch.hologram.empty_cache()
        except BaseException as error:
            wrong.append(f"{number}: {error!r}")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    torch.hologram.synchronize()


# --- The end ---------------------------------------------------------------------------------

SETUP = """
import atexit, os, sys, threading, time, torch, hologram_torch
x = torch.rand(256, 256, device="hologram")
"""
ENDINGS = {
    "recorded": "y = x * 2 + 1",
    "worker busy": """
for _ in range(300): x = (x @ x).tanh()
torch.hologram.current_stream().query()
""",
    "thread not joined": """
def while_ending():
    y = x
    for _ in range(200): y = (y @ x).tanh()
    y.sum().item()
threading.Thread(target=while_ending).start()
""",
    "atexit computes": "atexit.register(lambda: (x + 1).sum().item())",
    "atexit registered before": "pass",
    "finalizer computes": """
class Late:
    def __del__(self): (x + 1).sum().item()
late = Late()
""",
    "in sys.modules": "import builtins\nbuiltins.kept = [x * i for i in range(50)]",
    "cycle": "class C: pass\nc = C(); c.c = c; c.x = x * 2; c.x.c = c",
    "autograd graph alive": "w = x.clone().requires_grad_(); loss = (w @ x).tanh().sum()",
    "graph alive": "g = torch.accelerator.Graph() if hasattr(torch.accelerator, 'Graph') else None",
    "profile open": "p = hologram_torch.profile(); p.__enter__(); y = x * 2",
    "history on": "torch.hologram.memory._record_memory_history(); y = [x * i for i in range(9)]",
    "loader alive": """
loader = iter(torch.utils.data.DataLoader(torch.arange(64), batch_size=4, num_workers=1))
next(loader).to("hologram") + 1
""",
    "forked": """
y = x * 2
if (child := os.fork()) == 0:
    z = (y + 1).sum().item(); sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
""",
    "exit in a hook": """
w = x.clone().requires_grad_()
w.register_hook(lambda g: sys.exit(0))
(w * 2).sum().backward()
""",
}

# Python ends a daemon thread that comes back to it by unwinding the thread's stack, which PyTorch's
# frames do not take (on cpu neither): the process may end with this message, but no other way.
DAEMONS = {
    "daemon thread records": """
def forever():
    y = x
    while True: y = (y @ x).tanh()
threading.Thread(target=forever, daemon=True).start()
time.sleep(0.3)
""",
    "daemon thread waits": """
def forever():
    y = x
    while True: y = (y @ x).tanh(); y.sum().item()
for _ in range(4): threading.Thread(target=forever, daemon=True).start()
time.sleep(0.3)
""",
    "daemon thread goes backward": """
def forever():
    w = x.clone().requires_grad_()
    while True: (w @ x).tanh().sum().backward()
for _ in range(2): threading.Thread(target=forever, daemon=True).start()
time.sleep(0.3)
""",
}


@pytest.mark.parametrize("how", DAEMONS)
def test_the_interpreter_ends_with_daemon_threads_at_work(how: str) -> None:
    code = SETUP + DAEMONS[how] + "\nprint('end', flush=True)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "end\n"
    if done.returncode != 0:
        assert done.returncode == -signal.SIGABRT, (done.returncode, done.stderr)
        # Python ends such threads by unwinding through PyTorch's code. Two may do so at once: the
        # second says that it is not the first, and may be the one that ends the process.
        lines = done.stderr.splitlines()
        assert set(lines) <= {
            "terminate called without an active exception",
            "terminate called recursively",
        }, done.stderr
        assert lines


@pytest.mark.parametrize("how", ENDINGS)
def test_the_interpreter_ends_well_with_the_device_in_use(how: str) -> None:
    before = ""
    if how == "atexit registered before":
        before = "import atexit\natexit.register(lambda: (x + 1).sum().item())\n"
    code = before + SETUP + ENDINGS[how] + "\nprint('end', flush=True)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (done.returncode, done.stderr[-4000:])
    assert done.stdout == ("" if how == "exit in a hook" else "end\n")
    # Python 3.12 and later warn of every fork beside threads, Python 3.13 with its line.
    warned = "use of fork() may lead to deadlocks in the child"
    lines = done.stderr.splitlines()
    told = [
        line
        for before, line in zip(["", *lines], lines, strict=False)
        if "ActivityProfiler" not in line
        and warned not in line
        and not (warned in before and "os.fork()" in line)
    ]
    assert told == []


def test_an_error_nobody_asked_for_ends_quietly() -> None:
    code = SETUP + "y = x[torch.tensor([999]).to('hologram')]\nprint('end')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 1), done
    assert "Segmentation" not in done.stderr
    assert done.returncode == 0 or "IndexError" in done.stderr
