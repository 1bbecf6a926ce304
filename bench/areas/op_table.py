# SPDX-License-Identifier: MIT
"""How PyTorch calls each op that is measured: expressions over operands."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bench.machine import ROOT

TABLE = ROOT / "src" / "ops" / "elementwise.def"

# Operands: kind and how many elements, "n" all, "n/10" a tenth ..., shape by "x" between.
X, Y, Z = "x:normal", "y:normal", "z:normal"
P, Q = "x:positive", "y:positive"
K, L = "x:int32", "y:int32"
M = "m:mask"
ROWS, LABELS = "x:normal:n/100x100", "t:classes10:n/10"


@dataclass(frozen=True)
class Op:
    """How PyTorch calls an op: an expression over operands."""

    expression: str
    operands: tuple[str, ...]
    result: str = "n"  # shape of the result


def _unaries(names: str, operand: str = X) -> dict[str, Op | None]:
    return {name: Op(f"torch.{name}(x)", (operand,)) for name in names.split()}


def _binaries(names: str, *operands: str) -> dict[str, Op | None]:
    return {name: Op(f"torch.{name}(x, y)", operands) for name in names.split()}


# Every row of the table, or None with the reason beside it.
ELEMENTWISE: dict[str, Op | None] = {
    **_unaries("neg abs reciprocal exp exp2 expm1 sin cos tan tanh erf sigmoid relu"),
    **_unaries("floor ceil trunc round square sign logical_not isnan"),
    **_unaries("sqrt rsqrt log log2 log10 log1p", P),
    **_unaries("bitwise_not", K),
    **_binaries("add sub mul div minimum maximum eq ne lt le gt ge", X, Y),
    **_binaries("logical_and logical_or logical_xor", X, Y),
    **_binaries("bitwise_and bitwise_or bitwise_xor", K, L),
    **_binaries("pow", P, Y),
    "silu": Op("F.silu(x)", (X,)),
    "gelu": Op("F.gelu(x)", (X,)),
    "gelu_tanh": Op("F.gelu(x, approximate='tanh')", (X,)),
    "squared_difference": Op("F.mse_loss(x, y, reduction='none')", (X, Y)),
    "leaky_relu": Op("F.leaky_relu(x, 0.1)", (X,)),
    "sigmoid_backward": Op("aten.sigmoid_backward.default(x, y)", (X, "y:unit")),
    "tanh_backward": Op("aten.tanh_backward.default(x, y)", (X, "y:unit")),
    "silu_backward": Op("aten.silu_backward.default(x, y)", (X, Y)),
    "gelu_backward": Op("aten.gelu_backward.default(x, y)", (X, Y)),
    "gelu_tanh_backward": Op("aten.gelu_backward.default(x, y, approximate='tanh')", (X, Y)),
    "fma": None,  # no operator of PyTorch rounds once
    "clamp": Op("torch.clamp(x, -0.5, 0.5)", (X,)),
    "where": Op("torch.where(m, x, y)", (M, X, Y)),
    "lerp": Op("torch.lerp(x, y, 0.3)", (X, Y)),
    "add_scaled": Op("torch.add(x, y, alpha=0.5)", (X, Y)),
    "threshold": Op("F.threshold(x, 0.1, 0.0)", (X,)),
    "threshold_backward": Op("aten.threshold_backward.default(x, y, 0.0)", (X, Y)),
    "leaky_relu_backward": Op("aten.leaky_relu_backward.default(x, y, 0.1, False)", (X, Y)),
    "softplus": Op("F.softplus(x)", (X,)),
    "softplus_backward": Op("aten.softplus_backward.default(x, y, 1.0, 20.0)", (X, Y)),
    "squared_difference_backward": Op(
        "aten.mse_loss_backward.default(g, x, y, 1)", ("g:normal:1", X, Y)
    ),
    "addcmul": Op("torch.addcmul(x, y, z, value=0.5)", (X, Y, Z)),
    "addcdiv": Op("torch.addcdiv(x, y, z, value=0.5)", (X, Y, "z:positive")),
    "elu": Op("F.elu(x)", (X,)),
    "hardtanh_backward": Op("aten.hardtanh_backward.default(x, y, -1.0, 1.0)", (X, Y)),
}

OTHERS: dict[str, Op] = {
    "add scalar": Op("x + 1.5", (X,)),
    "mul scalar": Op("x * 2.0", (X,)),
    "div scalar": Op("x / 3.0", (X,)),
    "pow scalar 3": Op("x ** 3", (X,)),
    "hardtanh": Op("F.hardtanh(x)", (X,)),
    "add in place": Op("x.add_(s)", (X, "s:small")),
    "add row": Op("x + b", (ROWS, "b:normal:100"), "n/100x100"),
    "add column": Op("x + b", (ROWS, "b:normal:n/100x1"), "n/100x100"),
    "sum": Op("x.sum()", (X,), "1"),
    "sum of rows": Op("x.sum(-1)", (ROWS,), "n/100"),
    "sum of columns": Op("x.sum(0)", (ROWS,), "100"),
    "mean": Op("x.mean()", (X,), "1"),
    "amax": Op("x.amax()", (X,), "1"),
    "amax of rows": Op("x.amax(-1)", (ROWS,), "n/100"),
    "argmax": Op("x.argmax()", (X,), "1"),
    "argmax of rows": Op("x.argmax(-1)", (ROWS,), "n/100"),
    "var": Op("x.var()", (X,), "1"),
    "softmax": Op("torch.softmax(x, 0)", (X,)),
    "softmax of rows": Op("torch.softmax(x, -1)", (ROWS,), "n/100x100"),
    "log_softmax": Op("torch.log_softmax(x, 0)", (X,)),
    "log_softmax of rows": Op("torch.log_softmax(x, -1)", (ROWS,), "n/100x100"),
    "mse_loss": Op("F.mse_loss(x, y)", (X, Y), "1"),
    "cross_entropy": Op("F.cross_entropy(x, t)", ("x:normal:n/10x10", LABELS), "1"),
}


def table_rows() -> list[str]:
    """Return the names of the op table's rows."""
    return re.findall(r"^HOLOGRAM_[A-Z]+\((\w+),", TABLE.read_text(), re.MULTILINE)


def all_ops() -> dict[str, Op]:
    """Return every op by name, those of the table first."""
    return {**{k: op for k, op in ELEMENTWISE.items() if op is not None}, **OTHERS}
