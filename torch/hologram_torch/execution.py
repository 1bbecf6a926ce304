# SPDX-License-Identifier: MIT
"""How ops run, and what they did: execution modes, fallback counters, ``explain``."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

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


# Deferred by HOLOGRAM_EXECUTION=deferred only, until circuits pass every test.
if "HOLOGRAM_EXECUTION" not in os.environ:
    _C.set_deferring(False)


class execution:
    """Choose how ops run: call it to set the mode, or use it as a context manager.

    'deferred' lets ops wait until somebody looks at their results, and run then as fused kernels.
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
    and do not fuse. Most frequent first.
    """
    return _C.fallback_counts()


def reset_fallback_counts() -> None:
    """Start counting from zero."""
    _C.reset_fallback_counts()


@dataclass
class Explanation:
    """What one call of a function did on the device; ``print`` shows a table."""

    result: Any
    ops: Counter[str] = field(default_factory=Counter)
    fallbacks: dict[str, int] = field(default_factory=dict)

    @property
    def native_ops(self) -> int:
        """Operators called that have a kernel of our own or need none."""
        return max(0, sum(self.ops.values()) - self.fallback_ops)

    @property
    def fallback_ops(self) -> int:
        """Kernels of PyTorch's CPU that ran."""
        return sum(self.fallbacks.values())

    def __str__(self) -> str:
        lines = [
            f"{sum(self.ops.values())} operators on hologram, {self.fallback_ops} cpu kernels ran"
        ]
        width = max((len(name) for name in [*self.ops, *self.fallbacks]), default=0)
        lines += [f"  {name:<{width}}  {count:>6}" for name, count in self.ops.most_common()]
        if self.fallbacks:
            lines.append("fell back to PyTorch's cpu kernels:")
            lines += [f"  {name:<{width}}  {count:>6}" for name, count in self.fallbacks.items()]
        return "\n".join(lines)


class _Recorder(TorchDispatchMode):
    def __init__(self, ops: Counter[str]) -> None:
        super().__init__()
        self.ops = ops

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in torch.utils._pytree.tree_leaves((args, kwargs, result)):
            if isinstance(value, torch.Tensor) and value.device.type == "hologram":
                packet = func._schema.name
                overload = func._overloadname
                self.ops[packet if overload == "default" else f"{packet}.{overload}"] += 1
                break
        return result


def explain(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Call ``fn(*args, **kwargs)`` and tell which operators ran and which of them fell back."""
    explanation = Explanation(result=None)
    before = fallback_counts()
    with _Recorder(explanation.ops):
        explanation.result = fn(*args, **kwargs)
    for name, count in fallback_counts().items():
        if count > before.get(name, 0):
            explanation.fallbacks[name] = count - before.get(name, 0)
    return explanation
