# SPDX-License-Identifier: MIT
"""A loop as reference scripts for image classifiers have it: scaler, meters, schedule, groups."""

from __future__ import annotations

import argparse
import datetime
import os
import tempfile
import time
from collections import defaultdict
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


def images(count: int, device: str = "cpu") -> tuple[Tensor, Tensor]:
    generator = torch.Generator(device=device).manual_seed(count)
    x = torch.randn(count, 3, 32, 32, generator=generator, device=device)
    y = torch.randint(3, (count,), generator=generator, device=device)
    return x + y[:, None, None, None].float(), y


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(inplace=True),
        nn.Conv2d(16, 16, 3, 1, 1, groups=4, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 3),
    )


class Meter:
    """Sums over batches, and over processes where there are any."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = defaultdict(float)
        self.count = 0

    def update(self, n: int, **values: float) -> None:
        self.count += n
        for name, value in values.items():
            self.sums[name] += value * n

    def synchronize(self, device: torch.device) -> None:
        if dist.is_available() and dist.is_initialized():
            t = torch.tensor([self.count, *self.sums.values()], dtype=torch.float64, device="cuda")
            dist.barrier()
            dist.all_reduce(t)
            self.count = int(t[0].item())
            self.sums = dict(zip(self.sums, t[1:].tolist(), strict=True))


def train_one_epoch(
    model: nn.Module, criterion: nn.Module, optimizer: Any, device: torch.device, scaler: Any
) -> float:
    model.train()
    meter = Meter()
    x, y = images(192)
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    start.record()
    for image, target in zip(x.split(32), y.split(32), strict=True):
        image, target = image.to(device), target.to(device)
        with torch.cuda.amp.autocast(enabled=scaler is not None):
            output = model(image)
            loss = criterion(output, target)
        optimizer.zero_grad()
        if scaler is not None:
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()
        meter.update(len(image), loss=loss.item())
    end.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(end) > 0
    return meter.sums["loss"] / meter.count


def evaluate(model: nn.Module, device: torch.device) -> float:
    model.eval()
    meter = Meter()
    x, y = images(96, device="cuda")
    with torch.inference_mode():
        right = model(x).argmax(1).eq(y).float().mean().item()
    meter.update(len(x), right=right)
    meter.synchronize(device)
    return meter.sums["right"] / meter.count


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--epochs", default=4, type=int)
    parser.add_argument("--amp", action="store_true")
    args = parser.parse_args()
    distributed = "RANK" in os.environ
    if distributed:
        torch.cuda.set_device(0)
        dist.init_process_group(backend="nccl", init_method="env://", rank=int(os.environ["RANK"]))
    if not torch.cuda.is_available():
        raise SystemExit("CUDA is needed")
    device = torch.device(args.device)
    torch.backends.cudnn.benchmark = True
    torch.cuda.manual_seed_all(0)
    torch.manual_seed(0)
    model = network()
    model.cuda()
    plain = model
    if distributed:
        model = nn.parallel.DistributedDataParallel(model, device_ids=[0])
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    scaler = torch.cuda.amp.GradScaler() if args.amp else None
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    started = time.time()
    losses = []
    for epoch in range(args.epochs):
        losses.append(train_one_epoch(model, criterion, optimizer, device, scaler))
        schedule.step()
        right = evaluate(model, device)
        print(f"epoch {epoch}: loss {losses[-1]:.3f}, right {right:.2f}")
    path = os.path.join(tempfile.mkdtemp(), "checkpoint.pth")
    torch.save({"model": plain.state_dict(), "optimizer": optimizer.state_dict()}, path)
    loaded = torch.load(path, map_location="cuda:0", weights_only=True)
    plain.load_state_dict(loaded["model"])
    memory = torch.cuda.max_memory_allocated() / 2**20
    took = datetime.timedelta(seconds=int(time.time() - started))
    name = torch.cuda.get_device_name(0)
    print(f"{torch.cuda.device_count()} x {name}: {memory:.1f} MiB, {took}")
    print("learned" if losses[-1] < losses[0] and right > 0.6 else "failed", f"on {device}")
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
