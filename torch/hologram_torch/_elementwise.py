# SPDX-License-Identifier: MIT
"""Operators that a user writes as an expression."""

from __future__ import annotations

import functools
import inspect
from typing import Any, NoReturn

import torch
from torch import Tensor

from hologram_torch import _C
from hologram_torch._functions import Number, call, of_numbers
from hologram_torch._parser import Parser, check_name
from hologram_torch._trace import trace

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
        "_called",
        "_count",
        "_op",
        "_parameters",
        "_positional",
        "_programs",
        "_result",
        "_steps",
        "_user_signature",
        "expression",
        "name",
        "signature",
    )

    #: The text, its white space made single.
    expression: str
    #: What it is called in errors and in graphs of autograd.
    name: str
    #: Its arguments, as in ``'x, y, *, alpha=1.0'``.
    signature: str

    def __init__(self, expression: str, signature: str | None, name: str | None) -> None:
        if not isinstance(expression, str):
            raise TypeError(f"elementwise: the expression must be a str, not {_type(expression)}")
        if signature is not None and not isinstance(signature, str):
            raise TypeError(f"elementwise: the signature must be a str, not {_type(signature)}")
        self.name = check_name(name)
        parser = Parser(expression, signature)
        parameters = self._parameters = parser.parameters
        self._user_signature, self.expression = signature, parser.text
        self._steps, self._result, self._called = tuple(parser.steps), parser.result, parser.called
        # Of a call that needs no look at its arguments' names.
        self._positional = [p for p in parameters if p.kind is not p.KEYWORD_ONLY]
        self._count = len(parameters) if parameters == self._positional else -1
        self.__name__ = self.__qualname__ = self.name
        self.signature = str(inspect.Signature(parameters))[1:-1]
        self._op = _C._make_user_op()
        self._programs: dict[Any, Any] = {}

    @property
    def uses_fallback(self) -> tuple[str, ...]:
        """Functions in it that the device computes at their call, so that they do not fuse."""
        return tuple(sorted(f.name for f in self._called if not f.is_recorded))

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
            if result is None:
                result = self._prepare(args)
            return self._judge(args) if result is NotImplemented else result
        except RuntimeError as error:
            self._explain(error, args)

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
        if len(args) > len(self._positional):
            raise TypeError(
                f"{self.name}() takes {len(self._positional)} positional arguments but "
                f"{len(args)} were given: {self.name}({self.signature})"
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
            elif parameter.default is not parameter.empty:
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

    # --- On the device -----------------------------------------------------------------------

    def _prepare(self, args: tuple[Any, ...]) -> Any:
        """Compute what is made of numbers alone, and make the program for such arguments."""
        fixed = self._of_numbers(args)
        given = (*args, *fixed.values())
        result = _run(self._op, *given) if fixed else None
        if result is None:
            kinds = tuple(map(_kind, given))
            if kinds not in self._programs:
                self._programs[kinds] = trace(
                    "".join(part[:1].upper() + part[1:] for part in self.name.split("_")),
                    kinds,
                    lambda *values: self._write(
                        values[: len(args)], dict(zip(fixed, values[len(args) :], strict=True))
                    ),
                )
            _C._add_program(self._op, self._programs[kinds], self._rounded(args), *given)
            result = _run(self._op, *given)
        return result

    def _of_numbers(self, args: tuple[Any, ...]) -> dict[int, Number]:
        """Return the values, by place, of steps whose operands are numbers."""
        known = {k: value for k, value in enumerate(args) if not isinstance(value, Tensor)}
        computed = {}
        for place, (function, operands) in enumerate(self._steps, len(args)):
            if function is None:
                known[place] = operands
            elif all(k in known for k in operands):
                known[place] = of_numbers(function, *(known[k] for k in operands))
                computed[place] = known[place]
        return computed

    # --- Written out -------------------------------------------------------------------------

    def _write(self, args: tuple[Any, ...], fixed: dict[int, Any]) -> Any:
        """Compute with PyTorch's functions, but for the values that are given by their places."""
        values = list(args)
        for function, operands in self._steps:
            if len(values) in fixed:
                values.append(fixed[len(values)])
            elif function is None:
                values.append(operands)
            else:
                values.append(call(function, *[values[k] for k in operands]))
        return values[self._result]

    def _write_out(self, args: tuple[Any, ...]) -> Tensor:
        """Compute with PyTorch's functions, called from here: what compilers trace.

        Dtypes and the one rounding of halves are those of the compiled part.
        """
        rounded = self._rounded(args)
        if any(isinstance(a, Tensor) and a.dtype in _HALVES for a in args):
            args = tuple(
                a.float() if isinstance(a, Tensor) and a.dtype in _HALVES else a for a in args
            )
        result = self._write(args, {})
        if not isinstance(result, Tensor):
            tensors = [a for a in args if isinstance(a, Tensor)]
            shape = torch.broadcast_shapes(*(t.shape for t in tensors))
            return torch.full(shape, result, device=tensors[0].device)
        return result if rounded is None else result.to(rounded)

    def _rounded(self, args: tuple[Any, ...]) -> torch.dtype | None:
        """Return the dtype of the result where that is a half."""
        if not any(isinstance(a, Tensor) and a.dtype in _HALVES for a in args):
            return None
        kinds = tuple((a.dtype, a.dim() > 0) if isinstance(a, Tensor) else _kind(a) for a in args)
        dtype = _result_dtype(self.expression, self.signature, kinds)
        return dtype if dtype in _HALVES else None


def _type(value: Any) -> str:
    return type(value).__name__


def _kind(value: Any) -> Any:
    """Return what a program depends on: a tensor's dtype, the floating ones alike, or a type."""
    if isinstance(value, Tensor):
        return torch.float64 if value.is_floating_point() else value.dtype
    if isinstance(value, bool):
        return bool
    if isinstance(value, int | torch.SymInt):
        return int
    return float if isinstance(value, float | torch.SymFloat) else complex


@functools.lru_cache(maxsize=1024)
def _again(expression: str, signature: str, name: str = "elementwise") -> Elementwise:
    return Elementwise(expression, signature, None if name == "elementwise" else name)


@functools.lru_cache(maxsize=1024)
def _dtype_of(expression: str, signature: str, kinds: tuple[Any, ...]) -> torch.dtype:
    with torch._C._DisableTorchDispatch():
        samples = tuple(
            torch.ones([1] * kind[1], dtype=kind[0], device="cpu")
            if isinstance(kind, tuple)
            else kind(1)
            for kind in kinds
        )
        result = _again(expression, signature)._write(samples, {})
    return result.dtype if isinstance(result, Tensor) else torch.get_default_dtype()


def _result_dtype(expression: str, signature: str, kinds: tuple[Any, ...]) -> torch.dtype:
    return _dtype_of(expression, signature, kinds)


# As torch.compiler.assume_constant_result has it, which would load the compiler.
_result_dtype._dynamo_marked_constant = True  # type: ignore[attr-defined]


def elementwise(
    expression: str, signature: str | None = None, *, name: str | None = None
) -> Elementwise:
    """Make a differentiable operator of an expression of elements.

    On the device its steps are recorded as rows of the op table, so that it fuses with what stands
    before and after it, for one call's cost. Its gradient is PyTorch's and computed from the
    arguments: nothing in between is kept for it. CPU tensors, tangents, ``torch.func``,
    ``torch.compile`` and ``torch.export`` see the expression written out in PyTorch's functions.

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
