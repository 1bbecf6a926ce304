# SPDX-License-Identifier: MIT
"""Reads expressions and signatures; errors show the place."""

from __future__ import annotations

import ast
import difflib
import keyword
from dataclasses import dataclass
from typing import Any

from hologram_torch._expression import ARGUMENT, Graph, Number, Term
from hologram_torch._functions import CONSTANTS, NAMED, of_numbers

_BINARY = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder",
    ast.Pow: "pow",
    ast.BitAnd: "bitwise_and",
    ast.BitOr: "bitwise_or",
    ast.BitXor: "bitwise_xor",
}
_COMPARISONS = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
}
_UNARY = {ast.USub: "neg", ast.Invert: "bitwise_not"}

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


@dataclass(frozen=True)
class Parameter:
    """An argument of an op."""

    name: str
    default: Number | None = None
    keyword_only: bool = False

    def __str__(self) -> str:
        return self.name if self.default is None else f"{self.name}={self.default!r}"


def parse_signature(text: str) -> tuple[Parameter, ...]:
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

    def default(node: ast.expr | None) -> Number | None:
        if node is None:
            return None
        try:
            value = ast.literal_eval(node)
        except ValueError:
            value = None
        if not isinstance(value, int | float):
            raise refuse("has a default that is no number")
        return value

    if any(argument.annotation for argument in (*given.args, *given.kwonlyargs)):
        raise refuse("has annotations")
    missing: list[ast.expr | None] = [None] * (len(given.args) - len(given.defaults))
    parameters = [
        Parameter(argument.arg, default(node))
        for argument, node in zip(given.args, missing + list(given.defaults), strict=True)
    ]
    parameters += [
        Parameter(argument.arg, default(node), keyword_only=True)
        for argument, node in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    ]
    if not parameters:
        raise refuse("names no argument")
    return tuple(parameters)


class Parser:
    """Makes the graph of an expression; ValueError shows the place that it cannot take."""

    def __init__(self, expression: str, signature: str | None) -> None:
        self.text = " ".join(expression.split())
        self.graph = Graph(of_numbers)
        self.names: dict[str, Term] = {}
        self.is_open = signature is None
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
            self.parameters = tuple(map(Parameter, self.names))
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
        if self.graph.nodes[self.result.place][0] == ARGUMENT:
            raise self.refuse("computes nothing: it is an argument alone", 0)

    def _declare(self, name: str) -> None:
        if name not in self.names:
            self.names[name] = self.graph.argument(len(self.names))

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

    def visit(self, node: ast.expr) -> Term:
        """Return the term of a part of the expression."""
        if isinstance(node, ast.Constant):
            return self.constant(node)
        if isinstance(node, ast.Name):
            return self.name(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd):
            return self.visit(node.operand)
        if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
            return self.apply(node, _UNARY[type(node.op)], self.visit(node.operand))
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            function = _BINARY[type(node.op)]
            return self.apply(node, function, self.visit(node.left), self.visit(node.right))
        if isinstance(node, ast.Compare):
            if len(node.ops) > 1:
                raise self.refuse("chains comparisons: write (a < b) & (b < c)", node)
            if type(node.ops[0]) in _COMPARISONS:
                function = _COMPARISONS[type(node.ops[0])]
                right = self.visit(node.comparators[0])
                return self.apply(node, function, self.visit(node.left), right)
        if isinstance(node, ast.Call):
            return self.call(node)
        kind: type[ast.AST] = type(node)
        if isinstance(node, ast.UnaryOp | ast.BinOp):
            kind = type(node.op)
        hint = f": {_HINTS[kind]}" if kind in _HINTS else ""
        raise self.refuse(f"has something that it cannot have ({kind.__name__}){hint}", node)

    def constant(self, node: ast.Constant) -> Term:
        """Return the term of a number."""
        if not isinstance(node.value, int | float):
            raise self.refuse(f"has {node.value!r}, which is no real number", node)
        if isinstance(node.value, int) and not -(2**63) <= node.value < 2**63:
            raise self.refuse("has an integer that int64 cannot hold", node)
        return self.graph.number(node.value)

    def name(self, node: ast.Name) -> Term:
        """Return the term of an argument or of a constant with a name."""
        if node.id in self.names:
            return self.names[node.id]
        if node.id in CONSTANTS:
            return self.graph.number(CONSTANTS[node.id])
        names = ", ".join(self.names)
        raise self.refuse(f"has {node.id!r}, which the signature ({names}) does not name", node)

    def apply(self, node: ast.expr, function: str, *operands: Term) -> Term:
        """Return a call of a step function."""
        try:
            return self.graph.call(function, *operands)
        except (ArithmeticError, TypeError, RuntimeError) as error:
            raise self.refuse(
                f"computes {function} of numbers that it does not take ({error})", node
            ) from None

    def call(self, node: ast.Call) -> Term:
        """Return the term of a function's call."""
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
        given: dict[str, Any] = {}
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
        operands: list[Any] = []
        for parameter in function.parameters:
            argument: Any = given.get(parameter)
            if argument is None:
                if parameter not in function.defaults:
                    raise self.refuse(f"gives {name} no {parameter!r}: {function}", node)
                operands.append(function.defaults[parameter])
            elif parameter in function.words:
                if not isinstance(argument, ast.Constant) or (
                    argument.value not in function.words[parameter]
                ):
                    words = " or ".join(map(repr, function.words[parameter]))
                    raise self.refuse(f"gives {name} a {parameter!r} that is not {words}", argument)
                operands.append(argument.value)
            elif (
                isinstance(argument, ast.Constant)
                and argument.value is None
                and (function.defaults.get(parameter, 0) is None)
            ):
                operands.append(None)
            else:
                operands.append(self.visit(argument))
        try:
            return function.build(self.graph, *operands)
        except (ArithmeticError, TypeError, RuntimeError) as error:
            raise self.refuse(
                f"computes {name} of numbers that it does not take ({error})", node
            ) from None


def check_name(name: str | None) -> str:
    """Return the name of an op; ValueError where it could not be that of a function."""
    if name is None:
        return "elementwise"
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(f"elementwise: the name {name!r} is not that of a function")
    return name
