# SPDX-License-Identifier: MIT
"""Functions made of the catalogue of calls.

`hologram.layer_norm(x, ...)` takes tensors and arrays, `hologram.ops.layer_norm(ex, x, ..., out)`
buffers of an executor.

A call's row (src/ops/calls.def) says everything that a function needs: its operands and their
shapes, its parameters and their defaults, its results.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

from hologram import _hologram
from hologram._hologram import Buffer, Executor, Tensor, _operand

_POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD
_KEYWORD = inspect.Parameter.KEYWORD_ONLY

_DTYPES = {
    "A": "any dtype",
    "N": "a floating dtype, int32 or int64",
    "T": "a floating dtype",
    "P": "a floating dtype",
    "S": "a floating dtype",
    "R": "float32 or float64",
    "I": "int32 or int64",
    "L": "int64",
    "C": "int8",
    "U": "uint8",
    "B": "bool",
    "F": "float32",
}


class Call:
    """One row: what its functions are made of."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.name: str = row["name"]
        self.doc: str = row["doc"]
        self.schema: str = row["schema"]
        self.inputs = [o for o in row["operands"] if not o["is_result"]]
        self.results = [o for o in row["operands"] if o["is_result"]]
        self.visible = [o for o in self.results if not o["is_saved"]]
        self.updated = [o for o in self.inputs if o["is_updated"]]
        self.parameters = row["parameters"]

    def _defaults(self) -> list[inspect.Parameter]:
        parameters = []
        for p in self.parameters:
            default: Any = inspect.Parameter.empty
            if not p["is_required"]:
                default = p["default"]
                if p["default_of"] or (p["kind"] == "float" and math.isnan(default)):
                    default = None
                elif p["kind"] == "bool":
                    default = bool(default)
                elif p["kind"] != "float":
                    default = int(default)
            parameters.append(inspect.Parameter(p["name"], _KEYWORD, default=default))
        return parameters

    def signature(self, on_buffers: bool) -> inspect.Signature:
        """Return the signature of the function on tensors, or of that on an executor's buffers."""
        empty = inspect.Parameter.empty
        parameters = [inspect.Parameter("ex", _POSITIONAL)] if on_buffers else []
        optional = False
        for o in self.inputs:
            # Python wants no operand without a default behind one with it.
            optional = optional or (o["is_optional"] and not on_buffers)
            default = None if optional else empty
            parameters.append(inspect.Parameter(o["name"], _POSITIONAL, default=default))
        if on_buffers:
            parameters += [inspect.Parameter(o["name"], _POSITIONAL) for o in self.visible]
        parameters += self._defaults()
        if self.visible and not on_buffers:
            parameters.append(inspect.Parameter("out", _KEYWORD, default=None))
        return inspect.Signature(parameters)

    def docstring(self) -> str:
        """Return what help() shows."""
        lines = [f"{self.doc}.", "", "Operands:"]
        for o in self.inputs:
            notes = [_DTYPES[o["dtype"]]]
            if o["is_optional"]:
                notes.append("or None")
            if o["is_updated"]:
                notes.append("written")
            shape = "a list of contiguous tensors" if o["is_list"] else o["shape"]
            lines.append(f"    {o['name']}: {shape}, {', '.join(notes)}")
        if self.visible:
            lines += ["", "Returns:"]
            lines += [f"    {o['name']}: {o['shape']}" for o in self.visible]
        lines += ["", "Raises ValueError for shapes and parameters that do not fit, TypeError for"]
        lines += ["dtypes, IndexError for positions out of range.", "", f"Schema: {self.schema}"]
        return "\n".join(lines)

    def run(
        self, arguments: dict[str, Any], convert: Callable[[str, Any], Tensor], out: list[Tensor]
    ) -> list[Tensor]:
        """Run the call on bound arguments; `convert` makes the Tensor of an operand."""
        inputs: list[Any] = []
        for o in self.inputs:
            given = arguments[o["name"]]
            if given is None:
                inputs.append(None)
            elif o["is_list"]:
                inputs.append([convert(o["name"], item) for item in given])
            else:
                inputs.append(convert(o["name"], given))
        values = {
            p["name"]: arguments[p["name"]]
            for p in self.parameters
            if arguments[p["name"]] is not None
        }
        return _hologram.calls.run(self.name, inputs, values, out)


