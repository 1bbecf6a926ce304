# SPDX-License-Identifier: MIT
"""Checks that both sides compute the same before either is timed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bench.core import tensors_of

# Relative and absolute tolerance of a comparison with float64 or with another float implementation.
TOLERANCES: dict[torch.dtype, tuple[float, float]] = {
    torch.float32: (2e-5, 2e-6),
    torch.float64: (1e-9, 1e-12),
    torch.bfloat16: (2e-2, 1e-2),
    torch.float16: (4e-3, 1e-3),
}
_SAMPLED = 2_000_000
_SAMPLE = 65_536


class VerificationError(Exception):
    """The two sides disagree; no time of theirs may be reported."""


def _on_host(tensor: Tensor) -> Tensor:
    """Return the tensor's values on the host; of a large one both ends and a regular sample."""
    tensor = tensor.detach()
    if tensor.numel() > _SAMPLED and tensor.is_contiguous():
        flat = tensor.view(-1)
        step = flat.numel() // _SAMPLE
        tensor = torch.cat([flat[:_SAMPLE], flat[_SAMPLE:-_SAMPLE:step], flat[-_SAMPLE:]])
    return tensor.cpu()


def _far(a: Tensor, b: Tensor, rtol: float, atol: float) -> Tensor:
    return ~torch.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)


def verify(
    name: str,
    outputs: Any,
    peer_outputs: Any,
    oracle: Any = None,
    tolerance: tuple[float, float] | None = None,
) -> None:
    """Raise VerificationError unless `outputs` are right.

    Against the float64 oracle where there is one: an element may be off by the tolerance, or by
    twice what the peer is off. Else against the peer. Shapes and dtypes must be the peer's.
    """
    got, want = tensors_of(outputs), tensors_of(peer_outputs)
    exact = tensors_of(oracle)
    if len(got) != len(want) or (exact and len(exact) != len(want)):
        raise VerificationError(f"{name}: {len(got)} outputs instead of {len(want)}")
    for index, (a, b) in enumerate(zip(got, want)):
        where = f"{name}, output {index}"
        if a.shape != b.shape or a.dtype != b.dtype:
            raise VerificationError(
                f"{where}: {tuple(a.shape)} {a.dtype} instead of {tuple(b.shape)} {b.dtype}"
            )
        a, b = _on_host(a), _on_host(b)
        if not a.dtype.is_floating_point:
            if not torch.equal(a, b):
                raise VerificationError(f"{where}: {int((a != b).sum())} elements differ")
            continue
        rtol, atol = tolerance or TOLERANCES[a.dtype]
        a64, b64 = a.double(), b.double()
        if exact:
            truth = _on_host(exact[index]).double()
            far = _far(a64, truth, rtol, atol)
            far &= ~((a64 - truth).abs() <= 2 * (b64 - truth).abs())
        else:
            truth = b64
            far = _far(a64, b64, rtol, atol)
        if bool(far.any()):
            at = int(far.reshape(-1).nonzero()[0])
            raise VerificationError(
                f"{where}: {int(far.sum())} of {far.numel()} elements are wrong, the first "
                f"{a64.reshape(-1)[at].item():.9g} instead of {truth.reshape(-1)[at].item():.9g}"
            )
