# SPDX-License-Identifier: MIT
"""Writes the types of the functions that the op table generates, from the installed package.

They go to python/hologram/_rows.pyi and _op_rows.pyi; `--check` only says whether those match.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from pathlib import Path
from types import ModuleType

from hologram._hologram import ops, rows

FOLDER = Path(__file__).resolve().parents[1] / "python" / "hologram"
_HEAD = """# SPDX-License-Identifier: MIT
# {title} Written by tools/stubs.py.

from typing import Any
{imports}
"""


def _parameters(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type]


def stub_of(module: ModuleType, on_buffers: bool) -> str:
    """Return the stub of `rows` or `ops`."""
    if on_buffers:
        title, imports = (
            "The rows of the op table on buffers.",
            "\nfrom hologram._hologram import Executor\n",
        )
    else:
        title, imports = (
            "The rows of the op table on tensors.",
            "\nfrom hologram._hologram import Tensor\n",
        )
    parts = [_HEAD.format(title=title, imports=imports)]
    for name, function in vars(module).items():
        if name.startswith("_"):
            continue
        inputs = [p for p in _parameters(function) if p not in ("ex", "out")]
        operands = ", ".join(f"{p}: Any" for p in inputs)
        if on_buffers:
            parameters, result = f"ex: Executor, {operands}, /, out: Any", "None"
        else:
            parameters, result = f"{operands}, /, *, out: Tensor | None = None", "Tensor"
        line = f"def {name}({parameters}) -> {result}: ...\n"
        if len(line) > 101:  # as the formatter breaks it
            line = f"def {name}(\n    {parameters}\n) -> {result}: ...\n"
        parts.append(line)
    return "".join(parts)


def stubs() -> dict[Path, str]:
    """Return what each stub should hold."""
    return {
        FOLDER / "_rows.pyi": stub_of(rows, False),
        FOLDER / "_op_rows.pyi": stub_of(ops, True),
    }


def main() -> int:
    """Write or check the stubs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether they match")
    options = parser.parse_args()
    stale = [
        path for path, text in stubs().items() if not path.is_file() or path.read_text() != text
    ]
    if options.check:
        print(*(f"{path.name} does not match the op table" for path in stale), sep="\n")
        return 1 if stale else 0
    for path in stale:
        path.write_text(stubs()[path])
    print(f"{len(stale)} stubs written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
