# SPDX-License-Identifier: MIT
"""How PyTorch calls each op that is measured: expressions over operands."""

from __future__ import annotations

import torch

from bench.inputs import Op
from hologram._hologram import rows

# Operands, as bench.inputs.Op reads them.
P, XY, XYZ = "x:positive", "x y", "x y z"
ROWS = "x:normal:n/100x100"

# Rows with operands of their own; the others take normal numbers.
_OPERANDS = {
    **dict.fromkeys("sqrt rsqrt log log2 log10 log1p digamma acosh".split(), P),
    **dict.fromkeys("erfinv asin acos atanh".split(), "x:unit"),
    **dict.fromkeys("bitwise_and bitwise_or bitwise_xor".split(), "x:int32 y:int32"),
    "bitwise_not": "x:int32",
    "pow": f"{P} y",
    "xlogy": "x y:positive",
    "sigmoid_backward": "x y:unit",
    "tanh_backward": "x y:unit",
    "addcdiv": "x y z:positive",
}

# Rows that PyTorch calls by another name or with other numbers; None with the reason beside it.
_CALLS: dict[str, Op | None] = {
    "gelu_tanh": Op("F.gelu(x, approximate='tanh')"),
    "gelu_tanh_backward": Op("aten.gelu_backward.default(x, y, approximate='tanh')", XY),
    "squared_difference": Op("F.mse_loss(x, y, reduction='none')", XY),
    "squared_difference_backward": Op(
        "aten.mse_loss_backward.default(g, x, y, 1)", "g:normal:1 x y"
    ),
    "cube": Op("x ** 3"),
    "finite_or": Op("torch.nan_to_num(x, 0.5, 0.5, -0.5)"),
    "logsigmoid_backward": None,  # PyTorch's takes what its own forward has kept
    "fma": None,  # no operator of PyTorch rounds once
    "clamp": Op("torch.clamp(x, -0.5, 0.5)"),
    "where": Op("torch.where(m, x, y)", "m:mask x y"),
    "add_scaled": Op("torch.add(x, y, alpha=0.5)", XY),
    "addcmul": Op("torch.addcmul(x, y, z, value=0.5)", XYZ),
    "addcdiv": Op("torch.addcdiv(x, y, z, value=0.5)", _OPERANDS["addcdiv"]),
    "leaky_relu_backward": Op("aten.leaky_relu_backward.default(x, y, 0.1, False)", XY),
    "softplus": Op("F.softplus(x)"),
    "softplus_backward": Op("aten.softplus_backward.default(x, y, 1.0, 20.0)", XY),
    "elu": Op("F.elu(x)"),
    "elu_backward": Op("aten.elu_backward.default(x, 1.0, 1.0, 1.0, False, y)", XY),
    "hardtanh_backward": Op("aten.hardtanh_backward.default(x, y, -1.0, 1.0)", XY),
}


def _call(name: str, arity: int, params: int) -> Op | None:
    """Return how PyTorch calls a row: its tensors, then a number for each parameter."""
    if name in _CALLS:
        return _CALLS[name]
    letters = "xyz"[: arity - params]
    arguments = ", ".join([*letters, *["0.5"] * params])
    operands = _OPERANDS.get(name, " ".join(letters))
    if hasattr(torch, name):
        return Op(f"torch.{name}({arguments})", operands)
    if hasattr(torch.nn.functional, name):
        return Op(f"F.{name}({arguments})", operands)
    return Op(f"aten.{name}.default({arguments})", operands)


# Every row of the table.
ELEMENTWISE = {name: _call(name, arity, params) for name, arity, params, *_ in rows._table}

OTHERS: dict[str, Op] = {
    "add scalar": Op("x + 1.5"),
    "mul scalar": Op("x * 2.0"),
    "div scalar": Op("x / 3.0"),
    "hardtanh": Op("F.hardtanh(x)"),
    "add in place": Op("x.add_(s)", "!x s:small"),
    "add row": Op("x + b", f"{ROWS} b:normal:100", "n/100x100"),
    "add column": Op("x + b", f"{ROWS} b:normal:n/100x1", "n/100x100"),
    "sum": Op("x.sum()", "x", "1"),
    "sum of rows": Op("x.sum(-1)", ROWS, "n/100"),
    "sum of columns": Op("x.sum(0)", ROWS, "100"),
    "mean": Op("x.mean()", "x", "1"),
    "amax": Op("x.amax()", "x", "1"),
    "amax of rows": Op("x.amax(-1)", ROWS, "n/100"),
    "argmax": Op("x.argmax()", "x", "1"),
    "argmax of rows": Op("x.argmax(-1)", ROWS, "n/100"),
    "var": Op("x.var()", "x", "1"),
    "softmax": Op("torch.softmax(x, 0)"),
    "softmax of rows": Op("torch.softmax(x, -1)", ROWS, "n/100x100"),
    "log_softmax": Op("torch.log_softmax(x, 0)"),
    "log_softmax of rows": Op("torch.log_softmax(x, -1)", ROWS, "n/100x100"),
    "mse_loss": Op("F.mse_loss(x, y)", XY, "1"),
    "cross_entropy": Op("F.cross_entropy(x, t)", "x:normal:n/10x10 t:classes10:n/10", "1"),
}


def all_ops() -> dict[str, Op]:
    """Return every op by name, those of the table first."""
    return {**{k: op for k, op in ELEMENTWISE.items() if op is not None}, **OTHERS}
