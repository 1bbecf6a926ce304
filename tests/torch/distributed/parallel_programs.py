# SPDX-License-Identifier: MIT
"""What PyTorch's distributed examples do, each in a few lines; torchrun starts this file.

Every program trains on cpu and on hologram in the same processes and returns its losses. Rank 0
writes them: parallel_programs.py FILE.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

STEPS, WIDTH, HEADS, WORDS = 4, 16, 4, 32


def data(device: str, step: int, *shape: int, one_for_all: bool = False) -> Tensor:
    rank = 0 if one_for_all else dist.get_rank()
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(*shape, generator=generator).to(device)


def words(device: str, step: int, group: int) -> Tensor:
    generator = torch.Generator().manual_seed(100 * step + group)
    return torch.randint(WORDS, (2, 9), generator=generator).to(device)


def train(model: nn.Module, loss_of: Callable[[int], Tensor]) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(STEPS):
        loss = loss_of(step)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


class Layers(nn.Module):
    """The model of the examples of tensor and sequence parallel training."""

    def __init__(self) -> None:
        super().__init__()
        self.net1 = nn.Linear(10, 32)
        self.net2 = nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.net2(F.relu(self.net1(x)))


class Attention(nn.Module):
    """Causal attention; with fewer heads for keys than for queries, as Llama's."""

    def __init__(self) -> None:
        super().__init__()
        self.wq = nn.Linear(WIDTH, WIDTH, bias=False)
        self.wk = nn.Linear(WIDTH, WIDTH // 2, bias=False)
        self.wv = nn.Linear(WIDTH, WIDTH // 2, bias=False)
        self.wo = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        # Under tensor parallelism a rank has some of the heads.
        q, k, v = (
            layer(x).view(batch, length, -1, WIDTH // HEADS).transpose(1, 2)
            for layer in (self.wq, self.wk, self.wv)
        )
        k, v = (t.repeat_interleave(2, dim=1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).reshape(batch, length, -1))


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w1 = nn.Linear(WIDTH, 32, bias=False)
        self.w2 = nn.Linear(32, WIDTH, bias=False)
        self.w3 = nn.Linear(WIDTH, 32, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(WIDTH)
        self.attention = Attention()
        self.ffn_norm = nn.RMSNorm(WIDTH)
        self.feed_forward = FeedForward()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.ffn_norm(x))


class Llama(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList([Block(), Block()])
        self.norm = nn.RMSNorm(WIDTH)
        self.output = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))


def next_word_loss(model: nn.Module, tokens: Tensor) -> Tensor:
    logits = model(tokens[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def data_parallel(device: str) -> list[float]:
    model = DistributedDataParallel(Layers().to(device))
    return train(model, lambda step: model(data(device, step, 20, 10)).square().mean())


def fully_sharded(device: str) -> list[float]:
    model = Llama().to(device)
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return train(model, lambda step: next_word_loss(model, words(device, step, dist.get_rank())))


def tensor_parallel(device: str) -> list[float]:
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    plan = {"net1": ColwiseParallel(), "net2": RowwiseParallel()}
    model = parallelize_module(Layers().to(device), mesh, plan)
    return train(
        model, lambda step: model(data(device, step, 20, 10, one_for_all=True)).square().mean()
    )


def sequence_parallel(device: str) -> list[float]:
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    plan = {
        "net1": ColwiseParallel(input_layouts=Shard(0)),
        "net2": RowwiseParallel(output_layouts=Shard(0)),
    }
    model = parallelize_module(Layers().to(device), mesh, plan)
    return train(model, lambda step: model(data(device, step, 4, 10)).square().mean())


def sharded_tensor_parallel(device: str) -> list[float]:
    """Tensor and sequence parallelism in groups of two ranks, sharded over the groups."""
    world = dist.get_world_size()
    mesh = init_device_mesh(device, (world // 2, 2), mesh_dim_names=("dp", "tp"))
    model = parallelize_module(
        Llama().to(device),
        mesh["tp"],
        {
            "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "norm": SequenceParallel(),
            "output": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
        },
    )
    for layer in model.layers:
        parallelize_module(
            layer,
            mesh["tp"],
            {
                "attention_norm": SequenceParallel(),
                "attention": PrepareModuleInput(
                    input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
                ),
                "attention.wq": ColwiseParallel(),
                "attention.wk": ColwiseParallel(),
                "attention.wv": ColwiseParallel(),
                "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
                "ffn_norm": SequenceParallel(),
                "feed_forward": PrepareModuleInput(
                    input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
                ),
                "feed_forward.w1": ColwiseParallel(),
                "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
                "feed_forward.w3": ColwiseParallel(),
            },
        )
    fully_shard(model, mesh=mesh["dp"])
    group = mesh["dp"].get_local_rank()
    return train(model, lambda step: next_word_loss(model, words(device, step, group)))


PROGRAMS = (
    data_parallel,
    fully_sharded,
    tensor_parallel,
    sequence_parallel,
    sharded_tensor_parallel,
)


def main(path: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group()
    found: dict[str, dict[str, list[float] | str]] = {}
    for program in PROGRAMS:
        losses = found[program.__name__] = {}
        for device in ("cpu", "hologram"):
            torch.manual_seed(3)
            try:
                losses[device] = program(device)
            except Exception as error:  # the others still run: all ranks fail alike
                losses[device] = f"{type(error).__name__}: {error}"
    if dist.get_rank() == 0:
        path.write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
