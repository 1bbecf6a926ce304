# SPDX-License-Identifier: MIT
"""Other ways to call an op of the database: in place, with out=, on views, under transforms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from accuracy import widen
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_flatten, tree_map

from conformance import harness
from conformance.exceptions import RANDOM, UNSPECIFIED

FLOATS = (torch.float64, torch.complex128)


@dataclass(frozen=True)
class Variant:
    """One way to call an op: (op, (input, args, kwargs)) -> nest of results, on either device."""

    run: harness.Run
    # Whether an op has it.
    has: Callable[[Any], bool] = lambda op: True
    # Whether a sample of cpu has it; called with the same arguments as `run`.
    fits: Callable[[Any, Any], bool] = lambda op, sample: True
    # Changes a sample before it is copied to the devices.
    prepare: Callable[[Any], Any] | None = None
    gradients: bool = False  # gradients of the results are compared, too
    needs_gradients: bool = False  # only what the database can differentiate
    dtypes: tuple[torch.dtype, ...] | None = None


def tensors_in(nest: Any) -> list[torch.Tensor]:
    """Return the tensors of a nest, in order."""
    return [t for t in tree_flatten(nest)[0] if isinstance(t, torch.Tensor)]


# --- In place and out= ----------------------------------------------------------------------------


def _in_place(op: Any, sample: Any) -> Any:
    """Call the in-place variant on a copy; return the result, the copy, and if they are one."""
    value, args, kwargs = sample
    torch.manual_seed(1234)
    # A leaf that asks for its gradient may not be written; a copy of it may.
    copy = tree_map(lambda t: t.clone() if isinstance(t, torch.Tensor) else t, value)
    result = op.get_inplace()(copy, *args, **kwargs)
    same = [a is b for a, b in zip(tensors_in(result), tensors_in(copy), strict=False)]
    return result, copy, same


def _has_in_place(op: Any) -> bool:
    return op.get_inplace() is not None


OUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "fitting": torch.zeros_like,
    "empty": lambda t: t.new_empty((0,)),
    "strided": lambda t: t.new_zeros([*t.shape, 2])[..., 0],
    "wider": lambda t: torch.zeros_like(
        t, dtype=torch.complex128 if t.is_complex() else torch.float64
    ),
    "narrower": lambda t: torch.zeros_like(t, dtype=torch.int8),
}


def _with_out(kind: str) -> harness.Run:
    """Return a call with out= made by a rule; results and whether they stay where they were."""

    def run(op: Any, sample: Any) -> Any:
        value, args, kwargs = sample
        plain = harness.run_op(op, sample)
        if not tensors_in(plain):
            raise harness.NotApplicable
        out = tree_map(lambda t: OUTS[kind](t.detach()), plain)
        places = [t.data_ptr() for t in tensors_in(out)]
        torch.manual_seed(1234)
        result = op(value, *args, **kwargs, out=out)
        same = [a is b for a, b in zip(tensors_in(result), tensors_in(out), strict=True)]
        if kind != "empty":
            same += [p == t.data_ptr() for p, t in zip(places, tensors_in(out), strict=True)]
        return out, same

    return run


# --- Views ----------------------------------------------------------------------------------------


def _shares(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.layout != torch.strided or b.layout != torch.strided:
        return False
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata


def _has_views(op: Any, sample: Any) -> bool:
    """Tell whether a result of cpu shares memory with an argument."""
    arguments = tensors_in(sample)
    try:
        results = tensors_in(harness.run_op(op, sample))
    except Exception:
        return False
    return any(_shares(r, a) and r is not a for r in results for a in arguments)


def _write_views(op: Any, sample: Any) -> Any:
    """Write to every view that an op returns; return who shares with whom, and all arguments."""
    with torch.no_grad():
        results = tensors_in(harness.run_op(op, sample))
        shared = [[_shares(r, a) for a in tensors_in(sample)] for r in results]
        views = [(r._is_view(), r.storage_offset()) for r in results]
        problems = []
        for r in (r for r, row in zip(results, shared, strict=True) if any(row)):
            try:
                r.copy_(r.clone().logical_not() if r.dtype == torch.bool else r.clone().add_(1))
            except RuntimeError as error:  # overlapping elements, say
                problems.append(type(error).__name__)
    written = [a for a in tensors_in(sample) if any(_shares(r, a) for r in results)]
    return shared, views, problems, results, written


# --- Transforms -----------------------------------------------------------------------------------


def _forward_mode(op: Any, sample: Any) -> Any:
    """Push a tangent of every input that asks for its gradient through an op."""
    seed = iter(range(1000))

    def dual(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or not x.requires_grad:
            return x
        torch.manual_seed(next(seed))
        kind = torch.complex64 if x.is_complex() else torch.float32
        tangent = torch.randn(x.shape, dtype=kind).to(x.dtype)
        if harness.noise_of_inputs is not None:
            tangent = widen(tangent, harness.noise_of_inputs, torch.float32)
        return forward_ad.make_dual(x.detach(), tangent.to(x.device))

    with forward_ad.dual_level():
        results = harness.run_op(op, tree_map(dual, sample))
        return [tuple(forward_ad.unpack_dual(t)) for t in tensors_in(results)]


def _has_forward_mode(op: Any) -> bool:
    return bool(op.supports_forward_ad)


def _batched(op: Any, sample: Any) -> Any:
    """Call an op under vmap on two copies of its first argument."""
    value, args, kwargs = sample
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        raise harness.NotApplicable
    stacked = torch.stack([value.detach(), value.detach()])

    def call(x: torch.Tensor) -> Any:
        torch.manual_seed(1234)
        return op(x, *args, **kwargs)

    return torch.func.vmap(call, randomness="same")(stacked)


def _functional_gradient(op: Any, sample: Any) -> Any:
    """Take torch.func.vjp and jvp of an op in its first argument."""
    value, args, kwargs = sample
    if not isinstance(value, torch.Tensor) or not value.requires_grad:
        raise harness.NotApplicable

    def call(x: torch.Tensor) -> Any:
        torch.manual_seed(1234)
        results = tensors_in(op(x, *args, **kwargs))
        return tuple(t for t in results if t.is_floating_point() or t.is_complex())

    x = value.detach()
    results, pull = torch.func.vjp(call, x)
    if not results:
        raise harness.NotApplicable
    grads = []
    for r in results:
        torch.manual_seed(7)
        kind = torch.complex64 if r.is_complex() else torch.float32
        grad = torch.randn(r.shape, dtype=kind).to(r.dtype)
        if harness.noise_of_inputs is not None:
            grad = widen(grad, harness.noise_of_inputs, torch.float32)
        grads.append(grad.to(r.device))
    return results, pull(tuple(grads))


def _fake(op: Any, sample: Any) -> Any:
    """Compare what a FakeTensor says of the results with the results."""
    real = tensors_in(harness.run_op(op, sample))
    with FakeTensorMode() as mode:
        known: dict[int, FakeTensor] = {}

        def fake(x: Any) -> Any:
            if not isinstance(x, torch.Tensor):
                return x
            return known.setdefault(id(x), mode.from_tensor(x))

        promised = tensors_in(harness.run_op(op, tree_map(fake, sample)))
    return [
        (p.dtype == r.dtype, p.shape == r.shape, p.device == r.device, p.requires_grad)
        for p, r in zip(promised, real, strict=True)
    ]


def _meta(op: Any, sample: Any) -> Any:
    """Compare dtypes and shapes on the device meta with those of the results."""
    real = tensors_in(harness.run_op(op, sample))
    moved = tree_map(lambda x: x.to("meta") if isinstance(x, torch.Tensor) else x, sample)
    promised = tensors_in(harness.run_op(op, moved))
    return [
        (p.dtype == r.dtype, p.shape == r.shape, p.device.type)
        for p, r in zip(promised, real, strict=True)
    ]


def _gradcheck(op: Any, sample: Any) -> Any:
    """Compare gradients with finite differences, along one direction."""
    leaves = harness.leaves_of(sample)
    if not leaves:
        raise harness.NotApplicable
    flat, spec = tree_flatten(sample)
    places = [next(k for k, x in enumerate(flat) if x is leaf) for leaf in leaves]

    def call(*inputs: torch.Tensor) -> Any:
        values = list(flat)
        for place, x in zip(places, inputs, strict=True):
            values = [x if v is flat[place] else v for v in values]
        results = harness.differentiable(harness.run_op(op, torch.utils._pytree.tree_unflatten(
            values, spec)))  # fmt: skip
        return tuple(results)

    if not call(*leaves):
        raise harness.NotApplicable
    return torch.autograd.gradcheck(call, leaves, fast_mode=True, nondet_tol=1e-12)


def _is_exact(op: Any) -> bool:
    return op.name not in RANDOM and op.name not in UNSPECIFIED and op.name not in harness.DROPOUT


VARIANTS: dict[str, Variant] = {
    "functional": Variant(harness.run_op, gradients=True),
    "in-place": Variant(_in_place, has=_has_in_place, gradients=True),
    **{
        f"out= {kind}": Variant(_with_out(kind), has=lambda op: bool(op.supports_out))
        for kind in OUTS
    },
    "non-contiguous": Variant(
        harness.run_op, prepare=lambda sample: sample.noncontiguous(), gradients=True
    ),
    "views": Variant(_write_views, fits=_has_views),
    "forward mode": Variant(_forward_mode, has=_has_forward_mode, needs_gradients=True),
    "vmap": Variant(_batched),
    "vjp": Variant(_functional_gradient, has=_is_exact, needs_gradients=True),
    "fake": Variant(_fake),
    "meta": Variant(_meta),
    "gradcheck": Variant(_gradcheck, has=_is_exact, needs_gradients=True, dtypes=FLOATS),
}


def check_variant(
    op: Any, name: str, dtype: torch.dtype, limit: int | None, report: harness.Report
) -> None:
    """Run an op's samples in one way on both devices."""
    variant = VARIANTS[name]
    wanted = variant.gradients or variant.needs_gradients
    grad = wanted and harness.has_gradient(op, dtype)
    if not variant.has(op) or (variant.needs_gradients and not grad):
        return
    if variant.dtypes is not None and dtype not in variant.dtypes:
        return
    report.dtype = dtype
    try:
        samples = list(harness.samples_of(op, dtype, limit, grad))
    except Exception as error:
        # Of nested tensors there may be no samples, or none of a dtype.
        if "does not support NJT" not in str(error) and not isinstance(error, NotImplementedError):
            report.add(harness.op_name(op), -1, "samples", harness.short_text(error))
        return
    for index, sample in samples:
        if name == "in-place" and sample.broadcasts_input:
            continue
        if variant.prepare is not None:
            if any(t.layout != torch.strided for t in tensors_in((sample.input, sample.args))):
                continue  # there is no such form of it
            sample = variant.prepare(sample)
        for original, is_random in harness.parts_of(op, sample):
            if not variant.fits(op, harness.to_device(original, "cpu")):
                continue
            harness.check_sample(
                op, index, original, is_random, grad and variant.gradients, report, variant.run
            )
