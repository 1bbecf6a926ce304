# SPDX-License-Identifier: MIT
"""PyTorch's profiler: launches as device events, linked to the calls that recorded them."""

from __future__ import annotations

import itertools
import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils import benchmark

import hologram_torch

D = "hologram"
BOTH = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
N = 256


@pytest.fixture(autouse=True)
def _deferred():
    with hologram_torch.execution("deferred"):
        yield


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    x, w = torch.rand(N, N, device=D), torch.rand(N, N, device=D)
    torch.hologram.synchronize()
    return x, w


def chain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = x * w
    y = y + x
    return y.tanh()


def device_events(p: profile) -> list[Any]:
    return [e for e in p.events() if e.device_type == torch.autograd.DeviceType.PrivateUse1]


def trace_of(p: profile, folder: Path) -> list[dict[str, Any]]:
    p.export_chrome_trace(str(folder / "trace.json"))
    return json.loads((folder / "trace.json").read_text())["traceEvents"]


def test_the_timeline_has_launches_with_their_ops_and_lines(tmp_path: Path) -> None:
    x, w = inputs()
    chain(x, w).cpu()
    with profile(activities=BOTH, record_shapes=True, with_stack=True) as p:
        chain(x, w).cpu()
    events = trace_of(p, tmp_path)
    (kernel,) = [e for e in events if e.get("cat") == "kernel"]
    assert kernel["name"] == "hologram::mul_add_tanh"
    args = kernel["args"]
    assert args["operators"] == ["aten::mul", "aten::add", "aten::tanh"]
    first = chain.__code__.co_firstlineno
    assert args["recorded at"] == [f"{__file__}:{first + i} in chain" for i in (1, 2, 3)]
    assert args["bytes"] == 3 * 4 * N * N
    assert args["elements"] == N * N
    assert args["operands"] == {
        "reads": [["float32", [N * N]]] * 2,
        "writes": [["float32", [N * N]]],
    }
    assert args["Input Dims"] == [[[N, N], [N, N]], [[N, N], [N, N], []], [[N, N]]]
    assert args["kernels"] == 1
    assert args["circuit"] > 0
    # A track of its own, named after the device.
    assert (kernel["pid"], kernel["tid"]) == (0, 0)
    names = {(e["name"], e["pid"]): e["args"] for e in events if e.get("ph") == "M"}
    assert names["process_name", 0]["name"].startswith("hologram:0")
    assert names["process_labels", 0]["labels"] == "hologram:0"
    assert names["thread_name", 0]["name"] == "kernels"

    # An arrow from each op, from inside the op's slice to the launch.
    starts = {e["id"]: e for e in events if e.get("cat") == "ac2g" and e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e.get("cat") == "ac2g" and e["ph"] == "f"}
    assert len(starts) == 3
    assert starts.keys() == ends.keys()
    ops = {e["name"]: e for e in events if e.get("cat") == "cpu_op"}
    for number, name in zip(sorted(starts), args["operators"], strict=True):
        begin, op = starts[number]["ts"], ops[name]
        assert op["ts"] <= begin <= op["ts"] + op["dur"]
        assert (starts[number]["pid"], starts[number]["tid"]) == (op["pid"], op["tid"])
        assert ends[number]["ts"] == kernel["ts"]
        assert begin <= kernel["ts"]
    # The time belongs to the last of them, whose id the launch names.
    assert args["External id"] == ops["aten::tanh"]["args"]["External id"]


def test_without_stacks_and_shapes_there_are_none(tmp_path: Path) -> None:
    x, w = inputs()
    with profile(activities=BOTH) as p:
        chain(x, w).cpu()
    (kernel,) = [e for e in trace_of(p, tmp_path) if e.get("cat") == "kernel"]
    assert "recorded at" not in kernel["args"]
    assert "Input Dims" not in kernel["args"]
    assert kernel["args"]["operators"] == ["aten::mul", "aten::add", "aten::tanh"]


