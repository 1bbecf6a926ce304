# SPDX-License-Identifier: MIT
"""The C and C++ of bench/native, compiled for this machine when first needed."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib
import os
import platform
import shutil
import subprocess
import tempfile
import timeit
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.core import Case, Goal, Row, Spread, Unavailable, Work
from bench.machine import ROOT, processor

FOLDER = ROOT / "build" / "bench"
SOURCE = ROOT / "bench" / "native" / "chains.cc"
_CHAINS = ("five_op", "layer_norm", "rms_norm", "swiglu", "black_scholes", "adam")
_MOVES = ("move 1 1", "move 2 1", "move 3 2", "move 4 3")
# As in native/chains.cc; of each move there is one that stores past the cache.
_KERNELS = (*_CHAINS, *(f"{m}{suffix}" for m in _MOVES for suffix in ("", " past cache")))
_ALIGNMENT = 64
_PASS_SECONDS = 1e-4


def compiler() -> str:
    """Return the system's C++ compiler."""
    wanted = os.environ.get("CXX")
    for name in [wanted] if wanted else ["c++", "g++", "clang++"]:
        found = shutil.which(name)
        if found:
            return found
    raise Unavailable(f"no C++ compiler: looked for {wanted or 'c++, g++ and clang++'}")


def _flags() -> list[str]:
    flags = ["-O3", "-march=native", "-ffast-math"]
    if platform.machine() == "x86_64":
        flags.append("-mprefer-vector-width=512")
    return flags


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "error" in line]
        raise Unavailable(f"{Path(command[0]).name} failed: {(lines or ['no message'])[0]}"[:300])


def build(
    source: Path, flags: Sequence[str], links: Sequence[str] = (), folder: Path = FOLDER
) -> Path:
    """Compile a source unless that was done on this processor, and return the library.

    It is linked without `flags`: -ffast-math would make the whole process flush denormals.
    """
    program = compiler()
    key = "\n".join([source.read_text(), program, *flags, *links, processor()])
    library = folder / f"{source.stem}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.so"
    if library.exists():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        object_file, partial = Path(scratch) / "object.o", Path(scratch) / "library.so"
        _run([program, "-std=c++20", "-fPIC", *flags, "-c", str(source), "-o", str(object_file)])
        _run([program, "-shared", str(object_file), "-o", str(partial), "-pthread", *links])
        partial.replace(library)
    return library


def _beside_library(source: str, symbol: str) -> Any:
    """Return a C function of bench/native that is compiled against the installed library.

    Unavailable is raised where it cannot be.
    """
    try:
        package = Path(importlib.import_module("hologram").__file__ or "").parent
        library = build(
            ROOT / "bench" / "native" / source,
            ["-O2", f"-I{package / 'include'}"],
            [str(next((package / "lib").glob("libhologram.so*"))), f"-Wl,-rpath,{package / 'lib'}"],
        )
        return ctypes.CDLL(str(library))[symbol]
    except (ImportError, OSError, StopIteration) as error:
        raise Unavailable(str(error) or type(error).__name__) from error


def gemm_provider() -> str:
    """Return the name of what computes the library's float32 products in this process."""
    function = _beside_library("facts.cc", "hologram_bench_gemm")
    function.restype, function.argtypes = ctypes.c_char_p, []
    return str(function().decode())


def per_call(source: str, which: int, rounds: int, row: Row) -> None:
    """Time a call five times by the C function of bench/native that is named as its file.

    It checks what it computes; nothing in PyTorch compares.
    """
    function = _beside_library(f"{source}.cc", f"hologram_bench_{source}")
    function.restype, function.argtypes = ctypes.c_double, [ctypes.c_int, ctypes.c_int]
    function(which, 10)
    nanoseconds = [function(which, rounds) for _ in range(5)]
    if min(nanoseconds) < 0:
        failed = "a call failed, or the device does not record it"
        raise RuntimeError(failed if min(nanoseconds) == -1 else "wrong result: a sum")
    row.spread = Spread.of([n * 1e-9 for n in nanoseconds])
    row.value = row.spread.median


def timed_case(
    name: str, source: str, which: int, most: float | None, size: int = 16, rounds: int = 2001
) -> Case:
    """Return a row that bench/native measures: a call may take `most` seconds."""
    measure = partial(per_call, source, which, rounds)
    return Case(name, measure=measure, size=size, goal=Goal.at_most(most))


def build_chains(folder: Path = FOLDER) -> Path:
    """Compile the chains for this processor."""
    return build(SOURCE, _flags(), ["-lm"], folder)


