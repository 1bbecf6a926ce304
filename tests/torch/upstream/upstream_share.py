# SPDX-License-Identifier: MIT
"""Which tests a run has: a sample that is the same on each device, or those that are named."""

from __future__ import annotations

import re
import zlib

_DEVICE = re.compile("privateuse1|hologram|cpu", re.IGNORECASE)


def common_name(name: str) -> str:
    """Return a test's name without every name of a device in it: the same for twins."""
    return _DEVICE.sub("", name)


def is_in_share(name: str, percent: float) -> bool:
    """Whether the test `Class::test` is among `percent` of all, which a larger share has, too."""
    return zlib.crc32(common_name(name).encode()) % 10_000 < percent * 100
