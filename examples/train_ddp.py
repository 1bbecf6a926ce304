# SPDX-License-Identifier: MIT
"""Trains a classifier of digits in several processes, which add up their gradients over gloo.

    torchrun --nproc-per-node=2 --max-restarts=3 examples/train_ddp.py

Every epoch ends with a checkpoint. When a process dies, torchrun ends the others and starts them
all again, and they go on from the last checkpoint. Without torchrun there is one process.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

HELD_OUT = 400


def load_data(device: str) -> tuple[Tensor, Tensor]:
    """Return all images, with brightness from 0 to 1, and what they show."""
    digits = load_digits()
    x = torch.tensor(digits.data / 16.0, dtype=torch.float32)
    return x.to(device), torch.tensor(digits.target).to(device)


def make_model() -> nn.Module:
    """Return the classifier; all processes get the same weights."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10))


def save(path: Path, epochs: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Write a checkpoint whole or not at all, so that a process may die while it writes."""
    state = {"epochs": epochs, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    torch.save(state, unfinished)
    os.replace(unfinished, path)


def load(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load a checkpoint, where there is one; return how many epochs it has seen."""
    if not path.exists():
        return 0
    state = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epochs"]


def join() -> None:
    """Make the group of all processes that torchrun started, or one of this process alone."""
    if "RANK" not in os.environ:
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
        return
    store, rank, world = next(iter(dist.rendezvous("env://")))
    # torchrun may keep its store when it starts the processes again. In it are the addresses of
    # those that died, so every attempt has names of its own there.
    store = dist.PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), store)
    dist.init_process_group(store=store, rank=rank, world_size=world)


def train(options: argparse.Namespace) -> float:
    """Train to the last epoch; return the accuracy on the images held out."""
    rank, world = dist.get_rank(), dist.get_world_size()
    x, y = load_data(options.device)
    model = make_model().to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    done = load(options.checkpoint, model, optimizer)
    print(f"rank {rank} of {world}, process {os.getpid()}: from epoch {done}", flush=True)
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=True)
    for epoch in range(done, options.epochs):
        order = torch.randperm(len(x) - HELD_OUT, generator=torch.Generator().manual_seed(epoch))
        # Every process takes its part of each batch; DDP takes the mean of the gradients.
        for rows in order[: len(order) // options.batch * options.batch].split(options.batch):
            mine = rows.chunk(world)[rank].to(options.device)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(parallel(x[mine]), y[mine])
            loss.backward()
            optimizer.step()
        if rank == 0:
            save(options.checkpoint, epoch + 1, model, optimizer)
            print(f"epoch {epoch + 1:>3}  loss {loss.item():.4f}", flush=True)
    with torch.no_grad():
        return (model(x[-HELD_OUT:]).argmax(1) == y[-HELD_OUT:]).float().mean().item()


def main() -> None:
    """Join the other processes, train, and say how good the result is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="hologram", help="default: hologram")
    parser.add_argument("--epochs", type=int, default=20, help="default: 20")
    parser.add_argument("--batch", type=int, default=64, help="of all processes (default: 64)")
    parser.add_argument(
        "--checkpoint",
        type=Path,
        default=Path("outputs/ddp/checkpoint.pt"),
        help="default: %(default)s",
    )
    options = parser.parse_args()
    join()
    try:
        if not 1 <= dist.get_world_size() <= options.batch or options.epochs < 1:
            parser.error("--epochs and --batch must be at least 1, and --batch the processes")
        accuracy = train(options)
        if dist.get_rank() == 0:
            print(f"accuracy on {HELD_OUT} images held out: {accuracy:.4f}")
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
