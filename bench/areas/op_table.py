# SPDX-License-Identifier: MIT
"""How PyTorch calls each op that is measured: expressions over operands."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hologram._hologram import rows

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


# Rows with operands of their own; the others take normal numbers.
_OPERANDS = {
    **dict.fromkeys("sqrt rsqrt log log2 log10 log1p digamma".split(), (P,)),
    **dict.fromkeys("bitwise_and bitwise_or bitwise_xor".split(), (K, L)),
    "bitwise_not": (K,),
    "erfinv": ("x:unit",),
    "pow": (P, Y),
    "sigmoid_backward": (X, "y:unit"),
    "tanh_backward": (X, "y:unit"),
    "addcdiv": (X, Y, "z:positive"),
}

# Rows that PyTorch calls by another name or with other numbers; None with the reason beside it.
_CALLS: dict[str, Op | None] = {
    "gelu_tanh": Op("F.gelu(x, approximate='tanh')", (X,)),
    "gelu_tanh_backward": Op("aten.gelu_backward.default(x, y, approximate='tanh')", (X, Y)),
    "squared_difference": Op("F.mse_loss(x, y, reduction='none')", (X, Y)),
    "squared_difference_backward": Op(
        "aten.mse_loss_backward.default(g, x, y, 1)", ("g:normal:1", X, Y)
    ),
    "fma": None,  # no operator of PyTorch rounds once
    "clamp": Op("torch.clamp(x, -0.5, 0.5)", (X,)),
    "where": Op("torch.where(m, x, y)", (M, X, Y)),
    "add_scaled": Op("torch.add(x, y, alpha=0.5)", (X, Y)),
    "addcmul": Op("torch.addcmul(x, y, z, value=0.5)", (X, Y, Z)),
    "addcdiv": Op("torch.addcdiv(x, y, z, value=0.5)", _OPERANDS["addcdiv"]),
    "leaky_relu_backward": Op("aten.leaky_relu_backward.default(x, y, 0.1, False)", (X, Y)),
    "softplus": Op("F.softplus(x)", (X,)),
    "softplus_backward": Op("aten.softplus_backward.default(x, y, 1.0, 20.0)", (X, Y)),
    "elu": Op("F.elu(x)", (X,)),
    "elu_backward": Op("aten.elu_backward.default(x, 1.0, 1.0, 1.0, False, y)", (X, Y)),
    "hardtanh_backward": Op("aten.hardtanh_backward.default(x, y, -1.0, 1.0)", (X, Y)),
}


def _call(name: str, arity: int, params: int) -> Op | None:
    """Return how PyTorch calls a row: its tensors, then a number for each parameter."""
    if name in _CALLS:
        return _CALLS[name]
    letters = "xyz"[: arity - params]
    arguments = ", ".join([*letters, *["0.5"] * params])
    operands = _OPERANDS.get(name, (X, Y, Z)[: len(letters)])
    if hasattr(torch, name):
        return Op(f"torch.{name}({arguments})", operands)
    if hasattr(torch.nn.functional, name):
        return Op(f"F.{name}({arguments})", operands)
    return Op(f"aten.{name}.default({arguments})", operands)


# Every row of the table.
ELEMENTWISE = {name: _call(name, arity, params) for name, arity, params, *_ in rows._table}

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


def all_ops() -> dict[str, Op]:
    """Return every op by name, those of the table first."""
    return {**{k: op for k, op in ELEMENTWISE.items() if op is not None}, **OTHERS}
