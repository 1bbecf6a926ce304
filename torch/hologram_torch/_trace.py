# SPDX-License-Identifier: MIT
"""Programs of ATen's operators: what a function of elements calls, and what its gradient calls.

The function runs once on single elements, and autograd goes back through it twice: as for a
gradient, and as for one that is differentiated again. ``torch/csrc/ops/custom/program.h`` runs what
was written down.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from hologram_torch import _C

_FILLED = ("_like", "::fill_", "::zero_", "::new_zeros", "::new_full")


class _Tracer(TorchDispatchMode):
    """Writes down the operators that are called below autograd; equal ones are one step.

    A value is a place, of the arguments first and then of the steps, or a tuple of what it is where
    it depends on no argument.
    """

    def __init__(self, arguments: list[Tensor]) -> None:
        super().__init__()
        self.steps: list[Any] = []
        self._arguments = len(arguments)
        self._found: dict[str, int] = {}
        self._values: dict[int, Any] = {id(t): place for place, t in enumerate(arguments)}
        self._alive: list[Any] = list(arguments)  # so that each has an id of its own

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # it would load the compiler

    def value_of(self, given: Any) -> Any:
        """Return the value of a tensor, or of anything else that an operator is given."""
        return self._values.get(id(given), (given,))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Write down the call."""
        out = func(*args, **(kwargs or {}))
        name, overload = func._schema.name, func._schema.overload_name
        given = tuple(map(self.value_of, args))
        if name == "aten::detach" or (name == "aten::_to_copy" and args[0].dim() == 0):
            value = given[0]  # of numbers alone a step computes in float64 where that matters
        elif not any(isinstance(v, int) for v in given) or name.endswith(_FILLED):
            value = (out.flatten()[0].item(),)
        elif kwargs and "dtype" in kwargs:
            raise RuntimeError("a dtype that would be that of single elements in float64")
        else:
            # What is written in place was made for that, and nothing else reads what it was.
            step = (name.removesuffix("_"), overload, given, kwargs or {})
            value = self._found.setdefault(repr(step), self._arguments + len(self.steps))
            if value == self._arguments + len(self.steps):
                self.steps.append(step)
        self._values[id(out)] = value
        self._alive.append(out)
        return out


def trace(name: str, kinds: tuple[Any, ...], function: Callable[..., Any]) -> Any:
    """Return the program of a function and its gradients; None where it cannot have one.

    name: for the autograd node. kinds: of each argument a tensor's dtype or a number's type.
    """
    hooks: Any = torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)
    if torch._C._autograd._saved_tensors_hooks_get_disabled_error_message() is not None:
        hooks = contextlib.nullcontext()
    autocast = torch.autocast("cpu", enabled=False)
    with torch.inference_mode(False), torch.enable_grad(), autocast, hooks:
        arguments = [
            torch.ones(1, dtype=kind, device="cpu", requires_grad=kind.is_floating_point)
            if isinstance(kind, torch.dtype)
            else torch.tensor(kind(1), dtype=torch.float64 if kind is float else None, device="cpu")
            for kind in kinds
        ]
        seed = torch.ones(1, dtype=torch.float64, device="cpu")
        tracer = _Tracer([*arguments, seed])
        wanted = [t for t in arguments if t.requires_grad]
        try:
            with tracer:
                result = function(*arguments)
                results = [result]
                if result.requires_grad:
                    result.register_hook(lambda _: seed)
                    for again in (False, True):
                        gradients = iter(
                            torch.autograd.grad(
                                result,
                                wanted,
                                retain_graph=True,
                                create_graph=again,
                                allow_unused=True,
                            )
                        )
                        results += [next(gradients) if t.requires_grad else None for t in arguments]
            return _C._make_program(
                f"{name}Backward",
                len(arguments) + 1,
                tracer.steps,
                list(map(tracer.value_of, results)),
            )
        except (AttributeError, RuntimeError, TypeError):
            return None  # PyTorch says why where the call is written out
