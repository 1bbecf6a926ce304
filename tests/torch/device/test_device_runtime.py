# SPDX-License-Identifier: MIT
"""torch.hologram, torch.accelerator, autoload, the fallback's counters, data loading."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import hologram_torch

D = "hologram"


def test_streams_and_events() -> None:
    stream = torch.hologram.Stream()
    first = torch.hologram.Event(enable_timing=True)
    second = torch.hologram.Event(enable_timing=True)
    with torch.hologram.stream(stream):
        assert torch.hologram.current_stream() == stream
        first.record()
        torch.randn(100, device=D)
        second.record()
    assert torch.hologram.current_stream() == torch.hologram.default_stream()
    stream.wait_stream(torch.hologram.current_stream())
    stream.wait_event(second)
    stream.synchronize()
    second.synchronize()
    assert stream.query()
    assert second.query()
    assert first.elapsed_time(second) >= 0
    assert isinstance(first, torch.hologram.Event)
    torch.randn(3, device=D).record_stream(stream)
    plain = torch.hologram.Event()
    plain.record()
    with pytest.raises(Exception, match="enable_timing"):
        plain.elapsed_time(plain)


def test_accelerator() -> None:
    assert torch.accelerator.current_accelerator().type == D
    assert torch.accelerator.device_count() == torch.hologram.device_count() == 1
    torch.accelerator.synchronize()
    torch.hologram.synchronize()
    torch.accelerator.set_device_index(0)
    free, total = torch.accelerator.get_memory_info()
    assert 0 < free <= total
    assert torch.get_device_module() is torch.hologram
    with torch.hologram.device(0), torch.hologram.device(None):
        assert torch.hologram.current_device() == 0
    properties = torch.hologram.get_device_properties()
    assert properties.backend == "cpu"
    assert properties.total_memory > 0


def test_memory_statistics() -> None:
    torch.hologram.reset_peak_memory_stats()
    before = torch.hologram.memory_allocated()
    x = torch.ones(1 << 20, device=D)
    assert torch.hologram.memory_allocated() - before >= 4 << 20
    del x
    assert torch.hologram.memory_allocated() == before
    assert torch.hologram.max_memory_allocated() >= before + (4 << 20)
    torch.hologram.empty_cache()
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_allocated() == torch.hologram.memory_allocated()
    assert "allocated" in torch.hologram.memory_summary()


def test_backends_and_execution() -> None:
    assert "cpu" in hologram_torch.list_available_backends()
    hologram_torch.set_backend("cpu")
    assert hologram_torch.get_backend() == "cpu"
    before = hologram_torch.execution.mode()
    with hologram_torch.execution("eager"):
        assert hologram_torch.execution.mode() == "eager"
    assert hologram_torch.execution.mode() == before


def test_fallback_is_counted_and_explained() -> None:
    x = torch.randn(8, device=D)
    hologram_torch.reset_fallback_counts()
    torch.sort(x)
    assert sum(hologram_torch.fallback_counts().values()) >= 1
    explanation = hologram_torch.explain(lambda: torch.sort(x)[0])
    assert any("sort" in name for name in explanation.fallbacks)
    assert any("sort" in name for name in explanation.ops)
    assert "sort" in str(explanation)


def test_default_device_and_factories() -> None:
    with torch.device(D):
        assert torch.ones(3).device.type == D
    torch.set_default_device(D)
    try:
        assert torch.arange(3).device.type == D
    finally:
        torch.set_default_device(None)
    for make in (
        lambda: torch.rand(3, device=D),
        lambda: torch.randint(0, 5, (3,), device=D),
        lambda: torch.full((3,), 2, device=D),
        lambda: torch.eye(3, device=D),
        lambda: torch.linspace(0, 1, 3, device=D),
        lambda: torch.tensor([1, 2, 3], device=D),
        lambda: torch.ones(3).hologram(),
        lambda: torch.nn.Linear(3, 3).hologram().weight,
        lambda: torch.nn.Linear(3, 3, device="meta").to_empty(device=D).weight,
        lambda: torch.ones(3, device=D).new_zeros(3),
    ):
        assert make().is_hologram


def test_deterministic_empty_is_filled() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(5, device=D).isnan().all()
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader(workers: int) -> None:
    data = torch.utils.data.TensorDataset(torch.arange(20.0).view(10, 2))
    loader = torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True, num_workers=workers)
    total = sum(batch.to(D, non_blocking=True).sum().item() for (batch,) in loader)
    assert total == 190
    assert not torch.ones(3).is_pinned()


def test_pinned_memory_says_so() -> None:
    x = torch.arange(6.0)
    pinned = x.pin_memory()
    assert pinned.is_pinned() and not x.is_pinned()
    assert pinned.device.type == "cpu" and torch.equal(pinned, x)
    # Views of it are pinned too; what is beside it, and what is computed from it, is not.
    assert pinned[2:].is_pinned() and pinned.view(2, 3)[1].is_pinned()
    assert not (pinned + 1).is_pinned() and not pinned.clone().is_pinned()
    assert pinned.pin_memory() is pinned
    assert torch.empty(3, pin_memory=True).is_pinned()
    assert torch.empty_like(x, pin_memory=True).is_pinned()
    assert not torch.empty(0).pin_memory().is_pinned()
    assert not torch.ones(3, device=D).is_pinned()
    moved = pinned.to(D, non_blocking=True)
    assert torch.equal(moved.cpu(), x)
    # Memory that was given back has no owner.
    del pinned
    blocks = [torch.empty(6) for _ in range(64)]
    assert not any(block.is_pinned() for block in blocks)


def test_pinned_memory_of_many_threads() -> None:
    def work(seed: int) -> bool:
        kept = []
        for i in range(200):
            t = torch.full((1 + (seed * 37 + i) % 50,), float(i)).pin_memory()
            kept.append(t)
            if len(kept) > 5 and not kept.pop(0).is_pinned():
                return False
        return all(t.is_pinned() for t in kept)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


def test_batches_of_a_pinning_loader_are_pinned() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    loader = torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True)
    assert [batch.is_pinned() for (batch,) in loader] == [True, True]


@pytest.mark.parametrize("setting", [True, False])
def test_backward_leaves_the_switch_of_autograds_threads(setting: bool) -> None:
    seen = {}

    class Look(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            seen[grad.device.type] = (
                threading.get_ident(),
                torch.autograd.is_multithreading_enabled(),
            )
            return grad

    with torch.autograd.set_multithreading_enabled(setting):
        x = torch.ones(3, device=D, requires_grad=True)
        Look.apply(x).sum().backward()
        assert torch.autograd.is_multithreading_enabled() == setting
        assert seen[D] == (threading.get_ident(), False)
        with pytest.raises(RuntimeError, match="does not require grad"):
            torch.ones(3, device=D).sum().backward()
        assert torch.autograd.is_multithreading_enabled() == setting
        # A backward that starts elsewhere is the program's.
        y = torch.ones(3, requires_grad=True)
        Look.apply(y).sum().backward()
        assert seen["cpu"][1] == setting
        (grad,) = torch.autograd.grad(Look.apply(x).cpu().sum(), x)
        assert grad.tolist() == [1, 1, 1]
        assert torch.autograd.is_multithreading_enabled() == setting


def test_profiler_and_timer() -> None:
    x = torch.randn(8, device=D)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as p:
        x.sinh()
    assert any("sinh" in e.key for e in p.key_averages())
    import torch.utils.benchmark as benchmark

    benchmark.Timer("x + x", globals={"x": x}).timeit(2)


def run_python(code: str, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        timeout=120,
    )


def test_an_unknown_provider_of_products_leaves_pytorch_without_the_device() -> None:
    code = "import torch; print(torch.ones(2).sum().item())"
    done = run_python(code, HOLOGRAM_GEMM="mkl", TORCH_DEVICE_BACKEND_AUTOLOAD="1")
    assert done.stdout.split() == ["2.0"], done
    assert "HOLOGRAM_GEMM is 'mkl'; set it to 'hologram' or 'torch', or unset it" in done.stderr


def test_the_fallback_may_be_forbidden() -> None:
    code = """
