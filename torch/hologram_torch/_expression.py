# SPDX-License-Identifier: MIT
"""Expressions as graphs: differentiated, written down as steps.

A graph holds numbers, arguments and calls of the functions of :mod:`hologram_torch._functions`;
equal nodes are one node. Steps are what ``torch/csrc/ops/custom/expression.h`` evaluates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Number = int | float | bool
Node = tuple[Any, ...]  # ("number", type, text, value), ("argument", place), (function, ids...)
Step = tuple[Any, ...]  # (function, values...)
Program = tuple[tuple[Number, ...], tuple[Step, ...], list[int]]

NUMBER, ARGUMENT = "number", "argument"


@dataclass
class Graph:
    """Nodes by number, each after those that it reads."""

    of_numbers: Callable[..., Number]  # what a step function gives of numbers alone
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
        terms = [self.term(operand) for operand in operands]
        numbers = [term.value for term in terms]
        if None not in numbers:
            return self.number(self.of_numbers(function, *numbers))
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


def derive(
    graph: Graph, result: Term, arguments: int, derivative_of: Callable[[str], Any]
) -> list[Term | None]:
    """Return the gradient of each argument, of the arguments and, as one more, the result's.

    derivative_of: of a step function by name, see ``_functions.StepFunction``.

    None: the result does not depend on the argument, or only by comparisons. Zero: it does, by
    functions such as floor whose derivative is zero.
    """
    adjoints: dict[int, Term] = {result.place: graph.argument(arguments)}
    for place in range(result.place, -1, -1):
        adjoint, node = adjoints.get(place), graph.nodes[place]
        if adjoint is None or node[0] in (NUMBER, ARGUMENT):
            continue
        derivative = derivative_of(node[0])
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
