# SPDX-License-Identifier: MIT
"""Small models as their libraries write them: transformers, torchvision and torch.nn.

Random weights, nothing changed. What is not installed is not measured, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench import products
from bench.architectures import TOLERANCE, encoder, gpt2, hugging, llama, numbers, still, tokens
from bench.context import Context
from bench.core import Case, Goal, Side, Work, area, library
from bench.models import Function, Model, as_it_is, inference_work, mlp, placed

_QUICK = 2  # models
_STEPS = 2  # before the program waits


def _classifier(module: nn.Module, *shape: int) -> Model:
    return Model(
        module,
        [torch.randn(shape), torch.randint(0, 10, shape[:1])],
        lambda m, x, y: m(x),
        lambda m, x, y: F.cross_entropy(m(x), y),
    )


def _language(make: Callable[..., Any], *options: int) -> Callable[[], Model]:
    """Return what makes a language model and 8 texts of 64 tokens."""
    return lambda: Model(
        make(256, *options),
        [tokens(256, 8, 64)],
        lambda m, x: m(input_ids=x).logits,
        lambda m, x: m(input_ids=x, labels=x).loss,
    )


def _bert() -> Model:
    return Model(
        encoder("Bert", 256, "ForSequenceClassification", vocab_size=1000),
        [tokens(1000, 4, 64), torch.randint(0, 2, (4,))],
        lambda m, x, y: m(input_ids=x).logits,
        lambda m, x, y: m(input_ids=x, labels=y).loss,
    )


def _t5() -> Model:
    sizes = "num_layers=2 num_decoder_layers=2 d_model=128 d_kv=32 d_ff=512 num_heads=4"
    options = numbers(f"vocab_size=256 decoder_start_token_id=0 {sizes}")
    return Model(
        hugging("T5", "ForConditionalGeneration", **options),
        [tokens(256, 4, 32), tokens(256, 4, 32)],
        lambda m, x, y: m(input_ids=x, labels=y).logits,
        lambda m, x, y: m(input_ids=x, labels=y).loss,
    )


def _vit() -> Model:
    images = numbers("image_size=64 patch_size=8 num_labels=10")
    return Model(
        encoder("ViT", 128, "ForImageClassification", **images),
        [torch.randn(4, 3, 64, 64), torch.randint(0, 10, (4,))],
        lambda m, x, y: m(pixel_values=x).logits,
        lambda m, x, y: m(pixel_values=x, labels=y).loss,
    )


def _vision(name: str) -> Callable[[], Model]:
    def make() -> Model:
        module = getattr(library("torchvision").models, name)(num_classes=10)
        return _classifier(still(module), 2, 3, 128, 128)

    return make


class _Last(nn.Module):
    """Classes from the last step of a recurrent layer."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer
        self.out = nn.Linear(128 * (2 if layer.bidirectional else 1), 10)

    def forward(self, x: Tensor) -> Tensor:
        """Classify."""
        return self.out(self.layer(x)[0][:, -1])


def _recurrent(kind: type[nn.RNNBase], **options: Any) -> Callable[[], Model]:
    return lambda: _classifier(_Last(kind(64, 128, batch_first=True, **options)), 8, 50, 64)


def _encoder() -> Model:
    layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
    return Model(
        nn.TransformerEncoder(layer, 2),
        [torch.randn(4, 64, 128), torch.randn(4, 64, 128)],
        lambda m, x, y: m(x),
        lambda m, x, y: (m(x) - y).square().mean(),
    )


MODELS: dict[str, Callable[[], Model]] = {
    "MLP 784-128-10, batch 32": lambda: _classifier(mlp(784, 128, 10)(), 32, 784),
    "nn.TransformerEncoder 2 x 128, 4 x 64": _encoder,
    "LSTM 64-128, 2 layers, 8 x 50": _recurrent(nn.LSTM, num_layers=2),
    "bidirectional LSTM 64-128, 8 x 50": _recurrent(nn.LSTM, bidirectional=True),
    "GRU 64-128, 8 x 50": _recurrent(nn.GRU),
    "RNN 64-128, 8 x 50": _recurrent(nn.RNN),
    "GPT-2 4 x 128, 8 x 64": _language(gpt2),
    "Llama 3 x 128, 8 x 64": _language(llama, 3),
    "BERT 2 x 256, 4 x 64": _bert,
    "T5 2 + 2 x 128, 4 x 32": _t5,
    "ViT 2 x 128, 4 x 64 x 64": _vit,
    "ResNet-18, 2 x 128 x 128": _vision("resnet18"),
    "MobileNetV3-small, 2 x 128 x 128": _vision("mobilenet_v3_small"),
}


def training_work(
    make: Callable[[], Model], side: Side, prepare: Callable[[Function], Function] = as_it_is
) -> Work:
    """Return steps of AdamW as work; compared are the loss and the gradients of the first.

    `prepare` may compile what computes the loss.
    """
    model = placed(make, side, training=True)
    assert model.loss is not None
    loss_of = prepare(model.loss)
    optimizer = torch.optim.AdamW(model.module.parameters(), lr=1e-4)

    def backward(model: Model) -> Tensor:
        loss = loss_of(model.module, *model.inputs)
        loss.backward()
        return loss.detach()

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = backward(model)
        optimizer.step()
        return loss

    def outputs() -> list[Tensor]:
        fresh = placed(make, side, training=True)
        loss = backward(fresh)
        return [loss, *(p.grad for p in fresh.module.parameters() if p.grad is not None)]

    return Work(lambda: [step() for _ in range(_STEPS)], _STEPS, outputs)


KINDS: dict[str, Callable[..., Work]] = {"inference": inference_work, "training": training_work}


@area("models", "Small models of transformers, torchvision and torch.nn, unmodified", seconds=40)
def cases(context: Context) -> Iterator[Case]:
    for name in list(MODELS)[: _QUICK if context.quick else None]:
        for kind, work in KINDS.items():
            build = partial(work, MODELS[name])
            yield Case(
                f"{name}, {kind}",
                build,
                tolerance=TOLERANCE,
                peers=[products.limit(build, context.side)] if context.everything else (),
                goal=Goal(1.5 if kind == "inference" else 2.0),
            )
