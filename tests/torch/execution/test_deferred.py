# SPDX-License-Identifier: MIT
"""Deferred execution: ops wait until they are read, which only the counters show."""

from __future__ import annotations

import copy
import io
import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

import hologram_torch
from hologram_torch import _C

D = "hologram"

pytestmark = pytest.mark.skipif(not _C.can_defer, reason="PyTorch before 2.13 cannot defer")


@pytest.fixture(autouse=True)
def deferred():
    """Each test starts deferred, with nothing recorded and counters at zero."""
    with hologram_torch.execution("deferred"):
        _C.flush()
        _C.reset_recorder_stats()
        yield
        _C.flush()


def recorded() -> int:
    return _C.recorder_stats()["ops_recorded"]


def circuits() -> int:
    return _C.recorder_stats()["circuits"]


def waiting(n: int = 8, value: float = 2.0) -> torch.Tensor:
    """Return a tensor whose elements, all 2 * value + 1, have not been computed yet."""
    x = torch.full((n,), value, device=D)
    before = recorded()
    y = x * 2 + 1
    assert recorded() == before + 2
    return y


# --- Looking at bytes ----------------------------------------------------------------------------


def host(t: torch.Tensor) -> list:
    """Read the bytes at data_ptr() without asking the tensor."""
    import ctypes

    address = t.data_ptr()
    values = (ctypes.c_float * t.numel()).from_address(address)
    return list(values)


def test_ops_wait_until_they_are_read() -> None:
    x = torch.ones(16, device=D)
    _C.flush()
    before = circuits()
    y = (x + 1) * 3
    assert circuits() == before
    assert y.tolist() == [6.0] * 16
    assert circuits() == before + 1


@pytest.mark.parametrize(
    "look",
    [
        lambda t: host(t),
        lambda t: t.tolist(),
        lambda t: [t[i].item() for i in range(t.numel())],
        lambda t: t.cpu().tolist(),
        lambda t: t.to("cpu", torch.float64).tolist(),
        lambda t: np.from_dlpack(t, device="cpu").tolist(),
        lambda t: torch.from_dlpack(t).tolist(),
        lambda t: torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(t)).tolist(),
        lambda t: np.array(t.cpu()).tolist(),
        lambda t: (
            list(torch.UntypedStorage.tolist(t.untyped_storage().cpu()))
            and torch.tensor([], device=D).set_(t.untyped_storage(), 0, t.shape).tolist()
        ),
        lambda t: pickle.loads(pickle.dumps(t)).tolist(),
        lambda t: copy.deepcopy(t).tolist(),
        lambda t: copy.copy(t).tolist(),
        lambda t: _saved(t).tolist(),
        lambda t: [float(v) for v in repr(t.cpu()).split("[")[1].split("]")[0].split(",")],
        lambda t: [float(v) for v in repr(t).split("[")[1].split("]")[0].split(",")],
        lambda t: t.as_strided((t.numel(),), (1,)).tolist(),
        lambda t: t.flip(0).tolist(),  # PyTorch's CPU kernel
        lambda t: t.sort().values.tolist(),
        lambda t: [float(v) for v in t],
        lambda t: t.untyped_storage().clone() and t.tolist(),
        lambda t: torch.ops.hologram._host_view(t).tolist(),
        lambda t: torch.cat([t, t]).tolist()[: t.numel()],
        lambda t: t.index_select(0, torch.arange(t.numel(), device=D)).tolist(),
        lambda t: t.clone().tolist(),
        lambda t: t.share_memory_().tolist(),
        lambda t: list(memoryview(t.cpu().numpy())),
    ],
)
def test_every_way_to_look_sees_the_values(look) -> None:
    assert look(waiting()) == [5.0] * 8


def _saved(t: torch.Tensor) -> torch.Tensor:
    file = io.BytesIO()
    torch.save(t, file)
    file.seek(0)
    return torch.load(file)


