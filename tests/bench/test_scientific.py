# SPDX-License-Identifier: MIT
"""The programs of the area `scientific` compute what they say."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bench.areas import scientific


def test_density_is_that_of_the_published_check_values() -> None:
    # Unesco technical papers in marine science 44 (1983): S, degrees Celsius, bar.
    for s, t, p, density in [
        (0.0, 5.0, 0.0, 999.96675),
        (35.0, 5.0, 0.0, 1027.67547),
        (35.0, 25.0, 1000.0, 1062.53817),
    ]:
        assert scientific.sea_water(*map(np.float64, (s, t, p))) == pytest.approx(density, abs=5e-6)


def test_tridiagonal_systems_are_solved() -> None:
    program = next(p for p in scientific.PROGRAMS if p.function is scientific.tridiagonal)
    a, b, c, d = program.arrays(900)
    x = scientific.tridiagonal(a, b, c, d)
    back = b * x
    back[..., 1:] += a[..., 1:] * x[..., :-1]
    back[..., :-1] += c[..., :-1] * x[..., 1:]
    np.testing.assert_allclose(back, d, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("program", scientific.PROGRAMS, ids=lambda p: p.name)
def test_pytorch_and_numpy_agree(program: scientific.Program) -> None:
    arrays = program.arrays(4000)
    expected = program.function(*arrays)
    over_torch = program.over(xp=torch, copy=torch.clone)
    for device in ("cpu", "hologram"):
        found = over_torch(*(torch.from_numpy(a).to(device) for a in arrays))
        for x, y in zip(np.atleast_1d(expected), found, strict=False):
            np.testing.assert_allclose(y.cpu().numpy(), x, rtol=1e-11, atol=1e-13)


def test_lattice_keeps_its_mass_and_momentum_where_nothing_streams() -> None:
    program = next(p for p in scientific.PROGRAMS if p.function is scientific.lattice_boltzmann)
    equal = [np.full((3, 3), w) for w in (4 / 9, *(1 / 9,) * 4, *(1 / 36,) * 4)]
    for before, after in zip(equal, program.function(*equal), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-14)
