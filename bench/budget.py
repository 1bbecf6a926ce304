# SPDX-License-Identifier: MIT
"""The time that each area may take, and how its rows share it."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.core import AREAS, OTHER_SECONDS

# What a row that is measured nonetheless costs beyond the area's time is bounded: from here on
# rows are only named.
_OVERDRAFT = 1.15
# Beyond this a process that is still in a row is ended.
GRACE_SECONDS = 20.0

BUDGET = "budget"


def total_seconds() -> float:
    """Return the time of the suite's areas: with what starts, draws and writes, ten minutes."""
    return sum(a.seconds for a in AREAS.values() if a.cases.__module__.startswith("bench."))


def share_of(area: str) -> float:
    """Return the part of the time of all areas that is an area's."""
    return (AREAS[area].seconds if area in AREAS else OTHER_SECONDS) / total_seconds()


class Budget:
    """The time of one area in one setting, which its rows share."""

    def __init__(
        self, seconds: float = math.inf, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.seconds = seconds
        self._clock = clock
        self._start = clock()
        self.rows_left = 1  # the present one included

    @property
    def used(self) -> float:
        """Seconds since the area began."""
        return self._clock() - self._start

    @property
    def left(self) -> float:
        """Seconds that are left, at least 0."""
        return max(0.0, self.seconds - self.used)

    @property
    def share(self) -> float:
        """Return the present row's part of what is left."""
        return self.left / max(1, self.rows_left)

    @property
    def spent(self) -> bool:
        """Tell whether rows get the fewest repetitions from now on."""
        return self.used >= self.seconds

    @property
    def over(self) -> bool:
        """Tell whether rows are only named from now on."""
        return self.used >= self.seconds * _OVERDRAFT


class TimeUp(BaseException):
    """What a time limit raises. No Exception: compilers catch those, and go on."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeUp in the block when it has taken so long; for the main thread."""
    if seconds <= 0:
        raise TimeUp
    if math.isinf(seconds):
        yield
        return

    def stop(*_: object) -> None:
        raise TimeUp

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
