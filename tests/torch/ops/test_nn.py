# SPDX-License-Identifier: MIT
"""hologram_torch.nn beside torch.nn: values, state, training, copies, text."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from accuracy import Rounding, assert_as_accurate

from hologram_torch import nn as hnn

D = "hologram"
Args = tuple[Any, ...]

# Name, constructor arguments, shapes of the tensors that forward takes.
CASES: list[tuple[str, dict[str, Any], str]] = [
    ("ReLU", {}, "x"),
    ("ReLU", {"inplace": True}, "x"),
    ("Sigmoid", {}, "x"),
    ("Tanh", {}, "x"),
    ("GELU", {}, "x"),
    ("GELU", {"approximate": "tanh"}, "x"),
    ("Softmax", {"dim": 1}, "x"),
    ("LogSoftmax", {"dim": 0}, "x"),
    ("Linear", {"in_features": 5, "out_features": 3}, "x"),
    ("Linear", {"in_features": 5, "out_features": 3, "bias": False}, "x"),
    ("Linear", {"in_features": 5, "out_features": 3, "dtype": torch.float64}, "x"),
    ("MSELoss", {}, "xx"),
    ("MSELoss", {"reduction": "none"}, "xx"),
    ("CrossEntropyLoss", {}, "xc"),
    (
        "CrossEntropyLoss",
        {"weight": torch.rand(5), "ignore_index": 1, "label_smoothing": 0.1, "reduction": "sum"},
        "xc",
    ),
    ("BCELoss", {}, "pp"),
    ("BCELoss", {"weight": torch.rand(5)}, "pp"),
]
IDS = [f"{name}-{','.join(arguments)}" for name, arguments, _ in CASES]
each_case = pytest.mark.parametrize(("name", "arguments", "shapes"), CASES, ids=IDS)


def pair(name: str, arguments: dict[str, Any]) -> tuple[torch.nn.Module, torch.nn.Module]:
    """Return our module and PyTorch's, each made after the same seed."""
    made = []
    for module in (hnn, torch.nn):
        torch.manual_seed(3)
        made.append(getattr(module, name)(**arguments))
    return made[0], made[1]


def inputs(shapes: str, module: torch.nn.Module) -> list[torch.Tensor]:
    dtype = next((p.dtype for p in module.parameters()), torch.float32)
    makers = {
        "x": lambda: torch.randn(4, 5, dtype=dtype),
        "p": lambda: torch.rand(4, 5),
        "c": lambda: torch.tensor([0, 4, 2, 1]),
    }
    torch.manual_seed(5)
    return [makers[letter]() for letter in shapes]


def test_the_cases_are_whole() -> None:
    assert {name for name, _, _ in CASES} == set(hnn.__all__)


@each_case
def test_like_torchs(name: str, arguments: dict[str, Any], shapes: str) -> None:
    ours, theirs = pair(name, arguments)
    assert isinstance(ours, type(theirs))
    assert repr(ours) == repr(theirs)
    results = []
    for module in (ours, theirs):
        tensors = inputs(shapes, module)
        leaf = tensors[0].requires_grad_()
        result = module(leaf * 1 if "inplace" in arguments else leaf, *tensors[1:])
        result.sum().backward()
        results.append([result.detach(), leaf.grad, *(p.grad for p in module.parameters())])
    for our, their in zip(*results, strict=True):
        torch.testing.assert_close(our, their, rtol=2e-5, atol=1e-6)
    # And on the device.
    moved = copy.deepcopy(ours).to(D)
    result = moved(*(t.to(D) for t in inputs(shapes, ours)))
    assert result.device.type == D
    torch.testing.assert_close(result.detach().cpu(), results[1][0], rtol=2e-5, atol=1e-6)


