# SPDX-License-Identifier: MIT
"""Runs the C++ tests with ctest and the Python tests with pytest, whose summary is the last line.

The C++ tests run on half of the cores beside the Python tests. Of these, those marked `alone` run
first, one by one; the others run side by side, as many at a time as there are cores. All parts run
whatever the others' results are, and the exit status is 0 only if all pass. The sixty slowest tests
are printed, and written to build/logs/slowest.txt.

    --heavy    runs the tests marked heavy, file by file; a file that has passed is not run again
               until a source changes
    --matrix   runs what a setting of the library can change: the C++ tests of the host, and the
               Python tests marked `matrix`
    --all      runs every test
Other arguments go to pytest.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from setup import digest
from steps import LOGS, ROOT, StepError, fail, say, step

NO_TESTS_COLLECTED = 5
SLOWEST = 60
BYTES_PER_WORKER = 3e9  # PyTorch's databases, or a compiler and what it compiles
HEAVY_PASSED = LOGS / "heavy-passed.txt"
SOURCES = ("CMakeLists.txt", "cmake", "include", "src", "python", "torch", "tests", "bench")

Times = list[tuple[float, str]]


def nvrtc_library() -> Path | None:
    """Return the compiler of CUDA that PyTorch's wheel has brought."""
    found = importlib.util.find_spec("nvidia")
    places = [Path(p) for p in (found.submodule_search_locations or [])] if found else []
    libraries = [lib for place in places for lib in place.glob("*/lib/libnvrtc.so.*")]
    return max(libraries, default=None)


