# SPDX-License-Identifier: MIT
"""Reads expressions and signatures; errors show the place."""

from __future__ import annotations

import ast
import difflib
import keyword
import operator
from inspect import Parameter
from typing import Any

import torch

from hologram_torch._functions import (
    CONSTANTS,
    NAMED,
    Function,
    Named,
    floor_divide,
    of_numbers,
    remainder,
)

Step = tuple[Function | None, Any]  # a function and the places of its operands, or None and a value

_OPERATORS: dict[type[ast.AST], Function] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: floor_divide,
    ast.Mod: remainder,
    ast.Pow: operator.pow,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.USub: operator.neg,
    ast.Invert: torch.bitwise_not,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}

WORDS = ("none", "tanh")  # of gelu's approximate

# What people write that means something else, and what to write.
_HINTS: dict[type[ast.AST], str] = {
    ast.IfExp: "a choice is written where(condition, a, b)",
    ast.BoolOp: "conditions are combined with & and |, or logical_and and logical_or",
    ast.Subscript: "an expression sees single elements; index the tensors before the call",
    ast.Attribute: "functions are written without a module: tanh(x), not torch.tanh(x) or x.tanh()",
    ast.Lambda: "write the body alone; the signature is the second argument",
    ast.NamedExpr: "there are no assignments; equal parts are computed once",
    ast.MatMult: "it is not computed element by element",
    ast.Not: "negation is written ~x or logical_not(x)",
}


def parse_signature(text: str) -> list[Parameter]:
    """Read ``'x, y, *, alpha=1.0'``. ValueError says what is wrong with it."""

    def refuse(why: str) -> ValueError:
        return ValueError(
            f"elementwise: the signature {text!r} {why}; write names of arguments with commas "
            f"between them and numbers as defaults, as in 'x, y, *, alpha=1.0'"
        )

    try:
        function = ast.parse(f"def f({text}\n): pass").body[0]
    except (SyntaxError, ValueError):
        raise refuse("cannot be read") from None
    if not isinstance(function, ast.FunctionDef):
        raise refuse("cannot be read")
    given = function.args
    if given.vararg or given.kwarg or given.posonlyargs:
        raise refuse("has something else than plain arguments")

    if any(argument.annotation for argument in (*given.args, *given.kwonlyargs)):
        raise refuse("has annotations")
    missing: list[ast.expr | None] = [None] * (len(given.args) - len(given.defaults))
    parameters = []
    for kind, arguments, defaults in (
        (Parameter.POSITIONAL_OR_KEYWORD, given.args, missing + list(given.defaults)),
        (Parameter.KEYWORD_ONLY, given.kwonlyargs, given.kw_defaults),
    ):
        for argument, node in zip(arguments, defaults, strict=True):
            try:
                value = Parameter.empty if node is None else ast.literal_eval(node)
            except ValueError:
                value = None
            if value is not Parameter.empty and not isinstance(value, int | float):
                raise refuse("has a default that is no number")
            parameters.append(Parameter(argument.arg, kind, default=value))
    if not parameters:
        raise refuse("names no argument")
    return parameters


