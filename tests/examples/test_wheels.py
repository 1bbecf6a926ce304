# SPDX-License-Identifier: MIT
"""The wheels of `make wheels` install without a compiler or a network, and work."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sysconfig
import venv
import zipfile
from email.message import Message
from email.parser import Parser
from importlib.metadata import version
from pathlib import Path

import pytest

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).resolve().parents[2]
WHEELS = ROOT / "outputs" / "wheels"
COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "clang++", "cmake", "ninja", "make")


@pytest.fixture(scope="module")
def wheels() -> dict[str, Path]:
    """Make both wheels, unless they are those of these sources; return them by distribution."""
    subprocess.run(["make", "wheels"], cwd=ROOT, check=True, stdin=subprocess.DEVNULL, timeout=3600)
    found = {}
    for name in ("hologram", "hologram_torch"):
        (found[name],) = WHEELS.glob(f"{name}-*.whl")
    return found


def metadata(wheel: Path) -> Message:
    """Return what a wheel says about itself."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


class Environment:
    """A new virtual environment, whose programs see no compiler."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=True)
        self.folder = folder
        self.python = folder / "bin" / "python"
        self.site = Path(
            sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)})
        )
        kept = ("HOME", "LANG", "TMPDIR", "OMP_NUM_THREADS")
        self.variables = {name: os.environ[name] for name in kept if name in os.environ}
        # Only this environment's programs: no compiler, and nothing of the checkout's .venv.
        self.variables["PATH"] = str(folder / "bin")
        self.variables["PYTHONDONTWRITEBYTECODE"] = "1"
        assert not any(shutil.which(name, path=self.variables["PATH"]) for name in COMPILERS)

    def add_packages_of_this_python(self) -> None:
        """Link all packages that tests run with, but for ours, as if they were installed here."""
        for entry in Path(sysconfig.get_path("purelib")).iterdir():
            ours = entry.name.startswith("hologram")
            if not ours and not (self.site / entry.name).exists():
                (self.site / entry.name).symlink_to(entry)

    def run(self, *arguments: str, fails: bool = False) -> str:
        """Run its Python away from the checkout; return all that it prints."""
        done = subprocess.run(
            [str(self.python), *arguments],
            cwd=self.folder,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
        )
        assert (done.returncode != 0) == fails, f"{' '.join(arguments)}\n{done.stdout}"
        return done.stdout

    def install(self, *names: str, fails: bool = False) -> str:
        """Install from outputs/wheels alone: pip checks that everything else needed is there."""
        offline = ["--no-index", f"--find-links={WHEELS}", "--disable-pip-version-check"]
        return self.run("-m", "pip", "install", *offline, *names, fails=fails)


@pytest.fixture(scope="module")
def installed(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Return an environment with this PyTorch and both wheels."""
    environment = Environment(tmp_path_factory.mktemp("wheels"))
    environment.add_packages_of_this_python()
    output = environment.install("hologram-torch")
    assert re.search(r"Successfully installed hologram-[\d.]+ hologram-torch-[\d.]+\n", output)
    return environment


def test_they_say_what_they_need(wheels: dict[str, Path]) -> None:
    library, device = metadata(wheels["hologram"]), metadata(wheels["hologram_torch"])
    assert library.get_all("Requires-Dist") is None
    minor = ".".join(version("torch").split(".")[:2])
    needed = device.get_all("Requires-Dist")
    assert sorted(needed) == [f"hologram=={library['Version']}", f"torch=={minor}.*"]
    assert library["Requires-Python"] == device["Requires-Python"] == ">=3.11"


def test_they_bring_their_licence(wheels: dict[str, Path]) -> None:
    for wheel in wheels.values():
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (n for n in archive.namelist() if n.endswith("/LICENSE"))
            assert archive.read(name) == (ROOT / "LICENSE").read_bytes()


