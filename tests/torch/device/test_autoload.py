# SPDX-License-Identifier: MIT
"""When `import torch` brings the device along: not beside another accelerator, unless told to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hologram_torch import _other_accelerators

# A monitoring library of as many GPUs as FAKE_GPUS says, or one that fails; and a driver that says
# whether it was started.
NVML = """
#include <stdlib.h>
int nvmlInit(void) { return getenv("FAKE_NVML_FAILS") ? 9 : 0; }
int nvmlDeviceGetCount_v2(int *count) { *count = atoi(getenv("FAKE_GPUS")); return 0; }
"""
DRIVER = """
#include <fcntl.h>
#include <stdlib.h>
int cuInit(unsigned flags) { open(getenv("FAKE_STARTED"), O_CREAT | O_WRONLY, 0600); return 100; }
"""

cuda = pytest.mark.skipif(torch.version.cuda is None, reason="this PyTorch is without CUDA")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fakes")
    for name, text in (("libnvidia-ml.so.1", NVML), ("libcuda.so.1", DRIVER)):
        source = folder / f"{name}.c"
        source.write_text(text)
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-o", str(folder / name), str(source)], check=True
        )
    return folder


def run(code: str, libraries: Path | None = None, **environment: str) -> str:
    cleared = ("HOLOGRAM_AUTOLOAD", "HOLOGRAM_AS_CUDA", "CUDA_VISIBLE_DEVICES")
    env = {name: value for name, value in os.environ.items() if name not in cleared}
    if libraries is not None:
        env["LD_LIBRARY_PATH"] = f"{libraries}:{env.get('LD_LIBRARY_PATH', '')}"
        env["FAKE_STARTED"] = str(libraries / "started")
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**env, **environment},
    )
    assert done.returncode == 0, done.stderr
    return (done.stdout + done.stderr).strip()


@cuda
def test_not_beside_a_gpu_unless_told_to(libraries: Path) -> None:
    ask = "import torch; print(hasattr(torch, 'hologram'))"
    assert run(ask, libraries, FAKE_GPUS="2") == "False"
    assert run(ask, libraries, FAKE_GPUS="2", HOLOGRAM_AUTOLOAD="1") == "True"


@cuda
def test_what_decides(libraries: Path, tmp_path: Path) -> None:
    """One process that asks again with other variables; the libraries are asked each time."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidiactl").touch()
    (tmp_path / "gpu" / "dev").mkdir(parents=True)
    (tmp_path / "gpu" / "dev" / "nvidia0").touch()
    fails = {"FAKE_NVML_FAILS": "1", "HOLOGRAM_SYSTEM_ROOT": str(tmp_path)}
    beside = "there is a device of cuda"
    cases: list[tuple[dict[str, str], str | None]] = [
        ({}, beside),
        ({"CUDA_VISIBLE_DEVICES": "1"}, beside),
        ({"CUDA_VISIBLE_DEVICES": ""}, None),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, None),
        ({"FAKE_GPUS": "0"}, None),
        ({"HOLOGRAM_AUTOLOAD": "1"}, None),
        ({"HOLOGRAM_AUTOLOAD": ""}, beside),
        ({"HOLOGRAM_AUTOLOAD": "0", "FAKE_GPUS": "0"}, "HOLOGRAM_AUTOLOAD=0"),
        # Children of `python -m hologram_torch run` say "cuda" and mean this device.
        ({"HOLOGRAM_AS_CUDA": "1"}, None),
        # Files of the driver where the library cannot tell; nothing is said.
        (fails, None),
        ({**fails, "HOLOGRAM_SYSTEM_ROOT": str(tmp_path / "gpu")}, beside),
    ]
    code = f"""
import os, warnings
import hologram_torch
warnings.simplefilter("error")
for variables in {[variables for variables, _ in cases]}:
    os.environ.update(variables)
    print(hologram_torch._why_not_now())
    for name in variables:
        del os.environ[name]
    os.environ["FAKE_GPUS"] = "2"
warnings.resetwarnings()
os.environ["HOLOGRAM_AUTOLOAD"] = "maybe"
hologram_torch._why_not_now()
"""
    said = run(code, libraries, FAKE_GPUS="2").splitlines()
    assert said[: len(cases)] == [str(why) for _, why in cases]
    assert (
        "HOLOGRAM_AUTOLOAD is 'maybe'; set it to 0 (`import torch` never loads" in said[len(cases)]
    )
    assert "or 1 (always), or unset it (not beside CUDA, ROCm or XPU)" in said[len(cases)]


@cuda
def test_a_child_that_is_forked_after_the_import_can_use_cuda(libraries: Path) -> None:
    """Nothing has started the driver, which would be useless in the child."""
    started = libraries / "started"
    started.unlink(missing_ok=True)
    code = """
import ctypes, os, torch
assert not torch.cuda.is_initialized()
child = os.fork()
if child == 0:
    os._exit(1 if torch.cuda._is_in_bad_fork() else 0)
print(os.waitpid(child, 0)[1], os.path.exists(os.environ["FAKE_STARTED"]))
ctypes.CDLL("libcuda.so.1").cuInit(0)  # the fake says when it is started
print(os.path.exists(os.environ["FAKE_STARTED"]))
"""
    assert run(code, libraries, FAKE_GPUS="1").split() == ["0", "False", "True"]


@cuda
@pytest.mark.parametrize("imports", ["torch, hologram_torch", "hologram_torch, torch"])
def test_an_explicit_import_works_and_is_the_accelerator(libraries: Path, imports: str) -> None:
    code = f"""
import {imports}
x = torch.ones(2, device="hologram")
print((x + 1).sum().item(), torch.accelerator.current_accelerator().type)
import hologram_torch
print(hologram_torch.execution is not None)
"""
    assert run(code, libraries, FAKE_GPUS="1").split() == ["4.0", "hologram", "True"]


@pytest.mark.parametrize(
    ("kind", "version", "module", "function", "files", "hiding"),
    [
        ("rocm", "hip", "cuda", "_device_count_amdsmi", ["dev/kfd"], "HIP_VISIBLE_DEVICES"),
        ("xpu", "xpu", "xpu", "_device_count_zes", ["dev/dri/renderD128"], "ZE_AFFINITY_MASK"),
        ("cuda", "cuda", "cuda", "_device_count_nvml", ["dev/nvgpu0"], "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_each_kind_of_accelerator(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    kind: str,
    version: str,
    module: str,
    function: str,
    files: list[str],
    hiding: str,
) -> None:
    for name in ("hip", "cuda", "xpu"):
        monkeypatch.setattr(torch.version, name, "1" if name == version else None, raising=False)
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOLOGRAM_SYSTEM_ROOT", str(tmp_path))
    counts = {"now": 3}
    holder = getattr(torch, module)
    monkeypatch.setattr(holder, function, lambda: counts["now"], raising=False)
    assert _other_accelerators.find() == kind
    monkeypatch.setenv(hiding, "")
    assert _other_accelerators.find() is None
    monkeypatch.delenv(hiding)
    counts["now"] = 0
    assert _other_accelerators.find() is None
    counts["now"] = -1  # the library cannot tell
    assert _other_accelerators.find() is None
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert _other_accelerators.find() == kind
    monkeypatch.delattr(holder, function)  # another version of PyTorch
    assert _other_accelerators.find() == kind


def test_a_build_for_the_cpu_has_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("hip", "cuda", "xpu"):
        monkeypatch.setattr(torch.version, name, None, raising=False)
    assert _other_accelerators.find() is None
