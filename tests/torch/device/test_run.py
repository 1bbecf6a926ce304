# SPDX-License-Identifier: MIT
"""``python -m hologram_torch run``: programs that say ``cuda``, unmodified, on the device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import opencl_drivers
import pytest

PROGRAMS = Path(__file__).parent / "cuda_programs"


def run(
    *arguments: str | Path,
    fails: bool = False,
    folder: Path | None = None,
    environment: dict[str, str] | None = None,
) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "hologram_torch", "run", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
        env={k: v for k, v in os.environ.items() if k != "HOLOGRAM_AS_CUDA"} | (environment or {}),
    )
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stderr if fails else done.stdout


def script(folder: Path, text: str) -> Path:
    path = folder / "program.py"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        ("digits.py", ()),
        ("gpt.py", ()),
        pytest.param("gpt.py", ("--compile",), marks=pytest.mark.heavy),
        ("classifier.py", ()),
        pytest.param("classifier.py", ("--amp",), marks=pytest.mark.heavy),
    ],
)
def test_programs(program: str, arguments: tuple[str, ...]) -> None:
    last = run(PROGRAMS / program, *arguments).splitlines()[-1]
    assert "learned" in last and "on cuda" in last, last


@pytest.mark.heavy
def test_processes() -> None:
    out = run(
        *("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
        *(PROGRAMS / "classifier.py", "--epochs", "4"),
    )
    assert out.count("learned on cuda") == 2


def test_what_is_said_and_what_is(tmp_path: Path) -> None:
    """A program sees ``cuda``; PyTorch computes on ``hologram``."""
    path = script(
        tmp_path,
        """
import copy, pickle, sys
import torch
from torch import nn
assert __name__ == "__main__" and sys.argv[1:] == ["--n", "3"], sys.argv
assert torch.cuda.is_available() and torch.cuda.device_count() == 1
assert torch.cuda.current_device() == 0 and torch.cuda.is_bf16_supported()
x = torch.ones(3, device="cuda")
assert "hologram" in str(x) and x.is_cuda and x.device == torch.device("cuda:0")
assert x.device.type == "cuda" and x.get_device() == 0 and not x.cpu().is_cuda
for y in (
    torch.zeros(3).cuda(), torch.zeros(3).cuda(0), torch.zeros(3).cuda("cuda:0"),
    torch.zeros(3).to("cuda"), torch.zeros(3).to(torch.device("cuda", 0), torch.float64),
    torch.zeros(3).to(x), torch.zeros(3).to(x.device), torch.zeros(3).to(device="cuda"),
    torch.tensor([1.0], device=x.device), torch.as_tensor([1.0], device="cuda"),
    x.new_zeros(2, device="cuda"), torch.rand_like(torch.ones(2), device="cuda"),
    torch.arange(4, device="cuda:0"), torch.from_numpy(x.cpu().numpy()).cuda(non_blocking=True),
    torch.fft.fftfreq(4, device="cuda"), torch.randperm(4, device="cuda"),
    nn.Linear(2, 2, device="cuda").weight, nn.Linear(2, 2).cuda().weight,
    nn.Linear(2, 2).to("cuda").bias, copy.deepcopy(x), pickle.loads(pickle.dumps(x)),
    nn.Parameter(x), torch.empty_like(x), torch.nn.utils.rnn.pack_sequence([x.cpu()]).cuda().data,
):
    assert y.is_cuda and y.device.type == "cuda", y
with torch.device("cuda"):
    assert torch.ones(2).is_cuda and nn.Linear(2, 2).weight.is_cuda
torch.set_default_device("cuda")
assert torch.ones(2).is_cuda
torch.set_default_device("cpu")
g = torch.Generator(device="cuda").manual_seed(3)
assert isinstance(g, torch.Generator)
a = torch.rand(4, device="cuda", generator=g)
torch.cuda.manual_seed_all(3)
assert torch.equal(a, torch.rand(4, device="cuda"))
state = torch.cuda.get_rng_state()
b = torch.rand(4, device="cuda")
torch.cuda.set_rng_state(state)
assert torch.equal(b, torch.rand(4, device="cuda"))
with torch.autocast("cuda"):
    assert (x[None] @ x[:, None]).dtype == torch.float16
    assert torch.is_autocast_enabled("cuda") and torch.is_autocast_enabled()
with torch.cuda.amp.autocast(dtype=torch.bfloat16):
    assert (x[None] @ x[:, None]).dtype == torch.bfloat16
scaler = torch.cuda.amp.GradScaler()
assert scaler.is_enabled() and scaler.scale(x).is_cuda
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    assert torch.cuda.current_stream() == stream
    x.add_(1)
