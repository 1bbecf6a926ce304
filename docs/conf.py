# SPDX-License-Identifier: MIT
"""How `make docs` builds the site: these pages, and the reference from docstrings and headers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
_version = re.search(
    r"project\(\s*hologram\s+VERSION\s+([0-9.]+)", (_ROOT / "CMakeLists.txt").read_text()
)

project = "Hologram"
author = "The Hologram authors"
project_copyright = "The Hologram authors, MIT licence"
release = _version.group(1) if _version else ""

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_custom_sections = ["Operands"]

html_theme = "furo"
html_title = f"Hologram {release}"
html_show_sourcelink = False


def _escape_marks(
    app: object, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Keep absolute values, |x|, from being read as substitutions, and * in shapes as emphasis."""
    quoted = re.compile(r"(`+[^`]*`+)")
    for at, line in enumerate(lines):
        parts = quoted.split(line)
        parts[::2] = [re.sub(r"(?<!\\)[|*]", r"\\\g<0>", part) for part in parts[::2]]
        lines[at] = "".join(parts)


def setup(app: Any) -> None:
    """Register the hook with Sphinx."""
    app.connect("autodoc-process-docstring", _escape_marks)
