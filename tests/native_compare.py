# SPDX-License-Identifier: MIT
"""Run one call on cpu and on hologram and demand the same result, or the same error."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from accuracy import DRAWS, Rounding, error_beside_cpu, moved_results, tensors_of, widen
from torch.utils._pytree import tree_flatten

import hologram_torch

DEVICE = torch.device("hologram")
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
# A bound of errors against double precision, instead of a distance from cpu.
ACCURATE = Rounding()
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def to_device(value: Any) -> Any:
    """Copy every tensor in a nest of lists, tuples and dicts to hologram, strides included."""
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided:
            return value.to(DEVICE)
        # The storage is copied whole, so that views keep offset and strides.
        size = value.untyped_storage().nbytes() // value.element_size()
        flat = value.detach().as_strided((size,), (1,), 0).to(DEVICE)
        result = flat.as_strided(value.shape, value.stride(), value.storage_offset())
        return result.requires_grad_(value.requires_grad)
    if isinstance(value, list | tuple):
        return type(value)(to_device(v) for v in value)
    if isinstance(value, dict):
        return {k: to_device(v) for k, v in value.items()}
    return value


def in_both_modes(call: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Return the result, of which deferred and immediate execution have to give the same bits."""
    results = []
    for mode in ("eager", "deferred"):
        with hologram_torch.execution(mode):
            results.append(call().cpu())
    assert torch.equal(*results)
    return results[0]


def _outcome(call: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Any, Exception | None]:
    try:
        return call(*args, **kwargs), None
    except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError) as error:
        return None, error


def assert_close(actual: Any, expected: Any, **tolerance: float) -> None:
    """Compare nests of tensors: device, dtype, shape and values, NaN equal to NaN."""
    if isinstance(expected, torch.Tensor):
        assert actual.device.type == "hologram"
        torch.testing.assert_close(actual.cpu(), expected, equal_nan=True, **tolerance)
    elif isinstance(expected, list | tuple):
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected, strict=True):
            assert_close(a, e, **tolerance)
    else:
        assert actual == expected


Draw = Callable[[int], tuple[Any, dict[str, Any]]]


def _average_of(call: Callable[..., Any], redraw: Draw, result: int) -> float:
    """Return how large our error of one result is beside cpu's, over arguments drawn anew."""

    def draw(seed: int) -> Any:
        args, kwargs = redraw(seed)
        wide = widen((args, kwargs))
        ours = call(*to_device(args), **to_device(kwargs))
        found = ours, call(*args, **kwargs), call(*wide[0], **wide[1])
        return tuple(tensors_of(r)[result] for r in found)

    return error_beside_cpu(draw)


def _assert_accurate(
    actual: Any,
    expected: Any,
    call: Callable[..., Any],
    wide: list[Any],
    bound: Rounding,
    redraw: Draw | None,
) -> None:
    """Compare with the same call in double precision, of `wide`: arguments, then rounded ones."""
    kinds = [
        [(i, t.dtype, t.shape) for i, t in enumerate(tree_flatten(r)[0]) if torch.is_tensor(t)]
        for r in (actual, expected)
    ]
    assert kinds[0] == kinds[1]
    assert all(t.device.type == "hologram" for t in tree_flatten(actual)[0] if torch.is_tensor(t))
    exact = call(*wide[0][0], **wide[0][1])
    moved = moved_results(lambda noise: call(*wide[noise][0], **wide[noise][1]))
    rows = zip(*map(tensors_of, (actual, expected, exact)), *moved, strict=True)
    for i, row in enumerate(rows):
        others = partial(_average_of, call, redraw, i) if redraw else None
        problem = bound.excess(*row, other_draws=others)
        assert problem is None, f"result {i}: {problem}"


def check(
    call: Callable[..., Any],
    *args: Any,
    tol: dict[str, float] | Rounding | None = None,
    redraw: Draw | None = None,
    **kwargs: Any,
) -> Any:
    """Call on both devices; the arguments given are the cpu's. Returns hologram's result.

    `redraw(seed)` returns other arguments of the same kind, for `Rounding.excess()`.
    """
    on_device = to_device(args), to_device(kwargs)
    bounded = isinstance(tol, Rounding)
    # Made before the calls, which may write into their arguments.
    wide = [widen((args, kwargs), noise) for noise in (None, *DRAWS)] if bounded else []
    expected, error = _outcome(call, args, kwargs)
    actual, raised = _outcome(call, *on_device)
    if error is not None:
        assert raised is not None, f"cpu raised {error!r}, hologram returned {actual!r}"
        assert type(raised) is type(error), (raised, error)
        ours, theirs = (str(e).replace("hologram", "cpu").split("\n")[0] for e in (raised, error))
        assert ours == theirs
        return None
    if raised is not None:
        raise raised
    if isinstance(tol, Rounding):
        _assert_accurate(actual, expected, call, wide, tol, redraw)
    else:
        assert_close(actual, expected, **(tol or {}))
    return actual


def check_native(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """As check, and the call must not reach the fallback."""
    hologram_torch.reset_fallback_counts()
    result = check(call, *args, **kwargs)
    fell_back = hologram_torch.fallback_counts()
    assert not fell_back, f"fell back: {fell_back}"
    return result


def values(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Reproducible numbers of moderate size: normal, or small integers."""
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    low = 0 if dtype == torch.uint8 else -9
    return torch.randint(low, 10, shape, generator=generator).to(dtype)


def layouts(x: torch.Tensor) -> list[torch.Tensor]:
    """The same elements contiguous, transposed in memory, strided, and with an offset."""
    result = [x]
    if x.dim() >= 2:
        result.append(x.transpose(0, -1).contiguous().transpose(0, -1))
    if x.dim() >= 1 and x.numel() > 0:
        wide = torch.zeros(*x.shape[:-1], 2 * x.shape[-1] + 1, dtype=x.dtype)
        wide[..., 1::2] = x
        result.append(wide[..., 1::2])
    return result
