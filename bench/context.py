# SPDX-License-Identifier: MIT
"""A run of the suite: its settings, and the way from a case to a row."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from bench.core import SIZES, Case, Row, make_side
from bench.inputs import Inputs
from bench.machine import Bandwidth, cores
from bench.measure import Timing, compare
from bench.verify import VerificationError, verify


@dataclass
class Context:
    """What every area is given."""

    device: str = "hologram"
    quick: bool = False
    threads: list[int] = field(default_factory=lambda: sorted({1, len(cores())}))
    timing: Timing = field(default_factory=Timing)
    sizes: list[int] = field(default_factory=lambda: list(SIZES.values()))
    fastest: bool = False  # compare the fastest turns instead of the medians
    only: str = ""  # measure cases whose name contains this
    progress: Callable[[Row], None] | None = None
    bandwidth: Bandwidth = field(default_factory=lambda: Bandwidth({}))
    inputs: Inputs = field(default_factory=Inputs)

    def __post_init__(self) -> None:
        self.side = make_side(self.device)
        self.cpu = make_side("cpu")

    def wants(self, name: str) -> bool:
        """Tell whether a case of that name is asked for."""
        return self.only in name

    def rows(self, area: str, make_cases: Callable[[], Iterable[Case]]) -> Iterator[Row]:
        """Verify and time cases for every number of threads, small sizes first.

        Cases come by size so that large inputs are made once and do not pile up.
        """
        cases = sorted((c for c in make_cases() if self.wants(c.name)), key=lambda c: c.size)
        for threads in self.threads:
            torch.set_num_threads(threads)
            size = -1
            for case in cases:
                if case.size != size:
                    self.inputs.clear()
                    gc.collect()
                    size = case.size
                yield self.row(area, case, threads)
        self.inputs.clear()

    def row(self, area: str, case: Case, threads: int) -> Row:
        """Verify a case, then time it; what goes wrong becomes the row's fault."""
        row = Row(
            area,
            case.name,
            size=case.size,
            dtype=case.dtype,
            threads=threads,
            bytes=case.bytes,
            flops=case.flops,
            goal=case.goal,
            note=case.note,
            group=case.group,
            limit=self.bandwidth.seconds(case.bytes, threads),
        )
        with faults_of(row):
            work = case.build(self.side)
            peer = (case.peer or case.build)(self.cpu)
            outputs, peer_outputs = outputs_of(work), outputs_of(peer)
            verify(
                case.name,
                outputs,
                peer_outputs,
                case.oracle() if case.oracle else None,
                case.tolerance,
            )
            del outputs, peer_outputs
            timing = self.timing
            if case.min_time is not None and not self.quick:
                timing = Timing(
                    case.min_time, timing.batch_time, timing.min_pairs, timing.max_pairs
                )
            result = compare(work, self.side, peer, self.cpu, timing)
            if case.peer is not None:
                row.details["different_work"] = True
            row.spread, row.reference_spread = result.value, result.reference
            row.value, row.reference = result.value.median, result.reference.median
            if self.fastest:
                row.value, row.reference = result.value.least, result.reference.least
            row.details["ratio_quartiles"] = [result.ratio.low, result.ratio.high]
        return self.done(row)

    def done(self, row: Row) -> Row:
        """Show progress and pass the row on."""
        if self.progress:
            self.progress(row)
        return row


class faults_of:
    """Write an exception of the block into the row; let interrupts through."""

    def __init__(self, row: Row) -> None:
        self.row = row

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> bool:
        if error is None:
            return False
        if not isinstance(error, Exception):
            return False
        lines = str(error).strip().splitlines() or [""]
        name = "wrong result" if isinstance(error, VerificationError) else type(error).__name__
        self.row.fault = f"{name}: {lines[0]}"[:300]
        print(f"FAULT {self.row.area} / {self.row.name}: {self.row.fault}", file=sys.stderr)
        return True


def outputs_of(work: Any) -> Any:
    """Return the results of a work that are compared."""
    return work.outputs() if work.outputs else work.run()
