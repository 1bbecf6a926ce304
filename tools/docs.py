# SPDX-License-Identifier: MIT
"""Checks the documents: links lead somewhere, commands exist, and Python in them compiles.

`--site FOLDER` also builds the site from them, docstrings and headers; a warning fails it.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from steps import ROOT, StepError, fail, say, step

_LINK = re.compile(r"\[[^\]]+\]\(([^)#\s]+)(#[^)]*)?\)")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_MAKE = re.compile(r"\bmake ((?:[a-z]+-?)+)\b")
_OUR_FILE = re.compile(r"\b((?:examples|tools|bench|tests|docs|torch|python|src)/[\w./-]+\.\w+)")


def documents() -> list[Path]:
    """Return every document that people read."""
    beside_code = [*ROOT.glob("*/README.md"), *ROOT.glob("*/*/README.md")]
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *beside_code])


def faults_of(path: Path, targets: set[str]) -> list[str]:
    """Return what is wrong with one document."""
    text = path.read_text(encoding="utf-8")
    faults = []
    for link, _ in _LINK.findall(text):
        if "://" not in link and not (path.parent / link).exists():
            faults.append(f"the link {link} leads nowhere")
    quoted = "\n".join(re.findall(r"`([^`\n]+)`", text))
    blocks = _BLOCK.findall(text)
    commands = "\n".join([quoted, *(body for language, body in blocks if language == "sh")])
    faults += [
        f"there is no `make {name}`" for name in _MAKE.findall(commands) if name not in targets
    ]
    faults += [
        f"there is no file {name}"
        for name in _OUR_FILE.findall(commands)
        if not (ROOT / name).exists() and not re.search(r"/x[_.]|x\.|_x\.", name)
    ]
    for language, body in blocks:
        if language == "python":
            try:
                compile(body, str(path), "exec")
            except SyntaxError as error:
                faults.append(f"Python that does not compile: {error}")
    return [f"{path.relative_to(ROOT)}: {fault}" for fault in faults]


def write_coverage() -> None:
    """Write the page of operators, which is not in the repository."""
    command = [sys.executable, str(ROOT / "tools" / "coverage.py")]
    step("list the operators", command, log_name="coverage")


def build_site(folder: Path) -> None:
    """Build the site with Sphinx."""
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q"]
    step("build the site", [*command, str(ROOT / "docs"), str(folder)], log_name="docs")
    say(
        f"         {folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder}/index.html"
    )


def main() -> int:
    """Check all documents; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--site", type=Path, help="where the site goes")
    options = parser.parse_args()
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    found = documents()
    faults = [fault for path in found for fault in faults_of(path, targets)]
    for fault in faults:
        print(fault, file=sys.stderr)
    say(f"{len(found)} documents, {len(faults)} faults")
    if options.site and not faults:
        try:
            write_coverage()
            build_site(options.site.resolve())
        except StepError as error:
            return fail(error)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
