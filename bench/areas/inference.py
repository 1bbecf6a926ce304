# SPDX-License-Identifier: MIT
"""Inference: models with random weights, asked without gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bench import models
from bench.architectures import TOLERANCE
from bench.context import Context
from bench.core import Case, Goal, Side, Work, area

_PROMPT, _NEW_TOKENS = 64, 8


def _random(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _tokens(seed: int, vocabulary: int, *shape: int) -> Tensor:
    return torch.randint(0, vocabulary, shape, generator=torch.Generator().manual_seed(seed))


def _model(make: Callable[[], Any], side: Side) -> Any:
    torch.manual_seed(0)
    return make().to(side.device).eval()


def _ask(make: Callable[[], nn.Module], *inputs: Tensor) -> Callable[[Side], Work]:
    """Ask about distinct inputs in turn; all answers exist together."""

    def work(side: Side) -> Work:
        model, there = _model(make, side), [x.to(side.device) for x in inputs]
        return Work(torch.no_grad()(lambda: [model(x) for x in there]), len(there))

    return work


@torch.no_grad()
def _decode(make: Callable[[], models.Transformer], side: Side) -> Work:
    """Generate tokens one by one after a prompt, each the likeliest; an operation is a token."""
    model = _model(make, side)
    prompt = _tokens(5, model.tokens.num_embeddings, 1, _PROMPT).to(side.device)
    caches = model.new_caches(1, _PROMPT + _NEW_TOKENS, side.device)
    first = model(prompt, caches)[:, -1:].argmax(-1)

    @torch.no_grad()
    def generate() -> list[Tensor]:
        token, found = first, []
        for position in range(_PROMPT, _PROMPT + _NEW_TOKENS):
            logits = model(token, caches, position)
            token = logits.argmax(-1)
            found += [logits, token]
        return found

    return Work(generate, _NEW_TOKENS)


QUESTIONS: dict[str, Callable[[Side], Work]] = {
    "ResNet-18, one image of 224 x 224": _ask(models.resnet18, _random(1, 1, 3, 224, 224)),
    "BERT base, one text of 64 tokens": _ask(models.bert, _tokens(2, 30522, 1, 64)),
    "GPT-2 (12 x 768), decode a token after 64": partial(_decode, models.gpt2),
    "GPT-2 shape (4 x 128), decode a token after 64": partial(_decode, models.small_gpt),
    "LSTM, 2 layers of 256, 32 steps of 8 x 128": _ask(
        models.lstm, _random(3, 32, 8, 128), _random(4, 32, 8, 128)
    ),
}


def questions(context: Context) -> list[tuple[str, Callable[[Side], Work]]]:
    """Return what is asked; in a quick run the small models alone."""
    return list(QUESTIONS.items())[3 if context.quick else 0 :]


@area("inference", "Inference: models with random weights, no gradients", seconds=38)
def cases(context: Context) -> Iterator[Case]:
    for name, work in questions(context):
        yield Case(name, work, tolerance=TOLERANCE, goal=Goal(1.3), min_time=1.0)
