# SPDX-License-Identifier: MIT
"""The C++ example builds against the installed package, and does what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import hologram

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(sys.executable).parent


def run(*command: str) -> str:
    """Run a command and return what it prints; its errors are the test's."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder where the example was built with nothing but what is installed."""
    tree = tmp_path_factory.mktemp("cpp")
    cmake = str(TOOLS / "cmake") if (TOOLS / "cmake").exists() else "cmake"
    generator = ["-G", "Ninja"] if (TOOLS / "ninja").exists() else []
    os.environ["PATH"] = f"{TOOLS}:{os.environ['PATH']}"
    source = str(ROOT / "examples" / "cpp")
    package = f"-Dhologram_DIR={hologram.get_cmake_dir()}"
    run(cmake, "-S", source, "-B", str(tree), *generator, package, "-DCMAKE_BUILD_TYPE=Release")
    run(cmake, "--build", str(tree))
    return tree


def test_a_circuit_by_hand(built: Path) -> None:
    output = run(str(built / "circuit"))
    assert "z[1] = 3.024413, by hand 3.024413" in output
    assert "5 ops became 1 kernel, 5200000 bytes became 1200000" in output
    assert "a mistake is an exception: Circuit::run: the circuit has 2 inputs" in output
