# SPDX-License-Identifier: MIT
"""Small models as their libraries write them: transformers, torchvision and torch.nn.

Random weights, nothing changed. What is not installed is not measured, and says so.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.context import Context
from bench.core import Case, Goal, Row, Side, Unavailable, Work, area

AREA = "models"
_INFERENCE, _TRAINING = Goal(1.5), Goal(2.0)
# Rounding adds up over the layers; what is compared is of the order of one.
_TOLERANCE = (2e-3, 2e-3)
_STEPS = 2  # before the program waits


Function = Callable[..., Tensor]
Prepare = Callable[[Function], Function]


@dataclass
class Model:
    """A model, what it is asked, and how far it is off."""

    module: nn.Module
    inputs: list[Tensor]
    ask: Function
    loss: Function


def library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Unavailable(f"{name} is not installed") from error


def tokens(vocabulary: int, *shape: int) -> Tensor:
    return torch.randint(3, vocabulary, shape)


def _classifier(module: nn.Module, *shape: int) -> Model:
    return Model(
        module,
        [torch.randn(shape), torch.randint(0, 10, shape[:1])],
        lambda m, x, y: m(x),
        lambda m, x, y: F.cross_entropy(m(x), y),
    )


def language_model(kind: str, vocabulary: int, **options: Any) -> Any:
    """Return a language model of transformers."""
    transformers = library("transformers")
    config = getattr(transformers, f"{kind}Config")(vocab_size=vocabulary, **options)
    head = "LMHeadModel" if kind == "GPT2" else "ForCausalLM"
    return getattr(transformers, f"{kind}{head}")(config)


def _language(kind: str, **options: Any) -> Model:
    """Return such a model and 8 texts of 64 tokens."""
    return Model(
        language_model(kind, 256, **options),
        [tokens(256, 8, 64)],
        lambda m, x: m(input_ids=x, use_cache=False).logits,
        lambda m, x: m(input_ids=x, labels=x, use_cache=False).loss,
    )


def _gpt2() -> Model:
    none = dict.fromkeys(("attn_pdrop", "resid_pdrop", "embd_pdrop"), 0.0)
    return _language("GPT2", n_layer=4, n_embd=128, n_head=4, n_positions=128, **none)


def _llama() -> Model:
    sizes = {"hidden_size": 128, "intermediate_size": 344, "max_position_embeddings": 128}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return _language("Llama", num_hidden_layers=3, **sizes, **heads)


_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def _bert() -> Model:
    transformers = library("transformers")
    sizes = {"num_hidden_layers": 2, "hidden_size": 256, "intermediate_size": 1024}
    config = transformers.BertConfig(vocab_size=1000, num_attention_heads=4, **sizes, **_NO_DROPOUT)
    return Model(
        transformers.BertForSequenceClassification(config),
        [tokens(1000, 4, 64), torch.randint(0, 2, (4,))],
        lambda m, x, y: m(input_ids=x).logits,
        lambda m, x, y: m(input_ids=x, labels=y).loss,
    )


def _t5() -> Model:
    transformers = library("transformers")
    sizes = {"num_layers": 2, "num_decoder_layers": 2, "d_model": 128, "d_kv": 32, "d_ff": 512}
    other = {"num_heads": 4, "dropout_rate": 0.0, "decoder_start_token_id": 0}
    return Model(
        transformers.T5ForConditionalGeneration(
            transformers.T5Config(vocab_size=256, **sizes, **other)
        ),
        [tokens(256, 4, 32), tokens(256, 4, 32)],
        lambda m, x, y: m(input_ids=x, labels=y, use_cache=False).logits,
        lambda m, x, y: m(input_ids=x, labels=y, use_cache=False).loss,
    )


def _vit() -> Model:
    transformers = library("transformers")
    sizes = {"num_hidden_layers": 2, "hidden_size": 128, "intermediate_size": 512}
    images = {"num_attention_heads": 4, "image_size": 64, "patch_size": 8, "num_labels": 10}
    return Model(
        transformers.ViTForImageClassification(
            transformers.ViTConfig(**sizes, **images, **_NO_DROPOUT)
        ),
        [torch.randn(4, 3, 64, 64), torch.randint(0, 10, (4,))],
        lambda m, x, y: m(pixel_values=x).logits,
        lambda m, x, y: m(pixel_values=x, labels=y).loss,
    )


def _vision(name: str) -> Callable[[], Model]:
    def make() -> Model:
        module = getattr(library("torchvision").models, name)(num_classes=10)
        for part in module.modules():
            if isinstance(part, nn.Dropout):
                part.p = 0.0
        return _classifier(module, 2, 3, 128, 128)

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


def _mlp() -> Model:
    layers = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    return _classifier(layers, 32, 784)


MODELS: dict[str, Callable[[], Model]] = {
    "MLP 784-128-10, batch 32": _mlp,
    "nn.TransformerEncoder 2 x 128, 4 x 64": _encoder,
    "LSTM 64-128, 2 layers, 8 x 50": _recurrent(nn.LSTM, num_layers=2),
    "bidirectional LSTM 64-128, 8 x 50": _recurrent(nn.LSTM, bidirectional=True),
    "GRU 64-128, 8 x 50": _recurrent(nn.GRU),
    "RNN 64-128, 8 x 50": _recurrent(nn.RNN),
    "GPT-2 4 x 128, 8 x 64": _gpt2,
    "Llama 3 x 128, 8 x 64": _llama,
    "BERT 2 x 256, 4 x 64": _bert,
    "T5 2 + 2 x 128, 4 x 32": _t5,
    "ViT 2 x 128, 4 x 64 x 64": _vit,
    "ResNet-18, 2 x 128 x 128": _vision("resnet18"),
    "MobileNetV3-small, 2 x 128 x 128": _vision("mobilenet_v3_small"),
}
_QUICK = 2


def _make(make: Callable[[], Model], side: Side, training: bool) -> Model:
    torch.manual_seed(0)
    model = make()
    model.module = model.module.to(side.device).train(training)
    model.inputs = [t.to(side.device) for t in model.inputs]
    return model


def as_it_is(function: Function) -> Function:
    """Return the function itself: what eager work does with it."""
    return function


def inference_work(make: Callable[[], Model], side: Side, prepare: Prepare = as_it_is) -> Work:
    """Return a model's answers as work; `prepare` may compile what answers."""
    model = _make(make, side, training=False)
    ask = prepare(model.ask)

    def run() -> list[Tensor]:
        with torch.no_grad():
            return [ask(model.module, *model.inputs) for _ in range(_STEPS)]

    return Work(run, _STEPS)


