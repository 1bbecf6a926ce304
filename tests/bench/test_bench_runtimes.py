# SPDX-License-Identifier: MIT
"""The comparison with other runtimes: its arithmetic, its models, and packages that are missing."""

from __future__ import annotations

import math
import sys

import pytest
import torch
from bench_support import make_context

from bench.areas import runtimes
from bench.core import AREAS, PeerFigure, Row, Spread


def make_row(name: str, cores: int, **milliseconds: float) -> Row:
    row = Row("runtimes", name, milliseconds.pop("own"), 1.0)
    row.cores = row.threads = cores
    for peer in (runtimes.CAPTURED, runtimes.ONNX_RUNTIME, runtimes.OPENVINO):
        value = milliseconds.get(peer.split()[0])
        row.peers[peer] = PeerFigure(None if value is None else Spread.of([value]))
    return row


def test_rows_are_compared_with_the_better_runtime_of_their_setting():
    rows = [
        make_row("a", 1, own=4.0, captured=2.0, ONNX=3.0, OpenVINO=2.0),
        make_row("b", 1, own=2.0, captured=1.0, OpenVINO=4.0),
        make_row("c", 1, own=2.0, captured=1.0),
        make_row("a", 2, own=1.0, ONNX=3.0, OpenVINO=2.0),
    ]
    found = {(r.cores, r.name): r for r in AREAS["runtimes"].summaries(rows)}
    tail = "against the better runtime"
    assert found[1, f"a, {tail}"].ratio == pytest.approx(0.5)
    assert found[1, f"a, {tail}"].below_goal
    assert found[1, f"b, captured, {tail}"].ratio == pytest.approx(4.0)
    assert found[1, f"geometric mean of 2, {tail}"].ratio == pytest.approx(1.0)
    assert not found[1, f"geometric mean of 2, {tail}"].below_goal
    assert found[1, f"geometric mean of 2, captured, {tail}"].ratio == pytest.approx(2.0)
    assert found[2, f"geometric mean of 1, {tail}"].ratio == pytest.approx(2.0)
    assert len(found) == 8, "neither c, which no runtime ran, nor a graph that was not captured"


def test_only_a_run_of_everything_measures_it():
    context = make_context()
    context.whole = False
    assert list(AREAS["runtimes"].measure(context)) == []


def test_runtimes_that_are_missing_are_named(monkeypatch):
    for name in ("onnx", "onnxruntime", "openvino"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(
        runtimes, "MODELS", {"MLP": runtimes.MODELS["MLP 256-512-512-10, batch 64"]}
    )
    context = make_context()
    context.quick, context.whole = False, True
    context.timing = context.timing.within(0.2, 2)
    (row,) = AREAS["runtimes"].measure(context)
    assert not row.fault
    assert row.ratio > 0
    for peer in (runtimes.ONNX_RUNTIME, runtimes.OPENVINO):
        assert row.peers[peer].reason == "onnx is not installed"
        assert math.isnan(row.ratio_to(peer))


@pytest.mark.parametrize(
    "name", [n for n in runtimes.MODELS if "image" not in n and "BERT" not in n]
)
def test_models_answer(name):
    model = runtimes.MODELS[name]()
    with torch.no_grad():
        first, again = (model.ask(model.module.eval(), *model.inputs) for _ in range(2))
    assert torch.equal(first, again)
    assert torch.isfinite(first).all()
