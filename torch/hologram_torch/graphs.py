# SPDX-License-Identifier: MIT
"""Functions and modules that replay graphs: ``torch.hologram.make_graphed_callables``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils import _pytree as pytree

from hologram_torch import _C

__all__ = ["make_graphed_callables"]

Graphed = Callable[..., Any]


def make_graphed_callables(
    callables: Graphed | tuple[Graphed, ...],
    sample_args: tuple[Any, ...] | tuple[tuple[Any, ...], ...],
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
) -> Graphed | tuple[Graphed, ...]:
    """Return functions or modules whose forward and backward are graphs that are replayed.

    ``callables`` is one function or ``nn.Module``, or several that run in this order;
    ``sample_args`` are the positional arguments of one, or a tuple of those of each. Arguments and
    results may be tensors in tuples, lists and dicts. Each is called ``num_warmup_iters`` times
    with its sample and then captured with it. A call copies its arguments into the sample's memory
    and replays; so they must have the sample's shapes, dtypes and ``requires_grad``, and a result
    is overwritten by the next call. Parameters that gain or lose ``requires_grad`` afterwards,
    and what depends on values, are not seen.

    A module is returned itself, with another ``forward``: in the mode (``training``) in which it
    was captured it replays, in the other one it runs as before.

    ``allow_unused_input``: whether arguments may have no part in the results.

    Raises ``RuntimeError`` where PyTorch has no ``torch.accelerator.Graph``, or for an op that
    cannot be captured, which the message names; ``ValueError`` for modules with hooks, and for
    samples that are not on the device.
    """
    if not hasattr(torch.accelerator, "Graph"):
        raise RuntimeError(
            "make_graphed_callables needs torch.accelerator.Graph, which this PyTorch "
            f"({torch.__version__}) does not have"
        )
    one = not isinstance(callables, tuple)
    functions: tuple[Graphed, ...] = callables if isinstance(callables, tuple) else (callables,)
    samples: Sequence[tuple[Any, ...]] = (sample_args,) if one else sample_args
    if len(functions) != len(samples):
        raise ValueError(
            f"make_graphed_callables: {len(functions)} callables, but {len(samples)} tuples of "
            "sample arguments; give one for each"
        )
    parts = [_Part(f, args, allow_unused_input) for f, args in zip(functions, samples, strict=True)]
    for part in parts:
        for _ in range(num_warmup_iters):
            part.run_once()
    torch.accelerator.synchronize()
    for part in parts:
        part.capture_forward()
    for part in reversed(parts):
        part.capture_backward()
    graphed = tuple(part.graphed() for part in parts)
    return graphed[0] if one else graphed


def check_capturable(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Raise where a captured step would take numbers that the host counts as they are now."""
    if not _C.is_capturing_graph():
        return
    if any(group.get("capturable") is False for group in optimizer.param_groups):
        raise RuntimeError(
            f"Attempting HOLOGRAM graph capture of step() for an instance of "
            f"{type(optimizer).__name__} but param_groups' capturable is False."
        )


def install() -> None:
    """Have optimizers checked, where PyTorch itself only does that for CUDA."""
    if not hasattr(torch.optim.Optimizer, "_accelerator_graph_capture_health_check"):
        register_optimizer_step_pre_hook(check_capturable)


