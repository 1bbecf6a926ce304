# SPDX-License-Identifier: MIT
"""hologram_torch.quantize_: linear layers with weights of eight and four bits."""

from __future__ import annotations

import copy
import io

import pytest
import torch
import torch.nn.functional as F
import torch.nn.utils.prune
from native_compare import values
from torch import nn

import hologram_torch
from hologram_torch import nn as hnn
from hologram_torch._quantize import Int4Linear, Int8Linear

KINDS = {"int8": Int8Linear, "int4": Int4Linear}
DEVICES = ["cpu", "hologram"]
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def _layer(k: int, n: int, bias: bool = True, dtype: torch.dtype = torch.float32) -> nn.Linear:
    layer = nn.Linear(k, n, bias, dtype=dtype)
    with torch.no_grad():
        layer.weight.copy_(values(n, k, dtype=dtype, seed=1))
        if bias:
            layer.bias.copy_(values(n, dtype=dtype, seed=2))
    return layer


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_layers_compute_with_their_dequantized_weight(
    kind: str, device: str, dtype: torch.dtype
) -> None:
    shapes = [((256,), 64), ((1, 100), 70), ((3, 5, 300), 33), ((0, 64), 5), ((40, 96), 1)]
    # Large enough for a BLAS of the half types.
    shapes += [((24, 384), 520), ((300, 128), 260)]
    for shape, n in shapes:
        layer = _layer(shape[-1], n, dtype=dtype)
        before = layer.weight.detach().double()
        layer = layer.to(device)
        hologram_torch.quantize_(layer, kind, group_size=32)
        assert type(layer) is KINDS[kind]
        assert layer.weight.dtype == torch.int8 and not list(layer.weight.shape) == [0]
        wide = layer.dequantized()
        assert wide.shape == before.shape and wide.dtype == dtype and wide.device.type == device
        # Half a step of the quantization, and one of the dtype's.
        steps = {"int8": before.abs().amax() / 127, "int4": (before.max() - before.min()) / 15}
        eps = torch.finfo(dtype).eps * 20
        off = (wide.cpu().double() - before).abs().amax()
        assert off <= (0.5 + eps) * steps[kind] + eps * before.abs().amax()
        x = values(*shape, dtype=dtype) if 0 not in shape else torch.empty(shape, dtype=dtype)
        found = layer(x.to(device))
        assert found.dtype == dtype and found.shape == (*shape[:-1], n)
        exact = F.linear(x.double(), wide.cpu().double(), layer.bias.detach().cpu().double())
        tolerance = 40 * torch.finfo(dtype).eps
        torch.testing.assert_close(
            found.detach().cpu().double(), exact, rtol=tolerance, atol=tolerance * 16
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("device", DEVICES)
def test_gradients_of_the_input(kind: str, device: str) -> None:
    layer = _layer(70, 40, dtype=torch.float64).to(device)
    hologram_torch.quantize_(layer, kind, group_size=16)
    x = values(2, 3, 70, dtype=torch.float64).to(device).requires_grad_()
    assert torch.autograd.gradcheck(layer, (x,))
    assert torch.autograd.gradgradcheck(layer, (x,))
    (grad,) = torch.autograd.grad(layer(x).sum(), x)
    torch.testing.assert_close(grad, layer.dequantized().sum(0).expand(2, 3, 70))


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_is_quantized_in_place(kind: str) -> None:
    shared = nn.Linear(64, 64, bias=False)
    model = nn.ModuleDict(
        {
            "embed": nn.Embedding(50, 64),
            "first": nn.Sequential(nn.Linear(64, 64), nn.ReLU(), hnn.Linear(64, 64)),
            "shared": shared,
            "again": nn.Linear(64, 64, bias=False),
            "head": nn.Linear(64, 50, bias=False),
            "attention": nn.MultiheadAttention(64, 4),
            "layer": nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True),
        }
    ).eval()
    model["again"].weight = shared.weight
    model["head"].weight = model["embed"].weight
    seen = []
    model["first"][0].register_forward_hook(lambda *_: seen.append(1))
    layers = {name: m for name, m in model.named_modules() if type(m) in (nn.Linear, hnn.Linear)}
    x = torch.randn(2, 7, 64)
    expected = model["layer"](x)
    hologram_torch.quantize_(model, kind)
    assert len(layers) == 7
    assert all(model.get_submodule(name) is m for name, m in layers.items())
    assert all(type(m) is KINDS[kind] for m in layers.values())
    assert model["again"].weight is shared.weight
    assert isinstance(model["embed"].weight, nn.Parameter)
    assert type(model["attention"].out_proj) is not KINDS[kind]
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            torch.testing.assert_close(model["layer"](x), expected, rtol=0.3, atol=0.3)
            model["first"](x)
            model["attention"](x, x, x)
    assert len(seen) == 2
    # States go to and fro, also from device to device, and between copies.
    on_device = copy.deepcopy(model).to("hologram")
    file = io.BytesIO()
    torch.save(on_device.state_dict(), file)
    file.seek(0)
    other = copy.deepcopy(model)
    for buffer in other.buffers():
        buffer.zero_()
    other.load_state_dict(torch.load(file, map_location="cpu"))
    rows = torch.randn(3, 64)
    for name in ("first", "shared", "head"):
        want = model[name](rows)
        assert torch.equal(other[name](rows), want)
        torch.testing.assert_close(on_device[name](rows.to("hologram")).cpu(), want)
    half = on_device.to(torch.bfloat16)
    assert half["head"](rows.to("hologram", torch.bfloat16)).dtype == torch.bfloat16


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("device", DEVICES)
def test_autocast_computes_in_the_dtype_of_the_scales(kind: str, device: str) -> None:
    layer = _layer(64, 32, dtype=torch.bfloat16).to(device)
    hologram_torch.quantize_(layer, kind)
    x = values(3, 64).to(device)
    with torch.autocast(device, torch.bfloat16), torch.no_grad():
        assert torch.equal(layer(x), layer(x.bfloat16()))
    with torch.no_grad(), pytest.raises((RuntimeError, TypeError), match=r"dtype|Float"):
        layer(x)


