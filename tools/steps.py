# SPDX-License-Identifier: MIT
"""Runs commands as steps: one line each, their output in a log, its end shown when one fails."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import shorten

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "logs"

_HEARTBEAT_SECONDS = 30.0
_TAIL_LINES = 40
_ERROR_LINE = re.compile(
    r"(^|\s)(fatal )?[Ee]rror:|undefined (reference|symbol)|^CMake Error|^\s*FAILED:|^E:"
)
_NINJA_PROGRESS = re.compile(r"\[(\d+/\d+)\]")


class StepError(RuntimeError):
    """A step failed; the message is complete and needs no traceback."""


def say(text: str) -> None:
    """Print a line now, in order with what the steps' commands print."""
    print(text, flush=True)


def _tail(log: Path, lines: int) -> str:
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def _explain(log: Path) -> str:
    """Return the lines of a log that name errors, when its end does not show them, and its end."""
    tail = _tail(log, _TAIL_LINES)
    errors = [line for line in _tail(log, sys.maxsize).splitlines() if _ERROR_LINE.search(line)]
    missing = [line for line in errors[:10] if line not in tail]
    return "\n".join([*missing, "  ...", tail]) if missing else tail


@contextlib.contextmanager
def _heartbeat(title: str, log: Path, start: float) -> Iterator[None]:
    """Say every half minute that the step is alive, and how far Ninja is."""
    done = threading.Event()

    def beat() -> None:
        while not done.wait(_HEARTBEAT_SECONDS):
            progress = _NINJA_PROGRESS.findall(_tail(log, 20))
            where = f", {progress[-1]}" if progress else ""
            say(f"         {title} ({time.monotonic() - start:.0f} s{where})")

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def step(
    title: str,
    command: Sequence[str],
    *,
    log_name: str,
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
) -> str:
    """Run `command`; return its output. Raise `StepError` with the end of its log when it fails."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{log_name}.log"
    start = time.monotonic()
    with log.open("w", encoding="utf-8") as out, _heartbeat(title, log, start):
        try:
            code = subprocess.run(
                list(command), cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            ).returncode
        except FileNotFoundError:
            raise StepError(f"{title}: the program {command[0]!r} is not installed") from None
    seconds = time.monotonic() - start
    if code != 0:
        raise StepError(
            f"{_explain(log)}\n"
            f"FAILED   {title} after {seconds:.1f} s, exit status {code}\n"
            f"         command: {shorten(' '.join(command), 400, placeholder=' ...')}\n"
            f"         full log: {log.relative_to(ROOT)}"
        )
    say(f"{seconds:6.1f} s {title}")
    return log.read_text(encoding="utf-8", errors="replace")


def fail(error: StepError) -> int:
    """Print why a step failed; return the exit status for it."""
    print(error, file=sys.stderr, flush=True)
    return 1
