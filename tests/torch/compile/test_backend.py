# SPDX-License-Identifier: MIT
"""torch.compile(backend='hologram'): the bits of eager code on the device."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compile.models import (
    DEVICE,
    Batch,
    Block,
    Broken,
    Gpt,
    Losses,
    Lstm,
    Random,
    Resampling,
    numbers,
    run,
    words,
)
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend

import hologram_torch
from hologram_torch import _C

Make = Callable[[], nn.Module]


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 2))


def norms() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.GroupNorm(4, 16))


def norms_without_statistics() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 1),
        nn.BatchNorm2d(4, track_running_stats=False),
        nn.MaxPool2d(2),
        nn.BatchNorm2d(4, affine=False),
    )


def encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)


def fused_gpt() -> nn.Module:
    return Gpt(fused=True)


def same(make: Make, batch: Batch, **options: Any) -> None:
    """Compare a compiled model with eager code, bit for bit, also when circuits run."""
    options.setdefault("steps", 4)
    expected = run(make, batch, compiled=False, **options)
    hologram_torch.reset_fallback_counts()
    got = run(make, batch, compiled=True, backend="hologram", **options)
    assert len(got) == len(expected)
    for place, (a, b) in enumerate(zip(got, expected, strict=True)):
        assert a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b), place
    assert not any("batch_norm" in name for name in hologram_torch.fallback_counts())


MODELS: dict[str, tuple[Make, Batch]] = {
    "mlp": (mlp, numbers(32, 8)),
    "block": (Block, numbers(4, 8, 12, 12)),
    "norms": (norms, numbers(5, 8)),
    "norms without statistics": (norms_without_statistics, numbers(2, 3, 6, 6)),
    "encoder": (encoder, numbers(2, 10, 32)),
    "gpt": (Gpt, words(2, 12)),
    "fused gpt": (fused_gpt, words(2, 12)),
    "lstm": (Lstm, numbers(3, 7, 16)),
    "random": (Random, numbers(8, 16)),
    "losses": (Losses, numbers(6, 8)),
    "broken": (Broken, numbers(5, 8)),
    "resampling": (Resampling, numbers(2, 3, 6, 6)),
}


@pytest.mark.parametrize("name", MODELS)
def test_training_gives_the_bits_of_eager(name: str) -> None:
    same(*MODELS[name])


@pytest.mark.parametrize("name", ["mlp", "block", "encoder", "fused gpt", "lstm", "random"])
@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_inference_gives_the_bits_of_eager(name: str, context: Callable[[], Any]) -> None:
    same(*MODELS[name], train=False, context=context)


@pytest.mark.parametrize("name", ["mlp", "block", "gpt", "fused gpt"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_gives_the_bits_of_eager(name: str, dtype: torch.dtype) -> None:
    same(*MODELS[name], context=lambda: torch.autocast(DEVICE, dtype), steps=4)


@pytest.mark.parametrize(
    ("make", "batch"),
    [
        (mlp, numbers(3, 8, grows=(2, 0))),
        (Block, numbers(2, 8, 6, 6, grows=(1, 0, 1, 1))),
        (encoder, numbers(2, 3, 32, grows=(1, 1, 0))),
        (Gpt, words(1, 5, grows=(1, 2))),
        (fused_gpt, words(1, 5, grows=(1, 2))),
    ],
)
@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_that_change(make: Make, batch: Batch, dynamic: bool | None) -> None:
    same(make, batch, steps=4, dynamic=dynamic)


def test_sizes_are_compiled_once() -> None:
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("hologram")
    model = torch.compile(mlp().to(DEVICE), backend=counter, fullgraph=True)
    for rows in range(3, 12):
        assert model(torch.randn(rows, 8, device=DEVICE)).shape == (rows, 2)
    assert counter.frame_count <= 2


def test_two_forward_passes_before_the_backward_pass() -> None:
    torch.manual_seed(0)
    models = [norms().to(DEVICE)]
    models.append(torch.compile(norms().to(DEVICE), backend="hologram"))
    models[1].load_state_dict({f"_orig_mod.{k}": v for k, v in models[0].state_dict().items()})
    x, y = torch.randn(5, 8, device=DEVICE), torch.randn(5, 8, device=DEVICE)
    for model in models:
        (model(x).sum() + model(y).square().sum()).backward()
    for p, q in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert p.grad is not None and q.grad is not None and torch.equal(p.grad, q.grad)


def test_arguments_are_written() -> None:
    def f(x: Tensor, y: Tensor) -> Tensor:
        x.add_(y)
        x[0].zero_()
        return x.view(-1)[1:]

    a, b = torch.ones(3, 3, device=DEVICE), torch.arange(9.0, device=DEVICE).view(3, 3)
    c, d = a.clone(), b.clone()
    expected, got = f(a, b), torch.compile(f, backend="hologram", fullgraph=True)(c, d)
    for left, right in ((a, c), (b, d), (expected, got)):
        assert torch.equal(left, right) and left.stride() == right.stride()
    got.fill_(7)
    assert c[1, 1] == 7


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_a_step_of_an_optimizer(kind: Any) -> None:
    # Dynamo itself turns numbers of the step into tensors, so eager code rounds otherwise.
    results = []
    for backend in ("eager", "hologram"):
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = mlp().to(DEVICE)
        optimizer = kind(model.parameters(), lr=0.1)
        step = torch.compile(optimizer.step, backend=backend)
        for seed in range(3):
            model(numbers(4, 8)(seed).to(DEVICE)).square().sum().backward()
            step()
        results.append([p.detach().clone() for p in model.parameters()])
    for p, q in zip(*results, strict=True):
        assert torch.equal(p, q)


def test_results_are_recorded() -> None:
    f = torch.compile(lambda x: (x * 2 + 1).tanh(), backend="hologram")
    x = torch.randn(64, device=DEVICE)
    f(x)
    _C.flush()
    before = _C.recorder_stats()["kernels"]
    y = (f(x) + x) * 2
    _C.flush()
    assert y.shape == (64,)
    assert _C.recorder_stats()["kernels"] == before + 1


@pytest.mark.parametrize("wish", [{"mode": "max-autotune"}, {"options": {"fast": True}}])
def test_other_modes_and_options_are_refused(wish: dict[str, Any]) -> None:
    torch._dynamo.reset()
    with pytest.raises(Exception, match="has the modes 'default' and 'reduce-overhead'"):
        torch.compile(mlp().to(DEVICE), backend="hologram", **wish)(
            torch.randn(2, 8, device=DEVICE)
        )


def test_an_error_is_that_of_eager() -> None:
    @torch.compile(backend="hologram")
    def f(x: Tensor, index: Tensor) -> Tensor:
        return F.embedding(index, x)

    with pytest.raises(IndexError):
        f(torch.ones(3, 2, device=DEVICE), torch.tensor([5]).to(DEVICE)).sum().item()


def test_importing_torch_imports_no_compiler() -> None:
    code = (
        "import sys, torch\n"
        "names = ('torch._dynamo', 'torch._inductor', 'hologram_torch._compile')\n"
        "assert not [n for n in names if n in sys.modules]\n"
        "assert 'hologram' in torch.compiler.list_backends()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)


def test_the_backend_adds_little_to_a_first_call() -> None:
    times = {}
    for backend in ("eager", "hologram", "eager", "hologram"):
        torch._dynamo.reset()
        model = torch.compile(mlp().to(DEVICE), backend=backend)
        x = torch.randn(4, 8, device=DEVICE)
        begin = time.perf_counter()
        model(x)
        times[backend] = time.perf_counter() - begin
    # Around 0.06 s; C++ compilers take seconds.
    assert times["hologram"] - times["eager"] < 1.0
