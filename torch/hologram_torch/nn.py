# SPDX-License-Identifier: MIT
"""Modules of ``torch.nn`` that run on Hologram, for CPU tensors as well as for the device's.

Each is a subclass of PyTorch's of the same name, so constructor arguments, initial values,
``state_dict`` keys, ``repr`` and the rest are PyTorch's, and state moves both ways. On CPU tensors
they compute with the device's kernels on the tensors' own memory, forward and backward; after
``.to('hologram')`` they record and fuse like any module there. ``torch.compile`` takes them for
PyTorch's own.

>>> import torch
>>> from hologram_torch import nn as hnn
>>> model = torch.nn.Sequential(hnn.Linear(64, 32), hnn.ReLU(), hnn.Linear(32, 10))
>>> model(torch.randn(8, 64)).shape
torch.Size([8, 10])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hologram_torch import _C

__all__ = [
    "GELU",
    "BCELoss",
    "CrossEntropyLoss",
    "Linear",
    "LogSoftmax",
    "MSELoss",
    "ReLU",
    "Sigmoid",
    "Softmax",
    "Tanh",
]


def _run(function: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    # A compiler traces PyTorch's function, and what it makes of it is its own.
    if torch.compiler.is_compiling():
        return function(*args, **kwargs)
    return _C._run(function, *args, **kwargs)


class ReLU(torch.nn.ReLU):
    """``torch.nn.ReLU``: ``max(input, 0)``; ``inplace=True`` writes the input's own memory."""

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape and dtype."""
        return _run(F.relu, input, self.inplace)


class Sigmoid(torch.nn.Sigmoid):
    """``torch.nn.Sigmoid``: ``1 / (1 + exp(-input))``."""

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return _run(torch.sigmoid, input)


class Tanh(torch.nn.Tanh):
    """``torch.nn.Tanh``: hyperbolic tangents."""

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return _run(torch.tanh, input)


class GELU(torch.nn.GELU):
    """``torch.nn.GELU``: ``input * Phi(input)``; ``approximate`` is 'none' or 'tanh'."""

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape and dtype."""
        return _run(F.gelu, input, approximate=self.approximate)


class Softmax(torch.nn.Softmax):
    """``torch.nn.Softmax``: ``exp(input)`` over its sum along ``dim``."""

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape and dtype."""
        return _run(F.softmax, input, self.dim, _stacklevel=5)


class LogSoftmax(torch.nn.LogSoftmax):
    """``torch.nn.LogSoftmax``: the logarithm of softmax along ``dim``."""

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape and dtype."""
        return _run(F.log_softmax, input, self.dim, _stacklevel=5)


class Linear(torch.nn.Linear):
    """``torch.nn.Linear``: ``input @ weight.T + bias``, weight [out, in], bias [out]."""

    def forward(self, input: Tensor) -> Tensor:
        """Return [..., out_features] for an input of [..., in_features]."""
        return _run(F.linear, input, self.weight, self.bias)


class MSELoss(torch.nn.MSELoss):
    """``torch.nn.MSELoss``: squared differences, reduced by 'mean', 'sum' or 'none'."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss of two tensors of one shape."""
        return _run(F.mse_loss, input, target, reduction=self.reduction)


class CrossEntropyLoss(torch.nn.CrossEntropyLoss):
    """``torch.nn.CrossEntropyLoss`` of logits and class indices or probabilities."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss of logits [classes] or [n, classes, ...]."""
        return _run(
            F.cross_entropy,
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class BCELoss(torch.nn.BCELoss):
    """``torch.nn.BCELoss`` of probabilities and targets of one shape."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss; RuntimeError for an input outside 0 to 1."""
        return _run(
            F.binary_cross_entropy,
            input,
            target,
            weight=self.weight,
            reduction=self.reduction,
        )
