# SPDX-License-Identifier: MIT
"""Checks of optimizers: every configuration steps as on cpu, and as in float64."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from accuracy import Rounding
from torch import Tensor
from torch.utils._pytree import tree_map

D = "hologram"
STEPS = 4
SHAPES = ((4, 3), (3,), (2, 3, 2), ())
# Each step rounds about a dozen times, and divides by a root that may be small.
SEVERAL_STEPS = Rounding(units=16 * STEPS)


def variants(info: Any) -> list[dict[str, bool]]:
    """The implementations of an optimizer: loops, lists, one kernel, and on the device alone."""
    found: list[dict[str, bool]] = [{}]
    if "foreach" in info.supported_impls:
        found += [{"foreach": False}, {"foreach": True}]
    if "fused" in info.supported_impls:
        found.append({"fused": True})
    if "differentiable" in info.supported_impls:
        found.append({"differentiable": True})
    return found


def configurations(info: Any) -> list[dict[str, Any]]:
    """The database's configurations; CUDA's add those that keep steps on the device."""
    found = [given.kwargs for given in info.optim_inputs_func("cuda", torch.float32)]
    return [k for k in found if not set(k) & {"foreach", "fused", "differentiable"}]


def start(info: Any, dtype: torch.dtype, noise: float = 0.0) -> list[Tensor]:
    """Make the parameters that every run begins with."""
    generator = torch.Generator().manual_seed(2)
    shapes = [s for s in SHAPES if len(s) == 2] if info.name == "Muon" else SHAPES
    values = [torch.randn(s, generator=generator) for s in shapes]
    signs = [torch.randint(0, 2, s, generator=generator) * 2 - 1 for s in shapes]
    pairs = zip(values, signs, strict=True)
    return [(v.to(dtype) * (1 + noise * s)).requires_grad_() for v, s in pairs]


def step(info: Any, params: list[Tensor], options: dict[str, Any]) -> list[Tensor]:
    """Take some steps down a convex function of the parameters; return them and the state."""
    options = dict(options)
    if info.step_requires_closure:
        # LBFGS at a minimum divides what rounding has left of two gradients: stay away from it.
        options = {"max_iter": 2} | options
    differentiable = options.get("differentiable", False)
    if differentiable:
        params = [p * 1 for p in params]  # what is no leaf may be written while recording
    for p in params:
        p.retain_grad()
    optimizer = info.optim_cls(params, **options)

    def closure() -> Tensor:
        optimizer.zero_grad()
        parts = []
        for i, p in enumerate(params):
            slopes = torch.linspace(0.5, 2.0, p.numel(), dtype=torch.float64).view(p.shape)
            parts.append((slopes.to(p.device, p.dtype) * (p - 0.3 * (i + 1)).square()).sum())
        loss = torch.stack(parts).sum()
        for p, g in zip(params, torch.autograd.grad(loss, params), strict=True):
            sparse = info.only_supports_sparse_grads
            p.grad = g.detach().to_sparse() if sparse and g.dim() else g.detach()
            if sparse and not g.dim():
                p.grad = None
        return loss.detach()

    for _ in range(STEPS):
        if info.step_requires_closure:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    state = [
        v for p in params for _, v in sorted(optimizer.state[p].items()) if isinstance(v, Tensor)
    ]
    return [t.detach() for t in [*params, *state]]


def check(info: Any, options: dict[str, Any]) -> None:
    """Compare one configuration with cpu and with double precision."""
    # cpu refuses to be captured, and knows the numbers without it.
    plain = {k: v for k, v in options.items() if k != "capturable"}
    if options.get("capturable"):
        plain = tree_map(lambda x: x.item() if isinstance(x, Tensor) else x, plain)
    ours = [p.detach().to(D).requires_grad_() for p in start(info, torch.float32)]
    try:
        theirs = step(info, start(info, torch.float32), plain)
    except ValueError as error:
        with pytest.raises(ValueError, match=f"^{re.escape(str(error))}$"):
            step(info, ours, options)
        return
    mine = step(info, ours, options)
    exact = step(info, start(info, torch.float64), plain)
    eps = torch.finfo(torch.float32).eps
    near = step(info, start(info, torch.float64, eps), plain)
    count = len(ours)
    assert all(t.device.type == D for t in mine[:count])
    for i, rows in enumerate(zip(mine, theirs, exact, near, strict=True)):
        a, b, right, close = (t.cpu() for t in rows)
        problem = SEVERAL_STEPS.excess(a, b.to(a.dtype), right, close)
        assert problem is None, f"{options}: tensor {i}: {problem}"


def checks(info: Any, limit: int | None) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the checks of an optimizer's configurations, at most `limit` of each variant."""
    for variant in variants(info):
        for options in configurations(info)[:limit]:
            given = {**options, **variant}
            yield f"{info.name}{given}", partial(check, info, copy.deepcopy(given))