def test_truth_of_a_tensor() -> None:
    x = torch.ones((), device=D)
    assert bool(x + 1 > 1)
    assert not bool(x - 1)
    assert int(x * 3) == 3
    assert torch.equal(x * 2, x + x)
    assert (x * 2 == 2).all()


def test_item_runs_what_it_needs() -> None:
    x = torch.full((4,), 3.0, device=D)
    assert (x * x).sum().item() == 36.0
    assert (x.sum() / x.numel()).item() == 3.0


def test_the_address_is_real_and_stays() -> None:
    y = waiting()
    address = y.data_ptr()
    assert address != 0
    assert host(y) == [5.0] * 8
    y.add_(1)
    assert y.data_ptr() == address
    assert y.untyped_storage().data_ptr() == address
    assert y[2:].data_ptr() == address + 8
    assert torch.empty(0, device=D).data_ptr() == 0


def test_unwritten_memory_has_an_address() -> None:
    x = torch.empty(5, device=D)
    x.fill_(2)
    assert host(x) == [2.0] * 5
    assert host(torch.empty(3, device=D).zero_()) == [0.0] * 3


# --- Foreign writers and readers ------------------------------------------------------------------


def test_an_exported_buffer_is_eager_from_then_on() -> None:
    x = waiting()
    window = np.from_dlpack(x, device="cpu")
    assert window.tolist() == [5.0] * 8
    before = recorded()
    x.add_(1)  # NumPy may read it at any time
    assert window.tolist() == [6.0] * 8
    y = x * 2
    x.zero_()
    assert recorded() == before
    assert y.tolist() == [12.0] * 8
    assert window.tolist() == [0.0] * 8
    z = y + 1  # y was never shown to other code
    assert recorded() > before
    assert z.tolist() == [13.0] * 8


@pytest.mark.parametrize("new_format", [True, False])
def test_saving_exports_nothing(new_format: bool) -> None:
    x = waiting()
    file = io.BytesIO()
    torch.save({"x": x, "view": x[2:]}, file, _use_new_zipfile_serialization=new_format)
    file.seek(0)
    loaded = torch.load(file)
    assert loaded["view"].tolist() == [5.0] * 6
    assert loaded["x"][2:].data_ptr() == loaded["view"].data_ptr()
    before = recorded()
    x.add_(1)
    assert recorded() == before + 1
    assert host(x) == [6.0] * 8  # an address that is used
    before = recorded()
    x.add_(1)
    assert recorded() == before


def test_writes_through_an_export_are_seen() -> None:
    x = torch.zeros(4, device=D)
    window = torch.from_dlpack(x.cpu() * 0)  # unrelated memory
    host_view = torch.ops.hologram._host_view(x)
    host_view[1] = 7
    window[0] = 9
    assert (x + 1).tolist() == [1, 8, 1, 1]
    host_view += 1
    assert (x * 2).tolist() == [2, 16, 2, 2]


def test_a_view_of_an_exported_buffer_is_eager_too() -> None:
    base = torch.zeros(4, 4, device=D)
    view = base[1:3]
    window = np.from_dlpack(base, device="cpu")
    view.add_(1)
    assert window.sum() == 8
    base.t().mul_(3)
    assert window.sum() == 24


# --- Views, in-place, hazards ---------------------------------------------------------------------


