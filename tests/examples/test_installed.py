# SPDX-License-Identifier: MIT
"""The C and C++ examples build against the installed package, and do what they say."""

from __future__ import annotations

import os
import re
import shutil
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


def build(example: str, tree: Path) -> Path:
    """Return the folder where an example was built with nothing but what is installed."""
    cmake = str(TOOLS / "cmake") if (TOOLS / "cmake").exists() else "cmake"
    generator = ["-G", "Ninja"] if (TOOLS / "ninja").exists() else []
    os.environ["PATH"] = f"{TOOLS}:{os.environ['PATH']}"
    source = str(ROOT / "examples" / example)
    package = f"-Dhologram_DIR={hologram.get_cmake_dir()}"
    run(cmake, "-S", source, "-B", str(tree), *generator, package, "-DCMAKE_BUILD_TYPE=Release")
    run(cmake, "--build", str(tree))
    return tree


def test_a_circuit_by_hand(tmp_path: Path) -> None:
    output = run(str(build("cpp", tmp_path) / "circuit"))
    assert "z[1] = 3.024413, by hand 3.024413" in output
    assert "5 ops became 1 kernel, 5200000 bytes became 1200000" in output
    assert "a mistake is an exception: Circuit::run: the circuit has 2 inputs" in output


def check_vector_add(output: str) -> None:
    assert "2 (x + y)[3] = 7\n" in output
    assert "mean squared distance from x = 3.33338e+09\n" in output
    assert re.search(
        r"refused: vector_add_f32: b: handle 0x\w+ was a buffer and has been f", output
    )
    assert "refused: vector_add_f32: a: n is 100001 but the buffer has 100000 elements" in output


def test_vector_add_in_c(tmp_path: Path) -> None:
    check_vector_add(run(str(build("c", tmp_path) / "vector_add")))


def test_vector_add_by_pkg_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler, config = shutil.which("cc"), shutil.which("pkg-config")
    if compiler is None or config is None:
        pytest.skip("there is no cc or no pkg-config")
    folder = Path(hologram.get_cmake_dir()).parents[1] / "pkgconfig"
    monkeypatch.setenv("PKG_CONFIG_PATH", str(folder))
    flags = run(config, "--cflags", "--libs", "hologram").split()
    program = tmp_path / "vector_add"
    source = ROOT / "examples" / "c" / "vector_add.c"
    run(compiler, "-std=c99", "-Wall", "-Werror", str(source), *flags, "-o", str(program))
    check_vector_add(run(str(program)))


def test_handles_in_python() -> None:
    output = run(sys.executable, str(ROOT / "examples" / "handles.py"))
    assert "2 (x + y) as NumPy has it: True" in output
    mean, total, count = map(float, re.search(r"as \[(.*), (.*), (.*)\]", output).groups())
    assert count == 4096
    assert mean == pytest.approx(4097 * 8193 / 6, rel=1e-6)  # of (k + 1)^2
    assert total == pytest.approx(count * mean, rel=1e-6)
    assert "a matrix of 2 x 3 times a vector of 3: [-2.0, -2.0]" in output
    assert "NumPy sees what is written: True" in output
    assert "refused: vector_add_f32: a: n is 4097 but the buffer has 4096 elements" in output
