# SPDX-License-Identifier: MIT
"""What runs, and why: ``hologram.explain`` and ``hologram.profile``, and what they consist of.

PyTorch's device has its own of both, made of the same parts.
"""

from hologram.observe._at_call import CallsAtOnce
from hologram.observe._explain import Explanation, explain
from hologram.observe._profile import profile
from hologram.observe._profiles import KernelTime
from hologram.observe.circuits import Circuit, Kernel, Launch, Op

__all__ = [
    "CallsAtOnce",
    "Circuit",
    "Explanation",
    "Kernel",
    "KernelTime",
    "Launch",
    "Op",
    "explain",
    "profile",
]
