# SPDX-License-Identifier: MIT
"""Builds and tests Hologram on an NVIDIA GPU, in one offline command of less than ten minutes.

    python3.12 tools/gpu_test.py

It needs a Python of 3.11 or later with PyTorch of 2.11 or later (built for CUDA, whose wheels bring
the compiler NVRTC; before 2.13 nothing is deferred, so the benchmarks are of eager kernels), numpy,
pytest and expecttest, and to build: a C++ compiler, cmake, ninja, scikit-build-core, nanobind, and
the headers of Highway and Xbyak (HOLOGRAM_DEPENDENCY_PREFIX where they are elsewhere). Nothing is
fetched, and nothing is installed outside of build/gpu_test. With pytest-xdist the suites run in
several processes.

Every step runs whatever became of those before. Results are in outputs/gpu_test/report.json and
report.md, and the exit status is 0 only if no step failed. `--fake` does the same over the fake of
CUDA (tests/fake_cuda), on a machine without a GPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import opencl_drivers  # noqa: E402

WORK = ROOT / "build" / "gpu_test"
SITE = WORK / "site"
STEPS = ["build", "devices", "kernels", "conformance", "programs", "sanitizer", "benchmarks"]
TAIL = 3000  # characters of a step's output in the reports
RAN = re.compile(r"\b[1-9]\d* passed|\[  PASSED  \] [1-9]|'programs': [1-9]")
PASSED = re.compile(r"\d+ passed.*|\[  PASSED  \].*|\d+ failures, .*")

# A program for compute-sanitizer: fused chains, views, rows and columns, products, every float
# dtype, memory that is reused.
WATCHED = """
import torch, hologram_torch
for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
    for n in (1, 63, 64, 65, 10_000):
        x = torch.linspace(-2, 2, n, dtype=dtype)
        y = x.to("hologram:1")
        found = ((y.exp() + y) * y - 1).relu().flip(0)
        torch.testing.assert_close(found.cpu(), ((x.exp() + x) * x - 1).relu().flip(0))
        z = y.repeat(3, 1).t()
        torch.testing.assert_close((z * 2 + z).cpu(), (x * 3).repeat(3, 1).t())
    for shape in ((3, 20), (40, 301), (2, 9_000), (9_000, 5)):
        x = torch.randn(shape).to(dtype)
        y = x.to("hologram:1")
        for work in (
            lambda t: t.sum(0), lambda t: t.sum(1), lambda t: t.softmax(0), lambda t: t.softmax(1),
            lambda t: t.t() + t.t().contiguous(), lambda t: t.argmax(1), lambda t: t.max(0).values,
            lambda t: torch.nn.functional.layer_norm(t, t.shape[1:]), lambda t: t[:, :3].t() @ t,
            lambda t: torch.cat([t, t[:, 1:]], 1), torch.nn.functional.gelu,
        ):
            torch.testing.assert_close(work(y).cpu(), work(x), rtol=5e-2, atol=5e-2)
