# SPDX-License-Identifier: MIT
"""A server that loads its model once and forks: gunicorn with ``preload_app``."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn

WORKERS, REQUESTS = 4, 100
CORES = len(os.sched_getaffinity(0))

# The server's program; `make_model` and `make_input` are this file's own, word for word.
MODEL = """
import torch
from torch import nn


def make_model():
    torch.manual_seed(11)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * 8 * 8, 128), nn.LayerNorm(128), nn.GELU(), nn.Linear(128, 10),
    ).eval()


def make_input(number):
    generator = torch.Generator().manual_seed(number)
    return torch.randn(4, 3, 16, 16, generator=generator)
"""

APP = (
    MODEL
    + """
import json, os
import hologram
import hologram_torch

model = make_model().to("hologram")
with torch.no_grad():
    first = model(make_input(0).to("hologram")).softmax(-1).cpu()  # before the fork


def app(environ, start_response):
    number = int(environ["QUERY_STRING"])
    with torch.no_grad():
        values = model(make_input(number).to("hologram")).softmax(-1).cpu()
    body = json.dumps({
        "pid": os.getpid(),
        "values": values.tolist(),
        "threads": hologram.cpu_info()["threads"],
        "alive": len(os.listdir("/proc/self/task")),
    }).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""
)

CONFIGURATION = f"""
preload_app = True
workers = {WORKERS}
timeout = 60
"""


@contextmanager
def server(folder: Path, **environment: str) -> Iterator[int]:
    """Run gunicorn on a port of the loopback address, which is opened here, and return it."""
    (folder / "served.py").write_text(APP)
    (folder / "gunicorn.conf.py").write_text(CONFIGURATION)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(128)
        log = folder / "log"
        with log.open("w") as out:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "gunicorn", "-c", "gunicorn.conf.py"),
                    *("--bind", f"fd://{listening.fileno()}", "served:app"),
                ],
                cwd=folder,
                env={**os.environ, "HOLOGRAM_AUTOLOAD": "1", **environment},
                pass_fds=[listening.fileno()],
                stdout=out,
                stderr=out,
            )
        try:
            yield listening.getsockname()[1]
            assert process.poll() is None, log.read_text()
            assert "WORKER TIMEOUT" not in log.read_text(), log.read_text()
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise


def ask(port: int, number: int) -> dict:
    url = f"http://127.0.0.1:{port}/?{number}"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=60) as answer:
        return json.loads(answer.read())


def wanted() -> list[torch.Tensor]:
    """Return what cpu answers to each number."""
    names: dict = {}
    exec(MODEL, names)
    model: nn.Module = names["make_model"]()
    with torch.no_grad():
        return [model(names["make_input"](n)).softmax(-1) for n in range(REQUESTS)]


def answers_of_all(port: int) -> dict[int, list[dict]]:
    """Ask until each of the workers has answered as often as it is to; by process."""
    answers: dict[int, list[dict]] = {}
    lock = threading.Lock()
    errors: list[Exception] = []

    def is_over() -> bool:
        with lock:
            full = [pid for pid, given in answers.items() if len(given) >= REQUESTS]
            return len(full) == WORKERS or bool(errors) or sum(map(len, answers.values())) > 20_000

    def client(first: int) -> None:
        number = first
        try:
            while not is_over():
                answer = ask(port, number % REQUESTS) | {"number": number % REQUESTS}
                number += 1
                with lock:
                    answers.setdefault(answer["pid"], []).append(answer)
        except Exception as error:
            errors.append(error)

    clients = [threading.Thread(target=client, args=(25 * i,)) for i in range(2 * WORKERS)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join(120)
        assert not thread.is_alive(), "no answer"
    assert not errors, errors
    return answers


@pytest.mark.heavy
@pytest.mark.parametrize("start", range(20))
def test_four_workers_of_a_preloaded_model(tmp_path: Path, start: int) -> None:
    pytest.importorskip("gunicorn", reason="tools/requirements-all.txt has it")
    each = max(1, CORES // WORKERS)
    with server(tmp_path, OMP_NUM_THREADS=str(each), HOLOGRAM_WORKER="0") as port:
        answers = answers_of_all(port)
    assert len(answers) == WORKERS and min(map(len, answers.values())) >= REQUESTS
    expected = wanted()
    for given in answers.values():
        for answer in given:
            torch.testing.assert_close(torch.tensor(answer["values"]), expected[answer["number"]])
    # All processes together keep no more threads at work than there are cores, or one each.
    last = [given[-1] for given in answers.values()]
    assert sum(answer["threads"] for answer in last) <= max(CORES, WORKERS)
    assert sum(answer["alive"] for answer in last) <= max(CORES, WORKERS), last


@pytest.mark.heavy
@pytest.mark.parametrize("start", range(5))
def test_workers_with_threads_of_their_own(tmp_path: Path, start: int) -> None:
    """Nothing set: each process has its workers, started after the fork, and all answer."""
    pytest.importorskip("gunicorn", reason="tools/requirements-all.txt has it")
    with server(tmp_path) as port:
        answers = answers_of_all(port)
    assert len(answers) == WORKERS
    expected = wanted()
    for given in answers.values():
        for answer in given:
            torch.testing.assert_close(torch.tensor(answer["values"]), expected[answer["number"]])
