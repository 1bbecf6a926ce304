# SPDX-License-Identifier: MIT
"""The calls of the catalogue on tensors; see _calls.py. Types: _call_rows.pyi."""

from hologram._calls import tensor_functions as _functions

globals().update(_functions)
__all__ = list(_functions)