import torch, hologram_torch
x = torch.arange(6.0, device="hologram")
try:
    x.sort()
except NotImplementedError as error:
    print(error)
    print(hologram_torch.fallback_counts())
y = torch.nn.Linear(6, 3, device="hologram")(x.requires_grad_()).relu()
y.sum().backward()
print(x.grad.cpu(), y.cpu().sort().values.numel())
"""
    refused = run_python(code, HOLOGRAM_FALLBACK="error")
    assert refused.returncode == 0, refused.stderr
    assert "aten::sort" in refused.stdout
    assert "HOLOGRAM_FALLBACK=error forbids the fallback to PyTorch's cpu kernel" in refused.stdout
    assert "\n{}\n" in refused.stdout  # it has not run
    assert refused.stdout.rstrip().endswith(" 3")
    for allowed in ({"HOLOGRAM_FALLBACK": "allow"}, {"HOLOGRAM_FALLBACK": ""}):
        done = run_python(code, **allowed)
        assert done.returncode == 0, done.stderr
        assert "forbids" not in done.stdout
    wrong = run_python("import torch, hologram_torch", HOLOGRAM_FALLBACK="never")
    assert "HOLOGRAM_FALLBACK is 'never'; set it to 'allow' or 'error', or unset it" in wrong.stderr


@pytest.mark.parametrize(
    "code",
    [
        "import hologram_torch, torch",
        "import torch, hologram_torch",
        "import torch, hologram_torch, importlib; hologram_torch._autoload()",
    ],
)
def test_either_import_order(code: str) -> None:
    done = run_python(f"{code}; print(torch.ones(2, device='hologram').sum().item())")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "2.0"


def test_autoload_off_leaves_torch_alone() -> None:
    done = run_python(
        "import torch; print(hasattr(torch, 'hologram'))", TORCH_DEVICE_BACKEND_AUTOLOAD="0"
    )
    assert done.stdout.strip() == "False", done.stderr


def test_a_failing_load_warns_once_and_then_says_why() -> None:
    code = """
