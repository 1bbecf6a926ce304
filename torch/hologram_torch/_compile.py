# SPDX-License-Identifier: MIT
"""The backend of ``torch.compile(model, backend='hologram')``.

AOTAutograd makes one graph of the forward and one of the backward pass. The device records what a
graph calls and fuses it by itself, so there is nothing to generate: each graph becomes a Python
function that calls the operators which eager code calls, without autograd between them. What its
second call records becomes a circuit, which later calls run as a whole (_replay.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch._functorch.aot_autograd import aot_module_simplified
from torch.fx import GraphModule, Node
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.graph import _BoxedCodeGen

from hologram_torch._replay import Replayed, is_worth_a_circuit

aten = torch.ops.aten

# Operators that Python reaches as methods of a tensor only.
_METHODS = ("copy_", "expand", "view")

_RESAMPLING = (
    "upsample_linear1d",
    "upsample_bilinear2d",
    "upsample_trilinear3d",
    "upsample_bicubic2d",
    "upsample_nearest1d",
    "upsample_nearest2d",
    "upsample_nearest3d",
)


def hologram(
    module: GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    name: str | None = None,
) -> Callable[..., Any]:
    """Compile what Dynamo captured. PyTorch finds this by its entry point.

    The modes ``default`` and ``reduce-overhead`` are the same. Raises ``ValueError`` for other
    modes, and for options.
    """
    if mode not in (None, "default", "reduce-overhead") or options:
        raise ValueError(
            "torch.compile(backend='hologram') has the modes 'default' and 'reduce-overhead', "
            f"which are the same, and no options, got mode={mode!r} and options={options!r}"
        )
    with contextlib.nullcontext() if _has_symbols(example_inputs) else _whole_resampling():
        compiled = aot_module_simplified(
            module,
            example_inputs,
            fw_compiler=compile_graph,
            bw_compiler=compile_graph,
            inference_compiler=compile_graph,
            keep_inference_input_mutations=True,
        )
    return torch._dynamo.disable(compiled, reason="this is the compiled function")


def compile_graph(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Make a function of a list of arguments, which it empties, of a graph of ATen operators."""
    graph = gm.graph
    replays = is_worth_a_circuit(graph)
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if node.target is aten._native_batch_norm_legit_functional.default:
            _norm_in_place(node)
        elif node.target is aten._native_batch_norm_legit.no_stats:
            node.target = _norm_without_statistics
        elif node.target is aten._native_batch_norm_legit_no_training.default:
            node.target = _norm_of_inference
        elif node.target is aten.detach.default and not _is_returned(node):
            # Nothing below autograd can tell the two apart.
            node.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]
            graph.erase_node(node)
        elif node.target is aten.view.default:
            # Some kernels lay results out otherwise than the trace assumed, attention for one.
            node.target = torch._C._VariableFunctions.reshape
        else:
            node.target = _python_function(node)
    graph.set_codegen(_BoxedCodeGen())
    gm.recompile()
    # Otherwise the first call does it, and each goes through the hooks of a module.
    _LazyGraphModule.force_recompile(gm)
    forward = type(gm).forward

    def run(args: list[Any]) -> Any:
        return forward(gm, args)

    run._boxed_call = True  # type: ignore[attr-defined]
    return Replayed(run) if replays else run


def _has_symbols(inputs: Sequence[Any]) -> bool:
    return any(
        isinstance(size, torch.SymInt)
        for given in inputs
        for size in (given.shape if isinstance(given, Tensor) else (given,))
    )


def _is_returned(node: Node) -> bool:
    return any(user.op == "output" for user in node.users)


def _python_function(node: Node) -> Any:
    """Return the function of ``torch`` that calls the operator of a node.

    Its parser of arguments is generated for each operator and takes half the time of the general
    one. It is not used where it differs: where an operator makes a tensor of nothing (the default
    device), in losses (a `reduction` that is not given counts as none) and where tensors in a list
    may be None.
    """
    operator = node.target
    if not isinstance(operator, torch._ops.OpOverload) or operator.namespace != "aten":
        return operator
    arguments = operator._schema.arguments
    if not arguments or str(arguments[0].type) not in ("Tensor", "List[Tensor]"):
        return operator
    if any(a.name == "reduction" or "Optional[Tensor]]" in str(a.type) for a in arguments):
        return operator
    name = operator._schema.name.removeprefix("aten::")
    if name in _METHODS:
        return getattr(torch._C.TensorBase, name)
    for functions in (torch._C._VariableFunctions, torch._C._nn):
        if hasattr(functions, name):
            return getattr(functions, name)
    return operator


def _norm_in_place(node: Any) -> None:
    """Call the kernel of eager code for a batch norm whose statistics were made functional."""
    _, _, _, mean, var, training, *_ = node.args
    if not training:
        node.target = _norm
        return
    results = {user.args[1]: user for user in node.users}
    written = [
        copy
        for place, statistic in ((3, mean), (4, var))
        for copy in (results[place].users if place in results else ())
        if copy.target is aten.copy_.default and copy.args[0] is statistic
    ]
    # The statistics are updated in place if no other node reads the old ones.
    in_place = len(written) == 2 and all(
        statistic.op == "placeholder" and set(statistic.users) == {node, copy}
        for statistic, copy in zip((mean, var), written, strict=True)
    )
    node.target = _norm if in_place else _norm_of_copies
    if in_place:
        for copy in written:
            copy.replace_all_uses_with(copy.args[0])
            copy.graph.erase_node(copy)


def _norm(
    x: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    # The backward pass is given the statistics and does not read them. So a second forward pass may
    # write them before it, as in eager code: what it keeps counts no writes.
    return (*torch.native_batch_norm(x, weight, bias, mean, var, *rest), mean.data, var.data)


def _norm_of_copies(
    x: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    return _norm(x, weight, bias, mean.clone(), var.clone(), *rest)


def _norm_without_statistics(x: Tensor, weight: Any, bias: Any, *rest: Any) -> tuple[Tensor, ...]:
    return torch.native_batch_norm(x, weight, bias, None, None, *rest)


@contextlib.contextmanager
def _whole_resampling() -> Iterator[None]:
    """Trace interpolation as the operators that eager code calls.

    PyTorch traces it as indexing and arithmetic, which rounds otherwise. With symbolic sizes that
    stays so, for the gradients cannot be traced whole. The lock of Dynamo's compilation is held, so
    that no other trace sees this.
    """
    removed = []
    for name in _RESAMPLING:
        packet = getattr(aten, name)
        for operator in (packet.default, packet.vec):
            removed.append((operator, dict(operator.py_kernels)))
            for key in (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd):
                operator.py_kernels.pop(key, None)
    try:
        for operator, _ in removed:
            operator._dispatch_cache.clear()
        yield
    finally:
        for operator, kernels in removed:
            operator.py_kernels.clear()
            operator.py_kernels.update(kernels)
            operator._dispatch_cache.clear()


def _norm_of_inference(
    x: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    return torch.native_batch_norm(x, weight, bias, mean, var, False, *rest)
