# SPDX-License-Identifier: MIT
"""What PyTorch's tools are told of the operators that the device keeps whole.

`FlopCounterMode` gets formulas for attention and for products with weights of four bits. DTensor
gets the ways in which attention can be split over ranks: by batches and by heads, as CUDA's
kernels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch

_FORWARD = torch.ops.aten._scaled_dot_product_fused_attention_overrideable
_BACKWARD = torch.ops.aten._scaled_dot_product_fused_attention_overrideable_backward


def flops(module: ModuleType) -> None:
    """Add formulas to ``torch.utils.flop_counter``."""
    # PyTorch's formulas take tensors for their shapes by themselves.
    module.register_flop_formula(_FORWARD, get_raw=True)(module.sdpa_flop)
    module.register_flop_formula(_BACKWARD, get_raw=True)(module.sdpa_backward_flop)
    module.register_flop_formula(torch.ops.hologram.linear_int4)(_linear_int4_flop)


def _linear_int4_flop(
    values: Sequence[int], weight: Sequence[int], *_: Any, out_shape: Any = None, **__: Any
) -> int:
    return 2 * math.prod(values) * weight[0]


def shardings(module: ModuleType) -> None:
    """Add attention to ``torch.distributed.tensor``."""
    from torch.distributed.tensor.experimental import register_sharding

    register_sharding(_FORWARD.default)(_forward_shardings)
    register_sharding(_BACKWARD.default)(_backward_shardings)


def _splits(query: Any, key: Any, mask: Any) -> list[tuple[Any, Any]]:
    """Return how queries, keys and values may lie, and how the mask then does."""
    from torch.distributed.tensor import Replicate, Shard

    def of_mask(dim: int) -> Any:
        # A dimension that the mask does not have, or has once for all, stays whole.
        place = -1 if mask is None else dim - (4 - len(mask.shape))
        return Shard(place) if place >= 0 and mask.shape[place] != 1 else Replicate()

    # Heads that share keys stay with those keys.
    shared = query.shape[1] != key.shape[1] and key.shape[1] % key.mesh.size() != 0
    ways = [(Replicate(), Replicate()), (Shard(0), of_mask(0))]
    return ways if shared else [*ways, (Shard(1), of_mask(1))]


def _forward_shardings(
    query: Any, key: Any, value: Any, mask: Any = None, *_: Any, **__: Any
) -> list[tuple[list[Any], list[Any]]]:
    from torch.distributed.tensor import Replicate

    # output, logsumexp, two lists of lengths, two lengths, seed, offset, debug mask
    return [
        (
            [place, place, None, None, None, None, Replicate(), Replicate(), None],
            [place, place, place] + ([] if mask is None else [of_mask]),
        )
        for place, of_mask in _splits(query, key, mask)
    ]


def _backward_shardings(
    grad: Any, query: Any, key: Any, value: Any, mask: Any, *_: Any, **__: Any
) -> list[tuple[list[Any], list[Any]]]:
    from torch.distributed.tensor import Replicate

    # gradient, query, key, value, mask, output, logsumexp, seed, offset
    return [
        (
            [place, place, place, None],
            [place] * 4
            + ([] if mask is None else [of_mask])
            + [place, place, Replicate(), Replicate()],
        )
        for place, of_mask in _splits(query, key, mask)
    ]