def _named(function: Callable[..., Any], call: Call, on_buffers: bool, module: str) -> None:
    function.__name__ = function.__qualname__ = call.name
    function.__module__ = module
    function.__doc__ = call.docstring()
    function.__signature__ = call.signature(on_buffers)  # type: ignore[attr-defined]


def _on_tensors(call: Call) -> Callable[..., Any]:
    signature = call.signature(on_buffers=False)
    written = {o["name"] for o in call.updated}

    def convert(name: str, x: Any) -> Tensor:
        if name in written and not isinstance(x, Tensor):
            raise TypeError(
                f"{call.name}: {name} is written, so it is a Tensor, not {type(x).__name__}"
            )
        return _operand(x)

    def function(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        out = bound.arguments.pop("out", None)
        targets = [] if out is None else [out] if isinstance(out, Tensor) else list(out)
        results = call.run(bound.arguments, convert, targets)[: len(call.visible)]
        if targets:
            results = targets
        if not results:
            first = bound.arguments[call.updated[0]["name"]]
            return first if isinstance(first, Tensor) else None
        return results[0] if len(results) == 1 else tuple(results)

    _named(function, call, False, "hologram")
    return function


def _on_buffers(call: Call) -> Callable[..., None]:
    signature = call.signature(on_buffers=True)

    def function(*args: Any, **kwargs: Any) -> None:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        ex = bound.arguments.pop("ex")
        if not isinstance(ex, Executor):
            raise TypeError(f"ops.{call.name}: ex is an Executor, not {type(ex).__name__}")
        ex._check_open(call.name)

        def convert(name: str, x: Any) -> Tensor:
            if not isinstance(x, (Buffer, Tensor)):
                raise TypeError(
                    f"ops.{call.name}: {name} is a Buffer or a Tensor, not {type(x).__name__};"
                    " copy arrays into a Buffer with from_numpy"
                )
            return _operand(x)

        out = [convert(o["name"], bound.arguments.pop(o["name"])) for o in call.visible]
        call.run(bound.arguments, convert, out)

    _named(function, call, True, "hologram.ops")
    return function


CALLS: Sequence[Call] = [Call(row) for row in _hologram.calls.table()]
tensor_functions = {call.name: _on_tensors(call) for call in CALLS}
buffer_functions = {call.name: _on_buffers(call) for call in CALLS}


def _convolution_of(ndim: int) -> Callable[..., Tensor]:
    def convolution(
        input: Any,
        weight: Any,
        bias: Any = None,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
    ) -> Tensor:
        x = _operand(input)
        if x.ndim != ndim + 2:
            raise ValueError(
                f"conv{ndim}d: input has shape {x.shape}; it has {ndim + 2} dimensions, [N, C, ...]"
            )
        return tensor_functions["convolution"](
            x, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups
        )

    convolution.__name__ = convolution.__qualname__ = f"conv{ndim}d"
    convolution.__module__ = "hologram"
    convolution.__doc__ = (
        f"Convolution of {ndim} dimension{'s' * (ndim > 1)}: input [N, C, ...], weight"
        " [O, C / groups, ...], bias [O]; see `convolution`."
    )
    return convolution


conv1d, conv2d, conv3d = map(_convolution_of, (1, 2, 3))


def embedding(indices: Any, weight: Any) -> Tensor:
    """Return the rows of weight [V, ...] at the positions `indices`, int32 or int64.

    IndexError for a position outside [0, V).
    """
    return tensor_functions["take"](weight, indices)


def lstm(
    x: Any,
    h0: Any,
    c0: Any,
    weight_ih: Any,
    weight_hh: Any,
    bias_ih: Any = None,
    bias_hh: Any = None,
    *,
    reverse: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return output [L, N, H], h_n and c_n [N, H] of one layer of an LSTM in one direction.

    x [L, N, I]; h0 and c0 [N, H]; weight_ih [4 H, I] and weight_hh [4 H, H] hold the input,
    forget, cell and output gates side by side; biases [4 H] or None. float32 or float64.
    """
    gates = _operand(x).matmul(_operand(weight_ih).transpose(1, 0))
    if bias_ih is not None:
        gates = gates + _operand(bias_ih)
    return tensor_functions["lstm_recurrence"](gates, weight_hh, bias_hh, h0, c0, reverse=reverse)


tensor_functions |= {
    "conv1d": conv1d,
    "conv2d": conv2d,
    "conv3d": conv3d,
    "embedding": embedding,
    "lstm": lstm,
}
