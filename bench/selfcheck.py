# SPDX-License-Identifier: MIT
"""The check of the method itself: cpu measured against cpu must give ratios of one."""

from __future__ import annotations

from bench.core import Row, geometric_mean
from bench.render import label

# At a few megabytes glibc sometimes returns memory to the system and faults it in again, and keeps
# doing so or not for a whole case: identical work differs by a factor there, whatever the method.
SELF_CHECK_SIZES = [1_000, 10_000, 100_000]
_MEAN = 0.02
_ROW = 0.10
_ROWS_WITHIN = 0.9


def check(rows: list[Row]) -> int:
    """Print how far the ratios are from one; 1 if the method is biased or too noisy."""
    rows = [r for r in rows if not r.details.get("different_work")]
    faults = [r for r in rows if r.fault]
    ratios = sorted(r.ratio for r in rows if not r.fault)
    if faults or not ratios:
        print(f"self-check: {len(faults)} faults, {len(ratios)} ratios")
        return 1
    mean = geometric_mean(ratios)
    far = [r for r in rows if not 1 / (1 + _ROW) <= r.ratio <= 1 + _ROW]
    within = 1 - len(far) / len(rows)
    for row in far:
        print(f"  {label(row):40s} {row.threads} threads: {row.ratio:.2f}")
    print(
        f"self-check: {len(ratios)} ratios of cpu against itself, geometric mean {mean:.4f}, "
        f"from {ratios[0]:.2f} to {ratios[-1]:.2f}, {within:.0%} within {_ROW:.0%}"
    )
    good = abs(mean - 1) <= _MEAN and within >= _ROWS_WITHIN
    print(
        "self-check: the method is unbiased" if good else "self-check: FAILED (or a busy machine)"
    )
    return 0 if good else 1
