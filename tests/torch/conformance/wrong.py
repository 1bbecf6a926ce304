# SPDX-License-Identifier: MIT
"""Arguments made wrong: one leaf of a sample is changed, and cpu says whether that is an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from conformance import harness
from conformance.exceptions import TAKE_BOTH, WRONG

Change = Callable[[Any], Any]


def _longer(t: torch.Tensor) -> torch.Tensor:
    return torch.cat([t, t, t.narrow(-1, 0, 1)], -1)


TENSORS: dict[str, Change] = {
    "integers": lambda t: t.to(torch.int32),
    "complex numbers": lambda t: t.to(torch.complex64),
    "truth values": lambda t: t.to(torch.bool),
    "another float": lambda t: t.to(torch.float64),
    "a dimension more": lambda t: t[None],
    "a dimension less": lambda t: t[0],
    "one element": lambda t: t.flatten()[0],
    "a longer one": _longer,
    "an empty one": lambda t: t.narrow(-1, 0, 0),
    "a large index": lambda t: t + 1000,
    "a negative index": lambda t: t - 1000,
}
_INDICES = ("a large index", "a negative index")
NUMBERS: dict[str, Change] = {"a large number": lambda n: 97, "a negative number": lambda n: -7}
LISTS: dict[str, Change] = {
    "a longer list": lambda s: [*s, 1],
    "a shorter list": lambda s: list(s)[1:],
    "negative numbers": lambda s: [-7 for _ in s],
    "one number twice": lambda s: [s[0] for _ in s] if len(s) > 1 else [*s, *s],
}
WORDS: dict[str, Change] = {"no such word": lambda s: "nonsense"}
DTYPES: dict[str, Change] = {
    "complex numbers": lambda d: torch.complex64,
    "truth values": lambda d: torch.bool,
}


def _is_numbers(x: Any) -> bool:
    return isinstance(x, (list, tuple)) and len(x) > 0 and all(type(i) is int for i in x)


def _changes(leaf: Any) -> dict[str, Change]:
    if isinstance(leaf, torch.Tensor):
        if leaf.layout != torch.strided or leaf.numel() == 0:
            return {}
        found = dict(TENSORS)
        if leaf.dtype != torch.int64:
            for name in _INDICES:
                del found[name]
        if leaf.dim() == 0:
            for name in ("a dimension less", "one element", "a longer one", "an empty one"):
                del found[name]
        return found
    if type(leaf) is int:
        return NUMBERS
    if _is_numbers(leaf):
        return LISTS
    if isinstance(leaf, str):
        return WORDS
    if isinstance(leaf, torch.dtype):
        return DTYPES
    return {}


def cases(sample: Any) -> Iterator[tuple[str, Any]]:
    """Yield what is wrong, and the sample's arguments with that: (input, args, kwargs)."""
    original = (sample.input, sample.args, sample.kwargs)
    leaves, spec = tree_flatten(original, is_leaf=_is_numbers)
    for place, leaf in enumerate(leaves):
        for name, change in _changes(leaf).items():
            changed = change(leaf.detach() if isinstance(leaf, torch.Tensor) else leaf)
            yield (
                f"{place}: {name}",
                tree_unflatten([*leaves[:place], changed, *leaves[place + 1 :]], spec),
            )


def check_op(op: Any, samples: int, step: int, report: harness.Report) -> None:
    """Compare whether every step-th wrong call of an op raises, and what."""
    name = harness.op_name(op)
    report.dtype = harness.ERRORS
    known = op.supported_dtypes("cpu")
    dtype = next((d for d in (torch.float32, torch.int64) if d in known), None)
    if dtype is None:
        return
    made, error = harness.attempt(lambda: list(harness.samples_of(op, dtype, samples, False)))
    if error is not None:
        return
    # Ops begin at different changes, so that a few of each reach all of them.
    count = sum(map(ord, name))
    for _, sample in made:
        for what, original in cases(sample):
            count += 1
            if count % step == 0:
                _compare(op, name, what, original, report)


def _compare(op: Any, name: str, what: str, original: Any, report: harness.Report) -> None:
    stay = harness._stays_on_cpu(op, original)
    _, cpu_error = harness.attempt(harness.run_op, op, harness.to_device(original, "cpu"))
    ours, error = harness.attempt(harness.to_device, original, harness.DEVICE, stay)
    if error is not None:
        return
    _, our_error = harness.attempt(harness.run_op, op, ours)
    report.samples += 1
    report.raised += cpu_error is not None
    if type(cpu_error) is type(our_error):
        return
    if any(change in what for change in WRONG.get(name, ((), ""))[0]):
        report.excused["wrong", name, harness.ERRORS] += 1
        return
    texts = [harness.short_text(e) if e else "no error" for e in (our_error, cpu_error)]
    report.failures.append(harness.Failure(name, 0, what, f"{texts[0]} where cpu: {texts[1]}"))


def check_mixed_devices(op: Any, report: harness.Report) -> None:
    """Leave one tensor after the other on the CPU: each time the op refuses, by RuntimeError."""
    name = harness.op_name(op)
    if torch.float32 not in op.supported_dtypes("cpu") or name in TAKE_BOTH:
        return
    report.dtype = harness.ERRORS
    made, error = harness.attempt(lambda: list(harness.samples_of(op, torch.float32, 1, False)))
    if error is not None or not made:
        return
    sample = made[0][1]
    leaves, spec = tree_flatten((sample.input, sample.args, sample.kwargs))

    def moved(place: int, leaf: Any) -> Any:
        return harness.to_device(leaf, "cpu" if place == stays else harness.DEVICE)

    tensors = [
        i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.dim() > 0
    ]
    for stays in tensors if len(tensors) > 1 else []:
        arguments = tree_unflatten([moved(i, leaf) for i, leaf in enumerate(leaves)], spec)
        _, error = harness.attempt(harness.run_op, op, arguments)
        report.samples += 1
        report.raised += error is not None
        if type(error) is not RuntimeError:
            text = harness.short_text(error) if error else "no error"
            report.failures.append(harness.Failure(name, 0, f"tensor {stays} on cpu", text))
