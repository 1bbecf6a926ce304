# SPDX-License-Identifier: MIT
"""Brings a checkout to where everything runs: system packages, .venv, both distributions installed.

Each part is skipped when nothing it depends on has changed, so that a second call takes a fraction
of a second. `make` calls this.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from steps import ROOT, StepError, fail, say, step

VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMPS = VENV / ".stamps"
BUILD = ROOT / "build"
WHEELS = ROOT / "outputs" / "wheels"

# The PyTorch that `make` installs; any of 2.11 to 2.15 builds: make TORCH='torch==2.11.*'
TORCH = os.environ.get("TORCH") or "torch==2.15.*"

# A folder with include/hwy and include/xbyak, for a machine that can install nothing.
DEPENDENCY_PREFIX = os.environ.get("HOLOGRAM_DEPENDENCY_PREFIX", "")

# The Debian package of each header that is included.
HEADER_PACKAGES = {"hwy/highway.h": "libhwy-dev", "xbyak/xbyak.h": "libxbyak-dev"}
TEST_HEADER_PACKAGES = {"gtest/gtest.h": "libgtest-dev"}
# Devices with memory of their own, for the tests: a driver where the machine has none of OpenCL,
# and one that finds races, which the tests load by its path.
OPENCL_PACKAGES = ["pocl-opencl-icd", "ocl-icd-libopencl1"]
OCLGRIND_PACKAGE = "oclgrind"

# What both distributions are built from.
SHARED_SOURCES = (
    "CMakeLists.txt",
    "cmake",
    "include",
    "src/ops/calls.def",
    "tools/call_structs",
    "tools/setup.py",
)

# Not sources: what tools/check.py puts beside them for mypy.
GENERATED_STUBS = {
    "_rows.pyi",
    "_op_rows.pyi",
    "_call_rows.pyi",
    "_op_call_rows.pyi",
    "_ffi.pyi",
}

_SKIPPED_PARTS = {"__pycache__", "dist", *GENERATED_STUBS}


def digest(paths: Iterable[str], *extra: str) -> str:
    """Hash the names and contents of the files under `paths`, and the strings `extra`."""
    total = hashlib.sha256()
    for text in extra:
        total.update(text.encode() + b"\0")
    for name in paths:
        top = ROOT / name
        files = sorted(top.rglob("*")) if top.is_dir() else [top]
        for file in files:
            if file.is_file() and not _SKIPPED_PARTS.intersection(file.parts):
                total.update(str(file.relative_to(ROOT)).encode() + b"\0")
                total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


def is_fresh(name: str, key: str) -> bool:
    """Whether part `name` was last finished with the same `key`."""
    stamp = STAMPS / name
    return stamp.is_file() and stamp.read_text() == key


def set_fresh(name: str, key: str) -> None:
    """Note that part `name` is finished for `key`."""
    STAMPS.mkdir(parents=True, exist_ok=True)
    (STAMPS / name).write_text(key)


def compiler() -> str:
    """Return the C++ compiler that CMake will take."""
    return os.environ.get("CXX") or "c++"


def has_header(header: str) -> bool:
    """Whether C++ can include `header`, from the system or from HOLOGRAM_DEPENDENCY_PREFIX."""
    includes = [f"-I{DEPENDENCY_PREFIX}/include"] if DEPENDENCY_PREFIX else []
    probe = subprocess.run(
        [compiler(), "-std=c++20", *includes, "-E", "-x", "c++", "-", "-o", os.devnull],
        input=f"#include <{header}>\n",
        text=True,
        capture_output=True,
    )
    return probe.returncode == 0


def has_opencl() -> bool:
    """Whether OpenCL's loader is installed, and a driver for it."""
    try:
        ctypes.CDLL("libOpenCL.so.1")
    except OSError:
        return False
    return any(Path("/etc/OpenCL/vendors").glob("*.icd")) or "OCL_ICD_VENDORS" in os.environ


def has_python_headers(python: str) -> bool:
    """Whether extension modules can be compiled for `python`."""
    code = "import os, sysconfig; print(os.path.join(sysconfig.get_path('include'), 'Python.h'))"
    path = subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip()
    return os.path.isfile(path)


