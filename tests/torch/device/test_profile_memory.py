# SPDX-License-Identifier: MIT
"""PyTorch's profiler with profile_memory=True: bytes per op, as the same program takes on cpu."""

from __future__ import annotations

import collections
import json
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.profiler._memory_profiler import _CATEGORY_TO_INDEX, Category

import hologram_torch
from hologram_torch import _C

D = "hologram"
BOTH = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
N = 96
Program = Callable[[torch.Tensor, torch.Tensor], object]


@pytest.fixture(autouse=True, params=["deferred", "eager"])
def _execution(request: pytest.FixtureRequest) -> Iterator[None]:
    with hologram_torch.execution(request.param):
        yield


def inputs(device: str, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x, w = (torch.randn(N, N, generator=generator).to(dtype) for _ in range(2))
    return x.to(device), w.to(device)


def profiled(program: Program, device: str, dtype: torch.dtype, **more: Any) -> profile:
    x, w = inputs(device, dtype)
    activities = BOTH if device == D else [ProfilerActivity.CPU]
    with profile(activities=activities, profile_memory=True, **more) as p:
        program(x, w)
    return p


def usage(event: Any, device: str) -> int:
    return event.device_memory_usage if device == D else event.cpu_memory_usage


# No program has a number in it: PyTorch makes cpu tensors of those, whatever the device.


def top_level(p: profile, device: str) -> list[tuple[str, int]]:
    """Each outermost call with the bytes that it took or gave back, and what no call did."""
    events = [e for e in p.events() if e.device_type == torch.autograd.DeviceType.CPU]
    found = [(e.name, usage(e, device)) for e in events if e.cpu_parent is None]
    return [(name, nbytes) for name, nbytes in found if nbytes != 0]


def chain(x: torch.Tensor, w: torch.Tensor) -> None:
    y = x * w
    y = y + x
    y = y.tanh()
    y.mul_(w)
    z = y.t()[3:]
    del y
    z.sum()


def products(x: torch.Tensor, w: torch.Tensor) -> None:
    y = x @ w
    y = torch.cat([y, y[:5]])
    y = y[::3].contiguous()
    torch.matmul(y, w, out=torch.empty(y.shape, dtype=y.dtype, device=y.device))


def made(x: torch.Tensor, w: torch.Tensor) -> None:
    a = torch.empty(7, 0, 3, device=x.device)
    b = torch.zeros(7, 3, device=x.device, dtype=torch.int16)
    c = torch.full_like(x, 3)
    d = x.clone()
    e = torch.empty_strided((4, 5), (10, 2), device=x.device)
    f = x.new_empty(3).resize_(1000)
    f.resize_(2000)
    f.untyped_storage().resize_(0)
    a.resize_(9)
    d.set_()
    d.resize_(4)
    del b, c, e, w


def converted(x: torch.Tensor, w: torch.Tensor) -> None:
    y = x.to(torch.complex128)
    z = (x > w).to(torch.int8)
    z = torch.where(z.bool(), x, y.real)
    x.copy_(z)


@pytest.mark.parametrize("program", [chain, products, made, converted])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bytes_of_calls_are_those_of_cpu(program: Program, dtype: torch.dtype) -> None:
    ours = top_level(profiled(program, D, dtype), D)
    assert ours == top_level(profiled(program, "cpu", dtype), "cpu")
    assert len(ours) > 4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int32, torch.complex64])
def test_other_types(dtype: torch.dtype) -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> None:
        y = x * w
        y = y + x
        y = y.abs()

    assert top_level(profiled(program, D, dtype), D) == top_level(
        profiled(program, "cpu", dtype), "cpu"
    )


def test_columns_and_table() -> None:
    p = profiled(chain, D, torch.float32)
    rows = {row.key: row for row in p.key_averages()}
    nbytes = 4 * N * N
    assert rows["aten::mul"].self_device_memory_usage == nbytes
    assert rows["aten::add"].self_device_memory_usage == nbytes
    assert rows["aten::tanh"].self_device_memory_usage == nbytes
    assert rows["aten::mul_"].self_device_memory_usage == 0
    assert rows["aten::sum"].self_device_memory_usage == 4
    # y was bound anew twice, z and the sum ended: outside of any op.
    assert rows["[memory]"].self_device_memory_usage == -3 * nbytes - 4
    assert sum(row.self_cpu_memory_usage for row in rows.values()) == 0
    table = p.key_averages().table(sort_by="self_device_memory_usage", row_limit=-1)
    assert "HOLOGRAM Mem" in table
    assert "36.00 KB" in table


