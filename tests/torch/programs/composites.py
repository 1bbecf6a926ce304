# SPDX-License-Identifier: MIT
"""Chains of ops as people write them, which random programs call as one step."""

from __future__ import annotations

import copy
import io
import math
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

Tensor = torch.Tensor


def layer_norm(x: Tensor, w: Tensor | None = None, b: Tensor | None = None) -> Tensor:
    """Normalize the last dimension, op by op."""
    centred = x - x.mean(-1, keepdim=True)
    y = centred / torch.sqrt((centred * centred).mean(-1, keepdim=True) + 1e-5)
    return y if w is None or b is None else y * w + b


def layer_norm_var(x: Tensor) -> Tensor:
    """Normalize the last dimension by `var`."""
    return (x - x.mean(-1, keepdim=True)) * torch.rsqrt(
        x.var(-1, keepdim=True, correction=0) + 1e-5
    )


def rms_norm(x: Tensor) -> Tensor:
    """Divide by the root of the mean square."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def softmax_by_hand(x: Tensor) -> Tensor:
    """Softmax of the last dimension, op by op."""
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def swiglu(x: Tensor, y: Tensor) -> Tensor:
    """silu(x) * y."""
    return x * torch.sigmoid(x) * y


def gelu_by_hand(x: Tensor) -> Tensor:
    """GELU's tanh form, op by op."""
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def adam(p: Tensor, g: Tensor, m: Tensor, v: Tensor, step: int, lr: float = 1e-2) -> None:
    """One step of Adam on p, m and v, op by op."""
    m.mul_(0.9).add_(g, alpha=0.1)
    v.mul_(0.999).addcmul_(g, g, value=0.001)
    denominator = (v / (1 - 0.999**step)).sqrt_().add_(1e-8)
    p.addcdiv_(m / (1 - 0.9**step), denominator, value=-lr)


def adam_foreach(
    ps: list[Tensor], gs: list[Tensor], ms: list[Tensor], vs: list[Tensor], step: int
) -> None:
    """One step of Adam on lists."""
    torch._foreach_lerp_(ms, gs, 0.1)
    torch._foreach_mul_(vs, 0.999)
    torch._foreach_addcmul_(vs, gs, gs, 0.001)
    roots = torch._foreach_sqrt(vs)
    torch._foreach_div_(roots, (1 - 0.999**step) ** 0.5)
    torch._foreach_add_(roots, 1e-8)
    torch._foreach_addcdiv_(ps, ms, roots, -1e-2 / (1 - 0.9**step))


def adam_fused(
    name: str,
    ps: list[Tensor],
    gs: list[Tensor],
    ms: list[Tensor],
    vs: list[Tensor],
    **options: Any,
) -> None:
    """Two steps of the fused Adam that torch.optim calls, or of AdamW."""
    steps = [torch.zeros((), device=p.device) for p in ps]
    fused = torch._fused_adam_ if name == "adam" else torch._fused_adamw_
    for _ in range(2):
        torch._foreach_add_(steps, 1)
        fused(
            ps,
            gs,
            ms,
            vs,
            [],
            steps,
            lr=0.01,
            beta1=0.9,
            beta2=0.999,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
            **options,
        )


def sgd_fused(ps: list[Tensor], gs: list[Tensor], ms: list[Tensor], nesterov: bool) -> None:
    """Two steps of the fused SGD that torch.optim calls."""
    for first in (True, False):
        torch._fused_sgd_(
            ps,
            gs,
            ms,
            weight_decay=0.1,
            momentum=0.9,
            lr=0.05,
            dampening=0.0,
            nesterov=nesterov,
            maximize=False,
            is_first_step=first,
        )


def gradient(f: Callable[..., Tensor], *inputs: Tensor) -> list[Tensor]:
    """Differentiate f(*inputs).sum(); return the value and the gradients."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    y = f(*leaves)
    return [y.detach(), *torch.autograd.grad(y.sum(), leaves)]


def train(x: Tensor, target: Tensor, w: Tensor, b: Tensor, steps: int) -> list[Tensor]:
    """Fit w and b to target by steps of gradient descent; return them and the last loss."""
    w, b = w.detach().clone().requires_grad_(), b.detach().clone().requires_grad_()
    loss = None
    for _ in range(steps):
        loss = F.mse_loss(torch.tanh(x @ w + b), target)
        loss.backward()
        with torch.no_grad():
            for p in (w, b):
                p -= 0.1 * p.grad
                p.grad = None
    return [w.detach(), b.detach(), loss.detach()]


def fill_fresh(x: Tensor, value: Any) -> Tensor:
    """Fill memory that nothing wrote before."""
    return torch.empty_like(x).fill_(value)


def copy_fresh(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Copy into memory that nothing wrote before."""
    return torch.empty(x.shape, dtype=dtype, device=x.device).copy_(x)


def fill_halves(x: Tensor, value: Any) -> Tensor:
    """Write memory that nothing wrote before piece by piece, the first piece twice."""
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    half = y.shape[0] // 2
    y[:half] = value
    y[half:] = x[half:]
    y[:half] = x[:half]
    return y


def unused_chain(x: Tensor) -> Tensor:
    """Compute what is not read, and return something else."""
    y = x
    for _ in range(4):
        y = (y * 2).sin() + x
    y.add_(1)
    return x + 1


def long_chain(x: Tensor, n: int) -> Tensor:
    """Record more ops than most programs do before they look."""
    y = x
    for i in range(n):
        y = y * 0.5 + x if i % 7 else (y - 0.25).abs_()
    return y


def two_threads(x: Tensor, y: Tensor) -> list[Tensor]:
    """Record on two threads at once, each on tensors of its own."""
    results: list[Tensor] = [x, y]

    def work(i: int) -> None:
        z = results[i].float() + 1
        for _ in range(5):
            z = (z * 2).sin().add_(0.5)
        results[i] = z

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return results


def from_host(x: Tensor, value: float) -> None:
    """Copy from host memory that changes right after the call."""
    host = torch.full(x.shape, value)
    x.copy_(host, non_blocking=True)
    host.zero_()


def to_host(x: Tensor) -> Tensor:
    """Copy to host memory that is there already, and change x right after."""
    host = torch.ones(x.shape, dtype=x.dtype)
    host.copy_(x)
    return host


def copied(x: Tensor) -> list[Tensor]:
    """Copy a tensor and a view of it, which share memory in the copy too."""
    return copy.deepcopy([x, x[..., :1]])


def saved(x: Tensor) -> Tensor:
    """Write x to a file and read it back."""
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file)


def host_view(x: Tensor) -> Tensor:
    """Give foreign code the memory of x."""
    return (
        torch.from_dlpack(x.__dlpack__(dl_device=(1, 0))) if x.device.type != "cpu" else x.detach()
    )


def moments(x: Tensor) -> list[Tensor]:
    """Two results that share their inputs' loops."""
    return [x.mean(-1), (x * x).mean(-1), x.abs().amax(-1)]


def view_bytes(x: Tensor, dtype: torch.dtype) -> Tensor:
    """See the same bytes as another type."""
    return x.view(dtype)


NAMES: dict[str, Any] = {
    f.__name__: f
    for f in (
        long_chain,
        two_threads,
        from_host,
        to_host,
        saved,
        copied,
        layer_norm,
        layer_norm_var,
        rms_norm,
        softmax_by_hand,
        swiglu,
        gelu_by_hand,
        adam,
        adam_foreach,
        adam_fused,
        sgd_fused,
        gradient,
        train,
        fill_fresh,
        copy_fresh,
        fill_halves,
        unused_chain,
        host_view,
        moments,
        view_bytes,
    )
}
