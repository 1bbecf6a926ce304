# SPDX-License-Identifier: MIT
"""Runs the tests in every configuration that a user's machine or settings may bring about.

Each row of `CONFIGURATIONS` runs `tools/test.py --matrix` in a process of its own: the tests that
a setting can change. Rows that the machine cannot run are named, with the reason. A table at the
end has the result of each, which is also written to build/logs/test-matrix.md; the exit status is
0 only if every row passed. Arguments pick rows by name; what follows `--` goes to pytest.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from steps import LOGS, ROOT, say


@dataclass
class Configuration:
    """One way to run the tests."""

    name: str
    environment: dict[str, str] = field(default_factory=dict)
    cores: int | None = None  # None: all of them


def setting(variable: str, value: str) -> Configuration:
    """Return the configuration in which one environment variable is set."""
    return Configuration(f"{variable}={value}", {variable: value})


CONFIGURATIONS = [
    Configuration("default"),
    Configuration("one core", cores=1),
    setting("HOLOGRAM_GEMM", "torch"),
    setting("HOLOGRAM_GEMM", "hologram"),
    setting("HOLOGRAM_FORCE_ISA", "avx2"),
    setting("HOLOGRAM_FORCE_ISA", "baseline"),
    setting("HOLOGRAM_WORKER", "0"),
    setting("HOLOGRAM_IMMEDIATE_BYTES", "0"),
    setting("HOLOGRAM_IMMEDIATE_BYTES", "4096"),
    setting("HOLOGRAM_JIT", "0"),
    setting("HOLOGRAM_POISON", "1"),
]


@dataclass
class Result:
    """What became of one configuration."""

    configuration: Configuration
    outcome: str  # "passed", "FAILED", or why it was not run
    summary: str = ""
    seconds: float = 0.0


def reason_against(configuration: Configuration) -> str | None:
    """Return why this machine cannot run `configuration`, or None."""
    isa = configuration.environment.get("HOLOGRAM_FORCE_ISA")
    if isa is not None:
        environment = {**os.environ, **configuration.environment}
        code = "import hologram; print(hologram.cpu_info())"
        probe = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True
        )
        if probe.returncode != 0:
            return f"this processor has no {isa}"
    if configuration.cores is not None:
        have = len(os.sched_getaffinity(0))
        if have <= configuration.cores:
            return f"there are no more than {have} cores, so that it is the default"
    return None


def pin(cores: int | None) -> Callable[[], None] | None:
    """Return what a child does before it starts, so that it has `cores` processors."""
    if cores is None:
        return None
    chosen = sorted(os.sched_getaffinity(0))[:cores]
    return lambda: os.sched_setaffinity(0, chosen)


def summary_of(log: str) -> str:
    """Return what ctest and pytest say at their end."""
    cpp = re.findall(r"(\d+% tests passed.*)", log)
    python = re.findall(r"^=+ (.*(?:passed|failed|error).*?) =+$", log, re.MULTILINE)
    return "; ".join([*(cpp[-1:] or ["no C++ tests"]), *(python[-1:] or ["pytest said nothing"])])


def run(configuration: Configuration, arguments: list[str]) -> Result:
    """Run the tests in one configuration."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"matrix-{re.sub('[^A-Za-z0-9]+', '-', configuration.name).lower()}.log"
    start = time.monotonic()
    with log.open("w", encoding="utf-8") as out:
        code = subprocess.run(
            [sys.executable, "tools/test.py", "--matrix", *arguments],
            cwd=ROOT,
            env={**os.environ, **configuration.environment},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            preexec_fn=pin(configuration.cores),
        ).returncode
    text = log.read_text(encoding="utf-8", errors="replace")
    for line in re.findall(r"^(?:FAILED|ERROR) .*", text, re.MULTILINE):
        say(f"         {line}")
    outcome = "passed" if code == 0 else f"FAILED ({log.relative_to(ROOT)})"
    return Result(configuration, outcome, summary_of(text), time.monotonic() - start)


def table(results: list[Result]) -> str:
    """Return the results as a table in Markdown."""
    lines = [
        f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "",
        "| configuration | result | seconds | summary |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {r.configuration.name} | {r.outcome} | {r.seconds:.0f} | {r.summary} |" for r in results
    ]
    return "\n".join(lines)


def main() -> int:
    """Run the configurations that were asked for."""
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    wanted, arguments = words[:split], words[split + 1 :]
    unknown = set(wanted) - {c.name for c in CONFIGURATIONS}
    if unknown:
        names = ", ".join(repr(c.name) for c in CONFIGURATIONS)
        print(f"no configuration {sorted(unknown)}; there are {names}", file=sys.stderr)
        return 2
    results: list[Result] = []
    for configuration in CONFIGURATIONS:
        if wanted and configuration.name not in wanted:
            continue
        reason = reason_against(configuration)
        say(f"         {configuration.name}" + (f": not run, {reason}" if reason else ""))
        results.append(
            Result(configuration, f"not run: {reason}") if reason else run(configuration, arguments)
        )
        say(f"{results[-1].seconds:6.1f} s {configuration.name}: {results[-1].outcome}")
        (LOGS / "test-matrix.md").write_text(table(results) + "\n")
    say(table(results))
    return int(any(r.outcome.startswith("FAILED") for r in results))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