@functools.cache
def _entry() -> object:
    """Return the function of the library; a failure is remembered as its reason."""
    try:
        function = ctypes.CDLL(str(build_chains())).hologram_bench_run
    except (Unavailable, OSError) as error:
        return str(error)
    integer, size = ctypes.c_int, ctypes.c_int64
    function.restype = integer
    function.argtypes = [integer, ctypes.c_void_p, integer, integer, integer, size, size, integer]
    return function


def aligned(elements: int) -> np.ndarray:
    """Return zeros that begin on a cache line and are whole cache lines long."""
    elements = -(-elements // 16) * 16
    # NumPy asks for huge pages for large arrays: a limit must not pay for small ones.
    bytes_ = np.zeros(elements * 4 + _ALIGNMENT, np.uint8)
    start = -bytes_.ctypes.data % _ALIGNMENT
    found = bytes_[start : start + elements * 4].view(np.float32)
    found.fill(0)  # touches every page
    return found


class Loop:
    """One kernel over sets of arrays, inputs first; `run` is a single call for all sets."""

    def __init__(
        self, kernel: str, sets: Sequence[Sequence[np.ndarray]], rows: int, columns: int
    ) -> None:
        self._entry: Any = _entry()
        if isinstance(self._entry, str):
            raise Unavailable(self._entry)
        self._kept = sets  # keeps the memory alive
        flat = [array.ctypes.data for arrays in sets for array in arrays]
        arrays = (ctypes.c_void_p * len(flat))(*flat)
        self._before = (_KERNELS.index(kernel), arrays, len(sets[0]), len(sets))
        self._after = (rows, columns)

    def run(self, passes: int, threads: int) -> None:
        """Run it `passes` times over all sets."""
        if self._entry(*self._before, passes, *self._after, threads):
            raise ValueError(f"the library knows no kernel {self._before[0]}")

    def seconds(self, passes: int, threads: int) -> float:
        """Return how long that takes."""
        return timeit.timeit(lambda: self.run(passes, threads), number=1)

    def work(self) -> Work:
        """Return it as work whose calls last long enough that the call itself does not count."""
        threads = torch.get_num_threads()
        passes = 1
        while self.seconds(passes, threads) < _PASS_SECONDS and passes < 1 << 20:
            passes *= 2
        return Work(lambda: self.run(passes, threads), passes * len(self._kept))


def chain_work(
    kernel: str, sets: Sequence[Sequence[torch.Tensor]], shape: tuple[int, int], results: int
) -> Work:
    """Return a chain as one loop over copies of `sets`.

    `results` arrays are added to each set; with none the chain works in place and its results are
    the operands themselves, of which the second is only read.
    """
    rows, columns = shape
    elements = rows * columns

    def copy(tensor: torch.Tensor) -> np.ndarray:
        array = aligned(tensor.numel())
        array[: tensor.numel()] = tensor.numpy().reshape(-1)
        return array

    def copies() -> list[list[np.ndarray]]:
        return [[*map(copy, s), *(aligned(elements) for _ in range(results))] for s in sets]

    def outputs() -> list[torch.Tensor]:
        arrays = copies()[:1]
        Loop(kernel, arrays, rows, columns).run(1, torch.get_num_threads())
        found = arrays[0][-results:] if results else [arrays[0][0], *arrays[0][2:]]
        return [torch.from_numpy(a[:elements].copy()) for a in found]

    work = Loop(kernel, copies(), rows, columns).work()
    work.outputs = outputs
    return work


def limit_work(elements: int, reads: int, writes: int, in_place: bool, sets: int) -> Work:
    """Return the memory limit: `reads` arrays read once, `writes` arrays written once.

    Stores past the cache are tried too, and the faster of both is taken. In place the first arrays
    read are the ones written.
    """
    threads = torch.get_num_threads()
    arrays = []
    for _ in range(sets):
        inputs = [aligned(elements) for _ in range(reads)]
        made = inputs[:writes] if in_place else [aligned(elements) for _ in range(writes)]
        arrays.append(inputs + made)
    kernels = (f"move {reads} {writes}{suffix}" for suffix in ("", " past cache"))
    loops = [Loop(kernel, arrays, len(arrays[0][0]), 1) for kernel in kernels]
    for loop in loops:
        loop.run(1, threads)
    best = min(loops, key=lambda loop: min(loop.seconds(2, threads) for _ in range(3)))
    return best.work()
