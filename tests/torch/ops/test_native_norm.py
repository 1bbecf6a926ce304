# SPDX-License-Identifier: MIT
"""Layer norm and batch norm of the device against float64 and cpu: accuracy, dtypes, layouts."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from native_compare import ACCURATE, DEVICE, FLOATS, check, check_native, layouts, to_device, values
from torch._subclasses.fake_tensor import FakeTensorMode

import hologram_torch


def with_gradients(
    x: torch.Tensor, w: torch.Tensor | None, b: torch.Tensor | None, g: torch.Tensor, n: int
) -> list[torch.Tensor]:
    given = [t.detach().requires_grad_() for t in (x, w, b) if t is not None]
    rest = iter(given[1:])
    w, b = (None if t is None else next(rest) for t in (w, b))
    y = F.layer_norm(given[0], x.shape[x.dim() - n :], w, b)
    return [y.detach(), *torch.autograd.grad(y, given, g)]


def errors(results: list[torch.Tensor], exact: list[torch.Tensor]) -> list[float]:
    """The largest error of each result, relative to the largest element (or 1)."""
    pairs = zip(results, exact, strict=True)
    return [
        ((r.cpu().double() - e).abs().max() / e.abs().max().clamp(min=1)).item() for r, e in pairs
    ]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape,n", [((3,), 1), ((5, 1), 1), ((4, 7), 1), ((2, 3, 64), 1),
                                     ((6, 3, 11), 2), ((130, 96), 1), ((2, 5000), 1)])  # fmt: skip
def test_layer_norm_is_as_accurate_as_cpu(
    dtype: torch.dtype, shape: tuple[int, ...], n: int
) -> None:
    x, g = values(*shape, dtype=dtype), values(*shape, dtype=dtype, seed=1)
    inner = shape[len(shape) - n :]
    for has_weight, has_bias in itertools.product([True, False], repeat=2):
        w = values(*inner, dtype=dtype, seed=2) if has_weight else None
        b = values(*inner, dtype=dtype, seed=3) if has_bias else None
        wide = [None if t is None else t.double() for t in (x, w, b, g)]
        exact = with_gradients(*wide, n)
        expected = errors(with_gradients(x, w, b, g, n), exact)
        results = with_gradients(*(None if t is None else to_device(t) for t in (x, w, b, g)), n)
        assert all(r.dtype == dtype and r.device.type == "hologram" for r in results)
        # In float64 cpu is the reference itself.
        floor = 1e-12 if dtype == torch.float64 else 4 * torch.finfo(dtype).eps
        for ours, theirs in zip(errors(results, exact), expected, strict=True):
            assert ours <= max(2 * theirs, floor)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_input_with_float_parameters(dtype: torch.dtype) -> None:
    x, g = values(9, 40, dtype=dtype), values(9, 40, dtype=dtype, seed=1)
    w, b = values(40, seed=2), values(40, seed=3)
    y, mean, rstd = check_native(torch.native_layer_norm, x, (40,), w, b, 1e-5, tol=ACCURATE)
    assert (y.dtype, mean.dtype, rstd.dtype) == (dtype, torch.float32, torch.float32)
    check_native(
        torch.ops.aten.native_layer_norm_backward, g, x, (40,), mean.cpu(), rstd.cpu(), w, b,
        [True, True, True], tol=ACCURATE,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_statistics_of_half_types_are_float32(dtype: torch.dtype) -> None:
    """As on other accelerators, and as a trace without data says."""
    x, g, w, b = to_device(
        (values(9, 40, dtype=dtype), values(9, 40, dtype=dtype, seed=1),
         values(40, dtype=dtype, seed=2), values(40, dtype=dtype, seed=3))
    )  # fmt: skip
    for weight, bias in ((w, b), (None, None), (w, None)):
        found = torch.native_layer_norm(x, (40,), weight, bias, 1e-5)
        assert [t.dtype for t in found] == [dtype, torch.float32, torch.float32]
        with FakeTensorMode() as mode:
            args = [t if t is None else mode.from_tensor(t) for t in (x, weight, bias)]
            traced = torch.native_layer_norm(args[0], (40,), *args[1:], 1e-5)
        assert [(t.dtype, t.shape) for t in traced] == [(t.dtype, t.shape) for t in found]
        exact = torch.native_layer_norm(x.double(), (40,), None, None, 1e-5)
        torch.testing.assert_close(found[1].double(), exact[1], rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(found[2].double(), exact[2], rtol=1e-6, atol=1e-7)
    # What the CPU has rounded is taken, too.
    backward = torch.ops.aten.native_layer_norm_backward
    _, mean, rstd = torch.native_layer_norm(x, (40,), w, b, 1e-5)
    fine = backward(g, x, (40,), mean, rstd, w, b, [True] * 3)
    rounded = backward(g, x, (40,), mean.to(dtype), rstd.to(dtype), w, b, [True] * 3)
    for a, c in zip(fine, rounded, strict=True):
        assert a.dtype == c.dtype == dtype
        torch.testing.assert_close(a, c, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_strides_of_parameters_change_no_bits(dtype: torch.dtype) -> None:
    x, g = to_device((values(6, 8, 5, dtype=dtype), values(6, 8, 5, dtype=dtype, seed=1)))
    w, b = to_device((values(8, 2, dtype=dtype, seed=2), values(8, 2, dtype=dtype, seed=3)))
    rows, grad = x.transpose(1, 2).contiguous(), g.transpose(1, 2).contiguous()
    norms = {
        "layer": lambda w, b: with_gradients(rows, w, b, grad, 1),
        "group": lambda w, b: F.group_norm(x, 2, w, b),
        "batch": lambda w, b: F.batch_norm(x, None, None, w, b, training=True),
    }
    for name, norm in norms.items():
        before = hologram_torch.fallback_counts()
        packed = norm(w[:, 0].contiguous(), b[:, 0].contiguous())
        strided = norm(w[:, 0], b[:, 0])
        for a, c in zip(
            *([r] if isinstance(r, torch.Tensor) else r for r in (packed, strided)), strict=True
        ):
            assert torch.equal(a.cpu(), c.cpu()), name
        assert hologram_torch.fallback_counts() == before, name


def test_layouts_and_statistics() -> None:
    x, g = values(4, 5, 6), values(4, 5, 6, seed=1)
    w, b = values(6, seed=2), values(6, seed=3)
    for y, h in itertools.product(layouts(x), layouts(g)):
        check_native(with_gradients, y, w, b, h, 1, tol=ACCURATE)
    check_native(with_gradients, x, w, b, g[:, :1].expand(4, 5, 6), 1, tol=ACCURATE)
    check_native(torch.native_layer_norm, x, (5, 6), None, None, 1e-5, tol=ACCURATE)
    backward = torch.ops.aten.native_layer_norm_backward
    _, mean, rstd = torch.native_layer_norm(x, (6,), w, b, 1e-5)
    for mask in itertools.product([True, False], repeat=3):
        if not any(mask):
            continue
        got = backward(*to_device((g, x)), (6,), *to_device((mean, rstd, w, b)), list(mask))
        expected = backward(g, x, (6,), mean, rstd, w, b, list(mask))
        for ours, theirs, wanted in zip(got, expected, mask, strict=True):
            assert (ours is not None) == wanted
            if wanted:
                torch.testing.assert_close(ours.cpu(), theirs, rtol=2e-6, atol=2e-6)


def test_far_from_zero_nothing_cancels() -> None:
    # What one rounding of the inputs moves is a thousandth of what squares would lose.
    check_native(F.layer_norm, values(8, 256) + 1000, (256,), tol=ACCURATE)


def test_special_values_and_empty_shapes() -> None:
    x = values(5, 8)
    x[0, 3], x[1, 2], x[2, 0] = float("inf"), float("nan"), -float("inf")
    x[3] = 0.0
    check_native(F.layer_norm, x, (8,), tol=ACCURATE)
    for shape in [(0, 4), (3, 0)]:
        check(F.layer_norm, torch.zeros(shape), shape[1:])


def test_bits_do_not_depend_on_threads() -> None:
    x, g = values(300, 200).to(DEVICE), values(300, 200, seed=1).to(DEVICE)
    w, b = values(200, seed=2).to(DEVICE), values(200, seed=3).to(DEVICE)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            results.append([t.cpu() for t in with_gradients(x, w, b, g, 1)])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_derivatives() -> None:
    x = values(3, 5, dtype=torch.float64).to(DEVICE).requires_grad_()
    w = values(5, dtype=torch.float64, seed=1).to(DEVICE).requires_grad_()
    b = values(5, dtype=torch.float64, seed=2).to(DEVICE).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, w, b: F.layer_norm(x, (5,), w, b), (x, w, b))
    assert torch.autograd.gradgradcheck(lambda x, w, b: F.layer_norm(x, (5,), w, b), (x, w, b))


def test_errors_are_pytorchs() -> None:
    x = values(3, 4)
    check(F.layer_norm, x, (5,))
    check(F.layer_norm, x, (4,), values(3))
    check(F.layer_norm, x, (4,), values(4).double())
    check(F.layer_norm, x.long(), (4,))


# --- Batch norm -----------------------------------------------------------------------------------


def batch_norm(
    x: torch.Tensor,
    g: torch.Tensor,
    params: list[torch.Tensor | None],
    training: bool,
) -> list[torch.Tensor | None]:
    """The output, the gradients and what the running statistics became."""
    given = [None if t is None else t.clone() for t in params]
    w, b, mean, var = given
    leaves = [t.detach().requires_grad_() for t in (x, w, b) if t is not None]
    rest = iter(leaves[1:])
    w, b = (None if t is None else next(rest) for t in (w, b))
    y = F.batch_norm(leaves[0], mean, var, w, b, training, 0.3)
    return [y.detach(), *torch.autograd.grad(y, leaves, g), mean, var]


def channel(c: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    return (torch.rand(c, generator=torch.Generator().manual_seed(seed)) + 0.5).to(dtype)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(6, 5), (4, 3, 7), (4, 70, 6, 5), (3, 16, 33, 40),
                                   (2, 3, 2, 2, 4), (3, 1, 4, 4), (300, 20)])  # fmt: skip
def test_batch_norm_is_as_accurate_as_cpu(
    dtype: torch.dtype, shape: tuple[int, ...], training: bool
) -> None:
    x, g = values(*shape, dtype=dtype), values(*shape, dtype=dtype, seed=1)
    formats = [torch.contiguous_format]
    if len(shape) >= 4:
        formats.append(torch.channels_last if len(shape) == 4 else torch.channels_last_3d)
    for x_format, g_format in itertools.product(formats, repeat=2):
        x, g = x.contiguous(memory_format=x_format), g.contiguous(memory_format=g_format)
        params = [channel(shape[1], dtype, seed) for seed in range(4)]
        exact = batch_norm(x.double(), g.double(), [p.double() for p in params], training)
        expected = batch_norm(x, g, params, training)
        hologram_torch.reset_fallback_counts()
        results = batch_norm(*to_device([x, g, params]), training)
        assert not hologram_torch.fallback_counts()
        assert [r.dtype for r in results] == [e.dtype for e in expected]
        assert [r.stride() for r in results] == [e.stride() for e in expected]
        floor = 1e-12 if dtype == torch.float64 else 4 * torch.finfo(dtype).eps
        theirs = errors(expected, exact)
        for ours, bound in zip(errors(results, exact), theirs, strict=True):
            assert ours <= max(2 * bound, floor)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_of_halves_with_float_parameters(dtype: torch.dtype, training: bool) -> None:
    x, g = values(4, 5, 6, 7, dtype=dtype), values(4, 5, 6, 7, dtype=dtype, seed=1)
    params = [channel(5, torch.float32, seed) for seed in range(4)]
    check_native(batch_norm, x, g, params, training, tol=ACCURATE)
    check_native(torch.native_batch_norm, x, *params, training, 0.1, 1e-5, tol=ACCURATE)


def test_batch_norm_without_some() -> None:
    x, g = values(4, 5, 6), values(4, 5, 6, seed=1)
    w, b, mean, var = (channel(5, torch.float32, seed) for seed in range(4))
    for params in ([None] * 4, [w, None, None, None], [w, b, None, None], [None, None, mean, var]):
        check_native(batch_norm, x, g, params, True, tol=ACCURATE)
    check_native(batch_norm, x, g, [None, None, mean, var], False, tol=ACCURATE)
    for y in layouts(x):
        check_native(batch_norm, y, g.transpose(0, 1).contiguous().transpose(0, 1),
                     [w, b, mean, var], True, tol=ACCURATE)  # fmt: skip
    backward = torch.ops.aten.native_batch_norm_backward
    _, m, s = torch.native_batch_norm(x, w, b, mean, var, True, 0.1, 1e-5)
    for mask in itertools.product([True, False], repeat=3):
        if any(mask):
            check_native(backward, g, x, w, mean, var, m, s, True, 1e-5, list(mask), tol=ACCURATE)


def test_batch_norm_far_from_zero() -> None:
    x = values(16, 3, 20, 20) * 0.1 + 300
    for last in (torch.contiguous_format, torch.channels_last):
        y = x.contiguous(memory_format=last)
        check_native(F.batch_norm, y, None, None, training=True, tol=ACCURATE)


def test_batch_norm_special_values_and_errors() -> None:
    x = values(3, 4, 5)
    x[0, 1, 2], x[1, 2, 0] = float("inf"), float("nan")
    params = [channel(4, torch.float32, seed) for seed in range(4)]
    for training in (True, False):
        check_native(batch_norm, x, values(3, 4, 5, seed=1), params, training,
                     tol=ACCURATE)  # fmt: skip
    check(F.batch_norm, x, channel(3, torch.float32, 0), channel(3, torch.float32, 1))
    check(F.batch_norm, values(1, 4), None, None, training=True)
    check(F.batch_norm, torch.zeros(0, 4), None, None, training=True)
    check(F.batch_norm, x, params[2], params[3].double())


def test_batch_norm_derivatives() -> None:
    x = values(4, 3, 2, 2, dtype=torch.float64).to(DEVICE).requires_grad_()
    w, b = (values(3, dtype=torch.float64, seed=s).to(DEVICE).requires_grad_() for s in (1, 2))
    mean, var = (channel(3, torch.float64, s).to(DEVICE) for s in (3, 4))

    def train(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(x, None, None, w, b, True)

    def evaluate(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(x, mean, var, w, b, False)

    for f in (train, evaluate):
        assert torch.autograd.gradcheck(f, (x, w, b))
        assert torch.autograd.gradgradcheck(f, (x, w, b))


def test_gradients_compare_shapes() -> None:
    """PyTorch's kernels do not, and read past the end of what is too small."""
    x, few = torch.ones(4, 3, 5, device=DEVICE), torch.ones(4, 2, 5, device=DEVICE)
    three, two, one = (torch.ones(n, device=DEVICE) for n in (3, 2, 1))
    norm, back = torch.native_batch_norm, torch.ops.aten.native_batch_norm_backward
    for i, name in enumerate(["weight", "bias", "running_mean", "running_var"]):
        params = [two if j == i else three for j in range(4)]
        with pytest.raises(RuntimeError, match=f"expected 3 elements in {name}, .* got 2"):
            norm(x, *params, True, 0.1, 1e-5)
    with pytest.raises(RuntimeError, match=r"input's shape \[4, 3, 5\], got \[4, 2, 5\]"):
        back(few, x, *[three] * 5, True, 1e-5, [True] * 3)
    for i, name in enumerate(["weight", "running_mean", "running_var", "save_mean", "save_invstd"]):
        params = [two if j == i else three for j in range(5)]
        with pytest.raises(RuntimeError, match=f"expected 3 elements in {name}, .* got 2"):
            back(x, x, *params, True, 1e-5, [True] * 3)
    back = torch.ops.aten.native_layer_norm_backward
    stats, five = torch.ones(4, 3, 1, device=DEVICE), torch.ones(5, device=DEVICE)
    with pytest.raises(RuntimeError, match=r"input's shape \[4, 3, 5\], got \[4, 2, 5\]"):
        back(few, x, [5], stats, stats, five, five, [True] * 3)
    for pair in [(one, stats), (stats, one)]:
        with pytest.raises(RuntimeError, match=r"mean and an rstd of 12 elements .* got 1"):
            back(x, x, [5], *pair, five, five, [True] * 3)
