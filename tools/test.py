# SPDX-License-Identifier: MIT
"""Runs the C++ tests with ctest, then the Python tests with pytest, whose summary is the last line.

Both always run; the exit status is 0 only if both pass. `--all` adds the tests marked heavy; other
arguments go to pytest.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from steps import ROOT, StepError, fail, say, step

NO_TESTS_COLLECTED = 5


def nvrtc_library() -> Path | None:
    """Return the compiler of CUDA that PyTorch's wheel has brought."""
    found = importlib.util.find_spec("nvidia")
    places = [Path(p) for p in (found.submodule_search_locations or [])] if found else []
    libraries = [lib for place in places for lib in place.glob("*/lib/libnvrtc.so.*")]
    return max(libraries, default=None)


def cpp_tests(everything: bool) -> int:
    """Run the C++ tests of the build tree; return an exit status."""
    tree = ROOT / "build" / "hologram"
    if not list(tree.rglob("*_test")):
        say("  note   no C++ tests were built (GoogleTest is missing, or there are none)")
        return 0
    ctest = str(ROOT / ".venv" / "bin" / "ctest")
    command = [ctest, "--test-dir", str(tree), "--output-on-failure", "--timeout", "600"]
    if not everything:
        command += ["-LE", "heavy"]
    nvrtc = nvrtc_library()
    if nvrtc is not None:
        os.environ.setdefault("HOLOGRAM_NVRTC_LIBRARY", str(nvrtc))
    try:
        output = step("C++ tests", command, log_name="ctest")
    except StepError as error:
        return fail(error)
    summary = [line for line in output.splitlines() if "tests passed" in line]
    say(f"         {summary[-1] if summary else 'ctest printed no summary'}")
    return 0 if summary else 1


def python_tests(everything: bool, arguments: list[str]) -> int:
    """Run pytest; return an exit status."""
    command = [sys.executable, "-m", "pytest"]
    if not everything:
        command += ["-m", "not heavy"]
    code = subprocess.run(command + arguments, cwd=ROOT, stdin=subprocess.DEVNULL).returncode
    return 0 if code == NO_TESTS_COLLECTED and not arguments else code


def main() -> int:
    """Run both."""
    arguments = sys.argv[1:]
    everything = "--all" in arguments
    arguments = [a for a in arguments if a != "--all"]
    cpp = cpp_tests(everything)
    python = python_tests(everything, arguments)
    if cpp and not python:
        print("The C++ tests failed, see above.", file=sys.stderr)
    return cpp or python


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
