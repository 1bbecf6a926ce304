# SPDX-License-Identifier: MIT
"""Trains one network on scikit-learn's digits in several processes, which share its parameters.

Each process reads and writes the same weights without waiting for the others ("Hogwild", Niu et
al., 2011). ``share_memory()`` moves the model into memory that every process maps.
"""

from __future__ import annotations

import argparse
import sys

import torch
import torch.multiprocessing as mp
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

REQUIRED_ACCURACY = 0.9


def load(device: str) -> list[Tensor]:
    """Return images and labels for training, then for testing, on the device."""
    x, y = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(x / 16, y, test_size=0.2, random_state=0)
    images = [torch.tensor(part, dtype=torch.float32) for part in (train_x, test_x)]
    labels = [torch.tensor(part) for part in (train_y, test_y)]
    return [t.to(device) for t in (images[0], labels[0], images[1], labels[1])]


def train(rank: int, model: nn.Module, x: Tensor, y: Tensor, epochs: int) -> None:
    """Train the shared model on batches of this process's own choice."""
    torch.set_num_threads(1)
    order = torch.Generator().manual_seed(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        loss = torch.zeros(())
        for batch in torch.randperm(len(x), generator=order).to(x.device).split(32):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
            loss.backward()
            optimizer.step()
        print(f"process {rank}, epoch {epoch + 1}: loss {loss.item():.3f}", flush=True)


def main() -> int:
    """Train in as many processes as asked for, and test what they made together."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="hologram")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    train_x, train_y, test_x, test_y = load(args.device)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(args.device)
    model.share_memory()
    # The data are sent: that moves them into shared memory as well.
    mp.spawn(train, (model, train_x, train_y, args.epochs), nprocs=args.processes)
    with torch.no_grad():
        accuracy = (model(test_x).argmax(1) == test_y).float().mean().item()
    print(f"accuracy on test images: {accuracy:.3f}")
    return 0 if accuracy >= REQUIRED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