class Parser:
    """Makes the steps of an expression; ValueError shows the place that it cannot take.

    Values have places: the arguments', then one for each step. Equal steps are one step.
    """

    def __init__(self, expression: str, signature: str | None) -> None:
        self.text = " ".join(expression.split())
        self.names: dict[str, int] = {}
        self.steps: list[Step] = []
        self.called: set[Named] = set()
        self._found: dict[Any, int] = {}
        try:
            tree = ast.parse(self.text, mode="eval").body
        except SyntaxError as error:
            at = max((error.offset or 1) - 1, 0)
            raise self.refuse(f"cannot be read ({error.msg})", min(at, len(self.text))) from None
        except (ValueError, MemoryError, RecursionError) as error:
            raise ValueError(f"elementwise: the expression cannot be read ({error})") from None
        if signature is None:
            # In order of appearance in the text, whatever the tree's order.
            found = [n for n in ast.walk(tree) if isinstance(n, ast.Name)]
            called = {id(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}
            for node in sorted(found, key=lambda n: n.col_offset):
                if id(node) not in called and node.id not in CONSTANTS:
                    self._declare(node.id)
            kind = Parameter.POSITIONAL_OR_KEYWORD
            self.parameters = [Parameter(name, kind) for name in self.names]
        else:
            self.parameters = parse_signature(signature)
            for parameter in self.parameters:
                self._declare(parameter.name)
        try:
            self.result = self.visit(tree)
        except RecursionError:
            raise ValueError("elementwise: the expression is nested too deeply") from None
        if not self.names:
            raise self.refuse("has no argument: name at least one, such as x", 0)
        if self.result < len(self.names):
            raise self.refuse("computes nothing: it is an argument alone", 0)

    def _declare(self, name: str) -> None:
        if name not in self.names:
            self.names[name] = len(self.names)

    def refuse(self, why: str, at: ast.expr | int) -> ValueError:
        """Make the error: `why` goes on after 'the expression'; the place is shown."""
        if isinstance(at, int):
            place = at
        else:
            place = len(self.text.encode()[: at.col_offset].decode())
        return ValueError(
            f"elementwise: the expression {why}, at position {place}\n"
            f"  {self.text}\n  {' ' * place}^"
        )

    def visit(self, node: ast.expr) -> int:
        """Return the place of the value of a part of the expression."""
        if isinstance(node, ast.Constant):
            return self.number(node)
        if isinstance(node, ast.Name):
            return self.name(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd):
            return self.visit(node.operand)
        if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
            return self.step(node, _OPERATORS[type(node.op)], node.operand)
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return self.step(node, _OPERATORS[type(node.op)], node.left, node.right)
        if isinstance(node, ast.Compare):
            if len(node.ops) > 1:
                raise self.refuse("chains comparisons: write (a < b) & (b < c)", node)
            if type(node.ops[0]) in _OPERATORS:
                return self.step(
                    node, _OPERATORS[type(node.ops[0])], node.left, node.comparators[0]
                )
        if isinstance(node, ast.Call):
            return self.call(node)
        kind: type[ast.AST] = type(node)
        if isinstance(node, ast.UnaryOp | ast.BinOp):
            kind = type(node.op)
        hint = f": {_HINTS[kind]}" if kind in _HINTS else ""
        raise self.refuse(f"has something that it cannot have ({kind.__name__}){hint}", node)

    def number(self, node: ast.Constant) -> int:
        """Return the place of a number."""
        if not isinstance(node.value, int | float):
            raise self.refuse(f"has {node.value!r}, which is no real number", node)
        if isinstance(node.value, int) and not -(2**63) <= node.value < 2**63:
            raise self.refuse("has an integer that int64 cannot hold", node)
        return self.constant(node.value)

    def name(self, node: ast.Name) -> int:
        """Return the place of an argument or of a constant with a name."""
        if node.id in self.names:
            return self.names[node.id]
        if node.id in CONSTANTS:
            return self.constant(CONSTANTS[node.id])
        names = ", ".join(self.names)
        raise self.refuse(f"has {node.id!r}, which the signature ({names}) does not name", node)

    def _add(self, key: Any, step: Step) -> int:
        place = self._found.setdefault(key, len(self.names) + len(self.steps))
        if place == len(self.names) + len(self.steps):
            self.steps.append(step)
        return place

    def constant(self, value: Any) -> int:
        """Return the place of a value; 1, 1.0 and True are three, as their dtypes are."""
        return self._add((type(value), repr(value)), (None, value))

    def step(self, node: ast.expr, function: Function, *parts: ast.expr | int) -> int:
        """Return the place of a call's value; of constants, that value is computed here."""
        operands = tuple(p if isinstance(p, int) else self.visit(p) for p in parts)
        steps = [self.steps[k - len(self.names)] for k in operands if k >= len(self.names)]
        if len(steps) < len(operands) or any(called is not None for called, _ in steps):
            return self._add((function, operands), (function, operands))
        try:
            return self.constant(of_numbers(function, *(value for _, value in steps)))
        except (ArithmeticError, TypeError, RuntimeError) as error:
            raise self.refuse(
                f"computes {function.__name__} of numbers that it does not take ({error})", node
            ) from None

    def call(self, node: ast.Call) -> int:
        """Return the place of the value of a function's call."""
        if not isinstance(node.func, ast.Name):
            raise self.refuse(f"calls something without a name: {_HINTS[ast.Attribute]}", node)
        name = node.func.id
        function = NAMED.get(name)
        if function is None:
            near = difflib.get_close_matches(name, NAMED, n=3, cutoff=0.6)
            others = " or ".join(repr(other) for other in near)
            hint = f"; did you mean {others}?" if near else ""
            if name in self.names:
                hint = "; it is an argument"
            raise self.refuse(f"calls {name!r}, which is no function of elements{hint}", node)
        given: dict[str, ast.expr] = {}
        for place, passed in enumerate(node.args):
            if isinstance(passed, ast.Starred):
                raise self.refuse("unpacks arguments, which it cannot", passed)
            if place >= len(function.parameters):
                raise self.refuse(f"gives {name} {len(node.args)} arguments: {function}", passed)
            given[function.parameters[place]] = passed
        for named in node.keywords:
            if named.arg not in function.parameters or named.arg in given:
                what = "twice" if named.arg in given else "which it does not have"
                raise self.refuse(
                    f"gives {name} the argument {named.arg!r} {what}: {function}", named.value
                )
            given[named.arg] = named.value
        operands = [self.operand(node, function, p, given.get(p)) for p in function.parameters]
        if name in ("clamp", "clip") and operands[1] == operands[2] == self.constant(None):
            raise self.refuse(f"calls {name}, of which at least one of min and max is needed", node)
        self.called.add(function)
        return self.step(node, function.function, *operands)

    def operand(
        self, node: ast.Call, function: Named, parameter: str, given: ast.expr | None
    ) -> int:
        """Return the place of what a call gives for a parameter."""
        default = function.defaults.get(parameter, ...)
        if given is None:
            if default is ...:
                raise self.refuse(f"gives {function.name} no {parameter!r}: {function}", node)
            return self.constant(default)
        value = given.value if isinstance(given, ast.Constant) else ...
        if isinstance(default, str) and value not in WORDS:
            words = " or ".join(map(repr, WORDS))
            raise self.refuse(f"gives {function.name} a {parameter!r} that is not {words}", given)
        if isinstance(default, str) or (default is None and value is None):
            return self.constant(value)
        return self.visit(given)


def check_name(name: str | None) -> str:
    """Return the name of an op; ValueError where it could not be that of a function."""
    if name is None:
        return "elementwise"
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(f"elementwise: the name {name!r} is not that of a function")
    return name
