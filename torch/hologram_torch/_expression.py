# SPDX-License-Identifier: MIT
"""Expressions as graphs: made of text, differentiated, written down as steps.

A graph holds numbers, arguments and calls of the functions of :mod:`hologram_torch._functions`;
equal nodes are one node. Steps are what ``torch/csrc/ops/custom/expression.h`` evaluates.
"""

from __future__ import annotations

import ast
import difflib
import keyword
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

Number = int | float | bool
Node = tuple[Any, ...]  # ("number", type, text, value), ("argument", place), (function, ids...)
Step = tuple[Any, ...]  # (function, values...)
Program = tuple[tuple[Number, ...], tuple[Step, ...], list[int]]

NUMBER, ARGUMENT = "number", "argument"


@dataclass
class Graph:
    """Nodes by number, each after those that it reads."""

    nodes: list[Node] = field(default_factory=list)
    _found: dict[Node, int] = field(default_factory=dict)

    def _add(self, node: Node) -> Term:
        place = self._found.setdefault(node, len(self.nodes))
        if place == len(self.nodes):
            self.nodes.append(node)
        return Term(self, place)

    def number(self, value: Number) -> Term:
        """Return a number; 1, 1.0 and True are three, as their dtypes are."""
        return self._add((NUMBER, type(value).__name__, repr(value), value))

    def argument(self, place: int) -> Term:
        """Return an argument by its place."""
        return self._add((ARGUMENT, place))

    def call(self, function: str, *operands: Term | Number) -> Term:
        """Return a call of a step function; of numbers alone, what it gives."""
        from hologram_torch._functions import of_numbers

        terms = [self.term(operand) for operand in operands]
        numbers = [term.value for term in terms]
        if None not in numbers:
            return self.number(of_numbers(function, *numbers))
        return self._add((function, *(term.place for term in terms)))

    def term(self, operand: Term | Number) -> Term:
        """Return a term as it is, a number as one."""
        return operand if isinstance(operand, Term) else self.number(operand)

    def program(self, arguments: int, results: Sequence[Term | None]) -> Program:
        """Write down constants, steps and the values that are results; -1 where there is none."""
        needed = {term.place for term in results if term is not None}
        for place in range(len(self.nodes) - 1, -1, -1):
            node = self.nodes[place]
            if place in needed and node[0] not in (NUMBER, ARGUMENT):
                needed.update(node[1:])
        constants = [p for p in sorted(needed) if self.nodes[p][0] == NUMBER]
        calls = [p for p in sorted(needed) if self.nodes[p][0] not in (NUMBER, ARGUMENT)]
        values = {p: k for k, p in enumerate(constants)}
        values |= {
            p: len(constants) + self.nodes[p][1] for p in needed if self.nodes[p][0] == ARGUMENT
        }
        values |= {p: len(constants) + arguments + k for k, p in enumerate(calls)}
        return (
            tuple(self.nodes[p][3] for p in constants),
            tuple(
                (self.nodes[p][0], *(values[operand] for operand in self.nodes[p][1:]))
                for p in calls
            ),
            [-1 if term is None else values[term.place] for term in results],
        )


@dataclass(frozen=True)
class Term:
    """A node. The operators simplify what has no effect on a gradient: 1 * x, x + 0, 0 * x."""

    graph: Graph
    place: int

    @property
    def value(self) -> Any:
        """The number that it is, or None."""
        node = self.graph.nodes[self.place]
        return node[3] if node[0] == NUMBER else None

    def call(self, function: str, *others: Term | Number) -> Term:
        """Return ``function(self, *others)``."""
        return self.graph.call(function, self, *others)

    def __mul__(self, other: Term | Number) -> Term:
        other = self.graph.term(other)
        for one, rest in ((self, other), (other, self)):
            if one.value is not None and one.value in (0, 1):
                return one if one.value == 0 else rest
        return self.call("mul", other)

    def __add__(self, other: Term | Number) -> Term:
        other = self.graph.term(other)
        for one, rest in ((self, other), (other, self)):
            if one.value is not None and one.value == 0:
                return rest
        return self.call("add", other)

    def __sub__(self, other: Term | Number) -> Term:
        other = self.graph.term(other)
        return self if other.value is not None and other.value == 0 else self.call("sub", other)

    def __rsub__(self, other: Number) -> Term:
        return self.graph.call("sub", other, self)

    def __truediv__(self, other: Term | Number) -> Term:
        return self if self.value == 0 else self.call("div", other)

    def __neg__(self) -> Term:
        node = self.graph.nodes[self.place]
        if node[0] == "neg":
            return Term(self.graph, node[1])
        return self if self.value == 0 else self.call("neg")

    __rmul__ = __mul__
    __radd__ = __add__


