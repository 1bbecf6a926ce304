# SPDX-License-Identifier: MIT
"""``torch.nn.DataParallel`` on the device: how tensors go to several devices and come back.

``DataParallel`` takes the accelerator that is there, and PyTorch's functions below it know CUDA
alone. These do the same by copies, which are synchronous, so that streams are not needed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._utils import _get_available_device_type

_Tensors = Sequence[torch.Tensor]
_Indices = Sequence[int]


def _place(index: int) -> torch.device:
    """Return the device of an index; -1 is the cpu."""
    return torch.device("cpu") if index < 0 else torch.device("hologram", index)


def _need(condition: bool, text: str) -> None:
    if not condition:
        raise RuntimeError(text)


def _need_devices(name: str, tensors: _Tensors) -> None:
    for k, tensor in enumerate(tensors):
        _need(
            tensor.device.type == "hologram",
            f"{name}: 'out' has to be on 'hologram', but out[{k}] is on '{tensor.device}'",
        )


def _pieces(
    tensor: torch.Tensor, count: int, sizes: Sequence[int] | None, dim: int
) -> tuple[torch.Tensor, ...]:
    if sizes is None:
        return tensor.chunk(count, dim)
    _need(
        len(sizes) == count,
        f"scatter: each device needs a chunk size, but there are {count} devices and "
        f"{len(sizes)} chunk sizes",
    )
    return tensor.split_with_sizes(list(sizes), dim)


def _scatter(
    tensor: torch.Tensor,
    devices: _Indices,
    chunk_sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: Any = None,
) -> list[torch.Tensor]:
    _need(len(devices) > 0, "scatter: no device is named")
    chunks = _pieces(tensor, len(devices), chunk_sizes, dim)
    return [chunk.to(_place(k)) for k, chunk in zip(devices, chunks, strict=False)]


def _scatter_out(
    tensor: torch.Tensor, out: _Tensors, dim: int = 0, streams: Any = None
) -> list[torch.Tensor]:
    _need(len(out) > 0, "scatter: 'out' is empty")
    _need_devices("scatter", out)
    sizes = [o.size(dim) for o in out]
    _need(
        sum(sizes) == tensor.size(dim),
        f"scatter: the tensors of 'out' have {sum(sizes)} elements in dimension {dim}, and the "
        f"input has {tensor.size(dim)}",
    )
    for target, chunk in zip(out, tensor.split_with_sizes(sizes, dim), strict=True):
        _need(
            target.shape == chunk.shape,
            f"scatter: a chunk has shape {list(chunk.shape)}, and its 'out' {list(target.shape)}",
        )
        target.copy_(chunk)
    return list(out)


def _gather(tensors: _Tensors, dim: int, destination: int | None) -> torch.Tensor:
    _need(len(tensors) > 0, "gather: there is no tensor")
    index = torch.accelerator.current_device_index() if destination is None else destination
    return torch.cat([t.to(_place(index)) for t in tensors], dim)


def _gather_out(tensors: _Tensors, out: torch.Tensor, dim: int) -> torch.Tensor:
    _need(len(tensors) > 0, "gather: there is no tensor")
    shape = list(tensors[0].shape)
    shape[dim] = sum(t.size(dim) for t in tensors)
    _need(
        list(out.shape) == shape,
        f"gather: the result has shape {shape}, and 'out' {list(out.shape)}",
    )
    return torch.cat([t.to(out.device) for t in tensors], dim, out=out)


def _broadcast(tensor: torch.Tensor, devices: _Indices) -> list[torch.Tensor]:
    _need(len(devices) > 0, "broadcast: no device is named")
    return [tensor.to(_place(k)) for k in devices]


def _broadcast_out(tensor: torch.Tensor, out: _Tensors) -> list[torch.Tensor]:
    _need(len(out) > 0, "broadcast: 'out' is empty")
    _need_devices("broadcast", out)
    for target in out:
        _need(
            target.shape == tensor.shape,
            f"broadcast: the input has shape {list(tensor.shape)}, and a tensor of 'out' "
            f"{list(target.shape)}",
        )
        target.copy_(tensor)
    return list(out)


def _broadcast_coalesced(
    tensors: _Tensors, devices: _Indices, buffer_size: int
) -> list[list[torch.Tensor]]:
    _need(len(devices) > 0, "broadcast: no device is named")
    first = _place(devices[0])
    for k, tensor in enumerate(tensors):
        _need(
            tensor.device == first,
            f"broadcast: all tensors have to be on the first device, {first}, but tensor {k} is "
            f"on {tensor.device}",
        )
    copies = [[t.detach().to(_place(k), copy=True) for t in tensors] for k in devices[1:]]
    return [list(tensors), *copies]


_SERVED: dict[str, Callable[..., Any]] = {
    "_scatter": _scatter,
    "_scatter_out": _scatter_out,
    "_gather": _gather,
    "_gather_out": _gather_out,
    "_broadcast": _broadcast,
    "_broadcast_out": _broadcast_out,
    "_broadcast_coalesced": _broadcast_coalesced,
}


def _serving(name: str, ours: Callable[..., Any]) -> Callable[..., Any]:
    theirs = getattr(torch._C, name, None)

    @functools.wraps(ours)
    def call(*args: Any, **kwargs: Any) -> Any:
        if theirs is None or _get_available_device_type() == "hologram":
            return ours(*args, **kwargs)
        return theirs(*args, **kwargs)

    call._hologram = True  # type: ignore[attr-defined]
    return call


def install() -> None:
    """Serve the functions where ``DataParallel`` takes this device; once."""
    for name, ours in _SERVED.items():
        if not getattr(getattr(torch._C, name, None), "_hologram", False):
            setattr(torch._C, name, _serving(name, ours))
