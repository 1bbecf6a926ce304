# SPDX-License-Identifier: MIT
"""Memory on its way, never copied: NumPy -> hologram -> torch -> hologram -> NumPy."""

from __future__ import annotations

import sys

import numpy as np
import torch

import hologram as hg
from hologram_torch import nn as hologram_nn
from hologram_torch.utils import to_pytorch


def address(array: object) -> int:
    """Return where an array of any library begins."""
    return torch.from_dlpack(array).data_ptr()


def main() -> int:
    """Carry data through and check that they stayed where they were; return the exit status."""
    rng = np.random.default_rng(0)
    raw = rng.normal(3.0, 2.0, (512, 16)).astype(np.float32)

    # NumPy -> hologram: copy=False shares the memory; what is computed from it runs at its call.
    x = hg.asarray(raw, copy=False)
    assert address(x) == raw.ctypes.data
    mean = x.mean(axis=0)
    scaled = (x - mean) / hg.sqrt(hg.square(x - mean).mean(axis=0))

    # hologram -> torch: the tensor lies on hologram's memory and keeps it alive.
    inputs = to_pytorch(scaled)
    assert inputs.data_ptr() == address(scaled)
    means, deviations = inputs.mean(0).abs().max(), inputs.std(0).mean()
    print(f"standardized: means below {means:.1e}, deviations {deviations:.3f}")

    torch.manual_seed(0)
    model = torch.nn.Sequential(hologram_nn.Linear(16, 4), hologram_nn.Softmax(dim=1))
    with torch.no_grad():
        answers = model(inputs)

    # torch -> hologram -> NumPy.
    shares = hg.Tensor.from_dlpack(answers)
    assert address(shares) == answers.data_ptr()
    entropy = -(shares * hg.log(shares)).sum(axis=1)
    result = np.asarray(entropy)
    assert result.ctypes.data == address(entropy)

    expected = -(answers * answers.log()).sum(1)
    difference = np.abs(result - expected.numpy()).max()
    print(f"entropy of the answers: {result.mean():.4f}, beside PyTorch's within {difference:.1e}")
    return 0 if difference < 1e-5 else 1


if __name__ == "__main__":
    sys.exit(main())
