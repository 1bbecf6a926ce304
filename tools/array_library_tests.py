# SPDX-License-Identifier: MIT
"""Runs SciPy's and scikit-learn's own tests of the array API with hologram's arrays.

Both run such tests for every library that they know; here hologram is one of them. They have to be
installed with their tests, as wheels are. The exit status is 1 if a test fails.

    array_library_tests.py                       all modules
    array_library_tests.py scipy.signal          these
    array_library_tests.py sklearn.decomposition
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from steps import say

SCIPY = [
    f"scipy.{name}"
    for name in (
        "_lib cluster constants differentiate fft integrate interpolate linalg ndimage optimize "
        "signal spatial special stats"
    ).split()
]
SECONDS = 1800

# SciPy's list of libraries is in its conftest.py, scikit-learn's in a function.
_PLUGIN = r"""
import hologram  # before the folders that pytest puts first
import importlib.util
import sys
import types


def add_to_scipy():
    path = importlib.util.find_spec("scipy").origin.replace("__init__", "conftest")
    with open(path) as file:
        text = file.read()
    known, listed = "xp_known_backends = {", "xp_available_backends = [\n"
    assert known in text and listed in text, "SciPy's conftest.py has another list of libraries"
    text = text.replace(known, known + "'hologram', ", 1)
    text = text.replace(listed, listed + "    pytest.param(__import__('hologram'), id='hologram',"
                        " marks=pytest.mark.array_api_backends),\n", 1)
    module = types.ModuleType("scipy.conftest")
    module.__file__, module.__package__ = path, "scipy"
    module.__spec__ = importlib.util.spec_from_file_location("scipy.conftest", path)
    sys.modules["scipy.conftest"] = module
    exec(compile(text, path, "exec"), module.__dict__)


def add_to_sklearn():
    from sklearn.utils import _array_api

    def yield_namespaces(include_numpy_namespaces=True):
        yield "hologram"

    _array_api.yield_namespaces = yield_namespaces
    place = _array_api.NamespaceAndDevice
    _array_api.yield_mixed_namespace_input_permutations = lambda: iter([
        (place("hologram", None), place("numpy", None), "hologram to numpy"),
        (place("numpy", None), place("hologram", None), "numpy to hologram"),
    ])


if "MODULE_OF_SCIPY":
    add_to_scipy()
else:
    add_to_sklearn()
"""


def sklearn_modules() -> list[str]:
    """Return the test modules of scikit-learn that ask for namespaces."""
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        return []
    root = Path(spec.origin).parent
    return sorted(
        ".".join(path.relative_to(root.parent).with_suffix("").parts)
        for path in root.rglob("test_*.py")
        if "yield_namespace" in path.read_text(encoding="utf8")
    )


def run(module: str) -> tuple[str, bool]:
    """Run the tests of a module; return pytest's last line and whether all passed."""
    of_scipy = module.startswith("scipy")
    with tempfile.TemporaryDirectory() as folder:
        plugin = _PLUGIN.replace('"MODULE_OF_SCIPY"', repr(of_scipy))
        (Path(folder) / "hologram_backend.py").write_text(plugin, encoding="utf8")
        chosen = (
            ["-m", "array_api_backends and not slow and not xslow"]
            if of_scipy
            else ["-k", "(hologram or array_api) and not torch"]
        )
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p",
             "hologram_backend", "--pyargs", module, "-W", "ignore", "--tb=line", *chosen],
            env={**os.environ, "SCIPY_ARRAY_API": '["hologram"]' if of_scipy else "1",
                 "PYTHONPATH": os.pathsep.join([folder, *filter(None, sys.path[1:])])},
            cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
    lines = done.stdout.strip().splitlines() or done.stderr.strip().splitlines() or ["no output"]
    for line in lines:
        if re.match(r"(FAILED|ERROR) ", line):
            say(f"  {line[:150]}")
    return lines[-1], done.returncode in (0, 5)


def main() -> int:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("modules", nargs="*", help="by default all")
    modules = parser.parse_args().modules or [*SCIPY, *sklearn_modules()]
    passed = True
    for module in modules:
        last, good = run(module)
        say(f"{module}: {last}")
        passed = passed and good
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
