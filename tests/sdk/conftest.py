# SPDX-License-Identifier: MIT
"""What tests of the SDK share."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture
def recording() -> None:
    """For tests of what is recorded: hologram_torch turns that off with PyTorch before 2.13."""
    glue = sys.modules.get("hologram_torch")
    if glue is not None and not glue._C.can_defer:
        pytest.skip("with PyTorch before 2.13 nothing is recorded in this process")