def training_work(make: Callable[[], Model], side: Side, prepare: Prepare = as_it_is) -> Work:
    """Return steps of AdamW as work; compared are the loss and the gradients of the first.

    `prepare` may compile what computes the loss.
    """
    model = _make(make, side, training=True)
    loss_of = prepare(model.loss)
    optimizer = torch.optim.AdamW(model.module.parameters(), lr=1e-4)

    def backward(model: Model) -> Tensor:
        loss = loss_of(model.module, *model.inputs)
        loss.backward()
        return loss.detach()

    def run() -> list[Tensor]:
        losses = []
        for _ in range(_STEPS):
            optimizer.zero_grad()
            losses.append(backward(model))
            optimizer.step()
        return losses

    def outputs() -> list[Tensor]:
        fresh = _make(make, side, training=True)
        loss = backward(fresh)
        return [loss, *(p.grad for p in fresh.module.parameters() if p.grad is not None)]

    return Work(run, _STEPS, outputs)


@area(AREA, "Small models of transformers, torchvision and torch.nn, unmodified")
def measure(context: Context) -> Iterator[Row]:
    def cases() -> Iterator[Case]:
        names = list(MODELS)[:_QUICK] if context.quick else list(MODELS)
        for name in names:
            for kind, work, goal in (
                ("inference", inference_work, _INFERENCE),
                ("training", training_work, _TRAINING),
            ):
                yield Case(
                    f"{name}, {kind}",
                    lambda side, make=MODELS[name], work=work: work(make, side),
                    tolerance=_TOLERANCE,
                    goal=goal,
                )

    yield from context.rows(AREA, cases)
