# SPDX-License-Identifier: MIT
"""What tests of the SDK share."""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Iterator

import pytest

from hologram._hologram import testing


@pytest.fixture(autouse=True)
def _either_way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run every other test with each op recorded, the rest with small ones at their call.

    HOLOGRAM_IMMEDIATE_BYTES decides for all of them.
    """
    bound = testing.immediate_bytes()
    if "HOLOGRAM_IMMEDIATE_BYTES" not in os.environ and zlib.crc32(request.node.name.encode()) % 2:
        testing.set_immediate_bytes(0)
    yield
    testing.set_immediate_bytes(bound)


@pytest.fixture
def recording(_either_way: None) -> None:
    """For tests of what is recorded: hologram_torch turns that off with PyTorch before 2.13.

    Small ops are recorded as well.
    """
    glue = sys.modules.get("hologram_torch")
    if glue is not None and not glue._C.can_defer:
        pytest.skip("with PyTorch before 2.13 nothing is recorded in this process")
    testing.set_immediate_bytes(0)


@pytest.fixture
def small_at_call(recording: None) -> None:
    """For tests of what is recorded, but for small ops, which run at their call."""
    testing.set_immediate_bytes(4096)