torch.cuda.current_stream().wait_stream(stream)
event = torch.cuda.Event()
event.record()
torch.cuda.synchronize(), torch.cuda.empty_cache(), torch.cuda.reset_peak_memory_stats()
assert torch.cuda.memory_allocated("cuda:0") > 0 and torch.cuda.mem_get_info()[1] > 0
assert torch.cuda.get_device_properties("cuda").total_memory > 0
assert "allocated" in torch.cuda.memory_summary().lower() and torch.cuda.memory_reserved() > 0
with torch.cuda.device(0):
    assert torch.cuda.get_device_name()
with torch.random.fork_rng(devices=[0]):
    torch.rand(3, device="cuda")
assert torch.equal(torch.rand(4, device="cuda"), torch.rand(4, device="cuda")) is False
from torch.utils.checkpoint import checkpoint
w = torch.randn(4, 4, device="cuda", requires_grad=True)
checkpoint(lambda t: nn.functional.dropout(t @ t, 0.5), w, use_reentrant=False).sum().backward()
assert w.grad.is_cuda
for name in ("Adam", "AdamW", "SGD"):
    w.grad = torch.ones_like(w)
    getattr(torch.optim, name)([w], lr=0.1, fused=True).step()
print("passed")
""",
    )
    assert run(path, "--n", "3", folder=tmp_path) == "passed\n"


def test_files_from_cuda(tmp_path: Path) -> None:
    """What a file says was on ``cuda`` is read; what is saved is read elsewhere."""
    path = script(
        tmp_path,
        """
import io
import torch
file = io.BytesIO()
torch.save({"x": torch.arange(4.0, device="cuda")}, file)
source = file.getvalue()
for where in ("cuda", "cuda:0", torch.device("cuda"), {"hologram:0": "cuda:0"}, None):
    x = torch.load(io.BytesIO(source), map_location=where)["x"]
    assert x.is_cuda and x.tolist() == [0, 1, 2, 3], where
assert torch.load(io.BytesIO(source), map_location="cpu")["x"].is_cpu
storage = torch.arange(4.0).untyped_storage()
restored = torch.serialization.default_restore_location(storage, "cuda:0")
assert restored.device.type == "hologram"
print("passed")
""",
    )
    assert run(path) == "passed\n"


def test_children_too(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        """
import torch
import torch.multiprocessing as mp

def work(rank, out):
    out.put((rank, torch.ones(2, device="cuda").device.type))

if __name__ == "__main__":
    context = mp.get_context("spawn")
    out = context.Queue()
    mp.spawn(work, (out,), nprocs=2)
    print(sorted(out.get() for _ in range(2)))
""",
    )
    assert run(path) == "[(0, 'cuda'), (1, 'cuda')]\n"


def test_modules(tmp_path: Path) -> None:
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "__main__.py").write_text(
        "import sys, torch\nfrom package import __name__ as n\n"
        "print(__name__, n, sys.argv[1:], torch.ones(1).cuda().device)\n"
    )
    assert (
        run("-m", "package", "a", "-b", folder=tmp_path) == "__main__ package ['a', '-b'] cuda:0\n"
    )


# These calls raise errors with these messages.
NO_COUNTERPART = {
    "torch.cuda.get_device_capability()": "torch.cuda.get_device_capability has no counterpart",
    "torch.cuda.CUDAGraph()": "torch.cuda.CUDAGraph has no counterpart on the device",
    "torch.cuda.temperature()": "torch.cuda.temperature has no counterpart",
    "torch.zeros(1, device='cuda:7')": "no device hologram:7",
    "torch.cuda.nothing_such": "has no attribute 'nothing_such'",
    "torch.cuda.get_device_properties(0).major": "no attribute 'major'",
}


def test_what_has_no_counterpart(tmp_path: Path) -> None:
    lines = ["import sys, torch", "def said(call):"]
    lines += ["    try:", "        call()", "    except Exception as error:"]
    lines += ["        print(str(error).splitlines()[0], file=sys.stderr)"]
    lines += [f"said(lambda: {call})" for call in NO_COUNTERPART]
    last = list(NO_COUNTERPART)[-1]
    found = run(script(tmp_path, "\n".join([*lines, last, ""])), fails=True)
    for line, message in zip(found.splitlines(), NO_COUNTERPART.values()):  # and a traceback
        assert message in line
    assert NO_COUNTERPART[last] in found.splitlines()[-1]


def test_usage(tmp_path: Path) -> None:
    assert "there is no file" in run(tmp_path / "missing.py", fails=True)
    assert run(script(tmp_path, "import sys\nsys.exit(3)"), fails=True) == ""
    done = subprocess.run([sys.executable, "-m", "hologram_torch", "run"], capture_output=True)
    assert done.returncode == 2 and b"usage" in done.stdout


def test_numbers_of_gpus(tmp_path: Path) -> None:
    """``cuda:0`` is the first GPU, which is hologram:1, for all that takes or tells a number."""
    if missing := opencl_drivers.why_missing(opencl_drivers.FAKE_CUDA):
        pytest.skip(missing)
    gpus = opencl_drivers.environment(opencl_drivers.FAKE_CUDA, tmp_path / "log")
    path = script(
        tmp_path,
        """
