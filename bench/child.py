# SPDX-License-Identifier: MIT
"""One process in one setting: measures the areas that it is told to and sends their rows."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TextIO

from bench.core import AREAS, Row, Setting
from bench.facts import affinities, setting_facts


@dataclass
class Config:
    """What is measured, the same in every process."""

    device: str = "hologram"
    quick: bool = False
    whole: bool = False
    sizes: list[int] | None = None
    only: str = ""
    min_time: float = 0.1
    fastest: bool = False
    modules: list[str] = field(default_factory=list)  # that register further areas

    def to_json(self, setting: Setting) -> str:
        """Return the text that `main` takes."""
        return json.dumps({"config": asdict(self), "setting": asdict(setting)})


def register_areas(modules: Sequence[str]) -> None:
    """Import the areas of the suite, and those of further modules."""
    for name in ("bench.areas", *modules):
        importlib.import_module(name)


def make_context(config: Config, setting: Setting) -> Any:
    """Turn the configuration into the context of a process in that setting."""
    from bench.context import Context
    from bench.measure import Timing

    context = Context(config.device, config.quick, setting, Timing(config.min_time))
    context.whole = config.whole
    context.sizes = config.sizes or context.sizes
    context.only = config.only
    context.fastest = config.fastest
    return context


def measure(context: Any, area: str, seconds: float, send: Callable[..., None]) -> None:
    """Measure one area; every row is sent as it comes."""
    import torch

    from bench.budget import Budget
    from bench.context import faults_of

    start = _processor_seconds()
    allowed = set(os.sched_getaffinity(0))
    context.budget = Budget(seconds)
    context.plan = lambda rows: send("plan", rows=[row.to_json() for row in rows])
    torch.set_num_threads(context.setting.threads)
    failed = Row(area, "the area")
    with faults_of(failed):
        for row in AREAS[area].measure(context):
            send("row", row=row.to_json())
    if failed.fault:
        send("row", row=context.done(failed).to_json())
    wider = sorted(set(affinities()) - allowed)
    if wider:
        fault = f"a thread may use the cores {wider}, which the setting does not have"
        send("row", row=context.done(Row(area, "cores", fault=fault)).to_json())
    used = _processor_seconds() - start
    send("end", processor_seconds=used, facts=setting_facts(context.device))


def _processor_seconds() -> float:
    """Return what this process and those that it has waited for have used."""
    return sum(os.times()[:4])


def serve(context: Any, commands: TextIO, send: Callable[..., None]) -> None:
    """Measure what each line names, until there are no more."""
    send("ready")
    for line in commands:
        command = json.loads(line)
        seconds = command["seconds"]
        measure(context, command["area"], float("inf") if seconds is None else seconds, send)


def main() -> None:
    """Take the configuration and the pipe from the command line, and the areas from the input."""
    given, pipe = json.loads(sys.argv[1]), int(sys.argv[2])
    records = os.fdopen(pipe, "w")

    def send(kind: str, **data: Any) -> None:
        records.write(json.dumps({"kind": kind, **data}) + "\n")
        records.flush()

    config = Config(**given["config"])
    register_areas(config.modules)
    serve(make_context(config, Setting(**given["setting"])), sys.stdin, send)


if __name__ == "__main__":
    main()
