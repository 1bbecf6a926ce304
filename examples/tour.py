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

    device = torch.hologram  # type: ignore[attr-defined]  # PyTorch adds it when the device loads
    x = torch.randn(1000, 1000, device="hologram", requires_grad=True)
    loss = torch.nn.functional.gelu(x @ x.T).mean()
    loss.backward()
    median = x.detach().median()

    print(
        "backends   ",
        hologram_torch.list_available_backends(),
        "current:",
        hologram_torch.get_backend(),
    )
    print("CPU        ", hologram.cpu_info())
    print("a loss     ", loss, "and a median", median.item())
    stats = device.memory_stats()
    print(
        "memory     ",
        {key: stats[key] for key in sorted(stats) if key.endswith(".all.current")} or stats,
    )
    device.empty_cache()
    print("reserved   ", device.memory_reserved(), "bytes after empty_cache()")
    print("fell back  ", hologram_torch.fallback_counts() or "nothing")
    return 0


if __name__ == "__main__":
    sys.exit(main())
