# SPDX-License-Identifier: MIT
"""The suite's runs: all that is timed was run, training is compared, cores, budgets, processes."""

from __future__ import annotations

import importlib
import itertools
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from bench_support import (  # noqa: F401
    FAST,
    ROOT,
    comes_true,
    keep_threads,
    make_context,
    without_compile,
)

from bench import __main__ as command
from bench import (
    facts,
    headline,
    render,
    rounding,
    runner,
    training,
)
from bench.budget import BUDGET, Budget, share_of, total_seconds
from bench.child import Config
from bench.context import Context
from bench.core import (
    AREAS,
    Case,
    Goal,
    Peer,
    Row,
    Setting,
    Side,
    Work,
    make_side,
)
from bench.machine import cores
from bench.measure import Timing, take_turns
from bench.results import Results, read
from bench.verify import VerificationError

# --- all that is timed was run --------------------------------------------------------------------


def deferring_context() -> Context:
    hologram_torch = pytest.importorskip("hologram_torch")
    if not hologram_torch._C.can_defer:
        pytest.skip("this PyTorch does not let ops wait")
    return make_context("hologram")


def sums(run, one) -> Case:
    """Return a case that adds on the device; `run` is given 64 pairs and the first of them."""

    def build(side: Side) -> Work:
        pairs = [[torch.full((16,), float(2 * n + k)) for k in range(2)] for n in range(64)]
        pairs = [[t.to(side.device) for t in pair] for pair in pairs]
        return Work(lambda: run(pairs), 64, lambda: one(*pairs[0]), lambda: one(*pairs[0]))

    return Case("sums", build, size=16)


def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y


def keep_the_last(pairs):
    for x, y in pairs:
        kept = x + y
    return kept


def write_one_buffer(pairs):
    out = torch.empty_like(pairs[0][0])
    for x, y in pairs:
        torch.add(x, y, out=out)
    return out


def test_distinct_work_whose_results_live_is_measured():
    row = deferring_context().row("sdk", sums(lambda pairs: [x + y for x, y in pairs], add))
    assert not row.fault
    assert row.value > 0


@pytest.mark.parametrize(
    "run",
    [lambda pairs: [pairs[0][0] + pairs[0][1] for _ in pairs], keep_the_last, write_one_buffer],
    ids=["merged", "dying", "overwritten"],
)
def test_work_that_is_merged_or_dead_is_refused(run):
    row = deferring_context().row("sdk", sums(run, add))
    assert row.fault.startswith("wrong result: sums: 64 operations run 1 steps 'add'")
    assert math.isnan(row.value)


@pytest.mark.parametrize("name", ["sdk", "borders", "overhead", "chains", "copies", "functional"])
@pytest.mark.usefixtures("without_compile")
def test_every_row_of_an_area_runs_all_that_it_times(name):
    rows = list(AREAS[name].measure(deferring_context()))
    assert [(r.name, r.size, r.fault) for r in rows if r.fault] == []
    assert [r.skipped for r in rows if r.skipped and "NumPy refuses it" not in r.skipped] == []


# --- training -------------------------------------------------------------------------------------


def changed(**options) -> list[torch.Tensor]:
    """Return losses and weights of the MLP, trained with other options of its optimizer."""
    mlp = training.digits_mlp()
    return training.step_work(make_side("cpu"), mlp, **options).outputs()


@pytest.fixture(scope="module")
def mlp_check():
    return training.comparison(training.digits_mlp())


@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}])
def test_what_rounding_explains_passes(options, mlp_check):
    mlp_check(changed(**options), make_side("cpu"))


def test_a_training_run_that_is_off_fails(mlp_check):
    side, right = make_side("cpu"), changed()
    steps = training.digits_mlp().checked_steps

    def refused(outputs: list[torch.Tensor], match: str) -> None:
        with pytest.raises(VerificationError, match=match):
            mlp_check(outputs, side)

    refused(changed(betas=(0.9, 0.9995)), "the loss of step")
    refused(changed(eps=1e-6), "rounding explains")
    refused([*right[1:steps], right[steps - 1], *right[steps:]], "the loss of step 0")
    off = [*right]
    off[steps - 1] = off[steps - 1] * 1.0001
    refused(off, f"the loss of step {steps - 1}")
    off[steps - 1] = torch.tensor(math.nan)
    refused(off, f"the loss of step {steps - 1}")
    off = [*right]
    off[steps] = off[steps].clone()
    off[steps][0, 0] += 1e-3
    refused(off, "the weights are")
    refused(right[:-1], "weights instead of")


