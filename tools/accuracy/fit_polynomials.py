# SPDX-License-Identifier: MIT
"""Derives the polynomial coefficients of src/cpu/math-*-inl.h by weighted Remez exchange.

Each entry of FITS names a smooth function on an interval, the weight of its error and the width of
the coefficients. The exchange runs in 60-digit arithmetic. Coefficients are then rounded one by one
from the lowest degree up, refitting the rest each time, so that the printed set is the best one
near the rounded leading terms. Run without arguments for all fits, or name some.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import mpmath as mp
import numpy as np

mp.mp.dps = 60

Function = Callable[[mp.mpf], mp.mpf]


@dataclass(frozen=True)
class Fit:
    """A polynomial of `degree` for `function` on [low, high], minimising |weight * error|."""

    function: Function
    low: float
    high: float
    degree: int
    bits: int
    weight: Function = lambda x: mp.mpf(1)


def _round_to(value: mp.mpf, bits: int) -> mp.mpf:
    if bits == 24:
        return mp.mpf(float(np.float32(float(value))))
    return mp.mpf(float(value))


def _chebyshev_points(low: mp.mpf, high: mp.mpf, count: int) -> list[mp.mpf]:
    mid, half = (low + high) / 2, (high - low) / 2
    return [mid - half * mp.cos(mp.pi * (2 * k + 1) / (2 * count)) for k in range(count)]


def _remez(
    xs: list[mp.mpf], fs: list[mp.mpf], ws: list[mp.mpf], first: int, degree: int
) -> tuple[list[mp.mpf], mp.mpf]:
    """Minimax over the grid for sum of c_k x^k, k in first..degree."""
    terms = degree - first + 1
    count = len(xs)
    picks = [round((count - 1) * (1 - np.cos(np.pi * k / terms)) / 2) for k in range(terms + 1)]
    coefficients: list[mp.mpf] = []
    powers = [[x**k for k in range(first, degree + 1)] for x in xs]
    for _ in range(30):
        matrix = mp.matrix(terms + 1, terms + 1)
        right = mp.matrix(terms + 1, 1)
        for row, pick in enumerate(picks):
            for k in range(terms):
                matrix[row, k] = ws[pick] * powers[pick][k]
            matrix[row, terms] = (-1) ** row
            right[row] = ws[pick] * fs[pick]
        solution = mp.lu_solve(matrix, right)
        coefficients = [solution[k] for k in range(terms)]
        errors = [
            w * (f - mp.fdot(coefficients, row)) for f, w, row in zip(fs, ws, powers, strict=True)
        ]
        # One extremum per run of equal sign, then the best run of consecutive alternations.
        extrema: list[int] = []
        for index, error in enumerate(errors):
            if extrema and (error > 0) == (errors[extrema[-1]] > 0):
                if abs(error) > abs(errors[extrema[-1]]):
                    extrema[-1] = index
            else:
                extrema.append(index)
        while len(extrema) > terms + 1:
            drop = 0 if abs(errors[extrema[0]]) < abs(errors[extrema[-1]]) else -1
            extrema.pop(drop)
        worst = max(abs(error) for error in errors)
        if len(extrema) < terms + 1 or worst < abs(solution[terms]) * mp.mpf("1.001"):
            break
        picks = extrema
    return coefficients, worst


def _fit_rounding(
    spec: Fit, grid: list[mp.mpf], values: list[mp.mpf], weights: list[mp.mpf], rounded: int
) -> tuple[list[mp.mpf], mp.mpf]:
    fixed: list[mp.mpf] = []
    rest = values
    while len(fixed) < min(rounded, spec.degree):
        found, _ = _remez(grid, rest, weights, len(fixed), spec.degree)
        fixed.append(_round_to(found[0], spec.bits))
        power = len(fixed) - 1
        rest = [r - fixed[-1] * x**power for r, x in zip(rest, grid, strict=True)]
    found, _ = _remez(grid, rest, weights, len(fixed), spec.degree)
    coefficients = fixed + [_round_to(c, spec.bits) for c in found]
    worst = max(
        abs(w * (f - mp.polyval(coefficients[::-1], x)))
        for x, f, w in zip(grid, values, weights, strict=True)
    )
    return coefficients, worst


def fit(spec: Fit) -> tuple[list[mp.mpf], mp.mpf]:
    """The rounded coefficients, lowest degree first, and the worst weighted error.

    How many leading coefficients are best rounded before the others are refitted varies: all
    small numbers are tried.
    """
    grid = _chebyshev_points(mp.mpf(spec.low), mp.mpf(spec.high), 60 * (spec.degree + 2))
    values = [spec.function(x) for x in grid]
    weights = [spec.weight(x) for x in grid]
    trials = [_fit_rounding(spec, grid, values, weights, count) for count in range(5)]
    return min(trials, key=lambda trial: trial[1])


def _exp_tail(x: mp.mpf) -> mp.mpf:
    return mp.nsum(lambda k: x**k / mp.factorial(k + 2), [0, 40])


def _log_tail(x: mp.mpf) -> mp.mpf:
    """(log(1 + x) - x + x^2 / 2) / x^3."""
    if abs(x) < mp.mpf("1e-8"):
        return mp.mpf(1) / 3 - x / 4 + x * x / 5
    return (mp.log1p(x) - x + x * x / 2) / x**3


def _log1p_tail(x: mp.mpf) -> mp.mpf:
    """(log1p(x) - x) / x^2."""
    if abs(x) < mp.mpf("1e-8"):
        return -mp.mpf(1) / 2 + x / 3
    return (mp.log1p(x) - x) / x**2


def _odd_tail(function: Function, cubic: mp.mpf, fifth: mp.mpf) -> Function:
    """(f(r) - r) / r^3 as a function of z = r^2."""

    def tail(z: mp.mpf) -> mp.mpf:
        if z < mp.mpf("1e-12"):
            return cubic + fifth * z
        r = mp.sqrt(z)
        return (function(r) - r) / r**3

    return tail


def _odd_weight(function: Function) -> Function:
    """Turns the error of an odd tail into relative error of the function."""
    return lambda z: z * mp.sqrt(z) / function(mp.sqrt(z)) if z > 0 else mp.mpf(0)


def _cos_tail(z: mp.mpf) -> mp.mpf:
    """(cos(r) - 1 + r^2 / 2) / r^4 in z = r^2."""
    return mp.nsum(lambda k: (-1) ** k * z**k / mp.factorial(2 * k + 4), [0, 20])


def _atanh_tail(z: mp.mpf) -> mp.mpf:
    """(2 atanh(s) - 2 s) / s^3 in z = s^2."""
    return mp.nsum(lambda k: 2 * z**k / (2 * k + 3), [0, mp.inf])


def _atanh_high_tail(z: mp.mpf) -> mp.mpf:
    """(2 atanh(s) - 2 s - 2 s^3 / 3) / s^5 in z = s^2."""
    return mp.nsum(lambda k: 2 * z**k / (2 * k + 5), [0, mp.inf])


def mills(t: mp.mpf) -> mp.mpf:
    """exp(t^2 / 2) * P(N > t): the slowly varying part of the normal tail."""
    return mp.exp(t * t / 2) * mp.erfc(t / mp.sqrt(2)) / 2


def _mills_in_q(pivot: float, centre: float) -> Function:
    """(t + pivot) * mills(t) as a function of t / (t + pivot) - centre."""

    def value(u: mp.mpf) -> mp.mpf:
        q = u + centre
        t = pivot * q / (1 - q)
        return (t + pivot) * mills(t)

    return value


def _inverse(function: Function) -> Function:
    """The weight that turns error into relative error."""
    return lambda x: 1 / function(x)


def _erf_small(z: mp.mpf) -> mp.mpf:
    """erf(x) / x - 1 in z = x^2."""
    if z == 0:
        return 2 / mp.sqrt(mp.pi) - 1
    return mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1


def _erf_exponent(t: mp.mpf) -> mp.mpf:
    """-log(1 - erf(t)), so that erf(t) = 1 - exp(-value)."""
    return -mp.log(mp.erfc(t))


def _erfinv_of_w(centre: float, power: int) -> Function:
    """erfinv(x) / x for (u + centre)^power = -log(1 - x^2)."""

    def value(u: mp.mpf) -> mp.mpf:
        w = (u + centre) ** power
        if w == 0:
            return mp.sqrt(mp.pi) / 2
        x = mp.sqrt(-mp.expm1(-w))
        return mp.erfinv(x) / x

    return value


def _erfinv_fit(low: float, high: float, centre: float, power: int, degree: int, bits: int) -> Fit:
    function = _erfinv_of_w(centre, power)
    return Fit(function, low - centre, high - centre, degree, bits, _inverse(function))


def _mills_fit(pivot: float, centre: float, cutoff: float, degree: int, bits: int) -> Fit:
    function = _mills_in_q(pivot, centre)
    high = cutoff / (cutoff + pivot) - centre
    return Fit(function, -centre, high, degree, bits, _inverse(function))


LN2 = mp.log(2)
HALF_PI = mp.pi / 2
_SIN = _odd_tail(mp.sin, mp.mpf(-1) / 6, mp.mpf(1) / 120)
_TAN = _odd_tail(mp.tan, mp.mpf(1) / 3, mp.mpf(2) / 15)
_ATAN = _odd_tail(mp.atan, mp.mpf(-1) / 3, mp.mpf(1) / 5)
_ASIN = _odd_tail(mp.asin, mp.mpf(1) / 6, mp.mpf(3) / 40)

_R = float(LN2 / 2) * 1.001
_QUARTER2 = float((HALF_PI / 2) ** 2) * 1.04
_EIGHTH2 = float(mp.tan(mp.pi / 8) ** 2) * 1.001
_S2 = 0.0295  # ((sqrt(2) - 1) / (sqrt(2) + 1))^2

FITS: dict[str, Fit] = {
    "exp_f32": Fit(_exp_tail, -_R, _R, 4, 24, lambda x: x * x / mp.exp(x)),
    "expm1_f32": Fit(_exp_tail, -_R, _R, 5, 24, lambda x: x),
    "exp_f64": Fit(_exp_tail, -_R, _R, 9, 53, lambda x: x * x / mp.exp(x)),
    "exp_wide": Fit(_exp_tail, -_R, _R, 5, 53, lambda x: x * x / mp.exp(x)),
    "log_f32": Fit(_log_tail, -0.2932, 0.4147, 8, 24, lambda x: x * x),
    "log_wide": Fit(_log_tail, -0.2932, 0.4147, 11, 53, lambda x: x * x),
    "log_f64": Fit(_atanh_tail, 0, _S2, 6, 53, lambda z: z),
    "log_pair": Fit(_atanh_high_tail, 0, _S2, 7, 53),
    "log1p_f32": Fit(_log1p_tail, 0, 1, 8, 24, lambda x: x * x / mp.log1p(x) if x > 0 else x),
    "tan_f32": Fit(_TAN, 0, _QUARTER2, 6, 24, _odd_weight(mp.tan)),
    "sin_f32": Fit(_SIN, 0, _QUARTER2, 3, 24, _odd_weight(mp.sin)),
    "cos_f32": Fit(_cos_tail, 0, _QUARTER2, 2, 24, lambda z: z * z),
    "sin_f64": Fit(_SIN, 0, _QUARTER2, 6, 53, _odd_weight(mp.sin)),
    "cos_f64": Fit(_cos_tail, 0, _QUARTER2, 6, 53, lambda z: z * z),
    "atan_f32": Fit(_ATAN, 0, _EIGHTH2, 4, 24, _odd_weight(mp.atan)),
    "atan_f64": Fit(_ATAN, 0, _EIGHTH2, 10, 53, _odd_weight(mp.atan)),
    "asin_f32": Fit(_ASIN, 0, 0.25, 5, 24, _odd_weight(mp.asin)),
    "asin_f64": Fit(_ASIN, 0, 0.25, 12, 53, _odd_weight(mp.asin)),
    "erf_small_f32": Fit(_erf_small, 0, 0.86, 5, 24),
    "erf_exponent_f32": Fit(_erf_exponent, 0.92, 3.93, 7, 24, lambda t: mp.erfc(t) / mp.erf(t)),
    "erf_small_f64": Fit(_erf_small, 0, 1.0, 11, 53),
    "erfinv_near_f32": _erfinv_fit(0, 5, 2.5, 1, 8, 24),
    "erfinv_far_f32": _erfinv_fit(2.2, 4.1, 3, 2, 8, 24),
    "erfinv_near_f64": _erfinv_fit(0, 6.25, 3.125, 1, 22, 53),
    "erfinv_far_f64": _erfinv_fit(2.5, 4, 3.25, 2, 17, 53),
    "erfinv_farthest_f64": _erfinv_fit(4, 6.1, 5, 2, 15, 53),
    "mills_f32": _mills_fit(4, 0.5, 14.5, 9, 24),
    "mills_f64": _mills_fit(5, 0.75, 38.6, 22, 53),
}


def main() -> None:
    """Prints the requested fits, lowest degree first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="fits to derive; all when none is named")
    arguments = parser.parse_args()
    for name in arguments.names or FITS:
        coefficients, worst = fit(FITS[name])
        print(f"{name}: worst weighted error 2^{float(mp.log(worst, 2)):.2f}")
        suffix = "f" if FITS[name].bits == 24 else ""
        print("  " + ", ".join(f"{float(c).hex()}{suffix}" for c in coefficients))


if __name__ == "__main__":
    main()
