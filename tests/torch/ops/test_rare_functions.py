# SPDX-License-Identifier: MIT
"""Functions that are rows since they fell back: inverse and hyperbolic ones, angles, shrinking.

Values beside float64, signs and infinities beside cpu, gradients by gradcheck, every form natively.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import hologram_torch

DEVICE = "hologram"
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1e-30, -3e30, 88.0, -104.0, float("inf"),
           float("-inf"), float("nan")]  # fmt: skip
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
# Relative errors: the few units that the rows state, and one rounding of the half types.
BOUNDS = {
    torch.float32: 1e-6,
    torch.float64: 2e-15,
    torch.float16: 1.1e-3,
    torch.bfloat16: 8.5e-3,
}

UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "asin": torch.asin,
    "acos": torch.acos,
    "atan": torch.atan,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "asinh": torch.asinh,
    "acosh": torch.acosh,
    "atanh": torch.atanh,
    "erfc": torch.erfc,
    "frac": torch.frac,
    "mish": F.mish,
    "logsigmoid": F.logsigmoid,
    "hardshrink": F.hardshrink,
    "softshrink": lambda x: F.softshrink(x, 0.25),
    "nan_to_num": torch.nan_to_num,
    "nan_to_num of numbers": lambda x: torch.nan_to_num(x, 2.0, posinf=5.0, neginf=-7.0),
    "cube": lambda x: x**3,
    "xlogy of a number": lambda x: torch.xlogy(2.5, x.abs()),
    "prelu": lambda x: F.prelu(x, torch.tensor([0.25], device=x.device, dtype=x.dtype)),
}
BINARY: dict[str, Callable[[Any, Any], Tensor]] = {
    "atan2": torch.atan2,
    "hypot": torch.hypot,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "xlogy": torch.xlogy,
}


def values(dtype: torch.dtype, *, seed: int = 0) -> Tensor:
    """Return special values, then numbers of many sizes, near zero above all."""
    torch.manual_seed(seed)
    x = torch.randn(2100, dtype=torch.float64) * 10 ** (
        torch.rand(2100, dtype=torch.float64) * 4 - 3
    )
    return torch.cat([torch.tensor(SPECIAL, dtype=torch.float64), x]).to(dtype)


def assert_close(found: Tensor, exact: Tensor, dtype: torch.dtype) -> None:
    """Assert that the error is a few units in the last place, and special values the same."""
    assert found.dtype == dtype
    found, expected = found.cpu(), exact.to(dtype)
    assert torch.equal(found.isnan(), expected.isnan())
    known = ~expected.isnan()
    infinite = expected.isinf() & known
    # A result that just fits may round to infinity, and the other way round.
    edge = found.isinf() != expected.isinf()
    assert (exact[edge & known].abs() > 0.99 * torch.finfo(dtype).max).all()
    assert torch.equal(found[infinite & ~edge], expected[infinite & ~edge])
    plain = known & ~infinite & ~edge
    error = (found.double() - exact)[plain].abs()
    least = torch.finfo(dtype).smallest_normal
    assert (error <= BOUNDS[dtype] * exact[plain].abs().clamp(min=least)).all()


def without_fallback(function: Callable[[], Tensor]) -> Tensor:
    hologram_torch.reset_fallback_counts()
    result = function()
    torch.hologram.synchronize()
    assert hologram_torch.fallback_counts() == {}
    return result


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", UNARY)
def test_unary_values(name: str, dtype: torch.dtype) -> None:
    function, x = UNARY[name], values(dtype)
    exact = function(x.double())
    if name == "nan_to_num":
        exact = exact.clamp(torch.finfo(dtype).min, torch.finfo(dtype).max)
    if name == "mish":  # PyTorch's own loses digits left of zero
        wide = x.double().numpy().astype(np.longdouble)
        with np.errstate(over="ignore", invalid="ignore"):
            logs = np.where(wide > 100, wide, np.log1p(np.exp(wide)))
            exact = torch.from_numpy((wide * np.tanh(logs)).astype(np.float64))
    ours = x.to(DEVICE)
    assert_close(without_fallback(lambda: function(ours)), exact, dtype)
    assert_close(function(ours.view(1, -1).expand(3, -1))[1], exact, dtype)
    pairs = torch.stack([x, x.flip(0)], 1).to(DEVICE)
    assert_close(without_fallback(lambda: function(pairs[:, 0])), exact, dtype)
    assert torch.equal(function(ours[:0]).cpu(), function(x[:0])), "nothing of nothing"


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", BINARY)
def test_binary_values(name: str, dtype: torch.dtype) -> None:
    function = BINARY[name]
    special = torch.tensor(SPECIAL, dtype=dtype)
    pairs = torch.cartesian_prod(special, special)
    x = torch.cat([pairs[:, 0], values(dtype, seed=1)])
    y = torch.cat([pairs[:, 1], values(dtype, seed=2)])
    exact = function(x.double(), y.double())
    a, b = x.to(DEVICE), y.to(DEVICE)
    found = without_fallback(lambda: function(a, b))
    assert_close(found, exact, dtype)
    if name != "xlogy":  # cpu's zeros are positive there, whatever the log's sign
        known = ~exact.isnan()
        if name in ("fmax", "fmin"):  # of two zeros C gives either
            known &= exact != 0
        assert torch.equal(found.cpu().signbit()[known], function(x, y).signbit()[known])
    grid = without_fallback(lambda: function(a[:50, None], b[None, :40]))
    assert_close(grid, function(x[:50, None].double(), y[None, :40].double()), dtype)


@pytest.mark.parametrize("x", [0.0, -0.0, float("inf"), float("-inf"), 1.0, -1.0])
def test_angles_of_the_axes_are_those_of_c(x: float) -> None:
    ys = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), 2.0, -2.0], dtype=torch.float64)
    xs = torch.full_like(ys, x)
    for dtype in (torch.float32, torch.float64):
        expected = torch.atan2(ys.to(dtype), xs.to(dtype))
        found = torch.atan2(ys.to(DEVICE, dtype), xs.to(DEVICE, dtype)).cpu()
        torch.testing.assert_close(found, expected, rtol=2e-7, atol=0)
        assert torch.equal(found.signbit(), expected.signbit())


@pytest.mark.parametrize("name", ["atan", "sinh", "asinh", "frac", "mish", "hardshrink"])
@pytest.mark.parametrize("form", ["integers", "out", "in place", "out of another dtype"])
def test_forms_are_those_of_cpu(name: str, form: str) -> None:
    x = values(torch.float32)[:64].nan_to_num(0.5, 2.0, -2.0)

    def run(device: str) -> Tensor | str:
        at = x.to(device)
        try:
            if form == "integers":
                return getattr(torch if name != "mish" else F, name)(at.to(torch.int32))
            if form == "out":
                out = torch.empty(0, device=device)
                return getattr(torch._C._nn if name == "mish" else torch, name)(at, out=out)
            if form == "in place":
                return getattr(torch, name + "_")(at)
            out = torch.empty(64, device=device, dtype=torch.float64)
            return getattr(torch, name)(at, out=out)
        except (RuntimeError, AttributeError) as error:
            return type(error).__name__

    found, expected = run(DEVICE), run("cpu")
    if isinstance(expected, str):
        assert found == expected
    else:
        assert isinstance(found, Tensor) and found.dtype == expected.dtype
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_gradients(name: str) -> None:
    torch.manual_seed(5)
    x = (torch.rand(23, dtype=torch.float64) * 0.8 + 0.1).to(DEVICE).requires_grad_()
    if name in BINARY:
        y = (torch.rand(23, dtype=torch.float64) + 1.1).to(DEVICE).requires_grad_()
        assert torch.autograd.gradcheck(BINARY[name], (x, y))
        return
    shift = {"acosh": 1.5, "softshrink": 0.3, "hardshrink": 0.6}.get(name, 0.0)
    assert torch.autograd.gradcheck(lambda t: UNARY[name](t + shift), (x,))
    if name not in ("acosh", "asin", "acos", "atanh"):
        assert torch.autograd.gradcheck(lambda t: UNARY[name](t - 2), (x,))


def test_double_gradients_of_activations() -> None:
    torch.manual_seed(6)
    x = torch.randn(17, dtype=torch.float64, device=DEVICE, requires_grad=True)
    for function in (F.mish, F.logsigmoid, torch.asinh, torch.sinh):
        assert torch.autograd.gradgradcheck(function, (x,))


@pytest.mark.parametrize("shape", [(4, 6), (4, 6, 3), (2, 6, 3, 5)])
def test_prelu_has_a_slope_for_each_channel(shape: tuple[int, ...]) -> None:
    torch.manual_seed(7)
    x, slope = torch.randn(shape), torch.randn(6)
    grads = []
    for device in ("cpu", DEVICE):
        a = x.to(device, copy=True).requires_grad_()
        b = slope.to(device, copy=True).requires_grad_()
        hologram_torch.reset_fallback_counts()
        F.prelu(a, b).square().sum().backward()
        assert hologram_torch.fallback_counts() == {}
        assert a.grad is not None and b.grad is not None
        grads.append((a.grad.cpu(), b.grad.cpu()))
    for found, expected in zip(grads[1], grads[0], strict=True):
        torch.testing.assert_close(found, expected)


def test_training_runs_natively_through_these_activations() -> None:
    torch.manual_seed(8)
    layers = (torch.nn.Mish(), torch.nn.LogSigmoid(), torch.nn.PReLU(), torch.nn.Softshrink(),
              torch.nn.Hardshrink())  # fmt: skip
    for layer in layers:
        model = torch.nn.Sequential(torch.nn.Linear(9, 7), layer).to(DEVICE)
        x = torch.randn(5, 9, device=DEVICE)
        hologram_torch.reset_fallback_counts()
        model(x).sum().backward()
        torch.hologram.synchronize()
        assert hologram_torch.fallback_counts() == {}, layer


def test_errors_are_those_of_cpu() -> None:
    x = torch.randn(4, device=DEVICE)
    with pytest.raises(RuntimeError, match="lambda must be in range"):
        F.softshrink(x, -1.0)
    with pytest.raises(RuntimeError, match="lambda must be in range"):
        F.softshrink(x.half(), 1e5)
    with pytest.raises(RuntimeError, match="not implemented"):
        torch.hypot(x.int(), x.int())
    with pytest.raises(RuntimeError):
        torch.atan2(x, torch.randn(3, device=DEVICE))


def test_one_kernel_for_a_formula() -> None:
    x, y = torch.rand(2, 5000, device=DEVICE).unbind(0)
    torch.hologram.synchronize()
    hologram_torch._C.reset_recorder_stats()
    with hologram_torch.execution("deferred"):
        result = torch.hypot(x, y) + torch.atan2(y, x) * torch.cosh(x)
        result = result - torch.fmax(x, torch.sinh(y))
        torch.hologram.synchronize()
    assert hologram_torch._C.recorder_stats()["kernels"] == 1
    exact = torch.hypot(x.cpu().double(), y.cpu().double())
    exact += torch.atan2(y.cpu().double(), x.cpu().double()) * torch.cosh(x.cpu().double())
    exact -= torch.fmax(x.cpu().double(), torch.sinh(y.cpu().double()))
    torch.testing.assert_close(result.cpu().double(), exact, rtol=1e-5, atol=1e-6)