def test_training_on_the_device_has_the_bits_of_the_eager_mode():
    side, mlp = deferring_context().side, training.digits_mlp()
    check = training.comparison(mlp)
    right = training.step_work(side, mlp).outputs()
    check(right, side)
    for at in (2, mlp.checked_steps + 1):
        off = [t.cpu() for t in right]
        flat = off[at].reshape(-1).clone()
        flat[0] = torch.nextafter(flat[0], torch.tensor(math.inf))
        off[at] = flat.reshape(off[at].shape)
        with pytest.raises(VerificationError, match="other bits than in the eager mode"):
            check(off, side)


def test_moved_weights_are_neighbours():
    before = torch.randn(1_000, generator=torch.Generator().manual_seed(0))
    weights = before.clone()
    rounding.move([weights], 1)
    assert 0.5 < (weights != before).float().mean() < 0.8
    up, down = (torch.nextafter(before, torch.full_like(before, w)) for w in (math.inf, -math.inf))
    assert ((weights == before) | (weights == up) | (weights == down)).all()


# --- settings, budgets, processes -----------------------------------------------------------------


def test_settings_are_of_cores(monkeypatch):
    monkeypatch.setattr(command, "cores", lambda: [0, 2, 4])
    one, two, whole, beside = (
        Setting(1, 1),
        Setting(2, 2),
        Setting(3, 3),
        Setting(3, 1),
    )
    assert command.settings_of(["all", "1"]) == [one, whole]
    assert command.settings_of(["one-thread", "2", "1", "all"]) == [one, two, whole, beside]
    assert [s.label for s in (one, whole, beside)] == ["1 core", "3 cores", "1 thread, 3 cores"]
    with pytest.raises(ValueError, match="4 cores are asked for, and this process may use 3"):
        command.settings_of(["4"])
    monkeypatch.setattr(command, "cores", lambda: [3])
    assert command.settings_of(["1", "all"]) == [one]


def test_default_budgets_end_within_ten_minutes():
    importlib.import_module("bench.areas")
    assert sum(map(share_of, AREAS)) <= 1.0 + share_of("an area that is not named")
    assert total_seconds() <= 540


def test_rows_share_the_budget_and_none_is_dropped():
    now = itertools.count()
    context = make_context()
    context.budget = Budget(3.5, clock=lambda: float(next(now)) / 2)
    planned = []
    context.plan = planned.extend
    cases = [
        Case(f"op{n}", lambda side: Work(lambda: torch.ones(2)), size=n, goal=Goal(0.95))
        for n in range(12)
    ]
    rows = list(context.rows("single", cases))
    assert [r.name for r in rows] == [r.name for r in planned] == [c.name for c in cases]
    measured = [r.name for r in rows if not r.skipped]
    assert measured == [c.name for c in cases[: len(measured)]]
    assert 0 < len(measured) < len(cases)
    late = rows[len(measured) :]
    assert {r.skipped for r in late} == {BUDGET}
    assert not any(r.below_goal or r.fault for r in late)
    report = render.to_markdown(Results({"device": "cpu"}, rows=rows, whole=True))
    assert all(f"single: {r.name}" in report for r in late)
    assert f"{len(late)} of 12 rows were not measured" in report


def test_a_spent_budget_leaves_out_what_must_compile():
    context = make_context()
    spent = iter([0.0, *itertools.repeat(1.05, 100)])
    context.budget = Budget(1.0, clock=lambda: next(spent))

    def peer() -> tuple[Work, Side]:
        return Work(lambda: torch.ones(2)), make_side("cpu")

    named = [Peer("costly", peer, is_costly=True), Peer("cheap", peer)]
    row = context.row("single", Case("x", lambda s: Work(lambda: torch.ones(2)), peers=named))
    assert row.peers["costly"].reason == BUDGET
    assert row.ratio_to("cheap") > 0
    assert row.spread.count == FAST.min_pairs


