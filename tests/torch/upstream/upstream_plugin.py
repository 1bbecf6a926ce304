# SPDX-License-Identifier: MIT
"""A plugin of pytest that writes what becomes of each test at once, so that a crash loses nothing.

`UPSTREAM_EVENTS` names the file; each line is an object of JSON. `UPSTREAM_DONE` names a file with
the tests, one a line, that an earlier process has finished. `UPSTREAM_SHARE` is how many percent of
the tests run. `UPSTREAM_ONLY` names a file with the common names of the tests that run.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import upstream_shim
from upstream_share import common_name, is_in_share

_MOST_TEXT = 6000


class _Events:
    """The file of events."""

    def __init__(self, path: str) -> None:
        self._out = Path(path).open("a", encoding="utf-8")  # noqa: SIM115

    def write(self, **event: Any) -> None:
        self._out.write(json.dumps(event) + "\n")
        self._out.flush()


def _name(nodeid: str) -> str:
    """Return `Class::test` of `file.py::Class::test`."""
    return nodeid.partition("::")[2] or nodeid


class Recorder:
    """Reports each test's outcome; a test that starts and never ends has crashed or hangs."""

    def __init__(self, events: str, done: str | None, only: str | None, percent: float) -> None:
        self._events = _Events(events)
        self._percent = percent
        self._done = set(Path(done).read_text().split("\n")) if done else set()
        self._only = set(Path(only).read_text().split("\n")) if only else None
        self._phases: list[pytest.TestReport] = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._events.write(kind="collection error", text=report.longreprtext[-_MOST_TEXT:])

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        names = [_name(item.nodeid) for item in items]
        items[:] = [
            item
            for item, name in zip(items, names, strict=True)
            if name not in self._done
            and is_in_share(name, self._percent)
            and (self._only is None or common_name(name) in self._only)
        ]
        self._events.write(kind="collected", names=names)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._phases = []
        self._events.write(kind="start", name=_name(nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._phases.append(report)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        bad = [p for p in self._phases if p.failed]
        skipped = [p for p in self._phases if p.skipped]
        text = ""
        if bad:
            outcome, text = "failed", bad[0].longreprtext[-_MOST_TEXT:]
        elif skipped and hasattr(skipped[0], "wasxfail"):
            outcome = "xfailed"
        elif skipped:
            outcome, text = "skipped", str(skipped[0].longrepr)[-300:]
        else:
            outcome = "passed"
        seconds = sum(p.duration for p in self._phases)
        event = {"kind": "end", "name": _name(nodeid), "outcome": outcome, "text": text}
        self._events.write(**event, seconds=round(seconds, 3))

    def pytest_sessionfinish(self) -> None:
        self._events.write(kind="finished")


def pytest_configure(config: pytest.Config) -> None:
    """Add the names that the tests import before any of them is collected."""
    upstream_shim.install()
    if any(argument.startswith("functorch/") for argument in config.args):
        upstream_shim.install_functorch(config.rootpath / "functorch")
    recorder = Recorder(
        os.environ["UPSTREAM_EVENTS"],
        os.environ.get("UPSTREAM_DONE"),
        os.environ.get("UPSTREAM_ONLY"),
        float(os.environ.get("UPSTREAM_SHARE", "100")),
    )
    config.pluginmanager.register(recorder, "upstream-recorder")
