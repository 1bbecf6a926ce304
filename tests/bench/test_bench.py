# SPDX-License-Identifier: MIT
"""The suite of measurements: wrong results fail, the arithmetic is right, files are whole."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
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
    models,
    native,
    peers,
    render,
    selfcheck,
    training,
)
from bench.areas import chains, op_table, reduction, single_ops
from bench.budget import BUDGET
from bench.core import (
    AREAS,
    Case,
    Goal,
    Peer,
    PeerFigure,
    Row,
    Side,
    Spread,
    Unavailable,
    Work,
    geometric_mean,
    make_side,
)
from bench.inputs import expression_work, number_of_sets
from bench.machine import Bandwidth, BusyCores, cores
from bench.measure import Timing, mean_time, take_batches, take_turns, time_batch
from bench.results import Results, Writer, read
from bench.verify import VerificationError, verify

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

    row = make_context().row("single", Case("x", build, peer=peer, goal=Goal(0.95)))
    assert row.fault.startswith("wrong result")
    assert math.isnan(row.value)
    assert row.below_goal


def test_an_exception_is_a_fault_and_others_go_on():
    def broken(side: Side) -> Work:
        raise RuntimeError("no such kernel\nmore")

    def cases():
        yield Case("bad", broken, size=1)
        yield Case("good", lambda side: Work(lambda: torch.ones(2)), size=2)

    bad, good = make_context().rows("single", cases())
    assert bad.fault == "RuntimeError: no such kernel"
    assert not good.fault
    assert good.value > 0


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
    take_turns([(Work(lambda n=name: order.append(n)), side) for name in "ab"], FAST)
    turns = re.findall(r"a+|b+", "".join(order))
    assert len(turns) >= 2 * FAST.min_pairs


def test_ratio_is_that_of_the_work():
    side = make_side("cpu")
    short, long = range(2_000), range(8_000)
    works = [(Work(lambda numbers=numbers: sum(numbers)), side) for numbers in (short, long)]
    ours, theirs = take_turns(works, Timing(0.02, 5e-4))
    assert 2.0 < Spread.of(theirs).median / Spread.of(ours).median < 8.0
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


def test_what_only_begins_is_timed_without_its_end():
    ticks = iter(range(0, 10_000, 100))
    waits = []
    work = Work(lambda: len(waits), ops=2)
    seconds = take_batches(work, lambda: waits.append(1), 0.0, clock=lambda: next(ticks))
    assert seconds == pytest.approx([50e-9] * 5)
    assert len(waits) == 5


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_busy_processes_run_on_every_core_and_end():
    with BusyCores() as busy:
        running = [spinner.pid for spinner in busy.spinners]
        assert sorted(c for pid in running for c in os.sched_getaffinity(pid)) == cores()
        assert comes_true(lambda: all(state_of(pid) == "T" for pid in running))
        with busy.busy():
            assert comes_true(lambda: all(state_of(pid) == "R" for pid in running))
        assert comes_true(lambda: all(state_of(pid) == "T" for pid in running))
    assert not any(Path(f"/proc/{pid}/stat").exists() for pid in running)


# --- peers, chains and models --------------------------------------------------------------------


@pytest.fixture
def library():
    try:
        return native.build_chains()
    except Unavailable as error:
        pytest.skip(str(error))


def peer_of(chain: chains.Chain, name: str, size: int) -> tuple[list[torch.Tensor], list]:
    """Return what eager PyTorch computes, and what a peer does."""
    case = chains.make_case(make_context(), chain, size)
    want = case.build(make_side("cpu")).outputs()
    (peer,) = (p for p in case.peers if p.name == name)
    got = peer.build()[0].outputs()
    want = want if isinstance(want, tuple) else (want,)
    return list(want), list(got if isinstance(got, tuple | list) else (got,))


@pytest.mark.parametrize("name", [peers.NUMPY, peers.HAND])
@pytest.mark.parametrize("chain", chains.CHAINS, ids=lambda c: c.kernel)
@pytest.mark.parametrize("size", [1_000, 100_000])
def test_peers_compute_the_chain(chain, name, size, library):
    if name == peers.NUMPY and chain.kernel == "black_scholes":
        pytest.importorskip("scipy")
    want, got = peer_of(chain, name, size)
    verify(chain.name, [g.reshape(w.shape) for g, w in zip(got, want, strict=True)], want)


@pytest.mark.parametrize("chain", chains.CHAINS, ids=lambda c: c.kernel)
def test_chains_agree_with_float64(chain):
    case = chains.make_case(make_context(), chain, 10_000)
    got = case.build(make_side("cpu")).outputs()
    verify(chain.name, got, got, case.oracle(), chain.tolerance)
    assert chain.bytes(1_000) >= 8_000


def test_threads_share_the_hand_fused_loop(library):
    chain = chains.CHAINS[0]
    want, one = peer_of(chain, peers.HAND, 100_000)
    torch.set_num_threads(3)
    _, three = peer_of(chain, peers.HAND, 100_000)
    assert torch.equal(one[0], three[0])
    verify("five_op", three[0].reshape(want[0].shape), want[0])


def test_the_memory_limit_writes_what_it_reads(library):
    for kernel in ("move 3 2", "move 3 2 past cache"):
        arrays = [native.aligned(1_000) for _ in range(5)]
        for number, array in enumerate(arrays[:3]):
            assert array.ctypes.data % 64 == 0
            array[:] = np.arange(len(array)) * 10.0**number
        native.Loop(kernel, [arrays], len(arrays[0]), 1).run(1, 1)
        for array in arrays[3:]:
            np.testing.assert_array_equal(array, np.arange(len(array)) * np.float32(111))


def test_a_row_says_why_recording_is_not_measured(monkeypatch):
    def broken(*_):
        raise Unavailable("no C++ compiler")

    monkeypatch.setattr(native, "build", broken)
    rows = [r for r in AREAS["sdk"].measure(make_context()) if "from C++" in r.name]
    assert [r.skipped for r in rows] == ["no C++ compiler"] * 3
    assert not any(r.below_goal for r in rows)


def test_loading_the_loops_leaves_denormals_alone(library):
    native.Loop("five_op", [[native.aligned(16) for _ in range(3)]], 16, 1).run(1, 1)
    assert (torch.tensor([1e-40]) * 0.5).item() > 0


@pytest.mark.usefixtures("without_compile")
def test_no_compiler_is_a_reason_and_not_a_fault(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    with pytest.raises(Unavailable, match=r"no C\+\+ compiler: looked for .*none"):
        native.build_chains(tmp_path)
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'error: unknown machine' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    with pytest.raises(Unavailable, match="broken failed: error: unknown machine"):
        native.build_chains(tmp_path)
    monkeypatch.setattr(native, "_entry", lambda: "no C++ compiler")
    row = make_context().row("chains", chains.make_case(make_context(), chains.CHAINS[0], 1_000))
    assert not row.fault
    assert row.value > 0
    assert row.peers[peers.HAND].reason == "no C++ compiler"
    assert math.isnan(row.ratio_to(peers.HAND))


def test_a_wrong_peer_has_no_figure_and_the_row_has():
    def ones(side: Side) -> Work:
        return Work(lambda: torch.ones(4))

    def wrong() -> tuple[Work, Side]:
        return Work(lambda: torch.zeros(4)), make_side("cpu")

    def right() -> tuple[Work, Side]:
        return Work(lambda: torch.ones(4)), make_side("cpu")

    case = Case(
        "x", ones, peers=[Peer("wrong", wrong), Peer("right", right), Peer("l", right, True)]
    )
    row = make_context().row("single", case)
    assert not row.fault
    assert "elements are wrong" in row.peers["wrong"].fault
    assert math.isnan(row.ratio_to("wrong"))
    assert row.ratio_to("right") > 0
    assert row.limit == row.peers["l"].spread.least
    again = Row.from_json(json.loads(json.dumps(row.to_json(), allow_nan=False)))
    assert again.peers["right"] == row.peers["right"]
    assert again.peers["wrong"].fault == row.peers["wrong"].fault


def test_chain_summaries_name_what_misses():
    def row(name, size, ratios, limit):
        made = Row("chains", name, 1e-3, ratios["cpu"] * 1e-3, size=size, limit=limit)
        made.cores = made.threads = 1
        made.details["first_call"] = 0.05
        for peer, ratio in ratios.items():
            spread = Spread.of([ratio * 1e-3])
            made.peers[peer] = PeerFigure(spread, 2.0 if peer == peers.COMPILE else math.nan)
        return made

    ratios = {"cpu": 8.0, peers.COMPILE: 2.0, peers.HAND: 0.5, peers.LIMIT: 0.4}
    rows = [row("bound", 10_000_000, ratios, 4e-4)]
    rows.append(row("heavy", 10_000_000, {**ratios, "cpu": 2.0, peers.LIMIT: 0.1}, 1e-4))
    found = {r.name: r for r in AREAS["chains"].summaries(rows)}
    assert found["geometric mean against eager cpu, 2 rows"].ratio == pytest.approx(4.0)
    assert found[f"geometric mean against {peers.COMPILE}, 2 rows"].ratio == pytest.approx(2.0)
    over = found["most times the memory limit at 10M: bound"]
    assert over.value == pytest.approx(2.5)
    assert over.below_goal
    (warm,) = (r for name, r in found.items() if name.startswith("longest warm-up"))
    assert warm.value == pytest.approx(0.049)
    assert warm.below_goal
    assert warm.note == "of eager cpu there: 0 ms"
    small = row("small", 1_000_000, ratios, 4e-4)
    small.details.update(first_call=0.008, reference_first_call=0.02 + small.reference)
    found = {r.name: r for r in AREAS["chains"].summaries([*rows, small])}
    (warm,) = (r for name, r in found.items() if name.startswith("longest warm-up up to 1M: small"))
    assert warm.value == pytest.approx(0.007)
    assert not warm.below_goal
    assert warm.note == "of eager cpu there: 20 ms"


def test_models_have_the_shapes_they_are_named_for():
    assert sum(p.numel() for p in models.resnet18().parameters()) == 11_689_512
    with torch.device("meta"):
        # GPT-2 small and BERT base as published, BERT without token types and pooler.
        assert sum(p.numel() for p in models.gpt2().parameters()) == 124_439_808
        layers = sum(p.numel() for p in models.bert().layers.parameters())
    assert layers == 85_054_464


def test_a_cache_changes_no_logits():
    torch.manual_seed(0)
    model = models.small_gpt()
    tokens = torch.randint(0, 1024, (2, 12))
    with torch.no_grad():
        whole = model(tokens)
        caches = model.new_caches(2, 12, torch.device("cpu"))
        parts = [model(tokens[:, :8], caches)]
        parts += [model(tokens[:, i : i + 1], caches, i) for i in range(8, 12)]
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-4, atol=1e-5)


def test_small_models_answer():
    rows = list(AREAS["inference"].measure(make_context()))
    assert len(rows) == 2
    assert [r.fault for r in rows if r.fault] == []


@pytest.mark.heavy
def test_models_answer():
    context = make_context()
    context.quick = False
    rows = list(AREAS["inference"].measure(context))
    assert len(rows) == 5
    assert [r.fault for r in rows if r.fault] == []


@pytest.mark.heavy
def test_compiled_peers_agree():
    native.compiler()
    want, got = peer_of(chains.CHAINS[0], peers.COMPILE, 1_000)
    verify("five_op", got, want)
    mlp = training.digits_mlp()
    side = make_side("cpu")
    training.comparison(mlp)(training.step_work(side, mlp, compiled=True).outputs(), side)


def report_of(rows: list[Row]) -> str:
    return render.to_markdown(Results({"device": "hologram"}, rows=rows, whole=True))


def test_reduction_counts_one_run(monkeypatch):
    counters = {"ops_recorded": 0, "kernels": 0}

    def run():
        counters["ops_recorded"] += 5
        counters["kernels"] += 1

    monkeypatch.setattr(reduction, "recorder_stats", lambda: dict(counters))
    counted = reduction.count(Work(run), make_side("cpu"))
    assert counted == {"ops_recorded": 5, "kernels": 1}


def test_a_report_counts_kernels_and_ops():
    row = Row("reduction", "a chain", 1, 5, "ops", goal=Goal(4.0), note="80% fewer")
    report = report_of([row])
    assert "| kernels | ops |" in report
    assert "| 1 | 5 | 5.00x |" in report


def test_reduction_says_so_where_nothing_is_counted():
    (row,) = AREAS["reduction"].measure(make_context())
    assert "counts nothing" in row.note
    assert not row.below_goal


@pytest.mark.heavy
def test_memory_is_measured_in_children():
    rows = list(AREAS["memory"].measure(make_context()))
    assert [r.fault for r in rows if r.fault] == []
    chain, model, borders, growth, trained = rows
    assert chain.value >= 40e6
    assert model.value > 0
    assert borders.value >= 80e6  # copies, as no device shares
    assert "10,000" in growth.name
    assert "1,000 of them" in trained.name
    assert "the same bits in" in trained.note


def test_functions_are_measured_on_cpu_tensors():
    context = make_context()
    rows = list(AREAS["functional"].measure(context))
    assert [r.fault for r in rows if r.fault] == []
    assert {r.size for r in rows} == {0, 16, 1_000}
    assert context.side.device.type == "cpu"


# --- cases, goals and reports --------------------------------------------------------------------


@pytest.mark.parametrize("name", list(op_table.all_ops()))
def test_single_ops_agree_with_float64_on_cpu(name):
    context = make_context()
    case = single_ops.make_case(context, name, op_table.all_ops()[name], 1_000, torch.float32)
    row = context.row("single", case)
    assert not row.fault
    assert row.bytes >= 4_000
    assert row.ratio > 0


@pytest.mark.parametrize(
    "name", ["overhead", "sdk", "borders", "chains", "training", "copies", "fallback"]
)
@pytest.mark.usefixtures("without_compile")
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


def test_results_round_trip_and_list_losses(tmp_path):
    rows = [
        Row("single", "add", 2e-6, 1e-6, size=1_000, threads=1, goal=Goal(0.95), group="add"),
        Row("single", "add", 1e-6, 2e-6, size=10_000, threads=1, goal=Goal(0.95), group="add"),
        Row("single", "mul", size=1_000, threads=1, fault="wrong result: mul", group="mul"),
        Row("single", "div", size=1_000, threads=1, skipped=BUDGET, goal=Goal(0.95)),
    ]
    rows[0].spread = Spread(2e-6, 1e-6, 3e-6, 5, 1e-6)
    file = tmp_path / "r.jsonl"
    with Writer(file, Results({"device": "hologram"}, {"quick": True})) as writer:
        for row in rows:
            writer.row(row)
        writer.process("1 core", {"worker": False})
        writer.end(seconds=1.0)
    assert "NaN" not in file.read_text()
    with file.open() as lines:
        again = read(lines)
    assert again.whole
    assert again.settings == {"quick": True, "seconds": 1.0}
    assert again.processes == {"1 core": {"worker": False}}
    assert [render.label(r) for r in again.rows] == [render.label(r) for r in rows]
    assert again.rows[0].spread == rows[0].spread
    assert again.rows[0].goal == rows[0].goal
    report = render.to_markdown(again)
    lost = report[report.index("## Losses") : report.index("## Below target")]
    assert "0.50x" in lost
    assert "2.00x" not in lost
    closing = report[report.index("## Below target") : report.index("## Not measured")]
    assert "wrong result: mul" in closing
    assert "0.50x" in closing
    assert "2.00x" not in closing.replace("goal", "").split("geometric")[0]
    assert "div" not in closing
    named = report[report.index("## Not measured") : report.index("## Machine")]
    assert "single: div 1K" in named
    with pytest.raises(ValueError, match="format"):
        read([json.dumps({"kind": "run", "format": 99}) + "\n"])


def test_every_row_is_in_the_file_before_the_next_is_measured(tmp_path):
    file = tmp_path / "r.jsonl"
    with Writer(file, Results({"device": "cpu"})) as writer:
        for count in (1, 2):
            writer.row(Row("single", f"op{count}", 1.0, 2.0))
            with file.open() as lines:
                found = read(lines)
            assert len(found.rows) == count
            assert not found.whole
    torn = file.read_text()[:-9]
    assert [r.name for r in read(torn.splitlines(keepends=True)).rows] == ["op1"]
    assert "was interrupted" in render.to_markdown(found)


def test_only_a_whole_run_is_published(tmp_path, monkeypatch, capsys):
    published = tmp_path / "RESULTS.md"
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(command, "PUBLISHED", published)
    rows = [Row("single", "add", 1.0, 2.0)]
    settings = {"areas": list(AREAS), "quick": False}
    command.publish(Results({"device": "hologram"}, settings, rows, whole=True))
    assert "| add | " in published.read_text()
    for wrong, whole, why in (
        ({**settings, "areas": list(AREAS)[1:]}, True, f"without {next(iter(AREAS))}"),
        ({**settings, "quick": True}, True, "quick, or stopped"),
        (settings, False, "quick, or stopped"),
    ):
        with pytest.raises(SystemExit, match=why):
            command.publish(Results({"device": "hologram"}, wrong, rows, whole=whole))


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
    curve = Bandwidth([(1_000, 1e9), (4_000, 4e9)])
    assert curve.seconds(1_000) == pytest.approx(1e-6)
    assert curve.seconds(2_000) == pytest.approx(1e-6)
    assert curve.seconds(8_000) == pytest.approx(2e-6)
    assert curve.seconds(100) == pytest.approx(1e-7)
    assert math.isnan(Bandwidth([]).seconds(100))
    assert math.isnan(curve.seconds(0))
    measured = Bandwidth.measure(1, largest=1 << 16)
    assert [size for size, _ in measured.points] == [1 << 13, 1 << 14, 1 << 15, 1 << 16]
    assert measured.seconds(1 << 16) > 0


def test_self_check_passes_ones_and_fails_bias_and_faults(capsys):
    def rows(ratio, count=20):
        return [Row("single", f"op{i}", 1.0, ratio, unit="x") for i in range(count)]

    assert selfcheck.check(rows(1.0)) == 0
    assert selfcheck.check([*rows(1.0), *(Row("single", "x", skipped=BUDGET),) * 5]) == 0
    assert selfcheck.check(rows(1.03)) == 1
    assert selfcheck.check(rows(1.0, 16) + rows(1.3, 2) + rows(1 / 1.3, 2)) == 1
    assert selfcheck.check([*rows(1.0), Row("single", "x", fault="wrong result")]) == 1
    assert selfcheck.check([]) == 1
    assert "unbiased" in capsys.readouterr().out


def test_plots(tmp_path):
    pytest.importorskip("matplotlib")
    from bench.plots import draw

    rows = [
        Row("single", "add", 1e-6, 2e-6, size=s, cores=1, threads=1, group="add", limit=5e-7)
        for s in (1_000, 10_000)
    ]
    files = draw(rows, tmp_path, "hologram")
    assert len(files) == 2
    assert all(f.read_bytes().startswith(b"\x89PNG") for f in files)
    assert sorted(tmp_path.iterdir()) == sorted(files)


def test_chains_are_drawn_with_their_peers(tmp_path):
    pytest.importorskip("matplotlib")
    from bench.plots import draw_chains as draw

    rows = []
    for size in (1_000, 10_000):
        row = Row("chains", "a * b", 1e-6, 2e-6, size=size, group="a * b", limit=5e-7)
        row.cores = row.threads = 1
        row.peers = {peers.COMPILE: PeerFigure(Spread.of([3e-6])), peers.JAX: PeerFigure()}
        rows.append(row)
    files = draw(rows, tmp_path, "hologram")
    assert [f.name for f in files] == ["chain-a-b.svg", "chains-1-core.svg"]
    text = files[0].read_text()
    for name in ("hologram", "eager cpu", peers.COMPILE, "memory limit", "10K"):
        assert name in text
    assert peers.JAX not in text
    assert files[0].stat().st_size < 60_000
    before = files[0].read_bytes()
    draw(rows, tmp_path, "hologram")
    assert files[0].read_bytes() == before
    assert draw(rows[:1], tmp_path, "hologram") == []


def test_a_report_shows_peers_and_why_some_are_missing():
    row = Row("chains", "a * b", 1e-6, 2e-6, size=1_000, threads=1)
    row.peers = {
        peers.COMPILE: PeerFigure(Spread.of([3e-6]), first_call=12.0),
        peers.JAX: PeerFigure(reason="jax is not installed"),
    }
    report = report_of([row])
    assert "3.00x (first 12 s)" in report
    assert "JAX: jax is not installed" in report


def test_options_choose_how_much_is_measured():
    for arguments, whole in (([], False), (["--all"], True)):
        options = command.parse([*arguments, "--device", "cpu"])
        assert command.make_config(options).whole is whole
        assert math.isinf(options.budget) is whole
    chosen = make_context()
    chosen.quick, chosen.whole, chosen.sizes = False, False, [1_000, 10_000]
    sizes = {1_000: 0, 10_000: 0}

    def count(row: Row, case: Case) -> None:
        sizes[case.size] += 1

    chosen._measure = count
    list(AREAS["single"].measure(chosen))
    assert 0 < sizes[1_000] < sizes[10_000]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--cores", "0"],
        ["--cores", "x"],
        ["--min-time", "0"],
        ["--area", "none"],
        ["--budget", "0"],
    ],
)
def test_bad_options_are_refused(arguments, capsys):
    with pytest.raises(SystemExit) as error:
        command.parse(arguments)
    assert error.value.code == 2
    assert arguments[0] in capsys.readouterr().err


def test_unknown_device_is_a_plain_error(capsys):
    assert command.main(["--device", "nonsense"]) == 2
    assert "--device nonsense" in capsys.readouterr().err


def test_module_runs_as_a_command():
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--help"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "--self-check" in done.stdout
