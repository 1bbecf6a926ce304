# SPDX-License-Identifier: MIT
"""Compiled graphs as circuits: captured at the second call with arguments of a kind, then run.

A circuit gets the memory of each call, arguments as they are and new results, so nothing that a
program holds is overwritten, and nothing is copied. What cannot be captured runs op by op.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

from hologram_torch import _C

# Fewer ops than this are recorded one by one: they fuse with what comes before and after them,
# while a circuit of its own ends the one that is open.
_FEWEST_OPS = 8
# Kinds of arguments that have circuits; more of them run op by op. Each keeps memory.
_MOST_CIRCUITS = 8
_MOST_SEEN = 64
_MOST_ATTEMPTS = 3  # to capture arguments of one kind

Boxed = Callable[[list[Any]], Any]


class Replayed:
    """A function of a list of arguments, which it empties, that runs circuits where it can.

    ``circuits`` are those captured so far; ``refusal`` says why there will be none.
    """

    _boxed_call = True

    def __init__(self, run: Boxed) -> None:
        self.run = run
        self.circuits: list[Any] = []
        self.refusal = ""
        self._seen: dict[Any, int] = {}

    def __call__(self, args: list[Any]) -> Any:
        """Return the results, as the graph does."""
        for place, circuit in enumerate(self.circuits):
            results = circuit.call(args)
            if results is not None:
                if place:  # the next call is likely to be like this one
                    self.circuits.insert(0, self.circuits.pop(place))
                args.clear()
                return results
        if not self.refusal and len(self.circuits) < _MOST_CIRCUITS and self._is_due(args):
            self._capture(args)
            if self.circuits and (results := self.circuits[0].call(args)) is not None:
                args.clear()
                return results
        return self.run(args)

    def _is_due(self, args: list[Any]) -> bool:
        """Whether such arguments came before, but not so often that trying again is in vain.

        The first call of a kind runs op by op: it makes what ops make once, and its errors are
        those of eager code.
        """
        kind = tuple(
            (a.shape, a.stride(), a.storage_offset(), a.dtype) if isinstance(a, Tensor) else a
            for a in args
        )
        before = self._seen.get(kind, 0)
        if before or len(self._seen) < _MOST_SEEN:
            self._seen[kind] = before + 1
        return 0 < before <= _MOST_ATTEMPTS

    def _capture(self, args: list[Any]) -> None:
        circuit = _C.GraphFunction()
        stand_ins = circuit.begin(args)
        if stand_ins is None:
            return
        try:
            circuit.end(list(self.run(stand_ins)))
        except BaseException as error:
            circuit.abandon()
            if not isinstance(error, Exception):
                raise
            self.refusal = str(error) or type(error).__name__
            return
        self.circuits.insert(0, circuit)


def is_worth_a_circuit(graph: Graph) -> bool:
    """Whether calls of a graph of ATen operators are to run circuits.

    Each node has to compute on the device, from what it is given, and do nothing else; and there
    have to be enough of them.
    """
    nodes = [n for n in graph.nodes if n.op == "call_function" and n.target is not operator.getitem]
    return _C.can_defer and len(nodes) >= _FEWEST_OPS and all(_is_pure(n) for n in nodes)


def _is_pure(node: Node) -> bool:
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        if target.namespace not in ("aten", "prims"):
            return False
    elif getattr(target, "__module__", "") not in ("_operator", "math"):
        return False
    values = node.meta.get("val")
    for value in values if isinstance(values, (tuple, list)) else (values,):
        if isinstance(value, Tensor) and value.device.type != "hologram":
            return False
    return True