@each_case
def test_state_goes_both_ways(name: str, arguments: dict[str, Any], shapes: str) -> None:
    ours, theirs = pair(name, arguments)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for key, value in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[key], value)  # equal seeds, equal values
    with torch.no_grad():
        for p in ours.parameters():
            p.mul_(2)
    theirs.load_state_dict(ours.state_dict())
    for our, their in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(our, their)
    fresh = type(ours)(**arguments)
    fresh.load_state_dict(theirs.state_dict())
    for our, their in zip(fresh.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(our, their)


@each_case
def test_copies(name: str, arguments: dict[str, Any], shapes: str) -> None:
    ours, _ = pair(name, arguments)
    stream = io.BytesIO()
    torch.save(ours, stream)
    stream.seek(0)
    copies = [
        copy.copy(ours),
        copy.deepcopy(ours),
        pickle.loads(pickle.dumps(ours)),
        torch.load(stream, weights_only=False),
    ]
    expected = ours(*inputs(shapes, ours))
    for other in copies:
        assert type(other) is type(ours)
        assert repr(other) == repr(ours)
        assert torch.equal(other(*inputs(shapes, ours)), expected)


def test_initial_values_and_conversions() -> None:
    ours, theirs = pair("Linear", {"in_features": 7, "out_features": 2})
    torch.manual_seed(11)
    ours.reset_parameters()
    torch.manual_seed(11)
    theirs.reset_parameters()
    assert torch.equal(ours.weight, theirs.weight)
    x = torch.randn(3, 7)
    for convert in ("half", "bfloat16", "double"):
        our, their = (getattr(copy.deepcopy(m), convert)() for m in (ours, theirs))
        y = x.to(our.weight.dtype)
        assert our(y).dtype == our.weight.dtype
        assert_as_accurate(torch.nn.functional.linear, (y, *our.parameters()), our(y), their(y))
    assert hnn.Linear(2, 3, device="meta").weight.is_meta
    assert hnn.Linear(2, 3, device=D).weight.device.type == D
    assert ours.extra_repr() == "in_features=7, out_features=2, bias=True"


def test_modules_run_on_the_devices_kernels() -> None:
    # GELU is rounded otherwise than PyTorch's, so bits tell whose kernel ran.
    x = torch.linspace(-4, 4, 4001)
    y = hnn.GELU()(x)
    assert torch.equal(y, torch.nn.GELU()(x.to(D)).cpu())
    assert not torch.equal(y, torch.nn.GELU()(x))


def test_compilers_see_torchs_modules() -> None:
    ours, _ = pair("Linear", {"in_features": 5, "out_features": 3})
    compiled = torch.compile(ours, backend="eager", fullgraph=True)
    x = torch.randn(2, 5)
    torch.testing.assert_close(compiled(x), ours(x))
    traced = torch.jit.trace(ours, x)
    torch.testing.assert_close(traced(x), ours(x))


def test_devices_do_not_mix() -> None:
    with pytest.raises(RuntimeError, match=r"same device.*Move one of them: x\.to\('hologram'\)"):
        hnn.Linear(3, 2).to(D)(torch.ones(1, 3))


def make_model(module: Any) -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        module.Linear(12, 24),
        module.GELU(),
        module.Linear(24, 16),
        module.ReLU(inplace=True),
        module.Linear(16, 4),
    )


def train(model: torch.nn.Module, loss_of: torch.nn.Module, steps: int) -> list[float]:
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    device = next(model.parameters()).device
    losses = []
    for _ in range(steps):
        x = torch.randn(32, 12, generator=generator).to(next(model.parameters()).dtype)
        target = x[:, :4].argmax(1)
        optimizer.zero_grad()
        loss = loss_of(model(x.to(device)), target.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_training_is_torchs() -> None:
    """Errors of rounding grow from step to step: as far as they do in double precision."""
    makers = [make_model(hnn), make_model(torch.nn), make_model(hnn).to(D)]
    wide, off = make_model(torch.nn).double(), make_model(torch.nn).double()
    with torch.no_grad():
        for p in off.parameters():
            p.mul_(1 + torch.finfo(torch.float32).eps)
    kinds = (hnn, torch.nn, hnn, torch.nn, torch.nn)
    losses = [
        torch.tensor(train(model, kind.CrossEntropyLoss(), 200), dtype=torch.float64)
        for model, kind in zip((*makers, wide, off), kinds, strict=True)
    ]
    library, theirs, device, exact, near = losses
    assert theirs[-1] < theirs[0] / 3
    # Thirty products and sums a step, of which Adam's quotient doubles some.
    bound = Rounding(units=64)
    for steps in (10, 50, 200):
        for ours in (library, device):
            rows = (t[:steps] for t in (ours.float(), theirs.float(), exact, near))
            problem = bound.excess(*rows)
            assert problem is None, f"{steps} steps: {problem}"