def test_the_column_of_device_times() -> None:
    x, w = inputs()
    chain(x, w).cpu()
    with profile(activities=BOTH, record_shapes=True) as p:
        for _ in range(4):
            with record_function("forward"):
                (chain(x, w) @ w).sum().item()
    rows = {row.key: row for row in p.key_averages()}
    launches = device_events(p)
    total = sum(e.time_range.elapsed_us() for e in launches)
    assert total > 0
    assert sum(row.self_device_time_total for row in rows.values() if row.key.startswith("aten")) \
        == pytest.approx(total)  # fmt: skip
    kernel = rows["hologram::mul_add_tanh"]
    assert kernel.count == 4
    assert kernel.self_cpu_time_total == 0
    assert kernel.self_device_time_total == pytest.approx(rows["aten::tanh"].device_time_total)
    assert rows["aten::mul"].device_time_total == 0
    # What runs inside a range counts in it, whichever op recorded it.
    assert rows["forward"].device_time_total == pytest.approx(total)
    table = p.key_averages().table(sort_by="self_device_time_total", row_limit=-1)
    assert "Self HOLOGRAM" in table
    assert "hologram::mul_add_tanh" in table
    shaped = p.key_averages(group_by_input_shape=True)
    (row,) = [r for r in shaped if r.key == "aten::tanh"]
    assert row.input_shapes == [[N, N]]
    # The device is busy no longer than the program ran.
    wall = max(e.time_range.end for e in p.events()) - min(e.time_range.start for e in p.events())
    assert total <= wall


def test_launches_of_the_worker_are_on_the_same_track() -> None:
    x, _ = inputs()
    with profile(activities=BOTH) as p:
        y = x
        for _ in range(40):
            for _ in range(6):
                y = (y @ x).tanh()
            torch.hologram.current_stream().query()
        torch.hologram.synchronize()
    events = sorted(device_events(p), key=lambda e: e.time_range.start)
    assert len(events) >= 240
    assert sum("gemm" in e.name for e in events) == 240
    # One launch at a time.
    for before, after in itertools.pairwise(events):
        assert before.time_range.end <= after.time_range.start + 0.5
    assert all(e.linked_correlation_id > 0 for e in events)


def test_backward_and_optimizer_are_linked() -> None:
    model = torch.nn.Linear(N, N).to(D)
    optimizer = torch.optim.AdamW(model.parameters())
    x, _ = inputs()
    with profile(activities=BOTH) as p:
        model(x).square().mean().backward()
        optimizer.step()
    launches = device_events(p)
    ids = {e.id for e in p.events() if e.device_type == torch.autograd.DeviceType.CPU}
    assert len(launches) >= 3
    assert all(e.linked_correlation_id in ids for e in launches)


def test_a_schedule_calls_for_each_cycle(tmp_path: Path) -> None:
    x, w = inputs()
    seen: list[int] = []

    def ready(p: profile) -> None:
        seen.append(len(device_events(p)))
        p.export_chrome_trace(str(tmp_path / f"{len(seen)}.json"))

    with profile(
        activities=BOTH,
        schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
        on_trace_ready=ready,
    ) as p:
        for _ in range(9):
            chain(x, w).cpu()
            p.step()
    assert seen == [2, 2]
    for number in (1, 2):
        events = json.loads((tmp_path / f"{number}.json").read_text())["traceEvents"]
        assert [e["name"] for e in events if e.get("cat") == "kernel"] \
            == ["hologram::mul_add_tanh"] * 2  # fmt: skip


def test_profilers_start_again_and_inside_each_other() -> None:
    x, w = inputs()
    for _ in range(3):
        with profile(activities=BOTH) as p:
            chain(x, w).cpu()
        assert len(device_events(p)) == 1
    # PyTorch drops a profile when another one begins inside it; the inner one is whole.
    outer = profile(activities=BOTH)
    with outer:
        chain(x, w).cpu()
        with profile(activities=BOTH) as inner:
            chain(x, w).cpu()
    assert [e.name for e in device_events(inner)] == ["hologram::mul_add_tanh"]
    with profile(activities=BOTH) as p:
        chain(x, w).cpu()
    assert [e.name for e in device_events(p)] == ["hologram::mul_add_tanh"]
    # Ours may be nested in it.
    with profile(activities=BOTH) as p, hologram_torch.profile() as own:
        chain(x, w).cpu()
    assert [e.name for e in device_events(p)] == ["hologram::mul_add_tanh"]
    assert [row.name for row in own.kernels] == ["mul_add_tanh"]