@pytest.mark.parametrize("kind", KINDS)
def test_compiled_and_traced(kind: str) -> None:
    layer = _layer(96, 64).to("hologram")
    hologram_torch.quantize_(layer, kind, group_size=32)
    x = values(4, 96).to("hologram")
    with torch.no_grad():
        want = layer(x)
        compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(x), want)
        exported = torch.export.export(layer, (x,))
        torch.testing.assert_close(exported.module()(x), want)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("device", DEVICES)
def test_sums_in_float16_stay_in_range_with_gradients(kind: str, device: str) -> None:
    layer = nn.Linear(2048, 64, bias=False, dtype=torch.float16).to(device)
    nn.init.constant_(layer.weight, 0.01)
    hologram_torch.quantize_(layer, kind)
    x = torch.ones(3, 2048, dtype=torch.float16, device=device)
    for given in (x, x.clone().requires_grad_()):
        found = layer(given).detach().cpu().float()
        torch.testing.assert_close(found, torch.full((3, 64), 20.48), rtol=2e-3, atol=0)


def test_a_constant_weight_is_kept() -> None:
    for value in (0.0, 1e-30, 3.0, -2.5):
        for kind in KINDS:
            layer = nn.Linear(32, 16, bias=False)
            nn.init.constant_(layer.weight, value)
            hologram_torch.quantize_(layer, kind)
            torch.testing.assert_close(layer.dequantized(), torch.full((16, 32), value))


