# SPDX-License-Identifier: MIT
"""Functions that square their argument, at scales whose squares float32 cannot hold.

What cpu computes in an argument's own dtype tells where a value is due; float64 tells which.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Function = Callable[[Tensor], Tensor]

SCALES = [1e-30, 1e-25, 1e-20, 1e-18, 1e-12, 1.0, 1e12, 1e18, 1e20, 1e25, 1e30]
# cpu has found a value where it is this near to float64's.
FOUND = 1e-2


def _spread(name: str, dim: object, correction: float = 1) -> Function:
    def call(x: Tensor) -> Tensor:
        found = getattr(torch, name)(x, dim=dim, correction=correction)
        return found if isinstance(found, Tensor) else found[0]

    return call


SPREADS: dict[str, Callable[[object], Function]] = {
    name: lambda dim, name=name: _spread(name, dim)
    for name in ("var", "std", "var_mean", "std_mean")
} | {"std, correction 0": lambda dim: _spread("std", dim, 0)}


def _batch_norm(x: Tensor, eps: float = 1e-5) -> Tensor:
    return F.batch_norm(x, None, None, training=True, eps=eps)


NORMS: dict[str, Function] = {
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:]),
    "group_norm": lambda x: F.group_norm(x, 2),
    "instance_norm": lambda x: F.instance_norm(x.unsqueeze(0)),
    "batch_norm": _batch_norm,
    "batch_norm, tiny eps": lambda x: _batch_norm(x, 1e-70),
    "batch_norm, columns": lambda x: _batch_norm(x.t(), 1e-70),
    "batch_norm, planes": lambda x: _batch_norm(x.unflatten(1, (2, -1, 2))[..., 0], 1e-70),
    "normalize": F.normalize,
    "cosine_similarity": lambda x: F.cosine_similarity(x, x.flip(1)),
    "vector_norm": lambda x: torch.linalg.vector_norm(x, dim=1),
    "norm": torch.norm,
    "weight_norm": lambda x: torch._weight_norm(x, torch.ones_like(x[:, :1]), 0),
    "pairwise_distance": lambda x: F.pairwise_distance(x, x.flip(1)),
    "cdist": lambda x: torch.cdist(x[:4], x[4:9]),
    "renorm": lambda x: torch.renorm(x, 2, 0, 1.0),
}


def gradient(function: Function) -> Function:
    """Return the gradient of a function's weighted results."""

    def call(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        y = function(x)
        weight = torch.arange(1, y.numel() + 1, dtype=torch.float64).sin().view(y.shape)
        return torch.autograd.grad(y, x, weight.to(y.device, y.dtype))[0]

    return call


def _error(found: Tensor, exact: Tensor, elementwise: bool) -> float:
    """Return the largest error, relative to each element or to the largest one."""
    found = found.detach().cpu().double()
    size = exact.abs() if elementwise else exact.abs().max()
    errors = torch.where(found == exact, 0.0, (found - exact).abs() / size)
    return float(errors.nan_to_num(torch.inf).max())


def excess(function: Function, x: Tensor, device: str, elementwise: bool) -> str | None:
    """Return how a device is off where cpu has found the value; None where it is not."""
    exact, theirs, ours = function(x.double()), function(x), function(x.to(device))
    if not (bool(exact.isfinite().all()) and bool(exact.any())):
        return None
    of_cpu = _error(theirs, exact, elementwise)
    bound = max(4 * of_cpu, 32 * torch.finfo(x.dtype).eps)
    if of_cpu > FOUND or _error(ours, exact, elementwise) <= bound:
        return None
    worst = _error(ours, exact, elementwise)
    return f"error {worst:.2g}, of cpu {of_cpu:.2g}: {ours.flatten()[:3].tolist()}"