def test_time_that_is_up_leaves_three_turns_at_least():
    timing = Timing(min_time=100.0, batch_time=1e-6)
    assert timing.within(-1.0, 2).min_time == 0.001
    assert timing.within(1e9, 2).min_time == 100.0
    assert timing.within(10.0, 4).min_time == 5.0
    side = make_side("cpu")
    both = [(Work(lambda: 1), side), (Work(lambda: 2), side)]
    assert [len(turns) for turns in take_turns(both, timing.within(0.0, 2))] == [3, 3]


def test_the_table_is_over_all_rows():
    def row(area: str, name: str, ratio: float, size: int, cores: int, **more) -> Row:
        return Row(area, name, 1.0, ratio, size=size, cores=cores, threads=cores, **more)

    rows = [
        row("chains", "a", 2.0, 1_000, 1),
        row("chains", "b", 8.0, 10_000, 1),
        row("chains", "c", 4.0, 10_000, 2),
        row("chains", "d", math.nan, 10_000, 2, skipped=BUDGET),
        row("single", "add", 3.0, 1_000, 2, dtype="bfloat16"),
        row("overhead", "x + y", 1.5, 16, 1),
    ]
    header, body = headline.table(Results({"device": "hologram"}, rows=rows))
    assert header == ["work", "1 core", "2 cores"]
    cells = {work: rest for work, *rest in body}
    assert cells["chains, geometric mean of all rows"] == ["4.00x (2 rows)", "4.00x (1 of 2 rows)"]
    assert cells["single ops, geometric mean of all rows"] == ["-", "3.00x"]
    assert cells["x + y of 16 elements, from Python"] == ["1.50x", "-"]


@pytest.mark.usefixtures("without_compile")
def test_every_row_of_the_table_has_rows_in_its_area():
    context = make_context()
    context.quick, context.whole, context.sizes = False, False, [1_000]
    planned: list[Row] = []
    context.plan = planned.extend
    context._measure = lambda row, case: None
    for name in (
        "overhead",
        "single",
        "chains",
        "training",
        "inference",
        "models",
        "sizes",
        "graphs",
    ):
        list(AREAS[name].measure(context))
    for work, figures in headline.TABLE:
        for figure in figures[:1] if "/ 10K" in work else figures:
            assert any(r.area == figure.area and figure.match(r) for r in planned), work


def test_what_peers_pick_is_read_from_what_they_say():
    intel = (
        "MKL_VERBOSE oneMKL 2024.0 Update 2 Product build 20240513 for Intel(R) 64 architecture "
        "Intel(R) Advanced Vector Extensions 512 (Intel(R) AVX-512) with support for INT8, "
        "BF16, FP16 and AMX, Lnx 2.0GHz lp64 gnu_thread\n"
        "onednn_verbose,v1,info,oneDNN v3.7.1 (commit 8d263e6)\n"
        "onednn_verbose,v1,info,cpu,isa:Intel AVX-512 with Intel AMX\n"
    )
    found = facts.read_verbose(intel)
    assert found["MKL uses AVX-512"] == "yes"
    assert found["oneDNN"] == "v3.7.1, Intel AVX-512 with Intel AMX"
    other = intel.splitlines()[0].replace(
        "Intel(R) Advanced Vector Extensions 512 (Intel(R) AVX-512) with support for INT8, "
        "BF16, FP16 and AMX",
        "Intel(R) Advanced Vector Extensions 2 (Intel(R) AVX2)",
    )
    found = facts.read_verbose(other)
    assert found["MKL uses AVX-512"] == "no"
    assert found["MKL"].endswith("Advanced Vector Extensions 2 (Intel AVX2)")
    assert facts.read_verbose("nothing") == {}


_AREAS = """
import os, signal, time
from pathlib import Path

import torch

from bench.core import Case, Work, area


def fine(row):
    row.value = row.reference = 1.0


@area("threads", "What a process had")
def threads(context):
    def look(row):
        x = torch.ones(1 << 20, device=context.side.device)
        for _ in range(50):
            x = (x * 0.5).cpu().to(context.side.device)
            (x @ x if x.ndim > 1 else torch.ones(300, 300) @ torch.ones(300, 300)).sum()
        tasks = [int(t) for t in os.listdir("/proc/self/task")]
        row.details = {
            "cores": sorted({c for t in tasks for c in os.sched_getaffinity(t)}),
            "torch": torch.get_num_threads(),
            "names": [Path(f"/proc/self/task/{t}/comm").read_text().strip() for t in tasks],
        }
        fine(row)
    yield Case("threads", measure=look)


@area("dies", "A process that is killed")
def dies(context):
    def kill(row):
        os.kill(os.getpid(), signal.SIGKILL)
    for name, measure in (("before", fine), ("deadly", kill), ("after", fine)):
        yield Case(name, measure=measure)


@area("wrong", "A wrong result")
def wrong(context):
    yield Case("x", lambda s: Work(lambda: torch.ones(1)), lambda s: Work(lambda: torch.zeros(1)))


@area("waits", "A row that takes for ever")
def waits(context):
    endless = lambda row: time.sleep(1e6)
    for name, measure in (("quick", fine), ("endless", endless), ("after", fine)):
        yield Case(name, measure=measure)
"""


