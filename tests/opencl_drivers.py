# SPDX-License-Identifier: MIT
"""The drivers of OpenCL that tests run on: the machine's own, and oclgrind where it is installed.

oclgrind interprets kernels and reports races, bad addresses and bad calls. A program is ready in a
few milliseconds, so it is for many small ones; PoCL, which compiles, is for size.
"""

from __future__ import annotations

import shutil
from pathlib import Path

MACHINE, OCLGRIND = "the machine's driver", "oclgrind"
DRIVERS = [MACHINE, OCLGRIND]


def oclgrind_library() -> Path | None:
    """Return oclgrind's runtime, which is found by its path alone."""
    program = shutil.which("oclgrind")
    prefixes = [Path("/usr"), Path("/usr/local")]
    if program:
        prefixes.insert(0, Path(program).resolve().parents[1])
    places = [p / "lib" / "oclgrind" / "liboclgrind-rt.so" for p in prefixes]
    return next((place for place in places if place.exists()), None)


def why_missing(driver: str) -> str:
    """Say why tests cannot run on a driver; empty where they can, as far as files tell."""
    if driver == OCLGRIND and oclgrind_library() is None:
        return "oclgrind is not installed (Debian: apt-get install oclgrind)"
    return ""


def environment(driver: str, log: Path | str) -> dict[str, str]:
    """Return what a process needs to run on a driver; oclgrind puts what it finds into `log`."""
    chosen = {"HOLOGRAM_DEVICES": "cpu,opencl"}
    if driver == OCLGRIND:
        chosen |= {
            "HOLOGRAM_OPENCL_LIBRARY": str(oclgrind_library()),
            # Its interpreter does not know all that optimised programs are made of (llvm.abs).
            "OCLGRIND_BUILD_OPTIONS": "-cl-opt-disable",
            "OCLGRIND_CHECK_API": "1",
            "OCLGRIND_DATA_RACES": "1",
            "OCLGRIND_LOG": str(log),
            "OCLGRIND_NUM_THREADS": "1",
        }
    return chosen


def complaints(log: Path | str) -> str:
    """Return what oclgrind has reported."""
    path = Path(log)
    return path.read_text(errors="replace").strip() if path.exists() else ""
