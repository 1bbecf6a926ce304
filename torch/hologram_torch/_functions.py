# SPDX-License-Identifier: MIT
"""The functions that expressions know: how each is called, differentiated, and made of others.

``FUNCTIONS`` are those that a step calls (``torch/csrc/ops/custom/expression_functions.cc`` has the
same names), with the derivatives that PyTorch has, at points where there are several, too.
``NAMED`` are those that a user can write: PyTorch's names and NumPy's.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from hologram_torch._expression import Graph, Number, Term

Gradient = Term | Number | None
Derivative = Callable[..., Iterable[Gradient]]

CONSTANTS = {"pi": math.pi, "inf": math.inf, "nan": math.nan}


@dataclass(frozen=True)
class StepFunction:
    """What a step calls.

    derivative: of the gradient, the result and the operands, the gradient of each operand; 0 where
    it is zero everywhere; None in place of the function where there is none (comparisons).
    written: the same function of tensors and numbers in Python, for programs that are traced.
    rows: whether the device records it; others are computed at their call.
    """

    derivative: Derivative | None
    written: Callable[..., Any]
    rows: bool = True


def _beside(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """Let a function of two tensors take a number for one."""

    def call(a: Any, b: Any) -> Tensor:
        if not isinstance(a, Tensor):
            a = torch.full((), a, dtype=b.dtype, device=b.device)
        if not isinstance(b, Tensor):
            b = torch.full((), b, dtype=a.dtype, device=a.device)
        return function(a, b)

    return call


def _limit(
    function: Callable[[Tensor, Tensor], Tensor], bound: Callable[[Tensor, Number], Tensor]
) -> Callable[..., Tensor]:
    def call(a: Any, b: Any) -> Tensor:
        if not isinstance(b, Tensor):
            return bound(a, b)
        return function(a, b) if isinstance(a, Tensor) else bound(b, a)

    return call


_minimum = _limit(torch.minimum, torch.clamp_max)
_maximum = _limit(torch.maximum, torch.clamp_min)


def _clamp(x: Any, low: Any, high: Any) -> Tensor:
    if isinstance(x, Tensor) and not isinstance(low, Tensor) and not isinstance(high, Tensor):
        return torch.clamp(x, low, high)
    return _minimum(_maximum(x, low), high)


def _floor_divide(a: Any, b: Any) -> Any:
    if not isinstance(a, Tensor) and not isinstance(b, Tensor):
        return a // b
    if not isinstance(a, Tensor):
        a = torch.full((), a, dtype=b.dtype, device=b.device)
    return torch.div(a, b, rounding_mode="floor")


def _where(condition: Any, a: Any, b: Any) -> Tensor:
    if not isinstance(condition, Tensor):
        like = a if isinstance(a, Tensor) else b
        condition = torch.full((), bool(condition), device=like.device)
    return torch.where(condition, a, b)


def _choose(condition: Any, a: Gradient, b: Gradient, graph: Graph) -> Term:
    return graph.call("where", condition, a, b)  # type: ignore[arg-type]


def _of_pow(g: Term, y: Term, a: Term, b: Term) -> Iterable[Gradient]:
    graph = g.graph
    if b.value is not None:
        if b.value == 0:
            return 0, None
        if b.value == 1:
            return g, None
        return g * (b * (a if b.value == 2 else a.call("pow", b.value - 1))), None
    of_base = None
    if a.value is None:
        slope = g * (b * a.call("pow", b - 1))
        of_base = _choose(b.call("eq", 0), 0, slope, graph)
    slope = g * (y * a.call("log"))
    if a.value is None:
        is_flat = a.call("eq", 0).call("logical_and", b.call("ge", 0))
        return of_base, _choose(is_flat, 0, slope, graph)
    if a.value == 0:
        return None, _choose(b.call("ge", 0), 0, slope, graph)
    return None, slope


def _of_limit(comparison: str) -> Derivative:
    """Return the derivative of maximum or minimum: that operand's which wins, halves of equal ones.

    A number beside a tensor is a bound, which at the bound itself lets no gradient through.
    """

    def derive(g: Term, y: Term, a: Term, b: Term) -> Iterable[Gradient]:
        graph = g.graph
        if a.value is not None or b.value is not None:
            x, bound = (b, a) if a.value is not None else (a, b)
            # NaN is neither below nor above a bound.
            passes = x.call({"lt": "gt", "gt": "lt"}[comparison], bound)
            own = _choose(passes, g, 0, graph)
            return (None, own) if a.value is not None else (own, None)
        tie = _choose(a.call("eq", b), g * 0.5, g, graph)
        return (
            _choose(a.call(comparison, b), 0, tie, graph),
            _choose(b.call(comparison, a), 0, tie, graph),
        )

    return derive


def _of_clamp(g: Term, y: Term, x: Term, low: Term, high: Term) -> Iterable[Gradient]:
    inside = x.call("gt", low).call("logical_and", x.call("lt", high))
    return _choose(inside, g, 0, g.graph), None, None


def _of_atan2(g: Term, y: Term, a: Term, b: Term) -> Iterable[Gradient]:
    scaled = g / (a.call("square") + b.call("square"))
    return scaled * b, scaled * -a


def _of_hypot(g: Term, y: Term, a: Term, b: Term) -> Iterable[Gradient]:
    return g * (a / y), g * (b / y)


def _of_logaddexp(g: Term, y: Term, a: Term, b: Term) -> Iterable[Gradient]:
    return g * (a - y).call("exp"), g * (b - y).call("exp")


def _of_copysign(g: Term, y: Term, a: Term, b: Term) -> Iterable[Gradient]:
    ratio = _choose(a.call("eq", 0), 0, y / a, g.graph)
    return g * ratio, 0


def _flat(g: Term, y: Term, *operands: Term) -> Iterable[Gradient]:
    return [0] * len(operands)


_TO_ROOT = 2 / math.sqrt(math.pi)
_LN2, _LN10 = math.log(2), math.log(10)

FUNCTIONS: dict[str, StepFunction] = {
    # One operand.
    "abs": StepFunction(lambda g, y, x: (g * x.call("sign"),), torch.abs),
    "neg": StepFunction(lambda g, y, x: (-g,), torch.neg),
    "reciprocal": StepFunction(lambda g, y, x: (-g * (y * y),), torch.reciprocal),
    "sqrt": StepFunction(lambda g, y, x: (g / (2 * y),), torch.sqrt),
    "rsqrt": StepFunction(lambda g, y, x: (-0.5 * g * y.call("pow", 3),), torch.rsqrt),
    "exp": StepFunction(lambda g, y, x: (g * y,), torch.exp),
    "exp2": StepFunction(lambda g, y, x: (g * y * _LN2,), torch.exp2),
    "expm1": StepFunction(lambda g, y, x: (g * (y + 1),), torch.expm1),
    "log": StepFunction(lambda g, y, x: (g / x,), torch.log),
    "log2": StepFunction(lambda g, y, x: (g / (x * _LN2),), torch.log2),
    "log10": StepFunction(lambda g, y, x: (g / (x * _LN10),), torch.log10),
    "log1p": StepFunction(lambda g, y, x: (g / (x + 1),), torch.log1p),
    "sin": StepFunction(lambda g, y, x: (g * x.call("cos"),), torch.sin),
    "cos": StepFunction(lambda g, y, x: (-g * x.call("sin"),), torch.cos),
    "tan": StepFunction(lambda g, y, x: (g * (1 + y.call("square")),), torch.tan),
    "tanh": StepFunction(lambda g, y, x: (g.call("tanh_backward", y),), torch.tanh),
    "sigmoid": StepFunction(lambda g, y, x: (g.call("sigmoid_backward", y),), torch.sigmoid),
    "erf": StepFunction(
        lambda g, y, x: (g * (_TO_ROOT * (-x.call("square")).call("exp")),), torch.erf
    ),
    "erfinv": StepFunction(
        lambda g, y, x: (g * (y.call("square").call("exp") * (1 / _TO_ROOT)),), torch.erfinv
    ),
    "digamma": StepFunction(lambda g, y, x: (g * x.call("trigamma"),), torch.digamma),
    "silu": StepFunction(lambda g, y, x: (g.call("silu_backward", x),), torch.nn.functional.silu),
    "gelu": StepFunction(lambda g, y, x: (g.call("gelu_backward", x),), torch.nn.functional.gelu),
    "gelu_tanh": StepFunction(
        lambda g, y, x: (g.call("gelu_tanh_backward", x),),
        lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    ),
    "relu": StepFunction(lambda g, y, x: (g.call("relu_backward", y),), torch.relu),
    "hardswish": StepFunction(
        lambda g, y, x: (g.call("hardswish_backward", x),), torch.nn.functional.hardswish
    ),
    "hardsigmoid": StepFunction(
        lambda g, y, x: (g.call("hardsigmoid_backward", x),), torch.nn.functional.hardsigmoid
    ),
    "square": StepFunction(lambda g, y, x: (g * (2 * x),), torch.square),
    "floor": StepFunction(_flat, torch.floor),
    "ceil": StepFunction(_flat, torch.ceil),
    "trunc": StepFunction(_flat, torch.trunc),
    "round": StepFunction(_flat, torch.round),
    "sign": StepFunction(_flat, torch.sign),
    "logical_not": StepFunction(None, torch.logical_not),
    "bitwise_not": StepFunction(None, torch.bitwise_not),
    "isnan": StepFunction(None, torch.isnan),
    "isinf": StepFunction(None, torch.isinf),
    "isfinite": StepFunction(None, torch.isfinite),
    "softplus": StepFunction(
        lambda g, y, x, b, t: (g.call("softplus_backward", x, b, t),), torch.nn.functional.softplus
    ),
    "leaky_relu": StepFunction(
        lambda g, y, x, s: (g.call("leaky_relu_backward", x, s),), torch.nn.functional.leaky_relu
    ),
    "elu": StepFunction(
        lambda g, y, x, a, s, i: (g.call("elu_backward", x, a, i),),
        lambda x, alpha, _, __: torch.nn.functional.elu(x, alpha),
    ),
    # Several.
    "add": StepFunction(lambda g, y, a, b: (g, g), operator.add),
    "sub": StepFunction(lambda g, y, a, b: (g, -g), operator.sub),
    "mul": StepFunction(lambda g, y, a, b: (g * b, g * a), operator.mul),
    "div": StepFunction(lambda g, y, a, b: (g / b, -g * (y / b)), operator.truediv),
    "pow": StepFunction(_of_pow, operator.pow),
    "remainder": StepFunction(lambda g, y, a, b: (g, -g * a.call("floor_divide", b)), operator.mod),
    "fmod": StepFunction(lambda g, y, a, b: (g, -g * (a / b).call("trunc")), _beside(torch.fmod)),
    "floor_divide": StepFunction(_flat, _floor_divide),
    "minimum": StepFunction(_of_limit("gt"), _minimum),
    "maximum": StepFunction(_of_limit("lt"), _maximum),
    "logaddexp": StepFunction(_of_logaddexp, _beside(torch.logaddexp)),
    "eq": StepFunction(None, operator.eq),
    "ne": StepFunction(None, operator.ne),
    "lt": StepFunction(None, operator.lt),
    "le": StepFunction(None, operator.le),
    "gt": StepFunction(None, operator.gt),
    "ge": StepFunction(None, operator.ge),
    "logical_and": StepFunction(None, _beside(torch.logical_and)),
    "logical_or": StepFunction(None, _beside(torch.logical_or)),
    "logical_xor": StepFunction(None, _beside(torch.logical_xor)),
    "bitwise_and": StepFunction(None, operator.and_),
    "bitwise_or": StepFunction(None, operator.or_),
    "bitwise_xor": StepFunction(None, operator.xor),
    "where": StepFunction(
        lambda g, y, c, a, b: (None, _choose(c, g, 0, g.graph), _choose(c, 0, g, g.graph)), _where
    ),
    "clamp": StepFunction(_of_clamp, _clamp),
    # Computed at their call.
    "asin": StepFunction(
        lambda g, y, x: (g * (1 - x.call("square")).call("rsqrt"),), torch.asin, rows=False
    ),
    "acos": StepFunction(
        lambda g, y, x: (-g * (1 - x.call("square")).call("rsqrt"),), torch.acos, rows=False
    ),
    "atan": StepFunction(lambda g, y, x: (g / (x.call("square") + 1),), torch.atan, rows=False),
    "sinh": StepFunction(lambda g, y, x: (g * x.call("cosh"),), torch.sinh, rows=False),
    "cosh": StepFunction(lambda g, y, x: (g * x.call("sinh"),), torch.cosh, rows=False),
    "asinh": StepFunction(
        lambda g, y, x: (g * (x.call("square") + 1).call("rsqrt"),), torch.asinh, rows=False
    ),
    "acosh": StepFunction(
        lambda g, y, x: (g * (x.call("square") - 1).call("rsqrt"),), torch.acosh, rows=False
    ),
    "atanh": StepFunction(lambda g, y, x: (g / (1 - x.call("square")),), torch.atanh, rows=False),
    "erfc": StepFunction(
        lambda g, y, x: (g * (-_TO_ROOT * (-x.call("square")).call("exp")),), torch.erfc, rows=False
    ),
    "lgamma": StepFunction(lambda g, y, x: (g * x.call("digamma"),), torch.lgamma, rows=False),
    "atan2": StepFunction(_of_atan2, _beside(torch.atan2), rows=False),
    "hypot": StepFunction(_of_hypot, _beside(torch.hypot), rows=False),
    "copysign": StepFunction(_of_copysign, _beside(torch.copysign), rows=False),
}


# --- Of numbers --------------------------------------------------------------------------------

_MATH = (
    "acos acosh asin asinh atan atan2 atanh copysign cos cosh erf erfc exp exp2 expm1 fmod hypot "
    "isfinite isinf isnan lgamma log log10 log1p log2 sin sinh sqrt tan tanh"
).split()
_OF_NUMBERS: dict[str, Callable[..., Number]] = {
    **{name: getattr(math, name) for name in _MATH},
    "abs": abs,
    "neg": operator.neg,
    "minimum": min,
    "maximum": max,
    "clamp": lambda x, low, high: min(max(x, low), high),
    "where": lambda condition, a, b: a if condition else b,
    "bitwise_not": lambda x: (not x) if isinstance(x, bool) else ~x,
    "logical_not": operator.not_,
    "logical_and": lambda a, b: bool(a) and bool(b),
    "logical_or": lambda a, b: bool(a) or bool(b),
    "logical_xor": lambda a, b: bool(a) != bool(b),
    "square": lambda x: x * x,
    "reciprocal": lambda x: 1 / x,
    **{
        name: FUNCTIONS[name].written
        for name in (
            *("add", "sub", "mul", "div", "pow", "remainder", "floor_divide"),
            *("eq", "ne", "lt", "le", "gt", "ge", "bitwise_and", "bitwise_or", "bitwise_xor"),
        )
    },
}


def of_numbers(name: str, *numbers: Any) -> Number:
    """Compute a step of numbers alone in float64, or in integers where Python would."""
    function = _OF_NUMBERS.get(name)
    if function is not None and not any(x != x for x in numbers):
        try:
            result = function(*numbers)
            if isinstance(result, int | float):
                return result
        except (ArithmeticError, ValueError):
            pass  # a pole, or outside the domain: PyTorch has the value
    first, *others = numbers
    with torch._C._DisableTorchDispatch():
        values = [torch.tensor(float(x), dtype=torch.float64, device="cpu") for x in others]
        if name in ("softplus", "leaky_relu", "elu"):
            values = others
        first = torch.tensor(float(first), dtype=torch.float64, device="cpu")
        return FUNCTIONS[name].written(first, *values).item()


# --- What users write --------------------------------------------------------------------------


@dataclass(frozen=True)
class Named:
    """A function that a user writes: its parameters, and the term that a call makes."""

    name: str
    parameters: tuple[str, ...]
    build: Callable[..., Term]
    defaults: dict[str, Number | str | None] = field(default_factory=dict)
    words: dict[str, tuple[str, ...]] = field(default_factory=dict)  # parameters that are words

    def __str__(self) -> str:
        shown = (
            f"{name}={self.defaults[name]!r}" if name in self.defaults else name
            for name in self.parameters
        )
        return f"{self.name}({', '.join(shown)})"


def _plain(name: str, *parameters: str) -> Named:
    return Named(name, parameters or ("x",), lambda graph, *x: graph.call(name, *x))


def _softplus(graph: Graph, x: Term, beta: Any, threshold: Any) -> Term:
    beta, threshold = graph.term(beta), graph.term(threshold)
    if beta.value is not None and threshold.value is not None:
        return graph.call("softplus", x, beta, threshold)
    scaled = graph.call("mul", x, beta)
    smooth = graph.call("div", graph.call("log1p", graph.call("exp", scaled)), beta)
    return graph.call("where", graph.call("gt", scaled, threshold), x, smooth)


def _leaky_relu(graph: Graph, x: Term, slope: Any) -> Term:
    slope = graph.term(slope)
    if slope.value is not None:
        return graph.call("leaky_relu", x, slope)
    return graph.call("where", graph.call("gt", x, 0), x, graph.call("mul", x, slope))


def _elu(graph: Graph, x: Term, alpha: Any) -> Term:
    alpha = graph.term(alpha)
    if alpha.value is not None:
        return graph.call("elu", x, alpha, 1.0, 1.0)
    below = graph.call("mul", alpha, graph.call("expm1", x))
    return graph.call("where", graph.call("gt", x, 0), x, below)


def _celu(graph: Graph, x: Term, alpha: Any) -> Term:
    scaled = graph.call("expm1", graph.call("div", x, alpha))
    below = graph.call("mul", scaled, alpha)
    return graph.call("where", graph.call("gt", x, 0), x, below)


def _selu(graph: Graph, x: Term) -> Term:
    alpha, scale = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
    return graph.call("mul", graph.call("elu", x, alpha, 1.0, 1.0), scale)


def _gelu(graph: Graph, x: Term, approximate: str) -> Term:
    return graph.call("gelu" if approximate == "none" else "gelu_tanh", x)


def _clamp_of(graph: Graph, x: Term, low: Any, high: Any) -> Term:
    if low is None and high is None:
        raise TypeError("at least one of min and max is needed")
    if low is None or high is None:
        bound = high if low is None else low
        return graph.call("minimum" if low is None else "maximum", x, bound)
    low, high = graph.term(low), graph.term(high)
    if low.value is None or high.value is None:
        return graph.call("minimum", graph.call("maximum", x, low), high)
    return graph.call("clamp", x, low, high)


def _hardtanh(graph: Graph, x: Term, low: Any, high: Any) -> Term:
    # At its bounds the gradient is zero, unlike that of clamp.
    above = graph.call("where", graph.call("ge", x, high), high, x)
    return graph.call("where", graph.call("le", x, low), low, above)


def _mish(graph: Graph, x: Term) -> Term:
    return graph.call("mul", x, graph.call("tanh", graph.call("softplus", x, 1, 20)))


def _logsigmoid(graph: Graph, x: Term) -> Term:
    return graph.call("neg", graph.call("softplus", graph.call("neg", x), 1, 20))


def _lerp(graph: Graph, a: Term, b: Term, weight: Any) -> Term:
    return graph.call("add", a, graph.call("mul", weight, graph.call("sub", b, a)))


def _softsign(graph: Graph, x: Term) -> Term:
    return graph.call("div", x, graph.call("add", graph.call("abs", x), 1))


def _logit(graph: Graph, x: Term) -> Term:
    return graph.call("log", graph.call("div", x, graph.call("sub", 1, x)))


_TWO = ("input", "other")
_LIST = [
    *(
        _plain(name)
        for name in (
            "abs neg reciprocal sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan tanh "
            "sigmoid erf erfinv digamma silu relu hardswish hardsigmoid square floor ceil trunc "
            "round sign logical_not bitwise_not isnan isinf isfinite asin acos atan sinh cosh "
            "asinh acosh atanh erfc lgamma"
        ).split()
    ),
    *(
        _plain(name, *_TWO)
        for name in (
            "add sub mul div pow remainder floor_divide minimum maximum logaddexp eq ne lt le gt "
            "ge logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor atan2 hypot "
            "fmod copysign"
        ).split()
    ),
    _plain("where", "condition", "input", "other"),
    Named("softplus", ("x", "beta", "threshold"), _softplus, {"beta": 1.0, "threshold": 20.0}),
    Named("leaky_relu", ("x", "negative_slope"), _leaky_relu, {"negative_slope": 0.01}),
    Named("elu", ("x", "alpha"), _elu, {"alpha": 1.0}),
    Named("celu", ("x", "alpha"), _celu, {"alpha": 1.0}),
    Named("selu", ("x",), _selu),
    Named(
        "gelu",
        ("x", "approximate"),
        _gelu,
        {"approximate": "none"},
        {"approximate": ("none", "tanh")},
    ),
    Named("clamp", ("x", "min", "max"), _clamp_of, {"min": None, "max": None}),
    Named(
        "hardtanh",
        ("x", "min_val", "max_val"),
        _hardtanh,
        {"min_val": -1.0, "max_val": 1.0},
    ),
    Named("relu6", ("x",), lambda graph, x: _hardtanh(graph, x, 0.0, 6.0)),
    Named("mish", ("x",), _mish),
    Named("logsigmoid", ("x",), _logsigmoid),
    Named("lerp", ("input", "end", "weight"), _lerp),
    Named("softsign", ("x",), _softsign),
    Named("logit", ("x",), _logit),
    Named("tanhshrink", ("x",), lambda graph, x: graph.call("sub", x, graph.call("tanh", x))),
]
NAMED = {function.name: function for function in _LIST}
# NumPy's names.
for _alias, _name in {
    "absolute": "abs",
    "negative": "neg",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "true_divide": "div",
    "power": "pow",
    "mod": "remainder",
    "clip": "clamp",
    "equal": "eq",
    "not_equal": "ne",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
    "invert": "bitwise_not",
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arctan2": "atan2",
    "arcsinh": "asinh",
    "arccosh": "acosh",
    "arctanh": "atanh",
}.items():
    NAMED[_alias] = NAMED[_name]