def derive(graph: Graph, result: Term, arguments: int) -> list[Term | None]:
    """Return the gradient of each argument, of the arguments and, as one more, the result's.

    None: the result does not depend on the argument, or only by comparisons. Zero: it does, by
    functions such as floor whose derivative is zero.
    """
    from hologram_torch._functions import FUNCTIONS

    adjoints: dict[int, Term] = {result.place: graph.argument(arguments)}
    for place in range(result.place, -1, -1):
        adjoint, node = adjoints.get(place), graph.nodes[place]
        if adjoint is None or node[0] in (NUMBER, ARGUMENT):
            continue
        derivative = FUNCTIONS[node[0]].derivative
        if derivative is None:
            continue
        operands = [Term(graph, operand) for operand in node[1:]]
        for operand, gradient in zip(
            operands, derivative(adjoint, Term(graph, place), *operands), strict=False
        ):
            if gradient is None or operand.value is not None:
                continue
            gradient = graph.term(gradient)
            if adjoint.value == 0:
                gradient = adjoint
            before = adjoints.get(operand.place)
            adjoints[operand.place] = gradient if before is None else before + gradient
    return [adjoints.get(graph.argument(k).place) for k in range(arguments)]


# --- From text ---------------------------------------------------------------------------------

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

    def refuse(why: str) -> NoReturn:
        raise ValueError(
            f"elementwise: the signature {text!r} {why}; write names of arguments with commas "
            f"between them and numbers as defaults, as in 'x, y, *, alpha=1.0'"
        )

    try:
        function = ast.parse(f"def f({text}\n): pass").body[0]
    except (SyntaxError, ValueError):
        refuse("cannot be read")
    if not isinstance(function, ast.FunctionDef):
        refuse("cannot be read")
    given = function.args
    if given.vararg or given.kwarg or given.posonlyargs:
        refuse("has something else than plain arguments")

    def default(node: ast.expr | None) -> Number | None:
        if node is None:
            return None
        try:
            value = ast.literal_eval(node)
        except ValueError:
            value = None
        if not isinstance(value, int | float):
            refuse("has a default that is no number")
        return value

    if any(argument.annotation for argument in (*given.args, *given.kwonlyargs)):
        refuse("has annotations")
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
        refuse("names no argument")
    return tuple(parameters)


