# SPDX-License-Identifier: MIT
"""Builds the project and runs its tests with each PyTorch and each Python that it is for.

Each pair has a checkout of its own in build/versions: the files of this one that git does not
ignore, changed or not, and a .venv and a build that stay there for the next call. `make test` runs
in it. A Python that the machine does not have is named. A table at the end has the result of each
pair, which is also written to build/logs/test-versions.md; the exit status is 0 only if every pair
that could run passed, and one could. Arguments pick pairs ("2.14", "3.12" or "2.14/3.12"); what
follows `--` goes to pytest.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from steps import LOGS, ROOT, say
from test_matrix import summary_of

TORCHES = ("2.15", "2.14", "2.13")
PYTHONS = ("3.11", "3.12", "3.13")
CHECKOUTS = ROOT / "build" / "versions"


@dataclass(frozen=True)
class Pair:
    """A PyTorch and a Python, each as major and minor version."""

    torch: str
    python: str

    @property
    def name(self) -> str:
        """Return what the pair is called on the command line."""
        return f"{self.torch}/{self.python}"


@dataclass
class Result:
    """What became of one pair."""

    pair: Pair
    outcome: str  # "passed", "FAILED", or why it was not run
    versions: str = ""
    summary: str = ""
    seconds: float = 0.0


def interpreter(version: str) -> str | None:
    """Return the path of a Python of that version that can make a .venv, or None."""
    for name in (sys.executable, f"python{version}"):
        path = shutil.which(name)
        code = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"
        if path is None:
            continue
        asked = subprocess.run([path, "-c", code], capture_output=True, text=True)
        if asked.returncode == 0 and asked.stdout.strip() == version:
            return path
    return None


def check_out(folder: Path) -> None:
    """Bring `folder` to this checkout's files; what was installed and built there stays."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    names = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
    folder.mkdir(parents=True, exist_ok=True)
    note = folder / "build" / "files"
    before = set(note.read_text().split("\0")) if note.is_file() else set()
    for name in before - names:
        (folder / name).unlink(missing_ok=True)
    for name in names:
        source, target = ROOT / name, folder / name
        if target.is_file() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
    note.parent.mkdir(exist_ok=True)
    note.write_text("\0".join(sorted(names)))


def versions_in(folder: Path) -> str:
    """Return the versions that the tests of a checkout ran with."""
    code = (
        "import platform; from importlib.metadata import version as v; "
        'print(f\'PyTorch {v("torch")}, Python {platform.python_version()}, NumPy {v("numpy")}\')'
    )
    python = folder / ".venv" / "bin" / "python"
    if not python.exists():
        return ""
    return subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip()


def run(pair: Pair, python: str, arguments: list[str]) -> Result:
    """Set one pair up and run its tests."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"versions-{pair.name.replace('/', '-')}.log"
    folder = CHECKOUTS / pair.name.replace("/", "-")
    check_out(folder)
    start = time.monotonic()
    code = 0
    with log.open("w", encoding="utf-8") as out:
        for command in (
            [python, "tools/setup.py", "--tests"],
            [str(folder / ".venv" / "bin" / "python"), "tools/test.py", *arguments],
        ):
            if code == 0:
                code = subprocess.run(
                    command,
                    cwd=folder,
                    env={**os.environ, "TORCH": f"torch=={pair.torch}.*", "PYTHON": python},
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                ).returncode
    text = log.read_text(encoding="utf-8", errors="replace")
    for line in re.findall(r"^(?:FAILED|ERROR) .*", text, re.MULTILINE):
        say(f"         {line}")
    outcome = "passed" if code == 0 else f"FAILED ({log.relative_to(ROOT)})"
    return Result(pair, outcome, versions_in(folder), summary_of(text), time.monotonic() - start)


def table(results: list[Result]) -> str:
    """Return the results as a table in Markdown."""
    lines = ["| PyTorch/Python | result | with | seconds | summary |", "|---|---|---|---|---|"]
    lines += [
        f"| {r.pair.name} | {r.outcome} | {r.versions} | {r.seconds:.0f} | {r.summary} |"
        for r in results
    ]
    return "\n".join(lines)


def main() -> int:
    """Run the pairs that were asked for."""
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    wanted, arguments = words[:split], words[split + 1 :]
    pairs = [Pair(torch, python) for torch in TORCHES for python in PYTHONS]
    unknown = [w for w in wanted if not any(w in (p.torch, p.python, p.name) for p in pairs)]
    if unknown:
        names = f"{', '.join(TORCHES)}, {', '.join(PYTHONS)} and pairs such as {pairs[0].name!r}"
        print(f"no versions {', '.join(unknown)}; there are {names}", file=sys.stderr)
        return 2
    results: list[Result] = []
    for pair in pairs:
        if wanted and not any(w in (pair.torch, pair.python, pair.name) for w in wanted):
            continue
        python = interpreter(pair.python)
        if python is None:
            results.append(Result(pair, f"not run: this machine has no Python {pair.python}"))
        else:
            results.append(run(pair, python, arguments))
        say(f"{results[-1].seconds:6.1f} s {pair.name}: {results[-1].outcome}")
        LOGS.mkdir(parents=True, exist_ok=True)
        (LOGS / "test-versions.md").write_text(table(results) + "\n")
    say(table(results))
    outcomes = [r.outcome for r in results]
    return int("passed" not in outcomes or any(o.startswith("FAILED") for o in outcomes))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