def pair(build):
    """Run the same program on cpu and deferred; compare every tensor it returns."""
    expected = build("cpu")
    actual = build(D)
    for a, b in zip(expected, actual, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        assert torch.equal(a, b.cpu()) or torch.allclose(a, b.cpu(), equal_nan=True)


def test_in_place_through_views() -> None:
    def build(device: str) -> list[torch.Tensor]:
        x = torch.arange(24.0, device=device).view(4, 6)
        row, column, diagonal = x[1], x[:, 2], x.diagonal()
        before = x * 1
        row.mul_(10)
        column.add_(1)
        after = x + 0
        diagonal.zero_()
        x.t()[0].sub_(5)
        x.view(-1)[::5] += 100
        return [x, row, column, diagonal, before, after, x.sum(1), x[1:3, 2:4] * 2]

    pair(build)


def test_a_value_read_before_it_is_overwritten() -> None:
    def build(device: str) -> list[torch.Tensor]:
        x = torch.arange(10.0, device=device)
        y = x + 1
        x.copy_(y * 2)
        z = x + y
        x.fill_(3)
        w = x * z
        x[2:5] = w[5:8]
        x[5:] = x[:5] + 1
        return [x, y, z, w]

    pair(build)


def test_overlapping_operands() -> None:
    def build(device: str) -> list[torch.Tensor]:
        x = torch.arange(12.0, device=device)
        torch.add(x[:-1], 1, out=x[:-1])
        windows = x.as_strided((5, 4), (2, 1))
        total = windows * 2
        x[:6].add_(x[6:])
        stride = x.as_strided((3, 3), (1, 3)) + x.as_strided((3, 3), (3, 1))
        return [x, total, stride]

    pair(build)
    x = torch.arange(6.0, device=D)
    with pytest.raises(RuntimeError, match=r"overlap|single memory location"):
        x[:1].expand(6).add_(1)
    with pytest.raises(RuntimeError, match=r"overlap|single memory location"):
        torch.add(x[1:], 1, out=x[:-1])


def test_out_arguments() -> None:
    def build(device: str) -> list[torch.Tensor]:
        x = torch.arange(6.0, device=device)
        out = torch.empty(6, device=device)
        torch.mul(x, 3, out=out)
        strided = torch.zeros(6, 2, device=device)
        torch.add(x, out, out=strided[:, 1])
        empty = torch.empty(0, device=device)
        torch.exp(x, out=empty)
        integers = torch.zeros(6, dtype=torch.int32, device=device)
        integers += torch.arange(6, device=device)
        return [out, strided, empty, integers]

    pair(build)


def test_resize_and_set() -> None:
    x = waiting(6)
    x.resize_(3)
    assert x.tolist() == [5.0] * 3
    x = waiting(6)
    x.resize_(12)
    assert x[:6].tolist() == [5.0] * 6
    x[6:] = 1
    assert x.sum().item() == 36
    y = waiting(4)
    z = torch.empty(0, device=D)
    z.set_(y)
    z.add_(1)
    assert y.tolist() == [6.0] * 4
    y = waiting(4)
    z.set_(y.untyped_storage(), 1, (2,), (1,))
    assert z.tolist() == [5.0] * 2
    y = waiting(4)
    y.untyped_storage().resize_(8 * 4)
    y.resize_(8)
    assert y[:4].tolist() == [5.0] * 4
    y = waiting(4)
    y.set_()
    assert y.numel() == 0
    y = waiting(4)
    y.untyped_storage().resize_(0)
    assert y.untyped_storage().size() == 0


def test_data_swaps() -> None:
    x, y = waiting(4), waiting(4, 10.0)
    x.data = y
    x.add_(1)
    assert y.tolist() == [22.0] * 4
    a, b = waiting(4), waiting(4, 1.0)
    torch.utils.swap_tensors(a, b)
    assert a.tolist() == [3.0] * 4 and b.tolist() == [5.0] * 4
    module = torch.nn.Linear(2, 2).to(D)
    module.weight.data = torch.ones(2, 2, device=D) * 3
    assert module.weight.sum().item() == 12
    module.weight.data.mul_(2)
    assert module.weight.tolist() == [[6, 6], [6, 6]]


def test_storages_made_by_pytorch() -> None:
    storage = torch.UntypedStorage(16, device=D)
    x = torch.tensor([], device=D).set_(storage, 0, (4,))
    x.fill_(3)
    before = recorded()
    x += 1
    assert recorded() == before + 1  # not eager for having come from a file
    assert x.tolist() == [4.0] * 4
    assert storage.cpu().tolist()[3] == 64


def test_types_shapes_and_layouts() -> None:
    def build(device: str) -> list[torch.Tensor]:
        x = torch.arange(24, device=device).view(2, 3, 4)
        f = x.to(torch.float32)
        half = f.to(torch.float16) / 7
        brain = (f * 1.1).to(torch.bfloat16)
        last = f.contiguous().permute(0, 2, 1)
        return [
            f + x,
            half,
            half * 2.5,
            brain + brain,
            brain.float() * half,
            last * 2,
            (last + f[0, 0, 0]).contiguous(),
            x % 5 == 0,
            torch.where(x > 5, f, -1.0),
            f.masked_fill(x > 20, float("inf")),
            (x > 3) & (x < 9),
            x.to(torch.uint8) + 250,
            x.double().t() if x.dim() == 2 else x.double(),
            f[:, :1] + f[:1],
            f.sum(-1),
            f.mean((1, 2)),
            f.amax(-1, keepdim=True),
            f.var(-1),
            f.softmax(-1),
            f.log_softmax(-1),
            x.sum(),
            (x > 3).any(-1),
            f.prod(-1),
            f.norm(dim=-1),
            f.logsumexp(-1),
            half.sum(-1),
            torch.zeros(3, device=device),
            torch.ones(3, dtype=torch.bool, device=device),
            torch.full((2, 2), -3, dtype=torch.int8, device=device),
            x.to(torch.complex64) * 2,
        ]

    pair(build)


# --- Autograd, modes, threads ---------------------------------------------------------------------


def test_autograd_and_version_counters() -> None:
    def build(device: str) -> list[torch.Tensor]:
        x = torch.linspace(-1, 1, 8, device=device).requires_grad_()
        y = (x.exp() * x.sin() + x.sigmoid()).softmax(0)
        y.pow(2).sum().backward()
        with torch.no_grad():
            x.sub_(x.grad, alpha=0.5)
        return [x.detach(), x.grad, y.detach()]

    pair(build)
    x = torch.ones(3, device=D, requires_grad=True)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_backward_in_another_thread() -> None:
    x = torch.full((5,), 2.0, device=D, requires_grad=True)
    y = (x * x * x).sum()
    thread = threading.Thread(target=y.backward)
    thread.start()
    thread.join()
    assert x.grad.tolist() == [12.0] * 5


def test_inference_mode_and_no_grad() -> None:
    with torch.inference_mode():
        x = waiting()
        x.add_(1)
        assert x.is_inference()
    assert x.tolist() == [6.0] * 8
    with torch.no_grad():
        w = torch.ones(4, device=D, requires_grad=True)
        w.mul_(3)
    assert w.tolist() == [3.0] * 4


def test_threads_share_one_order() -> None:
    results: list[torch.Tensor] = [torch.empty(0)] * 8
    shared = torch.ones(100, device=D) * 3

    def work(k: int) -> None:
        x = shared * k
        for step in range(200):
            x = x + step if step % 3 else (x * 2 - x)
            if step % 50 == k:
                x.sum().item()
        results[k] = x

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    steps = sum(step for step in range(200) if step % 3)
    for k, x in enumerate(results):
        assert x.tolist() == [3.0 * k + steps] * 100


def test_two_threads_may_look_at_one_tensor() -> None:
    for _ in range(20):
        x = waiting(1000)
        seen: list[float] = []
        threads = [
            threading.Thread(target=lambda: seen.append(x.sum().item())),  # noqa: B023
            threading.Thread(target=lambda: seen.append(float(x.cpu()[7]) * 1000)),  # noqa: B023
            threading.Thread(target=lambda: seen.append(host(x)[3] * 1000)),  # noqa: B023
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == [5000.0] * 3


def test_training_matches_cpu() -> None:
    def build(device: str) -> list[torch.Tensor]:
        torch.manual_seed(3)
        model = torch.nn.Sequential(
            torch.nn.Linear(6, 12), torch.nn.GELU(), torch.nn.LayerNorm(12), torch.nn.Linear(12, 3)
        ).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(16, 6, generator=generator).to(device)
        target = torch.randint(3, (16,), generator=generator).to(device)
        losses = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), target)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.detach())
        return [torch.stack(losses).cpu(), *(p.detach() for p in model.parameters())]

    for a, b in zip(build("cpu"), build(D), strict=True):
        torch.testing.assert_close(b.cpu(), a, rtol=1e-4, atol=1e-5)


