# SPDX-License-Identifier: MIT
"""Inference: models with random weights, asked without gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

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


def _ask(make: Callable[[], nn.Module], *inputs: Tensor) -> Callable[[Side], Work]:
    """Ask about distinct inputs in turn; all answers exist together."""

    def model() -> models.Model:
        return models.Model(make(), list(inputs), lambda m, *xs: [m(x) for x in xs])

    return partial(models.inference_work, model, steps=1, answers=len(inputs))


def _decode(make: Callable[[], models.Transformer]) -> Callable[[Side], Work]:
    """Generate tokens one by one after a prompt, each the likeliest; an operation is a token."""

    @torch.no_grad()
    def model() -> models.Model:
        made = make().eval()
        caches = made.new_caches(1, _PROMPT + _NEW_TOKENS, torch.device("cpu"))
        prompt = _tokens(5, made.tokens.num_embeddings, 1, _PROMPT)
        first = made(prompt, caches)[:, -1:].argmax(-1)
        return models.Model(made, [first, *(t for pair in caches for t in pair)], generate)

    def generate(module: nn.Module, token: Tensor, *caches: Tensor) -> list[Tensor]:
        found = []
        pairs = list(zip(caches[::2], caches[1::2]))
        for position in range(_PROMPT, _PROMPT + _NEW_TOKENS):
            logits = module(token, pairs, position)
            token = logits.argmax(-1)
            found += [logits, token]
        return found

    return partial(models.inference_work, model, steps=1, answers=_NEW_TOKENS)


QUESTIONS: dict[str, Callable[[Side], Work]] = {
    "ResNet-18, one image of 224 x 224": _ask(models.resnet18, _random(1, 1, 3, 224, 224)),
    "BERT base, one text of 64 tokens": _ask(models.bert, _tokens(2, 30522, 1, 64)),
    "GPT-2 (12 x 768), decode a token after 64": _decode(models.gpt2),
    "GPT-2 shape (4 x 128), decode a token after 64": _decode(models.small_gpt),
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
