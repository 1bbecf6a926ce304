# SPDX-License-Identifier: MIT
"""C++ extensions of others that read tensors of the device through `const_data_ptr()`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import hologram_torch

D = "hologram"
SOURCE = Path(__file__).parent / "extension" / "reader.cc"

pytestmark = pytest.mark.skipif(
    not hologram_torch._C.can_defer, reason="nothing waits before PyTorch 2.13"
)


def compile_extension(out: Path, *flags: str) -> Path:
    """Compile the extension as `out`."""
    torch_folder = Path(torch.__file__).parent
    command = [
        os.environ.get("CXX") or "c++",
        *("-std=c++20", "-O1", "-shared", "-fPIC", "-o", str(out), str(SOURCE)),
        *("-isystem", str(torch_folder / "include")),
        *("-isystem", str(torch_folder / "include" / "torch" / "csrc" / "api" / "include")),
        *(f"-L{torch_folder / 'lib'}", "-Wl,--allow-shlib-undefined", "-Wl,--no-as-needed"),
        *("-ltorch", "-ltorch_cpu", "-lc10", *flags),
    ]
    subprocess.run(command, check=True)
    return out


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the extension with a kernel for one of PyTorch's operators, for other processes."""
    out = tmp_path_factory.mktemp("extension") / "overriding.so"
    return compile_extension(out, "-DOVERRIDE_PYTORCH")


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> object:
    """Compile the extension and load its operators."""
    library = compile_extension(tmp_path_factory.mktemp("extension") / "reader.so")
    torch.ops.load_library(str(library))
    return torch.ops.hologram_test_reader


def fresh() -> torch.Tensor:
    """Return 1,000 twos that are still to be computed and have no memory."""
    return torch.ones(1000, device=D) + 1


def written_again() -> torch.Tensor:
    """Return 1,000 twos in memory that still holds ones."""
    x = torch.ones(1000, device=D)
    torch.hologram.synchronize()
    assert x.sum().item() == 1000
    x += 1
    return x


def written_through_a_view() -> torch.Tensor:
    """Return 1,000 twos, the last half of which is written through a view."""
    x = torch.full((1000,), 2.0, device=D)
    x[500:] = 7
    assert x[999].item() == 7
    x[500:].fill_(2)
    return x


@pytest.mark.parametrize("make", [fresh, written_again, written_through_a_view])
@pytest.mark.parametrize("name", ["composite", "explicit", "device", "cpu", "device_list"])
@pytest.mark.parametrize("inference", [False, True])
def test_operators_see_what_was_computed(reader, name: str, make, inference: bool) -> None:
    with torch.inference_mode(inference):
        op = getattr(reader, name)
        for _ in range(3):
            x = make()
            argument = [x, torch.ones(8, device=D) * 3] if name == "device_list" else x
            assert op(argument) == 2000 + (24 if name == "device_list" else 0)


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr", "bsc"])
def test_members_of_sparse_arguments_are_computed(layout: str) -> None:
    library = torch.library.Library(f"hologram_test_{layout}", "DEF")
    library.define("circuits(Tensor x) -> int")
    library.impl(
        "circuits",
        lambda x: hologram_torch._C.recorder_stats()["circuits"],
        "CompositeExplicitAutograd",
    )
    blocks = {"blocksize": (2, 2)} if layout.startswith("bs") else {}
    x = torch.eye(4).to_sparse(layout=getattr(torch, f"sparse_{layout}"), **blocks).to(D)
    values = x._values() if layout == "coo" else x.values()
    with hologram_torch.execution("deferred"):
        values.mul_(2)
        before = hologram_torch._C.recorder_stats()["circuits"]
        seen = getattr(torch.ops, f"hologram_test_{layout}").circuits(x)
    assert seen == before + 1
    assert x.to_dense().cpu().equal(2 * torch.eye(4))


def test_operators_on_cpu_tensors_are_left_alone(reader) -> None:
    for name in ("composite", "explicit", "cpu"):
        assert getattr(reader, name)(torch.ones(10)) == 10


def test_operators_take_tensors_with_gradients(reader) -> None:
    x = torch.ones(10, device=D, requires_grad=True)
    y = x * 3
    assert reader.composite(y) == 30
    assert reader.explicit(y) == 30
    y.sum().backward()
    assert x.grad.tolist() == [3] * 10


LATE = """
import sys, torch
x = torch.ones(1000, device="hologram")
assert x.sum().item() == 1000
x += 1
torch.ops.load_library(sys.argv[1])
op = getattr(torch.ops.hologram_test_reader, sys.argv[2])
print(op([x] if sys.argv[2] == "device_list" else x))
"""


@pytest.mark.parametrize("name", ["composite", "explicit", "device", "device_list"])
def test_extensions_may_come_after_the_tensors(library: Path, name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LATE, str(library), name], capture_output=True, text=True
    )
    assert done.stdout.split() == ["2000.0"], done.stderr


# The extension has a kernel of its own for an operator of PyTorch's, and PyTorch does not tell.
UNSEEN = """
import sys, torch
torch.ops.load_library(sys.argv[1])
x = torch.ones(1 << 20, device="hologram")
torch.hologram.synchronize()
assert x.sum().item() == 1 << 20
x = x + 1 if sys.argv[2] == "fresh" else x.add_(1)
torch.ops.aten.special_bessel_y1(x[int(sys.argv[3]):])
print("read")
"""


def run_unseen(library: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", UNSEEN, str(library), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("how", ["fresh", "again"])
@pytest.mark.parametrize("offset", ["0", "500000"])
def test_what_no_hook_sees_faults_with_a_message(library: Path, how: str, offset: str) -> None:
    done = run_unseen(library, how, offset)
    assert done.returncode == -signal.SIGSEGV, done.stdout + done.stderr
    assert "without asking for the value" in done.stderr
    assert "const_data_ptr()" in done.stderr and "data_ptr() or mutable_data_ptr()" in done.stderr
    assert "read" not in done.stdout


def test_the_fault_still_reaches_who_handled_it_before(library: Path) -> None:
    done = run_unseen(library, "fresh", "0", PYTHONFAULTHANDLER="1")
    assert done.returncode == -signal.SIGSEGV
    assert "without asking for the value" in done.stderr
    assert "Fatal Python error: Segmentation fault" in done.stderr


@pytest.mark.parametrize("how", ["fresh", "again"])
def test_eager_execution_shows_every_address(library: Path, how: str) -> None:
    done = run_unseen(library, how, "0", HOLOGRAM_EXECUTION="eager")
    assert done.returncode == 0, done.stderr
    assert "read" in done.stdout


OTHER_FAULT = """
import ctypes, faulthandler, torch
if {again}:
    faulthandler.enable()
torch.ones(3, device="hologram").sum().item()
ctypes.string_at(0)
"""


@pytest.mark.parametrize("again", [False, True])
def test_faults_of_others_are_not_ours(again: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OTHER_FAULT.format(again=again)], capture_output=True, text=True
    )
    assert done.returncode == -signal.SIGSEGV
    assert "hologram:" not in done.stderr
    assert ("Segmentation fault" in done.stderr) == again
