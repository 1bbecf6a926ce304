# SPDX-License-Identifier: MIT
"""The package `hologram` without PyTorch: versions, backends, CPU facts, what lies in the wheel."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hologram

ROOT = Path(__file__).resolve().parents[2]


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120
    )


def test_one_version_everywhere() -> None:
    cmake = re.search(
        r"project\(\s*hologram\s+VERSION\s+([0-9.]+)", (ROOT / "CMakeLists.txt").read_text()
    )
    assert cmake is not None
    assert hologram.__version__ == cmake.group(1)
    assert importlib.metadata.version("hologram") == cmake.group(1)
    assert importlib.metadata.version("hologram-torch") == cmake.group(1)


def test_needs_neither_torch_nor_numpy() -> None:
    result = python(
        "import sys, hologram; print(hologram.cpu_info());"
        "sys.exit(any(name.split('.')[0] in ('torch', 'numpy') for name in sys.modules))"
    )
    assert result.returncode == 0, result.stderr


def test_backends() -> None:
    backend = hologram.backend
    names = backend.list_available_backends()
    assert names[0] == "cpu"
    assert backend.is_cuda_available() == ("cuda" in names)
    assert backend.is_metal_available() == ("metal" in names)
    assert backend.get_default_backend().value in names
    assert backend.validate_backend("auto") is backend.get_default_backend()
    assert backend.validate_backend("cpu") is backend.BackendType.CPU
    assert backend.validate_backend(backend.BackendType.CPU) is backend.BackendType.CPU


@pytest.mark.parametrize("name", ["metal", "tpu", "", "CPU", "cpu "])
def test_a_backend_that_is_not_here_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"available: cpu"):
        hologram.backend.validate_backend(name)


@pytest.mark.parametrize("name", [None, 3, b"cpu"])
def test_a_backend_is_named_by_text(name: object) -> None:
    with pytest.raises(TypeError, match=type(name).__name__):
        hologram.backend.validate_backend(name)  # type: ignore[arg-type]


def test_every_instruction_set_can_be_forced() -> None:
    info = hologram.cpu_info()
    assert info["isa"] in info["available_isas"]
    for isa in info["available_isas"]:
        result = python(
            "import hologram; print(hologram.cpu_info()['isa'])", HOLOGRAM_FORCE_ISA=isa
        )
        assert result.stdout.strip() == isa, result.stderr


def test_an_unknown_instruction_set_is_a_plain_error() -> None:
    code = "import hologram\ntry: hologram.cpu_info()\nexcept ValueError as error: print(error)"
    result = python(code, HOLOGRAM_FORCE_ISA="avx9000")
    assert result.returncode == 0, result.stderr
    assert "avx9000" in result.stdout
    assert "baseline" in result.stdout


@pytest.mark.parametrize("threads", ["1", "2", "3"])
def test_threads_follow_omp_num_threads(threads: str) -> None:
    result = python(
        "import hologram; print(hologram.cpu_info()['threads'])", OMP_NUM_THREADS=threads
    )
    assert result.stdout.strip() == threads, result.stderr


def test_the_package_is_whole_and_holds_nothing_foreign() -> None:
    package = Path(hologram.__file__).parent
    assert (package / "py.typed").is_file()
    assert (package / "_hologram.pyi").is_file()
    assert (Path(hologram.get_include()) / "hologram" / "version.h").is_file()
    assert (Path(hologram.get_cmake_dir()) / "hologramConfig.cmake").is_file()
    libraries = sorted(
        p.name for p in package.rglob("*.so*") if not p.name.startswith(("_hologram.", "_ffi."))
    )
    assert libraries == ["libhologram.so.0"]


def test_device_and_sdk_share_one_library() -> None:
    result = python(
        "import hologram, hologram_torch, torch; torch.ones(3, device='hologram') + 1\n"
        "print(*{line.split()[-1] for line in open('/proc/self/maps') if 'libhologram' in line})"
    )
    assert result.returncode == 0, result.stderr
    paths = result.stdout.split()
    assert len(paths) == 1
    assert Path(paths[0]).parent == Path(hologram.__file__).parent / "lib"


def test_a_cpp_program_finds_the_library(tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.24)\n"
        "project(consumer CXX)\n"
        "find_package(hologram 0.1 REQUIRED CONFIG)\n"
        "add_executable(consumer main.cc)\n"
        "target_link_libraries(consumer PRIVATE hologram::hologram)\n"
    )
    (tmp_path / "main.cc").write_text(
        "#include <cstdio>\n"
        '#include "hologram/cpu_info.h"\n'
        '#include "hologram/version.h"\n'
        "int main() {\n"
        '  std::printf("%s %d\\n", hologram::version(), int(hologram::current_isa()));\n'
        "}\n"
    )
    cmake = Path(sys.executable).parent / "cmake"
    tool = str(cmake) if cmake.exists() else "cmake"
    build = tmp_path / "build"
    configure = [
        tool,
        "-S",
        str(tmp_path),
        "-B",
        str(build),
        f"-Dhologram_DIR={hologram.get_cmake_dir()}",
    ]
    for command in (configure, [tool, "--build", str(build)]):
        result = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert result.returncode == 0, result.stdout + result.stderr
    output = subprocess.run(
        [str(build / "consumer")], capture_output=True, text=True, timeout=60
    ).stdout
    assert output.split()[0] == hologram.__version__


def test_the_extension_shows_nothing_but_its_init_function() -> None:
    found = importlib.metadata.distribution("hologram-torch").locate_file("hologram_torch")
    (extension,) = Path(str(found)).glob("_C.*.so")
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", str(extension)], capture_output=True, text=True
    )
    if listing.returncode != 0:
        pytest.skip("nm is not installed")
    assert [line.split()[-1] for line in listing.stdout.splitlines()] == ["PyInit__C"]
