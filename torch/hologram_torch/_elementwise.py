# SPDX-License-Identifier: MIT
"""Operators that a user writes as an expression."""

from __future__ import annotations

import functools
from typing import Any, NoReturn

import torch
from torch import Tensor

from hologram_torch import _C
from hologram_torch._expression import Number, derive
from hologram_torch._functions import FUNCTIONS, of_numbers
from hologram_torch._parser import Parser, check_name

_HALVES = (torch.float16, torch.bfloat16)
_run = _C._run_user_op
_is_compiling = torch.compiler.is_compiling


class Elementwise:
    """An operator made of an expression, see :func:`elementwise`.

    It is immutable: any number of threads may call it, copies are the operator itself, and it is
    pickled as its expression.
    """

    __slots__ = (
        "__dict__",
        "__weakref__",
        "_count",
        "_op",
        "_parameters",
        "_program",
        "_user_signature",
        "expression",
        "name",
        "signature",
        "uses_fallback",
    )

    #: The text, its white space made single.
    expression: str
    #: What it is called in errors and in graphs of autograd.
    name: str
    #: Its arguments, as in ``'x, y, *, alpha=1.0'``.
    signature: str
    #: Functions in it that the device computes at their call, so that they do not fuse.
    uses_fallback: tuple[str, ...]

    def __init__(self, expression: str, signature: str | None, name: str | None) -> None:
        if not isinstance(expression, str):
            raise TypeError(f"elementwise: the expression must be a str, not {_type(expression)}")
        if signature is not None and not isinstance(signature, str):
            raise TypeError(f"elementwise: the signature must be a str, not {_type(signature)}")
        self.name = check_name(name)
        parser = Parser(expression, signature)
        parameters, graph, result = parser.parameters, parser.graph, parser.result
        count = len(parameters)
        self._user_signature, self.expression = signature, parser.text
        self._parameters = parameters
        # Of a call that needs no look at its arguments' names.
        self._count = -1 if any(p.keyword_only for p in parameters) else count
        self.__name__ = self.__qualname__ = self.name
        shown = [str(p) for p in parameters if not p.keyword_only]
        named = [str(p) for p in parameters if p.keyword_only]
        self.signature = ", ".join([*shown, "*", *named] if named else shown)
        # Derived first: the value takes of the graph what it needs.
        gradients = derive(graph, result, count, lambda name: FUNCTIONS[name].derivative)
        self._program = graph.program(count, [result])
        self.uses_fallback = tuple(
            sorted({step[0] for step in self._program[1] if not FUNCTIONS[step[0]].rows})
        )
        title = "".join(part[:1].upper() + part[1:] for part in self.name.split("_"))
        self._op = _C._make_user_op(
            title, count, self._program, graph.program(count + 1, gradients)
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        """Compute the expression. Shapes broadcast, dtypes are promoted, as where written out.

        Arguments are tensors or numbers, at least one a tensor. float16 and bfloat16 are computed
        in float32, and the result is rounded once.

        Raises TypeError for arguments that are missing, too many or of another type, RuntimeError
        for shapes that do not broadcast and tensors on several devices; the argument is named.
        """
        if kwargs or len(args) != self._count:
            args = self._bind(args, kwargs)
        if _is_compiling():
            return self._write_out(args)
        try:
            result = _run(self._op, *args)
        except RuntimeError as error:
            self._explain(error, args)
        return self._judge(args) if result is NotImplemented else result

    def __repr__(self) -> str:
        """Return what makes the same operator."""
        name = "" if self.name == "elementwise" else f", name={self.name!r}"
        return f"hologram_torch.elementwise({self.expression!r}, {self.signature!r}{name})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the expression."""
        return _again, (self.expression, self.signature, self.name)

    def __copy__(self) -> Elementwise:
        """Return itself."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Elementwise:
        """Return itself."""
        return self

    # --- Arguments ---------------------------------------------------------------------------

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Put arguments into the order of the signature, and defaults where there is none."""
        bound: list[Any] = []
        positional = [p for p in self._parameters if not p.keyword_only]
        if len(args) > len(positional):
            raise TypeError(
                f"{self.name}() takes {len(positional)} positional arguments but {len(args)} were "
                f"given: {self.name}({self.signature})"
            )
        left = dict(kwargs)
        for place, parameter in enumerate(self._parameters):
            if place < len(args):
                if parameter.name in left:
                    raise TypeError(
                        f"{self.name}() got two values for argument {parameter.name!r}: "
                        f"{self.name}({self.signature})"
                    )
                bound.append(args[place])
            elif parameter.name in left:
                bound.append(left.pop(parameter.name))
            elif parameter.default is not None:
                bound.append(parameter.default)
            else:
                raise TypeError(
                    f"{self.name}() has no value for argument {parameter.name!r}: "
                    f"{self.name}({self.signature})"
                )
        for unknown in left:
            raise TypeError(
                f"{self.name}() has no argument {unknown!r}: {self.name}({self.signature})"
            )
        return tuple(bound)

    def _judge(self, args: tuple[Any, ...]) -> Tensor:
        """Compute where the compiled part does not know an argument, or refuse it by name."""
        taken: list[Any] = []
        for parameter, value in zip(self._parameters, args, strict=True):
            if not isinstance(
                value, Tensor | int | float | complex | torch.SymInt | torch.SymFloat
            ):
                number = getattr(value, "item", None)
                if getattr(value, "shape", None) != () or number is None:
                    raise TypeError(
                        f"{self.name}(): argument {parameter.name!r} must be a tensor or a number, "
                        f"not {_type(value)}"
                    )
                value = number()  # NumPy's
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                raise TypeError(
                    f"{self.name}(): argument {parameter.name!r} is {value}, "
                    f"which int64 cannot hold"
                )
            taken.append(value)
        if not any(isinstance(value, Tensor) for value in taken):
            raise TypeError(
                f"{self.name}() needs a tensor among its arguments, got numbers alone; for numbers "
                f"make one of them a tensor with torch.tensor()"
            )
        return self._write_out(tuple(taken))

    def _explain(self, error: RuntimeError, args: tuple[Any, ...]) -> NoReturn:
        """Raise what a failed call is to say: which argument does not fit which."""
        if type(error) not in (RuntimeError, NotImplementedError):
            raise error
        named = [
            (p.name, value)
            for p, value in zip(self._parameters, args, strict=True)
            if isinstance(value, Tensor)
        ]
        for place, (name, value) in enumerate(named):
            for before, other in named[:place]:
                if value.device != other.device and value.dim() > 0 and other.dim() > 0:
                    raise RuntimeError(
                        f"{self.name}(): argument {name!r} is on {value.device}, argument "
                        f"{before!r} on {other.device}; move one of them: x.to('hologram') takes a "
                        f"tensor to the device, x.cpu() brings it back"
                    ) from error
                sizes = zip(reversed(value.shape), reversed(other.shape), strict=False)
                if any(a != b and 1 not in (a, b) for a, b in sizes):
                    raise RuntimeError(
                        f"{self.name}(): argument {name!r} of shape {list(value.shape)} does not "
                        f"broadcast with argument {before!r} of shape {list(other.shape)}; sizes "
                        f"must be equal, or 1, counted from the last"
                    ) from error
        kinds = ", ".join(f"{name}: {str(v.dtype)[6:]}{list(v.shape)}" for name, v in named)
        raise type(error)(f"{self.name}(): {self.expression} of {kinds}: {error}") from error

    # --- Written out -------------------------------------------------------------------------

    def _write_out(self, args: tuple[Any, ...]) -> Tensor:
        """Compute with PyTorch's functions, called from here: what compilers trace.

        Dtypes and the one rounding of halves are those of the compiled part.
        """
        rounded = None
        if any(isinstance(a, Tensor) and a.dtype in _HALVES for a in args):
            kinds = tuple((a.dtype, a.dim()) if isinstance(a, Tensor) else _kind(a) for a in args)
            rounded = _result_dtype(self.expression, self.signature, kinds)
            args = tuple(
                a.float() if isinstance(a, Tensor) and a.dtype in _HALVES else a for a in args
            )
        constants, steps, results = self._program
        values = [*constants, *args]
        for function, *operands in steps:
            given = [values[k] for k in operands]
            if any(isinstance(value, Tensor) for value in given):
                values.append(FUNCTIONS[function].written(*given))
            else:
                values.append(of_numbers(function, *given))
        result = values[results[0]]
        if not isinstance(result, Tensor):
            tensors = [a for a in args if isinstance(a, Tensor)]
            shape = torch.broadcast_shapes(*(t.shape for t in tensors))
            return torch.full(shape, result, device=tensors[0].device)
        return result.to(rounded) if rounded in _HALVES else result


def _type(value: Any) -> str:
    return type(value).__name__


def _kind(number: Any) -> Number | complex:
    """Return a number of the same type: the value decides no dtype."""
    if isinstance(number, bool):
        return True
    if isinstance(number, int | torch.SymInt):
        return 1
    return 1.0 if isinstance(number, float | torch.SymFloat) else 1j


@functools.lru_cache(maxsize=1024)
def _again(expression: str, signature: str, name: str = "elementwise") -> Elementwise:
    return Elementwise(expression, signature, None if name == "elementwise" else name)


@torch.compiler.assume_constant_result
def _result_dtype(expression: str, signature: str, kinds: tuple[Any, ...]) -> torch.dtype:
    return _C._user_op_dtype(_again(expression, signature)._op, *kinds)


def elementwise(
    expression: str, signature: str | None = None, *, name: str | None = None
) -> Elementwise:
    """Make a differentiable operator of an expression of elements.

    On the device its steps are recorded as rows of the op table, so that it fuses with what stands
    before and after it, for one call's cost. Its gradient is derived from the expression and
    computed from the arguments: nothing in between is kept for it. CPU tensors, gradients of
    gradients, tangents, ``torch.func``, ``torch.compile`` and ``torch.export`` see the
    expression written out in PyTorch's functions.

    Parameters
    ----------
    expression : str
        In Python's syntax: ``+ - * / // % ** == != < <= > >= & | ^ ~``, numbers, ``pi``, ``inf``,
        ``nan``, and functions by PyTorch's names or NumPy's: ``where(x > 0, x, exp(x) - 1)``. It
        means what it means where the names are tensors.
    signature : str, optional
        The arguments, numbers as defaults: ``'x, y, *, alpha=1.0'``. Without it, the names of the
        expression in the order of their first appearance.
    name : str, optional
        What the operator is called in errors and in graphs of autograd.

    Raises
    ------
    ValueError
        For what the expression cannot have; the message shows the place.

    Examples
    --------
    >>> mish = hologram_torch.elementwise("x * tanh(softplus(x))")
    >>> y = mish(torch.randn(8, device="hologram", requires_grad=True))

    """
    return Elementwise(expression, signature, name)
