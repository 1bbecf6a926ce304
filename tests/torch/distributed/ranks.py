# SPDX-License-Identifier: MIT
"""Starts ranks and runs cases in them: functions that every rank calls in the same order.

A test module asks for `run_ranks(module, world)`. Each rank is a process of its own (this file as
a program) that runs every function `case_*` of the module and writes how each ended.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
TIMEOUT = timedelta(seconds=20)  # of a collective: a rank that failed must not hold the others long


def environment() -> dict[str, str]:
    """Return the environment of a rank: one thread, and the modules of these tests."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join([str(FOLDER.parent), os.environ.get("PYTHONPATH", "")]),
    }


def case_names(module: str) -> list[str]:
    """Return the names of a module's cases, in the order they are written in."""
    found = importlib.import_module(f"distributed.{module}")
    return [name for name in vars(found) if name.startswith("case_")]


def run_ranks(module: str, world: int, seconds: float = 120.0) -> dict[str, str]:
    """Run a module's cases in `world` ranks; return what went wrong by case, empty if nothing."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = [sys.executable, "-m", "distributed.ranks", module, str(world), folder]
        ranks = [
            subprocess.Popen(
                [*arguments, str(rank)],
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(world)
        ]
        said = []
        try:
            said.extend(rank.communicate(timeout=seconds)[0] for rank in ranks)
        except subprocess.TimeoutExpired:
            said.append(f"not done after {seconds} s")
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
        faults = dict.fromkeys(case_names(module), "")
        for rank in range(world):
            path = Path(folder) / f"{rank}.json"
            ended = json.loads(path.read_text()) if path.exists() else {}
            for name in faults:
                fault = ended.get(name, "the rank ended before:\n" + "\n".join(said))
                if fault:
                    faults[name] += f"rank {rank}: {fault}\n"
        return faults


def both(program: Callable[[str], Any]) -> Any:
    """Run a program on cpu and on hologram; its results must have the same bits. Return them."""
    import torch

    def check(ours: Any, theirs: Any) -> None:
        if isinstance(theirs, torch.Tensor):
            assert ours.dtype == theirs.dtype
            assert ours.device.type == "hologram"
            assert torch.equal(ours.cpu(), theirs), (ours, theirs)
        elif isinstance(theirs, (list, tuple)):
            assert len(ours) == len(theirs)
            for a, b in zip(ours, theirs, strict=True):
                check(a, b)
        else:
            assert ours == theirs, (ours, theirs)

    theirs = program("cpu")
    ours = program("hologram")
    check(ours, theirs)
    return ours


def main(module: str, world: int, folder: Path, rank: int) -> None:
    """Be one rank."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), world)

    def start(attempt: int) -> None:
        prefixed = dist.PrefixStore(f"group {attempt}", store)
        dist.init_process_group(store=prefixed, rank=rank, world_size=world, timeout=TIMEOUT)

    start(0)
    cases = importlib.import_module(f"distributed.{module}")
    ended: dict[str, str] = {}
    faults = 0
    for name in case_names(module):
        try:
            torch.manual_seed(1234 + rank)
            getattr(cases, name)()
            ended[name] = ""
        except Exception:
            ended[name] = traceback.format_exc()
            store.add("faults", 1)
        (folder / f"{rank}.json").write_text(json.dumps(ended))
        # Where a rank failed alone, the others have to be brought to the same place.
        store.add(f"done {name}", 1)
        while store.add(f"done {name}", 0) < world:
            time.sleep(0.001)
        if store.add("faults", 0) > faults:  # collectives may have come out of step
            faults = store.add("faults", 0)
            dist.destroy_process_group()
            start(faults)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
