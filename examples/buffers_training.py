# SPDX-License-Identifier: MIT
"""Trains on data that live in hologram buffers: the SDK prepares them, PyTorch learns from them."""

from __future__ import annotations

import argparse
import sys

import numpy as np
import torch
from sklearn.datasets import load_digits

import hologram as hg
import hologram_torch
from hologram_torch import nn as hologram_nn
from hologram_torch.utils import buffer_to_tensor

BATCH = 64
NOISE = 0.1


def main(arguments: list[str] | None = None) -> int:
    """Train and print losses and accuracy; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=12, help="default: 12")
    epochs = parser.parse_args(arguments).epochs
    if epochs < 1:
        parser.error(f"argument --epochs: {epochs} is not at least 1")
    digits = load_digits()
    count, features = digits.data.shape
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        hologram_nn.Linear(features, 64), hologram_nn.ReLU(), hologram_nn.Linear(64, 10)
    )
    loss_of = hologram_nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    with hologram_torch.Executor() as ex:
        images, noise, noisy = (ex.allocate((count, features)) for _ in range(3))
        images.from_numpy(digits.data)  # converted to float32 on the way
        hg.ops.scalar_mul(ex, images, 1 / 16, images)

        # Tensors on the buffers' memory: what the SDK writes there is what PyTorch learns from.
        clean, x = buffer_to_tensor(images), buffer_to_tensor(noisy)
        y = torch.tensor(digits.target)
        for epoch in range(epochs):
            noise.from_numpy(rng.normal(0.0, NOISE, (count, features)))
            hg.ops.vector_add(ex, images, noise, noisy)
            losses = []
            for rows in torch.randperm(count).split(BATCH):
                optimizer.zero_grad()
                loss = loss_of(model(x[rows]), y[rows])
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            if epoch % 4 == 0 or epoch == epochs - 1:
                print(f"epoch {epoch:>2}  loss {sum(losses) / len(losses):.4f}")
        with torch.no_grad():
            right = (model(clean).argmax(1) == y).float().mean().item()
        print(f"accuracy on the clean images {right:.4f}")
        assert clean.data_ptr() == images.to_numpy().ctypes.data
    return 0


if __name__ == "__main__":
    sys.exit(main())
