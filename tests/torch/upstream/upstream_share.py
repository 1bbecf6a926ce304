# SPDX-License-Identifier: MIT
"""Which tests a sample has: the same on each device, on each machine, in each run."""

from __future__ import annotations

import re
import zlib

_DEVICE = re.compile("privateuse1|hologram|cpu", re.IGNORECASE)


def is_in_share(name: str, percent: float) -> bool:
    """Whether the test `Class::test` is among `percent` of all, which a larger share has, too."""
    return zlib.crc32(_DEVICE.sub("", name).encode()) % 10_000 < percent * 100
