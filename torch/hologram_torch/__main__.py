# SPDX-License-Identifier: MIT
"""``python -m hologram_torch``: what this machine and this build offer, and a self-test.

``python -m hologram_torch run script.py`` runs a program that was written for CUDA.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import nn

import hologram_torch
from hologram.__main__ import CHECKS, run
from hologram.__main__ import describe as describe_library
from hologram_torch import _C, device

DEVICE = "hologram"


def describe() -> dict[str, str]:
    """Return what the library found, and what the device adds."""
    execution = "deferred" if _C.is_deferring() else "eager"
    if not _C.can_defer:
        execution += " (PyTorch 2.13 and later can defer)"
    found = describe_library()
    found["hologram_torch"] = f"{hologram_torch.__version__}, {execution} execution"
    found["PyTorch"] = f"{torch.__version__}, {torch.get_num_threads()} threads"
    providers = _C.gemm_providers()
    found["large products"] = ", ".join(f"{dtype} by {who}" for dtype, who in providers.items())
    for index in range(device.device_count()):
        properties = device.get_device_properties(index)
        found[f"{DEVICE}:{index}"] = f"{properties.name} ({properties.backend})"
    return found


def _training(place: str) -> tuple[list[float], dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 10))
    model.double().to(place)
    x = torch.randn(48, 32, dtype=torch.float64).to(place)
    y = torch.randint(10, (48,)).to(place)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: value.cpu() for name, value in model.state_dict().items()}


def _compare_training() -> None:
    ours, theirs = _training(DEVICE), _training("cpu")
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def _compare_layers() -> None:
    torch.manual_seed(1)
    x = torch.randn(2, 8, 20, 20)
    layers: list[nn.Module] = [
        nn.Conv2d(8, 16, 3, padding=1),
        nn.BatchNorm2d(8).eval(),
        nn.AdaptiveAvgPool2d(5),
        nn.Upsample(scale_factor=2, mode="bilinear"),
    ]
    with torch.no_grad():
        for layer in layers:
            want = layer(x)
            got = layer.to(DEVICE)(x.to(DEVICE)).cpu()
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


TORCH_CHECKS: dict[str, Callable[[], None]] = {
    **CHECKS,
    "training beside cpu": _compare_training,
    "layers beside cpu": _compare_layers,
}


def main() -> int:
    """Describe and test, or run a program."""
    if sys.argv[1:2] == ["run"]:
        from hologram_torch import _as_cuda

        return _as_cuda.run(sys.argv[2:])
    return run(describe(), TORCH_CHECKS)


if __name__ == "__main__":
    sys.exit(main())