def test_threads_are_shown_and_may_profile() -> None:
    x, w = inputs()
    with profile(activities=BOTH) as p:
        thread = threading.Thread(target=lambda: chain(x, w).cpu())
        thread.start()
        thread.join()
    # Of that thread no ops are collected, as with any device, but what it ran is.
    assert [e.name for e in device_events(p)] == ["hologram::mul_add_tanh"]

    def other() -> None:
        with profile(activities=BOTH) as inner:
            chain(x, w).cpu()
        found.append([e.name for e in device_events(inner)])

    found: list[list[str]] = []
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert found == [["hologram::mul_add_tanh"]]


def test_what_was_recorded_before_is_shown_without_ops(tmp_path: Path) -> None:
    x, w = inputs()
    y = chain(x, w)
    with profile(activities=BOTH) as p:
        y.cpu()
    (kernel,) = [e for e in trace_of(p, tmp_path) if e.get("cat") == "kernel"]
    assert kernel["name"] == "hologram::mul_add_tanh"
    assert "operators" not in kernel["args"]


def test_the_replay_of_a_graph_is_shown(tmp_path: Path) -> None:
    x, w = inputs()
    graph = torch.accelerator.Graph() if hasattr(torch.accelerator, "Graph") else None
    if graph is None:
        pytest.skip("this PyTorch has no torch.accelerator.Graph")
    with graph:
        y = chain(x, w)
    graph.replay()
    with profile(activities=BOTH) as p, record_function("replay"):
        graph.replay()
    (kernel,) = [e for e in trace_of(p, tmp_path) if e.get("cat") == "kernel"]
    assert kernel["args"]["circuit"] == 0
    assert kernel["args"]["operators"] == ["replay"]
    torch.testing.assert_close(y.cpu(), chain(x.cpu(), w.cpu()))


def test_a_profile_of_the_cpu_alone_has_launches_on_threads() -> None:
    x, w = inputs()
    with profile(activities=[ProfilerActivity.CPU]) as p:
        chain(x, w).cpu()
    assert device_events(p) == []
    (row,) = [r for r in p.key_averages() if r.key == "hologram::mul_add_tanh"]
    assert row.cpu_time_total > 0


def test_results_are_the_same_while_profiled() -> None:
    x, w = inputs()
    expected = (chain(x, w) @ w).cpu()
    with profile(activities=BOTH, with_stack=True, record_shapes=True, profile_memory=True):
        assert torch.equal((chain(x, w) @ w).cpu(), expected)


def test_nothing_is_marked_when_no_one_profiles() -> None:
    x, w = inputs()
    with profile(activities=BOTH) as p:
        chain(x, w).cpu()
    chain(x, w).cpu()
    assert len(device_events(p)) == 1


# --- torch.utils.benchmark -------------------------------------------------------------------


def test_timer_waits_for_the_device() -> None:
    x = torch.rand(1024, 1024, device=D)
    cpu = x.cpu()
    statement = "y = x @ x"
    ours, theirs = (
        benchmark.Timer(
            statement, globals={"x": t}, num_threads=1, label="product", description=t.device.type
        ).timeit(5)
        for t in (x, cpu)
    )
    # Recording alone takes microseconds; the product, milliseconds on any machine.
    assert ours.median > theirs.median / 20
    assert ours.number_per_run == 5
    measured = benchmark.Timer("x + x", globals={"x": x}).blocked_autorange(min_run_time=0.05)
    assert measured.median > 1e-7
    adaptive = benchmark.Timer("x + x", globals={"x": x}).adaptive_autorange(max_run_time=0.2)
    assert len(adaptive.times) > 0
    comparison = str(benchmark.Compare([ours, theirs]))
    assert "product" in comparison
    assert "hologram" in comparison
