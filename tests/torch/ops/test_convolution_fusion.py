# SPDX-License-Identifier: MIT
"""What follows a convolution runs on blocks of its result: the same bits, in fewer kernels."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from native_compare import DEVICE, check_native, values
from torch import Tensor, nn

import hologram_torch

# What a convolution is, and the images that it sees. The comments say how it is computed.
CASES = {
    "panels of one image": (nn.Conv2d(8, 24, 3, padding=1), (1, 8, 33, 31)),
    "images one by one": (nn.Conv2d(5, 6, 3, stride=2), (3, 5, 41, 43)),
    "places side by side": (nn.Conv2d(6, 40, 3, padding=1), (4, 6, 11, 13)),
    "images in one panel": (nn.Conv2d(16, 48, 1, bias=False), (5, 16, 5, 5)),
    "deep": (nn.Conv2d(70, 20, 3, padding=1), (2, 70, 9, 9)),
    "groups": (nn.Conv2d(12, 24, 3, padding=1, groups=3), (2, 12, 17, 19)),
    "depthwise, small planes": (nn.Conv2d(30, 30, 5, padding=2, groups=30), (3, 30, 7, 7)),
    "depthwise, stride 2": (nn.Conv2d(7, 7, 3, 2, 1, groups=7, bias=False), (2, 7, 64, 71)),
    "depthwise, stride 3": (nn.Conv2d(7, 7, 5, 3, 2, groups=7), (2, 7, 30, 29)),
    "depthwise, bands": (nn.Conv2d(2, 2, 3, padding=1, groups=2), (2, 2, 150, 160)),
    "one dimension": (nn.Conv1d(6, 10, 3, padding=1), (2, 6, 50)),
    "three dimensions": (nn.Conv3d(3, 4, 3, padding=1), (2, 3, 5, 6, 7)),
    "depthwise, three": (nn.Conv3d(4, 4, 3, padding=1, groups=4), (2, 4, 5, 6, 7)),
    "transposed": (nn.ConvTranspose2d(6, 8, 2, stride=2), (2, 6, 9, 8)),
    "one place": (nn.Conv2d(12, 8, 1), (3, 12, 1, 1)),
    "one channel": (nn.Conv2d(3, 1, 3), (4, 3, 9, 9)),
}


def _norm(y: Tensor) -> nn.Module:
    kinds: dict[int, type[nn.Module]] = {3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
    norm = kinds[y.dim()](y.shape[1]).to(y.device, y.dtype)
    channels = torch.arange(1.0, y.shape[1] + 1)
    parameters = {
        "weight": channels.cos(),
        "bias": channels.sin(),
        "running_mean": channels / 100,
        "running_var": 1 + channels / 10,
    }
    norm.load_state_dict(parameters, strict=False)
    return norm.eval()


def _places(y: Tensor) -> tuple[int, ...]:
    return tuple(range(2, y.dim()))


# What follows, with the result of the convolution and another tensor of its shape.
EPILOGUES: dict[str, Callable[[Tensor, Tensor], list[Tensor]]] = {
    "activation": lambda y, _: [F.hardswish(y)],
    "norm, activation": lambda y, _: [F.relu(_norm(y)(y))],
    "norm, residual in place": lambda y, other: [F.relu_(_norm(y)(y).add_(other))],
    "norm, mean of places": lambda y, _: [F.silu(_norm(y)(y)).mean(_places(y), keepdim=True)],
    "kept as well": lambda y, other: [y, y * other, y.amax(_places(y))],
    "one number an image": lambda y, other: [y * other.amax(tuple(range(1, y.dim())), True)],
    "softmax of places": lambda y, _: [F.softmax(y.flatten(2), -1)],
    "in place": lambda y, _: [y.mul_(2).sigmoid_()],
    "other loops": lambda y, other: [y.transpose(1, 2) + other.transpose(1, 2).contiguous()],
}


def _run(layer: nn.Module, x: Tensor, other: Tensor, name: str) -> list[Tensor]:
    with torch.no_grad():
        return EPILOGUES[name](layer(x), other)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_values_and_bits(case: str, epilogue: str) -> None:
    layer, shape = CASES[case]
    with torch.no_grad():
        shape_out = layer(torch.zeros(shape)).shape
    for dtype in (torch.float32, torch.float64):
        on_cpu = copy.deepcopy(layer).to(dtype)
        on_device = copy.deepcopy(on_cpu).to(DEVICE)
        x, other = values(*shape, dtype=dtype, seed=1), values(*shape_out, dtype=dtype, seed=2)
        layers = {True: on_cpu, False: on_device}

        def ask(x: Tensor, other: Tensor, layers: dict[bool, nn.Module] = layers) -> list[Tensor]:
            return _run(layers[x.is_cpu], x, other, epilogue)

        check_native(ask, x, other)
        threads = torch.get_num_threads()
        found = []
        try:
            for mode in ("deferred", "eager"):
                for count in (1, 3):
                    torch.set_num_threads(count)
                    with hologram_torch.execution(mode):
                        results = _run(on_device, x.to(DEVICE), other.to(DEVICE), epilogue)
                        found.append([t.cpu() for t in results])
        finally:
            torch.set_num_threads(threads)
        for results in found[1:]:
            for a, b in zip(found[0], results, strict=True):
                assert torch.equal(a, b)


def _kernels(function: Callable[[], object]) -> list[str]:
    with hologram_torch.execution("deferred"), torch.no_grad():
        function()
        explanation = hologram_torch.explain(function)
    return [k.name for circuit in explanation.circuits for k in circuit.after]


@pytest.mark.parametrize("batch", [1, 3])
def test_kernels(batch: int) -> None:
    x = values(batch, 8, 14, 14).to(DEVICE)
    layer, around = nn.Conv2d(8, 8, 3, padding=1).to(DEVICE), x * 0.5
    norm = _norm(x)
    scale = "add_rsqrt_mul_x2_sub"
    assert _kernels(lambda: F.relu(norm(layer(x)) + around)) == [
        scale,
        "convolution_mul_add_x2_relu",
    ]
    assert _kernels(lambda: F.hardswish(norm(layer(x))).mean((2, 3))) == [
        scale,
        "convolution_mul_add_hardswish_mean",
    ]
    # What is laid out otherwise is computed first.
    last = x.contiguous(memory_format=torch.channels_last)
    assert _kernels(lambda: F.relu(layer(last))) == ["convolution", "relu"]


def test_batch_norm_of_inference_joins_what_is_around_it() -> None:
    x = values(2, 6, 5, 4).to(DEVICE)
    norm = _norm(x)
    assert _kernels(lambda: F.relu(norm(x * 2))) == ["add_rsqrt_mul_x2_sub", "mul_x2_add_relu"]
    # Half types are normalized in float32, and training computes statistics.
    assert _kernels(lambda: F.relu(copy.deepcopy(norm).half()(x.half())))[-2] == "batch_norm"
    assert "batch_norm" in _kernels(lambda: F.relu(copy.deepcopy(norm).train()(x)))


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 7), (2, 3, 4, 5), (2, 3, 2, 3, 4), (1, 3, 1, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_batch_norm_of_inference(dtype: torch.dtype, shape: tuple[int, ...], affine: bool) -> None:
    x = values(*shape, dtype=dtype, seed=1)
    parameters = [values(3, dtype=dtype, seed=seed) for seed in (2, 3)] if affine else [None, None]
    mean, var = values(3, dtype=dtype, seed=4), values(3, dtype=dtype, seed=5).abs() + 0.5

    def norm(x: Tensor, *rest: Tensor | None) -> Tensor:
        mean, var, weight, bias = (t if t is None else t.to(x.device) for t in rest)
        return F.batch_norm(x, mean, var, weight, bias)

    layouts = [x]
    if len(shape) == 4:
        layouts += [x.contiguous(memory_format=torch.channels_last), x.transpose(2, 3)]
    for layout in layouts:
        expected = norm(layout, mean, var, *parameters)
        result = norm(layout.to(DEVICE), mean, var, *parameters)
        assert result.stride() == expected.stride()
        check_native(norm, layout, mean, var, *parameters)
