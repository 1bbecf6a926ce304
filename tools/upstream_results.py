# SPDX-License-Identifier: MIT
"""Pairs the results of PyTorch's tests on the device with those on cpu, and judges them.

cpu has results of the tests alone that do not pass on the device.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

# An expected failure that fails is what the test's author says is right.
GOOD = frozenset({"passed", "xfailed"})
BAD = frozenset({"failed", "crashed", "hung"})

_CLASS = {"hologram": re.compile(r"(PRIVATEUSE1|HOLOGRAM)$"), "cpu": re.compile(r"CPU$")}
_TEST = {
    "hologram": re.compile(r"_(?:privateuse1|hologram)(?=_|$)"),
    "cpu": re.compile(r"_cpu(?=_|$)"),
}


@dataclass
class Outcome:
    """What became of one test on one device."""

    outcome: str
    text: str = ""
    seconds: float = 0.0


@dataclass
class Results:
    """What is known of one file on one device."""

    key: str = ""
    collected: list[str] = field(default_factory=list)
    tests: dict[str, Outcome] = field(default_factory=dict)
    started: str | None = None  # the test that runs, or the one in which the process ended
    broken: bool = False  # whether the last process ended in a test
    errors: list[str] = field(default_factory=list)  # of the collection
    finished: bool = False

    def take(self, event: Mapping[str, object]) -> None:
        """Take one event that the plugin or the runner wrote."""
        kind, name, text = event["kind"], str(event.get("name", "")), str(event.get("text", ""))
        if kind == "run":
            self.key = str(event["key"])
        elif kind == "process":
            self.started, self.broken, self.finished, self.errors = None, False, False, []
        elif kind == "collection error":
            self.errors.append(text)
        elif kind == "collected":
            self.collected = list(event["names"])  # type: ignore[call-overload]
        elif kind == "start":
            self.started = name
        elif kind == "end":
            self.started = None
            outcome = str(event["outcome"])
            self.broken = outcome in ("crashed", "hung")
            self.tests[name] = Outcome(outcome, text, float(str(event["seconds"])))
        elif kind == "finished":
            self.finished = True

    @property
    def whole(self) -> bool:
        """Whether each test has an outcome."""
        return bool(self.collected) and all(name in self.tests for name in self.collected)


def read(path: Path, offset: int = 0) -> Results:
    """Return what a file of events says from a byte on; a line that was cut off is left out."""
    results = Results()
    if path.is_file():
        for line in path.read_bytes()[offset:].decode("utf-8", "replace").splitlines():
            try:
                event = json.loads(line)
            except json.JSONDecodeError:
                continue
            results.take(event)
    return results


def without_device(name: str, side: str) -> str:
    """Return the name that a test has in common with its twin on the other device."""
    owner, _, test = name.partition("::")
    if not _CLASS[side].search(owner):
        return name
    words = list(_TEST[side].finditer(test))
    if not words:
        return name
    # The device comes after the test's parameters, among which may be its name, too.
    last = words[-1]
    return f"{_CLASS[side].sub('', owner)}::{test[: last.start()]}{test[last.end() :]}"


@dataclass(frozen=True)
class Excuse:
    """A line of the file of exceptions."""

    pattern: str
    reason: str


def read_exceptions(lines: Iterable[str]) -> list[Excuse]:
    """Parse lines `file.py::Class::test # reason`; `*` and `?` in the test's name are patterns."""
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        pattern, mark, reason = (part.strip() for part in line.partition(" # "))
        if not mark or not reason or pattern.count("::") != 2:
            raise ValueError(
                f"line {number} is not `file.py::Class::test # reason`: {line.strip()}"
            )
        found.append(Excuse(pattern, reason))
    return found


@dataclass
class Verdict:
    """One file's tests by what they did; the names are those without device."""

    file: str
    passed: int = 0  # on the device; cpu is not asked
    drift: list[str] = field(default_factory=list)  # fail on both
    skipped: int = 0  # on the device; also what cpu passes
    skipped_alone: list[str] = field(default_factory=list)  # cpu passes them
    new: dict[str, Outcome] = field(default_factory=dict)  # fail on the device alone, unlisted
    listed: list[str] = field(default_factory=list)  # fail on the device alone, in a listed way
    stale: list[str] = field(default_factory=list)  # listed and do not fail on the device alone
    errors: list[str] = field(default_factory=list)  # of the collection, of either side

    @property
    def good(self) -> bool:
        """Whether nothing happened that the file of exceptions does not say."""
        return not (self.new or self.stale or self.errors)


def fails(test: Outcome | None) -> bool:
    """Whether a test ran and failed, be it that its author expects that of this device."""
    return test is not None and (test.outcome in BAD or test.outcome == "xfailed")


def pair(device: Results, cpu: Results) -> dict[str, tuple[Outcome | None, Outcome | None]]:
    """Return each test's results on the device and on cpu by the name without device."""
    # A test that is not made for each device has one name on both sides.
    same = device.tests.keys() & cpu.tests.keys()
    pairs: dict[str, tuple[Outcome | None, Outcome | None]] = {}
    for name, test in device.tests.items():
        pairs[name if name in same else without_device(name, "hologram")] = (test, None)
    for name, test in cpu.tests.items():
        key = name if name in same else without_device(name, "cpu")
        pairs[key] = (pairs.get(key, (None, None))[0], test)
    return pairs


def judge(file: str, device: Results, cpu: Results, exceptions: list[Excuse]) -> Verdict:
    """Sort one file's tests; patterns that match nothing count as stale if the file ran whole."""
    verdict = Verdict(file)
    for side, results in (("hologram", device), ("cpu", cpu)):
        verdict.errors += [f"{side}: {error}" for error in results.errors]
        if side == "hologram" and not results.collected and not results.errors:
            verdict.errors.append(f"{side}: no tests")
    ours = [e.pattern.partition("::")[2] for e in exceptions if e.pattern.startswith(f"{file}::")]
    used = dict.fromkeys(ours, False)
    for name, (on_device, on_cpu) in pair(device, cpu).items():
        if on_device is None:
            continue
        matching = [pattern for pattern in ours if fnmatchcase(name, pattern)]
        alone = on_device.outcome in BAD and not fails(on_cpu)
        if matching:
            used.update(dict.fromkeys(matching, True))
            (verdict.listed if alone else verdict.stale).append(name)
        if alone:
            if not matching:
                verdict.new[name] = on_device
        elif on_device.outcome in BAD:
            verdict.drift.append(name)
        elif on_device.outcome == "skipped":
            verdict.skipped += 1
            if on_cpu and on_cpu.outcome in GOOD:
                verdict.skipped_alone.append(name)
        else:
            verdict.passed += 1
    if device.whole:
        verdict.stale += [f"{pattern} (no such test)" for pattern, seen in used.items() if not seen]
    return verdict


def table(verdicts: list[Verdict]) -> str:
    """Return the counts of each file and their sums as a table in Markdown."""
    head = [
        "file", "passed", "failed on both", "skipped", "of these passed on cpu",
        "failed on the device alone", "of these listed",
    ]  # fmt: skip
    rows = [
        [
            v.passed, len(v.drift), v.skipped, len(v.skipped_alone),
            len(v.new) + len(v.listed), len(v.listed),
        ]
        for v in verdicts
    ]  # fmt: skip
    total = [sum(column) for column in zip(*rows, strict=True)] if rows else [0] * 6
    names = [*(v.file for v in verdicts), "all"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    lines += [
        f"| {name} | {' | '.join(f'{n:,}' for n in row)} |"
        for name, row in zip(names, [*rows, total], strict=True)
    ]
    return "\n".join(lines)
