# SPDX-License-Identifier: MIT
"""Sizes that change at every call: batches of other lengths, and texts that grow by a token.

The models are those of transformers, with random weights and nothing changed. What is not
installed is not measured, and says so.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bench.architectures import TOLERANCE, encoder, gpt2, llama, tokens
from bench.context import Context
from bench.core import Case, Goal, Side, Work, area

_CALLS = 20  # a measurement of the chain
_TOKENS = 60  # that generate() adds
_LENGTHS = 1000
_STEPS = 2
_ENDS = {"bos_token_id": 0, "eos_token_id": 0}
_BERT = {"vocab_size": 1000, "initializer_range": 0.05}
_WARM_UP = 24  # steps until plans, loops and memory are those of a run


def five_op_mean(x: Tensor, y: Tensor) -> Tensor:
    """Five ops, and the mean of what they leave."""
    z = (x * y + 0.5).relu()
    return ((z * z - x) * 0.25).mean()


def chain_work(lengths: list[int], side: Side) -> Work:
    """Return the chain on the beginning of two tensors, which each call reads to another length."""
    torch.manual_seed(0)
    x, y = (torch.randn(max(lengths)).to(side.device) for _ in range(2))
    at = 0

    def run() -> list[float]:
        nonlocal at
        at += _CALLS
        some = [lengths[k % len(lengths)] for k in range(at, at + _CALLS)]
        return [five_op_mean(x[:n], y[:n]).item() for n in some]

    def outputs() -> list[Tensor]:
        return [five_op_mean(x[:n], y[:n]) for n in lengths[:_CALLS]]

    return Work(run, _CALLS, outputs)


def generate_work(make: Callable[[], Any], side: Side) -> Work:
    """Return generate() as work: its cache of keys and values grows by a token."""
    torch.manual_seed(0)
    model = make().eval().to(side.device)
    text = tokens(1000, 1, 16).to(side.device)
    wished = {"max_new_tokens": _TOKENS, "do_sample": False, "use_cache": True}
    ends = {"pad_token_id": 0, "eos_token_id": None}
    return Work(torch.no_grad()(lambda: [model.generate(text, **wished, **ends).float()]), 1)


def bert_work(side: Side) -> Work:
    """Return steps of AdamW on batches of 16 to 127 tokens."""
    torch.manual_seed(0)
    make = partial(encoder, "Bert", 128, "ForMaskedLM", **_BERT)
    model = make().to(side.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    chosen = random.Random(0)
    batches = [tokens(1000, 8, chosen.randrange(16, 128)).to(side.device) for _ in range(_LENGTHS)]
    at = 0

    def step() -> Tensor:
        nonlocal at
        at += 1
        x = batches[at % _LENGTHS]
        optimizer.zero_grad()
        loss = model(input_ids=x, labels=x).loss
        loss.backward()
        optimizer.step()
        return loss.detach()

    for _ in range(_WARM_UP):
        step()

    def outputs() -> list[Tensor]:
        torch.manual_seed(0)
        fresh = make().to(side.device)
        return [fresh(input_ids=x, labels=x).loss.detach() for x in batches[:3]]

    return Work(lambda: [step() for _ in range(_STEPS)], _STEPS, outputs)


@area("sizes", "Sizes that change at every call", seconds=14)
def cases(context: Context) -> Iterator[Case]:
    for least, most in ((100, 3_000), (3_000, 6_000), (8_000, 20_000)):
        lengths = random.Random(0).sample(range(least, most), _LENGTHS)
        name = f"five ops and a mean, lengths of {least:,} to {most:,}"
        yield Case(name, partial(chain_work, lengths), tolerance=TOLERANCE, goal=Goal(1.2))
    if context.quick:
        return
    makers = {"GPT-2": (gpt2, 1000), "Llama": (llama, 1000, 4)}
    for kind, made in makers.items():
        name, work = f"{kind} 4 x 128, generate of {_TOKENS} tokens", partial(*made, **_ENDS)
        yield Case(name, partial(generate_work, work), tolerance=(0, 0), goal=Goal(1.5))
    name = "BERT 2 x 128, AdamW, batches of 8 x 16 to 127 tokens"
    yield Case(name, bert_work, tolerance=TOLERANCE, goal=Goal(1.5))