def test_nothing_is_lost() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> None:
        for _ in range(3):
            y = (x @ w).relu()
            y.add_(1).sum().item()
            y.cpu()
            torch.linalg.eigvals(y)
            y[0] = torch.arange(N, device=y.device)
            torch.Tensor.data_ptr(y)
            y += 1
            torch._lazy_clone(y).add_(1)

    p = profiled(program, D, torch.float32)
    assert sum(e.self_device_memory_usage for e in p.events()) == 0
    assert any(e.self_device_memory_usage > 0 for e in p.events())


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    with record_function("forward"):
        loss = model(x).square().mean()
    with record_function("backward"):
        loss.backward()
    with record_function("step"):
        optimizer.step()
    with record_function("zero"):
        optimizer.zero_grad()
    del loss


def training(device: str) -> tuple[torch.nn.Module, torch.optim.Optimizer, torch.Tensor]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(N, 128), torch.nn.Tanh(), torch.nn.Linear(128, 8)
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    return model, optimizer, inputs(device)[0]


def test_training_takes_what_it_takes_on_cpu() -> None:
    found: dict[str, list[int]] = {}
    for device in ("cpu", D):
        things = training(device)
        train(*things)
        with profile(activities=BOTH, profile_memory=True) as p:
            train(*things)
        rows = {row.key: row for row in p.key_averages() if usage(row, device)}
        found[device] = [usage(rows[r], device) for r in ("forward", "backward", "zero")]
        assert sum(
            e.self_device_memory_usage if device == D else e.self_cpu_memory_usage
            for e in p.events()
        ) == 0  # fmt: skip
    # Forward: two activations, the output and its square and mean; the last two leave with it.
    assert found[D][0] == found["cpu"][0]
    # Backward: gradients, less what was kept for them.
    assert found[D][1] == found["cpu"][1]
    assert found[D][2] == found["cpu"][2] == -4 * (N * 128 + 128 + 128 * 8 + 8)


def trace_of(p: profile, folder: Path) -> list[dict[str, Any]]:
    p.export_chrome_trace(str(folder / "trace.json"))
    return json.loads((folder / "trace.json").read_text())["traceEvents"]


def test_rows_in_the_trace(tmp_path: Path) -> None:
    x, _ = inputs(D)
    torch.hologram.synchronize()
    with profile(activities=BOTH, profile_memory=True) as p:
        kept = [x * i for i in range(5)]
        kept[0].sum().item()
        del kept
    rows = [e["args"] for e in trace_of(p, tmp_path) if e["name"] == "[memory]"]
    ours = torch.autograd.DeviceType.PrivateUse1.value
    rows = [row for row in rows if row["Device Type"] == ours]
    assert all(row["Device Id"] == 0 for row in rows)
    assert all(row["Total Reserved"] >= row["Total Allocated"] >= 0 for row in rows)
    live: dict[int, int] = collections.Counter()
    most = 0
    for row in rows:
        if row["Bytes"] > 0:
            # Each tensor has an address of its own, though none is computed.
            assert live[row["Addr"]] == 0
        live[row["Addr"]] += row["Bytes"]
        assert live[row["Addr"]] >= 0
        most = max(most, sum(live.values()))
    assert most == 5 * 4 * N * N + 4
    assert not any(live.values())


def timeline(device: str, path: Path) -> tuple[list[int], list[list[int]]]:
    things = training(device)
    train(*things)
    torch.accelerator.synchronize()
    activities = BOTH if device == D else [ProfilerActivity.CPU]
    with profile(
        activities=activities, profile_memory=True, record_shapes=True, with_stack=True
    ) as p:
        train(*things)
        train(*things)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        p.export_memory_timeline(str(path), device=device if device == "cpu" else f"{D}:0")
    times, sizes = json.loads(path.read_text())
    return times, sizes


