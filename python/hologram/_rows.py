# SPDX-License-Identifier: MIT
"""The functions of tensors that both op tables make; the build writes _rows.pyi."""

from hologram._hologram import reductions as _reductions
from hologram._hologram import rows as _rows

_functions = {**vars(_rows), **vars(_reductions)}
globals().update({name: value for name, value in _functions.items() if name[0] != "_"})
__all__ = [name for name in _functions if name[0] != "_"]
