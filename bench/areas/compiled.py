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
from bench.architectures import TOLERANCE
from bench.areas.small_models import KINDS, MODELS
from bench.context import Context
from bench.core import Case, Goal, Peer, Row, Side, Work, area, mean_row
from bench.models import Function

ON_CPU, ON_DEVICE, BACKEND = "Inductor on cpu", "Inductor on the device", "backend='hologram'"
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


def _compiled_by(backend: str) -> Callable[[Function], Function]:
    def compile_it(function: Function) -> Function:
        if backend == "inductor":
            peers.prepare_compile()
        found: Function = torch.compile(function, backend=backend, dynamic=False)
        return found

    return compile_it


def _case(context: Context, name: str, kind: str) -> Case:
    make, work = MODELS[name], KINDS[kind]

    def peer(name: str, side: Side, backend: str) -> Peer:
        return Peer(name, lambda: (work(make, side, _compiled_by(backend)), side), is_costly=True)

    def build(side: Side) -> Work:
        # What was compiled for the case before is forgotten: a function that has been compiled
        # for many shapes runs as it is without a word.
        torch._dynamo.reset()
        return work(make, side)

    return Case(
        f"{name}, {kind}",
        build,
        tolerance=TOLERANCE,
        min_time=1.0,
        turn=0.1,
        peers=[
            peer(ON_CPU, context.cpu, "inductor"),
            peer(ON_DEVICE, context.side, "inductor"),
            peer(BACKEND, context.side, "hologram"),
        ],
    )


def summarize(rows: list[Row]) -> Iterator[Row]:
    """Yield the geometric mean of each way on the device against Inductor on cpu."""
    for kind in KINDS:
        own = [r for r in rows if r.name.endswith(kind)]
        for way in ("", ON_DEVICE, BACKEND):
            ratios = [r.median_of(ON_CPU) / r.median_of(way) for r in own]
            ratios = [ratio for ratio in ratios if not math.isnan(ratio)]
            if ratios:
                name = f"{kind}, {way or 'as it is'}, against Inductor on cpu: geometric mean "
                name += f"of {len(ratios)}, lowest {min(ratios):.2f}x"
                yield mean_row(name, ratios, "", _COMPILED if way else _AS_IT_IS)


@area("compile", "Small models compiled by torch.compile", seconds=1, summarize=summarize)
def cases(context: Context) -> Iterator[Case]:
    if context.everything:
        logging.getLogger("torch._dynamo").setLevel(logging.ERROR)
        for name in _MODELS:
            for kind in KINDS:
                yield _case(context, name, kind)
