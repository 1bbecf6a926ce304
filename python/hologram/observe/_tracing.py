# SPDX-License-Identifier: MIT
"""Traces of a device: opened, waited for, and ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from hologram import _hologram, _noting

__all__ = ["ARRAYS", "Trace", "watch"]

ARRAYS = -1  # the device of arrays

_lock = threading.Lock()


class Trace:
    """An open trace of a device, which is named by its index.

    With `at_call` ops run at their calls as ever and are noted; else every op is recorded.
    """

    def __init__(self, device: int = ARRAYS, *, at_call: bool = False) -> None:
        self._at_call = at_call
        self._number = _hologram._start_tracing(device, at_call)
        if at_call:
            with _lock:
                _noting.traces += 1

    def stop(self) -> dict[str, Any]:
        """End the trace; return its shapes, circuits and notes."""
        if self._at_call:
            self._at_call = False
            with _lock:
                _noting.traces -= 1
        return _hologram._stop_tracing(self._number)


def watch(
    call: Callable[[], Any],
    synchronize: Callable[[], Any] = _hologram._flush,
    device: int = ARRAYS,
    *,
    at_call: bool = False,
) -> tuple[dict[str, Any], int]:
    """Call `call`; return the trace of what it ran, and the nanoseconds until all of it had run."""
    synchronize()
    trace = Trace(device, at_call=at_call)
    try:
        begin = time.monotonic_ns()
        kept = call()  # noqa: F841  (a result that dies is not computed)
        synchronize()
        ns = time.monotonic_ns() - begin
    finally:
        traced = trace.stop()
    return traced, ns
