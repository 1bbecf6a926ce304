# SPDX-License-Identifier: MIT
"""Checks clang-format, clang-tidy, ruff, mypy, rules of the house, direction of includes, imports.

clang-tidy looks at what differs from the upstream branch, or without a difference at what the last
commit changed; with `--all` at every source. It remembers each source that passed, by the contents
of all files of ours that it includes. `--fix` formats in place; `--no-tidy` leaves the slow part
out.
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from setup import GENERATED_STUBS
from steps import LOGS, ROOT, StepError, fail, say, step

BIN = ROOT / ".venv" / "bin"
CPP_FOLDERS = ("include", "src", "python/src", "torch/csrc", "tests", "bench", "tools", "examples")
PYTHON_FOLDERS = ("python", "torch", "tests", "bench", "examples", "tools")
CPP_SUFFIXES = {".h", ".cc"}
MOST_LINES, MOST_TEST_LINES = 600, 800
# Which folders each folder of src/ and of torch/csrc/ may include besides itself; the rest of the
# tree includes public headers alone. Tests and tools look inside, and what binds all to Python lies
# above the folders. The link does not check this: the parts end up in one library.
MAY_INCLUDE: dict[str, set[str]] = {
    "base": set(),
    "ops": {"base"},
    "circuit": {"base", "ops"},
    "runtime": {"base", "ops", "circuit"},
    "cpu": {"base", "ops", "circuit", "runtime"},
    "gpu": {"base", "ops", "circuit", "runtime"},
    "opencl": {"base", "ops", "circuit", "runtime", "gpu"},
    "cuda": {"base", "ops", "circuit", "runtime", "gpu"},
    "array": {"base", "ops", "circuit", "runtime"},
    "capi": {"base", "ops", "circuit", "runtime", "cpu", "opencl", "cuda", "array"},
}
MAY_INCLUDE_IN_TORCH: dict[str, set[str]] = {
    "device": set(),
    "observe": {"device"},
    "host": {"device"},
    "recording": {"device", "host"},
    "ops": {"device", "host", "recording"},
    "dispatch": {"device", "host", "recording"},
}
LOOKS_INSIDE = {"tests", "tools"}
# Python packages whose modules must not import each other in a circle.
PACKAGES = (
    "bench",
    "python/hologram",
    "python/hologram_ffi",
    "tests/torch/programs",
    "tools",
    "torch/hologram_torch",
)
MOST_FILES = 40
# Numbers of ops or reductions that are compared by order.
NUMBER_ORDER = re.compile(
    r"\b(?:OpId|Reduction)::\w+\)? [<>]=? "
    r"| [<>]=? (?:static_cast<int>\()?(?:\w+::)*(?:OpId|Reduction)::"
)
CHECK = ROOT / "build" / "check"
PASSED = CHECK / "tidy-passed.json"
# How long clang-tidy may begin with further sources that changed.
TIDY_SECONDS = 200

# What clang-tidy 14 cannot read: GCC's flags. Warnings are the compiler's business.
TIDY_FLAGS = ["-Wno-everything", "-Wno-unknown-warning-option"]
GCC_ONLY = re.compile(
    r"^(-fno-semantic-interposition|-Wno-psabi|-fno-fat-lto-objects|-Werror|-mtune=.*)$"
)


def sources(folders: tuple[str, ...], suffixes: set[str]) -> list[Path]:
    """Return our files below `folders`."""
    found = [
        p for f in folders for p in (ROOT / f).rglob("*") if p.suffix in suffixes and p.is_file()
    ]
    return sorted(p for p in found if not {"build", "__pycache__"} & set(p.parts))


def check_house_rules() -> None:
    """Sources name their licence, stay readable in size, and order no numbers of ops."""
    faults = []
    for path in sources(CPP_FOLDERS, {*CPP_SUFFIXES, ".def"}) + sources(PYTHON_FOLDERS, {".py"}):
        lines = path.read_text(encoding="utf-8").splitlines()
        name = path.relative_to(ROOT)
        if not lines or "SPDX-License-Identifier: MIT" not in "".join(lines[:2]):
            faults.append(f"{name}:1: the first line must be the SPDX line")
        faults += [
            f"{name}:{number}: numbers of ops have no meaning; add a column to their table"
            for number, line in enumerate(lines, 1)
            if path.suffix in CPP_SUFFIXES and NUMBER_ORDER.search(line)
        ]
        most = MOST_TEST_LINES if name.parts[0] == "tests" else MOST_LINES
        if len(lines) > most:
            faults.append(f"{name}: {len(lines)} lines; split it by concept (at most {most})")
    folders = Counter(path.parent for path in sources(CPP_FOLDERS, {*CPP_SUFFIXES, ".def"}))
    for folder, count in sorted(folders.items()):
        if count > MOST_FILES:
            name = folder.relative_to(ROOT)
            faults.append(f"{name}: {count} sources; split it by concept (at most {MOST_FILES})")
    if faults:
        raise StepError("\n".join([*faults, "FAILED   house rules"]))
    say("         house rules hold")


def wrong_includes(path: Path) -> list[str]:
    """Return the lines of a source that include a folder which its own must not know."""
    parts = path.relative_to(ROOT).parts
    name = "/".join(parts)
    in_torch = parts[:2] == ("torch", "csrc")
    if parts[0] in LOOKS_INSIDE or (in_torch and len(parts) == 3):
        return []
    rules, include, allowed = MAY_INCLUDE, r"src/(\w+)/", set[str]()
    if in_torch:
        rules, parts = MAY_INCLUDE_IN_TORCH, parts[1:]
        include = f"({'|'.join(['src', *rules])})/"
    if parts[0] in ("src", "csrc"):
        if parts[1] not in rules:
            return [f"{name}: {parts[1]}/ is in no MAY_INCLUDE of tools/check.py"]
        allowed = rules[parts[1]] | {parts[1]}
    return [
        f"{name}:{number}: {line.strip()}; allowed here: hologram/"
        + "".join(f", {folder}/" for folder in sorted(allowed))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (m := re.match(rf'\s*#\s*include "{include}', line)) and m.group(1) not in allowed
    ]


def check_includes() -> None:
    """The folders depend on each other in one direction."""
    files = sources(CPP_FOLDERS, {*CPP_SUFFIXES, ".def"})
    if faults := [fault for path in files for fault in wrong_includes(path)]:
        raise StepError("\n".join([*faults, "FAILED   direction of includes"]))
    say("         includes follow the direction between the folders")


def imported_modules(name: str, path: Path, known: dict[str, Path]) -> set[str]:
    """Return which `known` modules a module imports, at any time.

    A package's own members that are not `known` are compiled or generated, and import none.
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            members = {f"{node.module}.{alias.name}" for alias in node.names}
            is_parent = name.startswith(f"{node.module}.")
            found |= members & known.keys() or ({node.module} if not is_parent else set())
    return found & known.keys() - {name}


