# SPDX-License-Identifier: MIT
"""Linear layers with weights of eight and four bits, for models that only infer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hologram_torch import nn as hnn

__all__ = ["Int4Linear", "Int8Linear", "quantize_"]

# Rows of a weight of four bits that lie together: see torch.ops.hologram.linear_int4.
_BLOCK = 64


class _QuantizedLinear(nn.Module, ABC):
    """A linear layer whose weight cannot be learned; gradients of its input can be asked for."""

    in_features: int
    out_features: int
    weight: Tensor
    bias: nn.Parameter | None

    @abstractmethod
    def dequantized(self) -> Tensor:
        """Return the weight that the layer multiplies with, (out_features, in_features)."""

    @staticmethod
    @abstractmethod
    def _quantized(weight: Tensor, group_size: int) -> dict[str, Tensor]:
        """Return the buffers that stand for a weight."""

    @abstractmethod
    def _product(self, input: Tensor) -> Tensor:
        """Return the layer's result without its bias."""

    @abstractmethod
    def _dtype(self) -> torch.dtype:
        """Return the dtype of the scales."""

    def forward(self, input: Tensor) -> Tensor:
        """Return ``input @ weight.T + bias``: (..., in_features) to (..., out_features).

        The input, of the scales' dtype, is not quantized; sums are float32 (float64 of float64).
        Autocast makes it the scales' dtype.
        """
        if input.dtype != self._dtype() and torch.is_autocast_enabled(input.device.type):
            input = input.to(self._dtype())
        out = self._product(input)
        return out if self.bias is None else out + self.bias

    def extra_repr(self) -> str:
        """Describe sizes and dtype."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, dtype={self._dtype()}"
        )


class Int8Linear(_QuantizedLinear):
    """``torch.nn.Linear`` with a weight of int8 and a scale for each of its rows.

    ``weight``: int8, (out_features, in_features), -127 to 127; ``scale``: floating,
    (out_features,). Made by :func:`quantize_`.
    """

    scale: Tensor

    @staticmethod
    def _quantized(weight: Tensor, group_size: int) -> dict[str, Tensor]:
        wide = weight.float() if weight.dtype != torch.float64 else weight
        scale = (wide.abs().amax(1) / 127).to(weight.dtype)
        by = torch.where(scale == 0, 1, scale).to(wide.dtype)
        numbers = (wide / by[:, None]).round().clamp(-127, 127)
        return {"weight": numbers.to(torch.int8), "scale": scale}

    def _dtype(self) -> torch.dtype:
        return self.scale.dtype

    def dequantized(self) -> Tensor:
        """Return the weight that the layer multiplies with, (out_features, in_features)."""
        return self.weight.to(self.scale.dtype) * self.scale[:, None]

    def _product(self, input: Tensor) -> Tensor:
        needs_gradient = torch.is_grad_enabled() and input.requires_grad
        if needs_gradient or input.dtype == torch.float64 or torch.compiler.is_compiling():
            if input.dtype == torch.float16:  # without the scales sums leave its range
                return F.linear(input, self.dequantized())
            return F.linear(input, self.weight.to(input.dtype)) * self.scale
        rows = input.reshape(-1, self.in_features)
        out = hnn._run(torch._weight_int8pack_mm, rows, self.weight, self.scale)
        return out.view(*input.shape[:-1], self.out_features)


class Int4Linear(_QuantizedLinear):
    """``torch.nn.Linear`` with a weight of four bits; groups of columns have a scale and a zero.

    ``weight``: int8, two numbers of 0 to 15 in each, as :func:`torch.ops.hologram.linear_int4`
    reads them after ``.view(torch.uint8)``; ``scale_and_zero``: floating, (groups, rows, 2). A
    weight is ``(number - 8) * scale + zero``. Rows are padded to a multiple of 64, columns to one
    of the group's. The same on every processor. Made by :func:`quantize_`.
    """

    scale_and_zero: Tensor

    @staticmethod
    def _quantized(weight: Tensor, group_size: int) -> dict[str, Tensor]:
        wide = weight.float() if weight.dtype != torch.float64 else weight
        n, k = wide.shape
        # What is multiplied with padded columns is 0: they only must not widen a group's range.
        wide = torch.cat([wide, wide[:, -1:].expand(n, -k % group_size)], 1)
        wide = F.pad(wide, (0, 0, 0, -n % _BLOCK))
        rows, columns = wide.shape
        groups = wide.view(rows, columns // group_size, group_size)
        low, high = groups.amin(2), groups.amax(2)
        scale = ((high - low) / 15).to(weight.dtype)
        zero = (low + 8 * scale).to(weight.dtype)
        by = torch.where(scale == 0, 1, scale).to(wide.dtype)
        numbers = ((groups - zero.to(wide.dtype)[..., None]) / by[..., None]).round() + 8
        numbers = numbers.clamp(0, 15).to(torch.uint8).view(rows // _BLOCK, _BLOCK, columns)
        low_rows, high_rows = numbers.chunk(2, 1)
        bytes_ = (low_rows + high_rows * 16).transpose(1, 2).contiguous()
        return {
            "weight": bytes_.view(rows, columns // 2).view(torch.int8),
            "scale_and_zero": torch.stack([scale, zero], -1).transpose(0, 1).contiguous(),
        }

    def _dtype(self) -> torch.dtype:
        return self.scale_and_zero.dtype

    def dequantized(self) -> Tensor:
        """Return the weight that the layer multiplies with, (out_features, in_features)."""
        wide = torch.ops.hologram.dequantize_int4(
            self.weight.view(torch.uint8), self.scale_and_zero
        )
        return wide[: self.out_features, : self.in_features]

    def _product(self, input: Tensor) -> Tensor:
        padding = self.weight.shape[1] * 2 - self.in_features
        if padding:
            input = F.pad(input, (0, padding))
        operator = torch.ops.hologram.linear_int4
        out = hnn._run(operator, input, self.weight.view(torch.uint8), self.scale_and_zero)
        return out if out.shape[-1] == self.out_features else out[..., : self.out_features]


_KINDS: dict[str, type[_QuantizedLinear]] = {"int8": Int8Linear, "int4": Int4Linear}


def _linear_layers(model: nn.Module) -> Iterator[tuple[str, nn.Linear]]:
    for name, module in model.named_modules():
        # Subclasses may compute something else with their weight; what is no parameter is made anew
        # at each call, by weight_norm and the like.
        if type(module) in (nn.Linear, hnn.Linear) and "weight" in module._parameters:
            yield name, module


def _convert(layer: nn.Linear, kind: type[_QuantizedLinear], buffers: dict[str, Tensor]) -> None:
    del layer.weight
    for name, buffer in buffers.items():
        layer.register_buffer(name, buffer)
    layer.__class__ = kind  # type: ignore[assignment]


def quantize_(model: nn.Module, dtype: Literal["int8", "int4"], group_size: int = 128) -> None:
    """Give the linear layers of a model weights of eight or four bits, in place.

    Every module whose type is ``torch.nn.Linear`` (or ``hologram_torch.nn.Linear``) becomes an
    :class:`Int8Linear` or :class:`Int4Linear`: the same object, with its hooks, its bias and its
    place in the model; ``weight`` becomes a buffer. The model may lie on any device, before and
    after, and infers with the device's kernels on CPU tensors, too. Activations keep their dtype.
    Weights that layers share stay shared; one that a layer shares with an embedding becomes the
    layer's own copy. Embeddings, attention's packed projections, subclasses and layers whose weight
    is computed (parametrized, pruned) stay as they are.

    Args:
        model: a module with at least one linear layer, of floating weights.
        dtype: ``'int8'``: -127 to 127 and a scale for each row, a quarter of float32's memory.
            ``'int4'``: 0 to 15, with a scale and a zero for each row and ``group_size`` columns.
        group_size: columns of a group, a multiple of 16. ``'int8'`` does not read it.

    Raises:
        ValueError: another dtype or group size, or nothing to quantize.
        TypeError: a weight that is not floating, or has no memory yet (device meta); a layer whose
            ``forward`` was replaced on the object, as hooks of other libraries do.
    """
    kind = _KINDS.get(dtype)
    if kind is None:
        raise ValueError(f"quantize_: dtype is 'int8' or 'int4', got {dtype!r}")
    if group_size < 16 or group_size % 16:
        raise ValueError(f"quantize_: group_size is a positive multiple of 16, got {group_size}")
    layers = dict(_linear_layers(model))
    if not layers:
        raise ValueError(f"quantize_: {type(model).__name__} has no torch.nn.Linear")
    for name, layer in layers.items():
        weight = layer.weight
        if not weight.is_floating_point() or weight.is_meta:
            what = "has no memory yet" if weight.is_meta else f"is {weight.dtype}"
            raise TypeError(f"quantize_: the weight of {name or 'the layer'} {what}")
        if "forward" in vars(layer):
            raise TypeError(
                f"quantize_: {name or 'the layer'} has a forward of its own, which would go on "
                "reading a floating weight; quantize the model before that is put on"
            )
    shared: dict[int, dict[str, Tensor]] = {}
    with torch.no_grad():
        for layer in layers.values():
            key = id(layer.weight)
            if key not in shared:
                shared[key] = kind._quantized(layer.weight.detach(), group_size)
            _convert(layer, kind, shared[key])
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer):
            # Its fast path hands the weights of its layers to a kernel of its own.
            module.activation_relu_or_gelu = 0
