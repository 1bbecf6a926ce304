# SPDX-License-Identifier: MIT
"""The table of a run: a handful of figures for each setting, every one over all rows it names."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.core import SIZES, Row, Setting, geometric_mean, size_name
from bench.results import Results


@dataclass(frozen=True)
class Figure:
    """The ratio of one row, or the geometric mean of those of several."""

    area: str
    match: Callable[[Row], bool]
    peer: str = ""  # against whom; nothing: the reference of the row

    def ratio(self, row: Row) -> float:
        """Return the ratio of a row; NaN where it has none."""
        return row.ratio_to(self.peer) if self.peer else row.ratio


def _named(area: str, *starts: str) -> Sequence[Figure]:
    return [Figure(area, lambda r, s=start: r.name.startswith(s)) for start in starts]  # type: ignore[misc]


def _all(area: str, peer: str = "") -> Figure:
    return Figure(area, lambda r: True, peer)


def _by_size(area: str) -> Sequence[Figure]:
    return [Figure(area, lambda r, n=size: r.size == n) for size in SIZES.values()]  # type: ignore[misc]


_MLP = "MLP 784-128-10, batch 32, Adam"
_ADAMW = "50 x 64K parameters, AdamW"
_SIZES = " / ".join(size_name(n) for n in SIZES.values())
TABLE: Sequence[tuple[str, Sequence[Figure]]] = (
    ("chains, geometric mean of all rows", [_all("chains")]),
    (f"chains at {_SIZES}", _by_size("chains")),
    (
        "chains against torch.compile / NumPy",
        [_all("chains", p) for p in ("torch.compile", "NumPy")],
    ),
    (
        f"train step, {_MLP}: default / fused / reading every loss",
        [
            Figure("training", lambda r: r.name == f"{_MLP}, default; cpu, default"),
            Figure("training", lambda r: r.name == f"{_MLP}, fused=True; cpu, default"),
            Figure("training", lambda r: r.name.startswith(_MLP) and "reading" in r.name),
        ],
    ),
    (
        "train step, GPT-2 shape, AdamW: float32 / bfloat16 autocast",
        _named("training", "GPT-2 shape", "bfloat16 autocast"),
    ),
    (
        "steps captured and replayed: MLP, Adam / GPT-2 shape, AdamW",
        _named("graphs", "MLP", "GPT-2 shape"),
    ),
    ("train step, CNN on digits, Adam", _named("training", "CNN on digits")),
    (
        f"{_ADAMW}: default / fused, against cpu's foreach",
        _named(
            "training",
            f"{_ADAMW}, default; cpu, foreach",
            f"{_ADAMW}, fused=True; cpu, foreach",
        ),
    ),
    (
        "inference: ResNet-18 / BERT base / GPT-2 decode / small GPT decode / LSTM",
        _named("inference", "ResNet-18", "BERT", "GPT-2 (", "GPT-2 shape", "LSTM"),
    ),
    (
        "small models of transformers, torchvision and nn, unmodified: inference / training",
        [
            Figure("models", lambda r: r.name.endswith("inference")),
            Figure("models", lambda r: r.name.endswith("training")),
        ],
    ),
    (
        "a chain of a new length each call",
        _named("sizes", "five ops and a mean"),
    ),
    ("single ops, geometric mean of all rows", [_all("single")]),
    (f"single ops at {_SIZES}", _by_size("single")),
    ("x + y of 16 elements, from Python", [Figure("overhead", lambda r: r.name == "x + y")]),
)


def _cell(figures: Sequence[Figure], rows: list[Row], setting: Setting) -> str:
    """Return the figures of one setting, with how many rows each is of."""
    texts, counts = [], []
    for figure in figures:
        named = [
            r for r in rows if r.area == figure.area and r.setting == setting and figure.match(r)
        ]
        ratios = [figure.ratio(r) for r in named if not r.fault and not r.skipped]
        ratios = [ratio for ratio in ratios if not math.isnan(ratio)]
        texts.append(f"{geometric_mean(ratios):.2f}x" if ratios else "-")
        counts.append(f"{len(ratios)} of {len(named)}" if len(ratios) != len(named) else len(named))
    if set(counts) <= {0, 1}:
        return " / ".join(texts)
    said = " / ".join(map(str, dict.fromkeys(counts)))
    return f"{' / '.join(texts)} ({said} rows)"


def table(results: Results) -> tuple[list[str], list[list[str]]]:
    """Return header and lines of the table; works of which nothing was measured are left out."""
    areas = {figure.area for _, figures in TABLE for figure in figures}
    settings = sorted({r.setting for r in results.rows if r.area in areas})
    lines = []
    for work, figures in TABLE:
        cells = [_cell(figures, results.rows, setting) for setting in settings]
        if any("x" in cell for cell in cells):
            lines.append([work, *cells])
    return ["work", *(setting.label for setting in settings)], lines


def caption(results: Results) -> str:
    """Return where, when and with what the table was measured."""
    machine = results.machine
    known = {
        "PyTorch": machine.get("torch"),
        "MKL": machine.get("MKL"),
        "MKL uses AVX-512": machine.get("MKL uses AVX-512"),
        "oneDNN": machine.get("oneDNN"),
        "NumPy BLAS": machine.get("numpy BLAS"),
        "commit": str(machine.get("commit", ""))
        + (" (modified)" if machine.get("modified") else ""),
        "load at the start": machine.get("load_at_start"),
    }
    parts = [str(machine.get("machine", "")), str(machine.get("time", ""))]
    parts += [f"{name}: {value}" for name, value in known.items() if value not in (None, "")]
    for setting, facts in results.processes.items():
        picked = [f"{facts.get('torch_threads')} threads of PyTorch"]
        picked += [f"worker: {'yes' if facts['worker'] else 'no'}"] if "worker" in facts else []
        picked += [f"products by {facts['gemm']}"] if "gemm" in facts else []
        picked += [f"kernels for {facts['isa']}"] if "isa" in facts else []
        parts.append(f"{setting}: {', '.join(picked)}")
    left = len(results.skipped())
    if left or not results.whole:
        why = "" if results.whole else "the run was stopped; "
        parts.append(f"{why}{left} of {len(results.rows)} rows were not measured")
    return "; ".join(part for part in parts if part) + "."