def test_timeline(tmp_path: Path) -> None:
    ours = timeline(D, tmp_path / "ours.json")[1]
    theirs = timeline("cpu", tmp_path / "theirs.json")[1]

    def column(sizes: list[list[int]], category: Category) -> list[int]:
        return [row[1 + _CATEGORY_TO_INDEX[category]] for row in sizes]

    weights = 4 * (N * 128 + 128 + 128 * 8 + 8)
    assert set(column(ours, Category.PARAMETER)) == {weights}
    assert set(column(ours, Category.INPUT)) == {4 * N * N}
    assert column(ours, Category.OPTIMIZER_STATE)[-1] == weights
    # On cpu the numbers of the program come and go among the inputs.
    assert min(column(theirs, Category.INPUT)) == 4 * N * N
    for category in (Category.PARAMETER, Category.GRADIENT, Category.ACTIVATION):
        assert max(column(ours, category)) == max(column(theirs, category)), category
        assert column(ours, category)[-1] == column(theirs, category)[-1], category
    assert max(map(sum, ours)) == max(map(sum, theirs))
    assert sum(ours[-1]) == sum(theirs[-1])


def test_results_of_the_fallback_are_memory_of_the_device() -> None:
    hologram_torch.reset_fallback_counts()
    p = profiled(lambda x, w: torch.linalg.eigvals(x), D, torch.float32)
    assert "aten::_linalg_eigvals" in hologram_torch.fallback_counts()
    taken = [e for e in p.events() if e.name == "aten::linalg_eigvals"]
    assert sum(e.device_memory_usage for e in taken) == 8 * N
    assert sum(e.self_device_memory_usage for e in p.events()) == 0


def test_memory_that_is_not_to_be_had() -> None:
    x, _ = inputs(D)
    with profile(activities=BOTH, profile_memory=True) as p, pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 45, device=x.device).fill_(1).sum().item()
    assert any(e.name == "[OutOfMemory]" for e in p.events())


def test_without_the_wish_there_are_none() -> None:
    x, w = inputs(D)
    with profile(activities=BOTH) as p:
        chain(x, w)
    assert all(e.device_memory_usage == 0 for e in p.events())
    assert not any(e.name == "[memory]" for e in p.events())


def test_cpu_activity_alone() -> None:
    x, w = inputs(D)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as p:
        chain(x, w)
    rows = {row.key: row for row in p.key_averages()}
    assert rows["aten::mul"].self_device_memory_usage == 4 * N * N


def test_a_schedule() -> None:
    x, w = inputs(D)
    seen: list[dict[str, int]] = []

    def ready(p: profile) -> None:
        seen.append({r.key: r.self_device_memory_usage for r in p.key_averages()})

    with profile(
        activities=BOTH,
        profile_memory=True,
        schedule=schedule(wait=1, warmup=1, active=1, repeat=2),
        on_trace_ready=ready,
    ) as p:
        for _ in range(6):
            chain(x, w)
            p.step()
    assert [rows["aten::tanh"] for rows in seen] == [4 * N * N] * 2


def test_threads_without_a_profile_are_left_out() -> None:
    x, w = inputs(D)
    with profile(activities=BOTH, profile_memory=True) as p:
        thread = threading.Thread(target=chain, args=(x, w))
        thread.start()
        thread.join()
    assert all(e.device_memory_usage == 0 for e in p.events())


def test_who_asks_only_while_a_profile_is_on() -> None:
    x, w = inputs(D)
    assert _C.profiles_on() == 0
    for activities in (BOTH, [ProfilerActivity.CPU], [ProfilerActivity.PrivateUse1]):
        with profile(activities=activities):
            assert _C.profiles_on() == 1
            chain(x, w)
        assert _C.profiles_on() == 0
    with profile(activities=BOTH):
        with profile(activities=BOTH):  # which drops the outer one
            chain(x, w)
        assert _C.profiles_on() == 0
    assert _C.profiles_on() == 0
