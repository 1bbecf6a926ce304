# SPDX-License-Identifier: MIT
"""Runs PyTorch's own test files on hologram, and on cpu what does not pass there.

The tests are those of an earlier PyTorch (tools/upstream_source.py), run with the testing modules
of the installed one. Of what fails or is skipped on the device, cpu says whether it does so, too.
What becomes of each test is written at once to build/upstream/results, so an interrupted run goes
on where it was, and a test that crashes or hangs costs itself alone. The exit status is 1 if a test
fails on the device alone that tests/torch/upstream/exceptions.txt does not list, or if a listed one
does not.

    upstream.py test_torch.py nn/test_embedding.py     these files; without names all
    upstream.py test_nn.py -k 'upsample'               only tests that the expression picks
    upstream.py test_nn.py --failed                    only what failed on the device alone
    upstream.py test_unary_ufuncs.py --share 10        ten percent of the tests, always the same
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "torch" / "upstream"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from steps import LOGS, ROOT, StepError, fail, say
from upstream_results import (
    BAD,
    GOOD,
    Results,
    Verdict,
    fails,
    judge,
    pair,
    read,
    read_exceptions,
    table,
)
from upstream_share import common_name, is_in_share
from upstream_source import FOLDER, VERSION, fetch

HERE = ROOT / "tests" / "torch" / "upstream"
RESULTS = FOLDER / "results"
COLLECTION_SECONDS = 900.0

# Small files first, so that a new fault shows early.
FILES = (
    "test_masked.py",
    "test_numpy_interop.py",
    "test_native_mha.py",
    "test_dlpack.py",
    "test_complex.py",
    "test_segment_reductions.py",
    "test_type_promotion.py",
    "nn/test_embedding.py",
    "nn/test_dropout.py",
    "nn/test_pooling.py",
    "nn/test_multihead_attention.py",
    "test_tensor_creation_ops.py",
    "test_indexing.py",
    "test_view_ops.py",
    "test_shape_ops.py",
    "test_sort_and_select.py",
    "test_scatter_gather_ops.py",
    "test_serialization.py",
    "test_optim.py",
    "nn/test_convolution.py",
    "test_torch.py",
    "test_nn.py",
    "test_reductions.py",
    "test_autograd.py",
    "test_transformers.py",
    "test_nestedtensor.py",
    "test_spectral_ops.py",
    "test_dataloader.py",
    "test_linalg.py",
    "test_modules.py",
    "test_foreach.py",
    "test_binary_ufuncs.py",
    "test_unary_ufuncs.py",
    "test_ops.py",
    "functorch/test_rearrange.py",
    "functorch/test_parsing.py",
    "functorch/test_memory_efficient_fusion.py",
    "functorch/test_minifier.py",
    "functorch/test_ac.py",
    "functorch/test_eager_transforms.py",
    "functorch/test_control_flow.py",
    "functorch/test_vmap.py",
    "functorch/test_aotdispatch.py",
    "functorch/test_ops.py",
)

SIDES: dict[str, dict[str, str]] = {
    "hologram": {
        "PYTORCH_TESTING_DEVICE_ONLY_FOR": "privateuse1",
        "PYTORCH_TESTING_DEVICE_FOR_CUSTOM": "privateuse1",
    },
    # PyTorch as it is without this project, also where tests make tensors of cpu alone.
    "cpu": {"PYTORCH_TESTING_DEVICE_ONLY_FOR": "cpu", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
}

# As PyTorch's own settings of pytest: its tests look at warnings and capture output themselves.
PYTEST = (
    "-p", "upstream_plugin", "-p", "no:warnings", "-p", "no:cacheprovider", "-p", "no:xdist",
    "-p", "no:faulthandler", "--noconftest", "--assert=plain", "--tb=short", "--capture=sys", "-q",
)  # fmt: skip


@dataclass(frozen=True)
class Job:
    """One file on one side."""

    file: str
    side: str

    @property
    def slug(self) -> str:
        """Return a name for files."""
        return f"{self.file.removesuffix('.py').replace('/', '-')}.{self.side}"

    @property
    def events(self) -> Path:
        """Return the file in which the results are."""
        return RESULTS / f"{self.slug}.jsonl"


@dataclass(frozen=True)
class Limits:
    """What a run is allowed."""

    seconds: float  # for one test
    threads: int  # of PyTorch
    percent: float = 100.0  # of the tests


def _hash_files(total: hashlib._Hash, folders: list[Path]) -> None:
    for folder in folders:
        for file in sorted(folder.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                total.update(file.name.encode())
                total.update(file.read_bytes())


def key_of(side: str) -> str:
    """Return a digest of what a side's results depend on."""
    total = hashlib.sha256()
    for text in (VERSION, metadata.version("torch"), platform.python_version()):
        total.update(text.encode())
    for name in ("upstream_plugin.py", "upstream_share.py", "upstream_shim.py"):
        total.update((HERE / name).read_bytes())
    if side == "hologram":
        packages = Path(str(metadata.distribution("hologram_torch").locate_file("")))
        _hash_files(total, sorted(p for p in packages.glob("hologram*") if p.suffix == ""))
    return total.hexdigest()


