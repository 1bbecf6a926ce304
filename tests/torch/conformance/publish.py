# SPDX-License-Identifier: MIT
"""Write the table of samples into docs/conformance.md, from what a run counted."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from conformance import exceptions

PAGE = Path(__file__).resolve().parents[3] / "docs" / "conformance.md"
_HEAD = """\
<!-- SPDX-License-Identifier: MIT -->
<!-- Written by `make conformance CONFORMANCE=--publish`. -->
# PyTorch's databases

PyTorch has databases of its operators, modules and optimizers, with samples of their arguments.
`make conformance` runs every sample on `cpu` and on `hologram` and compares dtypes, shapes,
strides, values, gradients and errors. The table says how many samples are alike of those that cpu
runs; one number means all of them. A sample counts once for each variant (functional, in place,
`out=`, not contiguous, views, forward mode, vmap, ...), deferred and eager. A database that has no
rows was not run since the page began.

"""
_TYPES = """\
| database | type of data | samples |
|---|---|---|
"""
_LISTED = """
## What differs

These differ for a reason, and are listed in `tests/torch/conformance/exceptions.py`. A run fails
where an entry of the list is not needed.

| op | what | type of data | why |
|---|---|---|---|
"""
_ROW = re.compile(r"^\| (\w+) \| (.*?) \| (.*?) \|$", re.MULTILINE)


def _samples(alike: int, on_cpu: int) -> str:
    return f"{alike:,}" if alike == on_cpu else f"{alike:,} of {on_cpu:,}"


def rows_of(records: list[dict[str, object]]) -> dict[str, list[tuple[str, str]]]:
    """Return by database its types of data, each with its samples of all variants and modes."""
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for record in records:
        total = sums[str(record["database"]), str(record["dtype"])]
        total[0] += int(str(record["hologram"]))
        total[1] += int(str(record["cpu"]))
    rows: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for (database, dtype), (alike, on_cpu) in sums.items():
        if on_cpu:
            rows[database].append((dtype or "of the sample's own", _samples(alike, on_cpu)))
    return rows


def page(rows: dict[str, list[tuple[str, str]]]) -> str:
    """Return the document."""
    text = _HEAD + _TYPES
    for database, of_types in sorted(rows.items()):
        text += "".join(f"| {database} | {dtype} | {count} |\n" for dtype, count in of_types)
    text += _LISTED
    for kind, ops in exceptions.EXCEPTIONS.items():
        for op, (dtypes, why) in ops.items():
            names = ", ".join(exceptions.dtype_name(d) for d in dtypes)
            text += f"| `{op}` | {kind} | {names} | {why} |\n"
    for op, (units, why) in exceptions.UNITS.items():
        text += f"| `{op}` | {units} roundings instead of 4 | floating | {why} |\n"
    return text


def write(records: list[dict[str, object]], path: Path = PAGE) -> None:
    """Write the page; databases that `records` lack keep their rows."""
    rows: dict[str, list[tuple[str, str]]] = defaultdict(list)
    if path.is_file():
        table = path.read_text(encoding="utf-8").partition(_TYPES)[2].partition(_LISTED)[0]
        for database, dtype, count in _ROW.findall(table):
            rows[database].append((dtype, count))
    path.write_text(page(rows | rows_of(records)), encoding="utf-8")
