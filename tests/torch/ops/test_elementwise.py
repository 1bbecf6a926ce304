# SPDX-License-Identifier: MIT
"""hologram_torch.elementwise(): values, gradients, dtypes, transforms, tracing, errors."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.gradcheck import gradcheck, gradgradcheck

import hologram_torch
from hologram_torch._functions import CONSTANTS, NAMED

DEVICE = "hologram"
elementwise = hologram_torch.elementwise

MISH = "x * tanh(softplus(x))"


def written(expression: str, **arguments: Any) -> Tensor:
    """Evaluate the expression with PyTorch's functions: what it means."""
    names = {name: reference_of(name) for name in NAMED}
    return eval(expression, {**names, **CONSTANTS, **arguments})


def reference_of(name: str) -> Callable[..., Any]:
    """Return PyTorch's function of a name, in its own terms."""
    special: dict[str, Callable[..., Any]] = {
        "minimum": lambda a, b: limited(torch.minimum, torch.clamp_max, a, b),
        "maximum": lambda a, b: limited(torch.maximum, torch.clamp_min, a, b),
        "clip": lambda x, low=None, high=None: torch.clamp(x, low, high),
        "power": torch.pow,
        "mod": torch.remainder,
        "invert": torch.bitwise_not,
        "equal": torch.eq,
        # PyTorch takes numbers alone for what is a tensor here.
        "leaky_relu": lambda x, slope=0.01: torch.where(x > 0, x, x * slope),
        "softplus": lambda x, beta=1.0, threshold=20.0: torch.where(
            x * beta > threshold, x, torch.log1p(torch.exp(x * beta)) / beta
        ),
        "sqrt": lambda x: torch.sqrt(x) if isinstance(x, Tensor) else math.sqrt(x),
    }
    if name in special:
        return special[name]
    for module in (F, torch):
        if hasattr(module, name):
            return getattr(module, name)
    return getattr(torch, NAMED[name].name)


def limited(function: Any, bound: Any, a: Any, b: Any) -> Tensor:
    return function(a, b) if isinstance(b, Tensor) else bound(a, b)


# Where a function is smooth: low and high of each argument.
RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("asin", "acos", "atanh", "erfinv"), (-0.9, 0.9)),
    **dict.fromkeys(
        ("log", "log2", "log10", "sqrt", "rsqrt", "digamma", "lgamma", "pow"), (0.3, 3)
    ),
    "acosh": (1.2, 3),
    "logit": (0.1, 0.9),
    "log1p": (-0.5, 3),
    "tan": (-1.2, 1.2),
    "reciprocal": (0.4, 3),
}
DIFFERENTIABLE = sorted(
    {
        f.name
        for f in NAMED.values()
        if not f.name.startswith(("logical", "bitwise", "is"))
        and f.name not in ("eq", "ne", "lt", "le", "gt", "ge", "where")
    }
)


def text_of(name: str) -> str:
    required = [p for p in NAMED[name].parameters if p not in NAMED[name].defaults]
    return f"{name}({', '.join('abc'[: len(required)])})"


def inputs(name: str, count: int, n: int = 7, seed: int = 3) -> list[Tensor]:
    low, high = RANGES.get(name, (-3.0, 3.0))
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.rand(n, generator=generator, dtype=torch.float64) * (high - low) + low
        for _ in range(count)
    ]


# --- Every function ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted({f.name for f in NAMED.values()}))
def test_a_function_runs_as_a_program_and_says_whether_it_is_recorded(name: str) -> None:
    op = elementwise("clamp(a, b, c)" if name == "clamp" else text_of(name))
    kind = torch.int32 if name.startswith("bitwise") else torch.float32
    given: list[Any] = [torch.ones(4, dtype=kind, device=DEVICE) for _ in op.signature.split(", ")]
    if name == "where":
        given[0] = given[0] > 0
    for last in (given[-1], 1) if len(given) > 1 else (given[-1],):
        before = hologram_torch.fallback_counts()
        op(*given[:-1], last).cpu()
        fell_back = hologram_torch.fallback_counts() != before
        assert op.uses_fallback == ((name,) if fell_back else ())
    assert None not in op._programs.values()