def workers() -> int:
    """Return how many tests may run at a time: one a core, and memory for each."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(len(os.sched_getaffinity(0)), int(memory / BYTES_PER_WORKER)))


def cpp_tests(labels: list[str], at_a_time: int) -> tuple[int, Times]:
    """Run the C++ tests that `labels` choose; return an exit status, and the time of each test."""
    tree = ROOT / "build" / "hologram"
    if not list(tree.rglob("*_test")):
        say("  note   no C++ tests were built (GoogleTest is missing, or there are none)")
        return 0, []
    ctest = str(ROOT / ".venv" / "bin" / "ctest")
    command = [ctest, "--test-dir", str(tree), "--output-on-failure", "--timeout", "1800"]
    command += ["--parallel", str(at_a_time), *labels]
    nvrtc = nvrtc_library()
    if nvrtc is not None:
        os.environ.setdefault("HOLOGRAM_NVRTC_LIBRARY", str(nvrtc))
    try:
        output = step("C++ tests", command, log_name="ctest")
    except StepError as error:
        return fail(error), []
    summary = [line for line in output.splitlines() if "tests passed" in line]
    say(f"         {summary[-1] if summary else 'ctest printed no summary'}")
    times = re.findall(r"Test +#\d+: (\S+) \.+ +Passed +([\d.]+) sec", output)
    return (0 if summary else 1), [(float(seconds), f"ctest {name}") for name, seconds in times]


def python_tests(marks: str, arguments: list[str], together: bool) -> tuple[int, Times, str]:
    """Run pytest; return an exit status, the time of slow tests, and the line that sums up."""
    command = [sys.executable, "-m", "pytest", f"--durations={SLOWEST}", "--durations-min=1"]
    command += ["-m", marks] if marks else []
    if together and workers() > 1:
        command += ["-n", str(workers()), "--dist", "loadfile", "--no-loadscope-reorder"]
    times: Times = []
    summary = ""
    with subprocess.Popen(
        [*command, *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            slow = re.match(r"([\d.]+)s (?:call|setup|teardown) +(\S.*)", line)
            if slow:
                times.append((float(slow[1]), slow[2].strip()))
                continue
            print(line, end="", flush=True)
            if re.match(r"=+ .*(passed|failed|error|deselected|no tests ran).* =+$", line):
                summary = line.strip()
    return process.returncode, times, summary


def files_with(text: str) -> list[str]:
    """Return the files of Python tests that contain `text`."""
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(p.relative_to(ROOT)) for p in paths if text in p.read_text(encoding="utf-8")]


def report_slowest(times: Times) -> None:
    """Print the slowest tests, and write them to a file."""
    lines = [f"{seconds:7.1f} s  {name}" for seconds, name in sorted(times, reverse=True)[:SLOWEST]]
    LOGS.mkdir(parents=True, exist_ok=True)
    (LOGS / "slowest.txt").write_text("\n".join(lines) + "\n")
    say("\n".join([f"the slowest {len(lines)} tests", *lines]))


def run_tests(marks: list[str], labels: list[str], arguments: list[str]) -> int:
    """Run the tests with `marks` and `labels`; return an exit status."""
    start = time.monotonic()
    # Only these files, since it takes a minute to collect all.
    some = arguments or files_with("mark.alone")
    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(cpp_tests, labels, max(1, workers() // 2))
        alone, alone_times, alone_summary = python_tests(
            " and ".join(["alone", *marks]), some, together=False
        )
        rest, rest_times, summary = python_tests(
            " and ".join(["not alone", *marks]), arguments, together=True
        )
        cpp, cpp_times = beside.result()
    report_slowest(alone_times + cpp_times + rest_times)
    say(f"{time.monotonic() - start:6.1f} s all tests")
    say(f"alone: {alone_summary}")
    if cpp:
        say("The C++ tests failed, see above.")
    say(summary)
    if alone == NO_TESTS_COLLECTED:  # none of what the arguments or marks choose
        alone = 0
    return cpp or alone or rest


def run_heavy_file(name: str) -> tuple[str, int, float]:
    """Run the heavy tests of one file, or those of ctest; return its name, status and seconds."""
    start = time.monotonic()
    if name == "ctest":
        return name, cpp_tests(["-L", "heavy"], workers())[0], time.monotonic() - start
    log = LOGS / f"heavy-{re.sub('[^A-Za-z0-9]+', '-', name)}.log"
    LOGS.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as out:
        code = subprocess.run(
            [sys.executable, "-m", "pytest", "-m", "heavy", "--durations=5", name],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        ).returncode
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    seconds = time.monotonic() - start
    for line in lines:
        if line.startswith(("FAILED", "ERROR")):
            say(f"         {line}")
    say(f"{seconds:6.1f} s {name}: {lines[-1].strip('= ') if lines else 'no output'}")
    return name, (0 if code == NO_TESTS_COLLECTED else code), seconds


def run_heavy() -> int:
    """Run the heavy tests of every file that has not passed them with these sources."""
    sources = digest(SOURCES)
    passed: set[str] = set()
    if HEAVY_PASSED.exists():
        first, *names = HEAVY_PASSED.read_text().splitlines() or [""]
        passed = set(names) if first == sources else set()
    LOGS.mkdir(parents=True, exist_ok=True)
    HEAVY_PASSED.write_text("\n".join([sources, *sorted(passed)]) + "\n")
    alone = set(files_with("mark.alone"))
    todo = {"ctest": True} | {name: name in alone for name in files_with("mark.heavy")}
    for name in passed & todo.keys():
        del todo[name]
    say(f"         {len(todo)} files with heavy tests, {len(passed)} have passed before")
    results: list[tuple[str, int, float]] = []

    def finish(result: tuple[str, int, float]) -> None:
        results.append(result)
        if result[1] == 0:
            with HEAVY_PASSED.open("a") as out:
                out.write(result[0] + "\n")

    for name in [name for name, is_alone in todo.items() if is_alone]:
        finish(run_heavy_file(name))
    with ThreadPoolExecutor(workers()) as pool:
        together = [name for name, is_alone in todo.items() if not is_alone]
        for done in as_completed([pool.submit(run_heavy_file, name) for name in together]):
            finish(done.result())
    failed = [name for name, code, _ in results if code]
    say(f"{len(results) - len(failed)} passed, {len(failed)} failed")
    return int(bool(failed))


def main() -> int:
    """Run the tests that the arguments choose."""
    known = {"--all", "--heavy", "--matrix"}
    chosen = known.intersection(sys.argv[1:])
    arguments = [a for a in sys.argv[1:] if a not in known]
    if "--heavy" in chosen:
        return run_heavy()
    if "--matrix" in chosen:
        return run_tests(["matrix", "not heavy"], ["-LE", "heavy|device"], arguments)
    if "--all" in chosen:
        return run_tests([], [], arguments)
    return run_tests(["not heavy"], ["-LE", "heavy"], arguments)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
