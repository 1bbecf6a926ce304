# SPDX-License-Identifier: MIT
"""``explain`` and ``profile``: the figures, the names and the drawing."""

import itertools
import json
import re
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator

import pytest
import torch

import hologram_torch
from hologram import _hologram
from hologram.observe import _canvas
from hologram.observe._texts import short_name

D = "hologram"
_SVG = "{http://www.w3.org/2000/svg}"

pytestmark = pytest.mark.skipif(
    not hologram_torch._C.can_defer, reason="this PyTorch cannot defer, so there are no circuits"
)


@pytest.fixture(autouse=True)
def _deferred() -> Iterator[None]:
    with hologram_torch.execution("deferred"):
        yield


def chain(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return (x * weight + x).relu() * 0.5 + weight


def chain_inputs(n: int = 1000) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(n).to(D), torch.randn(n).to(D)


def adam_by_hand(params: list, grads: list, avgs: list, squares: list) -> None:
    for p, g, m, v in zip(params, grads, avgs, squares, strict=True):
        m.mul_(0.9).add_(g * 0.1)
        v.mul_(0.999).add_(g * g)
        p.sub_(m / (v.sqrt() + 1e-8))


def adam_inputs(count: int = 20) -> list[list[torch.Tensor]]:
    return [[torch.rand(64, 10).to(D) for _ in range(count)] for _ in range(4)]


# --- Figures ---------------------------------------------------------------------------------


def test_a_chain_of_five_is_one_kernel() -> None:
    x, w = chain_inputs()
    e = hologram_torch.explain(chain, x, w)
    torch.testing.assert_close(e.result.cpu(), chain(x.cpu(), w.cpu()), rtol=0, atol=0)
    assert len(e.circuits) == 1
    s = e.stats
    assert (s["ops_recorded"], s["kernels_run"]) == (5, 1)
    assert s["operation_reduction"] == pytest.approx(0.8)
    assert s["bytes_moved"] == 3 * 4000
    assert s["bytes_unfused"] == (3 + 3 + 2 + 2 + 3) * 4000
    assert s["bytes_saved"] == s["bytes_unfused"] - s["bytes_moved"]
    before, (kernel,) = e.circuits[0].before, e.circuits[0].after
    assert [op.name for op in before] == ["mul", "add", "relu", "mul", "add"]
    assert kernel.name == "mul_add_relu_mul_add"
    assert [i.record for i in kernel.instrs] == [0, 1, 2, 3, 4]
    assert [i.name for i in kernel.instrs] == [op.name for op in before]
    assert all(op.kernel == 0 and op.state == "runs" for op in before)
    assert before[3].operands[1].text == "0.5"
    assert kernel.instrs[-1].operands[1] == "weight"
    assert kernel.instrs[-1].out == before[-1].output == "result"
    (launch,) = e.circuits[0].launches
    assert 0 < launch.ns <= e.ns
    assert e.circuits[0].cause == "the end of the call"


def test_text_has_the_figures() -> None:
    text = str(hologram_torch.explain(chain, *chain_inputs()))
    assert "5 ops recorded, 1 kernel run (80% fewer), 12 KB moved of 52 KB (77% less)" in text
    assert "mul_add_relu_mul_add" in text
    assert "aten::mul.Tensor" in text


def test_a_warmed_run_is_shown_beside_the_first() -> None:
    calls = []

    def fn(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        calls.append(len(calls))
        return chain(x, weight)

    e = hologram_torch.explain(fn, *chain_inputs(50_000))
    assert calls == [0]
    assert (e.warm_ns, e.stats["warm_kernel_ns"]) == (0, 0)
    first, result = e.ns, e.result
    assert e.warm(runs=3) is e
    assert calls == [0, 1, 2, 3]
    assert e.ns == first
    assert e.result is result
    (launch,) = e.circuits[0].launches
    assert launch.ns > 0
    assert e.stats["warm_kernel_ns"] == launch.warm_ns > 0
    assert "warmed (median of 3 calls)" in str(e)
    assert re.search(r"mul_add_relu_mul_add +5 ops .* then [\d.]+ \S+$", str(e), re.MULTILINE)
    _assert_legible(e.svg())
    texts = _texts(e.svg())
    assert any(
        re.search(r"with recording and planning · .* warmed \(median of 3", t) for t in texts
    )
    assert any(re.search(r"GB/s, .* the first time", t) for t in texts), texts
    assert any(re.search(r"GB/s · first (run|call) ", t) for t in texts), texts
    e.warm(runs=1)
    assert "warmed (one call)" in str(e)


def test_a_warmed_run_that_takes_another_way_has_no_times_of_kernels() -> None:
    x = torch.zeros(100).to(D)

    def fn() -> torch.Tensor:
        x.add_(1)
        return x.exp() if x.sum().item() > 100 else x * 2

    e = hologram_torch.explain(fn).warm(runs=2)
    assert x[0].item() == 3  # each call had its effect
    assert e.warm_ns > 0
    assert e.stats["warm_kernel_ns"] == 0
    assert "then" not in str(e)


def test_warm_refuses_no_runs() -> None:
    e = hologram_torch.explain(chain, *chain_inputs())
    with pytest.raises(ValueError, match=r"Explanation\.warm: runs is 0; it has to be 1 or more"):
        e.warm(runs=0)


def test_many_circuits_are_told_shortly() -> None:
    def fn() -> None:
        for n in range(1, 41):
            (torch.rand(n, device=D) * 2).sum().item()

    e = hologram_torch.explain(fn)
    assert len(e.circuits) == 40
    assert "... and 8 other circuits" in str(e)
    _assert_legible(e.svg())
    assert "16 smaller circuits not drawn" in _texts(e.svg())


def test_dead_and_folded_ops_are_told_apart() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x.exp()  # not read
        twice = x + x
        again = x + x  # the same work
        return twice * again

    x = torch.rand(100).to(D)
    e = hologram_torch.explain(fn, x)
    states = {op.label: op.state for op in e.circuits[0].before}
    assert states["aten::exp"] == "dead"
    assert [op.state for op in e.circuits[0].before].count("folded") == 1
    assert e.stats["ops_without_work"] == 2
    assert "(dead)" in str(e.circuits[0])


def test_shapes_are_those_of_the_tensors() -> None:
    x = torch.rand(4, 5, 6).to(D)
    op = hologram_torch.explain(lambda x: x + 1, x).circuits[0].before[0]
    assert op.seen_shape == [4, 5, 6]
    assert op.label == "aten::add"


def test_what_ends_a_circuit_and_what_runs_at_once() -> None:
    a = torch.rand(8, 8).to(D)

    def fn(a: torch.Tensor) -> torch.Tensor:
        b = torch.sort(a + 1)[0]
        c = (b * 2).sum()
        return a * c.item()

    e = hologram_torch.explain(fn, a)
    causes = [c.cause for c in e.circuits]
    assert causes == ["aten::sort", "aten::_local_scalar_dense", "the end of the call"], causes
    assert any("sort" in name for name in e.fallbacks)
    assert "fell back to PyTorch's cpu kernels:" in str(e)
    texts = _texts(e.svg())
    assert any("aten::sort (PyTorch's cpu)" in t for t in texts), texts
    assert any("ended by aten::sort" in t for t in texts)


def test_nothing_recorded() -> None:
    with hologram_torch.execution("eager"):
        e = hologram_torch.explain(chain, *chain_inputs())
    assert e.circuits == []
    assert e.stats["operation_reduction"] == 0
    assert sum(e.ops.values()) == 5
    assert "nothing was recorded" in _texts(e.svg())


def test_errors_end_the_trace() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x + 1
        return x @ torch.rand(3, device=D)

    with pytest.raises(RuntimeError):
        hologram_torch.explain(fn, torch.rand(2, 2).to(D))
    assert len(hologram_torch.explain(chain, *chain_inputs()).circuits) == 1
    with pytest.raises(ValueError, match="no open trace 12345678"):
        _hologram._stop_tracing(12345678)


# --- Names -----------------------------------------------------------------------------------


def _names(e: hologram_torch.Explanation) -> set[str]:
    return {port.name for c in e.circuits for kernel in c.after for port in kernel.ports}


def test_buffers_are_named_as_the_caller_names_them() -> None:
    bias = torch.rand(16).to(D)

    def fn(x: torch.Tensor, pair: list, scale: torch.Tensor | None = None) -> dict:
        return {"y": (x + pair[1]) * scale + bias, "z": x - 1}

    x, p, q, s = (torch.rand(16).to(D) for _ in range(4))
    e = hologram_torch.explain(fn, x, [p, q], scale=s)
    assert _names(e) == {"x", "pair[1]", "scale", "bias", "result['y']", "result['z']"}
    assert e.name == "fn(x, pair, scale)"


def test_parameters_gradients_and_optimizer_states_are_named() -> None:
    model = torch.nn.Linear(8, 4).to(D)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.rand(2, 8).to(D)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    step()
    names = _names(hologram_torch.explain(step))
    for name in ("model.weight", "model.bias", "model.bias.grad", "m.w.momentum_buffer"):
        assert name in names, names


def test_a_name_does_not_outlive_its_buffer() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        for _ in range(8):
            y = torch.sort(x)[0].exp()  # memory that comes back again and again
            y.sum().item()
            del y
        return torch.sort(x)[0].neg()

    e = hologram_torch.explain(fn, torch.rand(64).to(D))
    result = {port.name for kernel in e.circuits[-1].after for port in kernel.ports if port.stored}
    assert result == {"result"}
    for circuit in e.circuits[:-1]:
        names = [port.name for kernel in circuit.after for port in kernel.ports]
        assert "result" not in names
        assert "sort()" in names


def test_memory_made_out_of_sight_has_no_former_name() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x.sort()
        return torch.tensor(3.0, device=D) * 2

    e = hologram_torch.explain(fn, torch.rand(1).to(D))
    assert _names(e) == {"tensor()", "result"}


def test_long_names_are_shortened_from_the_front() -> None:
    short = short_name("model.layers.11.self_attention.q_projection.weight")
    assert short == "m.l.11.s.q.weight"
    assert short_name("encoder.weight") == "encoder.weight"


# --- The drawing -----------------------------------------------------------------------------


def _texts(svg: str) -> list[str]:
    return [t.text or "" for t in ET.fromstring(svg).iter(f"{_SVG}text")]


def _text_boxes(svg: str) -> list[tuple[float, float, float, float, str]]:
    boxes = []
    for t in ET.fromstring(svg).iter(f"{_SVG}text"):
        size, classes = float(t.get("font-size", "")), t.get("class", "").split()
        # DejaVu's widths, the widest of the fonts that are asked for.
        em = 0.602 if "m" in classes else 0.66 if "b" in classes else 0.58
        w = len(t.text or "") * size * em
        anchor = {"end": w, "middle": w / 2}.get(t.get("text-anchor", ""), 0)
        x, y = float(t.get("x", "")) - anchor, float(t.get("y", ""))
        boxes.append((x, y - 0.76 * size, x + w, y + 0.2 * size, t.text or ""))
    return boxes


def _assert_legible(svg: str) -> None:
    root = ET.fromstring(svg)
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    boxes = sorted(_text_boxes(svg), key=lambda b: b[1])
    assert boxes
    for i, (left, top, right, bottom, text) in enumerate(boxes):
        assert left >= 0 and right <= width and top >= 0 and bottom <= height, text
        for other in boxes[i + 1 :]:
            if other[1] >= bottom:
                break
            assert other[0] >= right or other[2] <= left, (text, other[4])
    for shape in root.iter(f"{_SVG}rect"):
        assert float(shape.get("x", "0")) + float(shape.get("width", "")) <= width + 0.1
        assert float(shape.get("y", "0")) + float(shape.get("height", "")) <= height + 0.1


def test_a_small_drawing() -> None:
    e = hologram_torch.explain(chain, *chain_inputs())
    svg = e.svg()
    assert svg == e.svg()
    _assert_legible(svg)
    texts = _texts(svg)
    for text in (
        "chain(x, weight)",
        "5 → 1",
        "80% fewer kernels",
        "mul_add_relu_mul_add",
        "→ result",
    ):
        assert text in texts, texts
    assert texts.count("relu") == 2  # as recorded, and in the kernel
    assert any("t0" in text for text in texts)
    assert "prefers-color-scheme: dark" in svg
    assert e._repr_svg_() == svg
    assert svg in e._repr_html_()


def test_two_hundred_ops_are_drawn_once_for_all_that_are_alike() -> None:
    inputs = adam_inputs()
    e = hologram_torch.explain(adam_by_hand, *inputs)
    assert e.stats["ops_recorded"] == 200
    assert e.stats["kernels_run"] == 20
    svg = e.svg()
    _assert_legible(svg)
    texts = _texts(svg)
    assert "×20" in texts
    assert texts.count("sqrt") == 2
    assert "params[0]" in texts
    assert len(texts) < 150
    assert float(ET.fromstring(svg).get("height", "")) < 1200


def test_two_hundred_different_ops() -> None:
    names = ("exp", "tanh", "sigmoid", "neg", "abs", "square")

    def fn(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        values = list(tensors)
        for i in range(200):
            a, b = values[-1 - i % 3], values[-1 - i % 7]
            values.append(getattr(a, names[i % 6])() if i % 3 else a * b)
        return values[-4:]

    e = hologram_torch.explain(fn, [torch.rand(33, 7).to(D) for _ in range(8)])
    assert e.stats["ops_recorded"] == 200
    _assert_legible(e.svg())


def test_many_values_and_long_names() -> None:
    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention_output_projection = torch.nn.ParameterList(
                torch.nn.Parameter(torch.rand(300)) for _ in range(24)
            )

        def forward(self) -> torch.Tensor:
            values = [p.exp() for p in self.attention_output_projection]
            total = values[0]
            for value in values[1:]:
                total = total + value
            return total

    with torch.no_grad():
        e = hologram_torch.explain(Block().to(D))
    assert e.stats["live_values"] >= 20
    _assert_legible(e.svg())


def test_unusual_text_is_escaped() -> None:
    def fn(d: dict) -> torch.Tensor:
        return d["<&\"'>"] + 1

    e = hologram_torch.explain(fn, {"<&\"'>": torch.rand(3).to(D)})
    assert any("<&" in t for t in _texts(e.svg()))


def _contrast(a: str, b: str) -> float:
    def luminance(color: str) -> float:
        linear = []
        for k in (1, 3, 5):
            c = int(color[k : k + 2], 16) / 255
            linear.append(c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4)
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("mode", [0, 1], ids=["light", "dark"])
def test_text_can_be_read_on_every_ground(mode: int) -> None:
    colors = {name: (light, dark) for name, light, dark in _canvas.COLORS}
    grounds = [colors[name][mode] for name in ("ground", "panel")]
    inks = [colors[name][mode] for name in ("ink", "muted")]
    inks += [pair[mode] for pair in _canvas.KERNEL_COLORS]
    for ground, ink in itertools.product(grounds, inks):
        assert _contrast(ground, ink) >= 4.5, (ground, ink)


def test_save_svg(tmp_path) -> None:
    e = hologram_torch.explain(chain, *chain_inputs())
    e.save_svg(tmp_path / "chain.svg")
    assert ET.parse(tmp_path / "chain.svg").getroot().tag == f"{_SVG}svg"


# --- Profiles --------------------------------------------------------------------------------


def test_profile_counts_and_times() -> None:
    x, w = chain_inputs()
    chain(x, w).sum().item()
    with hologram_torch.profile() as p:
        for _ in range(4):
            y = chain(x, w)
            y.sum().item()
            del y
        torch.sort(x)
    s = p.stats
    assert s["ops_recorded"] == 4 * 6
    assert s["circuits"] == 4
    assert s["plan_hits"] >= 3
    assert s["fallbacks"] >= 1
    assert 0 < s["kernel_ns"] < s["wall_ns"]
    assert s["operation_reduction"] == 1 - s["kernels_run"] / s["ops_recorded"]
    assert sum(row.calls for row in p.kernels) == s["kernels_run"]
    assert sum(row.total_ns for row in p.kernels) == s["kernel_ns"]
    assert sum(row.bytes for row in p.kernels) == s["bytes_moved"]
    table = p.table()
    assert "mul_add_relu_mul_add" in table
    assert "24 ops recorded in 4 circuits" in table
    assert "fell back to PyTorch's cpu kernels: aten::sort" in table
    assert str(p) == table
    _assert_legible(p.svg())
    assert any("ran 4 times" in t or "ran 3 times" in t for t in _texts(p.svg()))


def test_profile_sorts() -> None:
    big, small = torch.rand(200_000).to(D), torch.rand(10).to(D)
    with hologram_torch.profile() as p:
        big.exp().sum().item()
        for _ in range(3):
            (small * small).tanh().cpu()
    rows = {row.name: row for row in p.kernels}
    for order, key in (("calls", "calls"), ("bytes", "bytes"), ("time", "total_ns")):
        lines = p.table(sort_by=order).splitlines()[2 : 2 + len(rows)]
        values = [getattr(rows[line.split()[0]], key) for line in lines]
        assert values == sorted(values, reverse=True), order
    assert "other kernel" in p.table(limit=1)
    with pytest.raises(ValueError, match="sort_by='speed' is not one of time, average, calls"):
        p.table(sort_by="speed")


def test_chrome_trace(tmp_path) -> None:
    x, w = chain_inputs()
    with hologram_torch.profile() as p:
        chain(x, w).cpu()
        chain(x, w).cpu()
    p.export_chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    circuits = [e for e in events if e.get("cat") == "circuit"]
    kernels = [e for e in events if e.get("cat") == "kernel"]
    assert [e["name"] for e in circuits] == ["5 ops → 1 kernel"] * 2
    assert [e["name"] for e in kernels] == ["mul_add_relu_mul_add"] * 2
    for circuit, kernel in zip(circuits, kernels, strict=True):
        assert circuit["tid"] == kernel["tid"] == threading.get_native_id()
        assert circuit["ts"] <= kernel["ts"]
        assert kernel["ts"] + kernel["dur"] <= circuit["ts"] + circuit["dur"] + 0.001
    assert circuits[1]["args"]["plan_hit"] is True
    names = [e["args"]["name"] for e in events if e["name"] == "thread_name"]
    assert names == [threading.current_thread().name]


def test_profiles_nest_and_survive_errors() -> None:
    x, w = chain_inputs()

    def fail_inside(p: hologram_torch.profile) -> None:
        with p:
            chain(x, w).cpu()
            raise KeyError

    with hologram_torch.profile() as outer:
        chain(x, w).cpu()
        inner = hologram_torch.profile()
        with pytest.raises(KeyError):
            fail_inside(inner)
        chain(x, w).cpu()
        with pytest.raises(RuntimeError, match="make another one to nest"):
            outer.__enter__()
    assert len(inner.circuits) == 1
    assert len(outer.circuits) == 3
    chain(x, w).cpu()
    assert len(outer.circuits) == 3


def test_watched_results_have_the_same_bits() -> None:
    torch.manual_seed(3)
    inputs = adam_inputs(3)
    copies = [[t.clone() for t in group] for group in inputs]
    adam_by_hand(*copies)
    expected = [t.cpu() for group in copies for t in group]
    with hologram_torch.profile():
        adam_by_hand(*inputs)
    for a, b in zip([t.cpu() for group in inputs for t in group], expected, strict=True):
        assert torch.equal(a, b)


def test_pytorchs_profiler_shows_our_kernels() -> None:
    x, w = chain_inputs()
    chain(x, w).cpu()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as p:
        for _ in range(3):
            chain(x, w).cpu()
    events = [e for e in p.events() if e.name.startswith("hologram::")]
    assert [e.name for e in events] == ["hologram::mul_add_relu_mul_add"] * 3
    (row,) = [r for r in p.key_averages() if r.key == "hologram::mul_add_relu_mul_add"]
    assert row.count == 3
    assert row.cpu_time_total > 0
    assert re.search(r"hologram::mul_add_relu_mul_add", p.key_averages().table(row_limit=-1))
    assert {e.thread for e in events} == {e.thread for e in p.events() if e.name == "aten::relu"}
