# SPDX-License-Identifier: MIT
"""What results must not depend on: modes, threads, generated loops, caches, instruction sets.

Each setting is a process that takes the walk (walk.py). Within a process all runs must be alike,
and with the first setting's every setting of its instruction set. Instruction sets are compared in
pairs; known.txt has one line for what is known to differ, and a line that no longer differs is an
error. SSE4.2 is in no pair: without a fused multiply-add it rounds otherwise.

As a script it takes the whole walk and prints what differs, as lines of known.txt.
"""

from __future__ import annotations

import fnmatch
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

HERE = Path(__file__).resolve().parent
KNOWN = HERE / "known.txt"
THREADS = (1, 2, 3, 4, 8)
# Without fused multiply-adds; what it computes is compared within a process alone.
UNPAIRED = "baseline"
Hashes = dict[str, str]  # of `op shape`

MACHINES = {
    "a small machine": {"FAKE_L1": 16 << 10, "FAKE_L2": 256 << 10, "FAKE_L3": 1 << 20,
                        "FAKE_PROCESSORS": 1},
    "a large machine": {"FAKE_L1": 64 << 10, "FAKE_L2": 4 << 20, "FAKE_L3": 256 << 20,
                        "FAKE_PROCESSORS": 128},
}  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """A process: what its environment chooses, and the runs within it, `mode:threads`."""

    name: str
    isa: str
    runs: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


def instruction_sets() -> list[str]:
    """Return those that this machine has, the widest first."""
    with open("/proc/cpuinfo", encoding="ascii") as file:
        flags = set(next((line for line in file if line.startswith("flags")), "").split())
    wide = {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"} <= flags
    found = [*(["avx512"] if wide else []), *(["avx2"] if {"avx2", "fma"} <= flags else [])]
    return [*found, UNPAIRED]


def settings(preloaded: Path) -> list[Setting]:
    """Return the processes to run, the first of each instruction set before its others."""
    every = tuple(f"{mode}:{n}" for n in THREADS for mode in ("eager", "deferred"))
    few = ("deferred:2",)
    found = [Setting(isa, isa, every) for isa in instruction_sets()]
    best = found[0].isa
    found.append(Setting("no generated loops", best, few, {"HOLOGRAM_JIT": "0"}))
    for name, machine in MACHINES.items():
        fakes = {k: str(v) for k, v in machine.items()}
        found.append(Setting(name, best, few, {"LD_PRELOAD": str(preloaded), **fakes}))
    return found


def build_sysconf(folder: Path) -> Path:
    """Compile what is preloaded."""
    library = folder / "sysconf.so"
    compiler = os.environ.get("CC", "cc").split()
    source = str(HERE / "sysconf.c")
    subprocess.run([*compiler, "-shared", "-fPIC", "-O1", "-o", str(library), source], check=True)
    return library


def take(setting: Setting, shapes: int | None) -> dict[str, Hashes]:
    """Take the walk in a setting; return the hashes of each of its runs."""
    # Which of two GEMMs is faster is measured in each process anew.
    environment = {
        **os.environ,
        "HOLOGRAM_GEMM": "hologram",
        "HOLOGRAM_FORCE_ISA": setting.isa,
        **setting.environment,
    }
    limit = ["--shapes", str(shapes)] if shapes is not None else []
    command = [sys.executable, "-W", "ignore", str(HERE / "walk.py"), *limit, "--runs"]
    done = subprocess.run(
        [*command, *setting.runs], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"the walk failed with {setting.name}:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def differing(a: Hashes, b: Hashes) -> list[str]:
    """Return the cases that are not alike."""
    return [case for case in a if a[case] != b.get(case)]


@dataclass
class Found:
    """What a walk through the settings found."""

    wrong: list[str] = field(default_factory=list)  # differs where nothing may
    pairs: dict[str, list[str]] = field(default_factory=dict)  # of instruction sets: their cases
    cases: list[str] = field(default_factory=list)
    runs: int = 0


def walk_all(shapes: int | None) -> Found:
    """Take the walk in every setting and compare."""
    found = Found()
    firsts: dict[str, Hashes] = {}
    with tempfile.TemporaryDirectory() as folder:
        for setting in settings(build_sysconf(Path(folder))):
            for run, hashes in take(setting, shapes).items():
                first = firsts.setdefault(setting.isa, hashes)
                found.runs += 1
                differ = differing(first, hashes)
                found.wrong += [f"{case} with {setting.name}, {run}" for case in differ]
    found.cases = list(next(iter(firsts.values())))
    for a, b in combinations([isa for isa in firsts if isa != UNPAIRED], 2):
        found.pairs[f"{a}-{b}"] = differing(firsts[a], firsts[b])
    return found


@dataclass(frozen=True)
class Known:
    """A line of known.txt. `case` is a pattern of `op shape`.

    What stands there by reading the source, on a machine that cannot run the pair, need not differ.
    """

    case: str
    pair: str
    measured: bool = True


def read_known(lines: Iterable[str]) -> list[Known]:
    """Return the lines that are no comments: `op shape pair`, or `op shape pair unmeasured`."""
    found = []
    for line in lines:
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) not in (3, 4) or words[3:] not in ([], ["unmeasured"]):
            raise ValueError(f"known.txt: want `op shape pair [unmeasured]`, not {line!r}")
        found.append(Known(f"{words[0]} {words[1]}", words[2], len(words) == 3))
    return found


def against_known(
    known: Iterable[Known], pairs: dict[str, list[str]], cases: list[str], whole: bool
) -> list[str]:
    """Say what differs and is not known, and what is known and no longer differs.

    Lines whose pair was not measured are left alone. With a part of the cases, a line that matches
    nothing is wrong only if its case is among them.
    """
    complaints = []
    for pair, differ in pairs.items():
        lines = [line for line in known if line.pair == pair]
        complaints += [
            f"{case} differs between {pair} and is not in known.txt"
            for case in differ
            if not any(fnmatch.fnmatchcase(case, line.case) for line in lines)
        ]
        for line in lines:
            expected = line.measured and (whole or line.case in cases)
            if expected and not fnmatch.filter(differ, line.case):
                complaints.append(f"{line.case} {pair} no longer differs: delete it from known.txt")
    return complaints


def main() -> int:
    """Print what differs."""
    found = walk_all(None)
    for line in found.wrong:
        print("WRONG:", line)
    for pair, differ in found.pairs.items():
        for case in differ:
            print(case, pair)
    known = read_known(KNOWN.read_text().splitlines())
    complaints = against_known(known, found.pairs, found.cases, whole=True)
    print(f"{len(found.cases)} cases, {found.runs} runs, {len(found.wrong)} wrong", file=sys.stderr)
    for line in complaints:
        print(line, file=sys.stderr)
    return 1 if found.wrong or complaints else 0


if __name__ == "__main__":
    sys.exit(main())
