# SPDX-License-Identifier: MIT
"""Native elementwise kernels against PyTorch's cpu: values, types, strides, aliasing, errors."""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from accuracy import widen

import hologram
import hologram_torch
from hologram._hologram import rows
from hologram_torch import _C

Fn = Callable[..., Any]

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
REALS = [*FLOATS, *INTS, torch.bool]
ALL = [*REALS, torch.complex64]
B = torch.ops.aten
HAS_FMA = hologram.cpu_info()["isa"] != "baseline"  # an instruction that rounds x y + z once

UNARY = """neg abs reciprocal sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan tanh
sigmoid erf floor ceil trunc round square sign sgn logical_not bitwise_not isnan relu""".split()
ACTIVATIONS: dict[str, Fn] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "elu": lambda x: B.elu(x, 1.5, 1.1, 0.9),
    "softplus": lambda x: F.softplus(x, beta=2, threshold=3),
    "hardtanh": lambda x: F.hardtanh(x, -1, 2),
    "threshold": lambda x: F.threshold(x, 1, 3),
    "relu6": F.relu6,
    "clamp": lambda x: x.clamp(-1, 2),
    "clamp_float": lambda x: x.clamp(-0.5, 1.5),
    "clamp_low": lambda x: x.clamp(min=1),
    "clamp_high": lambda x: x.clamp(max=1),
    "clamp_min": lambda x: x.clamp_min(1),
    "clamp_max": lambda x: x.clamp_max(1),
    "pow2": lambda x: x**2,
    "pow3": lambda x: x**3,
    "pow_half": lambda x: x**0.5,
    "pow_minus": lambda x: x**-1.0,
    "pow_minus_half": lambda x: x**-0.5,
    "pow_other": lambda x: x**1.7,
    "pow_one": lambda x: x**1,
    "pow_zero": lambda x: x**0,
    "two_pow": lambda x: 2.0**x,
    "rsub": lambda x: 2 - x,
    "rdiv": lambda x: 2 / x,
    "add_alpha": lambda x: torch.add(x, 3, alpha=2),
    "add_scalar": lambda x: B.add.Scalar(x, 2),
    "sub_scalar": lambda x: B.sub.Scalar(x, 2),
    "mul_scalar": lambda x: B.mul.Scalar(x, 2),
    "div_scalar": lambda x: B.div.Scalar(x, 2),
    "and_scalar": lambda x: x & 3,
    "or_scalar": lambda x: x | 3,
    "xor_scalar": lambda x: 3 ^ x,
    "masked_fill": lambda x: x.masked_fill(torch.isnan(magnitude(x)), 3),
    "where_scalar": lambda x: torch.where(x > 1, x, 2),
}
BINARY: dict[str, Fn] = {
    name: getattr(torch, name)
    for name in """add sub mul div minimum maximum pow eq ne lt le gt ge logical_and logical_or
    logical_xor bitwise_and bitwise_or bitwise_xor rsub clamp_min clamp_max""".split()
}
BINARY |= {
    "div_none": lambda x, y: torch.div(x, y, rounding_mode=None),
    "div_floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "sub_alpha": lambda x, y: torch.sub(x, y, alpha=2),
    "add_alpha_float": lambda x, y: torch.add(x, y, alpha=0.5),
    "add_alpha_one": lambda x, y: torch.add(x, y, alpha=1.0),
    "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "lerp_far": lambda x, y: torch.lerp(x, y, 0.8),
    "where": lambda x, y: torch.where(x > 1, x, y),
    "sigmoid_backward": B.sigmoid_backward,
    "tanh_backward": B.tanh_backward,
    "silu_backward": B.silu_backward,
    "gelu_backward": B.gelu_backward,
    "gelu_tanh_backward": lambda g, x: B.gelu_backward(g, x, approximate="tanh"),
    "threshold_backward": lambda g, x: B.threshold_backward(g, x, 0.5),
    "leaky_relu_backward": lambda g, x: B.leaky_relu_backward(g, x, 0.2, False),
    "leaky_relu_backward_result": lambda g, x: B.leaky_relu_backward(g, x, 0.2, True),
    "softplus_backward": lambda g, x: B.softplus_backward(g, x, 2, 3),
    "hardtanh_backward": lambda g, x: B.hardtanh_backward(g, x, -1, 1),
    "elu_backward": lambda g, x: B.elu_backward(g, 1.5, 1.1, 0.9, False, x),
}
TERNARY: dict[str, Fn] = {
    "addcmul": lambda x, y, z: torch.addcmul(x, y, z, value=2),
    "addcdiv": lambda x, y, z: torch.addcdiv(x, y, z, value=2),
    "clamp": torch.clamp,
    "lerp": torch.lerp,
    "where": lambda x, y, z: torch.where(x > 1, y, z),
    "masked_fill": lambda x, y, z: x.masked_fill(y > z, 1),
}