import torch
from torch import nn
place_of = torch._C.TensorBase.device.__get__
assert torch.cuda.device_count() == 2 == len(torch.cuda.default_generators)
assert torch.cuda.current_device() == 0

def is_on(number, *tensors):
    for t in tensors:
        assert place_of(t) == torch.device("hologram", number + 1), (place_of(t), number)
        assert t.device == torch.device("cuda", number) and t.get_device() == number, t.device
        assert t.is_cuda

x = torch.zeros(3)
is_on(0, torch.ones(3, device="cuda"), torch.ones(3, device="cuda:0"), torch.ones(3, device=0))
is_on(0, x.cuda(), x.cuda(0), x.to("cuda"), x.to(0), x.to(device=0), x.to(torch.device("cuda")))
is_on(0, x.cuda("cuda:0"), x.to(x.cuda()), x.to(x.cuda().device), torch.rand_like(x, device=0))
is_on(1, torch.ones(3, device="cuda:1"), x.cuda(1), x.to(1), x.to("cuda:1", torch.float64))
is_on(1, x.to(torch.device("cuda", 1)), x.new_zeros(2, device="cuda:1"))
is_on(0, *nn.Linear(2, 2).cuda().parameters(), *nn.Linear(2, 2).to(0).parameters())
is_on(1, *nn.Linear(2, 2).cuda(1).parameters(), *nn.Linear(2, 2, device="cuda:1").parameters())
assert x.get_device() == -1 and str(x.device) == "cpu"
with torch.cuda.device(1):
    assert torch.cuda.current_device() == 1
    is_on(1, torch.ones(2, device="cuda"), x.cuda())
assert torch.cuda.current_device() == 0
with torch.device("cuda"):
    is_on(0, torch.ones(2))
torch.cuda.set_device(1)
is_on(1, x.cuda())
torch.cuda.set_device("cuda:0")
is_on(0, x.cuda())
name = torch.cuda.get_device_name(0)
assert name == torch.cuda.get_device_name() == torch.hologram.get_device_name(1), name
assert torch.cuda.get_device_properties("cuda:1").backend == "cuda"
for wrong in (2, "cuda:2"):
    try:
        torch.cuda.get_device_name(wrong)
    except ValueError as error:
        assert "no device" in str(error)
    else:
        raise AssertionError(wrong)
before = torch.cuda.memory_allocated(0), torch.cuda.memory_allocated(1)
held = torch.ones(1 << 20, device="cuda:1")
torch.cuda.synchronize(1)
torch.cuda.synchronize()
assert torch.cuda.memory_allocated(0) == before[0], before
assert torch.cuda.memory_allocated(1) - before[1] >= 4 << 20
torch.cuda.manual_seed_all(3)
states = torch.cuda.get_rng_state_all()
first = torch.rand(4, device="cuda:1")
torch.cuda.set_rng_state_all(states)
assert len(states) == 2 and torch.equal(first.cpu(), torch.rand(4, device="cuda:1").cpu())
state = torch.cuda.get_rng_state(1)
second = torch.rand(4, device="cuda:1")
torch.cuda.set_rng_state(state, 1)
assert torch.equal(second.cpu(), torch.rand(4, device="cuda:1").cpu())
with torch.random.fork_rng(devices=[1]):
    torch.rand(4, device="cuda:1")
torch.save(held, "held.pt")
is_on(0, torch.load("held.pt", map_location="cuda:0"))
is_on(1, torch.load("held.pt", map_location="cuda:1"))
# The CPU beside them is what it is.
here = torch.ones(2, device="hologram:0")
assert str(here.device) == "hologram:0" and not here.is_cpu
print("numbered")
""",
    )
    out = run(path, folder=tmp_path, environment=gpus | {"FAKE_CUDA_DEVICES": "2"})
    assert out == "numbered\n"