def test_the_operators_pass_opcheck() -> None:
    for device in DEVICES:
        layer = _layer(64, 64).to(device)
        hologram_torch.quantize_(layer, "int4", group_size=16)
        packed, pairs = layer.weight.view(torch.uint8), layer.scale_and_zero
        x = values(2, 3, 64).to(device).requires_grad_()
        ops = torch.ops.hologram
        tests = ["test_schema", "test_faketensor", "test_aot_dispatch_dynamic"]
        if device == "cpu":  # PyTorch's list of devices
            tests.append("test_autograd_registration")
        for op, args in [
            (ops.linear_int4.default, (x, packed, pairs)),
            (ops.linear_int4.default, (x, packed, pairs.clone().requires_grad_())),
            (ops.dequantize_int4.default, (packed, pairs)),
        ]:
            torch.library.opcheck(op, args, test_utils=tests)
        wide = ops.dequantize_int4(packed, pairs)
        batched = torch.vmap(ops.linear_int4, (0, None, None))(x, packed, pairs)
        torch.testing.assert_close(batched, F.linear(x, wide))
        _, tangent = torch.func.jvp(lambda y: ops.linear_int4(y, packed, pairs), (x,), (x,))  # noqa: B023
        torch.testing.assert_close(tangent, F.linear(x, wide))


def test_what_cannot_be_quantized_is_refused() -> None:
    quantize = hologram_torch.quantize_
    model = nn.Sequential(nn.Linear(32, 8), nn.Linear(8, 8))
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match="dtype is 'int8' or 'int4', got 'int2'"):
        quantize(model, "int2")
    for size in (0, 24, -16):
        with pytest.raises(ValueError, match=f"a positive multiple of 16, got {size}"):
            quantize(model, "int4", size)
    with pytest.raises(ValueError, match=r"ReLU has no torch\.nn\.Linear"):
        quantize(nn.ReLU(), "int8")
    model[1].weight = nn.Parameter(torch.ones(8, 8, dtype=torch.int32), requires_grad=False)
    with pytest.raises(TypeError, match=r"the weight of 1 is torch\.int32"):
        quantize(model, "int8")
    assert torch.equal(model[0].weight, before["0.weight"])
    with pytest.raises(TypeError, match="the weight of the layer has no memory yet"):
        quantize(nn.Linear(2, 2, device="meta"), "int4")


def test_computed_weights_stay_and_replaced_forwards_are_refused() -> None:
    model = nn.Sequential(
        torch.nn.utils.parametrizations.weight_norm(nn.Linear(32, 32)),
        torch.nn.utils.prune.identity(nn.Linear(32, 32), "weight"),
        nn.Linear(32, 32),
    )
    x = torch.randn(2, 32)
    before = model[:2](x)
    hologram_torch.quantize_(model, "int4")
    assert [isinstance(m, Int4Linear) for m in model] == [False, False, True]
    assert torch.equal(model[:2](x), before)
    layer = nn.Linear(32, 32)
    layer.forward = lambda x: F.linear(x, layer.weight)  # type: ignore[method-assign]
    with pytest.raises(TypeError, match="the layer has a forward of its own"):
        hologram_torch.quantize_(layer, "int8")
    assert isinstance(layer.weight, nn.Parameter)


def test_operators_refuse_what_does_not_fit() -> None:
    linear = torch.ops.hologram.linear_int4
    for device in DEVICES:
        x = torch.ones(2, 64, device=device)
        weight = torch.zeros(64, 32, dtype=torch.uint8, device=device)
        pairs = torch.ones(2, 64, 2, device=device)
        with pytest.raises(TypeError, match="expected a weight of Byte"):
            linear(x, weight.int(), pairs)
        with pytest.raises(TypeError, match="must have one dtype, got Double and Float"):
            linear(x.double(), weight, pairs)
        with pytest.raises(RuntimeError, match=r"an input of 64 columns .* got \[2, 32\]"):
            linear(x[:, :32], weight, pairs)
        for bad in (pairs[:, :32], pairs[..., 0], torch.ones(5, 64, 2, device=device)):
            with pytest.raises(RuntimeError, match="n a multiple of 64, and scale_and_zero"):
                linear(x, weight, bad)
        with pytest.raises(RuntimeError, match="n a multiple of 64"):
            linear(x, weight[:32], pairs[:, :32])
