# SPDX-License-Identifier: MIT
"""The bits of a result depend on no mode, number of threads, generated loop, cache or block."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import hologram_torch
from bits import threads, walk

DEVICE = walk.DEVICE


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


# --- The walk ------------------------------------------------------------------------------------


def check_walk(shapes: int | None) -> None:
    found = threads.walk_all(shapes)
    assert not found.wrong, "\n".join(found.wrong)
    known = threads.read_known(threads.KNOWN.read_text().splitlines())
    complaints = threads.against_known(known, found.pairs, found.cases, whole=shapes is None)
    assert not complaints, "\n".join(complaints)
    assert len(found.cases) > (150 if shapes else 600)
    assert found.runs >= 2 * len(threads.THREADS) + 3


def test_two_shapes_of_each_op() -> None:
    check_walk(2)


@pytest.mark.heavy
def test_every_shape() -> None:
    check_walk(None)


def test_every_known_line_names_an_op() -> None:
    known = threads.read_known(threads.KNOWN.read_text().splitlines())
    names = {op.name for op in walk.OPS}
    assert not {line.case.split()[0] for line in known} - names
    assert not any(threads.UNPAIRED in line.pair for line in known)


def test_what_known_lines_allow() -> None:
    read = threads.read_known
    known = read(["# a comment", "sum 3x4:f32 a-b", "mean * a-b  # of rows", "", "dot * a-c"])
    cases = ["sum 3x4:f32", "sum 5x6:f32", "mean 3x4:f32", "dot 9,9:f32"]

    def complaints(differ: list[str], whole: bool = True) -> list[str]:
        return threads.against_known(known, {"a-b": differ}, cases, whole)

    assert complaints(["sum 3x4:f32", "mean 3x4:f32"]) == []
    assert complaints(cases) == [
        "sum 5x6:f32 differs between a-b and is not in known.txt",
        "dot 9,9:f32 differs between a-b and is not in known.txt",
    ]
    gone = "sum 3x4:f32 a-b no longer differs: delete it from known.txt"
    assert complaints([]) == [gone, "mean * a-b no longer differs: delete it from known.txt"]
    assert complaints([], whole=False) == [gone]
    unmeasured = read(["mean * a-b unmeasured"])
    assert threads.against_known(unmeasured, {"a-b": []}, cases, True) == []
    assert threads.against_known(unmeasured, {"a-b": ["mean 3x4:f32"]}, cases, True) == []
    for line in ("sum a-b", "sum * a-b often", "sum * a-b unmeasured now"):
        with pytest.raises(ValueError, match=re.escape(repr(line))):
            read([line])


# --- Convolutions by Winograd: which columns are left over follows from the threads --------------

CHANNELS, PLANES = (32, 64, 96, 128, 192, 256), (7, 9, 13, 14, 18, 21, 27, 28)
BATCHES = (1, 2, 3, 4, 8, 16)
MOST_PRODUCTS = 3 << 30
WINOGRAD = [
    (n, c, side)
    for c in CHANNELS
    for side in PLANES
    for n in BATCHES
    if n * c * c * side * side * 9 <= MOST_PRODUCTS
]


def convolve(n: int, c: int, side: int) -> list[torch.Tensor]:
    """Return a convolution with each number of threads, then deferred."""
    x = walk.uniform((n, c, side, side), torch.float32, 1)
    w = walk.uniform((c, c, 3, 3), torch.float32, 2)
    found = []
    for mode in ("eager", "deferred"):
        for count in threads.THREADS if mode == "eager" else (3,):
            torch.set_num_threads(count)
            with hologram_torch.execution(mode):
                found.append(F.conv2d(x, w, padding=1).cpu())
    return found


def differing_convolutions(shapes: list[tuple[int, int, int]]) -> list[str]:
    found = []
    for n, c, side in shapes:
        first, *others = convolve(n, c, side)
        if not all(torch.equal(first, y) for y in others):
            found.append(f"{n} images of {c} channels, {side} x {side}")
    return found


def test_threads_do_not_change_some_convolutions() -> None:
    few = [s for s in WINOGRAD if s[0] * s[1] * s[1] * s[2] * s[2] < 16 << 20][::5]
    assert len(few) > 20
    assert differing_convolutions(few) == []


@pytest.mark.heavy
@pytest.mark.parametrize("channels", CHANNELS)
def test_threads_do_not_change_convolutions(channels: int) -> None:
    shapes = [s for s in WINOGRAD if s[1] == channels]
    assert len(shapes) > 30
    assert differing_convolutions(shapes) == []


# --- Products of one row and one column ----------------------------------------------------------


def differing_dots(lengths: Iterator[int] | range, dtype: torch.dtype) -> list[int]:
    a, b = (walk.uniform((5, 4096), dtype, seed) for seed in (1, 2))
    found = []
    for k in lengths:
        rows, columns = a[:, None, :k], b[:, :k, None]
        both = []
        for mode in ("eager", "deferred"):
            with hologram_torch.execution(mode):
                both.append(torch.bmm(rows, columns).cpu())
        if not torch.equal(*both):
            found.append(k)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_deferred_dots_are_eager_ones(dtype: torch.dtype) -> None:
    assert differing_dots(range(1, 4097, 37), dtype) == []


@pytest.mark.heavy
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_deferred_dots_of_every_length_are_eager_ones(dtype: torch.dtype) -> None:
    assert differing_dots(range(1, 4097), dtype) == []


# --- Attention: values that are not finite reach the queries that see them, and no others --------


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("rows", [100, 530])
def test_causal_rows_see_what_is_before_them(rows: int, value: float) -> None:
    q, k, v = (walk.uniform((1, 2, rows, 33), torch.float32, seed) for seed in (1, 2, 3))
    for key in (0, 31, 60, rows - 1):
        changed = v.clone()
        changed[0, 0, key, 5] = value
        for mode in ("eager", "deferred"):
            for count in threads.THREADS:
                torch.set_num_threads(count)
                with hologram_torch.execution(mode):
                    before, after = (
                        F.scaled_dot_product_attention(q, k, values, is_causal=True).cpu()
                        for values in (v, changed)
                    )
                reached = after[0, 0, key:, 5]
                assert (reached.isnan() if math.isnan(value) else reached == value).all()
                after[0, 0, key:, 5] = before[0, 0, key:, 5]
                assert torch.equal(after, before), f"key {key}, {mode}, {count} threads"


# --- What the library is built of ----------------------------------------------------------------

# Functions of libm whose results differ between its versions; fmod and its like are exact.
LIBM = {"exp", "log", "pow", "sin", "cos", "tan", "hypot", "atan2", "sinh", "cosh", "tanh", "exp2",
        "expm1", "log2", "log10", "log1p", "cbrt", "asin", "acos", "atan", "asinh", "acosh",
        "atanh", "erf", "erfc", "lgamma", "tgamma", "sincos"}  # fmt: skip
# Those that are called today, most of them by the references that test the op table; the list only
# gets shorter.
CALLED = {"acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "erf", "erfc",
          "exp", "exp2", "expm1", "hypot", "log", "log10", "log1p", "log2", "logf", "pow", "powf",
          "sin", "sinh", "tan", "tanh"}  # fmt: skip
# Approximations, which each maker of processors computes otherwise.
APPROXIMATE = re.compile(r"\bv?(rcpps|rcpss|rsqrtps|rsqrtss|rcp14|rsqrt14|rcp28|rsqrt28|exp2p)")


def library() -> Path:
    """Return libhologram."""
    with open("/proc/self/maps", encoding="utf-8") as file:
        paths = {line.split()[-1] for line in file if "/libhologram.so" in line}
    (found,) = paths
    return Path(found)


def test_no_function_of_libm_is_called_but_those_known() -> None:
    if shutil.which("nm") is None:
        pytest.skip("binutils are not installed")
    text = subprocess.run(
        ["nm", "-D", "--undefined-only", library()], capture_output=True, text=True, check=True
    ).stdout
    names = {line.split()[-1].partition("@")[0] for line in text.splitlines()}
    called = {n for n in names if n in LIBM or n.removesuffix("f") in LIBM}
    assert not called - CALLED


@pytest.mark.heavy
def test_no_instruction_approximates() -> None:
    if shutil.which("objdump") is None:
        pytest.skip("binutils are not installed")
    with subprocess.Popen(
        ["objdump", "-d", "--no-show-raw-insn", library()],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "LC_ALL": "C"},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        lines = 0
        for line in process.stdout:
            lines += 1
            assert not APPROXIMATE.search(line), line
    assert process.returncode == 0
    assert lines > 100_000