class Parser:
    """Makes the graph of an expression; ValueError shows the place that it cannot take."""

    def __init__(self, expression: str, signature: str | None) -> None:
        self.text = " ".join(expression.split())
        self.graph = Graph()
        self.names: dict[str, Term] = {}
        self.is_open = signature is None
        try:
            tree = ast.parse(self.text, mode="eval").body
        except SyntaxError as error:
            at = max((error.offset or 1) - 1, 0)
            self.refuse(f"cannot be read ({error.msg})", min(at, len(self.text)))
        except (ValueError, MemoryError) as error:
            raise ValueError(f"elementwise: the expression cannot be read ({error})") from None
        if signature is None:
            # In order of appearance in the text, whatever the tree's order.
            found = [n for n in ast.walk(tree) if isinstance(n, ast.Name)]
            called = {id(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}
            for node in sorted(found, key=lambda n: n.col_offset):
                if id(node) not in called and node.id not in _constants():
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
            self.refuse("has no argument: name at least one, such as x", 0)
        if self.graph.nodes[self.result.place][0] == ARGUMENT:
            self.refuse("computes nothing: it is an argument alone", 0)

    def _declare(self, name: str) -> None:
        if name not in self.names:
            self.names[name] = self.graph.argument(len(self.names))

    def refuse(self, why: str, at: ast.expr | int) -> NoReturn:
        """Raise ValueError: `why` goes on after 'the expression'; the place is shown."""
        if isinstance(at, int):
            place = at
        else:
            place = len(self.text.encode()[: at.col_offset].decode())
        raise ValueError(
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
                self.refuse("chains comparisons: write (a < b) & (b < c)", node)
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
        self.refuse(f"has something that it cannot have ({kind.__name__}){hint}", node)

    def constant(self, node: ast.Constant) -> Term:
        """Return the term of a number."""
        if not isinstance(node.value, int | float):
            self.refuse(f"has {node.value!r}, which is no real number", node)
        if isinstance(node.value, int) and not -(2**63) <= node.value < 2**63:
            self.refuse("has an integer that int64 cannot hold", node)
        return self.graph.number(node.value)

    def name(self, node: ast.Name) -> Term:
        """Return the term of an argument or of a constant with a name."""
        if node.id in self.names:
            return self.names[node.id]
        if node.id in _constants():
            return self.graph.number(_constants()[node.id])
        names = ", ".join(self.names)
        self.refuse(f"has {node.id!r}, which the signature ({names}) does not name", node)

    def apply(self, node: ast.expr, function: str, *operands: Term) -> Term:
        """Return a call of a step function."""
        try:
            return self.graph.call(function, *operands)
        except (ArithmeticError, TypeError, RuntimeError) as error:
            self.refuse(f"computes {function} of numbers that it does not take ({error})", node)

    def call(self, node: ast.Call) -> Term:
        """Return the term of a function's call."""
        from hologram_torch._functions import NAMED

        if not isinstance(node.func, ast.Name):
            self.refuse(f"calls something without a name: {_HINTS[ast.Attribute]}", node)
        name = node.func.id
        function = NAMED.get(name)
        if function is None:
            near = difflib.get_close_matches(name, NAMED, n=3, cutoff=0.6)
            others = " or ".join(repr(other) for other in near)
            hint = f"; did you mean {others}?" if near else ""
            if name in self.names:
                hint = "; it is an argument"
            self.refuse(f"calls {name!r}, which is no function of elements{hint}", node)
        given: dict[str, Any] = {}
        for place, argument in enumerate(node.args):
            if isinstance(argument, ast.Starred):
                self.refuse("unpacks arguments, which it cannot", argument)
            if place >= len(function.parameters):
                self.refuse(f"gives {name} {len(node.args)} arguments: {function}", argument)
            given[function.parameters[place]] = argument
        for named in node.keywords:
            if named.arg not in function.parameters or named.arg in given:
                what = "twice" if named.arg in given else "which it does not have"
                self.refuse(f"gives {name} the argument {named.arg!r} {what}: {function}",
                            named.value)
            given[named.arg] = named.value
        operands: list[Any] = []
        for parameter in function.parameters:
            argument = given.get(parameter)
            if argument is None:
                if parameter not in function.defaults:
                    self.refuse(f"gives {name} no {parameter!r}: {function}", node)
                operands.append(function.defaults[parameter])
            elif parameter in function.words:
                if not isinstance(argument, ast.Constant) or (
                    argument.value not in function.words[parameter]
                ):
                    words = " or ".join(map(repr, function.words[parameter]))
                    self.refuse(f"gives {name} a {parameter!r} that is not {words}", argument)
                operands.append(argument.value)
            elif isinstance(argument, ast.Constant) and argument.value is None and (
                function.defaults.get(parameter, 0) is None
            ):
                operands.append(None)
            else:
                operands.append(self.visit(argument))
        try:
            return function.build(self.graph, *operands)
        except (ArithmeticError, TypeError, RuntimeError) as error:
            self.refuse(f"computes {name} of numbers that it does not take ({error})", node)


def _constants() -> dict[str, float]:
    from hologram_torch._functions import CONSTANTS

    return CONSTANTS


def check_name(name: str | None) -> str:
    """Return the name of an op; ValueError where it could not be that of a function."""
    if name is None:
        return "elementwise"
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(f"elementwise: the name {name!r} is not that of a function")
    return name
