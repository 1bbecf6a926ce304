# SPDX-License-Identifier: MIT
"""A short tour of the device: its backends, its memory, and what fell back to PyTorch's kernels."""

from __future__ import annotations

import sys

import torch


def main() -> int:
    """Show it; return the exit status."""
    try:
        import hologram
        import hologram_torch
    except ImportError as error:
        print(f"tour: {error}; `make setup` builds and installs both packages", file=sys.stderr)
        return 1

    def program(x: torch.Tensor) -> float:
        loss = torch.nn.functional.gelu(x @ x.T).mean()
        loss.backward()
        return x.detach().median().item()

    device = torch.hologram  # type: ignore[attr-defined]  # PyTorch adds it when the device loads
    print("backends  ", hologram_torch.list_available_backends())
    print("CPU       ", hologram.cpu_info())
    x = torch.randn(1000, 1000, device="hologram", requires_grad=True)
    print("explained ", hologram_torch.explain(program, x))
    stats = device.memory_stats()
    print("memory    ", {k: v for k, v in stats.items() if k.endswith("bytes.all.current")})
    device.empty_cache()
    print("released  ", device.memory_reserved(), "bytes are still reserved after empty_cache()")
    print("fell back ", hologram_torch.fallback_counts() or "nothing", "since the program began")
    print("a tensor  ", x[:2, :3])
    return 0


if __name__ == "__main__":
    sys.exit(main())
