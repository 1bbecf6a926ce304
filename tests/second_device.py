# SPDX-License-Identifier: MIT
"""What tests on hologram:1 share: a device whose memory the host cannot touch."""

from __future__ import annotations

import os

import opencl_drivers
import pytest
import torch

from hologram_torch import _C

BACKEND = opencl_drivers.chosen_backend()
CHOSEN = bool(BACKEND)  # this is the inner run
HERE = torch.hologram.device_count() > 1
ONE = "hologram:1"
INTERPRETED = "OCLGRIND_LOG" in os.environ  # oclgrind runs the kernels, under a fake of CUDA, too

on_device = pytest.mark.skipif(not (CHOSEN and HERE), reason="runs inside test_on_the_device")


def costly(*values: object) -> object:
    """Return a parameter of tests that take oclgrind ten seconds, and so are heavy there."""
    return pytest.param(*values, marks=[pytest.mark.heavy] if INTERPRETED else [])


def host_kernels() -> int:
    """Return how many kernels the host has run for the device."""
    with torch.hologram.device(1):
        return _C.recorder_stats()["host_kernels"]
