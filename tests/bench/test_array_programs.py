# SPDX-License-Identifier: MIT
"""The programs of the area `arrays` compute on Tensors what they compute on NumPy's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hologram
from bench.areas import array_programs
from bench.core import Unavailable


def results(found: Any) -> list[Any]:
    return list(found) if isinstance(found, tuple) else [found]


@pytest.mark.parametrize("program", array_programs.PROGRAMS, ids=lambda p: p.name)
def test_hologram_and_numpy_agree(program: array_programs.Program) -> None:
    arrays = program.arrays(np.random.default_rng(1))
    kept = [x.copy() for x in arrays]
    tensors = [hologram.array(x) for x in arrays]
    try:
        expected = results(program.function(*arrays))
        found = results(program.function(*tensors))
    except Unavailable as error:
        pytest.skip(str(error))
    for x, y in zip(found, expected, strict=True):
        assert isinstance(x, hologram.Tensor)  # it stayed with the library
        np.testing.assert_allclose(np.asarray(x), y, rtol=1e-9, atol=1e-11)
    for x, t, before in zip(arrays, tensors, kept, strict=True):
        assert np.array_equal(x, before) and np.array_equal(np.asarray(t), before)


def arguments(name: str) -> tuple[Any, ...]:
    program = next(p for p in array_programs.PROGRAMS if p.name == name)
    return program.arrays(np.random.default_rng(2))


def test_they_compute_what_they_say() -> None:
    (a,) = arguments("newton")
    np.testing.assert_allclose(array_programs.newton(a), np.cbrt(a), rtol=1e-12)
    lower, b = arguments("forward substitution")
    solved = array_programs.forward_substitution(lower, b)
    np.testing.assert_allclose(lower @ solved, b, rtol=1e-9)
    (q,) = map(array_programs.gram_schmidt, arguments("gram schmidt"))
    np.testing.assert_allclose(q.T @ q, np.eye(q.shape[1]), atol=1e-10)
    assert array_programs.sieve(np.arange(30)).tolist() == [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]
    words = [np.array([ord(c) for c in word]) for word in ("kitten", "sitting")]
    assert array_programs.edit_distance(*words)[-1] == 3
    blinker = np.zeros((5, 5), np.int64)
    blinker[2, 1:4] = 1
    assert np.array_equal(array_programs.life(blinker), blinker)  # ten generations, an even number
