# SPDX-License-Identifier: MIT
"""Networks with convolutions through Inductor: values and gradients are those of eager code."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

DEVICE = "hologram"
pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler"),
    pytest.mark.skipif(
        torch.__version__ < "2.15", reason="Inductor asks the device from PyTorch 2.15 on"
    ),
]
ALL = "needs `make test-all`"
MODELS = (
    "nn.TransformerEncoder 2 x 128, 4 x 64",
    "LSTM 64-128, 2 layers, 8 x 50",
    "GRU 64-128, 8 x 50",
    "Llama 3 x 128, 8 x 64",
    "BERT 2 x 256, 4 x 64",
    "T5 2 + 2 x 128, 4 x 32",
    "ViT 2 x 128, 4 x 64 x 64",
    "ResNet-18, 2 x 128 x 128",
    "MobileNetV3-small, 2 x 128 x 128",
)
CLASSIFIERS = (
    *("alexnet", "convnext_tiny", "convnext_small", "densenet121", "densenet161"),
    *("efficientnet_b0", "efficientnet_b1", "efficientnet_v2_s", "googlenet", "inception_v3"),
    *("maxvit_t", "mnasnet0_5", "mnasnet1_0", "mobilenet_v2", "mobilenet_v3_large"),
    *("mobilenet_v3_small", "regnet_x_400mf", "regnet_y_400mf", "resnet18", "resnet34"),
    *("resnet50", "resnext50_32x4d", "shufflenet_v2_x0_5", "shufflenet_v2_x1_0"),
    *("squeezenet1_0", "swin_t", "swin_v2_t", "vgg11_bn", "vit_b_16", "wide_resnet50_2"),
)


class ChannelsLast(nn.Module):
    """A network on images whose channels lie together."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        return self.module(x.contiguous(memory_format=torch.channels_last))


def grouped() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, stride=2, groups=4),
        nn.Conv2d(32, 16, 1),
    )


def transposed() -> nn.Module:
    return nn.Sequential(
        nn.ConvTranspose2d(8, 32, 3, stride=2, output_padding=1),
        nn.GELU(),
        nn.ConvTranspose2d(32, 16, 2, groups=2),
    )


def lines() -> nn.Module:
    return nn.Sequential(nn.Conv1d(8, 32, 3, stride=2), nn.GELU(), nn.Conv1d(32, 32, 3, groups=32))


def volumes() -> nn.Module:
    return nn.Sequential(nn.Conv3d(3, 32, 3, stride=2), nn.GELU(), nn.Conv3d(32, 8, 3, groups=4))


def step(
    make: Callable[[], nn.Module], x: Tensor, *, compiled: bool, train: bool = True
) -> list[Tensor]:
    """Return a network's result and, in training, all gradients."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = make().to(x.dtype).to(DEVICE).train(train)
    x = x.to(DEVICE).requires_grad_(train)
    with torch.set_grad_enabled(train):
        y = (torch.compile(model) if compiled else model)(x)
    if not train:
        return [y]
    y.square().mean().backward()
    return [y.detach(), x.grad, *(p.grad for p in model.parameters())]  # type: ignore[list-item]


def compare(make: Callable[[], nn.Module], x: Tensor, train: bool = True, **limits: Any) -> None:
    expected = step(make, x, compiled=False, train=train)
    got = step(make, x, compiled=True, train=train)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, **limits)


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (grouped, (2, 3, 16, 16)),
        (lambda: ChannelsLast(grouped()), (2, 3, 16, 16)),
        (transposed, (2, 8, 9, 9)),
        (lines, (2, 8, 40)),
        (volumes, (2, 3, 12, 12, 12)),
    ],
)
def test_small_networks(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    compare(make, torch.randn(shape), rtol=1e-4, atol=1e-5)


@pytest.mark.heavy
@pytest.mark.parametrize("make", [grouped, lambda: ChannelsLast(grouped())])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("train", [False, True])
def test_other_dtypes(make: Callable[[], nn.Module], dtype: torch.dtype, train: bool) -> None:
    limits = {"rtol": 0.05, "atol": 0.02} if dtype == torch.bfloat16 else {}
    compare(make, torch.randn(2, 3, 16, 16).to(dtype), train, **limits)


@pytest.mark.heavy
def test_sizes_that_change() -> None:
    torch._dynamo.reset()
    model = grouped().to(DEVICE)
    compiled = torch.compile(model, dynamic=True)
    for size in (16, 18, 21):
        x = torch.randn(2, 3, size, size + 1, device=DEVICE)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.heavy
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("train", [False, True])
def test_models_of_the_benchmark(name: str, train: bool) -> None:
    from bench.areas import small_models
    from bench.core import Unavailable

    found = []
    for compiles in (False, True):
        torch._dynamo.reset()
        torch.manual_seed(0)
        try:
            model = small_models.MODELS[name]()
        except Unavailable as error:
            pytest.skip(f"{error}: {ALL}")
        module = model.module.double().to(DEVICE).train(train)
        inputs = [t.double() if t.is_floating_point() else t for t in model.inputs]
        inputs = [t.to(DEVICE) for t in inputs]
        function = model.loss if train else model.ask
        call = torch.compile(function) if compiles else function
        with torch.set_grad_enabled(train):
            y = call(module, *inputs)
        if train:
            y.backward()
        grads = [p.grad for p in module.parameters() if p.grad is not None]
        found.append([y.detach(), *grads])
    # Their norms compute in float32, whatever the model's dtype; cpu differs from itself as much.
    error = 4e-6 if name.startswith(("Llama", "T5")) else 1e-8
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=error)


@pytest.mark.heavy
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_train(name: str) -> None:
    """In float64: rounding of float32 beside the kinks of activations changes gradients."""
    models = pytest.importorskip("torchvision.models", reason=ALL)
    options: dict[str, Any] = {"num_classes": 10}
    size = 64
    if name in ("googlenet", "inception_v3"):
        options |= {"aux_logits": False, "init_weights": False}
        size = 96
    if name == "vit_b_16":
        options["image_size"] = size
    if name == "maxvit_t":
        size = 224

    def make() -> nn.Module:
        model: nn.Module = getattr(models, name)(**options)
        for module in model.modules():  # no draws: Inductor's are others
            if isinstance(module, nn.Dropout) or "Stochastic" in type(module).__name__:
                module.p = 0.0
        return model

    x = torch.randn(2, 3, size, size, dtype=torch.float64)
    compare(make, x, rtol=1e-5, atol=1e-8)
