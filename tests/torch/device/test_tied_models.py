# SPDX-License-Identifier: MIT
"""Models of transformers whose weights are tied: one training step, every gradient as on cpu.

The models are tiny and random; nothing is downloaded.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from accuracy import Rounding
from torch import nn

transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed (tools/requirements-all.txt names it)"
)

D = "hologram"
pytestmark = pytest.mark.heavy

# What attention layers, norms and an output over a vocabulary round, forward and back.
MODEL = Rounding(units=16)
SMALL = {"vocab_size": 61, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}

# Each family: its model, its configuration, and the two weights that are one.
FAMILIES: dict[str, tuple[str, str, dict[str, Any], str, str]] = {
    "GPT-2": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {"vocab_size": 61, "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 2}
        | {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
        "transformer.wte.weight",
        "lm_head.weight",
    ),
    "OPT": (
        "OPTForCausalLM",
        "OPTConfig",
        SMALL
        | {"ffn_dim": 32, "max_position_embeddings": 32, "dropout": 0.0}
        | {"word_embed_proj_dim": 16, "attention_dropout": 0.0},
        "model.decoder.embed_tokens.weight",
        "lm_head.weight",
    ),
    "BLOOM": (
        "BloomForCausalLM",
        "BloomConfig",
        {"vocab_size": 61, "hidden_size": 16, "n_layer": 2, "n_head": 2}
        | {"hidden_dropout": 0.0, "attention_dropout": 0.0},
        "transformer.word_embeddings.weight",
        "lm_head.weight",
    ),
    "Gemma 2": (
        "Gemma2ForCausalLM",
        "Gemma2Config",
        SMALL
        | {"intermediate_size": 32, "num_key_value_heads": 1, "head_dim": 8}
        | {"query_pre_attn_scalar": 8, "sliding_window": 4, "tie_word_embeddings": True},
        "model.embed_tokens.weight",
        "lm_head.weight",
    ),
    "Mamba": (
        "MambaForCausalLM",
        "MambaConfig",
        {"vocab_size": 61, "hidden_size": 16, "state_size": 4, "num_hidden_layers": 2},
        "backbone.embeddings.weight",
        "lm_head.weight",
    ),
    "BART": (
        "BartForConditionalGeneration",
        "BartConfig",
        {"vocab_size": 61, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2}
        | {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 32}
        | {"decoder_ffn_dim": 32, "max_position_embeddings": 32, "dropout": 0.0},
        "model.encoder.embed_tokens.weight",
        "lm_head.weight",
    ),
    "T5": (
        "T5ForConditionalGeneration",
        "T5Config",
        {"vocab_size": 61, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
        | {"dropout_rate": 0.0, "decoder_start_token_id": 0, "tie_word_embeddings": True},
        "shared.weight",
        "lm_head.weight",
    ),
    "BERT": (
        "BertForMaskedLM",
        "BertConfig",
        SMALL
        | {"intermediate_size": 32, "max_position_embeddings": 32}
        | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
        "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.weight",
    ),
}


def make(family: str) -> nn.Module:
    """Make a model of random weights on cpu."""
    model, configuration, options, _, _ = FAMILIES[family]
    torch.manual_seed(0)
    config = getattr(transformers, configuration)(**TOKENS | options)
    return getattr(transformers, model)(config).train()


def batch(device: str) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    ids = torch.randint(3, 61, (2, 9), generator=generator)
    labels = torch.randint(3, 61, (2, 9), generator=generator)
    return {"input_ids": ids.to(device), "labels": labels.to(device)}


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[list, list]:
    """Take one step; return the loss and the gradients, and the weights after it."""
    device = next(model.parameters()).device.type
    optimizer.zero_grad()
    loss = model(**batch(device)).loss
    loss.backward()
    grads = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    optimizer.step()
    return [loss.detach(), *grads], [p.detach().clone() for p in model.parameters()]


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.5)


@pytest.mark.parametrize("family", FAMILIES)
def test_one_training_step(family: str) -> None:
    model = make(family)
    names = [name for name, _ in model.named_parameters()]
    first, second = FAMILIES[family][3:]

    def tied(m: nn.Module) -> bool:
        return m.get_parameter(first) is m.get_parameter(second)

    assert tied(model)
    ours = copy.deepcopy(model)
    wide, off = (copy.deepcopy(model).double() for _ in range(2))
    generator = torch.Generator().manual_seed(6)
    eps = torch.finfo(torch.float32).eps
    with torch.no_grad():
        for p in off.parameters():
            p.mul_(1 + eps * (torch.randint(0, 2, p.shape, generator=generator) * 2 - 1))
    before = list(ours.parameters())
    optimizer = sgd(ours)
    ours.to(D)
    assert tied(ours)
    assert all(a is b for a, b in zip(before, ours.parameters(), strict=True))
    assert all(p.device.type == D for p in ours.parameters())
    mine = train(ours, optimizer)
    theirs, exact, near = (train(m, sgd(m)) for m in (model, wide, off))
    assert tied(ours)
    for part, columns in enumerate(zip(mine, theirs, exact, near, strict=True)):
        labels = ["the loss", *names] if part == 0 else names
        for name, *row in zip(labels, *columns, strict=True):
            assert len({t is None for t in row}) == 1, name
            if row[0] is None:
                continue
            problem = MODEL.excess(*(t.cpu() for t in row))
            assert problem is None, f"{'weight' if part else 'gradient'} {name}: {problem}"
    assert not torch.equal(ours.get_parameter(first).cpu(), make(family).get_parameter(first))


@pytest.mark.parametrize("family", FAMILIES)
def test_tied_weights_come_back(family: str) -> None:
    model = make(family)
    first, second = FAMILIES[family][3:]
    value = model.get_parameter(first).detach().clone()
    model.to(D).cpu()
    assert model.get_parameter(first) is model.get_parameter(second)
    assert torch.equal(model.get_parameter(first), value)
