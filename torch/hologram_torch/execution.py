# SPDX-License-Identifier: MIT
"""How ops run: execution modes, and counters of what fell back."""

from __future__ import annotations

import warnings

import torch

from hologram_torch import _C

_MODES = ("deferred", "eager")


def _check_mode(mode: str) -> str:
    if mode not in _MODES:
        raise ValueError(f"execution mode {mode!r} is not one of 'deferred', 'eager'")
    return mode


_warned = False


def _set_mode(mode: str) -> None:
    global _warned
    deferred = _check_mode(mode) == "deferred"
    if deferred and not _C.can_defer and not _warned:
        _warned = True
        warnings.warn(
            f"execution('deferred') needs PyTorch 2.13 or later, and {torch.__version__} is "
            f"running: every op runs at its call",
            stacklevel=3,
        )
    _C.set_deferring(deferred)


class execution:
    """Choose how ops run: call it to set the mode, or use it as a context manager.

    'deferred' lets ops wait until their results are read, and runs them then as fused kernels.
    'eager' runs each at its call, as do versions of PyTorch before 2.13. Results are the same.
    ``HOLOGRAM_EXECUTION`` sets the initial mode. Leaving 'deferred' runs what waits. The mode is
    one for all threads.
    """

    def __init__(self, mode: str) -> None:
        self.previous = self.mode()
        _set_mode(mode)

    def __enter__(self) -> execution:
        return self

    def __exit__(self, *exc: object) -> None:
        _set_mode(self.previous)

    @staticmethod
    def mode() -> str:
        """Return the mode in force."""
        return "deferred" if _C.is_deferring() else "eager"


def fallback_counts() -> dict[str, int]:
    """Return how often each operator ran PyTorch's CPU kernel instead of one of ours.

    Such calls work on the tensors' own memory (nothing is copied); they cost some dispatch time
    and do not fuse. With HOLOGRAM_FALLBACK=error they raise NotImplementedError instead. Most
    frequent first.
    """
    return _C.fallback_counts()


def reset_fallback_counts() -> None:
    """Start counting from zero."""
    _C.reset_fallback_counts()