# --- What runs, and when --------------------------------------------------------------------------


def test_errors_are_raised_at_the_call() -> None:
    x, y = torch.ones(3, device=D), torch.ones(4, device=D)
    before = recorded()
    with pytest.raises(RuntimeError, match="must match the size"):
        x + y
    with pytest.raises(RuntimeError, match="same device"):
        x + torch.ones(3)
    with pytest.raises(RuntimeError, match="result type Float can't be cast"):
        torch.ones(3, dtype=torch.int64, device=D).add_(1.5)
    assert recorded() <= before + 1  # the ones() of the last line


def test_dead_values_are_never_computed() -> None:
    x = torch.ones(1000, device=D)
    _C.flush()
    _C.reset_recorder_stats()
    for _ in range(10):
        x * 2 + 1  # not kept
    torch.hologram.synchronize()
    stats = _C.recorder_stats()
    assert stats["ops_recorded"] == 20
    assert stats["kernels"] == 0
    kept = (x * 2 + 1).relu()
    torch.hologram.synchronize()
    stats = _C.recorder_stats()
    assert stats["kernels"] == 1
    assert stats["bytes_moved"] < stats["bytes_unfused"]
    assert kept.tolist() == [3.0] * 1000


def test_a_repeated_program_makes_one_plan() -> None:
    x = torch.rand(64, device=D)
    _C.flush()
    for step in range(20):
        y = (x * (step + 3.5)).tanh() + x
        torch.hologram.synchronize()
        if step == 0:
            _C.reset_recorder_stats()
    stats = _C.recorder_stats()
    assert stats["circuits"] == stats["plan_hits"] == 19
    assert stats["plan_misses"] == 0
    torch.testing.assert_close(y.cpu(), (x.cpu() * 22.5).tanh() + x.cpu())


