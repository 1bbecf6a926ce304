# SPDX-License-Identifier: MIT
"""The walk: one list of ops and shapes, and the hashes of their results.

As a script it runs in the setting that its environment chooses (instruction set, generated loops,
sizes of caches) and writes the hashes of every mode and number of threads that it is asked for:
`python tests/bits/walk.py --shapes 2 --runs eager:1 deferred:3`. Shapes are odd on purpose: rows
that end within a vector, matrices with one or two columns more than fill vectors.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import hologram_torch

Tensor = torch.Tensor
Sizes = tuple[int, ...]
DEVICE = torch.device("hologram")


@dataclass(frozen=True)
class Op:
    """`run` takes an input of each of the sizes; with `grad` gradients are part of the result."""

    name: str
    run: Callable[..., Any]
    shapes: tuple[tuple[Sizes, ...], ...]
    grad: bool = False


@dataclass(frozen=True)
class Case:
    """An op with inputs of some sizes and one dtype."""

    op: Op
    sizes: tuple[Sizes, ...]
    dtype: torch.dtype

    @property
    def name(self) -> str:
        """Return `op shape`, as in known.txt."""
        shape = ",".join("x".join(map(str, s)) or "1" for s in self.sizes)
        return f"{self.op.name} {shape}:f{8 * self.dtype.itemsize}"


OPS: list[Op] = []


def op(name: str, run: Callable[..., Any], *shapes: Any, grad: bool = False) -> None:
    """Add an op. A shape is a tuple of sizes, or, of several inputs, a tuple of such tuples."""
    several = [s if s and isinstance(s[0], tuple) else (s,) for s in shapes]
    OPS.append(Op(name, run, tuple(several), grad))


def pairs(*sizes: Sizes) -> list[tuple[Sizes, Sizes]]:
    """Return shapes of two inputs of the same size."""
    return [(s, s) for s in sizes]


# Contiguous rows: shorter and longer than vectors, than blocks of 2048 and 4096, many and few.
ROWS = ((7, 33), (5, 4099), (300, 17), (3, 100), (2, 3, 65), (1, 70001), (64, 768), (9, 31))
for reduce in ("sum", "mean", "prod", "nansum", "var", "std", "amax", "amin", "logsumexp"):
    op(reduce, lambda x, name=reduce: getattr(torch, name)(x, -1), *ROWS)
op("norm1", lambda x: torch.linalg.vector_norm(x, 1, -1), *ROWS)
op("norm2", lambda x: torch.linalg.vector_norm(x, 2, -1), *ROWS)
op("sum.all", lambda x: x.sum(), *ROWS)
op("sum.columns", lambda x: x.sum(0), *ROWS)
op("sum.middle", lambda x: x.sum((0, 2)), (3, 5, 49), (17, 33, 9), (2, 8, 1025))
op("cumsum", lambda x: x.cumsum(-1), *ROWS)
op("softmax", lambda x: x.softmax(-1), *ROWS, grad=True)
op("log_softmax", lambda x: x.log_softmax(-1), *ROWS, grad=True)

NORMS = (((6, 33),), ((4, 100),), ((3, 768),), ((2, 4099),), ((300, 17),))
op("layer_norm", lambda x: F.layer_norm(x, x.shape[-1:]), *NORMS, grad=True)
op("rms_norm", lambda x: F.rms_norm(x, x.shape[-1:]), *NORMS, grad=True)
op("group_norm", lambda x: F.group_norm(x, 3), (2, 6, 35), (3, 9, 7, 7), (1, 12, 300), grad=True)
op("batch_norm", lambda x: F.batch_norm(x, None, None, training=True), (4, 5, 49), (7, 3, 14, 15),
   (33, 6), grad=True)  # fmt: skip

for loss in ("mse_loss", "l1_loss", "smooth_l1_loss", "binary_cross_entropy_with_logits",
             "soft_margin_loss", "poisson_nll_loss"):  # fmt: skip
    op(loss, lambda x, y, name=loss: getattr(F, name)(x, y.detach().abs()),
       *pairs((9, 33), (3001,), (100, 65)), grad=True)  # fmt: skip
op("cross_entropy", lambda x, y: F.cross_entropy(x, y.argmax(-1)),
   *pairs((5, 33), (17, 1001), (300, 10)), grad=True)  # fmt: skip

# Loops that several ops share.
op("fused.dot", lambda x, y: (x * y).sum(-1), *pairs((7, 33), (3, 1000), (2, 4099)))
op("fused.rms", lambda x: x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt(), *ROWS[:6])
op("fused.softmax", lambda x: softmax(x), *ROWS[:6])
op("fused.gelu", lambda x, y: F.gelu(x * 2 + y) * x, *pairs((7, 33), (3, 1000)))

# One function each, over magnitudes that reach its branches.
for unary in """exp exp2 expm1 log log2 log10 log1p sin cos tan tanh sinh cosh asin acos atan asinh
atanh erf erfc sigmoid sqrt rsqrt reciprocal lgamma digamma""".split():
    op(unary, lambda x, name=unary: getattr(torch, name)(spread(x)), (33,), (12345,))
op("log.roots", lambda x: [roots(x).log(), roots(x).log2(), roots(x).log() + 0 * roots(x)], (60,))
op("pow", lambda x, y: x.abs() ** (4 * y), *pairs((33,), (12345,)))
op("atan2", lambda x, y: torch.atan2(x, y), *pairs((33,), (12345,)))

# Products: m, k, n of one and of a few, matrices that lie along k or across, columns left over.
MM = ((5, 33, 7), (1, 300, 65), (65, 300, 1), (3, 1000, 9), (34, 257, 49), (130, 65, 97),
      (8, 64, 128), (200, 513, 17))  # fmt: skip


def matrices(along_k: bool) -> list[tuple[Sizes, Sizes]]:
    """Return the sizes of a and b, where the rows of b lie along k or along n."""
    return [((m, k), (n, k) if along_k else (k, n)) for m, k, n in MM]


op("mm.nn", lambda a, b: a @ b, *matrices(along_k=False))
op("mm.nt", lambda a, b: a @ b.t(), *matrices(along_k=True))
op("mm.tn", lambda a, b: a.t().contiguous().t() @ b, *matrices(along_k=False))
op("linear", lambda x, w: F.linear(x, w), *matrices(along_k=True), grad=True)
op("mv", lambda a, x: a @ x, ((65, 300), (300,)), ((7, 33), (33,)), ((1000, 17), (17,)))
op("mv.t", lambda a, x: a.t() @ x, ((300, 65), (300,)), ((33, 7), (33,)), ((17, 1000), (17,)))
op("dot", lambda x, y: x @ y, *pairs((33,), (300,), (4099,), (70001,)))
op("bmm.nn", lambda a, b: a @ b, ((3, 5, 33), (3, 33, 9)), ((9, 40, 65), (9, 65, 17)))
op("bmm.nt", lambda a, b: a @ b.mT, ((3, 5, 33), (3, 9, 33)), ((9, 40, 65), (9, 17, 65)))
op("bmm.dots", lambda a, b: torch.bmm(a[:, None], b[:, :, None]),
   *pairs((200, 1000), (50, 33), (2, 4096), (77, 17)))  # fmt: skip
op("einsum", lambda a, b: torch.einsum("bij,bkj->bik", a, b), ((3, 5, 33), (3, 9, 33)))
op("baddbmm", lambda c, a, b: torch.baddbmm(c, a, b, beta=0.5, alpha=2),
   ((9,), (3, 5, 33), (3, 33, 9)), ((4, 40, 17), (4, 40, 65), (4, 65, 17)))  # fmt: skip

HEADS = (((1, 2, 100, 17),) * 3, ((2, 3, 65, 64),) * 3, ((1, 1, 3, 40), *((1, 1, 300, 40),) * 2),
         ((1, 1, 530, 33), *((1, 1, 600, 33),) * 2))  # fmt: skip
op("attention", F.scaled_dot_product_attention, *HEADS, grad=True)
op("attention.causal", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
   *HEADS, grad=True)  # fmt: skip


def convolution(n: int, c: int, out: int, side: int, kernel: int, groups: int = 1) -> Any:
    """Return the sizes of x, w and bias."""
    return (n, c, side, side + 1), (out, c // groups, kernel, kernel), (out,)


op("conv3x3", lambda x, w, b: F.conv2d(x, w, b, padding=1), convolution(2, 32, 40, 13, 3),
   convolution(3, 64, 64, 14, 3), convolution(1, 5, 9, 17, 3), convolution(4, 96, 50, 7, 3),
   grad=True)  # fmt: skip
op("conv1x1", lambda x, w, b: F.conv2d(x, w, b), convolution(5, 33, 40, 6, 1),
   convolution(2, 256, 65, 7, 1), convolution(1, 300, 17, 16, 1), grad=True)  # fmt: skip
op("conv.stride", lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1),
   convolution(3, 20, 33, 15, 3), convolution(9, 8, 17, 7, 3), grad=True)  # fmt: skip
op("conv.depthwise", lambda x, w, b: F.conv2d(x, w, b, padding=1, groups=len(w)),
   convolution(3, 19, 19, 14, 3, 19), convolution(2, 40, 40, 7, 3, 40), grad=True)  # fmt: skip
op("conv.last", lambda x, w, b: F.conv2d(x.contiguous(memory_format=torch.channels_last), w, b,
   padding=1), convolution(2, 32, 40, 13, 3), convolution(3, 20, 33, 7, 3), grad=True)  # fmt: skip
op("conv1d", lambda x, w, b: F.conv1d(x, w, b, padding=2), ((3, 20, 49), (33, 20, 5), (33,)),
   ((1, 65, 201), (17, 65, 5), (17,)), grad=True)  # fmt: skip
op("conv3d", lambda x, w: F.conv3d(x, w, padding=1), ((2, 5, 4, 7, 9), (9, 5, 3, 3, 3)), grad=True)
op("conv_transpose", lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1),
   ((2, 20, 7, 8), (20, 33, 4, 4)), ((1, 65, 14, 15), (65, 17, 3, 3)), grad=True)  # fmt: skip
op("max_pool", lambda x: F.max_pool2d(x, 3, 2, 1), (2, 5, 17, 19), (1, 33, 9, 9), grad=True)
op("avg_pool", lambda x: F.avg_pool2d(x, 3, 2, 1), (2, 5, 17, 19), (1, 33, 9, 9), grad=True)
op("bilinear", lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"), (2, 5, 17, 19))

for layer in ("lstm", "gru", "rnn_tanh"):
    # x, weights of x, weights of h; a gate has 17 rows.
    gates = {"lstm": 4, "gru": 3, "rnn_tanh": 1}[layer] * 17
    op(layer, lambda x, w, u, layer=layer: recurrent(layer, x, w, u), *(
        ((9, batch, 33), (gates, 33), (gates, 17)) for batch in (3, 20, 1)), grad=True)  # fmt: skip

op("embedding", lambda x, w: F.embedding((x.abs() * len(w)).long(), w), ((9, 33), (50, 17)),
   ((300,), (1000, 64)), grad=True)  # fmt: skip
op("scatter_add", lambda x, y: x.index_add(0, (y.abs() * len(x)).long(), y[:, None] * x[:1]),
   ((50, 33), (300,)), ((7, 100), (65,)))  # fmt: skip


def softmax(x: Tensor) -> Tensor:
    """Divide exponentials by their sum, op by op."""
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def spread(x: Tensor) -> Tensor:
    """Return numbers of magnitudes from 2**-16 to 2**16."""
    return x * torch.exp2(16 * x.flip(0))


def roots(x: Tensor) -> Tensor:
    """Return powers of two times the number where log() cuts the interval of mantissas."""
    root = torch.tensor(2.0, dtype=x.dtype).sqrt().to(x.device)
    return root * torch.exp2(torch.arange(len(x), device=x.device) - 30.0).to(x.dtype)


def recurrent(layer: str, x: Tensor, w: Tensor, u: Tensor) -> Any:
    """Return the outputs of a layer without biases."""
    h = x.new_zeros(1, x.shape[1], 17)
    args = (0, False, 1, 0.0, False, False, False)
    weights = [w, u]
    if layer == "lstm":
        return torch.lstm(x, [h, h], weights, False, *args[2:])[0]
    return getattr(torch, layer)(x, h, weights, False, *args[2:])[0]


def uniform(sizes: Sizes, dtype: torch.dtype, seed: int) -> Tensor:
    """Return numbers in [-1, 1), without any function of libm."""
    numbers = np.random.Generator(np.random.PCG64(seed)).random(sizes)
    return torch.from_numpy(np.asarray(2 * numbers - 1)).to(dtype).to(DEVICE)


def results(case: Case) -> list[Tensor]:
    """Run a case; return its results and gradients."""
    inputs = [uniform(s, case.dtype, 1 + i) for i, s in enumerate(case.sizes)]
    if not case.op.grad:
        found = case.op.run(*inputs)
        return list(found) if isinstance(found, list | tuple) else [found]
    leaves = [x.requires_grad_() for x in inputs]
    y = case.op.run(*leaves)
    g = uniform(tuple(y.shape), case.dtype, 99)
    gradients = torch.autograd.grad(y, leaves, g, allow_unused=True)
    return [y.detach(), *(x for x in gradients if x is not None)]


def digest(tensors: list[Tensor]) -> str:
    """Hash the bits; which NaN an element is stays open."""
    found = hashlib.sha256()
    for t in tensors:
        cpu = t.detach().cpu()
        if cpu.is_floating_point():
            cpu = torch.where(cpu.isnan(), torch.full_like(cpu, float("nan")), cpu)
        found.update(cpu.contiguous().numpy().tobytes())
    return found.hexdigest()[:12]


def cases(shapes: int | None = None) -> Iterator[Case]:
    """Return the cases, with at most so many shapes of an op.

    All shapes come in both dtypes; where they are few, each in the next one.
    """
    dtypes = (torch.float32, torch.float64)
    for each in OPS:
        for i, sizes in enumerate(each.shapes[:shapes]):
            for dtype in dtypes if shapes is None else dtypes[i % 2 : i % 2 + 1]:
                yield Case(each, sizes, dtype)


def walk(mode: str, threads: int, shapes: int | None = None) -> dict[str, str]:
    """Return the hash of every case in an execution mode with a number of threads."""
    torch.set_num_threads(threads)
    with hologram_torch.execution(mode):
        return {case.name: digest(results(case)) for case in cases(shapes)}


def main() -> None:
    """Write the hashes of the runs that are asked for, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", type=int, help="of an op; all if not given")
    parser.add_argument("--runs", nargs="+", default=["deferred:1"], metavar="MODE:THREADS")
    args = parser.parse_args()
    found = {}
    for run in args.runs:
        mode, threads = run.split(":")
        started = time.monotonic()
        found[run] = walk(mode, int(threads), args.shapes)
        print(f"{run}: {time.monotonic() - started:.1f} s", file=sys.stderr)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
