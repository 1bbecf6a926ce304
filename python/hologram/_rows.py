# SPDX-License-Identifier: MIT
"""The rows of the op table as functions of tensors; _rows.pyi lists them (tools/stubs.py)."""

from hologram._hologram import rows as _rows

globals().update({name: value for name, value in vars(_rows).items() if name[0] != "_"})
__all__ = [name for name in vars(_rows) if name[0] != "_"]
