# SPDX-License-Identifier: MIT
"""Inference: models with random weights, asked without gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bench import models
from bench.context import Context
from bench.core import Case, Goal, Row, Side, Work, area

AREA = "inference"
_GOAL = Goal(1.3)
# Rounding adds up over the layers; what is compared is of the order of one.
_TOLERANCE = (2e-3, 2e-3)
_PROMPT, _NEW_TOKENS = 64, 8

# Makes what a model is asked on a device; returns the call and how many operations it counts for.
Asked = Callable[[Any, torch.device], tuple[Callable[[], Any], int]]


def _random(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _tokens(seed: int, vocabulary: int, *shape: int) -> Tensor:
    return torch.randint(0, vocabulary, shape, generator=torch.Generator().manual_seed(seed))


def _forward(model: nn.Module, inputs: list[Tensor]) -> tuple[Callable[[], Any], int]:
    """Ask about distinct inputs in turn; all answers exist together."""
    return lambda: [model(x) for x in inputs], len(inputs)


def _images(model: nn.Module, device: torch.device) -> tuple[Callable[[], Any], int]:
    return _forward(model, [_random(1, 1, 3, 224, 224).to(device)])


def _text(model: nn.Module, device: torch.device) -> tuple[Callable[[], Any], int]:
    return _forward(model, [_tokens(2, 30522, 1, 64).to(device)])


def _sequence(model: nn.Module, device: torch.device) -> tuple[Callable[[], Any], int]:
    inputs = [_random(seed, 32, 8, 128).to(device) for seed in (3, 4)]
    return lambda: [model(x)[0] for x in inputs], len(inputs)


def _decode(model: models.Transformer, device: torch.device) -> tuple[Callable[[], Any], int]:
    """Generate tokens one by one after a prompt, each the likeliest; an operation is a token."""
    prompt = _tokens(5, model.tokens.num_embeddings, 1, _PROMPT).to(device)
    caches = model.new_caches(1, _PROMPT + _NEW_TOKENS, device)
    first = model(prompt, caches)[:, -1:].argmax(-1)

    def generate() -> list[Tensor]:
        token, found = first, []
        for position in range(_PROMPT, _PROMPT + _NEW_TOKENS):
            logits = model(token, caches, position)
            token = logits.argmax(-1)
            found += [logits, token]
        return found

    return generate, _NEW_TOKENS


@dataclass(frozen=True)
class Question:
    """A model and what it is asked."""

    name: str
    make: Callable[[], nn.Module]
    ask: Asked
    quick: bool = True


QUESTIONS = (
    Question("ResNet-18, one image of 224 x 224", models.resnet18, _images, quick=False),
    Question("BERT base, one text of 64 tokens", models.bert, _text, quick=False),
    Question("GPT-2 (12 x 768), decode a token after 64", models.gpt2, _decode, quick=False),
    Question("GPT-2 shape (4 x 128), decode a token after 64", models.small_gpt, _decode),
    Question("LSTM, 2 layers of 256, 32 steps of 8 x 128", models.lstm, _sequence),
)


def question_work(question: Question, side: Side) -> Work:
    """Return the question as work."""
    torch.manual_seed(0)
    model = question.make().to(side.device).eval()
    with torch.no_grad():
        call, count = question.ask(model, side.device)

    def run() -> Any:
        with torch.no_grad():
            return call()

    return Work(run, count)


@area(AREA, "Inference: models with random weights, no gradients")
def measure(context: Context) -> Iterator[Row]:
    def cases() -> Iterator[Case]:
        for question in QUESTIONS:
            if question.quick or not context.quick:
                yield Case(
                    question.name,
                    lambda side, q=question: question_work(q, side),
                    tolerance=_TOLERANCE,
                    goal=_GOAL,
                    min_time=1.0,
                )

    yield from context.rows(AREA, cases)
