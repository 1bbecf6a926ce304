# SPDX-License-Identifier: MIT
"""Metadata provider of scikit-build-core: the wheel requires the PyTorch it is built with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

__all__ = ["dynamic_metadata"]


def torch_minor() -> str:
    """Return the installed PyTorch's major and minor version, as ``2.15``."""
    found = re.match(r"\d+\.\d+", version("torch"))
    if found is None:
        raise RuntimeError(
            f"the installed torch's version does not begin with two numbers: {version('torch')!r}"
        )
    return found.group()


def dynamic_metadata(field: str, _settings: Mapping[str, Any] | None = None) -> list[str]:
    """Return the value of `dependencies`."""
    if field != "dependencies":
        raise RuntimeError(f"this provider gives 'dependencies' only, not {field!r}")
    return [f"torch=={torch_minor()}.*", f"hologram=={version('hologram')}"]
