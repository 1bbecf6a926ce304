# SPDX-License-Identifier: MIT
"""Runs the array API's conformance suite on `hologram` and prints a table by file.

The suite is a checkout of data-apis/array-api-tests with its submodule; it is not fetched here.
tests/sdk/array_api_exceptions.txt lists what fails, each with its reason. The exit status is 1 if
another test fails, or if a listed one passes.

    array_api.py DIR                     the whole suite, 100 examples a test
    array_api.py DIR --examples 20       quicker
    array_api.py DIR --module numpy      another library, to compare; nothing is an exception
    array_api.py DIR -k take             only tests that the expression picks
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from steps import ROOT, StepError, fail, say

FOLDER = ROOT / "build" / "array-api"
EXCEPTIONS = ROOT / "tests" / "sdk" / "array_api_exceptions.txt"
VERSION = "2024.12"
# What the suite imports beside pytest and hypothesis, by the names of module and distribution.
PACKAGES = {"ndindex": "ndindex", "pytest_jsonreport": "pytest-json-report"}


@dataclass(frozen=True)
class Exemption:
    """Tests that fail, and why."""

    pattern: re.Pattern[str]
    reason: str
    always: bool  # or for some of the random values only


def read_exceptions(text: str) -> list[Exemption]:
    """Return what lines ``file.py::test[...] # reason`` say.

    `*` stands for anything; `~` in front says that the tests fail at times only.

    Raises:
        ValueError: a line has no reason.
    """
    found = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        test, mark, reason = line.partition(" # ")
        if not mark or not reason.strip():
            raise ValueError(f"array_api_exceptions.txt: no reason is given for {line!r}")
        always = not test.startswith("~")
        pattern = ".*".join(map(re.escape, test.strip().removeprefix("~").split("*")))
        found.append(Exemption(re.compile(pattern), reason.strip(), always))
    return found


def read_results(report: Path) -> dict[str, str]:
    """Return the outcome of each test of a JUnit report: passed, failed or skipped."""
    outcomes = {}
    for case in ElementTree.parse(report).iter("testcase"):
        module, *classes = case.get("classname", "").removeprefix("array_api_tests.").split(".")
        name = "::".join([f"{module}.py", *classes, case.get("name", "")])
        kinds = {child.tag for child in case}
        bad = "failure" in kinds or "error" in kinds
        outcomes[name] = "failed" if bad else "skipped" if "skipped" in kinds else "passed"
    return outcomes


def table(outcomes: dict[str, str], listed: set[str]) -> str:
    """Return how many tests of each file passed, in lines of Markdown."""
    files: dict[str, Counter[str]] = defaultdict(Counter)
    for name, outcome in outcomes.items():
        outcome = "listed" if name in listed else outcome
        for key in (name.partition("::")[0], "all"):
            files[key][outcome] += 1
    rows = ["| file | passed | listed | failed | skipped |", "|---|---|---|---|---|"]
    for key in [*sorted(set(files) - {"all"}), "all"]:
        counts = (str(files[key][kind]) for kind in ("passed", "listed", "failed", "skipped"))
        rows.append(f"| {key} | {' | '.join(counts)} |")
    return "\n".join(rows)


def _packages() -> Path:
    """Return a folder with what the suite imports and this environment lacks."""
    folder = FOLDER / "packages"
    missing = [
        distribution
        for module, distribution in PACKAGES.items()
        if find_spec(module) is None and not (folder / module).exists()
    ]
    if missing:
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder)]
        missing.append("pytest-metadata")
        if subprocess.run([*pip, *missing], check=False).returncode != 0:
            raise StepError(f"array_api: pip could not install {', '.join(missing)}")
    return folder


def run(suite: Path, module: str, examples: int, expression: str | None) -> dict[str, str]:
    """Run the suite, and return the outcome of each test.

    Raises:
        StepError: there is no suite in `suite`, or it did not start.
    """
    if not (suite / "array_api_tests").is_dir():
        raise StepError(f"array_api: {suite} has no folder array_api_tests; check the suite out")
    if not (suite / "array-api" / "src").is_dir():
        raise StepError("array_api: run `git submodule update --init` in the suite's checkout")
    report = FOLDER / "results.xml"
    FOLDER.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    env = os.environ | {
        "ARRAY_API_TESTS_MODULE": module,
        "ARRAY_API_TESTS_VERSION": VERSION,
        "PYTHONPATH": os.pathsep.join(
            filter(None, [str(_packages()), os.environ.get("PYTHONPATH", "")])
        ),
    }
    command = [sys.executable, "-m", "pytest", "array_api_tests", "-q", "--tb=short"]
    command += ["-p", "no:cacheprovider", "--disable-deadline", f"--max-examples={examples}"]
    command += [f"--junitxml={report}", *(["-k", expression] if expression else [])]
    log = FOLDER / "log.txt"
    with log.open("w") as out:
        subprocess.run(command, cwd=suite, env=env, stdout=out, stderr=out, check=False)
    if not report.exists():
        raise StepError(f"array_api: the suite did not run; see {log}")
    return read_results(report)


def main(argv: list[str] | None = None) -> int:
    """Run the suite and print the table; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("suite", type=Path, help="a checkout of data-apis/array-api-tests")
    parser.add_argument("--module", default="hologram", help="the library (default: hologram)")
    parser.add_argument("--examples", type=int, default=100, help="for each test (default: 100)")
    parser.add_argument("-k", dest="expression", help="only tests that the expression picks")
    args = parser.parse_args(argv)
    outcomes = run(args.suite.resolve(), args.module, args.examples, args.expression)
    exceptions = read_exceptions(EXCEPTIONS.read_text()) if args.module == "hologram" else []
    listed, wrong = set(), []
    for name, outcome in sorted(outcomes.items()):
        known = next((one for one in exceptions if one.pattern.fullmatch(name)), None)
        if outcome == "failed" and known is None:
            wrong.append(f"failed: {name}")
        elif outcome == "failed":
            listed.add(name)
        elif outcome == "passed" and known is not None and known.always:
            wrong.append(f"passes though it is listed: {name}")
    say(table(outcomes, listed))
    say("\n".join(["", *wrong]) if wrong else "\nwhat fails is listed, with its reason")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except StepError as error:
        sys.exit(fail(error))
