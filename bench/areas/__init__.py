# SPDX-License-Identifier: MIT
"""The areas; importing this package registers them in the order of the report."""

import importlib

_ORDER = (
    "overhead sdk borders planning single_ops functional custom_operators chains slices shapes "
    "matrix_products scientific arrays training graphs inference sizes decoding small_models "
    "runtimes compiled architectures reduction memory load copies fallback startup"
)
for _name in _ORDER.split():
    importlib.import_module(f"bench.areas.{_name}")