@pytest.mark.parametrize(
    "wait",
    [
        torch.hologram.synchronize,
        lambda: torch.hologram.current_stream().synchronize(),
        lambda: torch.hologram.current_stream().query(),
        lambda: torch.hologram.Event().record(),
        torch.accelerator.synchronize,
        torch.hologram.empty_cache,
        torch.hologram.memory_allocated,
        lambda: hologram_torch.execution("eager"),
    ],
)
def test_what_runs_the_circuit(wait) -> None:
    kept = waiting()
    before = circuits()
    wait()
    assert circuits() == before + 1
    before = circuits()
    torch.hologram.synchronize()
    assert circuits() == before
    assert kept.tolist() == [5.0] * 8


def test_modes_may_change_in_the_middle() -> None:
    x = waiting()
    assert hologram_torch.execution.mode() == "deferred"
    with hologram_torch.execution("eager"):
        assert hologram_torch.execution.mode() == "eager"
        before = recorded()
        y = x + 1
        x.mul_(2)
        assert recorded() == before
        with hologram_torch.execution("deferred"):
            z = y * x
            assert recorded() == before + 1
        w = z + 1
        assert recorded() == before + 1
    assert w.tolist() == [61.0] * 8
    y.add_(1)
    assert y.tolist() == [7.0] * 8


def test_memory_of_dead_values_is_never_taken() -> None:
    x = torch.ones(1 << 20, device=D)
    torch.hologram.synchronize()
    torch.hologram.reset_peak_memory_stats()
    before = torch.hologram.memory_allocated()
    y = ((x + 1) * 2 - 3).relu().sqrt()
    torch.hologram.synchronize()
    assert torch.hologram.max_memory_allocated() - before < 2 * 4 << 20
    assert y[5].item() == 1.0
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 60, device=D, dtype=torch.uint8)


