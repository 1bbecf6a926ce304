# SPDX-License-Identifier: MIT
"""The suite of measurements: wrong results fail, the arithmetic is right, files are whole."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench import __main__ as command  # noqa: E402
from bench import render, selfcheck  # noqa: E402
from bench.areas import op_table, single_ops  # noqa: E402
from bench.context import Context  # noqa: E402
from bench.core import (  # noqa: E402
    AREAS,
    Case,
    Goal,
    Row,
    Side,
    Spread,
    Work,
    geometric_mean,
    make_side,
)
from bench.inputs import expression_work, number_of_sets  # noqa: E402
from bench.machine import Bandwidth, busy_cores, cores  # noqa: E402
from bench.measure import Timing, compare, mean_time, time_batch  # noqa: E402
from bench.verify import VerificationError, verify  # noqa: E402

FAST = Timing(min_time=0.001, batch_time=1e-5, min_pairs=3, max_pairs=5)


def make_context(**changes) -> Context:
    context = Context("cpu", quick=True, threads=[1], timing=FAST, **changes)
    context.sizes = [1_000]
    return context


@pytest.fixture(autouse=True)
def _keep_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # OpenMP's barriers take milliseconds when the machine is busy
    yield
    torch.set_num_threads(before)


# --- verification ------------------------------------------------------------------------------


def test_equal_results_pass():
    x = torch.tensor([1.0, math.nan, math.inf, -0.0])
    verify("x", x, x.clone())
    verify("x", [x, (x,)], [x, (x,)], oracle=[x.double(), x.double()])


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.001])),
        (torch.tensor([math.nan]), torch.tensor([1.0])),
        (torch.tensor([math.inf]), torch.tensor([-math.inf])),
        (torch.tensor([1.0]), torch.tensor([1.0, 1.0])),
        (torch.tensor([1.0]), torch.tensor([1.0]).double()),
        (torch.tensor([1]), torch.tensor([2])),
        (torch.tensor([True]), torch.tensor([False])),
        ([torch.ones(1)], [torch.ones(1), torch.ones(1)]),
    ],
)
def test_different_results_fail(wrong, right):
    with pytest.raises(VerificationError):
        verify("x", wrong, right)


def test_oracle_decides_and_forgives_what_the_peer_is_off():
    truth = torch.tensor([1.0]).double()
    right, wrong = torch.tensor([1.0]), torch.tensor([1.01])
    verify("x", right, wrong, truth)
    verify("x", torch.tensor([1.015]), wrong, truth)
    with pytest.raises(VerificationError):
        verify("x", wrong, right, truth)


def test_large_results_are_sampled_at_both_ends():
    right = torch.zeros(3_000_000)
    for place in (0, -1):
        wrong = right.clone()
        wrong[place] = 1
        with pytest.raises(VerificationError):
            verify("x", wrong, right)


def test_a_wrong_case_has_a_fault_and_no_time():
    def build(side: Side) -> Work:
        return Work(lambda: torch.full((4,), 1.0))

    def peer(side: Side) -> Work:
        return Work(lambda: torch.full((4,), 2.0))

    row = make_context().row("single", Case("x", build, peer=peer, goal=Goal(0.95)), 1)
    assert row.fault.startswith("wrong result")
    assert math.isnan(row.value)
    assert row.below_goal


def test_an_exception_is_a_fault_and_others_go_on():
    def broken(side: Side) -> Work:
        raise RuntimeError("no such kernel\nmore")

    def cases():
        yield Case("bad", broken, size=1)
        yield Case("good", lambda side: Work(lambda: torch.ones(2)), size=2)

    bad, good = make_context().rows("single", cases)
    assert bad.fault == "RuntimeError: no such kernel"
    assert not good.fault
    assert good.value > 0


def test_a_wrong_result_makes_the_command_fail(monkeypatch, tmp_path):
    def wrong(context):
        yield context.row(
            "overhead",
            Case(
                "x",
                lambda s: Work(lambda: torch.ones(1)),
                peer=lambda s: Work(lambda: torch.zeros(1)),
            ),
            1,
        )

    monkeypatch.setattr(Bandwidth, "measure", lambda threads: Bandwidth({}))
    area = AREAS["overhead"]
    monkeypatch.setitem(AREAS, "overhead", type(area)(area.name, area.title, wrong, None))
    file = tmp_path / "r.json"
    arguments = ["--device", "cpu", "--area", "overhead", "--json", str(file), "--no-plots"]
    assert command.main(arguments) == 1
    assert "wrong result" in file.with_suffix(".md").read_text()


# --- timing ------------------------------------------------------------------------------------


def test_batches_count_operations_and_keep_results_until_synchronised():
    alive = []

    class Result:
        def __init__(self):
            alive.append(self)

    def run():
        alive.clear()
        return [Result() for _ in range(4)]

    seen = []
    side = Side(torch.device("cpu"), lambda: seen.append(len(alive)))
    ticks = iter([0, 8_000])
    seconds = time_batch(Work(run, ops=4), side, 2, clock=lambda: next(ticks))
    assert seconds == pytest.approx(1e-6)
    assert seen == [4, 4]


def test_sides_take_turns():
    order = []
    side = make_side("cpu")
    compare(Work(lambda: order.append("a")), side, Work(lambda: order.append("b")), side, FAST)
    turns = re.findall(r"a+|b+", "".join(order))
    assert len(turns) >= 2 * FAST.min_pairs


def test_ratio_is_that_of_the_work():
    side = make_side("cpu")
    short, long = range(2_000), range(8_000)
    result = compare(
        Work(lambda: sum(short)), side, Work(lambda: sum(long)), side, Timing(0.02, 5e-4)
    )
    assert 2.0 < result.reference.median / result.value.median < 8.0
    assert mean_time(Work(lambda: sum(short)), side, 0.002) > 0


def test_spread():
    spread = Spread.of([4.0, 1.0, 3.0, 2.0, 5.0])
    assert spread == Spread(3.0, 2.0, 4.0, 5, 1.0)
    assert Spread.of([7.0]) == Spread(7.0, 7.0, 7.0, 1, 7.0)
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert math.isnan(geometric_mean([]))


def test_expressions_use_distinct_inputs_and_fresh_results():
    side = make_side("cpu")
    sets = [[torch.full((2,), float(i))] for i in range(3)]
    results = expression_work("x + 1", ["x"], sets, side, 8).run()
    assert [r[0].item() for r in results] == [1.0, 2.0, 3.0]
    assert len({r.data_ptr() for r in results}) == 3
    waits = []
    large = expression_work(
        "x + 1", ["x"], sets, Side(side.device, lambda: waits.append(1)), 1 << 20
    )
    assert large.run()[0].item() == 3.0
    assert len(waits) == 3
    assert expression_work("torch.ones(2)", [], [[]] * 2, side, 8).outputs().tolist() == [1, 1]
    assert number_of_sets(1) == 64
    assert number_of_sets(1 << 30) == 2


def test_busy_processes_end():
    with busy_cores():
        children = Path("/proc/self/task").glob("*/children")
        running = " ".join(c.read_text() for c in children).split()
        assert len(running) >= len(cores())
    assert not any(Path(f"/proc/{pid}/stat").exists() for pid in running[: len(cores())])


# --- cases, goals and reports --------------------------------------------------------------------


def test_every_row_of_the_op_table_is_measured_or_excused():
    assert set(op_table.table_rows()) - set(op_table.ELEMENTWISE) == set()
    assert set(op_table.ELEMENTWISE) - set(op_table.table_rows()) == set()


@pytest.mark.parametrize("name", list(op_table.all_ops()))
def test_single_ops_agree_with_float64_on_cpu(name):
    context = make_context()
    case = single_ops.make_case(context, name, op_table.all_ops()[name], 1_000, torch.float32)
    row = context.row("single", case, 1)
    assert not row.fault
    assert row.bytes >= 4_000
    assert row.ratio > 0


@pytest.mark.parametrize("name", ["overhead", "training", "copies", "fallback"])
def test_areas_run_on_cpu(name):
    rows = list(AREAS[name].measure(make_context()))
    assert rows
    assert [r.fault for r in rows if r.fault] == []


def test_goals():
    row = Row("single", "x", value=1.0, reference=0.9, goal=Goal(0.95))
    assert row.below_goal
    row.reference = 0.96
    assert not row.below_goal
    slow = Row("load", "x", value=3.5, reference=800.0, unit="x", goal=Goal(3.0, "most"))
    assert slow.below_goal
    assert [r.name for r in render.below_target([row, slow])] == ["x"]
    assert Row("single", "x", fault="wrong result: x").below_goal


def test_reports_round_trip_and_list_losses(tmp_path):
    rows = [
        Row("single", "add", 2e-6, 1e-6, size=1_000, threads=1, goal=Goal(0.95), group="add"),
        Row("single", "add", 1e-6, 2e-6, size=10_000, threads=1, goal=Goal(0.95), group="add"),
        Row("single", "mul", size=1_000, threads=1, fault="wrong result: mul", group="mul"),
    ]
    rows[0].spread = Spread(2e-6, 1e-6, 3e-6, 5, 1e-6)
    text = render.to_json({"device": "hologram"}, {}, rows, single_ops.summarize(rows[:2]))
    machine, settings, again, summaries = render.from_json(text)
    assert [render.label(r) for r in again] == [render.label(r) for r in rows]
    assert again[0].spread == rows[0].spread
    assert again[0].goal == rows[0].goal
    assert "NaN" not in text
    report = render.to_markdown(machine, settings, again, summaries)
    closing = report[report.index("## Below target") :]
    assert "wrong result: mul" in closing
    assert "0.50x" in closing
    assert "2.00x" not in closing.replace("goal", "").split("geometric")[0]
    with pytest.raises(ValueError, match="format"):
        render.from_json(json.dumps({"format": 99}))


def test_results_are_written_whole_or_not_at_all(tmp_path, monkeypatch):
    file = tmp_path / "deep" / "r.json"
    render.write_atomically(file, "old")

    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        render.write_atomically(file, "new")
    assert file.read_text() == "old"
    assert list(file.parent.iterdir()) == [file]


def test_bandwidth_is_interpolated():
    curve = Bandwidth({1: [(1_000, 1e9), (4_000, 4e9)]})
    assert curve.seconds(1_000, 1) == pytest.approx(1e-6)
    assert curve.seconds(2_000, 1) == pytest.approx(1e-6)
    assert curve.seconds(8_000, 1) == pytest.approx(2e-6)
    assert curve.seconds(100, 1) == pytest.approx(1e-7)
    assert math.isnan(curve.seconds(100, 2))
    assert math.isnan(curve.seconds(0, 1))
    measured = Bandwidth.measure([1], largest=1 << 16)
    assert 1e-8 < measured.seconds(1 << 16, 1) < 1e-2


def test_self_check_passes_ones_and_fails_bias_and_faults(capsys):
    def rows(ratio, count=20):
        return [Row("single", f"op{i}", 1.0, ratio, unit="x") for i in range(count)]

    assert selfcheck.check(rows(1.0)) == 0
    assert selfcheck.check(rows(1.03)) == 1
    assert selfcheck.check(rows(1.0, 16) + rows(1.3, 2) + rows(1 / 1.3, 2)) == 1
    assert selfcheck.check([*rows(1.0), Row("single", "x", fault="wrong result")]) == 1
    assert selfcheck.check([]) == 1
    assert "unbiased" in capsys.readouterr().out


def test_plots(tmp_path):
    pytest.importorskip("matplotlib")
    from bench.plots import draw

    rows = [
        Row("single", "add", 1e-6, 2e-6, size=s, threads=1, group="add", limit=5e-7)
        for s in (1_000, 10_000)
    ]
    files = draw(rows, tmp_path, "hologram")
    assert len(files) == 2
    assert all(f.read_bytes().startswith(b"\x89PNG") for f in files)
    assert sorted(tmp_path.iterdir()) == sorted(files)


@pytest.mark.parametrize(
    "arguments", [["--threads", "0"], ["--threads", "x"], ["--min-time", "0"], ["--area", "none"]]
)
def test_bad_options_are_refused(arguments, capsys):
    with pytest.raises(SystemExit) as error:
        command.parse(arguments)
    assert error.value.code == 2
    assert arguments[0] in capsys.readouterr().err


def test_unknown_device_is_a_plain_error(capsys):
    assert command.main(["--device", "nonsense"]) == 2
    assert "--device nonsense" in capsys.readouterr().err


def test_interrupt_keeps_what_was_measured(monkeypatch):
    def interrupted(context):
        yield Row("overhead", "x", 1.0, 2.0)
        raise KeyboardInterrupt

    area = AREAS["overhead"]
    monkeypatch.setitem(AREAS, "overhead", type(area)(area.name, area.title, interrupted, None))
    rows, _, stopped = command.measure(make_context(), ["overhead"])
    assert stopped
    assert [r.name for r in rows] == ["x"]


def test_module_runs_as_a_command():
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--help"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "--self-check" in done.stdout