def missing_packages(tests: bool) -> tuple[list[str], list[str]]:
    """Return the Debian packages that must be installed, and those that the tests want."""
    needed: list[str] = []
    wanted: list[str] = []
    if shutil.which(compiler()) is None:
        needed.append("g++")
    else:
        needed += [pkg for header, pkg in HEADER_PACKAGES.items() if not has_header(header)]
    if tests:
        wanted += [pkg for header, pkg in TEST_HEADER_PACKAGES.items() if not has_header(header)]
        wanted += [] if has_opencl() else OPENCL_PACKAGES
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    system_python = sys.base_prefix == "/usr"
    probe = subprocess.run([sys.executable, "-c", "import ensurepip, venv"], capture_output=True)
    if not PYTHON.exists() and probe.returncode != 0:
        needed.append(f"python{version}-venv" if system_python else "python3-venv")
    if not has_python_headers(sys.executable):
        needed.append(f"python{version}-dev" if system_python else "python3-dev")
    return needed, wanted


def apt_prefix() -> list[str] | None:
    """Return the words before `apt-get`, or None where this user cannot install packages."""
    if shutil.which("apt-get") is None:
        return None
    quiet = ["env", "DEBIAN_FRONTEND=noninteractive"]
    if os.geteuid() == 0:
        return quiet
    if shutil.which("sudo") is None:
        return None
    if subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode == 0:
        return ["sudo", "-n", *quiet]
    # A person at a terminal can type the password once, before output goes to a log.
    if sys.stdin.isatty() and subprocess.run(["sudo", "-v"]).returncode == 0:
        return ["sudo", *quiet]
    return None


def apt_install(packages: list[str], prefix: list[str]) -> None:
    """Install Debian packages; `prefix` is what `apt_prefix` returned."""
    apt = [*prefix, "apt-get", "-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3"]
    step("apt-get update", [*apt, "update"], log_name="apt-update")
    install = [*apt, "install", "-y", "--no-install-recommends", *packages]
    step(f"apt-get install {' '.join(packages)}", install, log_name="apt-install")


def install_check_tools() -> None:
    """Install clang-tidy, which needs its system's clang headers; the others come from pip."""
    if shutil.which("clang-tidy") is None:
        prefix = apt_prefix()
        if prefix is None:
            raise StepError("clang-tidy is missing. As root: apt-get install -y clang-tidy")
        apt_install(["clang-tidy"], prefix)
    install_python_packages("requirements-check.txt")


def install_oclgrind() -> None:
    """Install oclgrind; a system that has no such package does without the tests that need it."""
    if shutil.which("oclgrind") is not None:
        return
    prefix = apt_prefix()
    try:
        if prefix is not None:
            apt_install([OCLGRIND_PACKAGE], prefix)
            return
        why = f"is missing (apt-get install -y {OCLGRIND_PACKAGE})"
    except StepError:
        why = "cannot be installed here"
    say(f"  note   {OCLGRIND_PACKAGE} {why}, so tests that need it are left out")


def install_system_packages(tests: bool) -> None:
    """Install with apt what the build, and the `tests` if asked for, need and the system lacks."""
    name = "system-tests" if tests else "system"
    key = digest([], "system-4", sys.executable, compiler(), DEPENDENCY_PREFIX)
    if is_fresh(name, key):
        return
    needed, wanted = missing_packages(tests)
    if needed or wanted:
        packages = needed + wanted
        prefix = apt_prefix()
        command = f"apt-get install -y {' '.join(packages)}"
        if prefix is None:
            if needed:
                raise StepError(
                    f"These system packages are missing: {' '.join(packages)}\n"
                    "They cannot be installed from here (no apt-get, or not root). As root:\n"
                    f"    {command}\n"
                    "Elsewhere, install the same libraries, or set HOLOGRAM_DEPENDENCY_PREFIX\n"
                    "to a folder whose include/ holds them."
                )
            say(
                f"  note   {' '.join(wanted)} is missing, so tests that need it are left out"
                f" ({command})"
            )
        else:
            apt_install(packages, prefix)
    if tests:
        install_oclgrind()
    if PYTHON.exists():
        set_fresh(name, key)


