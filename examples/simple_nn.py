# SPDX-License-Identifier: MIT
"""Trains a classifier of digits twice on CPU tensors: with hologram_torch.nn and with torch.nn."""

from __future__ import annotations

import argparse
import sys
import time
from types import ModuleType

import torch
from sklearn.datasets import load_digits

from hologram_torch import nn as hologram_nn

BATCH = 64
HELD_OUT = 400


def make_model(nn: ModuleType) -> torch.nn.Sequential:
    """Return a classifier made of a module's layers; equal seeds give equal weights."""
    torch.manual_seed(0)
    return torch.nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10))


def train(nn: ModuleType, x: torch.Tensor, y: torch.Tensor, epochs: int) -> torch.nn.Module:
    """Train a model of `nn`'s and print its loss."""
    model, loss_of = make_model(nn), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    order = torch.Generator().manual_seed(0)
    start = time.perf_counter()
    for epoch in range(epochs):
        for rows in torch.randperm(len(x), generator=order).split(BATCH):
            optimizer.zero_grad()
            loss = loss_of(model(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
        if epoch % 5 == 0 or epoch == epochs - 1:
            print(f"{nn.__name__:<18} epoch {epoch:>2}  loss {loss.item():.4f}")
    print(f"{nn.__name__:<18} {time.perf_counter() - start:.2f} s")
    return model


def main(arguments: list[str] | None = None) -> int:
    """Train both and compare; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=15, help="default: 15")
    epochs = parser.parse_args(arguments).epochs
    if epochs < 1:
        parser.error(f"argument --epochs: {epochs} is not at least 1")
    digits = load_digits()
    x = torch.tensor(digits.data / 16.0, dtype=torch.float32)
    y = torch.tensor(digits.target)
    held_x, held_y, x, y = x[:HELD_OUT], y[:HELD_OUT], x[HELD_OUT:], y[HELD_OUT:]

    ours = train(hologram_nn, x, y, epochs)
    theirs = train(torch.nn, x, y, epochs)
    with torch.no_grad():
        answers = ours(held_x), theirs(held_x)
        right = [(a.argmax(1) == held_y).float().mean().item() for a in answers]
        difference = (answers[0] - answers[1]).abs().max().item()
    print(f"held-out accuracy  {right[0]:.4f} and {right[1]:.4f}")
    print(f"largest difference of logits  {difference:.2g}")

    # State moves both ways, also to the device.
    theirs.load_state_dict(ours.state_dict())
    on_device = ours.to("hologram")
    assert torch.allclose(on_device(held_x.to("hologram")).cpu(), theirs(held_x), atol=1e-3)
    print("the state was loaded into torch.nn and moved to the device: the same answers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