@pytest.mark.parametrize("name", sorted({f.name for f in NAMED.values()}))
def test_a_function_is_pytorchs(name: str) -> None:
    count = len([p for p in NAMED[name].parameters if p not in NAMED[name].defaults])
    given = inputs(name, count, n=101)
    if name.startswith("bitwise"):
        given = [x.to(torch.int32) for x in given]
    if name == "where":
        given[0] = given[0] > 0
    if name == "clamp":
        expression = "clamp(a, -0.5, 0.7)"
    else:
        expression = text_of(name)
    arguments = dict(zip("abc", given, strict=False))
    expected = written(expression, **arguments)
    for device in ("cpu", DEVICE):
        got = elementwise(expression)(*(x.to(device) for x in given))
        assert got.device.type == device
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_of_a_function(name: str) -> None:
    expression = "clamp(a, b, c)" if name == "clamp" else text_of(name)
    count = (
        3
        if name == "clamp"
        else len({*expression} & {*"abc"} if count_of(name) == 0 else "abc"[: count_of(name)])
    )
    op = elementwise(expression, ", ".join("abc"[:count]))
    given = [x.to(DEVICE).requires_grad_() for x in inputs(name, count)]
    if name == "lgamma":  # PyTorch has no second derivative of digamma for a tangent
        pass
    assert gradcheck(op, given, check_forward_ad=True, check_batched_grad=False)
    if name not in ("digamma",):
        assert gradgradcheck(op, given)


def count_of(name: str) -> int:
    return len([p for p in NAMED[name].parameters if p not in NAMED[name].defaults])


# --- Expressions -------------------------------------------------------------------------------

EXPRESSIONS = [
    MISH,
    "x / (1 + abs(x)) + 0.5 * y",
    "where(x > 0, sqrt(x), y * x)",
    "(x - y) ** 2 / (exp(-x) + 1e-3)",
    "2 ** x - 3 / (y + 10) + (1 - x) * x % 2",
    "maximum(x, y) - minimum(x, 0) * clamp(y, -1, max=1)",
    "leaky_relu(x, y) + elu(x, alpha=0.5) * gelu(y, approximate='tanh')",
    "softplus(x, beta=2) + softplus(y, x * x + 1, 3) - selu(x) + celu(y, 2)",
    "x * (y > x) + floor(x) * y + round(y) - -(+x)",
    "pow(x, 3) + x ** 0.5 + abs(x) ** y + x ** 0 + x ** 1",
    "where((x > y) & ~(x < 0) | (y == 2), x * sin(y), log1p(square(y)))",
    "hardswish(x) + sigmoid(y) + relu6(x * 9) + hardtanh(y) * logsigmoid(x) + mish(y)",
    "x * x * x * x + sqrt(2) * pi * x - (1 + 2) * y",
    "lerp(x, y, 0.3) + logaddexp(x, y) + softsign(x) * tanhshrink(y)",
]


def special(n: int = 40) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(n, generator=generator, dtype=torch.float64) * 3
    y = torch.randn(n, generator=generator, dtype=torch.float64) * 3
    x[:6] = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 1.0])
    y[:8] = torch.tensor([0.0, 1.0, 2.0, -1.0, 1.0, 1.0, math.inf, math.nan])
    return x, y


@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_an_expression_and_its_gradient_are_those_written_out(expression: str, device: str) -> None:
    op = elementwise(expression)
    names = op.signature.split(", ")
    given = dict(zip("xy", special(), strict=True))
    expected_in = {k: given[k].clone().requires_grad_() for k in names}
    expected = written(expression, **expected_in)
    seed = torch.linspace(-1, 2, len(expected), dtype=torch.float64)
    expected.backward(seed)
    got_in = {k: given[k].to(device).requires_grad_() for k in names}
    got = op(**got_in)
    torch.testing.assert_close(
        got.detach().cpu(), expected.detach(), equal_nan=True, rtol=1e-12, atol=1e-12
    )
    got.backward(seed.to(device))
    finite = torch.stack([given[k].isfinite() for k in names]).all(0)
    for k in names:
        a, b = got_in[k].grad, expected_in[k].grad
        assert (a is None) == (b is None)
        if a is not None and b is not None:
            torch.testing.assert_close(
                a.cpu()[finite], b[finite], equal_nan=True, rtol=1e-10, atol=1e-10
            )


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_gradients_of_expressions_by_differences(expression: str) -> None:
    op = elementwise(expression, "x, y")
    generator = torch.Generator().manual_seed(5)
    # Away from kinks: every quantity that is compared differs by more than the step.
    x = torch.rand(6, generator=generator, dtype=torch.float64) * 0.8 + 0.15
    y = torch.rand(6, generator=generator, dtype=torch.float64) * 0.3 + 0.55
    given = [t.to(DEVICE).requires_grad_() for t in (x, y)]
    assert gradcheck(op, given, check_forward_ad=True)
    assert gradgradcheck(op, given)


