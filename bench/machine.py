# SPDX-License-Identifier: MIT
"""What the machine is, how fast its memory copies, and how to keep its cores busy."""

from __future__ import annotations

import bisect
import ctypes
import math
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent


def cores() -> list[int]:
    """Return the cores this process may use."""
    return sorted(os.sched_getaffinity(0))


def _first(path: str, key: str) -> str:
    try:
        for line in Path(path).read_text().splitlines():
            if line.startswith(key):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return ""


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def processor() -> str:
    """Return the name of the processor."""
    return _first("/proc/cpuinfo", "model name") or platform.machine()


def facts(device: str) -> dict[str, Any]:
    """Describe the machine and the programs measured; nothing that names the host or a user."""
    flags = _first("/proc/cpuinfo", "flags").split()
    known: dict[str, Any] = {
        "processor": processor(),
        "cores": len(cores()),
        "memory": _first("/proc/meminfo", "MemTotal"),
        "instruction_sets": [
            f for f in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if f in flags
        ],
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": device,
        "commit": _git("rev-parse", "--short", "HEAD"),
        "modified": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "time": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "load_at_start": os.getloadavg()[0],
    }
    if device.startswith("hologram"):
        import hologram_torch

        known["hologram"] = getattr(hologram_torch, "__version__", "")
        known["execution"] = hologram_torch.execution.mode()
    return known


class Bandwidth:
    """Bytes per second of a copy between warm buffers, by bytes moved and number of threads.

    A limit rather than a typical value: of several copies the fastest counts. Bytes moved are those
    read and those written.
    """

    def __init__(self, points: dict[int, list[tuple[int, float]]]) -> None:
        self.points = points

    @staticmethod
    def measure(threads: Sequence[int], largest: int = 1 << 27) -> Bandwidth:
        """Measure for each number of threads; takes about a second."""
        points: dict[int, list[tuple[int, float]]] = {}
        moved = [1 << k for k in range(13, largest.bit_length())]
        source = torch.ones(largest // 8)
        target = torch.ones(largest // 8)
        for count in threads:
            torch.set_num_threads(count)
            points[count] = []
            for total in moved:
                a, b = source[: total // 8], target[: total // 8]
                if count == 1 or total < (1 << 18):
                    seconds = _best(_one_thread_copy(a, b), total)
                else:
                    seconds = _best(lambda a=a, b=b: b.copy_(a), total)  # type: ignore[misc]
                points[count].append((total, total / seconds))
        return Bandwidth(points)

    def seconds(self, moved: int, threads: int) -> float:
        """Return the least time that moving so many bytes takes; NaN where it was not measured."""
        curve = self.points.get(threads)
        if not curve or moved <= 0:
            return math.nan
        sizes = [size for size, _ in curve]
        at = bisect.bisect_left(sizes, moved)
        if at == 0:
            return moved / curve[0][1]
        if at == len(curve):
            return moved / curve[-1][1]
        (low, slow), (high, fast) = curve[at - 1], curve[at]
        share = math.log(moved / low) / math.log(high / low)
        return moved / (slow * (fast / slow) ** share)


def _one_thread_copy(a: torch.Tensor, b: torch.Tensor) -> Any:
    # np.copyto costs 0.2 us a call, an eighth of tensor.copy_: it measures the copy, not the call.
    source, target = a.numpy(), b.numpy()
    return lambda: np.copyto(target, source)


def _best(copy: Any, total: int) -> float:
    runs = max(1, min(2000, (1 << 22) // total))
    best = math.inf
    for _ in range(7):
        start = time.perf_counter()
        for _ in range(runs):
            copy()
        best = min(best, (time.perf_counter() - start) / runs)
    return best


_SPIN = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass\n"
_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@contextmanager
def busy_cores() -> Iterator[None]:
    """Run one busy process on every core; each dies when the block ends or when we do."""
    spinners: list[subprocess.Popen[bytes]] = []
    try:
        for core in cores():
            spinners.append(  # noqa: PERF401  (those started are ended if one fails)
                subprocess.Popen(
                    [sys.executable, "-S", "-c", _SPIN, str(core)], preexec_fn=_die_with_parent
                )
            )
        time.sleep(0.3)
        for spinner in spinners:
            if spinner.poll() is not None:
                raise RuntimeError("a busy process ended early")
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
        for spinner in spinners:
            spinner.wait()
