# SPDX-License-Identifier: MIT
"""Wrong arguments: nothing crashes, and what is raised is of NumPy's kind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hologram as hg

CALLS = Path(__file__).parents[1] / "fuzz" / "random_calls.py"


def run(tmp_path: Path, seed: int, calls: int) -> None:
    """Run random calls in a process of their own, whose last call is known if it crashes."""
    pytest.importorskip("resource")
    log = tmp_path / "last_call"
    done = subprocess.run(
        [sys.executable, CALLS, "--seed", str(seed), "--calls", str(calls), "--log", log],
        env={"PYTHONPATH": ":".join(sys.path), "PATH": "", "OMP_NUM_THREADS": "2"},
        capture_output=True, text=True, errors="replace", timeout=3000, check=False,
    )  # fmt: skip
    last = log.read_text(errors="replace").strip() if log.exists() else "none"
    assert done.returncode == 0, f"{done.stdout[-4000:]}{done.stderr[-3000:]}\nlast: {last}"
    assert f"{calls} calls, 0 faults" in done.stdout


def test_random_calls(tmp_path: Path) -> None:
    run(tmp_path, seed=1, calls=8_000)


@pytest.mark.heavy
@pytest.mark.parametrize("piece", range(10))
def test_a_million_random_calls(tmp_path: Path, piece: int) -> None:
    run(tmp_path, seed=1000 + piece, calls=100_000)


X = np.arange(6.0).reshape(2, 3)
Call = Callable[[Any, Any], Any]  # of a namespace and an array of its
# What is wrong is one thing; NumPy raises for it what is named, or the call raises nothing there.
WRONG: dict[str, Call] = {
    "axis of sum": lambda np, x: np.sum(x, axis=2),
    "axis of max": lambda np, x: np.max(x, axis=-3),
    "axes given twice": lambda np, x: np.sum(x, axis=(0, 0)),
    "axis of concatenate": lambda np, x: np.concatenate([x, x], axis=5),
    "axis of expand_dims": lambda np, x: np.expand_dims(x, 7),
    "axis of squeeze": lambda np, x: np.squeeze(x, axis=4),
    "axis of moveaxis": lambda np, x: np.moveaxis(x, 0, 9),
    "axis of flip": lambda np, x: np.flip(x, axis=3),
    "axis of roll": lambda np, x: np.roll(x, 1, axis=3),
    "axis of sort": lambda np, x: np.sort(x, axis=3),
    "axis of argmax": lambda np, x: np.argmax(x, axis=3),
    "axis of cumsum": lambda np, x: np.cumsum(x, axis=3),
    "axis of take": lambda np, x: np.take(x, [0], axis=3),
    "axis of repeat": lambda np, x: np.repeat(x, 2, axis=3),
    "axis of fft": lambda np, x: np.fft.fft(x, axis=3),
    "axis of vecdot": lambda np, x: np.linalg.vecdot(x, x, axis=3),
    "no axis": lambda np, x: np.sum(x, axis="rows"),
    "float axis": lambda np, x: np.sum(x, axis=0.5),
    "squeeze of size 3": lambda np, x: np.squeeze(x, axis=1),
    "transpose": lambda np, x: np.permute_dims(x, (0,)),
    "transpose twice": lambda np, x: np.permute_dims(x, (0, 0)),
    "shapes of add": lambda np, x: np.add(x, np.zeros((4,))),
    "shapes of where": lambda np, x: np.where(x > 0, x, np.zeros((4,))),
    "shapes of matmul": lambda np, x: np.matmul(x, x),
    "shapes of concatenate": lambda np, x: np.concatenate([x, np.zeros((4, 4))]),
    "shapes of stack": lambda np, x: np.stack([x, np.zeros((4, 4))]),
    "nothing to join": lambda np, x: np.concatenate([]),
    "reshape": lambda np, x: np.reshape(x, (4, 4)),
    "reshape by -1": lambda np, x: np.reshape(x, (-1, 4)),
    "reshape by two -1": lambda np, x: np.reshape(x, (-1, -1)),
    "broadcast_to": lambda np, x: np.broadcast_to(x, (2, 4)),
    "negative shape": lambda np, x: np.zeros((2, -1)),
    "shape of floats": lambda np, x: np.zeros((2.5,)),
    "shape beyond memory": lambda np, x: np.zeros((2**62, 2**62)),
    "dtype": lambda np, x: np.zeros(3, dtype="float33"),
    "no dtype": lambda np, x: np.asarray(x, dtype=3),
    "bits of floats": lambda np, x: np.bitwise_and(x, x),
    "shift of floats": lambda np, x: np.bitwise_left_shift(x, x),
    "invert of floats": lambda np, x: np.bitwise_invert(x),
    "negative of bool": lambda np, x: np.negative(x > 0),
    "subtract of bool": lambda np, x: np.subtract(x > 0, x > 0),
    "out of integers": lambda np, x: np.sqrt(x, out=np.zeros((2, 3), dtype="int32")),
    "out of another shape": lambda np, x: np.sqrt(x, out=np.zeros((3, 3))),
    "out no array": lambda np, x: np.sqrt(x, out=3),
    "no elements to max": lambda np, x: np.max(x[:0]),
    "no elements to argmin": lambda np, x: np.argmin(x[:0]),
    "index": lambda np, x: x[5],
    "indices": lambda np, x: x[0, 0, 0],
    "float index": lambda np, x: x[1.5],
    "string index": lambda np, x: x["a"],
    "array index": lambda np, x: x[np.asarray([0, 9])],
    "mask of another shape": lambda np, x: x[np.asarray([True, False, True])],
    "slice of floats": lambda np, x: x[0:1.5],
    "step 0": lambda np, x: x[::0],
    "assign": lambda np, x: x.__setitem__(0, np.zeros((4,))),
    "assign to a broadcast": lambda np, x: np.broadcast_to(x, (2, 2, 3)).__setitem__(0, 1),
    "take": lambda np, x: np.take(x, [7], axis=0),
    "put": lambda np, x: x.put([99], 1),
    "repeat": lambda np, x: np.repeat(x, -1),
    "repeat counts": lambda np, x: np.repeat(x, [1, 2, 3, 4], axis=0),
    "searchsorted": lambda np, x: np.searchsorted(x[0], 1.0, side="middle"),
    "bool of many": lambda np, x: bool(x),
    "float of many": lambda np, x: float(x),
    "index of floats": lambda np, x: range(3)[x[0, 0]],
    "len of none": lambda np, x: len(np.sum(x)),
    "item": lambda np, x: x.item(),
    "nonzero of none": lambda np, x: np.nonzero(np.sum(x)),
    "singular": lambda np, x: np.linalg.inv(np.zeros((2, 2))),
    "singular system": lambda np, x: np.linalg.solve(np.zeros((2, 2)), np.zeros((2,))),
    "not square": lambda np, x: np.linalg.det(x),
    "not definite": lambda np, x: np.linalg.cholesky(-np.eye(2)),
    "qr mode": lambda np, x: np.linalg.qr(x, mode="big"),
    "norm": lambda np, x: np.linalg.matrix_norm(x, ord="two"),
    "fft of none": lambda np, x: np.fft.fft(x, n=0),
    "norm of fft": lambda np, x: np.fft.fft(x, norm="big"),
    "cross": lambda np, x: np.linalg.cross(x[:, :2], x),
    "integer beyond int8": lambda np, x: np.add(np.zeros(2, dtype="int8"), 300),
    "integer beyond int64": lambda np, x: np.full((2,), 2**70, dtype="int64"),
    "arange by 0": lambda np, x: np.arange(0.0, 1.0, 0.0),
    "linspace": lambda np, x: np.linspace(0, 1, -1),
    "meshgrid": lambda np, x: np.meshgrid(x[0], indexing="yx"),
    "unknown argument": lambda np, x: np.sum(x, nothing=1),
    "missing argument": lambda np, x: np.where(),
    "string": lambda np, x: np.add(x, "a"),
    "none": lambda np, x: np.multiply(x, None),
    "clip without limits": lambda np, x: np.clip(x, np.zeros((4,)), 1),
    "split axis": lambda np, x: np.unstack(x, axis=4),
    "iinfo": lambda np, x: np.iinfo(x.dtype),
    "finfo": lambda np, x: np.finfo((x > 0).dtype),
    "isdtype": lambda np, x: np.isdtype(x.dtype, "floating"),
    "device": lambda np, x: np.asarray(x, device="gpu"),
    "copy": lambda np, x: np.asarray([1, 2], copy=False),
}  # fmt: skip
# What hologram's own functions raise where NumPy raises ZeroDivisionError or ValueError.
OTHERWISE = {"arange by 0": ValueError, "iinfo": TypeError, "finfo": TypeError}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("through", ["hologram", "numpy"])
def test_what_is_raised_is_what_numpy_raises(name: str, through: str) -> None:
    with pytest.raises(Exception) as numpys:
        WRONG[name](np, X.copy())
    kinds: tuple[type[BaseException], ...] = (numpys.type,)
    if issubclass(numpys.type, np.exceptions.AxisError):
        kinds = (ValueError, IndexError)  # it is both
    elif issubclass(numpys.type, TypeError):
        kinds = (TypeError,)  # of its own kinds of it
    if through == "hologram" and name in OTHERWISE:
        kinds = (OTHERWISE[name],)
    with pytest.raises(kinds):
        WRONG[name](hg if through == "hologram" else np, hg.array(X))


def test_calls_that_end_numpys_process() -> None:
    """NumPy 2.4 crashes on these; hologram refuses them, or gives what NumPy gives beside them."""
    x = hg.ones((2, 3))
    for run_out in (
        lambda: np.cumsum(x, out=hg.zeros(())),
        lambda: x.cumprod(out=hg.zeros(())),
        lambda: np.nancumsum(x, 0, None, hg.zeros(())),
        lambda: np.add.accumulate(x[0], out=hg.zeros(())),
    ):
        with pytest.raises(ValueError, match=r"out has no dimensions|out has shape \(\)"):
            run_out()
    for many in (lambda: hg.repeat(x, 2**62), lambda: np.repeat(x, [2**62, 2**62], axis=0)):
        with pytest.raises(ValueError, match=r"repeat: .* elements are too many"):
            many()
    with pytest.raises(ValueError, match=r"tile: a count in .* is negative"):
        np.tile(x, (4, 2**62, -2))
    for diagonal in (np.diagonal(x, -(2**31)), x.diagonal(-(2**31)), hg.diag(x, k=-(2**31))):
        assert diagonal.shape == (0,)
    assert float(np.trace(x, offset=-(2**31))) == 0
    with np.errstate(all="ignore"):
        assert np.round(hg.array([3, 4]), 2**31 - 1).tolist() == [3, 4]
        assert np.isnan(np.round(hg.array([1.5]), decimals=-(2**31))).all()
    for far in (-(2**62), 2**62 + 1):  # NumPy counts down to them
        assert np.take(hg.arange(3), [far], mode="wrap").tolist() == [far % 3]
        assert np.choose(hg.array([far]), [[5], [6]], mode="wrap").tolist() == [5 + far % 2]
        numbers = hg.arange(3)
        numbers.put(far, 9, mode="wrap")
        np.put(numbers, [far], 9, mode="wrap")
        assert numbers.tolist() == [9 if at == far % 3 else at for at in range(3)]
    yes = hg.array([True, False, True])
    out = hg.zeros(3, "bool")
    np.greater(hg.ones(3, "uint8"), -1, out=out, where=yes)
    assert out.tolist() == [True, False, True]


def test_large_numbers_are_exact() -> None:
    for numbers in (
        (2**62, 2**62 + 5),
        (2**53, 2**53 + 3),
        (-(2**62), -(2**62) - 9, -4),
        (5, 2**60, 2**58),
    ):
        found = hg.arange(*numbers)
        assert found.dtype == "int64"
        assert found.tolist() == list(range(*numbers))
    assert hg.arange(2**60, 0).shape == (0,)
    assert hg.arange(2**53, 2**53 + 2, dtype="float64").tolist() == [2.0**53, 2.0**53]
    # Beyond int64, as NumPy's: rounded.
    found, expected = hg.arange(2**63, 2**63 + 9, 4), np.arange(2**63, 2**63 + 9, 4)
    assert found.dtype == expected.dtype and found.tolist() == expected.tolist()
    with pytest.raises(ValueError, match="arange: 1152921504606846976 elements are too many"):
        hg.arange(0, 2**60)
    with pytest.raises(ValueError, match="arange: step is 0"):
        hg.arange(0, 2**60, 0)
    # As many differences as there are elements leave none.
    assert hg.diff(hg.ones((2, 3)), n=2**62).shape == (2, 0)


def test_arguments_of_another_kind_are_named() -> None:
    x = hg.ones((2, 3))
    for call, said in (
        (lambda: x.astype(x), "Tensor is an array, not a dtype; use its dtype"),
        (lambda: hg.zeros(3, np.ones(2)), "ndarray is an array, not a dtype"),
        (lambda: x.dot(x.T, out=np.zeros((2, 2))), "dot: out is a Tensor or None, not ndarray"),
        (lambda: x.dot("a"), "dtype str32 is not supported"),
        (lambda: x.to_device(3), "to_device: device is a string, not int"),
        (lambda: x.__format__(3), "a format is a string, not int"),
        (lambda: hg.atan2(x, slice(2)), "cannot make a Tensor of|dtype object is not supported"),
    ):
        with pytest.raises(TypeError, match=said):
            call()
    with pytest.raises(IndexError, match="squeeze: axis 4 is out of range for an array of 2"):
        hg.squeeze(x, axis=4)
    with pytest.raises(
        ValueError, match=r"fftfreq: n is at least 1 and d is not 0, not 0 and 1\.0"
    ):
        hg.fft.fftfreq(0)
    with pytest.raises(ValueError, match=r"shapes \(2, 3\), \(4,\) cannot be broadcast together"):
        hg.broadcast_arrays(x, hg.ones(4))


def test_numpy_decides_what_hologram_refuses() -> None:
    """What an op of hologram's does not do and NumPy does, numpy.f(t) does."""
    x = np.array([1.5, 2.5, 4.0])
    t, z = hg.array(x), hg.array([1j, 2.0])
    assert np.mean(t, dtype="int32").tolist() == np.mean(x, dtype="int32")
    assert np.argmax(z).tolist() == 1 and np.prod(z).tolist() == 2j
    assert hg.prod(z).tolist() == 2j and hg.any(z).tolist() and hg.all(z).tolist()
    assert hg.clip(z, 0, 1).tolist() == np.clip([1j, 2.0], 0, 1).tolist()
    assert np.exp(t, out=hg.zeros(3, "complex64")).dtype == "complex64"
    assert np.transpose(t, axes=0).shape == (3,)
    with pytest.raises(TypeError, match="Cannot cast array data"):
        np.concatenate([t, t], dtype="int8")
