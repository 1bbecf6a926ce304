# SPDX-License-Identifier: MIT
"""The _foreach_ ops against the same op on each tensor on PyTorch's cpu."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import hologram_torch

UNARY = """abs neg sign floor ceil round trunc reciprocal sqrt rsqrt exp expm1 log log2 log10 log1p
sin cos tan tanh sigmoid erf""".split()
NUMBER = "add sub mul div pow maximum minimum clamp_min clamp_max".split()
LIST = "add sub mul div pow maximum minimum clamp_min clamp_max".split()
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64]
SHAPES = [(3,), (), (0,), (4, 5), (2, 3, 4), (17,)]


def make(
    seed: int, dtype: torch.dtype, shapes: list[tuple[int, ...]] = SHAPES
) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return [(torch.randint(1, 9, s, generator=g) / 2).to(dtype) for s in shapes]


def mirror(t: torch.Tensor) -> torch.Tensor:
    """Return the same elements on the device, in a storage of the same layout."""
    size = t.untyped_storage().nbytes() // t.element_size()
    base = t.as_strided((size,), (1,), 0).to("hologram")
    return base.as_strided(t.size(), t.stride(), t.storage_offset())


def is_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], torch.Tensor)


def copies(value: Any, copy: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    return [copy(t) for t in value] if is_list(value) else value


def cpu_copy(t: torch.Tensor) -> torch.Tensor:
    base = t.as_strided((t.untyped_storage().nbytes() // t.element_size(),), (1,), 0).clone()
    return base.as_strided(t.size(), t.stride(), t.storage_offset())


def same(ours: list[torch.Tensor], cpu: list[torch.Tensor], what: str) -> None:
    assert len(ours) == len(cpu), what
    for a, b in zip(ours, cpu, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride(), what
        # A half is one unit off where float32 rounded the other way just before.
        half = b.dtype == torch.bfloat16
        torch.testing.assert_close(
            a.cpu(),
            b,
            rtol=torch.finfo(b.dtype).eps if half else 1e-5,
            atol=0.0 if half else 1e-6,
            equal_nan=True,
            msg=lambda m: f"{what}: {m}",
        )


def compare(name: str, *args: Any, what: str = "", **kwargs: Any) -> None:
    """Compare both forms of an op, and what each leaves in its arguments, or its errors."""
    for form in [f"_foreach_{name}", f"_foreach_{name}_"]:
        fn: Callable[..., Any] | None = getattr(torch, form, None)
        if fn is None:
            continue
        text = f"{form} {what}"
        ours_args = [copies(a, mirror) for a in args]
        cpu_args = [copies(a, cpu_copy) for a in args]
        try:
            expected = fn(*cpu_args, **kwargs)
        except Exception as error:
            with pytest.raises(type(error)):
                fn(*ours_args, **kwargs)
            continue
        result = fn(*ours_args, **kwargs)
        if not form.endswith("_"):
            same(result, expected, text)
        for a, b in zip(ours_args, cpu_args, strict=True):
            if is_list(b):
                same(a, b, text + " (argument)")


@pytest.fixture(params=[1, 4], ids=["one thread", "four threads"])
def threads(request: pytest.FixtureRequest):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    for dtype in DTYPES:
        compare(name, make(1, dtype), what=str(dtype))


@pytest.mark.parametrize("name", NUMBER)
def test_numbers(name: str) -> None:
    for dtype in DTYPES:
        for number in [2, 0.5, -1, True]:
            compare(name, make(1, dtype), number, what=f"{dtype} {number}")
        numbers = [2, 3, 0.5, 1, 2.5, 4]
        compare(name, make(1, dtype), numbers, what=f"{dtype} list")
        compare(name, make(1, dtype), numbers[:2], what=f"{dtype} short list")


@pytest.mark.parametrize("name", LIST)
def test_lists(name: str) -> None:
    for left in DTYPES:
        for right in DTYPES:
            compare(name, make(1, left), make(2, right), what=f"{left} {right}")
    compare(name, make(1, torch.float32), make(2, torch.float32)[:3], what="short list")
    compare(name, [], [], what="empty lists")
    wide = [t.expand(3, 5) for t in make(2, torch.float32, [(5,), (1,)])]
    compare(name, make(1, torch.float32, [(3, 5), (3, 5)]), wide, what="expanded")
    compare(name, make(1, torch.float32, [(5,), (5,)]), wide, what="grows")
    if name in ("add", "sub"):
        compare(name, make(1, torch.float32), make(2, torch.float32), alpha=0.5, what="alpha")
        compare(name, make(1, torch.int64), make(2, torch.int64), alpha=2, what="alpha")
        compare(name, make(1, torch.int64), make(2, torch.int64), alpha=0.5, what="bad alpha")


def test_tensor_numbers() -> None:
    for name in ["add", "mul", "div"]:
        for dtype in DTYPES:
            compare(name, make(1, dtype), torch.tensor(2.0), what=str(dtype))
            number = torch.tensor(2.0, device="hologram")
            result = getattr(torch, f"_foreach_{name}")(copies(make(1, dtype), mirror), number)
            expected = getattr(torch, f"_foreach_{name}")(make(1, dtype), torch.tensor(2.0))
            same(list(result), list(expected), f"{name} {dtype} number on the device")
    ours = copies(make(1, torch.float32), mirror)
    torch._foreach_add_(ours, torch.tensor(1.0), alpha=2.0)
    same(ours, [t + 2 for t in make(1, torch.float32)], "alpha")


def test_blends() -> None:
    for dtype in DTYPES:
        a, b, c = make(1, dtype), make(2, dtype), make(3, dtype)
        for name in ["addcmul", "addcdiv"]:
            compare(name, a, b, c, 2, what=f"{dtype}")
            compare(name, a, b, c, 0.5, what=f"{dtype}")
            compare(name, a, b, c, [1, 2, 3, 4, 5, 6], what=f"{dtype} list")
            compare(name, a, b, c, torch.arange(6.0) + 1, what=f"{dtype} tensor")
        compare("lerp", a, b, 0.3, what=str(dtype))
        compare("lerp", a, b, c, what=f"{dtype} list")
        compare("lerp", a, b, [0.1, 0.2, 0.3, 0.4, 0.5, 0.9], what=f"{dtype} numbers")


def test_copy_zero_norm_pow() -> None:
    for dtype in DTYPES:
        compare("zero", make(1, dtype), what=str(dtype))
        compare("copy", make(1, dtype), make(2, torch.float32), what=str(dtype))
        if dtype != torch.int64:
            compare("norm", make(1, dtype), what=str(dtype))
            compare("norm", make(1, dtype), 1, what=str(dtype))
    result = torch._foreach_pow(0.9, [t.to("hologram") for t in make(1, torch.float32)])
    same(list(result), list(torch._foreach_pow(0.9, make(1, torch.float32))), "scalar and tensors")


def test_big_lists_agree_on_any_number_of_threads(threads: int) -> None:
    shapes = [(100, 100), (7,), (50_000,), (), (33, 1000)]
    for dtype in [torch.float32, torch.bfloat16, torch.int64]:
        a, b, c = (make(k, dtype, shapes) for k in (1, 2, 3))
        compare("add", a, b, what=str(dtype))
        compare("mul", a, 3, what=str(dtype))
        compare("addcmul", a, b, c, 2, what=str(dtype))
        compare("maximum", a, b, what=str(dtype))
        compare("sqrt", a, what=str(dtype))
        compare("div", a, [1, 2, 3, 4, 5], what=str(dtype))
        compare("pow", a, 3, what=str(dtype))


def test_members_that_share_memory_are_taken_in_order(threads: int) -> None:
    def run(device: str) -> torch.Tensor:
        x = torch.ones(60_000, device=device)
        y = torch.full((60_000,), 2.0, device=device)
        torch._foreach_add_([x, x, y], [y, y, x])
        torch._foreach_mul_([x[:30_000], x[15_000:45_000]], 3)
        torch._foreach_add_([x[:-1], y], [x[:-1], y])
        return torch.cat([x, y]).cpu()

    assert torch.equal(run("hologram"), run("cpu"))


def test_transposed_and_sliced_members() -> None:
    a = [torch.arange(20.0).view(4, 5).t(), torch.arange(40.0).view(4, 10)[:, ::2]]
    ours = [a[0].t().to("hologram").t(), torch.arange(40.0).to("hologram").view(4, 10)[:, ::2]]
    same(list(torch._foreach_exp(ours)), list(torch._foreach_exp(a)), "exp")
    torch._foreach_add_(ours, 1)
    torch._foreach_add_(a, 1)
    for mine, theirs in zip(ours, a, strict=True):
        assert torch.equal(mine.cpu(), theirs)


def test_versions_and_no_fallback() -> None:
    xs = [torch.ones(3, device="hologram") for _ in range(3)]
    hologram_torch.reset_fallback_counts()
    torch._foreach_add_(xs, 1)
    torch._foreach_lerp_(xs, xs, 0.5)
    torch._foreach_addcdiv_(xs, xs, xs, 2.0)
    torch._foreach_mul(xs, [1.0, 2.0, 3.0])
    torch._foreach_zero_(xs)
    assert [x._version for x in xs] == [4, 4, 4]
    assert hologram_torch.fallback_counts() == {}


def test_gradients_pass_through() -> None:
    for device in ["cpu", "hologram"]:
        x = torch.ones(3, device=device, requires_grad=True)
        (y,) = torch._foreach_mul([x], 3)
        y.sum().backward()
        assert x.grad.tolist() == [3, 3, 3]
