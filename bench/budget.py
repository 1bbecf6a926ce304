# SPDX-License-Identifier: MIT
"""The time that each area may take, and how its rows share it."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Seconds of an area, of all settings together, in the default run; together with what starts the
# processes, draws and writes they stay below ten minutes.
AREA_SECONDS = {
    "overhead": 14,
    "sdk": 26,
    "borders": 12,
    "planning": 8,
    "single": 52,
    "functional": 20,
    "chains": 128,
    "training": 65,
    "graphs": 6,
    "inference": 38,
    "models": 40,
    "sizes": 14,
    "runtimes": 1,  # by --all only, as the next three
    "compile": 1,
    "architectures": 1,
    "custom": 1,
    "reduction": 10,
    "memory": 45,
    "load": 16,
    "copies": 20,
    "fallback": 6,
    "startup": 16,
}
_OTHER_SECONDS = 10  # of an area that the table does not name
# What a row that is measured nonetheless costs beyond the area's time is bounded: from here on
# rows are only named.
_OVERDRAFT = 1.15
# Beyond this a process that is still in a row is ended.
GRACE_SECONDS = 20.0

TOTAL_SECONDS = float(sum(AREA_SECONDS.values()))
BUDGET = "budget"


def share_of(area: str) -> float:
    """Return the part of the time of all areas that is an area's."""
    return AREA_SECONDS.get(area, _OTHER_SECONDS) / TOTAL_SECONDS


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