def test_ties_and_bounds_are_pytorchs() -> None:
    x = torch.tensor([0.0, 1.0, 2.0, math.nan], dtype=torch.float64)
    y = torch.tensor([0.0, 2.0, 1.0, 1.0], dtype=torch.float64)
    for text in (
        "maximum(x, y)",
        "minimum(x, y)",
        "maximum(x, 1)",
        "minimum(1, x)",
        "clamp(x, 0, 2)",
        "clamp(x, y, 2)",
        "clamp(x, y, y - 1)",
        "relu(x)",
        "abs(x)",
    ):
        op = elementwise(text, "x, y")
        wanted = [t.clone().requires_grad_() for t in (x, y)]
        got = [t.to(DEVICE).requires_grad_() for t in (x, y)]
        plain = {
            "minimum(1, x)": "minimum(x, 1)",
            "clamp(x, y, 2)": "minimum(maximum(x, y), 2)",
            "clamp(x, y, y - 1)": "minimum(maximum(x, y), y - 1)",
        }
        expected = written(plain.get(text, text), x=wanted[0], y=wanted[1])
        expected.sum().backward()
        op(*got).sum().backward()
        for a, b in zip(got, wanted, strict=True):
            assert (a.grad is None) == (b.grad is None), text
            if a.grad is not None and b.grad is not None:
                torch.testing.assert_close(a.grad.cpu(), b.grad, equal_nan=True, msg=text)


# --- Shapes, dtypes, layouts -------------------------------------------------------------------


@pytest.mark.parametrize(
    "shapes",
    [((3, 4), (4,)), ((3, 1), (1, 4)), ((2, 3, 4), ()), ((0, 4), (4,)), ((1,), (5, 3)), ((), ())],
)
def test_broadcasting_and_its_gradient(shapes: tuple[tuple[int, ...], ...]) -> None:
    op = elementwise("x * sin(y) + y")
    generator = torch.Generator().manual_seed(2)
    x, y = (torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes)
    want = [t.clone().requires_grad_() for t in (x, y)]
    got = [t.to(DEVICE).requires_grad_() for t in (x, y)]
    expected, result = want[0] * torch.sin(want[1]) + want[1], op(*got)
    assert result.shape == expected.shape
    expected.sum().backward()
    result.sum().backward()
    torch.testing.assert_close(result.detach().cpu(), expected.detach())
    for a, b in zip(got, want, strict=True):
        assert a.grad is not None and b.grad is not None
        torch.testing.assert_close(a.grad.cpu(), b.grad)


def test_strided_inputs() -> None:
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
    op = elementwise(MISH)
    for view in (
        lambda t: t.t(),
        lambda t: t[::2, 1::3],
        lambda t: t[:, :1].expand(6, 5),
        lambda t: t.flip(0),
        lambda t: t.view(1, 6, 8, 1),
    ):
        got = op(view(x.to(DEVICE)))
        torch.testing.assert_close(got.cpu(), F.mish(view(x)))
        assert got.stride() == (view(x.to(DEVICE)) * 1).stride()


DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]