def test_the_library_brings_the_licences_of_what_is_compiled_in(wheels: dict[str, Path]) -> None:
    with zipfile.ZipFile(wheels["hologram"]) as archive:
        texts = {
            name.rpartition("/LICENSE.")[2]: archive.read(name).decode()
            for name in archive.namelist()
            if "/LICENSE." in name
        }
    expected = {"highway", "apache-2.0", "nanobind", "robin-map"}
    assert expected <= set(texts) <= expected | {"xbyak"}
    assert "TERMS AND CONDITIONS" in texts["apache-2.0"] and "Wenzel Jakob" in texts["nanobind"]
    assert texts["robin-map"].startswith("\nMIT License\n\nCopyright (c)")


def test_libraries_are_found_by_relative_paths(wheels: dict[str, Path], tmp_path: Path) -> None:
    readelf = shutil.which("readelf")
    assert readelf, "readelf is missing; it comes with the compiler (apt-get install binutils)"
    wanted = {
        "_C": "$ORIGIN/../torch/lib:$ORIGIN/../hologram/lib",
        "_hologram": "$ORIGIN/lib",
        "_ffi": "$ORIGIN/lib",
        "libhologram": None,
    }
    found = {}
    for wheel in wheels.values():
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if ".so" in Path(name).name:
                    path = archive.extract(name, tmp_path)
                    dynamic = subprocess.check_output([readelf, "-d", path], text=True)
                    paths = re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", dynamic)
                    found[Path(name).name.split(".")[0]] = paths[0] if paths else None
    assert found == wanted


def test_the_library_alone_needs_no_other_package(wheels: dict[str, Path], tmp_path: Path) -> None:
    environment = Environment(tmp_path)
    environment.install("hologram")
    program = (
        "import json, sys, hologram as hg\n"
        "x = hg.full((3, 4), 2.0)\n"
        "print(json.dumps([hg.__file__, (x * x + 1).tolist(), 'numpy' in sys.modules]))\n"
    )
    file, values, numpy = json.loads(environment.run("-c", program))
    assert Path(file).is_relative_to(tmp_path)
    assert values == [[5.0] * 4] * 3
    assert not numpy


def test_importing_torch_gives_the_device(installed: Environment) -> None:
    program = (
        "import json, torch\n"
        "x = torch.arange(6.0, device=torch.device('hologram')).reshape(2, 3)\n"
        "y = (x @ x.T).relu().tolist()\n"
        "import hologram, hologram_torch\n"
        "files = [hologram.__file__, hologram_torch.__file__, hologram_torch._C.__file__]\n"
        "print(json.dumps([y, files]))\n"
    )
    values, files = json.loads(installed.run("-c", program))
    assert values == [[5.0, 14.0], [14.0, 50.0]]
    assert all(Path(file).is_relative_to(installed.site) for file in files), files


def test_the_tour_runs(installed: Environment) -> None:
    output = installed.run(str(ROOT / "examples" / "tour.py"))
    assert re.search(r"^backends +\['cpu'", output, re.MULTILINE), output
    assert re.search(r"^explained .*operators on hologram", output, re.MULTILINE), output
    assert re.search(r"^a tensor .*device='hologram:0'", output, re.MULTILINE | re.DOTALL), output


def test_another_pytorch_is_refused(wheels: dict[str, Path], tmp_path: Path) -> None:
    environment = Environment(tmp_path)
    name = environment.site / "torch-2.10.0.dist-info"
    name.mkdir()
    (name / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.10.0\n")
    (name / "INSTALLER").write_text("pip\n")
    minor = ".".join(version("torch").split(".")[:2])
    output = environment.install("hologram-torch", fails=True)
    assert f"torch=={minor}.*" in output, output
    # Installed in spite of that, it says at import which PyTorch it wants, and torch goes on.
    environment.install("hologram")
    environment.install("--no-deps", "hologram-torch")
    torch = environment.site / "torch"
    torch.mkdir()
    (torch / "__init__.py").write_text("__version__ = '2.10.0'\n")
    output = environment.run("-c", "import hologram_torch", fails=True)
    assert re.search(
        rf"ImportError: hologram_torch [\d.]+ was built for PyTorch {re.escape(minor)}, but PyTorch"
        r" 2\.10\.0 is running\. Install the hologram-torch wheel for PyTorch 2\.10, or rebuild it",
        output,
    ), output
