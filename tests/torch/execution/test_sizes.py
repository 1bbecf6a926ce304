# SPDX-License-Identifier: MIT
"""Programs whose sizes change at every call: what they compute, and that plans are found."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from hologram_torch import _C

pytestmark = [
    pytest.mark.skipif(not _C.can_defer, reason="deferred execution needs PyTorch 2.13 or later"),
    pytest.mark.usefixtures("deferred"),
]

Tensor = torch.Tensor
DEVICE = "hologram"
# Prime, so that none is a multiple of another or of a size that stays.
LENGTHS = [13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97]
LENGTHS += [101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 1009, 2003, 3001, 4001, 5003]


def make(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def chain(n: int) -> list[Tensor]:
    return [make(n), make(n, seed=1)]


def five_ops(x: Tensor, y: Tensor) -> list[Tensor]:
    z = (x * y + 0.5).relu()
    return [((z * z - x) * 0.25).mean(), z]


def rows(n: int) -> list[Tensor]:
    return [make(n, 24), make(24, seed=1), make(24, seed=2)]


def norm_and_softmax(x: Tensor, scale: Tensor, shift: Tensor) -> list[Tensor]:
    y = F.layer_norm(x, (24,), scale, shift)
    return [torch.softmax(F.gelu(y), -1), (y * y).sum(-1), y.t() + 1]


def columns(n: int) -> list[Tensor]:
    return [make(6, n), make(n, seed=1), make(6, 1, seed=2)]


def long_rows(x: Tensor, scale: Tensor, each: Tensor) -> list[Tensor]:
    y = (x - x.mean(-1, keepdim=True)) * scale + each
    return [y, y.sum(-1), torch.log_softmax(y, -1), y[:, 1:] - y[:, :-1]]


def layer(n: int) -> list[Tensor]:
    return [make(n, 20), make(33, 20, seed=1), make(33, seed=2), make(n, 33, seed=3)]


def linear_and_residual(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> list[Tensor]:
    return [F.gelu(F.linear(x, w, b)) + r]


def heads(n: int) -> list[Tensor]:
    return [make(2, 4, n, 16, seed=k) for k in range(3)]


def attention(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    y = F.scaled_dot_product_attention(q * 0.5, k, v, is_causal=True)
    return [y.transpose(1, 2).reshape(2, -1, 64) + 1]


def images(n: int) -> list[Tensor]:
    side = n % 23 + 5
    return [make(2, 6, side, side + 2), make(8, 6, 3, 3, seed=1), make(8, seed=2)]


def convolution(x: Tensor, w: Tensor, b: Tensor) -> list[Tensor]:
    y = F.conv2d(x, w, b, padding=1)
    return [F.relu(y * b[:, None, None] + 0.1), y.mean((2, 3))]


def texts(n: int) -> list[Tensor]:
    ids = torch.randint(0, 50, (3, n), generator=torch.Generator().manual_seed(n))
    return [ids, make(50, 20), make(3, 7, 20, seed=1)]


def embedding_and_cache(ids: Tensor, table: Tensor, cache: Tensor) -> list[Tensor]:
    x = F.embedding(ids, table)
    grown = torch.cat([cache, x], 1)
    loss = F.cross_entropy((grown @ table.t())[:, 7:].flatten(0, 1), ids.flatten())
    return [grown * 2, loss]


PROGRAMS = {
    "chain": (chain, five_ops),
    "rows": (rows, norm_and_softmax),
    "long rows": (columns, long_rows),
    "linear": (layer, linear_and_residual),
    "attention": (heads, attention),
    "convolution": (images, convolution),
    "embedding": (texts, embedding_and_cache),
}
# An attention over thousands of positions takes long on the cpu.
MOST = {"attention": 150}


def with_gradients(program: Callable[..., list[Tensor]], inputs: list[Tensor]) -> list[Tensor]:
    leaves = [x.detach().requires_grad_() if x.is_floating_point() else x for x in inputs]
    results = program(*leaves)
    sum((y * y).sum() for y in results).backward()
    return [y.detach() for y in results] + [x.grad for x in leaves if x.grad is not None]


@pytest.mark.parametrize("gradients", [False, True], ids=["values", "gradients"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_the_cpu(name: str, gradients: bool) -> None:
    inputs, program = PROGRAMS[name]
    lengths = [n for n in LENGTHS if n <= MOST.get(name, 10_000)]
    random.Random(0).shuffle(lengths)
    for n in lengths + lengths[:4]:
        host = inputs(n)
        here = [x.to(DEVICE) for x in host]
        run = with_gradients if gradients else lambda program, inputs: program(*inputs)
        for ours, theirs in zip(run(program, here), run(program, host), strict=True):
            torch.testing.assert_close(ours.cpu(), theirs, rtol=2e-4, atol=2e-4 * n**0.5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_other_lengths_are_planned_twice(name: str) -> None:
    inputs, program = PROGRAMS[name]

    def run(n: int) -> tuple[int, int]:
        here = [x.to(DEVICE) for x in inputs(n)]
        torch.hologram.synchronize()
        before = _C.recorder_stats()
        for y in program(*here):
            y.cpu()
        after = _C.recorder_stats()
        made = after["plan_misses"] - before["plan_misses"]
        return made, after["circuits"] - before["circuits"]

    _C.reset_recorder_stats()  # and nothing of how tests before this one looked at results
    runs = [run(n) for n in LENGTHS[:30]]
    made = [plans for plans, _ in runs]
    # Longer calls are circuits of their own, so that a program of other sizes may be cut in
    # another way. Each circuit of each way is planned twice. Besides, a length may be what another
    # size is by chance, or the first that needs two blocks.
    ways = {circuits for _, circuits in runs}
    assert sum(made) <= 2 * sum(ways) + 2, (made, ways)
    assert made[-10:].count(0) >= 8, made


def test_a_thousand_lengths_make_a_handful_of_plans() -> None:
    x, y = (t.to(DEVICE) for t in chain(1200))
    torch.hologram.synchronize()
    before = _C.recorder_stats()
    for n in range(150, 1150):
        five_ops(x[:n], y[:n])[0].item()
    after = _C.recorder_stats()
    assert after["plan_hits"] - before["plan_hits"] >= 990
    assert after["plan_misses"] - before["plan_misses"] <= 10
