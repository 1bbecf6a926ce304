# SPDX-License-Identifier: MIT
"""torch.hologram, torch.accelerator, autoload, the fallback's counters, data loading."""

from __future__ import annotations

import os
import subprocess
import sys

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
