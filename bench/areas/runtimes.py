# SPDX-License-Identifier: MIT
"""Inference beside ONNX Runtime and OpenVINO, which are given the exported model.

They compile a model once, for one shape; the device runs the same module as it is, and, as one of
the peers, a graph captured from it. All answer one request after the other, for a tenth of a second
at a time, as a server does. Measured by ``--all``, as an export takes seconds; the packages
are those of tools/requirements-peers.txt.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench import models
from bench.architectures import TOLERANCE, encoder
from bench.context import Context
from bench.core import (
    Case,
    Goal,
    Peer,
    Row,
    Side,
    Unavailable,
    Work,
    area,
    library,
    make_side,
    mean_row,
)
from bench.models import Model, inference_work, placed

CAPTURED, ONNX_RUNTIME, OPENVINO = "captured", "ONNX Runtime", "OpenVINO"
_EACH, _MEAN = Goal(0.8), Goal(1.0)
_PROMPT = 64
_LSTM, _MLP = "LSTM, 2 layers of 256, 32 steps of 8 x 128", "MLP 256-512-512-10, batch 64"

Make = Callable[[], Model]


class _Asked(nn.Module):
    """A model as a module that is asked for one tensor."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.module, self.ask = model.module, model.ask

    def forward(self, *inputs: Tensor) -> Any:
        """Ask."""
        return self.ask(self.module, *inputs)


def _image() -> Tensor:
    return torch.randn(1, 3, 224, 224)


def _vision(name: str) -> Make:
    return lambda: Model(getattr(library("torchvision").models, name)(), [_image()])


def _bert() -> Model:
    module = encoder("Bert", 256, layers=4, vocab_size=1000)
    text = torch.randint(0, 1000, (1, 64))
    return Model(module, [text], lambda m, x: m(input_ids=x).last_hidden_state)


def _vit() -> Model:
    module = encoder("ViT", 192, layers=6, num_attention_heads=3)
    return Model(module, [_image()], lambda m, x: m(pixel_values=x).last_hidden_state)


def _decode() -> Model:
    """Return a token after a prompt, of a GPT that is given its keys and values."""
    module = models.small_gpt()
    caches = module.new_caches(1, _PROMPT + 1, torch.device("cpu"))
    inputs = [torch.randint(0, 1024, (1, 1))]
    inputs += [torch.randn_like(t) for pair in caches for t in pair]
    return Model(module, inputs, lambda m, x, *kv: m(x, list(zip(kv[::2], kv[1::2])), _PROMPT))


MODELS: dict[str, Make] = {
    "ResNet-18, one image": _vision("resnet18"),
    "ResNet-50, one image": _vision("resnet50"),
    "MobileNetV3-small, one image": _vision("mobilenet_v3_small"),
    "EfficientNet-B0, one image": _vision("efficientnet_b0"),
    "BERT 4 x 256, one text of 64": _bert,
    "ViT 6 x 192, one image": _vit,
    "GPT-2 shape 4 x 128, a token after 64": _decode,
    _LSTM: lambda: Model(models.lstm(), [torch.randn(32, 8, 128)]),
    _MLP: lambda: Model(models.mlp(256, 512, 512, 10)(), [torch.randn(64, 256)]),
}


def captured_work(make: Make, side: Side) -> Work:
    """Return the replay of a graph of the module as work."""
    if side.device.type != "hologram" or not hasattr(torch.accelerator, "Graph"):
        raise Unavailable("graphs are captured on the device, by PyTorch 2.13 or later")
    model = placed(make, side)
    graph = torch.accelerator.Graph()
    with torch.no_grad():
        # What is made at the first call is there before the capture.
        model.ask(model.module, *model.inputs)
        with graph:
            answer: Tensor = model.ask(model.module, *model.inputs)

    def run() -> Tensor:
        graph.replay()
        return answer

    return Work(run)


def export(make: Make, folder: Path) -> tuple[Path, list[Any]]:
    """Write the module as ONNX; return the file and the inputs as arrays."""
    for name in ("onnx", "onnxscript"):
        library(name)
    model = placed(make, make_side("cpu"))
    path = folder / "model.onnx"
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.onnx.export(_Asked(model), tuple(model.inputs), path, dynamo=True, verbose=False)
    finally:
        logging.disable(before)
    return path, [t.numpy() for t in model.inputs]


def _as_work(call: Callable[[], Any]) -> Work:
    return Work(call, 1, lambda: torch.from_numpy(call().copy()))


def onnx_runtime_work(path: Path, arrays: list[Any], threads: int) -> Work:
    """Return the answer of ONNX Runtime as work."""
    runtime = library("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    given = dict(zip([i.name for i in session.get_inputs()], arrays, strict=True))
    return _as_work(lambda: session.run(None, given)[0])


def openvino_work(path: Path, arrays: list[Any], threads: int) -> Work:
    """Return the answer of OpenVINO as work, computed in float32."""
    core = library("openvino").Core()
    options = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    request = core.compile_model(core.read_model(path), "CPU", options).create_infer_request()
    given = dict(enumerate(arrays))
    return _as_work(lambda: request.infer(given)[0])


def _case(context: Context, name: str) -> Case:
    make = MODELS[name]
    exported: list[tuple[Path, list[Any]]] = []

    def peer(work: Callable[[Path, list[Any], int], Work]) -> tuple[Work, Side]:
        if not exported:
            folder = tempfile.TemporaryDirectory(prefix="bench-onnx-")
            exported.append(export(make, Path(context.resources.enter_context(folder))))
        return work(*exported[0], context.setting.threads), context.cpu

    return Case(
        name,
        partial(inference_work, make, steps=1),
        tolerance=TOLERANCE,
        min_time=1.0,
        turn=0.1,
        peers=[
            Peer(CAPTURED, lambda: (captured_work(make, context.side), context.side)),
            Peer(ONNX_RUNTIME, lambda: peer(onnx_runtime_work), is_costly=True),
            Peer(OPENVINO, lambda: peer(openvino_work), is_costly=True),
        ],
    )


def summarize(rows: list[Row]) -> Iterator[Row]:
    """Yield each model, as it is and captured, against the better of the two runtimes."""
    for way in ("", CAPTURED):
        ratios = []
        about = f"{', ' + way if way else ''}, against the better runtime"
        for row in rows:
            medians = [row.median_of(name) for name in (ONNX_RUNTIME, OPENVINO)]
            best = min((m for m in medians if not math.isnan(m)), default=math.nan)
            value = row.median_of(way)
            if not math.isnan(best / value):
                ratios.append(best / value)
                yield Row("", row.name + about, value, best, goal=_EACH)
        if ratios:
            yield mean_row(f"geometric mean of {len(ratios)}{about}", ratios, "", _MEAN)


@area("runtimes", "Inference beside ONNX Runtime and OpenVINO", seconds=1, summarize=summarize)
def cases(context: Context) -> Iterator[Case]:
    for name in MODELS if context.everything else ():
        yield _case(context, name)
