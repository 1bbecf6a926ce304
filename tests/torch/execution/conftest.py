# SPDX-License-Identifier: MIT
"""What the tests of execution share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import hologram_torch


@pytest.fixture
def deferred() -> Iterator[None]:
    """Defer, whatever the environment says."""
    with hologram_torch.execution("deferred"):
        yield
