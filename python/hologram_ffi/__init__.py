# SPDX-License-Identifier: MIT
"""The handle interface of Hologram: every function of hologram.h under the same name.

Executors, buffers and tensors are handles: ints that are checked at every use and never used twice.
Ops are recorded and run when results are read (`executor_synchronize`, `buffer_to_bytes`, ...).

    import hologram_ffi as ffi

    ex = ffi.new_executor()
    a, b, c = (ffi.executor_allocate_buffer(ex, 3) for _ in range(3))
    ffi.buffer_copy_from_slice(ex, a, "[1, 2, 3]")
    ffi.buffer_fill(ex, b, 0.5)
    ffi.vector_add_f32(ex, a, b, c, 3)
    ffi.buffer_to_vec(ex, c)  # '[1.5, 2.5, 3.5]'

A call that fails raises: ValueError for what is outside of what is accepted (handles, lengths,
JSON), TypeError for dtypes, RuntimeError for handles that were freed, MemoryError. The message
names the function and the argument.
"""

from __future__ import annotations

from hologram import _ffi
from hologram._ffi import *  # noqa: F403

# These are here as well, but a star import leaves Python's own in place.
_ALSO_PYTHONS = ("abs", "pow", "round")
__all__ = [n for n in dir(_ffi) if not n.startswith("_") and n not in _ALSO_PYTHONS]
