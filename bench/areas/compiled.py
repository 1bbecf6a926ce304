# SPDX-License-Identifier: MIT
"""Small models as they are on the device, beside the same models compiled by ``torch.compile``.

Who compiles is Inductor on cpu, Inductor on the device, and ``backend='hologram'``. A compiler
takes a minute for some models, so only ``--all`` measures this.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator

import torch

from bench import peers
from bench.areas.small_models import (
    MODELS,
    Function,
    Model,
    as_it_is,
    inference_work,
    training_work,
)
from bench.context import Context
from bench.core import Case, Goal, Peer, Row, Side, Work, area, geometric_mean

AREA = "compile"
ON_CPU, ON_DEVICE, BACKEND = "Inductor on cpu", "Inductor on the device", "backend='hologram'"
# Rounding adds up over the layers; what is compared is of the order of one.
_TOLERANCE = (2e-3, 2e-3)
_AS_IT_IS, _COMPILED = Goal(1.2), Goal(1.1)
_MODELS = (
    "nn.TransformerEncoder 2 x 128, 4 x 64",
    "LSTM 64-128, 2 layers, 8 x 50",
    "GRU 64-128, 8 x 50",
    "Llama 3 x 128, 8 x 64",
    "BERT 2 x 256, 4 x 64",
    "T5 2 + 2 x 128, 4 x 32",
    "ViT 2 x 128, 4 x 64 x 64",
    "ResNet-18, 2 x 128 x 128",
    "MobileNetV3-small, 2 x 128 x 128",
)

Build = Callable[[Callable[[], Model], Side, Callable[[Function], Function]], Work]


def _compiled_by(backend: str) -> Callable[[Function], Function]:
    def compile_it(function: Function) -> Function:
        if backend == "inductor":
            peers.prepare_compile()
        found: Function = torch.compile(function, backend=backend, dynamic=False)
        return found

    return compile_it


def _case(context: Context, name: str, kind: str, work: Build) -> Case:
    make = MODELS[name]

    def peer(name: str, side: Side, backend: str) -> Peer:
        return Peer(name, lambda: (work(make, side, _compiled_by(backend)), side), is_costly=True)

    def build(side: Side) -> Work:
        # What was compiled for the case before is forgotten: a function that has been compiled
        # for many shapes runs as it is without a word.
        torch._dynamo.reset()
        return work(make, side, as_it_is)

    return Case(
        f"{name}, {kind}",
        build,
        tolerance=_TOLERANCE,
        min_time=1.0,
        turn=0.1,
        peers=[
            peer(ON_CPU, context.cpu, "inductor"),
            peer(ON_DEVICE, context.side, "inductor"),
            peer(BACKEND, context.side, "hologram"),
        ],
    )


def _median(row: Row, way: str) -> float:
    """Return what a row took in one of the ways on the device; NaN where it has no figure."""
    if not way:
        return row.value
    figure = row.peers.get(way)
    return figure.spread.median if figure and figure.spread else math.nan


def summarize(rows: list[Row]) -> list[Row]:
    """Return the geometric mean of each way on the device against Inductor on cpu."""
    found = []
    for setting in sorted({row.setting for row in rows}):
        for kind in ("inference", "training"):
            own = [r for r in rows if r.setting == setting and r.name.endswith(kind)]
            for way in ("", ON_DEVICE, BACKEND):
                ratios = [_median(r, ON_CPU) / _median(r, way) for r in own]
                ratios = [ratio for ratio in ratios if not math.isnan(ratio)]
                if ratios:
                    found.append(
                        Row(
                            AREA,
                            f"{kind}, {way or 'as it is'}, against Inductor on cpu: geometric mean "
                            f"of {len(ratios)}, lowest {min(ratios):.2f}x",
                            1.0,
                            geometric_mean(ratios),
                            "",
                            goal=_COMPILED if way else _AS_IT_IS,
                            cores=setting.cores,
                            threads=setting.threads,
                        )
                    )
    return found


@area(AREA, "Small models compiled by torch.compile", summarize)
def measure(context: Context) -> Iterator[Row]:
    if not context.whole or context.quick:
        return
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)

    def cases() -> Iterator[Case]:
        for name in _MODELS:
            yield _case(context, name, "inference", inference_work)
            yield _case(context, name, "training", training_work)

    yield from context.rows(AREA, cases)
