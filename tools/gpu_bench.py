# SPDX-License-Identifier: MIT
"""Times hologram:1 beside PyTorch's CUDA, eager and compiled; a step of tools/gpu_test.py.

A row is timed only where its results are those of the cpu. Launches of a row are queued one behind
the other, and waited for at the end. What a row leaves to the host is counted: its time says
nothing of the GPU. Without PyTorch's CUDA only hologram:1 is timed; `--peers PYTHON` names a Python
whose PyTorch has it, which times the peers in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

DEVICE = "hologram:1"
Run = Callable[[], Any]


@dataclass
class Row:
    """A function of tensors, and how to make them on a device."""

    name: str
    make: Callable[[str], Run]  # the same numbers on any device
    tolerance: float = 1e-5
    compiles: bool = True


def chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Five ops that one kernel can do."""
    return ((x * y + 0.5).relu() - y).abs() * 1.25


def two(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Two ops."""
    return (x + y).relu()


def of(function: Callable[..., Any], *shapes: tuple[int, ...], dtype: torch.dtype) -> Callable:
    """Return what makes a run of a function over random tensors."""

    def make(device: str) -> Run:
        generator = torch.Generator().manual_seed(1)
        inputs = [torch.randn(s, generator=generator).to(dtype).to(device) for s in shapes]
        return lambda: function(*inputs)

    return make


def step_of(optimizer: torch.optim.Optimizer, loss_of: Run) -> Run:
    """Return a step of training; it gives the loss."""

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def training(make_optimizer: Callable, width: int, batch: int) -> Callable[[str], Run]:
    """Return what makes a step of training of a small network; it gives the loss."""

    def make(device: str) -> Run:
        torch.manual_seed(2)
        model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
        x, y = torch.randn(batch, width), torch.randint(10, (batch,))
        model, x, y = model.to(device), x.to(device), y.to(device)
        optimizer = make_optimizer(model.parameters())
        return step_of(optimizer, lambda: nn.functional.cross_entropy(model(x), y))

    return make


def block(width: int, heads: int, batch: int, length: int) -> Callable[[str], Run]:
    """Return what makes a step of training of a transformer's block; it gives the loss."""

    def make(device: str) -> Run:
        torch.manual_seed(3)
        layer: nn.Module = nn.TransformerEncoderLayer(
            width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        x, y = torch.randn(batch, length, width), torch.randn(batch, length, width)
        layer, x, y = layer.to(device), x.to(device), y.to(device)
        optimizer = torch.optim.AdamW(layer.parameters(), 1e-4)
        return step_of(optimizer, lambda: nn.functional.mse_loss(layer(x), y))

    return make


def rows(small: bool) -> list[Row]:
    """Return what is timed."""
    f32, bf16 = torch.float32, torch.bfloat16
    sizes = [1_000] if small else [1_000, 100_000, 10_000_000, 100_000_000]
    found = [Row(f"five ops, {n:,} float32", of(chain, (n,), (n,), dtype=f32)) for n in sizes]
    found += [Row(f"two ops, {n:,} float32", of(two, (n,), (n,), dtype=f32)) for n in sizes[:3]]
    n = sizes[-1] // 2
    found.append(Row(f"five ops, {n:,} bfloat16", of(chain, (n,), (n,), dtype=bf16), 2e-2))
    m = 16 if small else 4096
    gelu, norm = nn.functional.gelu, nn.functional.layer_norm
    found += [
        Row(f"five ops, {m} x {m} transposed",
            of(lambda x, y: chain(x.t(), y), (m, m), (m, m), dtype=f32)),
        Row(f"gelu, {m} x {m}", of(gelu, (m, m), dtype=f32)),
        Row(f"sigmoid, {m} x {m}", of(torch.sigmoid, (m, m), dtype=f32)),
        Row(f"sum of rows, {m} x {m}", of(lambda x: x.sum(1), (m, m), dtype=f32), 1e-3),
        Row(f"sum of columns, {m} x {m}", of(lambda x: x.sum(0), (m, m), dtype=f32), 1e-3),
        Row(f"softmax of columns, {m} x {m}", of(lambda x: x.softmax(0), (m, m), dtype=f32)),
        Row(f"cat, twice {m} x {m}",
            of(lambda x, y: torch.cat([x, y]), (m, m), (m, m), dtype=f32)),
        Row(f"gelu, {m} x {m} bfloat16", of(gelu, (m, m), dtype=bf16), 2e-2),
        Row(f"softmax, {m} x {m}", of(lambda x: x.softmax(1), (m, m), dtype=f32)),
        Row(f"layer_norm, {m} x {m}", of(lambda x: norm(x, (m,)), (m, m), dtype=f32), 1e-4),
        Row(f"product, {m // 4} x {m // 4}",
            of(torch.mm, (m // 4, m // 4), (m // 4, m // 4), dtype=f32), 1e-2),
        Row(f"product, {m} x {m} bfloat16",
            of(torch.mm, (m, m), (m, m), dtype=bf16), 5e-2 * m**0.5),
        Row(f"linear and gelu, {m} x {m} bfloat16",
            of(lambda x, w, b: gelu(nn.functional.linear(x, w, b)), (m, m), (m, m), (m,),
               dtype=bf16), 5e-2 * m**0.5),
        Row("step of a small network, SGD",
            training(lambda p: torch.optim.SGD(p, 0.01), 32 if small else 256, 32), 1e-3, False),
        Row("step of a small network, Adam",
            training(lambda p: torch.optim.Adam(p, 0.001), 32 if small else 256, 32), 1e-3, False),
        Row("step of a transformer's block, AdamW",
            block(*((16, 2, 2, 5) if small else (512, 8, 16, 128))), 1e-3, False),
    ]  # fmt: skip
    return found


@dataclass
class Side:
    """A way to run a row."""

    run: Run
    queue: Run  # launches what was recorded, and does not wait for it
    synchronize: Run

    def turn(self, runs: int) -> float:
        """Return the seconds of a run."""
        begin = time.perf_counter()
        for _ in range(runs):
            kept = self.run()
            self.queue()
            del kept
        self.synchronize()
        return (time.perf_counter() - begin) / runs

    def seconds(self, seconds: float) -> float:
        """Return the median time of a run among turns that take `seconds` together."""
        self.turn(1)
        runs = max(1, min(10_000, int(seconds / 10 / max(self.turn(3), 1e-7))))
        return statistics.median(self.turn(runs) for _ in range(7))


def difference(found: torch.Tensor, expected: torch.Tensor, tolerance: float) -> str:
    """Say how results differ, on the cpu; empty where they agree."""
    try:
        torch.testing.assert_close(
            found.cpu().double(), expected.cpu().double(), rtol=tolerance, atol=tolerance
        )
    except AssertionError as error:
        return " ".join(str(error).split())[:200]
    return ""


def measure_ours(row: Row, expected: torch.Tensor, seconds: float) -> dict[str, object]:
    """Check and time a row on hologram:1."""
    from hologram_torch import _C

    hologram: Any = torch.hologram  # type: ignore[attr-defined]
    ours = Side(row.make(DEVICE), _C.flush, lambda: hologram.synchronize(1))
    with hologram.device(1):
        if what := difference(ours.run(), expected, row.tolerance):
            return {"state": f"WRONG: {what}"}
        ours.turn(1)
        _C.reset_recorder_stats()
        ours.turn(1)
        host_kernels = _C.recorder_stats()["host_kernels"]
        return {
            "state": "agrees",
            "host_kernels": host_kernels,
            "us": 1e6 * ours.seconds(seconds),
        }


def measure_peers(row: Row, expected: torch.Tensor, seconds: float) -> dict[str, object]:
    """Check and time a row on PyTorch's CUDA."""
    result: dict[str, object] = {}
    sides = {"eager": row.make("cuda")}
    if row.compiles:
        torch.compiler.reset()  # what was compiled for other rows counts against its limit
        sides["compiled"] = torch.compile(row.make("cuda"))
    for side, run in sides.items():
        try:
            if what := difference(run(), expected, 10 * row.tolerance):
                result[f"{side}_state"] = f"differs from the cpu: {what}"
            theirs = Side(run, lambda: None, torch.cuda.synchronize).seconds(seconds)
        except Exception as error:
            result[f"{side}_state"] = f"{type(error).__name__}: {error}"[:200]
            continue
        result[f"{side}_us"] = theirs * 1e6
    return result


def measure_all(options: argparse.Namespace) -> list[dict[str, object]]:
    """Measure until the time is used up."""
    end = time.monotonic() + options.seconds
    seconds = 0.05 if options.small else 0.5
    found: list[dict[str, object]] = []
    for row in rows(options.small):
        result: dict[str, object] = {"name": row.name}
        if time.monotonic() > end:
            found.append(result | {"state": "not run: no time was left"})
            continue
        try:
            expected = row.make("cpu")()
            if not options.peers_alone:
                result |= measure_ours(row, expected, seconds)
            if options.peers_alone or torch.cuda.is_available():
                result |= measure_peers(row, expected, seconds)
        except Exception as error:
            result["state"] = f"FAILED: {type(error).__name__}: {error}"
        found.append(result)
        print(result, flush=True)
        options.results.write_text(json.dumps(found, indent=1))
    return found


def peers_of(python: str, options: argparse.Namespace) -> dict[str, dict[str, object]]:
    """Return what another Python measures of the peers, by the names of rows."""
    file = options.results.with_suffix(".peers.json")
    half = options.seconds / 2
    command = [python, __file__, str(file), "--peers-alone", "--seconds", f"{half:.0f}"]
    subprocess.run([*command, *(["--small"] if options.small else [])], check=True)
    return {row["name"]: row for row in json.loads(file.read_text())}


def main() -> int:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--seconds", type=float, default=120, help="for all rows together")
    parser.add_argument("--small", action="store_true", help="sizes for an interpreter of kernels")
    parser.add_argument("--peers", metavar="PYTHON", help="a Python whose PyTorch has CUDA")
    parser.add_argument("--peers-alone", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    peers: dict[str, dict[str, object]] = {}
    if options.peers:
        peers = peers_of(options.peers, options)
        options.seconds /= 2
    found = [peers.get(str(row["name"]), {}) | row for row in measure_all(options)]
    for row in found:
        for side in ("eager", "compiled"):
            if "us" in row and f"{side}_us" in row:
                row[f"times_{side}"] = row[f"{side}_us"] / row["us"]  # type: ignore[operator]
    options.results.write_text(json.dumps(found, indent=1))
    bad = [row for row in found if str(row.get("state")).startswith(("WRONG", "FAILED"))]
    print(f"{len(found) - len(bad)} passed, {len(bad)} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
