# SPDX-License-Identifier: MIT
"""Kinds of steps: elementwise, in place, out=, casts and fresh tensors.

What has no defined result in PyTorch is left out: writes to memory that another operand shares but
for the very same view, and writes to tensors whose own elements overlap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from hologram._hologram import rows

from .steps import V

if TYPE_CHECKING:
    from .generate import Generator

Tensor = torch.Tensor


@dataclass(frozen=True, eq=False)
class Family:
    """A kind of step.

    `common` ones are in every program; those that `move` compute nothing while g.moves is set.
    """

    weight: float
    common: bool
    moves: bool
    add: Callable[[Generator], Any]


ALL: list[Family] = []


def family(
    weight: float, common: bool = False, moves: bool = False
) -> Callable[[Callable[[Generator], Any]], Any]:
    """Register what adds a step of one kind."""

    def register(add: Callable[[Generator], Any]) -> Callable[[Generator], Any]:
        ALL.append(Family(weight, common, moves, add))
        return add

    return register


# --- Tools -----------------------------------------------------------------------------------


def dim_of(g: Generator, t: Tensor) -> int:
    """Draw a dimension, sometimes counted from the end."""
    if t.dim() == 0:
        return 0
    return g.below(t.dim()) - (t.dim() if g.chance(0.3) else 0)


def numel(shape: Any) -> int:
    """Return the number of elements."""
    n = 1
    for s in shape:
        n *= s
    return n


def broadcasts(a: Any, b: Any, into: bool) -> bool:
    """Tell whether b broadcasts with a, or to a."""
    if into and len(b) > len(a):
        return False
    return all(
        y in (x, 1) or (x == 1 and not into) for x, y in zip(reversed(a), reversed(b), strict=False)
    )


def positions(t: Tensor) -> set[int] | None:
    """Return the elements of its storage that t has; None if there are many."""
    if t.numel() > 4096:
        return None
    found = {t.storage_offset()}
    for size, stride in zip(t.shape, t.stride(), strict=True):
        found = {p + i * stride for p in found for i in range(size)}
    return found


def share(a: Tensor, b: Tensor) -> bool:
    """Tell whether a write to a could change b, or, to be safe, that this is hard to say."""
    if a.untyped_storage()._cdata != b.untyped_storage()._cdata or not a.numel() or not b.numel():
        return False
    if a.dtype.itemsize != b.dtype.itemsize:
        return True
    ours, theirs = positions(a), positions(b)
    return ours is None or theirs is None or bool(ours & theirs)


def same_view(a: Tensor, b: Tensor) -> bool:
    """Tell whether both are the same elements in the same order."""
    return (
        a.storage_offset() == b.storage_offset()
        and a.shape == b.shape
        and a.stride() == b.stride()
        and a.dtype == b.dtype
    )


def may_write(g: Generator, target: V, *read: Any, same_allowed: bool = True) -> bool:
    """Tell whether writing target while reading the others is defined."""
    if target in g.overlapping:
        return False
    t = g.get(target)
    return not any(
        type(v) is V and share(t, g.get(v)) and not (same_allowed and same_view(t, g.get(v)))
        for v in read
    )


def writable(g: Generator) -> V | None:
    """Draw a tensor that may be written."""
    v = g.tensor()
    return None if v in g.overlapping else v


def resizable(g: Generator) -> V | None:
    """Draw a tensor that may be written and get other memory, if no foreign code has any."""
    return None if g.foreign else writable(g)


def operand(g: Generator, v: V, into: bool = False) -> Any:
    """Draw a second operand: a tensor, a number, or a number on the cpu."""
    r = g.random()
    if r < 0.62:
        return g.like(v, into=into)
    if r < 0.95:
        return g.number(g.get(v).dtype)
    if r < 0.98 and g.cpu:
        return V(g.choice(g.cpu))
    return g.emit("torch.tensor({0}, dtype={1})", *cpu_number(g))[0]


def cpu_number(g: Generator) -> tuple[Any, torch.dtype]:
    """Draw a number and a dtype that can hold it."""
    dtype = g.choice([torch.float32, torch.float64, torch.float64, torch.int64, torch.bool])
    if dtype == torch.int64:
        return g.below(9) - 4, dtype
    return float(g.number(torch.float32)), dtype


# --- Elementwise -----------------------------------------------------------------------------

ANY_UNARY = "neg abs sign square logical_not positive".split()
FLOAT_UNARY = """neg abs reciprocal sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan tanh
erf sigmoid relu floor ceil trunc round square sign logical_not isnan frac sinh atan isinf isfinite
erfc nan_to_num""".split()
BITS_UNARY = ["bitwise_not"]
ACTIVATIONS = """F.silu({0}) F.gelu({0}) F.gelu({0},approximate='tanh') F.leaky_relu({0},0.2)
F.elu({0}) F.elu({0},1.5) F.softplus({0}) F.softplus({0},2,3) F.hardtanh({0}) F.relu6({0})
F.threshold({0},0.5,3.0) F.mish({0}) F.hardswish({0}) F.hardsigmoid({0}) F.logsigmoid({0})
F.relu({0}) {0}**2 {0}**3 {0}**0.5 {0}**-1.0 {0}**-0.5 2.0**{0} 1/{0} 1-{0} -{0} {0}*{0} {0}+{0}
{0}-{0} {0}*1 {0}+0 {0}/1 {0}*0 {0}-0.0 {0}*-1 0-{0} {0}.abs().neg() {0}.neg().neg()""".split()
IN_PLACE = """neg abs sqrt exp log sin cos tanh sigmoid relu floor ceil trunc round square
reciprocal sign zero expm1 rsqrt erf""".split()
BINARY = """add sub mul div minimum maximum eq ne lt le gt ge logical_and logical_or logical_xor
add sub mul div mul add""".split()
RARE_BINARY = """pow atan2 remainder fmod fmax fmin bitwise_and bitwise_or bitwise_xor hypot
floor_divide true_divide xlogy""".split()
NO_NUMBERS = """minimum maximum logical_and logical_or logical_xor fmax fmin hypot atan2
minimum""".split()
# Of integers: the lowest by -1 traps in PyTorch's kernels.
TRAPS = "remainder fmod floor_divide".split()
BACKWARD = """aten.sigmoid_backward({0},{1}) aten.tanh_backward({0},{1}) aten.silu_backward({0},{1})
aten.gelu_backward({0},{1}) aten.gelu_backward({0},{1},approximate='tanh')
aten.threshold_backward({0},{1},0.5) aten.leaky_relu_backward({0},{1},0.2,False)
aten.softplus_backward({0},{1},2,3) aten.hardtanh_backward({0},{1},-1,1)
aten.elu_backward({0},1.5,1.1,0.9,False,{1})""".split()


def unary_name(g: Generator, dtype: torch.dtype) -> str:
    """Draw a function of one operand that dtype has.

    Not those that see the sign of a NaN: which NaN arithmetic gives is not specified.
    """
    if dtype.is_floating_point or g.chance(0.2):
        return g.choice(FLOAT_UNARY)
    return g.choice(ANY_UNARY + BITS_UNARY)


@family(12, common=True)
def unary(g: Generator) -> None:
    v = g.tensor()
    g.emit(f"{{0}}.{unary_name(g, g.get(v).dtype)}()", v)


@family(6, common=True)
def activation(g: Generator) -> None:
    g.emit(g.choice(ACTIVATIONS), g.floating() if g.chance(0.8) else g.tensor())


@family(22, common=True)
def binary(g: Generator) -> None:
    v = g.tensor()
    name = g.choice(BINARY if g.chance(0.9) else RARE_BINARY)
    whole = not g.get(v).is_floating_point()
    if whole and name in TRAPS:
        name = "add"
    only_tensors = name in NO_NUMBERS and g.chance(0.95)
    other = g.like(v) if only_tensors else operand(g, v)
    if name in ("add", "sub") and g.chance(0.3):
        g.emit(f"torch.{name}({{0}}, {{1}}, alpha={{2}})", v, other, g.number(g.get(v).dtype))
    elif name in ("add", "sub", "mul", "div") and type(other) is not V and g.chance(0.4):
        sign = {"add": "+", "sub": "-", "mul": "*", "div": "/"}[name]
        g.emit(f"{{1}} {sign} {{0}}", v, other)
    elif name == "div" and not whole and g.chance(0.1):
        mode = g.choice(["'floor'", "'trunc'"])
        g.emit(f"torch.div({{0}}, {{1}}, rounding_mode={mode})", v, other)
    else:
        g.emit(f"{{0}}.{name}({{1}})", v, other)


@family(14, common=True)
def binary_in_place(g: Generator) -> None:
    v = writable(g)
    if v is None:
        return
    t = g.get(v)
    other = operand(g, v, into=True)
    if type(other) is V and other not in g.cpu:
        theirs = g.get(other).dtype
        if theirs.is_floating_point and not t.dtype.is_floating_point and g.chance(0.9):
            other = g.number(t.dtype)
    if not may_write(g, v, other):
        return
    name = g.choice(
        "add sub mul add mul add mul copy copy div".split()
        if g.chance(0.9)
        else "pow remainder fmod lt logical_and atan2 maximum".split()
    )
    if not t.is_floating_point() and name in TRAPS:
        name = "mul"
    if name == "maximum":
        g.emit("torch.maximum({0}, {1}, out={0})", v, other, results=0)
    elif name == "copy" and type(other) is not V:
        g.emit("{0}.fill_({1})", v, other, results=0)
    elif name in ("add", "sub") and g.chance(0.3):
        g.emit(f"{{0}}.{name}_({{1}}, alpha={{2}})", v, other, g.number(t.dtype), results=0)
    else:
        g.emit(f"{{0}}.{name}_({{1}})", v, other, results=0)


@family(8, common=True)
def unary_in_place(g: Generator) -> None:
    v = writable(g)
    if v is None:
        return
    t = g.get(v)
    r = g.random()
    if r < 0.6:
        name = g.choice(IN_PLACE if t.dtype.is_floating_point else ["neg", "abs", "zero", "square"])
        g.emit(f"{{0}}.{name}_()", v, results=0)
    elif r < 0.75:
        low, high = g.number(t.dtype), g.number(t.dtype)
        if isinstance(low, bool) or isinstance(high, bool):
            low, high = 0, 1
        g.emit("{0}.clamp_({1}, {2})", v, low, high, results=0)
    elif r < 0.9:
        g.emit("{0}.fill_({1})", v, g.number(t.dtype), results=0)
    else:
        text = g.choice(
            [
                "F.silu({0}, inplace=True)",
                "F.leaky_relu_({0}, 0.1)",
                "F.elu_({0})",
                "F.hardtanh_({0}, -1, 1)",
                "{0}.clamp_min_(0)",
                "{0}.logical_not_()",
            ]
        )
        g.emit(text, v, results=0)


@family(9, common=True)
def ternary(g: Generator) -> None:
    v = g.tensor()
    t = g.get(v)
    other = g.like(v)
    kind = g.choice(["where", "where", "clamp", "lerp", "addcmul", "addcdiv", "masked_fill"])
    if kind == "where":
        third = operand(g, v)
        test = g.choice(["{0} > {1}", "{0} < 0", "{0} == {1}", "{0}.isnan()", "{0} != 0"])
        first, second = ("{1}", "{2}") if g.chance(0.8) else ("{2}", "{0}")
        g.emit(f"torch.where({test}, {first}, {second})", v, other, third)
    elif kind == "clamp":
        if g.chance(0.5):
            low, high = g.number(t.dtype), g.number(t.dtype)
            g.emit("{0}.clamp({1}, {2})", v, low, high if g.chance(0.7) else None)
        else:
            g.emit("torch.clamp({0}, {1}, {2})", v, other, g.like(v))
    elif kind == "lerp":
        weight = g.number(torch.float32) if g.chance(0.7) else g.like(v)
        g.emit("torch.lerp({0}, {1}, {2})", v, other, weight)
    elif kind == "masked_fill":
        g.emit("{0}.masked_fill({1} > 0, {2})", v, other, g.number(t.dtype))
    else:
        g.emit(
            f"torch.{kind}({{0}}, {{1}}, {{2}}, value={{3}})",
            v,
            other,
            g.like(v),
            g.number(t.dtype),
        )


@family(4)
def ternary_in_place(g: Generator) -> None:
    v = writable(g)
    if v is None:
        return
    a, b = g.like(v, into=True), g.like(v, into=True)
    if not may_write(g, v, a, b):
        return
    kind = g.choice(["addcmul", "addcdiv", "lerp", "masked_fill", "where", "clamp"])
    number = g.number(g.get(v).dtype)
    if kind in ("addcmul", "addcdiv"):
        g.emit(f"{{0}}.{kind}_({{1}}, {{2}}, value={{3}})", v, a, b, number, results=0)
    elif kind == "lerp":
        g.emit("{0}.lerp_({1}, {2})", v, a, number if g.chance(0.6) else b, results=0)
    elif kind == "masked_fill":
        g.emit("{0}.masked_fill_({1} > 0, {2})", v, a, number, results=0)
    elif kind == "clamp":
        g.emit("{0}.clamp_({1}, {2})", v, a, b, results=0)
    else:
        g.emit("torch.where({1} > 0, {0}, {2}, out={0})", v, a, b, results=0)


def table_calls() -> list[str]:
    """Return calls of the rows of the op table that the device has by their own names."""
    calls = []
    for name, arity, params, floats, _ in rows._table:
        packet = getattr(torch.ops.aten, name, None)
        if packet is None or not floats or name in BY_HAND:
            continue
        tensors = "".join(f"{{{k}}}," for k in range(arity - params))
        if "Tensor" in packet.overloads() or "default" in packet.overloads():
            calls.append(f"aten.{name}({tensors}{'0.5,' * params})")
    return calls


# Rows whose ATen op takes other arguments: in the lists above.
BY_HAND = """leaky_relu_backward elu_backward addcmul addcdiv clamp where lerp threshold
hardtanh_backward gelu_backward""".split()
TABLE = table_calls()


@family(8, common=True)
def table_row(g: Generator) -> None:
    v = g.floating()
    call = g.choice(TABLE)
    g.emit(call, v, *[g.like(v, exact=True) for _ in range(call.count("{") - 1)])


@family(3)
def backward(g: Generator) -> None:
    v = g.floating()
    g.emit(g.choice(BACKWARD), v, g.like(v, exact=True))


@family(4)
def out_variant(g: Generator) -> None:
    v, into = g.tensor(), resizable(g)
    if into is None:
        return
    other = operand(g, v)
    if not may_write(g, into, v, other):
        return
    if g.chance(0.4):
        g.emit(f"torch.{g.choice(FLOAT_UNARY[:25])}({{0}}, out={{1}})", v, into, results=0)
    elif g.chance(0.15):
        # A fresh result, whose memory nothing wrote before.
        g.emit("torch.add({0}, {1}, out=torch.empty(0, device=device))", v, other)
    else:
        name = g.choice([b for b in BINARY if type(other) is V or b not in NO_NUMBERS])
        g.emit(f"torch.{name}({{0}}, {{1}}, out={{2}})", v, other, into, results=0)


# --- Types and fresh tensors -------------------------------------------------------------------


@family(7, common=True)
def cast(g: Generator) -> None:
    v = g.tensor()
    r = g.random()
    if r < 0.6:
        g.emit("{0}.to({1})", v, g.dtype())
    elif r < 0.75:
        g.emit(
            g.choice(
                [
                    "{0}.float()",
                    "{0}.bool()",
                    "{0}.half()",
                    "{0}.bfloat16()",
                    "{0}.double()",
                    "{0}.long()",
                ]
            ),
            v,
        )
    elif r < 0.8:
        g.emit("{0}.type_as({1})", v, g.tensor())
    else:
        g.emit(
            g.choice(["{0}.clone()", "{0}.contiguous()", "{0}.detach()", "{0}.to({1}, copy=True)"]),
            v,
            g.dtype(),
        )


@family(4, moves=True)
def fresh(g: Generator) -> None:
    shape, dtype = g.choice(g.shapes), g.dtype()
    v = g.tensor()
    dtype = g.get(v).dtype if g.moves else dtype
    r = g.random()
    if r < 0.25:
        name = g.choice(["zeros", "ones"])
        g.emit(f"torch.{name}({{0}}, dtype={{1}}, device=device)", shape, dtype)
    elif r < 0.4:
        g.emit("torch.full({0}, {1}, dtype={2}, device=device)", shape, g.number(dtype), dtype)
    elif r < 0.6:
        g.emit(
            g.choice(
                [
                    "torch.zeros_like({0})",
                    "torch.ones_like({0})",
                    "{0}.new_zeros({0}.shape)",
                    "torch.full_like({0}, 2)",
                ]
            ),
            v,
        )
    elif r < 0.75:
        g.emit("fill_fresh({0}, {1})", v, g.number(g.get(v).dtype))
    elif r < 0.85:
        g.emit("copy_fresh({0}, {1})", v, dtype)
    elif r < 0.93:
        g.emit("fill_halves({0}, {1})", v, g.number(g.get(v).dtype))
    elif r < 0.97:
        g.emit("torch.arange({0}, device=device)", g.below(40))
    else:
        g.new_input()


@family(5, common=True, moves=True)
def drop(g: Generator) -> None:
    for _ in range(1 + g.below(3)):
        if len(g.live) > 1:
            g.delete(g.below(len(g.live)))


# The rest of the kinds register themselves.
from . import families_more, families_products, families_views  # noqa: E402, F401
