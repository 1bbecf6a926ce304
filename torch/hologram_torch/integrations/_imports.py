# SPDX-License-Identifier: MIT
"""Calls a function when a module has been imported, by whomever, without importing it."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import warnings
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

_HOOKS: dict[str, str] = {}


def _serve(module: ModuleType) -> None:
    """Run what is registered for a module that has been imported. It must not fail its import."""
    name, _, function = _HOOKS[module.__name__].partition(":")
    try:
        getattr(importlib.import_module(name), function)(module)
    except Exception as error:
        warnings.warn(
            f"hologram_torch could not prepare {module.__name__} for the device: {error!r}. The "
            f"library works as without it; HOLOGRAM_INTEGRATIONS=0 silences this",
            RuntimeWarning,
            stacklevel=2,
        )


class _Loader(importlib.abc.Loader):
    """Loads a module as its own loader does, then serves it."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        # The module sees its own loader, which knows of resources and sources.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _serve(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of _HOOKS where the other finders do, and no others."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in _HOOKS:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: importlib.machinery.ModuleSpec | None = find(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


def after_import(hooks: Mapping[str, str]) -> None:
    """Call ``hooks[name]``, 'module:function', with the module ``name`` once that is imported.

    A function that raises leads to a RuntimeWarning; the import goes on.
    """
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    for name in hooks.keys() - _HOOKS.keys():
        _HOOKS[name] = hooks[name]
        if name in sys.modules:
            _serve(sys.modules[name])
