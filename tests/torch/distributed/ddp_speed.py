# SPDX-License-Identifier: MIT
"""Times a DDP step on hologram and on cpu tensors, taking turns in one run. No test.

torchrun --nproc-per-node=2 tests/torch/distributed/ddp_speed.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

ROUNDS, WARM = 40, 8
SIZES = ((64, 128), (784, 512), (1024, 2048))  # inputs, hidden


def make_step(device: str, inputs: int, hidden: int) -> Callable[[], None]:
    torch.manual_seed(0)
    layers = (nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU())
    model = nn.Sequential(*layers, nn.Linear(hidden, 10)).to(device)
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=True, bucket_cap_mb=4)
    optimizer = torch.optim.AdamW(model.parameters())
    x, y = torch.randn(64, inputs).to(device), torch.randint(10, (64,)).to(device)

    def step() -> None:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(parallel(x), y)
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def make_sum(device: str, size: int) -> Callable[[], None]:
    t: Tensor = torch.zeros(size, device=device)
    return lambda: dist.all_reduce(t)


def compare(name: str, make: Callable[[str], Callable[[], None]]) -> None:
    """Print the medians of both devices, which take turns."""
    calls = {device: make(device) for device in ("hologram", "cpu")}
    times: dict[str, list[float]] = {device: [] for device in calls}
    for i in range(ROUNDS + WARM):
        for device in list(calls)[:: 1 if i % 2 else -1]:
            dist.barrier()
            start = time.perf_counter()
            calls[device]()
            if i >= WARM:
                times[device].append(time.perf_counter() - start)
    if dist.get_rank() == 0:
        ours, theirs = (statistics.median(t) * 1e3 for t in times.values())
        print(f"{name:<28} hologram {ours:8.3f} ms  cpu {theirs:8.3f} ms  {theirs / ours:.2f}x")


def main() -> None:
    dist.init_process_group()
    for size in (16, 10_000, 1_000_000):
        compare(f"all_reduce of {size}", lambda device, n=size: make_sum(device, n))
    for inputs, hidden in SIZES:
        compare(
            f"DDP step {inputs}-{hidden}-{hidden}-10",
            lambda device, i=inputs, h=hidden: make_step(device, i, h),
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
