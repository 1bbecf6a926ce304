# SPDX-License-Identifier: MIT
"""The rows of the op table on buffers of an executor; the build writes _op_rows.pyi."""

from hologram._hologram import ops as _ops

globals().update({name: value for name, value in vars(_ops).items() if name[0] != "_"})
__all__ = [name for name in vars(_ops) if name[0] != "_"]
