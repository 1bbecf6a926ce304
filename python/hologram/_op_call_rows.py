# SPDX-License-Identifier: MIT
"""The calls of the catalogue on an executor's buffers; see _calls.py. Types: _op_call_rows.pyi."""

from hologram._calls import buffer_functions as _functions

globals().update(_functions)
__all__ = list(_functions)
