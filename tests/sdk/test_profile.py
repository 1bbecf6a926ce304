# SPDX-License-Identifier: MIT
"""``hologram.profile``: kernels and times, what ran at its call, the trace and the drawing."""

from __future__ import annotations

import json
import threading
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest

import hologram as hg

_SVG = "{http://www.w3.org/2000/svg}"
N = 50_000

pytestmark = pytest.mark.usefixtures("small_at_call")


def large(seed: int = 0, n: int = N) -> hg.Tensor:
    return hg.array(np.random.default_rng(seed).standard_normal(n))


def run_three(x: hg.Tensor) -> None:
    for _ in range(3):
        y = (x * 2 + 1) * x
        y.tolist()
        del y


def test_counts_and_times() -> None:
    x, small = large(), hg.array([1.0, 2.0])
    run_three(x)
    with hg.profile() as p:
        run_three(x)
        for _ in range(5):
            small + 1
        np.sort(x)
    s = p.stats
    assert (s["circuits"], s["ops_recorded"], s["ops_at_call"]) == (3, 9, 6)
    assert s["plan_hits"] == 3
    assert 0 < s["kernel_ns"] < s["wall_ns"]
    assert s["operation_reduction"] == 1 - s["kernels_run"] / s["ops_recorded"]
    assert [(row.name, row.calls, row.ops) for row in p.kernels] == [("mul_add_mul", 3, 9)]
    assert p.kernels[0].average_ns * 3 == p.kernels[0].total_ns == s["kernel_ns"]
    assert sum(row.bytes for row in p.kernels) == s["bytes_moved"] == 3 * 2 * 8 * N
    assert {(c.op, c.why, c.count) for c in p.at_call} == {
        ("add", "small", 5), ("np.sort", "NumPy", 1),
    }  # fmt: skip
    table = p.table()
    assert str(p) == table
    for line in (
        "9 ops recorded in 3 circuits, 3 kernels run: 67% fewer",
        "3 of 3 plans came from the cache",
        "ran at their calls:",
        "  add      5  small: no operand has more than 4,096 bytes, and all were there",
        "  np.sort  1  NumPy computed it",
    ):
        assert line in table.splitlines(), table
    texts = [t.text or "" for t in ET.fromstring(p.svg()).iter(f"{_SVG}text")]
    assert any("ran 3 times" in t for t in texts)
    assert "ran at their calls: add ×5 (small), np.sort (NumPy)" in texts
    assert p._repr_svg_() in p._repr_html_()


def test_sorts_and_limits() -> None:
    x, y = large(), large(1, 3000)
    with hg.profile() as p:
        np.asarray(hg.exp(x))
        for _ in range(3):
            np.asarray(hg.tanh(y * y))
    rows = {row.name: row for row in p.kernels}
    for order, key in (("calls", "calls"), ("bytes", "bytes"), ("time", "total_ns")):
        lines = p.table(sort_by=order).splitlines()[2 : 2 + len(rows)]
        values = [getattr(rows[line.split()[0]], key) for line in lines]
        assert values == sorted(values, reverse=True), order
    assert "... and 1 other kernel" in p.table(limit=1)
    with pytest.raises(
        ValueError,
        match=r"profile\.table: sort_by='speed' is not one of time, average, calls, bytes, name",
    ):
        p.table(sort_by="speed")


def test_chrome_trace(tmp_path: Any) -> None:
    x = large()
    with hg.profile() as p:
        run_three(x)
    p.export_chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    circuits = [e for e in events if e.get("cat") == "circuit"]
    kernels = [e for e in events if e.get("cat") == "kernel"]
    assert [e["name"] for e in circuits] == ["3 ops → 1 kernel"] * 3
    assert [e["args"]["cause"] for e in circuits] == ["tolist()"] * 3
    assert [e["name"] for e in kernels] == ["mul_add_mul"] * 3


def test_profiles_nest_and_survive_errors() -> None:
    x = large()
    inner = hg.profile()

    def fail_inside() -> None:
        with inner:
            np.asarray(x + 1)
            raise KeyError

    with hg.profile() as outer:
        run_three(x)
        with pytest.raises(KeyError):
            fail_inside()
        with pytest.raises(
            RuntimeError, match="profile: it is watching already; make another one to nest them"
        ):
            outer.__enter__()
        run_three(x)
    assert len(inner.circuits) == 1
    assert len(outer.circuits) == 7
    with pytest.raises(RuntimeError, match="profile: it is not watching; enter it before"):
        outer.__exit__(None, None, None)
    with outer:  # again: it forgets what it counted before
        pass
    assert (outer.circuits, outer.at_call) == ([], [])


def test_threads_are_seen() -> None:
    x, small = large(), hg.array([1.0, 2.0])

    def work() -> None:
        run_three(x)
        for _ in range(100):
            small * 2

    with hg.profile() as p:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert p.stats["ops_recorded"] == 3 * 9
    assert sum(c.count for c in p.at_call if c.op == "mul") == 300
    with hg.profile() as p:
        pass
    assert "nothing was recorded" in p.svg()


def test_watched_results_have_the_same_bits() -> None:
    x, w = large(), large(1)
    small = hg.array([0.1, 0.2, 0.3])

    def run() -> list[bytes]:
        y = np.exp(x * 0.5) @ w + (small / 3).sum()
        return [np.asarray(v).tobytes() for v in (y, small * 3, np.sort(x * w), x[x > 0])]

    expected = run()
    with hg.profile():
        assert run() == expected
    with hg.profile() as p:
        assert run() == expected
    assert p.stats["ops_at_call"] > 0
