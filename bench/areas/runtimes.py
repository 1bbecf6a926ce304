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
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench import models
from bench.areas.small_models import library
from bench.context import Context
from bench.core import (
    Case,
    Goal,
    Peer,
    PeerFigure,
    Row,
    Side,
    Spread,
    Unavailable,
    Work,
    area,
    geometric_mean,
)

AREA = "runtimes"
CAPTURED, ONNX_RUNTIME, OPENVINO = "captured", "ONNX Runtime", "OpenVINO"
_RUNTIMES = (ONNX_RUNTIME, OPENVINO)
# Rounding adds up over the layers.
_TOLERANCE = (2e-3, 2e-3)
_EACH, _MEAN = Goal(0.8), Goal(1.0)
_PROMPT = 64

Made = tuple[nn.Module, list[Tensor]]


class _Output(nn.Module):
    """One output of a module of transformers, by name."""

    def __init__(self, module: nn.Module, argument: str, output: str) -> None:
        super().__init__()
        self.module, self.argument, self.output = module, argument, output

    def forward(self, x: Tensor) -> Tensor:
        """Ask for it."""
        found: Tensor = getattr(self.module(**{self.argument: x}), self.output)
        return found


class _Decode(nn.Module):
    """A token after a prompt, of a GPT that is given its keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.model = models.small_gpt()

    def forward(self, token: Tensor, *caches: Tensor) -> Tensor:
        """Return the logits."""
        pairs = [(caches[i], caches[i + 1]) for i in range(0, len(caches), 2)]
        logits: Tensor = self.model(token, pairs, _PROMPT)
        return logits


class _Sequence(nn.Module):
    """The states of an LSTM of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(128, 256, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Return those of the last layer."""
        states: Tensor = self.layer(x)[0]
        return states


def _vision(name: str) -> Callable[[], Made]:
    return lambda: (getattr(library("torchvision").models, name)(), [torch.randn(1, 3, 224, 224)])


def _bert() -> Made:
    transformers = library("transformers")
    sizes = {"num_hidden_layers": 4, "hidden_size": 256, "intermediate_size": 1024}
    config = transformers.BertConfig(vocab_size=1000, num_attention_heads=4, **sizes)
    model = transformers.BertModel(config)
    return _Output(model, "input_ids", "last_hidden_state"), [torch.randint(0, 1000, (1, 64))]


def _vit() -> Made:
    transformers = library("transformers")
    sizes = {"num_hidden_layers": 6, "hidden_size": 192, "intermediate_size": 768}
    model = transformers.ViTModel(transformers.ViTConfig(num_attention_heads=3, **sizes))
    return _Output(model, "pixel_values", "last_hidden_state"), [torch.randn(1, 3, 224, 224)]


def _decode() -> Made:
    model = _Decode()
    caches = model.model.new_caches(1, _PROMPT + 1, torch.device("cpu"))
    filled = [torch.randn_like(t) for pair in caches for t in pair]
    return model, [torch.randint(0, 1024, (1, 1)), *filled]


def _mlp() -> Made:
    layers = [nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
    return nn.Sequential(*layers), [torch.randn(64, 256)]


MODELS: dict[str, Callable[[], Made]] = {
    "ResNet-18, one image": _vision("resnet18"),
    "ResNet-50, one image": _vision("resnet50"),
    "MobileNetV3-small, one image": _vision("mobilenet_v3_small"),
    "EfficientNet-B0, one image": _vision("efficientnet_b0"),
    "BERT 4 x 256, one text of 64": _bert,
    "ViT 6 x 192, one image": _vit,
    "GPT-2 shape 4 x 128, a token after 64": _decode,
    "LSTM, 2 layers of 256, 32 steps of 8 x 128": lambda: (_Sequence(), [torch.randn(32, 8, 128)]),
    "MLP 256-512-512-10, batch 64": _mlp,
}


def _make(make: Callable[[], Made], device: torch.device) -> Made:
    torch.manual_seed(0)
    module, inputs = make()
    return module.to(device).eval(), [t.to(device) for t in inputs]


def eager_work(make: Callable[[], Made], side: Side) -> Work:
    """Return the module's answer as work."""
    module, inputs = _make(make, side.device)

    def run() -> Any:
        with torch.no_grad():
            return module(*inputs)

    return Work(run)


def captured_work(make: Callable[[], Made], side: Side) -> Work:
    """Return the replay of a graph of the module as work."""
    if side.device.type != "hologram" or not hasattr(torch.accelerator, "Graph"):
        raise Unavailable("graphs are captured on the device, by PyTorch 2.13 or later")
    module, inputs = _make(make, side.device)
    graph = torch.accelerator.Graph()
    with torch.no_grad():
        module(*inputs)  # what is made at the first call is there before the capture
        with graph:
            answer = module(*inputs)

    def run() -> Tensor:
        graph.replay()
        found: Tensor = answer
        return found

    return Work(run)


def export(make: Callable[[], Made], folder: Path) -> tuple[Path, list[Any]]:
    """Write the module as ONNX; return the file and the inputs as arrays."""
    for name in ("onnx", "onnxscript"):
        library(name)
    module, inputs = _make(make, torch.device("cpu"))
    path = folder / "model.onnx"
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.onnx.export(module, tuple(inputs), path, dynamo=True, verbose=False)
    finally:
        logging.disable(before)
    return path, [t.numpy() for t in inputs]


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


def _case(context: Context, name: str, folder: Path) -> Case:
    make = MODELS[name]
    exported: list[tuple[Path, list[Any]]] = []

    def peer(work: Callable[[Path, list[Any], int], Work]) -> tuple[Work, Side]:
        if not exported:
            exported.append(export(make, folder))
        return work(*exported[0], context.setting.threads), context.cpu

    return Case(
        name,
        lambda side: eager_work(make, side),
        tolerance=_TOLERANCE,
        min_time=1.0,
        turn=0.1,
        peers=[
            Peer(CAPTURED, lambda: (captured_work(make, context.side), context.side)),
            Peer(ONNX_RUNTIME, lambda: peer(onnx_runtime_work), is_costly=True),
            Peer(OPENVINO, lambda: peer(openvino_work), is_costly=True),
        ],
    )


def _spread(figure: PeerFigure | None) -> Spread | None:
    return figure.spread if figure else None


def _against_the_better(rows: list[Row], way: str) -> Iterator[Row]:
    """Yield the rows of one setting against the better runtime, and their geometric mean."""
    ratios = []
    of_way = f"{', ' + way if way else ''}, against the better runtime"
    for row in rows:
        spreads = [_spread(row.peers.get(name)) for name in _RUNTIMES]
        best = min((s.median for s in spreads if s is not None), default=math.nan)
        captured = _spread(row.peers.get(CAPTURED))
        value = row.value if not way else captured.median if captured else math.nan
        if math.isnan(best) or math.isnan(value):
            continue
        ratios.append(best / value)
        yield Row(AREA, row.name + of_way, value, best, goal=_EACH)
    if ratios:
        name = f"geometric mean of {len(ratios)}{of_way}"
        yield Row(AREA, name, 1.0, geometric_mean(ratios), "", goal=_MEAN)


def summarize(rows: list[Row]) -> list[Row]:
    """Return each model, as it is and captured, against the better of the two runtimes."""
    found = []
    for setting in sorted({row.setting for row in rows}):
        own = [row for row in rows if row.setting == setting]
        for way in ("", CAPTURED):
            for row in _against_the_better(own, way):
                row.cores, row.threads = setting.cores, setting.threads
                found.append(row)
    return found


@area(AREA, "Inference beside ONNX Runtime and OpenVINO", summarize)
def measure(context: Context) -> Iterator[Row]:
    if not context.whole or context.quick:
        return
    with tempfile.TemporaryDirectory(prefix="bench-onnx-") as folder:

        def cases() -> Iterator[Case]:
            for index, name in enumerate(MODELS):
                own = Path(folder) / str(index)
                own.mkdir()
                yield _case(context, name, own)

        yield from context.rows(AREA, cases)