def test_long_programs_stay_right() -> None:
    x = torch.zeros(10, device=D)
    for _ in range(5000):
        x = x + 1
    assert x.tolist() == [5000.0] * 10
    y = torch.zeros(10, device=D)
    for _ in range(5000):
        y += 1
    assert y.tolist() == [5000.0] * 10


def test_foreach_records_each_member() -> None:
    xs = [torch.full((k + 1,), float(k), device=D) for k in range(5)]
    before = recorded()
    ys = torch._foreach_mul(xs, 2)
    torch._foreach_add_(ys, xs, alpha=3)
    assert recorded() == before + 10
    assert [y.sum().item() for y in ys] == [5.0 * k * (k + 1) for k in range(5)]


def run(code: str, **environment: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


LATE = """
import torch, hologram_torch
x, kept = torch.ones(8, device="hologram"), torch.ones(1 << 24, device="hologram")
torch.hologram.synchronize()
y = x.expand(1 << 21, 8) + 1
try:
    y.cpu()
except torch.OutOfMemoryError as error:
    print(error)
"""


@pytest.mark.parametrize("lines", [True, False])
def test_late_errors_say_where_they_were_recorded(lines: bool) -> None:
    text = run(LATE, HOLOGRAM_RECORD_LINES=str(int(lines)), HOLOGRAM_MEMORY_LIMIT=str(100 << 20))
    assert "out of memory: tried to allocate 64.00 MiB" in text
    assert ("for a result that was deferred, recorded at <string>:5)" in text) == lines
    assert ("for a result that was deferred)" in text) != lines


FULL = """
import torch, hologram_torch
xs = [torch.ones(8, device="hologram") for _ in range(3)]
kept = torch.ones(1 << 24, device="hologram")
torch.hologram.synchronize()
y = xs[0].expand(1 << 21, 8) + 1
try:
    torch._foreach_add_(xs, 1)
except torch.OutOfMemoryError as error:
    print(error)
del y
torch._foreach_add_(xs, 1)
print(sum(x.sum().item() for x in xs))
"""


def test_a_list_that_finds_no_room_is_out_of_memory() -> None:
    text = run(FULL, HOLOGRAM_WORKER="0", HOLOGRAM_MEMORY_LIMIT=str(100 << 20))
    error, total = text.splitlines()
    assert "out of memory: tried to allocate 64.00 MiB" in error
    assert total == "48.0"  # nothing of the failed call was recorded


PROFILED = """
import threading, torch, hologram_torch
torch.set_num_threads(1)
x = torch.rand(256, 256, device="hologram")
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
    for _ in range(40):
        y = x
        for _ in range(6):
            y = (y @ x).tanh()
        torch.hologram.synchronize()
names = [e.name for e in profile.events() if e.name.startswith("hologram::")]
threads = {e.thread for e in profile.events() if e.name.startswith("hologram::")}
print(len(names) >= 200, len(threads))
"""


def test_profiles_show_what_the_worker_runs() -> None:
    shown, threads = run(PROFILED).split()
    assert shown == "True"
    assert int(threads) <= 2


def test_the_program_may_end_with_work_recorded() -> None:
    code = (
        "import torch\n"
        "x = torch.ones(1000, device='hologram')\n"
        "y = x * 2 + 1\n"
        "z = torch.arange(5.0).to('hologram') + 1\n"
        "print(y.shape[0])\n"
    )
    assert run(code, HOLOGRAM_EXECUTION="deferred") == "1000"
    assert run(code + "import os, sys\nsys.stdout.flush()\nos._exit(0)\n") == "1000"


def test_the_environment_chooses_the_mode() -> None:
    code = "import torch, hologram_torch\nprint(hologram_torch.execution.mode())\n"
    for mode in ("eager", "deferred"):
        assert run(code, HOLOGRAM_EXECUTION=mode) == mode
