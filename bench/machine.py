# SPDX-License-Identifier: MIT
"""The cores of the machine, how fast its memory copies, and how to keep its cores busy."""

from __future__ import annotations

import ctypes
import math
import os
import platform
import signal
import subprocess
import sys
import time
import timeit
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent


def cores() -> list[int]:
    """Return the cores this process may use."""
    return sorted(os.sched_getaffinity(0))


def first_line_of(path: str, key: str) -> str:
    """Return what follows `key` in a file of lines 'key: value'; empty where there is none."""
    try:
        for line in Path(path).read_text().splitlines():
            if line.startswith(key):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return ""


def processor() -> str:
    """Return the name of the processor."""
    return first_line_of("/proc/cpuinfo", "model name") or platform.machine()


class Bandwidth:
    """Bytes per second of a copy between warm buffers, by bytes moved.

    A limit rather than a typical value: of several copies the fastest counts. Bytes moved are those
    read and those written.
    """

    def __init__(self, points: list[tuple[int, float]]) -> None:
        self.points = points

    @staticmethod
    def measure(threads: int, largest: int = 1 << 27) -> Bandwidth:
        """Measure with a number of threads; takes about a second."""
        points: list[tuple[int, float]] = []
        source = torch.ones(largest // 8)
        target = torch.ones(largest // 8)
        for total in (1 << k for k in range(13, largest.bit_length())):
            a, b = source[: total // 8], target[: total // 8]
            if threads == 1 or total < (1 << 18):
                seconds = _best(_one_thread_copy(a, b), total)
            else:
                seconds = _best(lambda a=a, b=b: b.copy_(a), total)  # type: ignore[misc]
            points.append((total, total / seconds))
        return Bandwidth(points)

    def seconds(self, moved: int) -> float:
        """Return the least time that moving a number of bytes takes; NaN for none."""
        if not self.points or moved <= 0:
            return math.nan
        sizes, speeds = (np.log(column) for column in zip(*self.points))
        return moved / float(np.exp(np.interp(math.log(moved), sizes, speeds)))


def _one_thread_copy(a: torch.Tensor, b: torch.Tensor) -> Any:
    # np.copyto costs 0.2 us a call, an eighth of tensor.copy_: it measures the copy, not the call.
    source, target = a.numpy(), b.numpy()
    return lambda: np.copyto(target, source)


def _best(copy: Any, total: int) -> float:
    runs = max(1, min(2000, (1 << 22) // total))
    return min(timeit.repeat(copy, number=runs, repeat=7)) / runs


_PR_SET_PDEATHSIG = 1
_SPIN = f"""
import ctypes, os, sys
ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, {int(signal.SIGKILL)})
os.sched_setaffinity(0, {{int(sys.argv[1])}})
while True: pass
"""


def die_with_parent() -> None:
    """Let the system kill this process when its parent ends.

    A process that has threads of JAX does not run Python between fork and exec: those that it
    starts call this themselves.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class BusyCores:
    """One process for every core that this one may use; `busy` lets them run, as fast as they can.

    Used as a context manager; each process dies when that ends or when we do.
    """

    def __enter__(self) -> BusyCores:
        command = [sys.executable, "-S", "-c", _SPIN]
        self.spinners: list[subprocess.Popen[bytes]] = []
        try:
            for core in cores():
                self.spinners.append(subprocess.Popen([*command, str(core)]))
            time.sleep(0.3)  # until each is in its loop
            self._signal(signal.SIGSTOP)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for spinner in self.spinners:
            spinner.kill()
            spinner.wait()

    @contextmanager
    def busy(self, count: int | None = None) -> Iterator[None]:
        """Let the processes run during the block, or so many of them."""
        self._signal(signal.SIGCONT, count)
        try:
            time.sleep(0.01)
            yield
        finally:
            self._signal(signal.SIGSTOP)

    def _signal(self, number: int, count: int | None = None) -> None:
        for spinner in self.spinners[:count]:
            if spinner.poll() is not None:
                raise RuntimeError("a busy process ended early")
            spinner.send_signal(number)
