# SPDX-License-Identifier: MIT
"""Checks of modules that are made on cpu and moved: they compute and train as they did."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from accuracy import Rounding, error_beside_cpu, tensors_of
from torch import nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_flatten, tree_map

D = "hologram"

# A dozen products and norms in a row, forward and back, round more often than one operator does.
DEEP = Rounding(units=16)


def is_tensor(x: object) -> bool:
    return isinstance(x, (torch.Tensor, PackedSequence))


def moved(value: Any, to: Any) -> Any:
    """Copy a nest of inputs to a device or a dtype; leaves stay leaves."""

    def move(x: Any) -> Any:
        if isinstance(x, PackedSequence):
            return x.to(to)
        if not isinstance(x, torch.Tensor):
            return x
        if isinstance(to, torch.dtype) and not x.is_floating_point():
            return x
        return x.detach().clone().to(to).requires_grad_(x.requires_grad)

    return tree_map(move, value, is_leaf=is_tensor)


def rounded(value: Any) -> Any:
    """Move every number of a nest by one unit of float32."""
    generator = torch.Generator().manual_seed(3)
    eps = torch.finfo(torch.float32).eps

    def one(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or not x.is_floating_point():
            return x
        signs = torch.randint(0, 2, x.shape, generator=generator) * 2 - 1
        return (x.detach() * (1 + eps * signs)).requires_grad_(x.requires_grad)

    return tree_map(one, value, is_leaf=is_tensor)


def run(module: nn.Module, args: Any, kwargs: Any) -> list[torch.Tensor | None]:
    """Return what a module computes, every gradient, and its buffers."""
    torch.manual_seed(11)
    result = module(*args, **kwargs)
    found = [t for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor)]
    leaves = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor)]
    leaves = [t for t in [*leaves, *module.parameters()] if t.requires_grad]
    sums = [t for t in found if t.requires_grad]
    if sums and leaves:
        weights = []
        for t in sums:
            torch.manual_seed(5)
            weights.append(torch.randn(t.shape).to(t.device, t.dtype))
        found += torch.autograd.grad(sums, leaves, weights, allow_unused=True)
    return [*found, *module.buffers()]


def without_dropout(module: nn.Module) -> bool:
    """Set the chance of every dropout in a module to 0; tell whether there was one."""
    drew = False
    for m in module.modules():
        name = "p" if isinstance(m, nn.modules.dropout._DropoutNd) else "dropout"
        if isinstance(getattr(m, name, None), float):
            drew = drew or getattr(m, name) > 0
            setattr(m, name, 0.0)
    return drew and module.training


def assert_alike(ours: list, cpu: list, what: str) -> None:
    """Compare all but values."""
    assert len(ours) == len(cpu), what
    for i, (a, b) in enumerate(zip(ours, cpu, strict=True)):
        assert (a is None) == (b is None), f"{what}: result {i}"
        if a is not None:
            assert a.device.type == D, f"{what}: result {i} on {a.device}"
            facts = [(t.dtype, t.shape, t.stride(), t.requires_grad) for t in (a, b)]
            assert facts[0] == facts[1], f"{what}: result {i}"


def made(info: Any, given: Any, training: bool, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    module = info.module_cls(*given.constructor_input.args, **given.constructor_input.kwargs)
    return module.to(torch.float32).train(training)


def error_of_others(info: Any, k: int, training: bool, result: int) -> float:
    """Return how large our error of a result is beside cpu's, of parameters and inputs anew."""

    def draw(seed: int) -> Any:
        given = inputs_of(info, training, seed)[k]
        module = made(info, given, training, seed)
        without_dropout(module)
        inputs = given.forward_input.args, given.forward_input.kwargs
        found = []
        for to in (D, "cpu", torch.float64):
            there = copy.deepcopy(module).to(to)
            found.append(tensors_of(run(there, *moved(inputs, to)))[result])
        return tuple(found)

    return error_beside_cpu(draw)


def check_input(info: Any, given: Any, k: int, training: bool) -> None:
    """Move one module with the k-th of its inputs, and compare."""
    what = f"{info.name}({given.constructor_input.args}, {given.constructor_input.kwargs})"
    module = made(info, given, training)
    ours = copy.deepcopy(module)
    before = list(ours.parameters())
    assert ours.to(D) is ours
    after = list(ours.parameters())
    assert all(a is b for a, b in zip(before, after, strict=True)), what
    assert all(p.device.type == D for p in after), what
    if given.forward_input is None:
        return
    inputs = given.forward_input.args, given.forward_input.kwargs
    if info.is_lazy:
        # The parameters appear at the first call, drawn by each device's own generator.
        with torch.no_grad():
            module(*moved(inputs[0], "cpu"), **moved(inputs[1], "cpu"))
            ours(*moved(inputs[0], D), **moved(inputs[1], D))
        assert all(a is b for a, b in zip(before, ours.parameters(), strict=True)), what
        ours.load_state_dict(module.state_dict())
    if without_dropout(copy.deepcopy(module)):
        results = [
            run(copy.deepcopy(m), *moved(inputs, to)) for m, to in ((ours, D), (module, "cpu"))
        ]
        assert_alike(*results, what)
        without_dropout(module)
        without_dropout(ours)
    wide = copy.deepcopy(module).double()
    mine, theirs = run(ours, *moved(inputs, D)), run(copy.deepcopy(module), *moved(inputs, "cpu"))
    assert_alike(mine, theirs, what)
    inputs = moved(inputs, torch.float64)
    off = copy.deepcopy(wide)
    for p in off.parameters():
        p.data = rounded(p.data)
    exact = run(wide, *inputs)
    try:
        near = run(off, *rounded(inputs))
    except RuntimeError:
        near = exact  # rounded inputs may leave the domain
    for i, rows in enumerate(
        zip(*(tensors_of(r) for r in (mine, theirs, exact, near)), strict=True)
    ):
        others = None if info.is_lazy else partial(error_of_others, info, k, training, i)
        problem = DEEP.excess(*rows, other_draws=others)
        assert problem is None, f"{what}: result {i}: {problem}"


def inputs_of(info: Any, training: bool, seed: int = 1) -> list:
    torch.manual_seed(seed)
    return list(info.module_inputs_func(info, "cpu", torch.float32, True, training))


def checks(
    info: Any, training: bool, limit: int | None
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the checks of a module's inputs, at most `limit`, each with a name."""
    if torch.float32 not in info.dtypes or not (training or info.train_and_eval_differ):
        return
    for k, given in enumerate(inputs_of(info, training)[:limit]):
        yield f"{info.name}[{k}]", partial(check_input, info, given, k, training)
