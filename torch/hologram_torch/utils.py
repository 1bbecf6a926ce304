# SPDX-License-Identifier: MIT
"""Memory shared between PyTorch's tensors and the SDK's buffers and tensors, without a copy.

For people who want Hologram's arrays beside CPU tensors rather than a device:

>>> import torch, hologram, hologram_torch
>>> from hologram_torch.utils import buffer_to_tensor, tensor_to_buffer
>>> with hologram_torch.Executor() as ex:
...     buffer, x = tensor_to_buffer(ex, torch.arange(6.0))
...     hologram.ops.vector_relu(ex, buffer, buffer)  # writes x
...     y = buffer_to_tensor(buffer, (2, 3))  # the same memory again

Memory that both sides hold may be read by either at any time, so the SDK's ops on it run at their
calls and do not wait to be fused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from hologram_ffi import HologramTensor
from torch import Tensor

import hologram
from hologram import Buffer, Executor

__all__ = [
    "buffer_to_tensor",
    "create_executor_for_tensor",
    "hologram_randn",
    "hologram_tensor",
    "tensor_to_buffer",
    "to_pytorch",
    "validate_tensor_compatible",
]

_DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
)
_DEVICES = ("cpu", "hologram")


def validate_tensor_compatible(tensor: Tensor) -> None:
    """Check that a tensor's memory can be shared as it is.

    That takes a dense contiguous tensor on ``cpu`` or ``hologram``, of a dtype that Hologram has,
    that is not part of a graph of gradients.

    Raises:
        TypeError: it is no ``torch.Tensor``.
        ValueError: its memory cannot be shared; the message says why and what to do.
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"expected a torch.Tensor, got {type(tensor).__name__}")
    if tensor.device.type not in _DEVICES:
        raise ValueError(
            f"the tensor is on {tensor.device}, whose memory Hologram does not reach; "
            f"pass tensor.cpu() or tensor.to('hologram')"
        )
    if tensor.layout != torch.strided:
        raise ValueError(f"the tensor's layout is {tensor.layout}; pass tensor.to_dense()")
    if tensor.dtype not in _DTYPES:
        known = ", ".join(str(dtype).removeprefix("torch.") for dtype in _DTYPES)
        raise ValueError(f"Hologram has no {tensor.dtype}; convert with tensor.to(): {known}")
    if tensor.requires_grad:
        raise ValueError(
            "the tensor requires a gradient, and what is written to its memory from elsewhere "
            "would be unknown to autograd; pass tensor.detach()"
        )
    if tensor.is_conj() or tensor.is_neg():
        raise ValueError(
            "the tensor is conjugated or negated lazily, so its memory has other values; "
            "pass tensor.resolve_conj().resolve_neg()"
        )
    if not tensor.is_contiguous():
        raise ValueError(
            f"the tensor is not contiguous (shape {tuple(tensor.shape)}, strides "
            f"{tensor.stride()}); pass tensor.contiguous()"
        )


def _host(tensor: Tensor) -> Tensor:
    """Return a tensor's memory as a CPU tensor."""
    return tensor if tensor.is_cpu else torch.ops.hologram._host_view(tensor)


def tensor_to_buffer(executor: Executor, tensor: Tensor) -> tuple[Buffer, Tensor]:
    """Return a Buffer on a tensor's memory, of its dtype and shape, and the tensor.

    Nothing is copied: what either writes the other reads. Each keeps the memory alive, whether the
    other lives or not, and so does the buffer when the executor is closed.

    Raises:
        TypeError: no hologram.Executor, or no tensor.
        RuntimeError: the executor is closed.
        ValueError: see :func:`validate_tensor_compatible`.
    """
    if type(executor) is not Executor:
        raise TypeError(
            f"tensor_to_buffer: the first argument must be a hologram.Executor, not "
            f"{type(executor).__name__}; make one with hologram_torch.Executor()"
        )
    if executor.closed:
        raise RuntimeError("tensor_to_buffer: the Executor is closed; make a new one")
    validate_tensor_compatible(tensor)
    return Buffer.from_dlpack(_host(tensor)), tensor


def buffer_to_tensor(buffer: Buffer, shape: int | Sequence[int] | None = None) -> Tensor:
    """Return a CPU tensor of a shape on a Buffer's memory, which it keeps alive; nothing is copied.

    ``shape`` has as many elements as the buffer; one size may be -1. None is the buffer's own.
    Waits for the work recorded on the buffer; later ops on it run at their calls.

    Raises:
        TypeError: no hologram.Buffer, or no shape.
        ValueError: the shape has another number of elements.
        RuntimeError: the buffer was freed.
    """
    if not isinstance(buffer, Buffer):
        raise TypeError(f"expected a hologram.Buffer, got {type(buffer).__name__}")
    tensor = torch.from_dlpack(buffer)
    if shape is None:
        return tensor
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    try:
        return tensor.view(sizes)
    except RuntimeError:
        raise ValueError(
            f"the shape {sizes} has another number of elements than the buffer, which has "
            f"{buffer.size}"
        ) from None


def create_executor_for_tensor(tensor: Tensor) -> Executor:
    """Return an Executor of the backend that reaches a tensor's memory.

    Raises as :func:`validate_tensor_compatible` does. Close it, or use it in a ``with`` block.
    """
    validate_tensor_compatible(tensor)
    return Executor(backend="cpu")


def hologram_randn(
    *shape: int | Sequence[int],
    dtype: torch.dtype | None = None,
    generator: torch.Generator | None = None,
) -> HologramTensor:
    """Return a HologramTensor of normal random numbers, those of ``torch.randn`` after one seed."""
    sizes: Any = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
    return HologramTensor.from_dlpack(torch.randn(sizes, dtype=dtype, generator=generator))


def hologram_tensor(data: Any, dtype: torch.dtype | None = None) -> HologramTensor:
    """Return a HologramTensor with a copy of data: numbers, nested lists, arrays, tensors.

    ``HologramTensor.from_dlpack(x)`` shares memory instead. Values and dtypes are those of
    ``torch.tensor(data, dtype=dtype)``, gradients are left behind.
    """
    if hasattr(data, "__dlpack__") and not isinstance(data, Tensor):
        data = torch.from_dlpack(data)
    if isinstance(data, Tensor):
        plain = _host(data.detach()).resolve_conj().resolve_neg()
        copied = plain.to(dtype=dtype, copy=True, memory_format=torch.contiguous_format)
    else:
        copied = torch.tensor(data, dtype=dtype)
    validate_tensor_compatible(copied)
    return HologramTensor.from_dlpack(copied)


def to_pytorch(ht: HologramTensor | hologram.Tensor | Buffer) -> Tensor:
    """Return a CPU tensor on the memory of a tensor or buffer of Hologram's; nothing is copied.

    It keeps the memory alive. Waits for the work recorded on it; later ops on it run at their
    calls.
    """
    if not isinstance(ht, (HologramTensor, hologram.Tensor, Buffer)):
        raise TypeError(
            f"expected a HologramTensor, hologram.Tensor or hologram.Buffer, got "
            f"{type(ht).__name__}; torch.from_dlpack takes other arrays"
        )
    return torch.from_dlpack(ht)
