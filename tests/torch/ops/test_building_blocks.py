# SPDX-License-Identifier: MIT
"""torch.ops.hologram: the operators for parts of models that PyTorch has no operator for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.gradcheck import gradcheck, gradgradcheck

import hologram_torch

DEVICE = "hologram"
ops = torch.ops.hologram


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def geglu(gate: Tensor, up: Tensor, approximate: str = "none") -> Tensor:
    return F.gelu(gate, approximate=approximate) * up


def rotary(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False) -> Tensor:
    if interleaved:
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor | None = None, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    total = x + residual
    return F.rms_norm(total, (x.shape[-1],), weight, eps), total


def made(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


x, y, w = made(2, 3, 6), made(2, 3, 6, seed=1), made(6, seed=2)
angles = made(3, 3, seed=3)
CASES: list[tuple[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = [
    ("swiglu", swiglu, (x, y), {}),
    ("geglu", geglu, (x, y), {}),
    ("geglu", geglu, (x, y), {"approximate": "tanh"}),
    ("rotary_embedding", rotary, (x, angles.cos(), angles.sin()), {}),
    ("rotary_embedding", rotary, (x, angles.cos(), angles.sin()), {"interleaved": True}),
    ("add_rms_norm", add_rms_norm, (x, y, w), {"eps": 1e-3}),
    ("add_rms_norm", add_rms_norm, (x, y), {}),
]
every_case = pytest.mark.parametrize(("name", "reference", "args", "kwargs"), CASES)


def on(device: str, args: tuple[Any, ...], tracked: bool = False) -> list[Tensor]:
    return [a.detach().clone().to(device).requires_grad_(tracked) for a in args]


@every_case
@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_values_and_gradients(
    name: str, reference: Any, args: Any, kwargs: Any, device: str
) -> None:
    op = getattr(ops, name)
    torch.testing.assert_close(
        [t.cpu() for t in torch.utils._pytree.tree_leaves(op(*on(device, args), **kwargs))],
        torch.utils._pytree.tree_leaves(reference(*args, **kwargs)),
    )
    given = on(device, args, tracked=True)
    assert gradcheck(lambda *a: op(*a, **kwargs), given, check_forward_ad=True)
    assert gradgradcheck(lambda *a: op(*a, **kwargs), given)


@every_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_other_dtypes_are_rounded_once(
    name: str, reference: Any, args: Any, kwargs: Any, dtype: torch.dtype
) -> None:
    args = tuple(a.to(dtype) for a in args)
    got = torch.utils._pytree.tree_leaves(getattr(ops, name)(*on(DEVICE, args), **kwargs))
    exact = torch.utils._pytree.tree_leaves(reference(*(a.double() for a in args), **kwargs))
    if name == "add_rms_norm":  # of the sum as it is stored
        total = (args[0].double() + args[1].double()).to(dtype).double()
        exact[0] = reference(
            total, torch.zeros_like(total), *(a.double() for a in args[2:]), **kwargs
        )[0]
    for a, b in zip(got, exact, strict=True):
        assert a.dtype == dtype
        rounding = torch.finfo(dtype).eps * (0.51 if dtype != torch.float32 else 8)
        torch.testing.assert_close(a.cpu().double(), b, rtol=rounding, atol=1e-6)


@every_case
def test_opcheck(name: str, reference: Any, args: Any, kwargs: Any) -> None:
    op = getattr(ops, name).default
    torch.library.opcheck(op, on("cpu", args, tracked=True), kwargs)
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(op, on(DEVICE, args, tracked=True), kwargs, test_utils=tests)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("swiglu_backward", (x, y, x * 2)),
        ("geglu_backward", (x, y, x * 2)),
        ("add_rms_norm_backward", (x, y, x * 2, w, 1e-5)),
        ("add_rms_norm_backward", (x, y, x * 2, w, 1e-5, False)),
    ],
)
def test_opcheck_of_gradients(name: str, args: tuple[Any, ...]) -> None:
    given = [a.clone().requires_grad_() if isinstance(a, Tensor) else a for a in args]
    torch.library.opcheck(getattr(ops, name).default, given)


@every_case
def test_vmap(name: str, reference: Any, args: Any, kwargs: Any) -> None:
    dims = tuple(0 if a.dim() == 3 else None for a in args)
    got = torch.func.vmap(lambda *a: getattr(ops, name)(*a, **kwargs), dims)(*on(DEVICE, args))
    for a, b in zip(
        torch.utils._pytree.tree_leaves(got),
        torch.utils._pytree.tree_leaves(reference(*args, **kwargs)),
        strict=True,
    ):
        torch.testing.assert_close(a.cpu(), b)
    gradient = torch.func.vmap(
        torch.func.grad(
            lambda *a: torch.utils._pytree.tree_leaves(getattr(ops, name)(*a, **kwargs))[0].sum()
        ),
        dims,
    )(*on(DEVICE, args))
    track = args[0].clone().requires_grad_()
    torch.utils._pytree.tree_leaves(reference(track, *args[1:], **kwargs))[0].sum().backward()
    torch.testing.assert_close(gradient.cpu(), track.grad)


def test_one_node_keeps_inputs_alone() -> None:
    kept: list[int] = []

    def pack(t: Tensor) -> Tensor:
        kept.append(t.numel())
        return t

    gate, up = (t.float().to(DEVICE).requires_grad_() for t in (x, y))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = ops.swiglu(gate, up)
    assert kept == [36, 36] and out.grad_fn.name() == "SwigluBackward"
    kept.clear()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        ops.add_rms_norm(gate, up, None)
    assert kept in ([36], [0, 36])


@every_case
@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_compiled_whole_and_exported(
    name: str, reference: Any, args: Any, kwargs: Any, device: str
) -> None:
    class Model(torch.nn.Module):
        def forward(self, *a: Tensor) -> Tensor:
            return torch.utils._pytree.tree_leaves(getattr(ops, name)(*a, **kwargs))[0] * 2

    torch._dynamo.reset()
    given = on(device, args)
    backend = "hologram" if device == DEVICE else "aot_eager"
    tracked, again = on(device, args, tracked=True), on(device, args, tracked=True)
    out = torch.compile(Model(), backend=backend, fullgraph=True)(*tracked)
    out.sum().backward()
    Model()(*again).sum().backward()
    torch.testing.assert_close(out.detach().cpu(), Model()(*given).cpu())
    for a, b in zip(tracked, again, strict=True):
        torch.testing.assert_close(a.grad.cpu(), b.grad.cpu())
    program = torch.export.export(Model(), tuple(given))
    assert any(f"hologram.{name}" in str(n.target) for n in program.graph.nodes)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda: ops.swiglu(x, w),
            RuntimeError,
            r"swiglu: gate of shape \[2, 3, 6\] and up of shape \[6\] must have one shape",
        ),
        (
            lambda: ops.geglu(x, y.float()),
            TypeError,
            "hologram::geglu: gate and up must have one floating dtype, got Double and Float",
        ),
        (
            lambda: ops.rotary_embedding(x, w, w),
            RuntimeError,
            r"x of shape \[2, 3, 6\] needs cos and sin of one .*got cos of shape \[6\]",
        ),
        (
            lambda: ops.rotary_embedding(x.long(), angles, angles),
            TypeError,
            "x, cos and sin must be floating, got Long, Double and Double",
        ),
        (
            lambda: ops.add_rms_norm(x, w),
            RuntimeError,
            r"input of shape \[2, 3, 6\] and residual of shape \[6\] must have one shape",
        ),
        (
            lambda: ops.add_rms_norm(x, y.float()),
            TypeError,
            "input and residual must have one floating dtype, got Double and Float",
        ),
        (
            lambda: ops.add_rms_norm(x, y, angles),
            RuntimeError,
            r"weight of shape \[3, 3\] must have one dimension, as long as the last of input",
        ),
    ],
)
def test_errors(call: Any, kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message):
        call()


def test_a_weight_that_needs_no_gradient_costs_none() -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 512, device="hologram", requires_grad=True)
    residual = torch.randn(64, 512, device="hologram")
    weight = torch.randn(512, device="hologram")

    def gradient() -> Tensor:
        normed, total = torch.ops.hologram.add_rms_norm(x, residual, weight)
        return torch.autograd.grad((normed.sin() + total).sum(), x)[0]

    def kernels() -> list[str]:
        explained = hologram_torch.explain(lambda: (gradient(), torch.accelerator.synchronize())[0])
        return [str(kernel) for circuit in explained.circuits for kernel in circuit.after]

    assert len(kernels()) == 1
    alone = gradient()
    weight.requires_grad_()
    assert torch.equal(alone.cpu(), gradient().cpu())
    normed, _ = torch.ops.hologram.add_rms_norm(x, residual, weight)
    of_weight = torch.autograd.grad(normed.sum(), weight)[0]
    expected = F.rms_norm((x + residual).cpu().double(), (512,), eps=1e-6).sum(0)
    torch.testing.assert_close(of_weight.cpu().double(), expected, rtol=1e-5, atol=1e-5)
