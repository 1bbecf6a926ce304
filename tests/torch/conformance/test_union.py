# SPDX-License-Identifier: MIT
"""Dtypes that PyTorch's database lists for CUDA alone work, in whatever way an op is called."""

from __future__ import annotations

import pytest
import torch

import hologram_torch
from conformance import harness, union

D = "hologram"
# The database of PyTorch 2.15 has 75 such entries; fewer compared would mean that it was not run.
FEWEST = {
    "entries": 60,
    "compared": 100 if torch.__version__ >= "2.14" else 98,
    "backwards": 60,
}


def run(limit: int | None, mode: str) -> tuple[int, harness.Report]:
    """Compare every entry in every such dtype; return how many entries there are."""
    report, count = harness.Report(), 0
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with harness.quiet(), hologram_torch.execution(mode):
        for op, dtypes in union.entries():
            count += 1
            for dtype, grad in dtypes:
                union.check_entry(op, dtype, grad, limit, report)
    torch.set_num_threads(threads)
    return count, report


def require(count: int, report: harness.Report) -> None:
    """Fail if a sample differs, or if few were compared."""
    assert not report.failures, "\n".join(str(f) for f in report.failures[:40])
    assert count >= FEWEST["entries"]
    assert report.compared >= FEWEST["compared"]
    assert report.backwards >= FEWEST["backwards"]


def test_a_sample_of_every_entry() -> None:
    require(*run(1, "deferred"))


@pytest.mark.heavy
@pytest.mark.parametrize("mode", ["deferred", "eager"])
def test_every_sample_of_every_entry(mode: str) -> None:
    require(*run(None, mode))


INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_histc_counts_integers(dtype: torch.dtype) -> None:
    """As transformers counts the tokens of Mixtral's experts."""
    values = torch.tensor([0, 7, 7, 3, 1, 1, 1, 6], dtype=dtype)
    found = torch.histc(values.to(D), bins=8, min=0, max=7)
    assert found.dtype == dtype
    assert found.tolist() == [1, 3, 0, 1, 0, 0, 1, 2]
    out = torch.full((8,), 9, dtype=dtype, device=D)
    place = out.data_ptr()
    assert torch.histc(values.to(D), bins=8, min=0, max=7, out=out) is out
    assert (out.tolist(), out.data_ptr()) == ([1, 3, 0, 1, 0, 0, 1, 2], place)
    small = torch.empty(0, dtype=dtype, device=D)
    torch.histc(values.to(D), bins=8, min=0, max=7, out=small)
    assert small.tolist() == [1, 3, 0, 1, 0, 0, 1, 2]


def test_what_is_written_in_place_is_rounded_once() -> None:
    x = torch.tensor([1 + 2j, -0.5j, 3], dtype=torch.complex64)
    ours = x.to(torch.complex32).to(D)
    row = ours[1:]
    assert row.exp_() is row
    expected = torch.cat([x[:1], x[1:].exp()]).to(torch.complex32)
    assert torch.equal(torch.view_as_real(ours.cpu()), torch.view_as_real(expected))


def test_products_with_zeros_have_gradients_in_complex_halves() -> None:
    """For which PyTorch flips, as it needs the products on both sides of a zero."""
    x = torch.tensor([1 + 2j, 0, 3 - 1j], dtype=torch.complex64, requires_grad=True)
    ours = x.detach().to(torch.complex32).to(D).requires_grad_()
    x.prod().abs().backward()
    ours.prod().abs().backward()
    flipped = torch.flip(ours.detach(), (0,)).cpu()
    assert torch.equal(torch.view_as_real(flipped).float(), torch.view_as_real(x.detach().flip(0)))
    assert ours.grad is not None
    assert x.grad is not None
    found, expected = ours.grad.cpu().to(torch.complex64), x.grad
    torch.testing.assert_close(found, expected, rtol=2e-3, atol=1e-3)


def test_out_shows_what_other_views_of_it_see() -> None:
    x = torch.linspace(0, 1, 64).reshape(1, 1, 4, 4, 4)
    memory = torch.zeros(1, 1, 2, 2, 4, dtype=torch.float16, device=D)
    out = memory[..., ::2]
    torch.ops.aten.avg_pool3d.out(x.half().to(D), [2], out=out)
    expected = torch.nn.functional.avg_pool3d(x.half().float(), 2).half()
    assert torch.equal(memory[..., ::2].cpu(), expected)
    assert not memory[..., 1::2].any()


def test_the_drawn_noise_of_rrelu_is_in_the_gradient() -> None:
    x = torch.randn(4096, generator=torch.Generator().manual_seed(1)).half()
    ours = x.to(D).requires_grad_()
    y = torch.nn.functional.rrelu(ours, 0.25, 0.5, training=True)
    y.sum().backward()
    assert y.dtype == ours.grad.dtype == torch.float16
    slope = ours.grad.cpu()
    assert (slope[x > 0] == 1).all()
    assert ((slope[x < 0] >= 0.25) & (slope[x < 0] <= 0.5)).all()
    assert slope[x < 0].unique().numel() > 100
    torch.testing.assert_close(y.detach().cpu(), x * slope, rtol=2e-3, atol=0)


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "hfft", "irfft"])
def test_transforms_of_half_types(name: str) -> None:
    """Gradients, out= and inference, and results in bfloat16's wide dtype as on CUDA."""
    transform = getattr(torch.fft, name)
    x = torch.randn(12, generator=torch.Generator().manual_seed(1))
    wide = transform(x.half().float())
    narrow = torch.complex32 if wide.is_complex() else torch.float16
    with torch.inference_mode():
        ours = transform(x.half().to(D))
    assert (ours.dtype, ours.device.type) == (narrow, D)
    pair = ours.cpu(), wide.to(narrow)
    if wide.is_complex():
        pair = tuple(torch.view_as_real(t) for t in pair)
    assert torch.equal(*pair)
    out = torch.empty(0, dtype=narrow, device=D)
    assert transform(x.half().to(D), out=out) is out
    assert out.shape == wide.shape
    leaf = x.half().to(D).requires_grad_()
    transform(leaf).abs().sum().backward()
    assert leaf.grad.dtype == torch.float16
    brain = transform(x.bfloat16().to(D))
    assert brain.dtype == wide.dtype
    torch.testing.assert_close(brain.cpu(), transform(x.bfloat16().float()))


def test_what_no_device_knows_is_refused_as_on_cpu() -> None:
    half, integers = {"dtype": torch.float16}, {"dtype": torch.int32}
    pool = torch.ops.aten.avg_pool3d
    calls = [
        lambda d: torch.histc(torch.ones(3, dtype=torch.complex64, device=d)),
        lambda d: pool(torch.ones(1, 2, 2, 2, device=d, **integers), [1]),
        lambda d: torch.linalg.qr(torch.ones(2, 2, device=d, **half)),
        lambda d: pool.out(
            torch.ones(1, 2, 2, 2, device=d, **half), [1], out=torch.empty(1, 2, 2, 2, device=d)
        ),
    ]
    for call in calls:
        messages = []
        for device in ("cpu", D):
            with pytest.raises((RuntimeError, TypeError)) as error:
                call(device)
            messages.append(str(error.value).splitlines()[0])
        assert messages[0] == messages[1]