def make_venv() -> None:
    """Create .venv, or create it anew when the Python it was made with is gone."""
    if (
        PYTHON.exists()
        and subprocess.run([str(PYTHON), "-c", "import pip"], capture_output=True).returncode == 0
    ):
        ours = f"{sys.version_info.major}.{sys.version_info.minor}"
        theirs = re.search(
            r"^version = (\d+\.\d+)", (VENV / "pyvenv.cfg").read_text(), re.MULTILINE
        )
        if os.environ.get("PYTHON") and theirs and theirs.group(1) != ours:
            raise StepError(
                f".venv was made with Python {theirs.group(1)}, and PYTHON names {ours}:"
                " `make distclean` first"
            )
        return
    if VENV.exists():
        say("  note   .venv does not work any more; making it anew")
    step("make .venv", [sys.executable, "-m", "venv", "--clear", str(VENV)], log_name="venv")


def pip(title: str, log_name: str, *arguments: str, env: dict[str, str] | None = None) -> None:
    """Run pip of .venv as one step."""
    command = [str(PYTHON), "-m", "pip", "--no-input", "--disable-pip-version-check", *arguments]
    step(title, command, log_name=log_name, env=env)


def requirement_files(name: str) -> list[str]:
    """Return the file of requirements `name` and those that it includes."""
    included = re.findall(r"^-r (\S+)", (ROOT / "tools" / name).read_text(), re.MULTILINE)
    return [f"tools/{name}", *(path for other in included for path in requirement_files(other))]


def install_python_packages(requirements: str, *others: str) -> None:
    """Install what `requirements` names and `others`, all at once so that pip sees the whole."""
    key = digest(requirement_files(requirements), *others)
    name = f"pip-{requirements}"
    if is_fresh(name, key):
        return
    title = f"pip install {', '.join([requirements, *others])}"
    pip(title, name, "install", "-r", f"tools/{requirements}", *others)
    set_fresh(name, key)


def parallel_jobs() -> int:
    """Return how many compilers may run at once: one a core, and 1.5 GB of memory for each."""
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(cores, int(memory / 1.5e9)))


