# SPDX-License-Identifier: MIT
"""Language models token by token: weights of several dtypes, beside cpu and the memory's speed.

A Llama of transformers with 0.8 B parameters (with `--all`), random weights and `generate` as they
are. Each token reads all weights once, which takes at least as long as reading as many bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bench.architectures import hugging, tokens
from bench.context import Context
from bench.core import Case, Goal, Peer, Side, Work, area, library, make_side

_TOKENS = 12  # that a measurement generates, each of one row
_PROMPT = 512
_GROUP = 128  # columns that share a scale
_WORDS = 32_000
_SIZES = {
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": _WORDS,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}
_QUICK = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4}


class AtenInt8(nn.Module):
    """A linear layer by ATen's `_weight_int8pack_mm`."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        # Of the numbers as quantize_ has them.
        scale = (weight.float().abs().amax(1) / 127).to(weight.dtype)
        numbers = (weight.float() / scale[:, None]).round().clamp(-127, 127)
        self.register_buffer("weight", numbers.to(torch.int8))
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        """Multiply rows."""
        out = torch._weight_int8pack_mm(x.reshape(-1, x.shape[-1]), self.weight, self.scale)
        return out.view(*x.shape[:-1], out.shape[-1])


class AtenInt4(nn.Module):
    """A linear layer by ATen's `_weight_int4pack_mm_for_cpu`."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        groups = weight.float().view(weight.shape[0], -1, _GROUP)
        low, high = groups.amin(2), groups.amax(2)
        # Of the numbers as quantize_ has them.
        scale = ((high - low) / 15).to(weight.dtype)
        zero = (low + 8 * scale).to(weight.dtype)
        numbers = ((groups - zero[..., None]) / scale[..., None]).round() + 8
        whole = numbers.clamp(0, 15).int().view(weight.shape)
        self.register_buffer("weight", torch._convert_weight_to_int4pack_for_cpu(whole, 2))
        pairs = torch.stack([scale, zero], -1).transpose(0, 1)
        self.register_buffer("pairs", pairs.contiguous())

    def forward(self, x: Tensor) -> Tensor:
        """Multiply rows."""
        rows = x.reshape(-1, x.shape[-1]).contiguous()
        out = torch._weight_int4pack_mm_for_cpu(rows, self.weight, _GROUP, self.pairs)
        return out.view(*x.shape[:-1], out.shape[-1])


def _replace(kind: Callable[[Tensor], nn.Module], model: nn.Module) -> None:
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear:
                setattr(module, name, kind(child.weight.detach()))


def _torchao(model: nn.Module) -> None:
    quantization = library("torchao.quantization")
    quantization.quantize_(model, quantization.Int8WeightOnlyConfig())


def _quantize(kind: str, model: nn.Module) -> None:
    from hologram_torch import quantize_

    quantize_(model, kind, _GROUP)


@dataclass(frozen=True)
class Weights:
    """How weights are kept, and what share of the memory's speed reading them should reach."""

    name: str
    dtype: torch.dtype
    bits: float  # of each, with those of its group's scale and zero
    change: Callable[[nn.Module], None] | None = None
    ours: Callable[[nn.Module], None] | None = None  # the same by hologram_torch.quantize_


WEIGHTS = (
    Weights("float32", torch.float32, 32),
    Weights("bfloat16", torch.bfloat16, 16),
    Weights("int8", torch.bfloat16, 8, partial(_replace, AtenInt8), partial(_quantize, "int8")),
    Weights("int8, torchao", torch.float32, 8, _torchao),
    Weights(
        "int4",
        torch.bfloat16,
        4 + 32 / _GROUP,
        partial(_replace, AtenInt4),
        partial(_quantize, "int4"),
    ),
)


def _make(layers: int, sizes: dict[str, Any], dtype: torch.dtype) -> Any:
    torch.manual_seed(0)
    model = hugging("Llama", "ForCausalLM", num_hidden_layers=layers, **sizes)
    return model.to(dtype).eval()


