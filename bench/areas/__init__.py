# SPDX-License-Identifier: MIT
"""The areas; importing this package registers them in the order of the report."""

from bench.areas import copies, fallback, load, memory, overhead, single_ops, startup, training
from bench.core import AREAS

ORDER = (overhead, single_ops, training, copies, load, memory, fallback, startup)

for _module in ORDER:
    AREAS[_module.AREA] = AREAS.pop(_module.AREA)
