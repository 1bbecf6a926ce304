# SPDX-License-Identifier: MIT
"""Sizes that change at every call: batches of other lengths, and texts that grow by a token.

The models are those of transformers, with random weights and nothing changed. What is not
installed is not measured, and says so.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from bench.areas.small_models import language_model, library, tokens
from bench.context import Context
from bench.core import Case, Goal, Row, Side, Work, area

AREA = "sizes"
_CALLS = 20  # a measurement of the chain
_TOKENS = 60  # that generate() adds
_LENGTHS = 1000
_STEPS = 2
_WARM_UP = 24  # steps until plans, loops and memory are those of a run
_TOLERANCE = (2e-3, 2e-3)


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


def _language(kind: str, **options: Any) -> Any:
    return language_model(kind, 1000, bos_token_id=0, eos_token_id=0, **options)


def _gpt2() -> Any:
    return _language("GPT2", n_layer=4, n_embd=128, n_head=4, n_positions=128)


def _llama() -> Any:
    sizes = {"hidden_size": 128, "intermediate_size": 344, "max_position_embeddings": 128}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return _language("Llama", num_hidden_layers=4, **sizes, **heads)


def generate_work(make: Callable[[], Any], side: Side) -> Work:
    """Return generate() as work: its cache of keys and values grows by a token."""
    torch.manual_seed(0)
    model = make().eval().to(side.device)
    text = tokens(1000, 1, 16).to(side.device)

    def run() -> list[Tensor]:
        with torch.no_grad():
            new = model.generate(
                text, max_new_tokens=_TOKENS, do_sample=False, pad_token_id=0, eos_token_id=None
            )
        return [new.float()]

    return Work(run, 1)


def bert_work(side: Side) -> Work:
    """Return steps of AdamW on batches of 16 to 127 tokens."""
    transformers = library("transformers")
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 2, "hidden_size": 128, "intermediate_size": 512}
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = transformers.BertConfig(vocab_size=1000, num_attention_heads=4, **sizes, **none)
    model = transformers.BertForMaskedLM(config).to(side.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    chosen = random.Random(0)
    batches = [tokens(1000, 8, chosen.randrange(16, 128)).to(side.device) for _ in range(_LENGTHS)]
    at = 0

    def run() -> list[Tensor]:
        nonlocal at
        losses = []
        for _ in range(_STEPS):
            at += 1
            x = batches[at % _LENGTHS]
            optimizer.zero_grad()
            loss = model(input_ids=x, labels=x).loss
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses

    for _ in range(_WARM_UP // _STEPS):
        run()

    def outputs() -> list[Tensor]:
        fresh = transformers.BertForMaskedLM(config)
        fresh.load_state_dict(_weights(fresh))
        fresh = fresh.to(side.device)
        return [fresh(input_ids=x, labels=x).loss.detach() for x in batches[:3]]

    return Work(run, _STEPS, outputs)


def _weights(model: Any) -> dict[str, Tensor]:
    """Return the same weights whenever it is asked."""
    some = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(value.shape, generator=some) * 0.05
        if value.is_floating_point()
        else value
        for name, value in model.state_dict().items()
    }


@area(AREA, "Sizes that change at every call")
def measure(context: Context) -> Iterator[Row]:
    def cases() -> Iterator[Case]:
        for least, most in ((100, 3_000), (3_000, 6_000), (8_000, 20_000)):
            lengths = random.Random(0).sample(range(least, most), _LENGTHS)
            yield Case(
                f"five ops and a mean, lengths of {least:,} to {most:,}",
                lambda side, lengths=lengths: chain_work(lengths, side),
                tolerance=_TOLERANCE,
                goal=Goal(1.2),
            )
        if context.quick:
            return
        for name, make in (("GPT-2", _gpt2), ("Llama", _llama)):
            yield Case(
                f"{name} 4 x 128, generate of {_TOKENS} tokens",
                lambda side, make=make: generate_work(make, side),
                tolerance=(0, 0),
                goal=Goal(1.5),
            )
        yield Case(
            "BERT 2 x 128, AdamW, batches of 8 x 16 to 127 tokens",
            bert_work,
            tolerance=_TOLERANCE,
            goal=Goal(1.5),
        )

    yield from context.rows(AREA, cases)