def check_imports() -> None:
    """No Python module imports itself by way of others."""
    modules: dict[str, Path] = {}
    for folder in PACKAGES:
        for path in sources((folder,), {".py"}):
            parts = path.relative_to((ROOT / folder).parent).with_suffix("").parts
            modules[".".join(parts).removesuffix(".__init__").removeprefix("tools.")] = path
    graph = {name: imported_modules(name, path, modules) for name, path in modules.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = " -> ".join(reversed(error.args[1]))
        raise StepError(f"{circle}\nFAILED   imports in a circle") from None
    say("         imports form no circle")


@dataclass
class Unit:
    """A source as the build compiles it."""

    source: Path
    command: list[str]
    folder: Path


def configure() -> None:
    """Have CMake write how each source is compiled alone; the builds compile several at a time."""
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"}
    for tree, folder in (("hologram", "python"), ("hologram-torch", "torch")):
        command = [str(BIN / "cmake"), "-S", str(ROOT / folder), "-B", str(CHECK / tree)]
        command += ["-G", "Ninja", "-DHOLOGRAM_UNITY=OFF", "-DHOLOGRAM_BUILD_TESTS=ON"]
        command += [f"-DPython_EXECUTABLE={BIN / 'python'}", "--no-warn-unused-cli"]
        step(f"configure {tree}", command, log_name=f"check-{tree}", env=environment)
    generate = [
        str(BIN / "cmake"),
        "--build",
        str(CHECK / "hologram"),
        "--target",
        "hologram_generated",
    ]
    step("make call_structs.h", generate, log_name="check-headers", env=environment)


def compiled_units() -> list[Unit]:
    """Return our sources from the compilation databases of both trees."""
    configure()
    units: dict[Path, Unit] = {}
    for tree in ("hologram", "hologram-torch"):
        database = CHECK / tree / "compile_commands.json"
        for entry in json.loads(database.read_text()):
            source = Path(entry["file"])
            if source.is_file() and any(
                (ROOT / folder) in source.parents for folder in CPP_FOLDERS
            ):
                arguments = entry.get("arguments") or shlex.split(entry["command"])
                units[source] = Unit(source, arguments, Path(entry["directory"]))
    return [units[key] for key in sorted(units)]


def tidy_flags(unit: Unit) -> list[str]:
    """Return the compiler's flags that clang understands."""
    start = next(
        i
        for i, word in enumerate(unit.command)
        if re.search(r"(\+\+|g\+\+|clang\+\+|gcc|cc)[-0-9.]*$", word)
    )
    flags: list[str] = []
    words = iter(unit.command[start + 1 :])
    if "ccache" in unit.command[start]:
        next(words)
    for word in words:
        if word in ("-o", "-MF", "-MT", "-MQ"):
            next(words, None)
        elif word not in ("-c", "-MD", "-MMD", str(unit.source)) and not GCC_ONLY.match(word):
            flags.append(word)
    return flags + TIDY_FLAGS


def dependencies(unit: Unit, compiler: str) -> list[Path]:
    """Return the files of this repository that a source includes, itself among them."""
    listing = subprocess.run(
        [compiler, *tidy_flags(unit), "-MM", str(unit.source)],
        cwd=unit.folder,
        capture_output=True,
        text=True,
    ).stdout
    names = listing.replace("\\\n", " ").split(":", 1)[-1].split()
    paths = {(unit.folder / name).resolve() for name in names}
    return sorted(p for p in paths | {unit.source} if ROOT in p.parents)


def fingerprint(unit: Unit, compiler: str, tool: str) -> str:
    """Hash everything that clang-tidy's answer about a source depends on."""
    total = hashlib.sha256()
    total.update(json.dumps([tool, tidy_flags(unit)]).encode())
    rules = [f / ".clang-tidy" for f in unit.source.parents if f.is_relative_to(ROOT)]
    for path in [*filter(Path.is_file, rules), *dependencies(unit, compiler)]:
        total.update(str(path).encode() + path.read_bytes())
    return total.hexdigest()


def git(*arguments: str) -> str:
    """Return what git prints, or nothing where it fails."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout


def changed_files() -> set[Path]:
    """Return the files that differ from the upstream branch, or that the last commit changed."""
    new = git("ls-files", "--others", "--exclude-standard")
    for upstream in ("@{upstream}", "origin/HEAD", "HEAD~1"):
        base = git("merge-base", "HEAD", upstream).strip()
        names = (git("diff", "--name-only", base) + new).split() if base else []
        if names:
            return {ROOT / name for name in names}
    return set()


def touched(units: list[Unit]) -> list[Unit]:
    """Return changed sources, and for a changed header that none of them includes one that does.

    That is the source beside it or else the first.
    """
    changed = changed_files()
    texts = {unit.source: unit.source.read_text(encoding="utf-8") for unit in units}
    found = {unit.source for unit in units} & changed
    for header in sorted(p for p in changed if p.suffix in {".h", ".def"} and p.is_file()):
        include = re.compile(rf'#include "(?:[^"]*/)?{re.escape(header.name)}"')
        including = [source for source, text in texts.items() if include.search(text)]
        beside = header.with_suffix(".cc")
        if including and not found & set(including):
            found.add(beside if beside in including else including[0])
    return [unit for unit in units if unit.source in found]


def check_tidy(every: bool) -> None:
    """Run clang-tidy on what changed, or on every source."""
    tool = shutil.which("clang-tidy")
    compiler = shutil.which("clang++") or os.environ.get("CXX") or "c++"
    if tool is None:
        raise StepError(
            "FAILED   clang-tidy is not installed (apt-get install clang-tidy), or pass --no-tidy"
        )
    known = compiled_units()
    units = known if every else touched(known)
    version = subprocess.run([tool, "--version"], capture_output=True, text=True).stdout
    passed: dict[str, str] = json.loads(PASSED.read_text()) if PASSED.is_file() else {}
    start = time.monotonic()

    def look(unit: Unit) -> tuple[Unit, str, str | None]:
        if not every and time.monotonic() - start > TIDY_SECONDS:
            return unit, "", None
        key = fingerprint(unit, compiler, version)
        if passed.get(str(unit.source)) == key:
            return unit, key, None
        command = [
            tool,
            "--quiet",
            "--warnings-as-errors=*",
            str(unit.source),
            "--",
            *tidy_flags(unit),
        ]
        result = subprocess.run(command, cwd=unit.folder, capture_output=True, text=True)
        return unit, key, "" if result.returncode == 0 else result.stdout + result.stderr

    looked = left = 0
    faults: list[str] = []
    PASSED.parent.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for unit, key, fault in pool.map(look, units):
            left += not key
            if fault is not None:
                looked += 1
            if fault:
                faults.append(fault)
            elif key and passed.get(str(unit.source)) != key:
                passed[str(unit.source)] = key
                # At once: a run that is interrupted goes on where it was.
                PASSED.write_text(json.dumps(passed, indent=1))
    if faults:
        log = LOGS / "clang-tidy.log"
        LOGS.mkdir(parents=True, exist_ok=True)
        log.write_text("\n".join(faults))
        shown = [
            line
            for fault in faults
            for line in fault.splitlines()
            if re.search(r": (error|warning):", line)
        ]
        shown = sorted(set(shown))
        text = "\n".join(shown[:60]) or "\n".join(faults[0].splitlines()[:40])
        raise StepError(
            f"{text}\nFAILED   clang-tidy: {len(shown)} findings in {len(faults)} sources,"
            f" see {log.relative_to(ROOT)}"
        )
    what = "" if every else " that changed; make check-all looks at all"
    what += f"; {left} left after {TIDY_SECONDS} s" if left else ""
    say(f"{time.monotonic() - start:6.1f} s clang-tidy ({looked} of {len(units)} sources{what})")


def check_types() -> None:
    """Run mypy, which wants the stubs that the build wrote beside the sources."""
    (installed,) = (ROOT / ".venv").glob("lib/python3*/site-packages/hologram")
    for name in GENERATED_STUBS:
        shutil.copyfile(installed / name, ROOT / "python" / "hologram" / name)
    step("mypy", [str(BIN / "mypy")], log_name="mypy")


def main() -> int:
    """Run the checks; every one runs even if an earlier one failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fix", action="store_true", help="format in place first")
    parser.add_argument("--all", action="store_true", help="clang-tidy on every source")
    parser.add_argument("--no-tidy", action="store_true", help="leave clang-tidy out")
    options = parser.parse_args()
    cpp = [str(p.relative_to(ROOT)) for p in sources(CPP_FOLDERS, CPP_SUFFIXES)]
    python = [folder for folder in PYTHON_FOLDERS if (ROOT / folder).is_dir()]
    ruff, formatter = str(BIN / "ruff"), str(BIN / "clang-format")

    checks = [
        lambda: step(
            "clang-format", [formatter, "--dry-run", "-Werror", *cpp], log_name="clang-format"
        ),
        lambda: step(
            "ruff format", [ruff, "format", "--check", "--diff", *python], log_name="ruff-format"
        ),
        lambda: step("ruff", [ruff, "check", *python], log_name="ruff"),
        check_types,
        check_house_rules,
        check_includes,
        check_imports,
    ]
    if options.fix:
        checks[:0] = [
            lambda: step("clang-format -i", [formatter, "-i", *cpp], log_name="clang-format-fix"),
            lambda: step("ruff format", [ruff, "format", *python], log_name="ruff-format-fix"),
            lambda: step(
                "ruff --fix", [ruff, "check", "--fix", "--exit-zero", *python], log_name="ruff-fix"
            ),
        ]
    if not options.no_tidy:
        checks.append(lambda: check_tidy(options.all))
    failures = 0
    for check in checks:
        try:
            check()
        except StepError as error:
            failures += fail(error)
    say(f"{failures} of {len(checks)} checks failed" if failures else "all checks passed")
    return 1 if failures else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
