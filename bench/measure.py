# SPDX-License-Identifier: MIT
"""Interleaved timing: both sides in one process, A B A B ..., in batches long enough to time."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from bench.core import Side, Work

Clock = Callable[[], int]
_PAUSE = 0.008
_WAKE = 0.001
_LATE = 1.0
_LEAST = 0.001
_SLOW = 100


@dataclass(frozen=True)
class Timing:
    """How long to measure, in seconds."""

    min_time: float = 0.1  # both sides together, per row
    batch_time: float = 0.001  # one side's turn
    min_pairs: int = 5
    max_pairs: int = 200
    pause: float = 0.0  # before every turn, so that the threads of the last side sleep
    most: float = math.inf  # of all sides together; a turn that is begun is ended

    def within(self, seconds: float, sides: int) -> Timing:
        """Return how to time that number of sides in about `seconds`."""
        wish = max(_LEAST, min(self.min_time, 2 * seconds / sides))
        return replace(self, min_time=wish, most=max(seconds, 0.0))

    def with_threads(self, threads: int) -> Timing:
        """Return how to time sides that use threads of their own.

        OpenMP's spin for milliseconds after a parallel region, on the processors that the next side
        needs. So each turn begins with a pause, and a part that is not timed in which the side's
        own threads wake.
        """
        if threads == 1:
            return self
        return replace(self, pause=_PAUSE, batch_time=2 * self.batch_time)


def time_batch(work: Work, side: Side, runs: int, clock: Clock = time.perf_counter_ns) -> float:
    """Return seconds per operation over `runs` runs; every result exists before the clock stops.

    `kept` lives until the next results are there, as in `z = f(x)` in a loop.
    """
    run, synchronize = work.run, side.synchronize
    start = clock()
    for _ in range(runs):
        kept = run()  # noqa: F841
        synchronize()
    return (clock() - start) * 1e-9 / (runs * work.ops)


def batch_length(work: Work, side: Side, batch_time: float) -> int:
    """Return how many runs take about `batch_time`; warms the work up meanwhile.

    What takes very long is not run again only to know that better.
    """
    if time_batch(work, side, 1) * work.ops >= _SLOW * batch_time:
        return 1
    runs = 1
    while True:
        elapsed = time_batch(work, side, runs) * runs * work.ops
        if elapsed >= batch_time / 2:
            return max(1, round(runs * batch_time / elapsed))
        runs *= 2 if elapsed > batch_time / 16 else 8


def wake_up(work: Work, side: Side) -> None:
    """Run the work for a moment, at least once."""
    start = time.perf_counter()
    while True:
        time_batch(work, side, 1)
        if time.perf_counter() - start > _WAKE:
            return


@contextmanager
def collector_off() -> Iterator[None]:
    """Keep the garbage collector away during the block."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def take_turns(sides: Sequence[tuple[Work, Side]], timing: Timing) -> list[list[float]]:
    """Time all in turns, A B C A B C ..., until the time is spent; the seconds of every turn.

    The time of `timing` is that of two sides: more take longer, but for `most`, the time of all.
    """
    least = timing.min_time * len(sides) / 2
    runs = [batch_length(work, side, timing.batch_time) for work, side in sides]
    turns: list[list[float]] = [[] for _ in sides]
    with collector_off():
        start = time.perf_counter()
        while len(turns[0]) < timing.max_pairs:
            for (work, side), count, seconds in zip(sides, runs, turns):
                if timing.pause:
                    time.sleep(timing.pause)
                    wake_up(work, side)
                seconds.append(time_batch(work, side, count))
            spent = time.perf_counter() - start
            # Slow work gets three turns, very slow work one: more would tell little and cost a lot.
            done = len(turns[0])
            enough = done >= timing.min_pairs or (done >= 3 and spent > 10 * least)
            if spent >= least and (enough or spent > 40 * least):
                break
            if spent >= timing.most and (done >= 3 or spent > _LATE):
                break
    return turns


def take_batches(
    work: Work, settle: Callable[[], object], seconds: float, clock: Clock = time.perf_counter_ns
) -> list[float]:
    """Return the seconds of an operation of many runs; `settle` follows each, outside the clock.

    For what only begins something: recording, of which the run is measured elsewhere.
    """
    found: list[float] = []
    with collector_off():
        end = time.perf_counter() + seconds
        while len(found) < 5 or (time.perf_counter() < end and len(found) < 5_000):
            start = clock()
            kept = work.run()  # noqa: F841
            found.append((clock() - start) * 1e-9 / work.ops)
            settle()
    return found


def mean_time(work: Work, side: Side, seconds: float, min_runs: int = 3) -> float:
    """Return the mean seconds per operation over about `seconds`.

    On a busy machine a median of short turns would miss the turns in which we did not run.
    """
    runs = batch_length(work, side, min(seconds / 4, 0.001))
    total, batches = 0.0, 0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds or batches < min_runs:
        total += time_batch(work, side, runs)
        batches += 1
        if time.perf_counter() - start > 10 * seconds:
            break
    return total / batches
