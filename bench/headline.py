# SPDX-License-Identifier: MIT
"""The table of a run: a handful of figures for each setting, every one over all rows it names."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from bench.core import SIZES, Row, Setting, geometric_mean, size_name
from bench.results import Results


@dataclass(frozen=True)
class Figure:
    """The ratio of one row, or the geometric mean of those of several."""

    area: str
    pattern: str = ""  # of the beginning of names
    size: int = 0
    peer: str = ""  # against whom; nothing: the reference of the row

    def match(self, row: Row) -> bool:
        """Tell whether it is about a row."""
        return bool(re.match(self.pattern, row.name)) and self.size in (0, row.size)


def _named(area: str, *patterns: str) -> list[Figure]:
    return [Figure(area, pattern) for pattern in patterns or ("",)]


def _by_size(area: str) -> list[Figure]:
    return [Figure(area, size=size) for size in SIZES.values()]


_MLP = "MLP 784-128-10, batch 32, Adam"
_ADAMW = "50 x 64K parameters, AdamW"
_SIZES = " / ".join(map(size_name, SIZES.values()))
TABLE: Sequence[tuple[str, Sequence[Figure]]] = (
    ("chains, geometric mean of all rows", _named("chains")),
    (f"chains at {_SIZES}", _by_size("chains")),
    (
        "chains against torch.compile / NumPy",
        [Figure("chains", peer=peer) for peer in ("torch.compile", "NumPy")],
    ),
    (
        f"train step, {_MLP}: default / fused / reading every loss",
        _named("training", *(f"{_MLP}, {o}; cpu, default$" for o in ("default", "fused=True")))
        + _named("training", f"{_MLP}.*reading"),
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
        _named("training", *(f"{_ADAMW}, {o}; cpu, foreach" for o in ("default", "fused=True"))),
    ),
    (
        "inference: ResNet-18 / BERT base / GPT-2 decode / small GPT decode / LSTM",
        _named("inference", "ResNet-18", "BERT", r"GPT-2 \(", "GPT-2 shape", "LSTM"),
    ),
    (
        "small models of transformers, torchvision and nn, unmodified: inference / training",
        _named("models", ".*inference$", ".*training$"),
    ),
    ("a chain of a new length each call", _named("sizes", "five ops and a mean")),
    ("single ops, geometric mean of all rows", _named("single")),
    (f"single ops at {_SIZES}", _by_size("single")),
    ("x + y of 16 elements, from Python", _named("overhead", r"x \+ y$")),
)


def _cell(figures: Sequence[Figure], rows: list[Row], setting: Setting) -> str:
    """Return the figures of one setting, with how many rows each is of."""
    texts, counts = [], []
    for figure in figures:
        named = [r for r in rows if r.area == figure.area and figure.match(r)]
        named = [r for r in named if r.setting == setting]
        ratios = [r.ratio_to(figure.peer) for r in named if r.is_measured]
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
    known = {**results.machine, "PyTorch": results.machine.get("torch")}
    known |= {
        "NumPy BLAS": known.get("numpy BLAS"),
        "load at the start": known.get("load_at_start"),
    }
    known["commit"] = f"{known.get('commit', '')}{' (modified)' * bool(known.get('modified'))}"
    shown = "PyTorch, MKL, MKL uses AVX-512, oneDNN, NumPy BLAS, commit, load at the start"
    parts = [str(known.get(name, "")) for name in ("machine", "time")]
    values = [(name, known.get(name)) for name in shown.split(", ")]
    parts += [f"{name}: {value}" for name, value in values if value not in (None, "")]
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