@pytest.mark.parametrize("second", DTYPES)
@pytest.mark.parametrize("first", DTYPES)
def test_dtypes_are_those_of_the_expression_written_out(first: Any, second: Any) -> None:
    ones = torch.ones(3, dtype=first), torch.full((3,), 2, dtype=second)
    for text in (
        "x * y",
        "x / y",
        "exp(x) * y",
        "x > y",
        "where(x > 1, y, 2)",
        "x + 1.5 * y",
        "x * y + 2",
    ):
        for y in (ones[1], ones[1][0]):
            expected = written(text, x=ones[0], y=y)
            for device in ("cpu", DEVICE):
                got = elementwise(text)(ones[0].to(device), y.to(device))
                assert got.dtype == expected.dtype, (text, device)
                torch.testing.assert_close(got.cpu(), expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_halves_are_rounded_once(dtype: torch.dtype, device: str) -> None:
    x = torch.randn(999, generator=torch.Generator().manual_seed(0)).to(dtype).to(device)
    x.requires_grad_()
    op = elementwise("exp(x) / (exp(x) + 1) * 3 - x")
    got = op(x)
    wide = x.detach().cpu().float().requires_grad_()
    expected = wide.exp() / (wide.exp() + 1) * 3 - wide
    got.sum().backward()
    expected.sum().backward()
    # At most the float32 value beside a boundary falls to the other side.
    assert (got.cpu() != expected.to(dtype)).sum() <= 1
    assert x.grad is not None and wide.grad is not None and x.grad.dtype == dtype
    torch.testing.assert_close(
        x.grad.cpu().float(), wide.grad.to(dtype).float(), rtol=1e-2, atol=1e-3
    )
    # exp overflows float16, the quotient does not.
    assert op(torch.tensor([12.0], dtype=dtype, device=device)).isfinite().all()


def test_complex_tensors_are_pytorchs() -> None:
    z = torch.randn(5, dtype=torch.complex128)
    want, got = z.clone().requires_grad_(), z.to(DEVICE).requires_grad_()
    expected, result = (want * want.exp()).abs().sum(), elementwise("abs(z * exp(z))")(got).sum()
    expected.backward()
    result.backward()
    assert got.grad is not None and want.grad is not None
    torch.testing.assert_close(got.grad.cpu(), want.grad)


# --- Arguments ---------------------------------------------------------------------------------


def test_arguments_are_bound_as_in_python() -> None:
    op = elementwise("alpha * x + y", "x, y=1, *, alpha=2.0", name="axpy")
    x = torch.arange(3.0).to(DEVICE)
    assert op(x).tolist() == [1, 3, 5]
    assert op(x, 0).tolist() == [0, 2, 4]
    assert op(y=x, x=x, alpha=x).tolist() == [0, 2, 6]
    assert elementwise("b - a").signature == "b, a"
    assert op.signature == "x, y=1, *, alpha=2.0"
    assert (
        repr(op)
        == "hologram_torch.elementwise('alpha * x + y', 'x, y=1, *, alpha=2.0', name='axpy')"
    )
    assert op.__name__ == "axpy" and op.uses_fallback == ()
    assert elementwise("lgamma(x) * copysign(x, 2) + x").uses_fallback == ("copysign", "lgamma")


@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_numbers_among_the_arguments(device: str) -> None:
    op = elementwise("x * exp(a * 2) + where(b > a, x, a // 2) - sigmoid(a) ** 2")
    x = torch.linspace(-1, 1, 5, dtype=torch.float64)
    for a, b in ((0.5, 1), (3, 0.25), (True, 2)):
        expected = (
            x * math.exp(a * 2)
            + (x if b > a else torch.full_like(x, a // 2))
            - (1 / (1 + math.exp(-a))) ** 2
        )
        got = op(x=x.to(device), a=a, b=b)
        torch.testing.assert_close(got.cpu(), expected)
    import numpy as np

    torch.testing.assert_close(op(x.to(device), np.float32(0.5), np.int64(1)).cpu(), op(x, 0.5, 1))


def test_numbers_keep_their_kinds() -> None:
    x = torch.tensor([1, 2, 3], dtype=torch.int32)
    for a in (2, 2.5, True, -0.0, 0.0, 3, 2.5):
        got = elementwise("x * a + (a + 1)")(x.to(DEVICE), a)
        torch.testing.assert_close(got.cpu(), x * a + (a + 1))
    op = elementwise("copysign(x, a)")
    for a in (0.0, -0.0, 0.0):
        assert op(x.to(DEVICE).float(), a).tolist() == torch.copysign(x.float(), a).tolist()
    # Of an integer alone, in a gradient, too: in float64.
    y = torch.tensor([0.5, 1.5], dtype=torch.float64)
    want, got_in = y.clone().requires_grad_(), y.to(DEVICE).requires_grad_()
    torch.pow(3.0, want).sum().backward()
    elementwise("a ** x")(3, got_in).sum().backward()
    torch.testing.assert_close(got_in.grad.cpu(), want.grad, rtol=1e-14, atol=0)
    assert elementwise("x * (1 / a)")(y.to(DEVICE), 0).isinf().all()


def test_only_what_needs_a_gradient_gets_one() -> None:
    op = elementwise("x * y + where(x > z, 1, 0)")
    x, y, z = (torch.randn(4, device=DEVICE) for _ in range(3))
    assert not op(x, y, z).requires_grad
    assert not op(x, y, z.requires_grad_()).requires_grad  # by a comparison alone
    y.requires_grad_()
    op(x, y, z).sum().backward()
    assert x.grad is None and z.grad is None and torch.equal(y.grad, x)
    with torch.no_grad():
        assert not op(x, y, z).requires_grad
    assert not elementwise("x > 0")(y).requires_grad
    zero = elementwise("floor(y)")(y)
    zero.sum().backward(torch.ones((), device=DEVICE))
    assert zero.requires_grad


def kept_by(call: Callable[[], Tensor]) -> list[tuple[int, ...]]:
    kept: list[tuple[int, ...]] = []

    def pack(t: Tensor) -> Tensor:
        kept.append(tuple(t.shape))
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        call()
    return kept


def test_inputs_alone_are_kept() -> None:
    x = torch.randn(9, device=DEVICE, requires_grad=True)
    y = torch.randn(9, device=DEVICE, requires_grad=True)
    assert len(kept_by(lambda: elementwise("tanh(exp(x) * sin(y) + x)")(x, y))) == 2
    assert kept_by(lambda: elementwise("x + 2 * y")(x, y)) == []
    assert len(kept_by(lambda: elementwise("x * y")(x.detach(), y))) == 1


def test_errors_of_autograd_are_pytorchs() -> None:
    op = elementwise(MISH, name="my_mish")
    x = torch.randn(5, device=DEVICE, requires_grad=True)
    y = op(x)
    assert y.grad_fn is not None and y.grad_fn.name() == "MyMishBackward"
    y.sum().backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.sum().backward()
    z = op(x)
    with torch.no_grad():
        x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


# --- Transforms and tracing --------------------------------------------------------------------


def test_functional_transforms() -> None:
    op = elementwise("x * tanh(softplus(y))")
    x = torch.randn(4, 3, dtype=torch.float64)
    y = torch.randn(3, dtype=torch.float64)

    def plain(a: Tensor, b: Tensor) -> Tensor:
        return a * torch.tanh(F.softplus(b))

    def results(f: Any, device: str) -> list[Any]:
        a, b = x.to(device), y.to(device)
        return [
            torch.func.vmap(f, in_dims=(0, None))(a, b),
            torch.func.vmap(f, in_dims=(1, 0), out_dims=1)(a, b),
            torch.func.grad(lambda t: f(a, t).sum())(b),
            torch.func.jvp(lambda t: f(a, t), (b,), (b * 2,))[1],
            torch.func.jacrev(lambda t: f(a[0], t))(b),
            torch.func.jacfwd(lambda t: f(a[0], t))(b),
            torch.func.hessian(lambda t: f(a[0], t).sum())(b),
            torch.func.vmap(torch.func.grad(lambda p, q: f(p, q).sum()), in_dims=(0, None))(a, b),
        ]

    for got, expected in zip(results(op, DEVICE), results(plain, "cpu"), strict=True):
        torch.testing.assert_close(got.cpu(), expected)


def test_autocast_sees_one_operator() -> None:
    op = elementwise("x * exp(x)")
    for device in ("cpu", DEVICE):
        x = torch.randn(7).to(device)
        with torch.autocast(device, dtype=torch.bfloat16):
            assert op(x).dtype == torch.float32
            half = op(x.bfloat16())
        assert half.dtype == torch.bfloat16
        assert torch.equal(half, op(x.bfloat16()))


@pytest.mark.parametrize("device", ["cpu", DEVICE])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("backend", ["aot_eager", "hologram"])
def test_compiled_whole(backend: str, dtype: torch.dtype, device: str) -> None:
    if backend == "hologram" and device == "cpu":
        pytest.skip("the backend is the device's")
    op = elementwise("alpha * x * tanh(softplus(y)) + where(x > y, 1, y)", "x, y, *, alpha=0.5")
    x = torch.randn(6, 5, generator=torch.Generator().manual_seed(0)).to(dtype).to(device)
    y = torch.randn(5, generator=torch.Generator().manual_seed(1)).to(dtype).to(device)

    def model(a: Tensor, b: Tensor) -> Tensor:
        return op(a * 2, b, alpha=0.25) - op(a, b)

    torch._dynamo.reset()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    gradients = []
    for f in (model, compiled):
        a, b = x.clone().requires_grad_(), y.clone().requires_grad_()
        out = f(a, b)
        assert out.dtype == dtype
        out.float().square().sum().backward()
        gradients.append((out.detach(), a.grad, b.grad))
    for eager, traced in zip(*gradients, strict=True):
        tolerance = 1e-5 if dtype == torch.float32 else 2e-2
        torch.testing.assert_close(traced.cpu(), eager.cpu(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.bfloat16])
@pytest.mark.parametrize(
    "expression",
    [
        "x * exp(a * 2)",
        "hypot(x, a) + atan2(a, x) + 3 // x",
        "where(x > a, x % a, 2 % x) + clamp(x, a, 3)",
        "maximum(x, a) + fmod(x, 2.5) + x // a",
    ],
)
def test_numbers_are_compiled(expression: str, dtype: torch.dtype) -> None:
    op = elementwise(expression, "x, a")
    x = torch.tensor([1.0, 2.5, 4.0]).to(dtype)
    torch._dynamo.reset()
    for device in ("cpu", DEVICE):
        compiled = torch.compile(lambda t: op(t, 2.0), backend="aot_eager", fullgraph=True)
        got, expected = compiled(x.to(device)).cpu(), op(x, 2.0)
        torch.testing.assert_close(
            got, expected, rtol=1e-2 if dtype.itemsize == 2 else 1e-6, atol=0
        )


class Model(torch.nn.Module):
    """A network with an op of the user's."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.act = elementwise(MISH)

    def forward(self, x: Tensor) -> Tensor:
        """Apply both."""
        return self.act(self.linear(x))


@pytest.mark.parametrize("strict", [True, False])
def test_exported_programs_hold_pytorchs_operators(strict: bool) -> None:
    model, x = Model(), torch.randn(2, 4)
    program = torch.export.export(model, (x,), strict=strict)
    targets = {str(n.target) for n in program.graph.nodes if n.op == "call_function"}
    assert {"aten.softplus.default", "aten.tanh.default", "aten.mul.Tensor"} <= targets
    torch.testing.assert_close(program.module()(x), model(x))


def test_fake_and_meta_tensors() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    op = elementwise("x * exp(y)")
    x = torch.empty(3, 1, device="meta", dtype=torch.bfloat16)
    assert op(x, torch.empty(4, device="meta", dtype=torch.int32)).shape == (3, 4)
    assert op(x, torch.empty(4, device="meta", dtype=torch.bfloat16)).dtype == torch.bfloat16
    with FakeTensorMode():
        fake = op(torch.empty(3, 1, device=DEVICE), torch.empty(4, device=DEVICE))
        assert fake.shape == (3, 4) and fake.device.type == DEVICE


class Logged(torch.Tensor):
    """A subclass that sees functions."""

    seen: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note the name."""
        cls.seen.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, kwargs or {})


def test_subclasses_and_modes_see_what_it_is_made_of() -> None:
    Logged.seen.clear()
    got = elementwise(MISH)(torch.ones(2).as_subclass(Logged))
    assert isinstance(got, Logged) and {"softplus", "tanh"} <= set(Logged.seen)
    with torch.device(DEVICE):  # a mode of functions
        got = elementwise(MISH)(torch.ones(2))
        assert got.device.type == DEVICE
        torch.testing.assert_close(got.cpu(), F.mish(torch.ones(2, device="cpu")))


def test_the_first_call_is_the_same_anywhere() -> None:
    x = torch.randn(4, device=DEVICE)
    with torch.autograd.graph.disable_saved_tensors_hooks("none here"):
        first = elementwise("x * exp(x) + 1")
        first(x)
    with torch.inference_mode():
        second = elementwise("x * exp(x) + 2")
        second(x)
    with torch.no_grad(), torch.autocast(DEVICE, dtype=torch.bfloat16):
        third = elementwise("x * exp(x) + 3")
        third(x)
    x.requires_grad_()
    for op in (first, second, third):
        (gradient,) = torch.autograd.grad(op(x).sum(), x)
        torch.testing.assert_close(gradient, (x * x.exp() + x.exp()).detach())
        assert None not in op._programs.values()


def test_the_first_call_loads_no_compiler() -> None:
    code = """if True:
        import sys, torch, hologram_torch
        op = hologram_torch.elementwise("x * tanh(softplus(x)) + where(x > a, exp(a), x)")
        x = torch.ones(3, device="hologram", requires_grad=True)
        op(x, 0.5).sum().backward()
        op(x.bfloat16(), 2).sum().backward()
        print(*({"torch._dynamo", "sympy"} & set(sys.modules)))
    """
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""


# --- The object --------------------------------------------------------------------------------


def test_it_is_pickled_and_copied() -> None:
    op = elementwise("alpha * x", "x, *, alpha=2", name="scale")
    again = pickle.loads(pickle.dumps(op))
    assert repr(again) == repr(op) and again(torch.ones(1), alpha=3).item() == 3
    assert copy.deepcopy(op) is op and copy.copy(op) is op
    model = copy.deepcopy(Model())
    torch.testing.assert_close(
        pickle.loads(pickle.dumps(model))(torch.ones(4)), model(torch.ones(4))
    )


def test_threads_share_an_operator() -> None:
    op = elementwise("x * exp(-x) + y")
    x = torch.rand(500).bfloat16().float()
    expected = x * torch.exp(-x) + 1
    wrong: list[float] = []

    def work(dtype: torch.dtype) -> None:
        for _ in range(50):
            a = x.to(dtype).to(DEVICE).requires_grad_()
            out = op(a, torch.ones(500, device=DEVICE, dtype=dtype))
            out.sum().backward()
            error = (out.detach().cpu().float() - expected).abs().max().item()
            if error > (0.01 if dtype == torch.bfloat16 else 1e-5):
                wrong.append(error)

    threads = [
        threading.Thread(target=work, args=(d,))
        for d in (torch.float32, torch.bfloat16, torch.float64) * 2
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# --- Errors ------------------------------------------------------------------------------------

REFUSED = [
    (
        "x * tahn(x)",
        None,
        r"calls 'tahn', .*did you mean 'tan'.*, at position 4\n  x \* tahn\(x\)\n      \^",
    ),
    ("x + softmax(x)", None, r"calls 'softmax', which is no function of elements, at position 4"),
    ("x * )", None, r"the expression cannot be read \(.*\), at position 4\n  x \* \)\n      \^"),
    ("", None, r"cannot be read"),
    ("x", None, r"computes nothing: it is an argument alone, at position 0"),
    ("2 * pi", None, r"has no argument: name at least one, such as x"),
    ("x if x > 0 else 0", None, r"\(IfExp\): a choice is written where\(condition, a, b\)"),
    ("x > 0 and x < 1", None, r"\(BoolOp\): conditions are combined with & and \|"),
    ("not x", None, r"\(Not\): negation is written ~x"),
    ("0 < x < 1", None, r"chains comparisons: write \(a < b\) & \(b < c\)"),
    ("x[0] + 1", None, r"\(Subscript\): an expression sees single elements"),
    ("torch.tanh(x)", None, r"functions are written without a module: tanh\(x\)"),
    ("x.T + 1", None, r"\(Attribute\): functions are written without a module"),
    ("x @ x", None, r"\(MatMult\): it is not computed element by element"),
    ("(y := x) + y", None, r"\(NamedExpr\): there are no assignments"),
    ("(lambda t: t)(x)", None, r"calls something without a name"),
    ("lambda x: x * 2", None, r"\(Lambda\): write the body alone"),
    ("[x, x]", None, r"has something that it cannot have \(List\)"),
    ("x << 2", None, r"has something that it cannot have \(LShift\)"),
    ("x in x", None, r"has something that it cannot have \(Compare\)"),
    ("x + 'a'", None, r"has 'a', which is no real number, at position 4"),
    ("x + 1j", None, r"has 1j, which is no real number"),
    ("x + 99999999999999999999", None, r"has an integer that int64 cannot hold"),
    ("tanh(x, x)", None, r"gives tanh 2 arguments: tanh\(x\), at position 8"),
    (
        "softplus(x, gamma=2)",
        None,
        r"the argument 'gamma' which it does not have: softplus\(x, beta=1\.0, threshold=20\.0\)",
    ),
    ("softplus(x, x=2)", None, r"the argument 'x' twice"),
    ("where(x)", None, r"gives where no 'input': where\(condition, input, other\)"),
    ("clamp(x)", None, r"at least one of min and max is needed"),
    ("gelu(x, approximate='erf')", None, r"a 'approximate' that is not 'none' or 'tanh'"),
    ("tanh(*x)", None, r"unpacks arguments, which it cannot"),
    ("x + y", "x", r"has 'y', which the signature \(x\) does not name, at position 4"),
    ("x(x)", None, r"calls 'x', which is no function of elements"),
    ("x + 1", "x, *rest", r"the signature 'x, \*rest' has something else than plain arguments"),
    ("x + 1", "x=a", r"has a default that is no number"),
    ("x + 1", "x: int", r"has annotations"),
    ("x + 1", "x,,", r"the signature 'x,,' cannot be read; write names of arguments with commas"),
    ("x + 1", "", r"names no argument"),
    ("x + " * 3000 + "x", None, r"nested too deeply|cannot be read"),
]


@pytest.mark.parametrize(("expression", "signature", "message"), REFUSED)
def test_what_an_expression_cannot_have(expression: str, signature: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        elementwise(expression, signature)


def test_arguments_of_the_maker() -> None:
    with pytest.raises(TypeError, match="the expression must be a str, not int"):
        elementwise(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the signature must be a str, not list"):
        elementwise("x + 1", ["x"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the name 'a b' is not that of a function"):
        elementwise("x + 1", name="a b")


def test_errors_of_a_call_name_the_argument() -> None:
    op = elementwise("a * x + y", "x, y, *, a=1.0", name="axpy")
    x = torch.ones(3, device=DEVICE)
    cases: list[tuple[type[Exception], str, tuple[Any, ...], dict[str, Any]]] = [
        (TypeError, r"axpy\(\) has no value for argument 'y': axpy\(x, y, \*, a=1.0\)", (x,), {}),
        (TypeError, r"axpy\(\) takes 2 positional arguments but 3 were given", (x, x, x), {}),
        (TypeError, r"axpy\(\) has no argument 'b'", (x, x), {"b": 1}),
        (TypeError, r"axpy\(\) got two values for argument 'x'", (x, x), {"x": x}),
        (TypeError, r"axpy\(\): argument 'y' must be a tensor or a number, not str", (x, "1"), {}),
        (
            TypeError,
            r"axpy\(\): argument 'a' must be a tensor or a number, not list",
            (x, x),
            {"a": [1]},
        ),
        (TypeError, r"axpy\(\): argument 'y' is \d+, which int64 cannot hold", (x, 2**70), {}),
        (TypeError, r"axpy\(\) needs a tensor among its arguments", (1, 2), {}),
        (
            RuntimeError,
            r"axpy\(\): argument 'y' of shape \[4\] does not broadcast with argument 'x'",
            (x, torch.ones(4, device=DEVICE)),
            {},
        ),
        (
            RuntimeError,
            r"axpy\(\): argument 'y' is on cpu, argument 'x' on hologram:0; move one",
            (x, torch.ones(3)),
            {},
        ),
    ]
    for kind, message, args, kwargs in cases:
        with pytest.raises(kind, match=message):
            op(*args, **kwargs)
    with pytest.raises(RuntimeError, match=r"elementwise\(\): x & 1 of x: float32\[3\]: .*"):
        elementwise("x & 1")(x)