class Runner:
    """Runs jobs, each in one process after the other until each test has an outcome."""

    def __init__(self, tests: Path, limits: Limits) -> None:
        self._tests = tests
        self._limits = limits
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End the processes that run, and start no more."""
        self._stopped.set()

    def run(
        self,
        job: Job,
        expression: str | None = None,
        names: set[str] | None = None,
        twins: set[str] | None = None,
    ) -> None:
        """Run what is missing of a job, or of what its arguments pick.

        `expression` is pytest's; `names` are tests by their full names, `twins` by common_name().
        """
        results = read(job.events)
        key = key_of(job.side)
        whole = expression is None and names is None
        if names == set() or twins == set():
            return
        if whole and results.key == key and self._is_through(results, twins):
            return
        if whole and results.key != key:
            job.events.unlink(missing_ok=True)
        if not job.events.exists():
            self._append(job, kind="run", key=key)
        (LOGS / f"upstream-{job.slug}.log").unlink(missing_ok=True)
        start = 0 if whole else job.events.stat().st_size
        idle = 0
        while not self._stopped.is_set():
            done = set(read(job.events, start).tests)
            if names is not None:
                done |= set(results.collected) - names
            self._process(job, done, expression, twins)
            after = read(job.events)
            if after.finished or after.errors:
                return
            # Ending twice in a row outside of any test, it will not get further.
            idle = 0 if after.broken else idle + 1
            if idle == 2 and not self._stopped.is_set():
                self._append(job, kind="collection error", text="the process ended by itself")
                return

    def _is_through(self, results: Results, twins: set[str] | None) -> bool:
        wanted = [
            name
            for name in results.collected
            if is_in_share(name, self._limits.percent)
            and (twins is None or common_name(name) in twins)
        ]
        return bool(results.collected) and all(name in results.tests for name in wanted)

    def _append(self, job: Job, **event: object) -> None:
        RESULTS.mkdir(parents=True, exist_ok=True)
        with job.events.open("a", encoding="utf-8") as out:
            out.write(json.dumps(event) + "\n")

    def _environment(self, job: Job) -> dict[str, str]:
        temporary = FOLDER / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        foreign = ("PYTORCH_TEST", "PYTORCH_TESTING", "HOLOGRAM_")
        env = {k: v for k, v in os.environ.items() if not k.startswith(foreign) and k != "CI"}
        return {
            **env,
            **SIDES[job.side],
            "PYTHONPATH": os.pathsep.join((str(HERE), str(self._tests))),
            "OMP_NUM_THREADS": str(self._limits.threads),
            "TMPDIR": str(temporary),
            "UPSTREAM_EVENTS": str(job.events),
            "UPSTREAM_SHARE": str(self._limits.percent),
        }

    def _process(
        self, job: Job, done: set[str], expression: str | None, twins: set[str] | None
    ) -> None:
        """Start pytest and wait for it; end it when one test takes too long."""
        RESULTS.mkdir(parents=True, exist_ok=True)
        LOGS.mkdir(parents=True, exist_ok=True)
        lists = {"UPSTREAM_DONE": done} | ({} if twins is None else {"UPSTREAM_ONLY": twins})
        files = {name: RESULTS / f"{job.slug}.{name}" for name in lists}
        for name, tests in lists.items():
            files[name].write_text("\n".join(sorted(tests)))
        self._append(job, kind="process")
        start = job.events.stat().st_size
        command = [sys.executable, "-X", "faulthandler", "-m", "pytest", *PYTEST]
        command += ["--rootdir", str(self._tests), "-c", os.devnull]
        command += [*(["-k", expression] if expression else []), job.file]
        with (LOGS / f"upstream-{job.slug}.log").open("ab") as log:
            process = subprocess.Popen(
                command, cwd=self._tests,
                env={**self._environment(job), **{k: str(v) for k, v in files.items()}},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        reason, late = self._watch(job, process, start)
        # A test's own children may outlive it.
        for number in (signal.SIGABRT, signal.SIGKILL) if late else (signal.SIGKILL,):
            try:
                os.killpg(process.pid, number)
                if number is signal.SIGABRT:
                    process.wait(1.0)
            except subprocess.TimeoutExpired:
                pass
            except ProcessLookupError:
                break
        process.wait()
        for file in files.values():
            file.unlink()
        test = read(job.events).started
        if test is not None and not self._stopped.is_set():
            outcome = "hung" if late else "crashed"
            text = reason or f"the process ended with status {process.returncode}"
            self._append(job, kind="end", name=test, outcome=outcome, text=text, seconds=0)

    def _watch(self, job: Job, process: subprocess.Popen[bytes], start: int) -> tuple[str, bool]:
        """Wait until the process ends or has to be ended; return why, and whether it was late."""
        results = Results()
        since = time.monotonic()
        with job.events.open(encoding="utf-8") as stream:
            stream.seek(start)
            rest = ""
            while process.poll() is None:
                if self._stopped.is_set():
                    return "interrupted", False
                time.sleep(0.2)
                text = stream.read()
                if text:
                    *lines, rest = (rest + text).split("\n")
                    for line in lines:
                        results.take(json.loads(line))
                    since = time.monotonic()
                limit = self._limits.seconds if results.collected else COLLECTION_SECONDS
                if time.monotonic() - since > limit:
                    return f"no end after {limit:.0f} s", True
        return "", False


def failed_alone(file: str) -> set[str]:
    """Return what the last run of a file found to fail on the device alone, by its full name."""
    device, cpu = read(Job(file, "hologram").events), read(Job(file, "cpu").events)
    by_test = {id(test): name for name, test in device.tests.items()}
    return {
        by_test[id(on_device)]
        for on_device, on_cpu in pair(device, cpu).values()
        if on_device and on_device.outcome in BAD and not fails(on_cpu)
    }


def not_passed(file: str) -> set[str]:
    """Return the common names of the tests of which cpu has to say what it does."""
    tests = read(Job(file, "hologram").events).tests
    return {common_name(name) for name, test in tests.items() if test.outcome not in GOOD}


def last_line(text: str) -> str:
    """Return what best says why a test failed: the last line of the error's message."""
    lines = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
    named = [line for line in lines if line.partition(":")[0].endswith(("Error", "Exception"))]
    return (named or lines or text.splitlines()[-1:] or [""])[0][:150]