import sys, types, warnings
# As an installed entry point would: import the package while torch is still loading.
import torch
torch.__spec__._initializing = True
fake = types.ModuleType('hologram_torch._build_info')
fake.TORCH_VERSION, fake.TORCH_MINOR, fake.VERSION = '2.3.0', '2.3', '0'
for name in [n for n in sys.modules if n.startswith('hologram_torch')]:
    del sys.modules[name]
sys.modules['hologram_torch._build_info'] = fake
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    import hologram_torch
    hologram_torch._autoload()
assert len(caught) == 1 and 'built for PyTorch 2.3' in str(caught[0].message), caught
torch.__spec__._initializing = False
try:
    import hologram_torch
except ImportError as error:
    print('said', 'built for PyTorch 2.3' in str(error))
"""
    done = run_python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.stdout.strip() == "said True", done.stderr


def test_forked_child_computes() -> None:
    code = """
import os, torch, hologram_torch
x = torch.randn(1000, device='hologram')
y = (x @ x).item()
pid = os.fork()
if pid == 0:
    os._exit(0 if abs((x @ x).item() - y) < 1e-3 else 1)
print(os.waitpid(pid, 0)[1])
"""
    done = run_python(code)
    assert done.stdout.strip() == "0", done.stderr


def test_a_forked_child_forks_again() -> None:
    code = """
import os, signal, torch, hologram_torch
def forks(depth, a, kept):
    if depth == 4:
        return
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # a deadlock ends the child
        b = a @ a + depth  # recorded, and run by the next fork
        pinned = torch.full((5,), float(depth)).pin_memory()
        forks(depth + 1, a, [*kept, pinned])
        right = torch.equal(b.cpu(), torch.eye(30) * 4 + depth) and pinned.is_pinned()
        os._exit(0 if right and all(k.is_pinned() for k in kept) else 1)
    status = os.waitpid(pid, 0)[1]
    if status != 0:
        os._exit(2) if depth else print('failed', status)
a = torch.eye(30, device='hologram') * 2
b = a @ a
forks(0, a, [])
forks(0, a, [torch.ones(3).pin_memory()])
print('done', b[0, 0].item())
"""
    done = run_python(code)
    assert done.stdout.strip() == "done 4.0", done.stdout + done.stderr


class _Doubled(torch.utils.data.Dataset[torch.Tensor]):
    """Items that the device computes and pins, in a worker or in a process which that forks."""

    def __init__(self, nested: bool) -> None:
        self.nested = nested

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        x = torch.full((3,), float(index), device=D)
        if not self.nested:
            return (x * 2).cpu().pin_memory()
        context = torch.multiprocessing.get_context("fork")
        receiver, sender = context.Pipe(duplex=False)

        def send() -> None:
            sender.send((x * 2).cpu().pin_memory().tolist())

        child = context.Process(target=send, daemon=False)
        child.start()
        assert receiver.poll(60), "the child of the worker hangs"
        values = receiver.recv()
        child.join(60)
        return torch.tensor(values)


@pytest.mark.parametrize("nested", [False, True])
def test_forked_workers_pin_and_fork(nested: bool) -> None:
    assert torch.ones(3).pin_memory().is_pinned()
    torch.ones(2, device=D).mul_(3)  # recorded when the worker is forked
    loader = torch.utils.data.DataLoader(
        _Doubled(nested),
        batch_size=2,
        num_workers=2,
        multiprocessing_context="fork",
        pin_memory=True,
        timeout=120,
        worker_init_fn=_may_have_children,
    )
    batches = torch.cat(list(loader))
    assert torch.equal(batches, torch.arange(6.0)[:, None].expand(6, 3) * 2)


def _may_have_children(_: int) -> None:
    """Let a worker of a DataLoader, which is a daemon, start processes."""
    torch.multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]


def test_bits_do_not_depend_on_how_busy_the_machine_is() -> None:
    """PyTorch's own kernels add up thread by thread: who is busy must not get fewer threads."""
    code = """
import subprocess, sys, time, torch, hologram_torch
torch.set_num_threads(2)
x = torch.randn(200_001, device='hologram')
sums = [lambda: x.dot(x), lambda: x.to(torch.complex64).sum().real]
first = [f().item() for f in sums]
spin = [sys.executable, '-c', 'while True: pass']
busy = [subprocess.Popen(spin) for _ in range(2 + 2 * torch.get_num_threads())]
try:
    end, count = time.monotonic() + 1.5, 0
    while time.monotonic() < end:
        assert [f().item() for f in sums] == first, count
        count += 1
finally:
    for process in busy:
        process.kill()
print(count > 5)
"""
    done = run_python(code)
    assert done.stdout.strip() == "True", done.stderr
