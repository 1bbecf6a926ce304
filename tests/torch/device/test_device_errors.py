# SPDX-License-Identifier: MIT
"""Bad input gets PyTorch's own error, or a plainer one, and the process goes on."""

from __future__ import annotations

import pytest
import torch

import hologram_torch

D = "hologram"
SAME_DEVICE = "Expected all tensors to be on the same device"


@pytest.mark.parametrize(
    "call",
    [
        lambda h, c: h + c,
        lambda h, c: c + h,
        lambda h, c: c.add_(h),
        lambda h, c: h.add_(c),
        lambda h, c: torch.add(h, h, out=c),
        lambda h, c: torch.cat([h, c]),
        lambda h, c: torch.where(h > 0, h, c),
        lambda h, c: torch.sort(h, out=(c, c.long())),
        lambda h, c: torch._foreach_add([h], [c]),
        lambda h, c: torch.nn.functional.linear(h, c.expand(3, 3)),
        lambda h, c: torch.mm(h.view(1, 3), c.view(3, 1)),
        lambda h, c: torch.nn.functional.conv1d(h.view(1, 1, 3), c.view(1, 1, 3)),
        lambda h, c: torch.nn.functional.layer_norm(h, (3,), c, c),
        lambda h, c: torch.gather(h, 0, c.long()),
        lambda h, c: torch.cumsum(h, 0, out=c),
    ],
)
def test_mixed_devices(call) -> None:
    with pytest.raises(RuntimeError, match=SAME_DEVICE):
        call(torch.randn(3, device=D), torch.randn(3))


def test_cpu_scalars_may_be_mixed() -> None:
    h = torch.ones(3, device=D)
    assert (h + torch.tensor(2.0)).tolist() == [3, 3, 3]
    assert (torch.tensor(2.0) * h).device.type == D
    assert h[torch.tensor([0, 2])].tolist() == [1, 1]
    h[torch.tensor([True, False, True])] = 5
    assert h.tolist() == [5, 1, 5]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: torch.empty(1 << 50, device=D), torch.OutOfMemoryError, ""),
        (lambda: torch.zeros(1 << 48, device=D), torch.OutOfMemoryError, ""),
        (lambda: torch.empty(1 << 62, 4, device=D), RuntimeError, "overflow"),
        (lambda: torch.empty(-1, device=D), RuntimeError, "negative"),
        (lambda: torch.empty(3, device="hologram:1"), RuntimeError, "hologram"),
        (lambda: torch.empty(3, device=D, pin_memory=True), RuntimeError, "pinned"),
        (lambda: torch.randn(3, 4, device=D) @ torch.randn(3, 4, device=D), RuntimeError, "shape"),
        (lambda: torch.randn(3, device=D) + torch.randn(4, device=D), RuntimeError, "size of tens"),
        (lambda: torch.randn(3, device=D)[5], IndexError, "out of bounds"),
        (lambda: torch.randn(3, device=D).numpy(), TypeError, "hologram"),
        (lambda: torch.ones(3, device=D).view(2, 2), RuntimeError, "invalid for input of size"),
        (lambda: torch.ones(3, device=D, dtype=torch.int64).exp_(), RuntimeError, "can't be cast"),
        (
            lambda: torch.randn(3, device=D, generator=torch.Generator()),
            RuntimeError,
            "device type for generator",
        ),
        (lambda: torch.Generator("hologram:3"), RuntimeError, "hologram:3"),
        (lambda: hologram_torch.set_backend("tpu"), ValueError, "'cpu'"),
        (lambda: hologram_torch.execution("lazy"), ValueError, "'deferred'"),
        (lambda: torch.hologram.set_device(4), ValueError, "hologram:4"),
        (lambda: torch.hologram.set_device("cuda"), ValueError, "cuda"),
        (lambda: torch.hologram.set_rng_state(torch.zeros(3)), TypeError, "ByteTensor"),
        (
            lambda: torch.hologram.set_rng_state(torch.zeros(3, dtype=torch.uint8)),
            RuntimeError,
            "16 bytes",
        ),
        (
            lambda: torch.ones(3, device=D).set_(torch.ones(3).untyped_storage()),
            RuntimeError,
            "device",
        ),
    ],
)
def test_errors_say_what_is_wrong(call, error, text) -> None:
    with pytest.raises(error) as raised:
        call()
    assert text in str(raised.value)
    assert torch.ones(3, device=D).sum().item() == 3


def test_overlapping_outputs_are_refused() -> None:
    one = torch.zeros(1, device=D).expand(4)
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.sinh(torch.ones(4, device=D), out=one)
    x = torch.arange(6.0, device=D)
    with pytest.raises(RuntimeError, match="some elements of the input tensor and the written-to"):
        torch.sinh(x[:-1], out=x[1:])


def test_resizing_an_output_warns_as_on_cpu() -> None:
    out = torch.zeros(2, device=D)
    with pytest.warns(UserWarning, match="resized"):
        torch.sinh(torch.ones(4, device=D), out=out)
    assert out.shape == (4,)


def test_wrong_torch_version_is_said_plainly() -> None:
    from hologram_torch._load import check_torch_version

    check_torch_version("2.15.0", "2.15.1+cpu")
    with pytest.raises(ImportError, match=r"built for PyTorch 2\.11.*2\.15\.0 is running"):
        check_torch_version("2.11.0", "2.15.0")


def test_a_library_with_other_headers_is_refused() -> None:
    from hologram_torch import _C

    message = (
        "hologram_torch was built with the headers 0123 of libhologram, but the library that is "
        r"loaded was built with [0-9a-f]{16}\. Install the distributions hologram and "
        "hologram-torch of one version, or rebuild the second: "
        "pip install --no-build-isolation hologram-torch"
    )
    with pytest.raises(ImportError, match=message):
        _C._check_headers("0123")


def test_an_op_without_any_kernel() -> None:
    with pytest.raises(NotImplementedError, match="hologram"):
        torch.ops.aten._cudnn_init_dropout_state(
            0.5, True, 1, dtype=torch.uint8, device=torch.device(D)
        )


def test_an_output_that_is_read_is_not_resized() -> None:
    """The fallback hands both to cpu's kernel as the one tensor that they are."""
    for device in ("cpu", "hologram"):
        x, y = torch.ones(4, 1, device=device), torch.ones(5, device=device, dtype=torch.bool)
        for call in (torch.mul, torch.fmod):
            with pytest.raises(RuntimeError, match=r"shape \[4, 1\] doesn't match the broadcast"):
                call(x, y, out=x)
        assert x.shape == (4, 1) and x.sum().item() == 4
