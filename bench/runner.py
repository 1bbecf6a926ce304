# SPDX-License-Identifier: MIT
"""Measuring in processes: one for each setting, pinned to its cores before PyTorch is loaded."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from bench.budget import BUDGET, GRACE_SECONDS
from bench.child import Config
from bench.core import Row, Setting
from bench.facts import environment
from bench.machine import ROOT, cores, die_with_parent

_START_SECONDS = 120.0


def cores_of(setting: Setting) -> list[int]:
    """Return the cores of a setting: the last, as the first serve what else the system does."""
    return cores()[-setting.cores :]


class Ended(Exception):
    """The process is no more; the message says why."""


class Late(Exception):
    """The process did not answer in time."""


class Measurer:
    """A process in one setting. It starts when it is needed, and again after it has died."""

    def __init__(self, setting: Setting, config: Config) -> None:
        self.setting, self.config = setting, config
        self.facts: dict[str, Any] = {}
        self.processor_seconds = 0.0  # in areas; much less than they took tells of a busy machine
        self._process: subprocess.Popen[str] | None = None
        self._pipe = -1
        self._text = b""
        self._is_ready = False

    def start(self) -> None:
        """Start the process, which then loads what it needs while others go on."""
        if self._process is not None:
            return
        pinned = set(cores_of(self.setting))

        def prepare() -> None:
            os.sched_setaffinity(0, pinned)
            die_with_parent()

        self._pipe, theirs = os.pipe()
        self._text, self._is_ready = b"", False
        told = [self.config.to_json(self.setting), str(theirs)]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.child", *told],
                cwd=ROOT,
                env=environment(self.setting),
                stdin=subprocess.PIPE,
                text=True,
                pass_fds=[theirs],
                preexec_fn=prepare,
                # Ctrl-C is for us: we keep what has come, then end the process.
                start_new_session=True,
            )
        finally:
            os.close(theirs)

    def stop(self) -> None:
        """End the process and all that it started."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(BrokenPipeError):
            if process.stdin:
                process.stdin.close()
        process.wait()
        os.close(self._pipe)

    def measure(self, area: str, seconds: float) -> Iterator[Row]:
        """Yield the rows of an area as they come; those that do not come have a reason."""
        planned: list[Row] = []
        try:
            self.start()
            if not self._is_ready:  # it has not loaded all that it needs
                self._record(time.monotonic() + _START_SECONDS)
                self._is_ready = True
            self._command(area, seconds)
            deadline = time.monotonic() + seconds + GRACE_SECONDS
            while (record := self._record(deadline))["kind"] != "end":
                if record["kind"] == "plan":
                    planned += [Row.from_json(row) for row in record["rows"]]
                else:
                    row = Row.from_json(record["row"])
                    planned = [p for p in planned if _key(p) != _key(row)]
                    yield row
            self.facts = record["facts"]
            self.processor_seconds += record["processor_seconds"]
        except (Ended, Late) as error:
            self.stop()
            late = isinstance(error, Late)
            lost = planned or [Row(area, "the area")]
            for index, row in enumerate(lost):
                row.cores, row.threads = self.setting.cores, self.setting.threads
                if index == 0 and not late:
                    row.fault = str(error)
                else:
                    row.skipped = BUDGET if late else f"{error}, in {lost[0].name}"
                yield row

    def _command(self, area: str, seconds: float) -> None:
        assert self._process is not None and self._process.stdin is not None
        given = {"area": area, "seconds": None if seconds == float("inf") else seconds}
        try:
            self._process.stdin.write(json.dumps(given) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise Ended(self._end()) from error

    def _record(self, deadline: float) -> dict[str, Any]:
        """Return the next record of the process."""
        while b"\n" not in self._text:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Late(f"nothing came in time from the process of {self.setting.label}")
            timeout = None if left == float("inf") else left
            if not select.select([self._pipe], [], [], timeout)[0]:
                continue
            came = os.read(self._pipe, 1 << 16)
            if not came:
                raise Ended(self._end())
            self._text += came
        line, _, self._text = self._text.partition(b"\n")
        record: dict[str, Any] = json.loads(line)
        return record

    def _end(self) -> str:
        assert self._process is not None
        status = self._process.wait()
        if status < 0:
            return f"the process was ended by {signal.Signals(-status).name}"
        return f"the process ended with status {status}"


def _key(row: Row) -> tuple[str, int, str]:
    return row.name, row.size, row.dtype
