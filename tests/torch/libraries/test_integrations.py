# SPDX-License-Identifier: MIT
"""How libraries are prepared for the device: after their own import, and never at their cost."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import pytest
import torch

from hologram_torch import integrations
from hologram_torch.integrations import _imports

SERVED: list[str] = []


def serve(module: object) -> None:
    SERVED.append(module.__name__)


def fail(module: object) -> None:
    raise KeyError("renamed_in_this_version")


def run(code: str, **environment: str) -> str:
    """Run a program in a fresh interpreter and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package on the path whose module `part` reads a file beside it while it is imported."""
    package = tmp_path / "a_library"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text(
        "import importlib.resources\n"
        "TEXT = (importlib.resources.files('a_library') / 'text').read_text()\n"
        "LOADER = type(__loader__).__name__, type(__spec__.loader).__name__\n"
    )
    (package / "text").write_text("beside it")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(_imports, "_HOOKS", {})
    SERVED.clear()
    yield package
    for name in ("a_library", "a_library.part"):
        sys.modules.pop(name, None)


def test_hook_runs_after_import(library: Path) -> None:
    _imports.after_import({"a_library.part": f"{__name__}:serve"})
    assert SERVED == []
    import a_library.part as part

    assert SERVED == ["a_library.part"]
    assert part.TEXT == "beside it"
    assert part.LOADER == ("SourceFileLoader", "SourceFileLoader")


def test_hook_runs_for_what_is_imported_already(library: Path) -> None:
    import a_library.part  # noqa: F401

    _imports.after_import({"a_library.part": f"{__name__}:serve"})
    _imports.after_import({"a_library.part": f"{__name__}:serve"})
    assert SERVED == ["a_library.part"]


def test_library_that_changed_is_imported_with_a_warning(library: Path) -> None:
    _imports.after_import({"a_library.part": f"{__name__}:fail"})
    with pytest.warns(RuntimeWarning, match="could not prepare a_library.part.*renamed_in_this"):
        import a_library.part as part
    assert part.TEXT == "beside it"


def test_missing_library_raises_what_it_always_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_imports, "_HOOKS", {"no_such_library": f"{__name__}:serve"})
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_library'"):
        import no_such_library  # noqa: F401


def test_other_imports_are_left_to_others() -> None:
    finders = [f for f in sys.meta_path if isinstance(f, _imports._Finder)]
    assert len(finders) == 1
    assert finders[0].find_spec("json", None) is None


def test_every_hook_names_a_function() -> None:
    for served in integrations.HOOKS.values():
        name, _, function = served.partition(":")
        path = Path(integrations.__file__).parent / f"{name}.py"
        assert f"\ndef {function}(module: ModuleType)" in path.read_text(), served


def test_importing_torch_imports_no_library() -> None:
    names = sorted({name.partition(".")[0] for name in integrations.HOOKS})
    printed = run(f"import sys, torch; print([n for n in {names} if n in sys.modules])")
    assert printed == "[]"


def test_chosen_device_is_torchs_accelerator() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert integrations.chosen_device() == torch.device("hologram", 0)
    assert torch.accelerator.current_accelerator().type == "hologram"


def test_integrations_can_be_left_out() -> None:
    code = """
        import torch
        from hologram_torch.integrations import _imports
        print("safetensors" in {name.partition(".")[0] for name in _imports._HOOKS})
        print({name.partition(".")[0] for name in _imports._HOOKS} == {"torch"})
    """
    assert run(code).split() == ["True", "False"]
    # What serves parts of PyTorch itself stays.
    assert run(code, HOLOGRAM_INTEGRATIONS="0").split() == ["False", "True"]
