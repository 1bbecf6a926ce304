# SPDX-License-Identifier: MIT
"""The drivers that tests of a second device run on, as far as the machine has them.

OpenCL: the machine's own, and oclgrind, which interprets kernels and reports races, bad addresses
and bad calls. A program is ready there in a few milliseconds, so it is for many small ones; PoCL,
which compiles, is for size. CUDA: the machine's GPU, and the fake (tests/fake_cuda), which runs on
oclgrind in turn.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

MACHINE, OCLGRIND = "the machine's driver", "oclgrind"
CUDA, FAKE_CUDA = "cuda", "cuda over the fake"
DRIVERS = [MACHINE, OCLGRIND, CUDA, FAKE_CUDA]

# Where the build of the C++ tests leaves them.
FAKES = Path(__file__).resolve().parents[1] / "build" / "hologram" / "core" / "tests"


def backend(driver: str) -> str:
    """Return the name of the backend that a driver is of."""
    return "cuda" if driver in (CUDA, FAKE_CUDA) else "opencl"


def chosen_backend() -> str:
    """Return what HOLOGRAM_DEVICES names beside the cpu; empty where it names nothing."""
    names = os.environ.get("HOLOGRAM_DEVICES", "").split(",")
    return next((name for name in names if name in ("cuda", "opencl")), "")


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
    if driver == CUDA and not Path("/dev/nvidiactl").exists():
        return "no NVIDIA GPU was found"
    if driver == FAKE_CUDA and not (FAKES / "libcuda_fake.so").exists():
        return "the fake was not built (make setup-tests builds it where GoogleTest is)"
    return ""


def environment(driver: str, log: Path | str) -> dict[str, str]:
    """Return what a process needs to run on a driver, which puts what it finds into `log`."""
    chosen = {"HOLOGRAM_DEVICES": f"cpu,{backend(driver)}"}
    if driver == FAKE_CUDA:
        chosen |= {
            "HOLOGRAM_CUDA_LIBRARY": str(FAKES / "libcuda_fake.so"),
            "HOLOGRAM_NVRTC_LIBRARY": str(FAKES / "libnvrtc_fake.so"),
            # Small products go there, too.
            "HOLOGRAM_CUBLASLT_LIBRARY": str(FAKES / "libcublaslt_fake.so"),
            "HOLOGRAM_CUBLASLT_MIN_WORK": "1",
            "FAKE_CUDA_LOG": f"{log}.cuda",
        }
    if driver == OCLGRIND or (driver == FAKE_CUDA and oclgrind_library()):
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
    """Return what oclgrind and the fake have reported."""
    paths = [Path(log), Path(f"{log}.cuda")]
    return "".join(p.read_text(errors="replace").strip() for p in paths if p.exists())