def report(verdicts: list[Verdict], details: Path) -> None:
    """Print what failed on the device alone, and write it with its tracebacks below `outputs`."""
    details.mkdir(parents=True, exist_ok=True)
    with (details / "failures.txt").open("w", encoding="utf-8") as out:
        for v in verdicts:
            for name, test in sorted(v.new.items()):
                out.write(f"==== {v.file}::{name} ({test.outcome})\n{test.text}\n\n")
    for v in verdicts:
        for error in v.errors:
            say(f"ERROR    {v.file}: {error}")
        for name, test in sorted(v.new.items()):
            say(f"FAILED   {v.file}::{name}: {last_line(test.text)}")
        for name in sorted(v.stale):
            say(f"LISTED   {v.file}::{name} does not fail on the device alone")
    (details / "upstream.md").write_text(table(verdicts) + "\n")
    lists = {
        v.file: {
            "passed on the device": v.passed,
            "failed on both": sorted(v.drift),
            "passed on cpu, skipped on the device": sorted(v.skipped_alone),
            "failed on the device alone": sorted(v.new),
            "of these listed": sorted(v.listed),
        }
        for v in verdicts
    }
    (details / "upstream.json").write_text(json.dumps(lists, indent=1) + "\n")
    say(table(verdicts))


def run_files(files: list[str], options: argparse.Namespace, tests: Path) -> list[Verdict]:
    """Run files, two processes at a time at most; judge each when it is through."""
    excuses = read_exceptions((HERE / "exceptions.txt").read_text().splitlines())
    cores = len(os.sched_getaffinity(0))
    threads = max(1, cores // options.jobs)
    runner = Runner(tests, Limits(options.seconds, threads, options.share))
    names = {file: failed_alone(file) if options.failed else None for file in files}
    verdicts: list[Verdict] = []

    def run(file: str) -> float:
        start = time.monotonic()
        runner.run(Job(file, "hologram"), options.expression, names[file])
        if not options.failed:  # of these cpu has said before what it does
            runner.run(Job(file, "cpu"), options.expression, twins=not_passed(file))
        return time.monotonic() - start

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        futures = {file: pool.submit(run, file) for file in files}
        try:
            for file, future in futures.items():
                seconds = future.result()
                device, cpu = (read(Job(file, side).events) for side in SIDES)
                verdicts.append(v := judge(file, device, cpu, excuses))
                say(
                    f"{seconds:6.0f} s {file}: {v.passed} passed, {len(v.drift)} failed on"
                    f" both, {len(v.new)} failed on the device alone, {len(v.listed)} listed"
                )
        except KeyboardInterrupt:
            runner.stop()
            pool.shutdown(cancel_futures=True)
            raise
    return verdicts


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", help="names below PyTorch's test/; without names all")
    parser.add_argument("-k", dest="expression", help="only tests that pytest's -k picks")
    parser.add_argument(
        "--failed", action="store_true", help="only what failed on the device alone the last time"
    )
    parser.add_argument("--seconds", type=float, default=300.0, help="the limit of one test")
    parser.add_argument(
        "--share",
        type=float,
        default=100.0,
        metavar="PERCENT",
        help="run a fixed sample of the tests",
    )
    parser.add_argument("--jobs", type=int, choices=(1, 2), default=2, help="processes at a time")
    parser.add_argument("--report", action="store_true", help="judge what is there; run nothing")
    return parser.parse_args()


def main() -> int:
    """Get the tests, run them, and say what they found."""
    options = arguments()
    files = list(options.files or FILES)
    try:
        tests = fetch()
        unknown = [file for file in files if not (tests / file).is_file()]
        if unknown:
            raise StepError(f"PyTorch {VERSION} has no {', '.join(unknown)} below test/")
    except StepError as error:
        return fail(error)
    if options.report:
        excuses = read_exceptions((HERE / "exceptions.txt").read_text().splitlines())
        known = [f for f in files if Job(f, "hologram").events.exists()]
        verdicts = [
            judge(f, read(Job(f, "hologram").events), read(Job(f, "cpu").events), excuses)
            for f in known
        ]
    else:
        verdicts = run_files(files, options, tests)
    report(verdicts, ROOT / "outputs" / "upstream")
    if options.share < 100.0:
        say(f"a sample of {options.share:g}% of the tests")
    return 0 if all(v.good for v in verdicts) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        say("interrupted; call it again to go on from here")
        sys.exit(130)
