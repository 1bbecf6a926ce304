# SPDX-License-Identifier: MIT
"""Ops that stand before autograd's kernels: all is as if those had been asked."""

from __future__ import annotations

import gc
import resource
import threading
from collections.abc import Callable

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

import hologram_torch

D = "hologram"
X = [-2.0, -0.5, 0.25, 3.0]
Y = [1.5, -1.0, 2.0, 0.5]


@pytest.fixture(autouse=True, params=["deferred", "eager"])
def execution(request: pytest.FixtureRequest):
    """Run each test in both modes."""
    with hologram_torch.execution(request.param):
        yield


def tensors(device: str = D) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor(X, device=device), torch.tensor(Y, device=device)


def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Functional ops, ops in place, sums, means and softmaxes."""
    z = (x * y + 0.5).relu() - x.sigmoid() * x.mean(-1, keepdim=True)
    z.mul_(y).add_(x, alpha=0.5)
    return (torch.softmax(z, -1) * torch.log_softmax(x, -1) + z.sum()).clamp(-9.0, 9.0)


# --- Gradients -----------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [0, 1])
def test_gradients_of_either_operand(which: int) -> None:
    grads = []
    for device in (D, "cpu"):
        operands = tensors(device)
        operands[which].requires_grad_()
        program(*operands).sum().backward()
        grads.append(operands[which].grad.cpu())
        assert operands[1 - which].grad is None
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-5, atol=1e-6)


def test_graph_only_where_a_gradient_is_asked() -> None:
    x, y = tensors()
    assert not (x + y).requires_grad
    x.requires_grad_()
    assert type((x + y).grad_fn).__name__ == "AddBackward0"
    assert type((y + x).relu().grad_fn).__name__ == "ReluBackward0"
    assert type(x.mean().grad_fn).__name__ == "MeanBackward0"
    with torch.no_grad():
        assert not (x + y).requires_grad
        x.add_(1)  # a parameter, as an optimizer changes it
    assert x.is_leaf and x._version == 1


def test_writing_a_leaf_is_refused() -> None:
    x, y = tensors()
    x.requires_grad_()
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        x.add_(y)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        x.zero_()
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        torch.add(x, y, out=torch.empty_like(y))
    assert x.tolist() == X


def test_a_write_into_a_view_reaches_its_base() -> None:
    base = torch.zeros(4, device=D)
    base[:2].add_(1)
    assert base.tolist() == [1, 1, 0, 0] and base._version == 1
    x = torch.ones(4, device=D, requires_grad=True)
    z = x * 1
    z[:2].mul_(3)
    z.sum().backward()
    assert x.grad.tolist() == [3, 3, 1, 1]


# --- Versions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "write",
    [
        lambda t, u: t.add_(u),
        lambda t, u: t.mul_(2.0),
        lambda t, u: t.relu_(),
        lambda t, u: t.zero_(),
        lambda t, u: torch.mul(u, u, out=t),
        lambda t, u: t.clamp_(0, 1),
    ],
)
def test_a_write_counts_once(write: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
    x, y = tensors()
    assert write(x, y) is x
    assert (x._version, y._version) == (1, 0)


def test_backward_sees_that_a_saved_tensor_was_written() -> None:
    x, y = tensors()
    x.requires_grad_()
    z = (x * y).sum()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


# --- Modes and transforms ------------------------------------------------------------------------


def test_tangents_pass() -> None:
    tangents = []
    for device in (D, "cpu"):
        x, y = tensors(device)
        with forward_ad.dual_level():
            result = program(forward_ad.make_dual(x, torch.ones_like(x)), y)
            tangent = forward_ad.unpack_dual(result).tangent
            assert tangent is not None
            tangents.append(tangent.cpu())
    torch.testing.assert_close(tangents[0], tangents[1], rtol=1e-5, atol=1e-6)


class Seen(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_modes_see_every_op() -> None:
    x, y = tensors()
    with Seen() as seen:
        (x + y).relu_().zero_()
        x.mean(-1)
        torch.mul(x, y, out=torch.empty_like(x))
    for name in ("add.Tensor", "relu_.default", "zero_.default", "mean.dim", "mul.out"):
        assert f"aten.{name}" in seen.names


@pytest.mark.parametrize(
    "transform",
    [
        lambda x, y: torch.func.grad(lambda t: program(t, y).sum())(x),
        lambda x, y: torch.func.vmap(lambda t: (t * y + 1).relu().mean(-1))(torch.stack([x, y])),
        lambda x, y: torch.func.jvp(lambda t: program(t, y), (x,), (y,))[1],
        lambda x, y: torch.func.functionalize(program)(x, y),
    ],
)
def test_transforms(transform: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
    results = [transform(*tensors(device)).cpu() for device in (D, "cpu")]
    torch.testing.assert_close(results[0], results[1], rtol=1e-5, atol=1e-6)


def test_inference_tensors() -> None:
    with torch.inference_mode():
        x, y = tensors()
        x.add_(y)
        assert x.tolist() == [a + b for a, b in zip(X, Y, strict=True)]
    z = torch.ones(4, device=D)
    assert (z + x).tolist() == [1 + a + b for a, b in zip(X, Y, strict=True)]
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        x.add_(z)


def test_what_the_rule_declines_goes_all_the_way() -> None:
    for device in (D, "cpu"):
        x = torch.tensor([1 + 2j, 3 - 1j], device=device)
        assert (x * x + x).tolist() == [-2 + 6j, 11 - 7j]
        x.mul_(2)
        assert x._version == 1
    with pytest.raises(RuntimeError, match="must match the size"):
        torch.ones(3, device=D) + torch.ones(2, device=D)


# --- Tensor objects ------------------------------------------------------------------------------


def test_tensor_objects_go_back_on_any_thread() -> None:
    x = torch.ones(4, device=D)

    def rounds(count: int) -> None:
        for _ in range(count):
            made: list[torch.Tensor] = []
            thread = threading.Thread(target=lambda kept: kept.extend(x * 2 for _ in range(2000)),
                                      args=(made,))  # fmt: skip
            thread.start()
            thread.join()
            assert len(made) == 2000
            torch.hologram.synchronize()
            del made

    gc.collect()  # what earlier tests left must not die in between
    torch.hologram.synchronize()
    blocks = torch.hologram.memory_stats()["active.all.current"]
    rounds(5)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rounds(40)
    # Lost objects would be some 35 MB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 12 * 1024
    assert torch.hologram.memory_stats()["active.all.current"] <= blocks