# Rows of the op table that have an ATen op of their name and are not above.
NAMED = {*UNARY, *ACTIVATIONS, *BINARY, *TERNARY}
OTHER_ARGUMENTS = {"clamp", "leaky_relu_backward", "elu_backward"}
for row, arity, params, *_ in rows._table:
    op = getattr(B, row, None)
    if op is not None and row not in NAMED | OTHER_ARGUMENTS:
        group = (ACTIVATIONS, BINARY, TERNARY)[arity - params - 1]
        group[row] = lambda *tensors, op=op, numbers=[0.5] * params: op(*tensors, *numbers)

NO_BROADCAST = {"gelu_backward", "gelu_tanh_backward"}  # oneDNN fails on cpu

# --- Tools -----------------------------------------------------------------------------------


def make(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Return small cpu values that are exact in every type and cover both signs and zero."""
    g = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=g).bool()
    if dtype.is_complex:
        return torch.randn(shape, generator=g, dtype=dtype)
    low = 0 if dtype == torch.uint8 else -6
    values = torch.randint(low, 7, shape, generator=g)
    if dtype.is_floating_point:
        values = values + torch.randint(0, 4, shape, generator=g) / 4
    return values.to(dtype)


def mirror(t: torch.Tensor) -> torch.Tensor:
    """Return the same elements on the device, in a storage of the same layout."""
    size = t.untyped_storage().nbytes() // t.element_size()
    base = t.as_strided((size,), (1,), 0).to("hologram")
    return base.as_strided(t.size(), t.stride(), t.storage_offset())


def tolerance(dtype: torch.dtype) -> tuple[float, float]:
    return {
        torch.float32: (4e-6, 1e-6),
        torch.float64: (1e-13, 1e-14),
        # One unit in the last place: either may have rounded the other way.
        torch.float16: (torch.finfo(torch.float16).eps, 2.0**-24),
        torch.bfloat16: (torch.finfo(torch.bfloat16).eps, 0.0),
        torch.complex64: (1e-5, 1e-5),
    }.get(dtype, (0.0, 0.0))


def rounded_once(ours: torch.Tensor, cpu: torch.Tensor, exact: torch.Tensor, what: str) -> None:
    """Every half is as near to double precision's as one rounding allows, or as cpu's half is.

    A quarter of a unit is left to what float32 rounds before.
    """
    assert torch.equal(ours.isnan(), cpu.isnan()), what
    assert torch.equal(ours.isinf(), cpu.isinf()), what
    format = torch.finfo(cpu.dtype)
    mine, theirs = ((t.double() - exact).abs() for t in (ours, cpu))
    allowed = 0.75 * format.eps * exact.abs().clamp(min=format.tiny)
    if what.startswith("lerp") and not HAS_FMA:
        # Its terms may cancel. Without FMA float32 rounds their product, which is below 8 here, by
        # half a unit; cpu's kernel has FMA.
        allowed = allowed.clamp(min=2.0**-22)
    wrong = cpu.isfinite() & (mine > torch.maximum(allowed, theirs))
    assert not wrong.any(), f"{what}: {ours[wrong]}, not {exact[wrong]}; cpu has {cpu[wrong]}"


def same(ours: Any, cpu: Any, what: str, exact: Any = None) -> None:
    if not isinstance(cpu, torch.Tensor):
        assert ours == cpu, what
        return
    assert ours.device.type == "hologram", what
    assert ours.dtype == cpu.dtype, f"{what}: {ours.dtype} is not {cpu.dtype}"
    assert ours.shape == cpu.shape, f"{what}: {ours.shape} is not {cpu.shape}"
    assert ours.stride() == cpu.stride(), f"{what}: {ours.stride()} is not {cpu.stride()}"
    if exact is not None and cpu.dtype in (torch.float16, torch.bfloat16):
        rounded_once(ours.cpu(), cpu, exact.double(), what)
        return
    rtol, atol = tolerance(cpu.dtype)
    if "gelu" in what:
        rtol, atol = 10 * rtol, 10 * atol  # oneDNN's approximation
    sixths = what.startswith("hardsigmoid_backward torch.float64 torch.float64")
    if sixths and "argument" not in what:
        # PyTorch's cpu multiplies by a sixth as float32 has it, the row divides by six. Of mixed
        # types the cpu's kernel is used.
        cpu = cpu / torch.tensor(1 / 6, dtype=torch.float32).double() / 6
    torch.testing.assert_close(
        ours.cpu(), cpu, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m: f"{what}: {m}"
    )


def plain_message(error: Exception) -> str:
    text = str(error).split("\n")[0]
    text = re.sub(r"hologram(:0)?|privateuseone(:0)?|cpu", "DEVICE", text)
    return re.sub(r"'aten::[a-z_.A-Z]+'", "OP", text)


def compare(fn: Fn, *args: torch.Tensor, what: str = "") -> None:
    """Call fn on cpu and on the device: equal results (and arguments after), or equal errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours_args = [mirror(a) if isinstance(a, torch.Tensor) else a for a in args]
        cpu_args = list(args)
        wide_args = [widen(a) for a in args]
        failure = None
        try:
            expected = fn(*cpu_args)
        except Exception as error:
            failure = error
        if failure is not None:
            try:
                fn(*ours_args)
            except type(failure) as error:
                assert plain_message(error) == plain_message(failure), what
                return
            pytest.fail(f"{what}: accepted, but cpu raises {failure!r}")
        result = fn(*ours_args)
        exact = fn(*wide_args)
    same(result, expected, what, exact)
    for mine, theirs, wide in zip(ours_args, cpu_args, wide_args, strict=True):
        if isinstance(theirs, torch.Tensor):
            same(mine, theirs, what + " (argument)", wide)


def is_bool_on_cpu(x: torch.Tensor) -> bool:
    return x.dtype == torch.bool and x.device.type == "cpu"


def magnitude(x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """abs. Of bool it is the tensor itself, and PyTorch's cpu, unlike CUDA, has none."""
    if is_bool_on_cpu(x):
        return torch.bitwise_not(x.bitwise_not(), out=out)
    return torch.abs(x, out=out)


def magnitude_(x: torch.Tensor) -> torch.Tensor:
    return x.bitwise_not_().bitwise_not_() if is_bool_on_cpu(x) else x.abs_()


def layouts(dtype: torch.dtype, seed: int = 0) -> list[tuple[str, torch.Tensor]]:
    return [
        ("vector", make((16,), dtype, seed)),
        ("0-dim", make((), dtype, seed)),
        ("empty", make((0, 3), dtype, seed)),
        ("matrix", make((5, 7), dtype, seed)),
        ("transposed", make((7, 5), dtype, seed).t()),
        ("offset slice", make((9, 9), dtype, seed)[2:7, 1:8]),
        ("strided", make((10, 14), dtype, seed)[::2, ::2]),
        ("expanded", make((1, 7), dtype, seed).expand(5, 7)),
        ("column", make((5, 1), dtype, seed)),
        ("channels last", make((2, 3, 4, 5), dtype, seed).to(memory_format=torch.channels_last)),
        ("permuted", make((3, 4, 5), dtype, seed).permute(2, 0, 1)),
    ]


SINGLE = ["vector", "0-dim", "empty", "transposed", "offset slice", "expanded", "permuted"]

# --- One tensor ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    fn = magnitude if name == "abs" else getattr(torch, name)
    for dtype in ALL:
        for label, x in layouts(dtype):
            compare(fn, x, what=f"{name} {dtype} {label}")


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_tensor_and_numbers(name: str) -> None:
    for dtype in ALL:
        for label, x in layouts(dtype):
            compare(ACTIVATIONS[name], x, what=f"{name} {dtype} {label}")


@pytest.mark.parametrize("name", UNARY)
def test_unary_in_place_and_out(name: str) -> None:
    in_place = magnitude_ if name == "abs" else getattr(torch.Tensor, name + "_", None)
    for dtype in [torch.float32, torch.bfloat16, torch.int32, torch.bool]:
        for label, x in layouts(dtype):
            what = f"{name} {dtype} {label}"
            if in_place is not None:
                compare(lambda a, f=in_place: f(a), x.clone(), what=what + " in place")
                compare(lambda a, f=in_place: f(a), x, what=what + " in place, as it is")
            if name in ("isnan", "relu"):
                continue
            # The refusal of another dtype names the one in which abs of bool is computed.
            computed_wider = name == "abs" and dtype == torch.bool
            for out_dtype in [dtype] if computed_wider else [torch.float32, torch.int32, dtype]:
                out = torch.zeros(x.shape, dtype=out_dtype)
                fn = magnitude if name == "abs" else getattr(torch, name)
                compare(lambda a, o, f=fn: f(a, out=o), x, out, what=f"{what} out={out_dtype}")


def test_special_values() -> None:
    values = [0.0, -0.0, 1.0, -1.0, 1e-30, 1e30, torch.inf, -torch.inf, torch.nan]
    for dtype in [torch.float32, torch.float64]:
        x = torch.tensor(values, dtype=dtype)
        y = x.flip(0).contiguous()
        for name in UNARY:
            if name != "bitwise_not":
                compare(getattr(torch, name), x, what=f"{name} {dtype}")
        for name in ["minimum", "maximum", "eq", "lt", "pow", "div", "logical_and", "clamp_min"]:
            for a, b in itertools.product(values, values):
                s = torch.tensor([a], dtype=dtype)
                compare(
                    getattr(torch, name), s, torch.tensor([b], dtype=dtype), what=f"{name} {a} {b}"
                )
            compare(getattr(torch, name), x, y, what=f"{name} {dtype}")


# --- Two and three tensors -------------------------------------------------------------------


@pytest.mark.parametrize("name", BINARY)
def test_binary_layouts(name: str) -> None:
    for dtype in [torch.float32, torch.int64, torch.bfloat16, torch.bool]:
        pairs = itertools.product(layouts(dtype, 1), layouts(dtype, 2))
        for (label_x, x), (label_y, y) in pairs:
            try:
                torch.broadcast_shapes(x.shape, y.shape)
            except RuntimeError:
                if label_x != "matrix":
                    continue  # one kind of mismatch per shape is enough
            if name in NO_BROADCAST and x.shape != y.shape:
                continue
            compare(BINARY[name], x, y, what=f"{name} {dtype} {label_x} {label_y}")


@pytest.mark.parametrize("name", BINARY)
def test_binary_types(name: str) -> None:
    for left, right in itertools.product(ALL, ALL):
        x, y = make((3, 5), left, 1), make((3, 5), right, 2)
        what = f"{name} {left} {right}"
        compare(BINARY[name], x, y, what=what)
        if name in NO_BROADCAST:
            continue
        compare(BINARY[name], x[0, 0], y, what=what + " 0-dim first")
        compare(BINARY[name], x, y[0, 0], what=what + " 0-dim second")
        compare(BINARY[name], x, y[0], what=what + " row")


@pytest.mark.parametrize("name", TERNARY)
def test_ternary(name: str) -> None:
    for dtypes in itertools.product([torch.float32, torch.int64, torch.bfloat16], repeat=3):
        x, y, z = (make((4, 6), d, k) for k, d in enumerate(dtypes))
        compare(TERNARY[name], x, y, z, what=f"{name} {dtypes}")
        compare(TERNARY[name], x, y[0], z[0, 0], what=f"{name} {dtypes} broadcast")
    for dtype in ALL:
        for label, x in layouts(dtype, 1):
            y, z = make(tuple(x.shape), dtype, 2), make(tuple(x.shape), dtype, 3)
            compare(TERNARY[name], x, y, z, what=f"{name} {dtype} {label}")
            compare(TERNARY[name], y, x, z, what=f"{name} {dtype} {label} second")


NUMBERS = [2, -3, 0, 2.5, True, 300, 1e30, float("nan"), float("inf")]
OPERATORS: dict[str, Fn] = {
    "x+s": lambda x, s: x + s,
    "s+x": lambda x, s: s + x,
    "x-s": lambda x, s: x - s,
    "s-x": lambda x, s: s - x,
    "x*s": lambda x, s: x * s,
    "x/s": lambda x, s: x / s,
    "s/x": lambda x, s: s / x,
    "x**s": lambda x, s: x**s,
    "s**x": lambda x, s: s**x,
    "x==s": lambda x, s: x == s,
    "x<s": lambda x, s: x < s,
    "s>=x": lambda x, s: s >= x,
    "x&s": lambda x, s: x & s,
    "clamp_min": lambda x, s: x.clamp_min(s),
    "clamp": lambda x, s: x.clamp(s, 4),
    "masked_fill": lambda x, s: x.masked_fill(x > 1, s),
    "fill_": lambda x, s: x.clone().fill_(s),
    "x+=s": lambda x, s: x.clone().add_(s),
    "x*=s": lambda x, s: x.clone().mul_(s),
    "x/=s": lambda x, s: x.clone().div_(s),
    "x-=s": lambda x, s: x.clone().sub_(s),
    "eq_": lambda x, s: x.clone().eq_(s),
    "masked_fill_": lambda x, s: x.clone().masked_fill_(x > 1, s),
    "leaky_relu": lambda x, s: F.leaky_relu(x, s),
    "threshold": lambda x, s: F.threshold(x, s, s),
    "hardtanh": lambda x, s: F.hardtanh(x, -1, s),
    "add_alpha": lambda x, s: torch.add(x, x, alpha=s),
    "sub_alpha": lambda x, s: torch.sub(x, x, alpha=s),
    "addcmul": lambda x, s: torch.addcmul(x, x, x, value=s),
    "lerp": lambda x, s: torch.lerp(x, x, s),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_numbers(name: str) -> None:
    for dtype, number in itertools.product(ALL, NUMBERS):
        for shape in [(7,), ()]:
            x = make(shape, dtype)
            compare(lambda t, s=number: OPERATORS[name](t, s), x, what=f"{name} {dtype} {number}")


def test_big_tensors_use_the_same_rules() -> None:
    for dtype in [torch.float32, torch.bfloat16, torch.int32]:
        x, y = make((301, 203), dtype, 1), make((301, 203), dtype, 2)
        for a, b in [(x, y), (x, y.t().contiguous().t()), (x, y[:1]), (x, y[:, :1]), (x, y[0, 0])]:
            for name in ["add", "mul", "maximum", "lt", "sub_alpha", "where"]:
                compare(BINARY[name], a, b, what=f"{name} {dtype}")
        compare(lambda t: t.clone().add_(1), x, what="in place")
        compare(lambda t: t * 2 + 1, x[::2, 1:], what="slice")


# --- Destinations ----------------------------------------------------------------------------


def test_in_place_keeps_identity_and_counts_versions() -> None:
    x = torch.ones(4, device="hologram")
    before, pointer = x._version, x.data_ptr()
    assert x.add_(1) is x and x.mul_(2.0) is x and x.clamp_(0, 3) is x
    assert x._version == before + 3 and x.data_ptr() == pointer
    out = torch.empty(4, device="hologram")
    pointer = out.data_ptr()
    assert torch.add(x, x, out=out) is out
    assert out.data_ptr() == pointer and out._version == 1


def test_in_place_layouts_and_types() -> None:
    targets = [torch.float32, torch.bfloat16, torch.int32, torch.bool]
    for dtype, other in itertools.product(targets, targets):
        for label, x in layouts(dtype, 1):
            for name in ["add_", "mul_", "div_", "eq_", "logical_and_", "bitwise_or_", "pow_"]:
                what = f"{name} {dtype} {other} {label}"
                y = make(tuple(x.shape), other, 2)
                compare(lambda a, b, n=name: getattr(a, n)(b), x.clone(), y, what=what)
                compare(lambda a, b, n=name: getattr(a, n)(b), x.clone(), y.new_ones(()), what=what)
                compare(lambda a, b, n=name: getattr(a, n)(b), x, y, what=what + " as it is")
    a, b = make((1, 4), torch.float32), make((3, 4), torch.float32)
    compare(lambda x, y: x.add_(y), a, b, what="cannot grow in place")


def test_out() -> None:
    x, y = make((4, 5), torch.float32, 1), make((4, 5), torch.float32, 2)
    outs = [
        torch.empty(4, 5),
        torch.empty(0),
        torch.empty(20),
        torch.empty(5, 4).t(),
        torch.empty(4, 10)[:, ::2],
        torch.empty(4, 5, dtype=torch.float64),
        torch.empty(4, 5, dtype=torch.float16),
        torch.empty(4, 5, dtype=torch.int64),
        torch.empty(4, 5, dtype=torch.bool),
        torch.empty(4, 5, dtype=torch.complex64),
        torch.empty(1, 5).expand(4, 5),
    ]
    for k, out in enumerate(outs):
        out.zero_() if k != 10 else None
        for fn in [torch.add, torch.lt, torch.logical_or]:
            compare(lambda a, b, o, f=fn: f(a, b, out=o), x, y, out, what=f"{fn.__name__} {k}")
        compare(lambda a, o: torch.exp(a, out=o), x, out, what=f"exp {k}")
        compare(lambda a, o: torch.clamp(a, -1, 1, out=o), x, out, what=f"clamp {k}")


def test_out_resizes_with_a_warning() -> None:
    x = torch.ones(3, device="hologram")
    out = torch.empty(2, device="hologram")
    with pytest.warns(UserWarning, match="resized"):
        torch.add(x, x, out=out)
    assert out.tolist() == [2, 2, 2]


def overlapping(size: int) -> torch.Tensor:
    return torch.arange(float(size))


OVERLAPS: dict[str, Fn] = {
    "self twice": lambda t: t[1:].add_(t[1:]),
    "shifted": lambda t: t[1:].add_(t[:-1]),
    "shifted copy": lambda t: t[1:].copy_(t[:-1]),
    "apart": lambda t: t[:8].add_(t[8:16]),
    "interleaved": lambda t: t[::2].mul_(t[1::2]),
    "reversed rows": lambda t: t[:16].view(4, 4).add_(t[:16].view(4, 4).t()),
    "row of itself": lambda t: t[:16].view(4, 4).add_(t[:4]),
    "expanded target": lambda t: t[:1].expand(4).add_(1),
    "expanded fill": lambda t: t[:1].expand(4).fill_(1),
    "expanded zero": lambda t: t[:1].expand(4).zero_(),
    "expanded copy": lambda t: t[:1].expand(4).copy_(t[4:8]),
    "windows": lambda t: t.as_strided((3, 3), (1, 1)).add_(1),
    "out is input": lambda t: torch.add(t, t, out=t),
    "out meets input": lambda t: torch.add(t[1:9], 1, out=t[:8]),
    "out holds input": lambda t: torch.mul(t[:4], t[4:8], out=t[2:6]),
    "bool over floats": lambda t: torch.lt(t[:4], 1, out=t.view(torch.bool)[:4]),
    "cube in place": lambda t: t.pow_(3),
    "cube shifted": lambda t: torch.pow(t[1:9], 3, out=t[:8]),
    "clamp shifted": lambda t: torch.clamp(t[1:9], 1, 2, out=t[:8]),
    "masked": lambda t: t.masked_fill_(t > 3, -1),
}


@pytest.mark.parametrize("name", [n for n in OVERLAPS if n not in ("windows", "bool over floats")])
def test_overlap(name: str) -> None:
    compare(OVERLAPS[name], overlapping(16), what=name)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("round", torch.float16), ("exp", torch.complex32), ("abs", torch.bool)],
)
def test_overlap_of_what_is_computed_wider(name: str, dtype: torch.dtype) -> None:
    fn = getattr(torch, name)
    for what, run in {
        "shifted": lambda t: fn(t[1:], out=t[:-1]),
        "turned": lambda t: fn(t.view(3, 2).t(), out=t.view(2, 3)),
        "one element": lambda t: fn(t[:4], out=t[5:].expand(4)),
    }.items():
        t = overlapping(6).to(dtype)
        ours = t.to("hologram")
        refusals = []
        for x in (t, ours):
            with pytest.raises(RuntimeError, match="to a single memory location") as caught:
                run(x)
            refusals.append(str(caught.value))
        assert refusals[0] == refusals[1], what
        same(ours, t, what)


# --- Other devices, lazy bits, odd types -----------------------------------------------------


def test_numbers_on_the_cpu_are_accepted_and_other_tensors_are_not() -> None:
    x = make((3,), torch.float32)
    ours = mirror(x)
    for dtype in REALS:
        number = make((), dtype, 3)
        for name in ["add", "mul", "lt", "maximum", "pow"]:
            fn = BINARY[name]
            same(fn(ours, number), fn(x, number), f"{name} {dtype}")
            same(fn(number, ours), fn(number, x), f"{name} {dtype} first")
    for fn in [torch.add, torch.eq, torch.maximum, lambda a, b: a.add_(b)]:
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            fn(ours, x)


def test_lazy_bits_and_rare_types() -> None:
    z = make((4,), torch.complex64)
    compare(lambda t: t.conj() * 2, z, what="conj")
    compare(lambda t: t.conj().imag + 1, z, what="neg")
    compare(lambda t: t.imag.exp(), z, what="imag")
    for dtype in [torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn]:
        x = make((4,), torch.uint8).to(dtype)
        compare(lambda t: t == t, x, what=str(dtype))
        compare(lambda t: t.clone().copy_(t), x, what=f"copy {dtype}")
        compare(lambda t: t.to(torch.float32), x, what=f"cast {dtype}")


def test_negative_zero_dim_wrapped_and_default_dtype() -> None:
    try:
        torch.set_default_dtype(torch.float64)
        compare(lambda t: torch.sqrt(t), make((3,), torch.int32).abs(), what="int sqrt")
        compare(lambda t: t / 2, make((3,), torch.int32), what="int div")
        compare(lambda t: t + 0.5, make((3,), torch.int32), what="int add")
    finally:
        torch.set_default_dtype(torch.float32)


# --- Copies and fills ------------------------------------------------------------------------


def test_copies_between_all_types_and_layouts() -> None:
    for source, target in itertools.product(ALL, ALL):
        for label, x in layouts(source, 4):
            what = f"{source} to {target} {label}"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compare(lambda t, d=target: t.to(d), x, what=what)
                out = torch.zeros(tuple(x.shape), dtype=target)
                compare(lambda o, t: o.copy_(t), out, x, what=what + " copy_")
    for source, target in [(torch.float32, torch.float32), (torch.int64, torch.bfloat16)]:
        for label, x in layouts(source, 4):
            assert torch.equal(mirror(x).to("cpu"), x), label
            assert mirror(x).to("cpu").stride() == x.to(source, copy=True).stride(), label
            assert torch.equal(mirror(x).to("cpu", target), x.to(target)), label
            assert torch.equal(x.to("hologram", target).cpu(), x.to(target)), label
            assert torch.equal(x.clone().zero_().copy_(mirror(x)), x) if label != "expanded" else 1


def test_copy_broadcasts_and_refuses() -> None:
    x = make((3, 4), torch.float32)
    compare(lambda o, t: o.copy_(t), x.clone(), make((4,), torch.float32), what="row")
    compare(lambda o, t: o.copy_(t), x.clone(), make((3, 1), torch.int64), what="column")
    compare(lambda o, t: o.copy_(t), x.clone(), make((), torch.float64), what="number")
    compare(lambda o, t: o.copy_(t), x.clone(), make((2, 4), torch.float32), what="mismatch")
    compare(lambda o, t: o.copy_(t), x.t(), make((4, 3), torch.float32), what="transposed")


def test_conversions_of_hard_values() -> None:
    x = torch.tensor([0.0, -0.0, 0.5, -0.5, 1.5, 2.5, 127.9, -127.9, 3.0, 65504.0, 1e-8])
    for target in [*FLOATS, torch.int32, torch.int64, torch.bool]:
        compare(lambda t, d=target: t.to(d), x, what=str(target))
    special = torch.tensor([torch.nan, torch.inf, -torch.inf, 1e30, 65520.0, 3.0e38, 1e-45])
    for target in [*FLOATS, torch.bool]:
        compare(lambda t, d=target: t.to(d), special, what=str(target))


def test_fill() -> None:
    for dtype in ALL:
        for label, x in layouts(dtype):
            for value in [0, 1, 2.5, True]:
                compare(lambda t, v=value: t.fill_(v), x.clone(), what=f"{dtype} {label} {value}")
            compare(lambda t: t.fill_(torch.ones((), dtype=t.dtype, device=t.device)), x.clone())
            compare(lambda t: t.zero_(), x.clone(), what=f"zero_ {dtype} {label}")
    compare(lambda t: t[1:, ::2].fill_(3), make((6, 8), torch.float32), what="slice")
    compare(lambda t: t[1:, ::2].zero_(), make((6, 8), torch.int16), what="slice")
    compare(lambda t: t.fill_(3.5), make((300, 300), torch.float32), what="big")
    compare(lambda t: t.fill_(3.5), make((300, 300), torch.bfloat16), what="big")
    compare(lambda t: t.zero_(), make((300, 300), torch.int64), what="big")


# --- Autograd --------------------------------------------------------------------------------


def test_gradients_match() -> None:
    fns: list[Fn] = [
        *(getattr(torch, n) for n in ["exp", "tanh", "sigmoid", "sqrt", "sin", "erf", "log1p"]),
        F.silu,
        F.gelu,
        F.relu,
        F.softplus,
        F.elu,
        F.leaky_relu,
        F.hardtanh,
        lambda x: x**3,
        lambda x: x * x + x / 2 - 1,
        lambda x: torch.where(x > 1, x, 2 * x),
        lambda x: torch.addcmul(x, x, x, value=0.5),
        lambda x: torch.lerp(x, x * 2, 0.3),
        lambda x: x.clone().mul_(2).add_(x),
        lambda x: x.to(torch.float64) * 2,
        lambda x: x.masked_fill(x > 1, 0) + x.clamp(0.3, 2),
    ]
    for k, fn in enumerate(fns):
        cpu = (
            torch.rand(5, 3, generator=torch.Generator().manual_seed(k)) * 3 + 0.1
        ).requires_grad_()
        ours = cpu.detach().to("hologram").requires_grad_()
        fn(cpu).sum().backward()
        fn(ours).sum().backward()
        same(ours.grad, cpu.grad, f"gradient {k}")


# --- Completeness ----------------------------------------------------------------------------

ROW_OF: dict[str, str] = {
    "square": "pow",
    "gelu_tanh": "gelu",
    "gelu_tanh_backward": "gelu_backward",
    "add_scaled": "add",
    "cube": "pow",
    "finite_or": "nan_to_num",
    "logsigmoid": "log_sigmoid_forward",
    "logsigmoid_backward": "log_sigmoid_backward",
}
LIBRARY_ONLY = {"fma", "squared_difference", "squared_difference_backward"}


def test_every_row_has_its_aten_op() -> None:
    native = {name.split(".")[0] for name in _C._native_ops()}
    missing = [r for r in _C._op_rows() if r not in LIBRARY_ONLY and ROW_OF.get(r, r) not in native]
    assert not missing


def test_native_ops_do_not_fall_back() -> None:
    x = torch.rand(8, 4, device="hologram")
    y = torch.rand(4, 8, device="hologram").t()
    hologram_torch.reset_fallback_counts()
    _ = x + y, x * 2.0, 3 - x, x.exp_(), torch.where(x > 1, x, y), x.to(torch.bfloat16) * 2
    _ = F.gelu(x), x.clamp(0, 1), x.mul_(y), x.copy_(y), x.fill_(2), x.zero_(), x.cpu()
    _ = torch.add(x, y, out=torch.empty_like(y)), x**3, x == 1, x[::2] + 1, x + x[0]
    assert hologram_torch.fallback_counts() == {}
