# SPDX-License-Identifier: MIT
"""Ctrl-C at random moments: each time the process goes on, and computes what is right."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

PROGRAM = """
import faulthandler, json, os, random, signal, sys, threading, time
faulthandler.dump_traceback_later(240, exit=True)  # where it hangs, if it does
import torch
from torch import nn

torch.manual_seed(0)
D = "hologram"
count, seed = int(sys.argv[1]), int(sys.argv[2])


def make(device):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 4))
    model = model.to(device)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def step(model, optimizer, x, y):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


x, y = torch.randn(64, 32), torch.randint(0, 4, (64,))
hx, hy = x.to(D), y.to(D)


def few_steps(device, x, y):
    model, optimizer = make(device)
    losses = [step(model, optimizer, x, y).item() for _ in range(2)]
    return losses, [p.detach().cpu() for p in model.parameters()]


expected = few_steps(D, hx, hy)
reference = few_steps("cpu", x, y)
for a, b in zip(expected[1], reference[1]):
    torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)

model, optimizer = make(D)
data = torch.utils.data.TensorDataset(x, y)
chosen = random.Random(seed)
places = {}
armed, quit = threading.Event(), False


def interrupt():
    while True:
        armed.wait()
        armed.clear()
        if quit:
            return
        time.sleep(chosen.random() * 0.03)
        os.kill(os.getpid(), signal.SIGINT)


thread = threading.Thread(target=interrupt)
thread.start()
wrong = []
for _ in range(count):
    caught = False
    try:
        armed.set()
        while True:
            step(model, optimizer, hx, hy)
            hx.sort()  # one that falls back
            (hx @ hx.T).tanh().sum().item()
            hx.cpu()
    except KeyboardInterrupt as error:
        frame = error.__traceback__
        while frame.tb_next is not None:
            frame = frame.tb_next
        name = os.path.basename(frame.tb_frame.f_code.co_filename)
        places[name] = places.get(name, 0) + 1
    now = few_steps(D, hx, hy)
    if now[0] != expected[0] or not all(map(torch.equal, now[1], expected[1])):
        wrong.append(now[0])
    if not torch.equal(hx.cpu(), x) or not torch.autograd.is_multithreading_enabled():
        wrong.append("state")
quit = True
armed.set()
thread.join()
print(json.dumps({"wrong": wrong, "places": places, "held": torch.hologram.memory_allocated()}))
"""


@pytest.mark.alone
@pytest.mark.parametrize("count", [20, pytest.param(100, marks=pytest.mark.heavy)])
def test_interrupts_leave_a_usable_process(count: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(count), "7"],
        capture_output=True,
        text=True,
        timeout=300,
        # Programs that a shell started in the background ignore interrupts, and so do their own.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stderr == ""
    said = json.loads(done.stdout)
    assert said["wrong"] == []
    assert sum(said["places"].values()) == count
    assert said["held"] < 1 << 20