class _Part:
    """One function with its static tensors and its two graphs."""

    def __init__(self, function: Graphed, args: tuple[Any, ...], allow_unused: bool) -> None:
        self.function = function
        self.args = args
        self.allow_unused = allow_unused
        self.parameters: tuple[Tensor, ...] = ()
        if isinstance(function, nn.Module):
            hooks = [function._forward_hooks, function._forward_pre_hooks, function._backward_hooks]
            if any(len(h) > 0 for h in hooks):
                raise ValueError(
                    "make_graphed_callables: the module has hooks, which a replay would not call; "
                    "register them after this call"
                )
            self.parameters = tuple(function.parameters())
        leaves, self.shape = pytree.tree_flatten(args)
        self.inputs: list[Tensor] = leaves
        for leaf in leaves:
            if not isinstance(leaf, Tensor) or leaf.device.type != "hologram":
                raise ValueError(
                    "make_graphed_callables: sample arguments must be tensors on device "
                    f"'hologram', got {leaf.device if isinstance(leaf, Tensor) else leaf!r}"
                )
        self.forward_graph = torch.accelerator.Graph()
        self.backward_graph = torch.accelerator.Graph()
        self.outputs: list[Tensor] = []
        self.output_shape: Any = None
        self.grad_outputs: list[Tensor | None] = []
        self.grads: list[Tensor | None] = []

    def leaves(self) -> list[Tensor]:
        """Return the inputs, and then the parameters."""
        return [*self.inputs, *self.parameters]

    def call(self) -> list[Tensor]:
        """Call the function on the static arguments."""
        outputs, self.output_shape = pytree.tree_flatten(self.function(*self.args))
        for output in outputs:
            if not isinstance(output, Tensor):
                raise TypeError(
                    f"make_graphed_callables: the results must be tensors, got {output!r}"
                )
        return outputs

    def backward(self, outputs: list[Tensor], grads: list[Tensor | None]) -> list[Tensor | None]:
        """Return the gradients of leaves(), None for those that want none."""
        wanted = [leaf for leaf in self.leaves() if leaf.requires_grad]
        made = torch.autograd.grad(
            [output for output in outputs if output.requires_grad],
            wanted,
            [grad for grad in grads if grad is not None],
            allow_unused=self.allow_unused,
        )
        each = iter(made)
        return [next(each) if leaf.requires_grad else None for leaf in self.leaves()]

    def has_gradients(self, outputs: list[Tensor]) -> bool:
        """Whether there is anything to go back through."""
        return any(o.requires_grad for o in outputs) and any(
            leaf.requires_grad for leaf in self.leaves()
        )

    def run_once(self) -> None:
        """Run forward and backward, so that everything is there that a first call makes."""
        outputs = self.call()
        if self.has_gradients(outputs):
            grads = [torch.zeros_like(o) if o.requires_grad else None for o in outputs]
            self.backward(outputs, grads)

    def capture_forward(self) -> None:
        """Capture a call."""
        with self.forward_graph:
            self.outputs = self.call()

    def capture_backward(self) -> None:
        """Capture the way back, from gradients that each call fills."""
        self.grads = [None] * len(self.leaves())
        self.grad_outputs = [None] * len(self.outputs)
        if not self.has_gradients(self.outputs):
            return
        self.grad_outputs = [torch.zeros_like(o) if o.requires_grad else None for o in self.outputs]
        with self.backward_graph:
            self.grads = self.backward(self.outputs, self.grad_outputs)

    def graphed(self) -> Graphed:
        """Return what replays in place of the function."""
        part = self
        shown = [output.detach() for output in self.outputs]
        given = len(self.inputs)

        class Replay(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *leaves: Tensor) -> tuple[Tensor, ...]:
                for static, leaf in zip(part.inputs, leaves[:given], strict=True):
                    if leaf is not static:
                        static.detach().copy_(leaf)
                part.forward_graph.replay()
                unseen = [
                    s for s, o in zip(shown, part.outputs, strict=True) if not o.requires_grad
                ]
                ctx.mark_non_differentiable(*unseen)
                return tuple(s.detach() for s in shown)

            @staticmethod
            def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
                for static, grad in zip(part.grad_outputs, grads, strict=True):
                    if static is None:
                        continue
                    if grad is None:
                        static.zero_()
                    else:
                        static.copy_(grad)
                part.backward_graph.replay()
                return tuple(None if g is None else g.detach() for g in part.grads)

        def replay(*args: Any) -> Any:
            leaves, shape = pytree.tree_flatten(args)
            if shape != part.shape:
                raise TypeError(
                    "a graphed callable takes arguments of the structure of its sample: "
                    f"{part.shape}, got {shape}"
                )
            for static, leaf in zip(part.inputs, leaves, strict=True):
                if leaf.shape != static.shape or leaf.dtype != static.dtype:
                    raise ValueError(
                        f"a graphed callable was captured with {tuple(static.shape)} of "
                        f"{static.dtype}, got {tuple(leaf.shape)} of {leaf.dtype}; capture "
                        "another one for these"
                    )
            outputs = Replay.apply(*leaves, *part.parameters)
            return pytree.tree_unflatten(list(outputs), part.output_shape)

        module = self.function
        if not isinstance(module, nn.Module):
            return replay
        original, training = module.forward, module.training

        def forward(*args: Any, **options: Any) -> Any:
            if module.training == training and not options:
                return replay(*args)
            return original(*args, **options)

        module.forward = forward  # type: ignore[method-assign]
        return module
