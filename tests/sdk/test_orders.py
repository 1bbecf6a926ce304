# SPDX-License-Identifier: MIT
"""order= of what makes arrays, beside NumPy: strides, flags, values, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hologram as hg

ORDERS = ("C", "F", "A", "K", "c", "f", "a", "k")
FLAGS = ("C_CONTIGUOUS", "F_CONTIGUOUS", "WRITEABLE")


def sources() -> dict[str, np.ndarray]:
    a = np.arange(24.0).reshape(2, 3, 4)
    return {
        "0-d": np.array(5.0),
        "1-d": np.arange(6.0),
        "1-d strided": np.arange(12.0)[::2],
        "1-d reversed": np.arange(6.0)[::-1],
        "rows": a,
        "columns": np.asfortranarray(a),
        "exchanged": a.transpose(1, 0, 2),
        "cycled": a.transpose(2, 0, 1),
        "slices": a[:, ::2, ::-1],
        "slices of columns": np.asfortranarray(a)[:, 1:, ::2],
        "matrix": np.arange(6, dtype=np.int32).reshape(2, 3),
        "its transpose": np.arange(6, dtype=np.int32).reshape(2, 3).T,
        "sizes of 1": np.arange(3.0).reshape(1, 3, 1),
        "complex": (np.arange(6) + 1j).reshape(2, 3).T,
        "bool": np.array([[True, False, True], [False, False, True]]).T,
        "uint16": np.arange(6, dtype=np.uint16).reshape(3, 2).T,
        "broadcast": np.broadcast_to(np.arange(3.0)[:, None], (2, 3, 4)),
        "empty": np.zeros((2, 0, 3)),
    }


SOURCES = sources()


def tensor(array: np.ndarray) -> hg.Tensor:
    """Return a Tensor of the same layout with memory of its own."""
    base = array if array.base is None else array.base
    whole = hg.array(base.ravel("K"))
    at = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    if not array.size:
        return hg.zeros(array.shape, array.dtype)
    return whole._strided(array.shape, array.strides, at)


def check(found: Any, expected: np.ndarray, values: bool = True) -> None:
    assert isinstance(found, hg.Tensor)
    assert found.shape == expected.shape and found.dtype == expected.dtype
    if values:
        np.testing.assert_array_equal(np.asarray(found), expected)
    if expected.size:
        # Of a size of 1 strides say nothing, and differ among NumPy's functions.
        wide = [at for at, size in enumerate(expected.shape) if size != 1]
        assert [found.strides[at] for at in wide] == [expected.strides[at] for at in wide]
    for name in FLAGS[:2]:
        assert found.flags[name] == expected.flags[name], name


@pytest.mark.parametrize("name", SOURCES)
def test_sources_are_laid_out_as_numpys(name: str) -> None:
    check(tensor(SOURCES[name]), SOURCES[name])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", SOURCES)
def test_copies(name: str, order: Any) -> None:
    a = SOURCES[name]
    x = tensor(a)
    check(x.copy(order), a.copy(order))
    check(np.copy(x, order), np.copy(a, order))
    check(np.copy(x, order=order), np.copy(a, order=order))
    check(x.flatten(order), a.flatten(order))
    check(x.ravel(order), a.ravel(order))
    check(np.ravel(x, order), np.ravel(a, order))
    wanted = "complex128" if a.dtype.kind == "c" else "float32"
    check(x.astype(wanted, order=order), a.astype(wanted, order=order))
    check(x.astype(wanted, order), a.astype(wanted, order))
    check(hg.array(x, order=order), np.array(a, order=order))
    check(hg.array(a, order=order), np.array(a, order=order))
    check(hg.asarray(a, wanted, order), np.asarray(a, wanted, order))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", SOURCES)
def test_made_like(name: str, order: Any) -> None:
    a = SOURCES[name]
    x = tensor(a)
    shapes = [None, (3,), (4, 5), (2, 3, 4), (), (2, 3, 4, 5)]
    for shape in shapes:
        like = {"order": order, "shape": shape}
        check(hg.zeros_like(x, **like), np.zeros_like(a, **like))
        check(hg.ones_like(x, **like), np.ones_like(a, **like))
        check(hg.full_like(x, 1, **like), np.full_like(a, 1, **like))
        check(hg.empty_like(x, **like), np.empty_like(a, **like), values=False)
        check(np.zeros_like(x, **like), np.zeros_like(a, **like))
        check(np.ones_like(x, **like), np.ones_like(a, **like))
        check(np.full_like(x, 1, **like), np.full_like(a, 1, **like))
        check(np.empty_like(x, **like), np.empty_like(a, **like), values=False)
    check(np.zeros_like(x, np.int8, order), np.zeros_like(a, np.int8, order))
    check(hg.zeros_like(x, dtype="int8", order=order), np.zeros_like(a, np.int8, order))


@pytest.mark.parametrize("name", SOURCES)
def test_without_an_order_what_is_made_is_row_major(name: str) -> None:
    x = tensor(SOURCES[name])
    for found in (
        hg.zeros_like(x), hg.ones_like(x), hg.full_like(x, 1), hg.empty_like(x),
        np.zeros_like(x), np.copy(x), hg.array(x), x.copy(), x.astype("complex128"),
        hg.zeros_like(x, order=None), np.ones_like(x, order=None), np.copy(x, None),
        x.copy(None), x.astype("complex128", order=None), hg.array(x, order=None),
    ):  # fmt: skip
        assert found.flags.c_contiguous


@pytest.mark.parametrize("order", ["C", "F", "c", "f", None])
@pytest.mark.parametrize("shape", [(), 3, (2, 3), (2, 3, 4), [4, 5], (0, 3), (1, 3, 1)])
def test_made_of_a_shape(shape: Any, order: Any) -> None:
    for dtype in ("float64", "int8", "complex64", "uint32", "bool"):
        check(hg.zeros(shape, dtype, order), np.zeros(shape, dtype, order))
        check(hg.ones(shape, dtype, order=order), np.ones(shape, dtype, order=order))
        check(hg.full(shape, 1, dtype, order), np.full(shape, 1, dtype, order))
        check(hg.empty(shape, dtype, order), np.empty(shape, dtype, order), values=False)
    x = hg.zeros(2)
    check(np.zeros(shape, order=order, like=x), np.zeros(shape, order=order))
    check(np.full(shape, 2.5, order=order, like=x), np.full(shape, 2.5, order=order))


@pytest.mark.parametrize("order", ["C", "F", "A", "a", "f", None])
@pytest.mark.parametrize("name", [name for name in SOURCES if SOURCES[name].size == 24])
def test_shapes(name: str, order: Any) -> None:
    a = SOURCES[name]
    x = tensor(a)
    for shape in ((4, 6), (24,), (-1, 6), (2, 3, 4), (4, 3, 2), (2, 2, 2, 3), (1, 24, 1)):
        check(x.reshape(shape, order=order), a.reshape(shape, order=order))
        check(hg.reshape(x, shape, order), a.reshape(shape, order=order))
        check(np.reshape(x, shape, order=order), np.reshape(a, shape, order=order))
        shares = np.shares_memory(a, a.reshape(shape, order=order))
        assert x.reshape(shape, order=order)._shares(x) == shares
    with pytest.raises(ValueError):
        x.reshape((5, 5), order=order)


def test_ravel_and_reshape_are_views_where_numpys_are() -> None:
    a = np.arange(6.0).reshape(2, 3)
    x = hg.array(a)
    for order in ("F", "A", "K"):
        check(x.T.ravel(order), a.T.ravel(order))
        assert x.T.ravel(order)._shares(x) == np.shares_memory(a.T.ravel(order), a)
    x.T.ravel("F")[0] = 7.0
    assert x[0, 0] == 7.0
    x[:, ::2].ravel("K")[0] = 8.0
    assert x[0, 0] == 7.0
    strided = hg.arange(6)
    strided[::2].ravel()[0] = 9  # NumPy's ravel copies what is not dense
    assert strided[0] == 0
    fixed = hg.asarray(np.broadcast_to(1.0, (2, 3)))
    assert fixed.T.readonly and not fixed.ravel("F").readonly
    locked = hg.array(a)
    locked.setflags(write=False)
    assert locked.T.ravel("F").readonly and locked.reshape((3, 2), order="C").readonly


def test_asarray_shares_what_is_in_order() -> None:
    a = np.arange(6.0).reshape(2, 3)
    columns = hg.zeros((2, 3), order="F")
    rows = hg.zeros((2, 3))
    slices = hg.zeros((2, 6))[:, ::2]
    for x, own in ((columns, "F"), (rows, "C")):
        for order in (own, "A", "K", None):
            assert hg.asarray(x, order=order) is x
            assert hg.asarray(x, order=order, copy=False) is x
        other = "C" if own == "F" else "F"
        assert not hg.asarray(x, order=other)._shares(x)
        with pytest.raises(ValueError, match=f"not in the order '{other}'"):
            hg.asarray(x, order=other, copy=False)
    assert hg.asarray(slices, order="A") is slices and hg.asarray(slices, order="K") is slices
    # Of an array that can be written asarray makes a copy, in that order.
    fixed = a.copy()
    fixed.setflags(write=False)
    for source, shares in ((a, False), (fixed, True)):
        assert np.shares_memory(np.asarray(hg.asarray(source, order="C")), source) == shares
        assert np.shares_memory(np.asarray(hg.asarray(source.T, order="F")), source) == shares
        assert not np.shares_memory(np.asarray(hg.asarray(source, order="F")), source)
        assert np.shares_memory(np.asarray(hg.asarray(source.T, order="K", copy=False)), source)
        for order in ("F", "A", "K"):
            check(hg.asarray(source.T, order=order), source.T)
    x = columns.astype("float64", copy=False, order="F")
    assert x is columns and columns.astype("float64", copy=False, order="A") is columns
    assert slices.astype("float64", copy=False, order="K") is slices
    assert slices.astype("float64", copy=False, order="A") is not slices
    assert columns.astype("float64", copy=False, order="C") is not columns
    check(hg.asarray([[1, 2], [3, 4]], order="F"), np.asarray([[1, 2], [3, 4]], order="F"))
    check(hg.array([[1, 2], [3, 4]], order="K"), np.array([[1, 2], [3, 4]], order="K"))


def test_column_major_tensors_own_their_memory_and_compute() -> None:
    a = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    x = hg.array(a, order="F")
    for made in (x, hg.zeros((2, 3), order="F"), hg.zeros_like(x, order="K"), x.copy("F"),
                 x.astype("float32", order="A")):  # fmt: skip
        assert made.base is None and made.flags.owndata and made.flags.farray
    assert x[:, 1:].base is not None and not x[:, 1:].flags.owndata
    np.testing.assert_array_equal(np.asarray(x * 2 + x.sum(axis=0)), a * 2 + a.sum(axis=0))
    assert (x + x).flags.c_contiguous  # results are row-major
    x += 1
    assert x.flags.f_contiguous
    np.testing.assert_array_equal(np.asarray(x), a + 1)
    np.testing.assert_array_equal(np.asarray(x @ x.T), (a + 1) @ (a + 1).T)
    assert np.asarray(x).flags.f_contiguous and np.isfortran(x)
    ours, theirs = hg.array(a, order="F"), np.array(a, order="F")
    ours.resize(4, 2)
    theirs.resize((4, 2), refcheck=False)
    check(ours, theirs)
    assert isinstance(hg.array(5.0).sum().copy("F"), hg.Scalar)
    assert x.copy(b"F").flags.farray and hg.zeros((2, 3), order=b"F").flags.farray  # as NumPy's


WRONG = [
    ("zeros", lambda xp, order: xp.zeros((2, 3), order=order)),
    ("ones", lambda xp, order: xp.ones((2, 3), order=order)),
    ("empty", lambda xp, order: xp.empty((2, 3), order=order)),
    ("full", lambda xp, order: xp.full((2, 3), 1.0, order=order)),
    ("zeros_like", lambda xp, order: xp.zeros_like(xp.zeros((2, 3)), order=order)),
    ("ones_like", lambda xp, order: xp.ones_like(xp.zeros((2, 3)), order=order)),
    ("empty_like", lambda xp, order: xp.empty_like(xp.zeros((2, 3)), order=order)),
    ("full_like", lambda xp, order: xp.full_like(xp.zeros((2, 3)), 1.0, order=order)),
    ("array", lambda xp, order: xp.array([1.0], order=order)),
    ("asarray", lambda xp, order: xp.asarray([1.0], order=order)),
    ("copy", lambda xp, order: xp.zeros((2, 3)).copy(order)),
    ("astype", lambda xp, order: xp.zeros((2, 3)).astype("float32", order=order)),
    ("ravel", lambda xp, order: xp.zeros((2, 3)).ravel(order)),
    ("flatten", lambda xp, order: xp.zeros((2, 3)).flatten(order)),
    ("reshape", lambda xp, order: xp.zeros((2, 3)).reshape((3, 2), order=order)),
    ("numpy zeros_like", lambda xp, order: np.zeros_like(xp.zeros((2, 3)), order=order)),
    ("numpy copy", lambda xp, order: np.copy(xp.zeros((2, 3)), order=order)),
    ("numpy ravel", lambda xp, order: np.ravel(xp.zeros((2, 3)), order=order)),
    ("numpy reshape", lambda xp, order: np.reshape(xp.zeros((2, 3)), (3, 2), order=order)),
]


@pytest.mark.parametrize("order", ["X", "", "FF", "Fortran", 1, 1.5])
@pytest.mark.parametrize("name, call", WRONG, ids=[name for name, _ in WRONG])
def test_no_order(name: str, call: Any, order: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as expected:
        call(np, order)
    with pytest.raises(expected.type) as found:
        call(hg, order)
    if isinstance(order, str):
        assert f"order must be one of 'C', 'F', 'A', or 'K' (got '{order}')" in str(found.value)
    else:
        assert "order must be str, not" in str(found.value)


@pytest.mark.parametrize("order", ["A", "K", "k"])
@pytest.mark.parametrize("name, call", WRONG[:4], ids=[name for name, _ in WRONG[:4]])
def test_no_order_of_a_shape(name: str, call: Any, order: Any) -> None:
    for xp in (np, hg):
        with pytest.raises(ValueError, match="only 'C' or 'F' order is permitted"):
            call(xp, order)


def test_no_order_of_shapes() -> None:
    for xp in (np, hg):
        for order in ("K", "k"):
            with pytest.raises(ValueError, match="order 'K' is not permitted for reshaping"):
                xp.zeros((2, 3)).reshape((3, 2), order=order)
    with pytest.raises(ValueError, match="order 'K' is not permitted for reshaping"):
        np.reshape(hg.zeros((2, 3)), (3, 2), order="K")
    with pytest.raises(TypeError, match="only order= is known, not axis=1"):
        hg.zeros((2, 3)).reshape((3, 2), axis=1)