def weight_bytes(sizes: dict[str, Any], layers: int, bits: float) -> int:
    """Return the bytes of linear layers that a token reads, a scale for each row left out."""
    wide, inner = sizes["hidden_size"], sizes["intermediate_size"]
    keys = wide // sizes["num_attention_heads"] * sizes["num_key_value_heads"]
    of_layer = wide * (2 * wide + 2 * keys + 3 * inner)
    return int((layers * of_layer + _WORDS * wide) * bits / 8)


def _model(
    make: Callable[[torch.dtype], Any],
    weights: Weights,
    change: Callable[[nn.Module], None] | None,
    side: Side,
) -> Any:
    model = make(weights.dtype)
    if change is not None:
        change(model)
    return model.to(side.device)


def generate_work(model_on: Callable[[Side], Any], batch: int, side: Side) -> Work:
    """Return generate() as work: one token for each row at a time, from the first on."""
    model = model_on(side)
    text = tokens(_WORDS, batch, 1).to(side.device)
    wished = {"max_new_tokens": _TOKENS, "min_new_tokens": _TOKENS}
    wished |= {"do_sample": False, "use_cache": True}
    ends = {"pad_token_id": 0, "eos_token_id": None}
    context = tokens(_WORDS, batch, 5).to(side.device)

    @torch.no_grad()
    def run() -> list[Tensor]:
        return [model.generate(text, **wished, **ends)]

    # Random weights tell apart no words: what each of them gets is compared.
    @torch.no_grad()
    def outputs() -> list[Tensor]:
        return [model(input_ids=context).logits.float()]

    return Work(run, _TOKENS, outputs)


def prompt_work(model_on: Callable[[Side], Any], side: Side) -> Work:
    """Return one pass over a prompt as work."""
    model = model_on(side)
    text = tokens(_WORDS, 1, _PROMPT).to(side.device)

    @torch.no_grad()
    def run() -> list[Tensor]:
        return [model(input_ids=text, logits_to_keep=1).logits.float()]

    return Work(run, 1)


def reading_work(count: int) -> tuple[Work, Side]:
    """Return reading `count` bytes of memory as work, by the fastest that PyTorch has for it."""
    # The same bytes for each token: those of all would not fit small machines.
    memory = torch.ones(max(count // 4, 1))

    def run() -> list[Tensor]:
        return [memory.sum() for _ in range(_TOKENS)]

    return Work(run, _TOKENS), make_side("cpu")


@area("decoding", "A Llama of 0.8 B parameters, token by token", seconds=1)
def cases(context: Context) -> Iterator[Case]:
    if not context.whole and not context.quick:
        return
    sizes = {**_SIZES, **(_QUICK if context.quick else {})}
    layers = 2 if context.quick else 16
    make = partial(_make, layers, sizes)
    for weights in WEIGHTS[:2] if context.quick else WEIGHTS:
        model_on = partial(_model, make, weights, weights.change)
        count = weight_bytes(sizes, layers, weights.bits)
        loose = 2e-3 if weights.dtype == torch.float32 else 0.1
        peers = [Peer("reading the weights", partial(reading_work, count), is_limit=True)]
        if weights.ours is not None:
            device = make_side(context.device)
            build = partial(generate_work, partial(_model, make, weights, weights.ours), 1, device)
            peers.append(Peer("quantize_", lambda build=build, device=device: (build(), device)))
        yield Case(
            f"{weights.name}, a token",
            partial(generate_work, model_on, 1),
            dtype=str(weights.dtype).removeprefix("torch."),
            tolerance=(loose, loose),
            peers=peers,
            goal=Goal(1.0),
        )
        for batch in () if context.quick else (4, 16):
            yield Case(
                f"{weights.name}, a token for each of {batch} texts",
                partial(generate_work, model_on, batch),
                dtype=str(weights.dtype).removeprefix("torch."),
                tolerance=(loose, loose),
            )
        yield Case(
            f"{weights.name}, a prompt of {_PROMPT} tokens",
            partial(prompt_work, model_on),
            dtype=str(weights.dtype).removeprefix("torch."),
            tolerance=(loose, loose),
        )
