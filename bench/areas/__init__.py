# SPDX-License-Identifier: MIT
"""The areas; importing this package registers them in the order of the report."""

from bench.areas import (
    architectures,
    borders,
    chains,
    compiled,
    copies,
    custom_operators,
    fallback,
    functional,
    graphs,
    inference,
    load,
    memory,
    overhead,
    planning,
    reduction,
    runtimes,
    sdk,
    single_ops,
    sizes,
    small_models,
    startup,
    training,
)
from bench.core import AREAS

ORDER = (
    overhead,
    sdk,
    borders,
    planning,
    single_ops,
    functional,
    custom_operators,
    chains,
    training,
    graphs,
    inference,
    sizes,
    small_models,
    runtimes,
    compiled,
    architectures,
    reduction,
    memory,
    load,
    copies,
    fallback,
    startup,
)

for _module in ORDER:
    AREAS[_module.AREA] = AREAS.pop(_module.AREA)