print("1 passed")
"""

DEVICES = """
import torch, hologram, hologram_torch
print(hologram.backend.why_unavailable("cuda") or torch.hologram.get_device_properties(1))
assert torch.hologram.get_device_properties(1).backend == "cuda"
assert (torch.arange(4.0, device="hologram:1") * 2).tolist() == [0.0, 2.0, 4.0, 6.0]
print("1 passed")
"""


@dataclasses.dataclass
class Outcome:
    """What became of a step."""

    name: str
    state: str  # "passed", "FAILED" or "not run"
    summary: str = ""
    seconds: float = 0.0
    output: str = ""  # its end, of a step that failed


class GpuTest:
    """The steps, and what became of them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.outcomes: list[Outcome] = []
        self.rows: list[dict[str, object]] = []  # of the benchmarks
        self.end = time.monotonic() + 60 * options.minutes
        self.log = WORK / "log"
        WORK.mkdir(parents=True, exist_ok=True)

    def environment(self) -> dict[str, str]:
        """Return the environment of every step."""
        paths = (
            [str(ROOT / "tests")] if self.options.installed else [str(SITE), str(ROOT / "tests")]
        )
        env = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
        env.setdefault("CUDA_VISIBLE_DEVICES", "0")
        if self.options.fake:
            env |= opencl_drivers.environment(opencl_drivers.FAKE_CUDA, self.log)
            for name, library in (
                ("CUDA", "cuda"),
                ("NVRTC", "nvrtc"),
                ("CUBLASLT", "cublaslt"),
            ):
                env[f"HOLOGRAM_{name}_LIBRARY"] = str(self.tests() / f"lib{library}_fake.so")
        else:
            env["HOLOGRAM_DEVICES"] = "cpu,cuda"
        return env

    def tests(self) -> Path:
        """Return the folder of the C++ tests."""
        if self.options.installed:
            return opencl_drivers.FAKES
        return WORK / "hologram" / "core" / "tests"

    # --- Steps -----------------------------------------------------------------------------------

    def run(self, name: str, command: list[str], limit: float, **more: str) -> str:
        """Run tests as a step, for at most `limit` seconds; return their output."""
        left = self.end - time.monotonic()
        if left < 5:
            self.note(name, "not run", "no time was left")
            return ""
        limit = min(limit, left)
        print(f"         {name} ...", flush=True)
        start = time.monotonic()
        before = len(opencl_drivers.complaints(self.log))
        process = subprocess.Popen(
            command, cwd=ROOT, env=self.environment() | more, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            output = process.communicate(timeout=limit)[0].decode(errors="replace")
            how = "" if process.returncode == 0 else f"exit status {process.returncode}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output = process.communicate()[0].decode(errors="replace")
            how = f"it took more than {limit:.0f} s"
        if not how and not name.startswith("build") and not RAN.search(output):
            how = "nothing ran"
        if said := opencl_drivers.complaints(self.log)[before:]:
            how, output = how or "the driver complains", output + said
        found = PASSED.findall(output)
        summary = ", ".join(filter(None, [how, found[-1] if found else ""]))
        (WORK / f"{name.replace(' ', '_')}.log").write_text(output)
        self.note(name, "FAILED" if how else "passed", summary, time.monotonic() - start, output)
        return output

    def note(
        self, name: str, state: str, summary: str, seconds: float = 0.0, output: str = ""
    ) -> None:
        """Keep what became of a step."""
        kept = output[-TAIL:] if state == "FAILED" else ""
        self.outcomes.append(Outcome(name, state, summary, round(seconds, 1), kept))
        print(f"{seconds:6.1f} s {name}: {state}{', ' if summary else ''}{summary}", flush=True)

    def build(self) -> None:
        """Build both distributions into build/gpu_test/site, and the C++ tests."""
        if self.options.installed:
            self.note("build", "not run", "what is installed is tested")
            return
        pip = [sys.executable, "-m", "pip", "install", "-v", "--no-index", "--no-deps", "--upgrade"]
        pip += ["--no-build-isolation", "--target", str(SITE)]
        define = "--config-settings=cmake.define."
        defines = [f"{define}HOLOGRAM_BUILD_TESTS={'ON' if has_gtest() else 'OFF'}"]
        if prefix := os.environ.get("HOLOGRAM_DEPENDENCY_PREFIX"):
            defines.append(f"{define}HOLOGRAM_DEPENDENCY_PREFIX={prefix}")
        quiet = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        for name, folder, more in (
            ("hologram", "python", defines),
            ("hologram-torch", "torch", []),
        ):
            place = f"--config-settings=build-dir={WORK / name}"
            self.run(f"build {name}", [*pip, place, *more, f"./{folder}"], 420, **quiet)
        if has_gtest():
            command = ["cmake", "--build", str(WORK / "hologram"), "--parallel"]
            self.run("build the C++ tests", command, 240)
        else:
            self.note("build the C++ tests", "not run", "GoogleTest is missing")

    def devices(self) -> None:
        """Look whether hologram:1 is a CUDA device that computes."""
        self.run("the device", [sys.executable, "-c", DEVICES], 60)

    def kernels(self) -> None:
        """Compare generated kernels with the CPU: each row and dtype, conversions, random ones."""
        if not (self.tests() / "opencl_test").exists():
            self.note("kernels against the cpu", "not run", "the C++ tests were not built")
            return
        # The fake runs them on the machine's OpenCL: they are too large for an interpreter.
        command = [str(self.tests() / "opencl_test")]
        self.run("kernels against the cpu", command, 150, HOLOGRAM_OPENCL_LIBRARY="")

    def conformance(self) -> None:
        """Run the suites of a second device."""
        pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not heavy"]
        if importlib.util.find_spec("xdist"):  # compiling kernels takes most of the time
            pytest += ["-n", str(min(8, len(os.sched_getaffinity(0))))]
        self.run("the SDK on the device", [*pytest, "tests/sdk/test_opencl.py"], 60)
        suite = "tests/torch/device/test_second_device.py"
        self.run("PyTorch on the device", [*pytest, suite], 150)
        layers = "tests/torch/device/test_second_device_layers.py"
        self.run("its layers on the device", [*pytest, layers], 150)

    def programs(self) -> None:
        """Run random programs, deferred against eager."""
        script = ROOT / "tests" / "torch" / "programs" / "test_programs.py"
        count = 40 if self.options.fake else 400
        command = [sys.executable, str(script), "--driver", opencl_drivers.CUDA]
        self.run("random programs", [*command, "--programs", str(count)], 120)

    def sanitizer(self) -> None:
        """Run a program under compute-sanitizer."""
        tool = shutil.which("compute-sanitizer")
        if tool is None or self.options.fake:
            why = "the fake has no machine code" if tool else "it is not on PATH"
            self.note("compute-sanitizer", "not run", why)
            return
        for check in ("memcheck", "racecheck", "initcheck"):
            command = [
                tool,
                "--tool",
                check,
                "--error-exitcode",
                "9",
                sys.executable,
                "-c",
                WATCHED,
            ]
            self.run(f"compute-sanitizer {check}", command, 90)

    def benchmarks(self) -> None:
        """Measure beside PyTorch's CUDA."""
        left = max(10.0, min(150.0, self.end - time.monotonic() - 10))
        results = WORK / "benchmarks.json"
        results.unlink(missing_ok=True)
        command = [sys.executable, str(ROOT / "tools" / "gpu_bench.py"), str(results)]
        command += ["--seconds", f"{left - 5:.0f}", *(["--small"] if self.options.fake else [])]
        self.run("benchmarks", command, left)
        if results.exists():
            self.rows = json.loads(results.read_text())

    def run_all(self) -> None:
        """Run the steps that were asked for, in order; none keeps the next from running."""
        for name in self.options.only.split(",") if self.options.only else STEPS:
            act = getattr(self, name)
            try:
                act()
            except Exception as error:
                self.note(name, "FAILED", f"{type(error).__name__}: {error}")

    # --- Reports ---------------------------------------------------------------------------------

    def report(self, out: Path) -> bool:
        """Write both reports; return whether nothing failed."""
        machine = describe(self.options.fake)
        failed = [o.name for o in self.outcomes if o.state == "FAILED"]
        out.mkdir(parents=True, exist_ok=True)
        everything = {
            "machine": machine,
            "failed": failed,
            "steps": [dataclasses.asdict(o) for o in self.outcomes],
            "benchmarks": self.rows,
        }
        (out / "report.json").write_text(json.dumps(everything, indent=1) + "\n")
        lines = ["# Hologram on CUDA", ""]
        lines += [f"{'FAILED: ' + ', '.join(failed) if failed else 'No step failed.'}", ""]
        lines += [f"- {name}: {value}" for name, value in machine.items()]
        lines += ["", "| step | result | seconds | |", "|---|---|---|---|"]
        lines += [f"| {o.name} | {o.state} | {o.seconds} | {o.summary} |" for o in self.outcomes]
        if self.rows:
            lines += ["", *bench_table(self.rows)]
        for o in self.outcomes:
            if o.output:
                lines += ["", f"## {o.name}", "", "```", o.output, "```"]
        (out / "report.md").write_text("\n".join(lines) + "\n")
        print(f"\n{lines[2]}\n{out / 'report.md'}\n{out / 'report.json'}")
        return not failed


def bench_table(rows: list[dict[str, object]]) -> list[str]:
    """Return the benchmarks as a table of Markdown."""

    def cell(value: object) -> str:
        return f"{value:.3g}" if isinstance(value, float) else str(value or "")

    names = ("name", "state", "us", "eager_us", "compiled_us", "times_eager", "times_compiled",
             "host_kernels")  # fmt: skip
    heads = ("row", "result", "us", "eager us", "compiled us", "times eager", "times compiled",
             "left to the host")  # fmt: skip
    lines = [
        "Microseconds of a run on hologram:1, by PyTorch's eager CUDA and by torch.compile, and how"
        " many times as fast hologram:1 is. A row is timed only where its results are the cpu's.",
        "",
        "| " + " | ".join(heads) + " |",
        "|" + "---|" * len(heads),
    ]
    for row in rows:
        notes = [f"{side} {row[f'{side}_state']}" for side in ("eager", "compiled")
                 if f"{side}_state" in row]  # fmt: skip
        shown = row | {"state": "; ".join([str(row["state"]), *notes])}
        lines.append("| " + " | ".join(cell(shown.get(n)) for n in names) + " |")
    return lines


def has_gtest() -> bool:
    """Whether C++ can include GoogleTest."""
    compiler = os.environ.get("CXX") or "c++"
    probe = subprocess.run(
        [compiler, "-E", "-x", "c++", "-", "-o", os.devnull],
        input="#include <gtest/gtest.h>\n", text=True, capture_output=True,
    )  # fmt: skip
    return probe.returncode == 0


def describe(fake: bool) -> dict[str, str]:
    """Return what the machine has."""

    def ask(*command: str) -> str:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"not known ({error})"
        return done.stdout.strip() or f"not known ({done.stderr.strip()[-200:]})"

    query = "--query-gpu=name,driver_version,memory.total,compute_cap"
    versions = "import torch; print(torch.__version__, 'for CUDA', torch.version.cuda)"
    return {
        "GPU": "the fake" if fake else ask("nvidia-smi", query, "--format=csv,noheader"),
        "PyTorch": ask(sys.executable, "-c", versions),
        "Python": platform.python_version(),
        "system": f"{platform.platform()}, {len(os.sched_getaffinity(0))} processors",
        "Hologram": ask("git", "describe", "--always", "--dirty"),
        "when": time.strftime("%Y-%m-%d %H:%M:%S %Z"),
    }


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fake", action="store_true", help="over the fake of CUDA")
    parser.add_argument(
        "--installed", action="store_true", help="test what this Python has and `make` has built"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "outputs" / "gpu_test")
    parser.add_argument("--minutes", type=float, default=9.5, help="for all steps together")
    parser.add_argument("--only", default="", help=f"some of {','.join(STEPS)}")
    return parser.parse_args(arguments)


def main() -> int:
    """Run what the command line asks for."""
    test = GpuTest(parse(sys.argv[1:]))
    test.run_all()
    return 0 if test.report(test.options.out) else 1


if __name__ == "__main__":
    sys.exit(main())
