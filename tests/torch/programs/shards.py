# SPDX-License-Identifier: MIT
"""Runs ranges of seeds in processes of their own, one for each configuration at a time.

What HOLOGRAM_JIT and HOLOGRAM_FORCE_ISA choose is chosen when a process starts, and so is the
driver of a second device. A process notes the seed it is at, so that a crash or a hang is a
finding like any other, and the next process goes on after it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import opencl_drivers

SCRIPT = Path(__file__).with_name("test_programs.py")
MOST_FAILURES = 20


@dataclass(frozen=True)
class Config:
    """What the environment of a process chooses."""

    jit: int
    isa: str
    driver: str = ""  # of the second device, on which programs run then, see opencl_drivers.py

    def environment(self, log: str) -> dict[str, str]:
        """Return the variables to set; `log` is where a driver puts what it finds."""
        chosen = {"HOLOGRAM_JIT": str(self.jit), "HOLOGRAM_FORCE_ISA": self.isa}
        if self.driver:
            chosen |= opencl_drivers.environment(self.driver, log)
        return chosen

    def __str__(self) -> str:
        on = f" on {self.driver}" if self.driver else ""
        return f"HOLOGRAM_JIT={self.jit} HOLOGRAM_FORCE_ISA={self.isa}{on}"


def configurations() -> list[Config]:
    """Return those that this machine can run, the one it would choose by itself first."""
    with open("/proc/cpuinfo", encoding="ascii") as file:
        flags = set(next((line for line in file if line.startswith("flags")), "").split())
    wide = {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"} <= flags
    isas = [
        *(["avx512"] if wide else []),
        *(["avx2"] if {"avx2", "fma"} <= flags else []),
        "baseline",
    ]
    main = [Config(jit, isa) for isa in isas[:2] for jit in (1, 0)]
    return main + [Config(0, "baseline")] * (isas[-1] not in isas[:2])


def choose_device() -> None:
    """Let programs run on the device that the environment names, small ones on a second one."""
    import torch

    from . import generate, steps

    if opencl_drivers.chosen_backend():
        torch.hologram.set_device(1)
        steps.NAMES["device"] = torch.device("hologram:1")
        generate.most_interpreted = 512


@dataclass
class Report:
    """What the processes found."""

    counts: dict[str, int] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0

    def add(self, counts: dict[str, int]) -> None:
        """Add one process's counts."""
        for name, n in counts.items():
            self.counts[name] = self.counts.get(name, 0) + n


def shard(first: int, last: int, notes: str) -> None:
    """Check the programs of the seeds [first, last) in this process; leave JSON in `notes`."""
    import faulthandler
    import warnings

    from .check import Counts, check

    choose_device()
    faulthandler.enable()
    warnings.simplefilter("ignore")
    counts, failures = Counts(), []
    known = 0  # of what the driver has complained of
    at = os.open(notes + ".seed", os.O_WRONLY | os.O_CREAT, 0o600)
    for seed in range(first, last):
        os.pwrite(at, b"%20d" % seed, 0)
        failure = check(seed, counts)
        if failure:
            failures.append({"seed": seed, "what": f"{failure.variant}: {failure.what}"})
        said = opencl_drivers.complaints(notes + ".log")
        if len(said) > known:
            failures.append({"seed": seed, "what": said[known:][:3000]})
            known = len(said)
        if len(failures) >= MOST_FAILURES:
            break
    Path(notes).write_text(json.dumps({"counts": asdict(counts), "failures": failures}))


@dataclass
class _Job:
    config: Config
    first: int
    last: int


def run(jobs: list[tuple[Config, int, int]], processes: int, progress: bool = False) -> Report:
    """Run ranges of seeds, some processes at a time."""
    report, start = Report(), time.monotonic()
    waiting = [_Job(*job) for job in jobs]
    running: list[tuple[_Job, subprocess.Popen[bytes], str, float]] = []
    said = start
    with tempfile.TemporaryDirectory() as folder:
        while waiting or running:
            while waiting and len(running) < processes:
                job = waiting.pop(0)
                notes = f"{folder}/{job.first}-{job.config.isa}-{job.config.jit}"
                command = [
                    sys.executable,
                    str(SCRIPT),
                    "--shard",
                    str(job.first),
                    str(job.last),
                    notes,
                ]
                environment = os.environ | job.config.environment(notes + ".log")
                with open(notes + ".err", "wb") as err:
                    process = subprocess.Popen(
                        command, env=environment, stdin=subprocess.DEVNULL, stdout=err, stderr=err
                    )
                running.append((job, process, notes, time.monotonic()))
            time.sleep(0.05)
            for entry in list(running):
                job, process, notes, began = entry
                # A program takes milliseconds, and seconds on the busiest machine.
                limit = 120 + 0.5 * (job.last - job.first)
                hung = time.monotonic() - began > limit
                if hung:
                    process.kill()
                if process.poll() is None and not hung:
                    continue
                process.wait()
                running.remove(entry)
                follow = _collect(report, job, process.returncode, notes, hung)
                if follow and len(report.failures) < MOST_FAILURES:
                    waiting.insert(0, follow)
            if progress and time.monotonic() - said > 30:
                said = time.monotonic()
                print(
                    f"{report.counts.get('programs', 0)} programs, "
                    f"{len(report.failures)} failures, {said - start:.0f} s",
                    flush=True,
                )
    report.seconds = time.monotonic() - start
    return report


def _collect(report: Report, job: _Job, code: int, notes: str, hung: bool) -> _Job | None:
    """Read what a process left; return what remains to be done after a crash."""
    path = Path(notes)
    if code == 0 and path.exists():
        found = json.loads(path.read_text())
        report.add(found["counts"])
        for failure in found["failures"]:
            report.failures.append({**failure, "config": job.config})
        return None
    at = Path(notes + ".seed")
    text = at.read_text().strip() if at.exists() else ""
    err = Path(notes + ".err").read_text(errors="replace")
    seed = int(text) if text else job.first
    how = "hung" if hung else f"exit status {code}"
    report.failures.append({"seed": seed, "what": f"{how}\n{err[-3000:]}", "config": job.config})
    if not text:
        return None  # it did not even start
    return _Job(job.config, seed + 1, job.last) if seed + 1 < job.last else None


def minimal(failure: dict[str, Any], limit_s: float = 240) -> str:
    """Shrink a failure in a process of its configuration; return a report for people."""
    environment = os.environ | failure["config"].environment(os.devnull)
    command = [sys.executable, str(SCRIPT), "--minimal", str(failure["seed"])]
    try:
        found = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=limit_s, check=False
        ).stdout
    except subprocess.TimeoutExpired:
        found = "(shrinking took too long)"
    return f"{failure['config']} seed {failure['seed']}\n{failure['what']}\n\n{found}"


def split(config: Config, first: int, programs: int, size: int) -> list[tuple[Config, int, int]]:
    """Cut a range of seeds into jobs."""
    last = first + programs
    return [(config, at, min(at + size, last)) for at in range(first, last, size)]
