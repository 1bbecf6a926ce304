# SPDX-License-Identifier: MIT
"""Writes the types of the functions that the op tables make; the build of `hologram` calls this.

`stubs.py MODULES TEMPLATE OUT` imports the compiled modules from the folder MODULES and writes
_rows.pyi, _op_rows.pyi, _call_rows.pyi, _op_call_rows.pyi and _ffi.pyi to the folder OUT; TEMPLATE
holds the rest of _ffi.pyi.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

_KINDS = {
    "int": "int",
    "bool": "bool",
    "ints": "int | Sequence[int]",
    "float": "float | None",
    "uint": "int",
}
_NAMED = "conv1d", "conv2d", "conv3d", "embedding", "lstm"

_HEAD = """# SPDX-License-Identifier: MIT
# {title} Written by tools/stubs.py.

from typing import Any

from hologram._hologram import {name}

__all__ = [{names}]

"""


def _stub(title: str, name: str, body: str) -> str:
    """Return a module's stub; `body` defines all that the module exports."""
    found = re.findall(r"^(?:def|from \S+ import) (\w+)", body, re.MULTILINE)
    names = ", ".join(f'"{one}"' for one in found)
    return _HEAD.format(title=title, name=name, names=names) + body


def functions(module: ModuleType) -> dict[str, list[str]]:
    """Return the functions of a module and their parameters."""
    return {
        name: list(inspect.signature(function).parameters)
        for name, function in vars(module).items()
        if not name.startswith("_") and inspect.isbuiltin(function)
    }


def _lines(found: dict[str, list[str]], line: Callable[[str], str]) -> str:
    """Return a line for each function; `line` takes the operands' parameters."""
    text = ""
    for name, parameters in found.items():
        operands = ", ".join(f"{p}: Any" for p in parameters if p not in ("ex", "out"))
        text += f"def {name}({line(operands)}: ...\n"
    return text


def _call_line(row: dict[str, Any], on_buffers: bool) -> str:
    """Return the stub of a call's function, whose signature _calls.py makes in the same way."""
    inputs = [o for o in row["operands"] if not o["is_result"]]
    results = [o["name"] for o in row["operands"] if o["is_result"] and not o["is_saved"]]
    parts = ["ex: Executor"] if on_buffers else []
    optional = False
    for o in inputs:
        optional = optional or (o["is_optional"] and not on_buffers)
        parts.append(f"{o['name']}: Any" + " = None" * optional)
    if on_buffers:
        parts += [f"{name}: Any" for name in results]
    keywords = [
        f"{p['name']}: {_KINDS[p['kind']]}" + " = ..." * (not p["is_required"])
        for p in row["parameters"]
    ]
    if results and not on_buffers:
        keywords.append("out: Any = None")
    if keywords:
        parts += ["*", *keywords]
    made = "Tensor" if len(results) == 1 else f"tuple[{', '.join(['Tensor'] * len(results))}]"
    kind = "None" if on_buffers else made if results else "Any"
    return f"def {row['name']}({', '.join(parts)}) -> {kind}: ...\n"


def main() -> int:
    """Write the stubs."""
    modules, template, out = map(Path, sys.argv[1:])
    sys.path[:0] = [str(modules), str(modules / "stub_path")]
    compiled, ffi = importlib.import_module("_hologram"), importlib.import_module("_ffi")
    rows = functions(compiled.rows)
    text = _lines(rows, lambda x: f"{x}, /, *, out: Tensor | None = None) -> Tensor")
    for name, *_ in compiled.reductions._table:
        if function := getattr(compiled.reductions, name, None):
            ((signature, *_),) = function.__nb_signature__
            text += f"{signature.replace('typing.Any', 'Any')}: ...\n"
    (out / "_rows.pyi").write_text(_stub("The rows of the op table on tensors.", "Tensor", text))
    text = _lines(functions(compiled.ops), lambda x: f"ex: Executor, {x}, /, out: Any) -> None")
    for name, *_ in compiled.reductions._table:
        text += f"def reduce_{name}(ex: Executor, x: Any, out: Any) -> None: ...\n"
    text = _stub("The rows of the op table on buffers.", "Executor", text)
    (out / "_op_rows.pyi").write_text(text)
    for file, name, on_buffers in (
        ("_call_rows.pyi", "Tensor", False),
        ("_op_call_rows.pyi", "Executor", True),
    ):
        text = "".join(_call_line(row, on_buffers) for row in compiled.calls.table())
        if not on_buffers:
            named = "".join(f"from hologram._calls import {n} as {n}\n" for n in _NAMED)
            text = f"{named}\n{text}"
        text = _stub("The calls of the catalogue.", name, text)
        text = text.replace("from typing", "from collections.abc import Sequence\nfrom typing", 1)
        (out / file).write_text(text)
    text = template.read_text() + "\n# The rows of the op table. Written by tools/stubs.py.\n"
    for name, parameters in functions(ffi).items():
        if name in rows:
            text += f"def {name}({', '.join(f'{p}: int' for p in parameters)}) -> None: ...\n"
    (out / "_ffi.pyi").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