@pytest.fixture
def areas(tmp_path, monkeypatch):
    """Write a module with areas that processes of the suite can import."""
    (tmp_path / "areas_of_test.py").write_text(_AREAS)
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    return tmp_path


def command_of(folder: Path, *arguments: str) -> list[str]:
    file = str(folder / "r.jsonl")
    fixed = ["--module", "areas_of_test", "--out", file, "--no-plots"]
    return [sys.executable, "-m", "bench", *fixed, *arguments]


def results_of(folder: Path) -> Results:
    with (folder / "r.jsonl").open() as lines:
        return read(lines)


def test_each_process_keeps_to_its_cores_and_a_dead_one_is_named(areas):
    arguments = ["--area", "threads", "dies", "wrong", "--device", "hologram"]
    done = subprocess.run(
        command_of(areas, *arguments), cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1, done.stderr
    results = results_of(areas)
    assert results.whole
    counts = sorted({1, len(cores())})
    threads = [r for r in results.rows if r.area == "threads"]
    assert [(r.cores, r.threads) for r in threads] == [(n, n) for n in counts]
    for row in threads:
        assert row.details["cores"] == cores()[-row.cores :]
        assert row.details["torch"] == row.threads
    # On one core the device runs circuits on the thread that waits for them.
    assert "hologram-worker" not in threads[0].details["names"]
    assert results.processes["1 core"]["worker"] is False
    assert set(results.processes["1 core"]) >= {"isa", "gemm", "torch_threads"}
    for count in counts:
        rows = [r for r in results.rows if r.area == "dies" and r.cores == count]
        assert [r.name for r in rows] == ["before", "deadly", "after"]
        assert rows[0].value == 1.0
        assert rows[1].fault == "the process was ended by SIGKILL"
        assert "in deadly" in rows[2].skipped
    # A process that died is replaced.
    wrong = [r for r in results.rows if r.area == "wrong"]
    assert [r.fault[:12] for r in wrong] == ["wrong result"] * len(counts)
    assert "deadly" in (areas / "r.md").read_text()
    for name in ("torch BLAS", "torch kernels", "numpy BLAS", "machine", "commit", "time"):
        assert results.machine[name], name


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_is_measured_survives_an_interrupt(areas, number, status):
    arguments = ["--area", "waits", "--device", "cpu", "--cores", "1"]
    process = subprocess.Popen(
        command_of(areas, *arguments),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # Programs that a shell started in the background ignore interrupts, and so do their own.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        file = areas / "r.jsonl"
        assert comes_true(lambda: file.exists() and '"name": "quick"' in file.read_text(), 120)
        (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.send_signal(number)
        output, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == status, output
    results = results_of(areas)
    assert [r.name for r in results.rows] == ["quick"]
    assert not results.whole
    assert "was interrupted" in (areas / "r.md").read_text()
    assert "quick" in (areas / "r.md").read_text()
    assert not Path(f"/proc/{child}").exists()


def test_a_row_that_never_ends_is_named_and_the_next_process_goes_on(areas, monkeypatch):
    monkeypatch.setattr(runner, "GRACE_SECONDS", 0.5)
    measurer = runner.Measurer(Setting(1, 1), Config(device="cpu", modules=["areas_of_test"]))
    try:
        rows = list(measurer.measure("waits", 0.5))
        assert [(r.name, r.skipped) for r in rows] == [
            ("quick", ""),
            ("endless", BUDGET),
            ("after", BUDGET),
        ]
        assert {r.setting for r in rows} == {Setting(1, 1)}
        (row,) = measurer.measure("threads", 100.0)
        assert row.value == 1.0
    finally:
        measurer.stop()
