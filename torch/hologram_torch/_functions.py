# SPDX-License-Identifier: MIT
"""The functions of elements that expressions know, by PyTorch's names and NumPy's.

They are PyTorch's own. Where one of those takes no number for an operand, has no derivative, or is
not recorded by the device, it is written in terms of others.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Number = int | float | bool
Function = Callable[..., Any]

CONSTANTS = {"pi": math.pi, "inf": math.inf, "nan": math.nan}


def call(function: Function, *operands: Any) -> Any:
    """Call a function of tensors and numbers; of numbers alone, compute the number."""
    for operand in operands:
        if isinstance(operand, Tensor):
            return function(*operands)
    return of_numbers(function, *operands)


def of_numbers(function: Function, first: Any, *others: Any) -> Number:
    """Compute a function of numbers as Python does, or in float64, or in integers where it can."""
    try:
        result = _OF_NUMBERS.get(function, function)(first, *others)
        if isinstance(result, int | float):
            return result
    except (ArithmeticError, AttributeError, TypeError, ValueError):
        pass  # PyTorch has values at poles, and its functions take tensors
    with torch._C._DisableTorchDispatch():
        if not isinstance(first, float):
            result = function(torch.tensor(first, device="cpu"), *others)
            if not result.is_floating_point():
                return result.item()  # type: ignore[no-any-return]
        result = function(torch.tensor(first, dtype=torch.float64, device="cpu"), *others)
        return result.item()  # type: ignore[no-any-return]


def _as_tensor(number: Any, like: Tensor) -> Tensor:
    """Return a number as a tensor, in the dtype that both have together."""
    dtype = like.dtype
    if not dtype.is_floating_point and not dtype.is_complex:
        if isinstance(number, float | torch.SymFloat):
            dtype = torch.get_default_dtype()
        elif dtype == torch.bool and not isinstance(number, bool):
            dtype = torch.int64
    return torch.full((), number, dtype=dtype, device=like.device)


def _beside(function: Function) -> Function:
    """Let a function of two tensors take a number for one."""

    @functools.wraps(function)
    def both(a: Any, b: Any) -> Any:
        return function(
            a if isinstance(a, Tensor) else _as_tensor(a, b),
            b if isinstance(b, Tensor) else _as_tensor(b, a),
        )

    return both


def _limit(function: Function, bound: Function) -> Function:
    """Let a number beside a tensor be a bound."""

    @functools.wraps(function)
    def limited(a: Any, b: Any) -> Any:
        if not isinstance(b, Tensor):
            return bound(a, b)
        return function(a, b) if isinstance(a, Tensor) else bound(b, a)

    return limited


minimum = _limit(torch.minimum, torch.clamp_max)
maximum = _limit(torch.maximum, torch.clamp_min)
_remainder = _beside(torch.remainder)


def remainder(a: Any, b: Any) -> Any:
    """Of a number and a tensor PyTorch has no derivative."""
    return _remainder(a, b) if isinstance(b, Tensor) else a % b


def floor_divide(a: Any, b: Any) -> Any:
    """PyTorch's function of this name has no derivative."""
    if not isinstance(a, Tensor) and not isinstance(b, Tensor):
        return a // b
    return torch.div(a if isinstance(a, Tensor) else _as_tensor(a, b), b, rounding_mode="floor")


def where(condition: Any, input: Any, other: Any) -> Any:
    """Choose; a number may be the condition."""
    if isinstance(condition, Tensor):
        return torch.where(condition, input, other)
    like = input if isinstance(input, Tensor) else other
    if not isinstance(like, Tensor):
        return input if condition else other
    condition = torch.full((), bool(condition), device=like.device)
    return torch.where(condition, input, other)


def softplus(x: Any, beta: Any = 1.0, threshold: Any = 20.0) -> Any:
    """PyTorch's, with tensors as parameters, too."""
    if not isinstance(beta, Tensor) and not isinstance(threshold, Tensor):
        return F.softplus(x, beta, threshold)
    scaled = x * beta
    return where(scaled > threshold, x, call(torch.log1p, call(torch.exp, scaled)) / beta)


def leaky_relu(x: Any, negative_slope: Any = 0.01) -> Any:
    """PyTorch's, with a tensor as slope, too."""
    if not isinstance(negative_slope, Tensor):
        return F.leaky_relu(x, negative_slope)
    return where(x > 0, x, x * negative_slope)


def elu(x: Any, alpha: Any = 1.0) -> Any:
    """PyTorch's, with a tensor as alpha, too."""
    if not isinstance(alpha, Tensor):
        return F.elu(x, alpha)
    return where(x > 0, x, alpha * call(torch.expm1, x))


def celu(x: Any, alpha: Any = 1.0) -> Any:
    """PyTorch's is not recorded."""
    return where(x > 0, x, call(torch.expm1, x / alpha) * alpha)


def gelu(x: Any, approximate: str = "none") -> Any:
    """PyTorch's takes the word by name alone."""
    return F.gelu(x, approximate=approximate)


def clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    """PyTorch's of numbers; tensors are two bounds, one after the other."""
    if not any(isinstance(value, Tensor) for value in (min, max)):
        return torch.clamp(x, min, max)
    above = x if min is None else call(maximum, x, min)
    return above if max is None else call(minimum, above, max)


def hardtanh(x: Any, min_val: Any = -1.0, max_val: Any = 1.0) -> Any:
    """PyTorch's, with tensors as bounds, too: there the gradient is zero, unlike that of clamp."""
    return where(x <= min_val, min_val, where(x >= max_val, max_val, x))


def hardsigmoid(x: Any) -> Any:
    """PyTorch's has no second derivative."""
    return F.relu6(x + 3) / 6


def logsigmoid(x: Any) -> Any:
    """PyTorch's has a second result."""
    return -F.softplus(-x)


def lerp(input: Any, end: Any, weight: Any) -> Any:
    """PyTorch's takes no number for a tensor."""
    return input + weight * (end - input)


def logit(x: Any) -> Any:
    """PyTorch's is not recorded."""
    return torch.log(x / (1 - x))


@dataclass(frozen=True, eq=False)
class Named:
    """A function that a user writes."""

    name: str
    parameters: tuple[str, ...]
    function: Function
    defaults: dict[str, Any]

    def __str__(self) -> str:
        shown = (
            f"{name}={self.defaults[name]!r}" if name in self.defaults else name
            for name in self.parameters
        )
        return f"{self.name}({', '.join(shown)})"

    @property
    def is_recorded(self) -> bool:
        """Whether the device has a kernel, or PyTorch makes it of functions that have one."""
        if self.function.__module__ == __name__ and not hasattr(self.function, "__wrapped__"):
            return True
        packet = getattr(torch.ops.aten, self.name, None)
        if packet is None:
            return True
        overload = packet.overloads()[0]
        name = f"aten::{self.name}" + ("" if overload == "default" else f".{overload}")
        return any(
            torch._C._dispatch_has_kernel_for_dispatch_key(name, key)
            for key in ("PrivateUse1", "CompositeExplicitAutograd", "CompositeImplicitAutograd")
        )


def _of(names: str, *parameters: str) -> dict[str, Named]:
    """Return PyTorch's functions of these names."""
    return {
        name: Named(name, parameters, getattr(torch, name, None) or getattr(F, name), {})
        for name in names.split()
    }


def _of_two(**functions: Function) -> dict[str, Named]:
    return {name: Named(name, ("input", "other"), f, {}) for name, f in functions.items()}


def _ours(*functions: Function) -> dict[str, Named]:
    """Return functions of this file, with their parameters."""
    found = {}
    for function in functions:
        given = inspect.signature(function).parameters
        defaults = {p.name: p.default for p in given.values() if p.default is not p.empty}
        found[function.__name__] = Named(function.__name__, tuple(given), function, defaults)
    return found


NAMED: dict[str, Named] = {
    **_of(
        "abs neg reciprocal sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan tanh "
        "sigmoid erf erfinv digamma silu relu hardswish square floor ceil trunc "
        "round sign logical_not bitwise_not isnan isinf isfinite asin acos atan sinh cosh "
        "asinh acosh atanh erfc lgamma selu relu6 softsign tanhshrink "
        "mish",
        "x",
    ),
    **_of_two(
        **{name: getattr(operator, name) for name in "add sub mul pow eq ne lt le gt ge".split()},
        div=operator.truediv,
        remainder=remainder,
        floor_divide=floor_divide,
        minimum=minimum,
        maximum=maximum,
        bitwise_and=operator.and_,
        bitwise_or=operator.or_,
        bitwise_xor=operator.xor,
        **{
            name: _beside(getattr(torch, name))
            for name in (
                "logaddexp logical_and logical_or logical_xor atan2 hypot fmod copysign".split()
            )
        },
    ),
    **_ours(where, softplus, leaky_relu, elu, celu, gelu, clamp),
    **_ours(hardtanh, hardsigmoid, logsigmoid, lerp, logit),
}
# Where Python has the same function.
_MATH = (
    "acos acosh asin asinh atan atan2 atanh copysign cos cosh erf erfc exp exp2 expm1 fmod hypot "
    "isfinite isinf isnan lgamma log log10 log1p log2 sin sinh sqrt tan tanh"
)
_OF_NUMBERS = {NAMED[name].function: getattr(math, name) for name in _MATH.split()}
# NumPy's names.
_ALIASES = (
    "absolute=abs negative=neg subtract=sub multiply=mul divide=div true_divide=div power=pow "
    "mod=remainder clip=clamp equal=eq not_equal=ne less=lt less_equal=le greater=gt "
    "greater_equal=ge invert=bitwise_not arcsin=asin arccos=acos arctan=atan arctan2=atan2 "
    "arcsinh=asinh arccosh=acosh arctanh=atanh"
)
NAMED |= {alias: NAMED[name] for alias, name in (pair.split("=") for pair in _ALIASES.split())}