def build_environment() -> dict[str, str]:
    """Return the environment of the builds: .venv's tools, every core, a compiler cache."""
    env = dict(os.environ)
    env["PATH"] = f"{VENV / 'bin'}{os.pathsep}{env.get('PATH', '')}"
    env.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", str(parallel_jobs()))
    if shutil.which("ccache"):
        env.setdefault("CMAKE_C_COMPILER_LAUNCHER", "ccache")
        env.setdefault("CMAKE_CXX_COMPILER_LAUNCHER", "ccache")
        # Another checkout of the same sources shares what was compiled.
        env.setdefault("CCACHE_BASEDIR", str(ROOT))
        env.setdefault("CCACHE_NOHASHDIR", "1")
        # Without these the cache takes nothing that was compiled with a precompiled header.
        env.setdefault(
            "CCACHE_SLOPPINESS",
            "pch_defines,time_macros,include_file_mtime,include_file_ctime",
        )
    # An earlier hologram_torch must not be loaded while a new one is built.
    env["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    return env


def torch_version() -> str:
    """Return the version of the PyTorch in .venv, without importing it."""
    code = "from importlib.metadata import version; print(version('torch'))"
    return subprocess.run([str(PYTHON), "-c", code], capture_output=True, text=True).stdout.strip()


@dataclass
class Distribution:
    """A package that is built from a folder of the checkout."""

    name: str
    folder: str
    defines: dict[str, str]  # what CMake is told
    key: str  # of all that it is built from

    def pip_arguments(self) -> list[str]:
        """Return what pip is told to build the package in its build tree, where objects stay.

        Without isolation pip neither fetches a second PyTorch nor throws the object files away.
        """
        settings = [f"--config-settings=build-dir={BUILD / self.name}"]
        settings += [f"--config-settings=cmake.define.{k}={v}" for k, v in self.defines.items()]
        return ["-v", "--no-build-isolation", "--no-deps", *settings, f"./{self.folder}"]


def toolchain() -> str:
    """Return what the objects depend on beside their sources."""
    flags = [os.environ.get(name, "") for name in ("CXXFLAGS", "LDFLAGS", "CMAKE_ARGS")]
    return json.dumps([sys.version, compiler(), *flags])


def library() -> Distribution:
    """Return `hologram`. The C++ tests are part of its build tree, but not of the package."""
    defines = {"HOLOGRAM_BUILD_TESTS": "ON" if has_header("gtest/gtest.h") else "OFF"}
    if DEPENDENCY_PREFIX:
        defines["HOLOGRAM_DEPENDENCY_PREFIX"] = DEPENDENCY_PREFIX
    sources = [*SHARED_SOURCES, "src", "python", "tools/stubs.py"]
    key = digest(sources, toolchain(), json.dumps(defines))
    return Distribution("hologram", "python", defines, key)


def extension() -> Distribution:
    """Return `hologram-torch`, which sees of the library its headers and its CMake package."""
    key = digest([*SHARED_SOURCES, "torch"], toolchain(), torch_version())
    return Distribution("hologram-torch", "torch", {}, key)


def install_distribution(it: Distribution) -> None:
    """Build and install `it` unless it is up to date."""
    if is_fresh(it.name, it.key):
        return
    # Not editable: an editable install would run CMake at every import.
    pip(
        f"build and install {it.name}",
        f"build-{it.name}",
        "install",
        "--force-reinstall",
        *it.pip_arguments(),
        env=build_environment(),
    )
    set_fresh(it.name, it.key)


def install_packages_and_distributions(requirements: list[str]) -> None:
    """Install the Python packages of `requirements`, PyTorch, and both distributions.

    The library needs no PyTorch, so that it is built while PyTorch, which is large, is fetched.
    """

    def install_packages() -> None:
        for name in requirements:
            install_python_packages(name, TORCH)

    install_python_packages("requirements-build.txt")
    with ThreadPoolExecutor(1) as pool:
        packages = pool.submit(install_packages)
        install_distribution(library())
        packages.result()
    install_distribution(extension())


def make_wheels() -> None:
    """Put both wheels into outputs/wheels; what is installed already is not compiled again."""
    for it in (library(), extension()):
        old = list(WHEELS.glob(f"{it.name.replace('-', '_')}-*.whl"))
        if old and is_fresh(f"wheel-{it.name}", it.key):
            continue
        for wheel in old:
            wheel.unlink()
        pip(
            f"make the wheel {it.name}",
            f"wheel-{it.name}",
            "wheel",
            f"--wheel-dir={WHEELS}",
            *it.pip_arguments(),
            env=build_environment(),
        )
        set_fresh(f"wheel-{it.name}", it.key)


def build_cpp_tests() -> None:
    """Build the C++ tests in the library's own build tree, so that nothing is compiled twice."""
    key = digest([*SHARED_SOURCES, "src", "python", "tests", "tools/accuracy"])
    if is_fresh("cpp-tests", key):
        return
    command = [str(VENV / "bin" / "cmake"), "--build", str(BUILD / "hologram")]
    step("build the C++ tests", command, log_name="build-cpp-tests", env=build_environment())
    set_fresh("cpp-tests", key)


def main() -> int:
    """Run the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--tests", action="store_true", help="also install what tests need, and build those of C++"
    )
    parser.add_argument(
        "--bench", action="store_true", help="also install what measurements compare with"
    )
    parser.add_argument(
        "--all", action="store_true", help="also install what only heavy tests need"
    )
    parser.add_argument(
        "--check", action="store_true", help="also install the tools of `make check`"
    )
    parser.add_argument("--docs", action="store_true", help="also install what `make docs` needs")
    parser.add_argument("--wheels", action="store_true", help="also make both wheels")
    options = parser.parse_args()
    try:
        install_system_packages(options.tests)
        make_venv()
        requirements = {
            "requirements.txt": True,
            "requirements-bench.txt": options.bench,
            "requirements-tests.txt": options.tests,
            "requirements-all.txt": options.all,
            "requirements-docs.txt": options.docs,
        }
        if options.check:
            install_check_tools()
        install_packages_and_distributions([name for name, on in requirements.items() if on])
        if options.tests:
            build_cpp_tests()
        if options.wheels:
            make_wheels()
    except StepError as error:
        return fail(error)
    except KeyboardInterrupt:
        say("interrupted; call make again to go on from here")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
