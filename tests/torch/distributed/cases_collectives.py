# SPDX-License-Identifier: MIT
"""Every collective on hologram tensors and, in the same rank, on cpu tensors: the same bits."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from distributed.ranks import both
from torch import Tensor

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.uint8, torch.int8, torch.int32, torch.int64]
OTHERS = [torch.int16, torch.bool, torch.complex64, torch.complex128]


def values(device: str, *shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Return small numbers that differ from rank to rank; on hologram they are still recorded."""
    generator = torch.Generator().manual_seed(100 * seed + dist.get_rank())
    plain = torch.randint(1, 5, shape, generator=generator)
    return plain.to(device).mul(2).to(dtype)


def attempt(call: Callable[[], Any]) -> Any:
    """Return what a call returns, or the first line of what it raises, without the time."""
    try:
        return call()
    except (RuntimeError, ValueError) as error:
        return re.sub(r"^\[.*?\] ", "", str(error).splitlines()[0])


def case_the_backend_is_picked() -> None:
    assert dist.get_backend() in ("undefined", "gloo")
    assert dist.get_default_backend_for_device("hologram") == "gloo"
    assert "hologram" in {d.type for d in dist.group.WORLD._device_types}
    tensor = torch.ones(3)  # a group made without a name serves cpu tensors, too
    dist.all_reduce(tensor)
    assert tensor[0] == dist.get_world_size()


def case_nothing_is_copied() -> None:
    tensor = values("hologram", 1000)
    address = torch.ops.hologram._host_view(tensor).data_ptr()
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    assert torch.ops.hologram._host_view(tensor).data_ptr() == address
    (result,) = work.get_future().value()
    assert result is tensor or result.untyped_storage()._cdata == tensor.untyped_storage()._cdata
    assert work.result()[0].device.type == "hologram"


def case_all_reduce() -> None:
    def program(device: str) -> list[Any]:
        results: list[Any] = []
        ops = ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"]
        for op in ops:
            for dtype in FLOATS + INTEGERS + OTHERS:
                t = values(device, 7, 3, dtype=dtype)
                kind = getattr(dist.ReduceOp, op)
                # Both refuse the same: bit operations of floating numbers and so on.
                fault = attempt(lambda t=t, kind=kind: dist.all_reduce(t, kind))
                results += [f"{op} {dtype} {fault}"] if fault else [t]
        return results

    results = both(program)
    assert sum(isinstance(r, Tensor) for r in results) > 40


def case_broadcast_and_reduce() -> None:
    last = dist.get_world_size() - 1

    def program(device: str) -> list[Any]:
        results: list[Any] = []
        for dtype in FLOATS + INTEGERS + OTHERS:
            t = values(device, 5, 2, dtype=dtype)
            fault = attempt(lambda t=t: dist.broadcast(t, src=last))
            results += [f"{dtype} {fault}"] if fault else [t]
        for root in (0, last):
            t = values(device, 9)
            dist.reduce(t, dst=root, op=dist.ReduceOp.MAX)
            # What gloo leaves in the others' tensors means nothing.
            results += [t] if dist.get_rank() == root else []
        return results

    both(program)


def case_gathers() -> None:
    world = dist.get_world_size()

    def program(device: str) -> list[Any]:
        results: list[Any] = []
        t = values(device, 4, 2)
        parts = [torch.empty_like(t) for _ in range(world)]
        dist.all_gather(parts, t)
        results.append(parts)
        whole = torch.empty(4 * world, 2, device=device)
        dist.all_gather_into_tensor(whole, t * 2)
        results.append(whole)
        stacked = torch.empty(world, 4, 2, device=device)
        results += [attempt(lambda: dist.all_gather_into_tensor(stacked, t * 3))]
        to = [torch.empty_like(t) for _ in range(world)] if dist.get_rank() == 0 else None
        dist.gather(t, to, dst=0)
        results.append(to)
        mine = torch.empty(3, device=device)
        given = [values(device, 3, seed=k) for k in range(world)] if dist.get_rank() == 1 else None
        dist.scatter(mine, given, src=1)
        results.append(mine)
        return results

    both(program)


def case_reduce_scatters() -> None:
    world = dist.get_world_size()

    def program(device: str) -> list[Tensor]:
        a, b = torch.empty(3, 2, device=device), torch.empty(3, 2, device=device)
        dist.reduce_scatter(a, [values(device, 3, 2, seed=k) for k in range(world)])
        dist.reduce_scatter_tensor(b, values(device, 3 * world, 2), op=dist.ReduceOp.AVG)
        return [a, b]

    both(program)


def case_all_to_all() -> None:
    world, rank = dist.get_world_size(), dist.get_rank()

    def program(device: str) -> list[Any]:
        even = torch.empty(2 * world, device=device)
        dist.all_to_all_single(even, values(device, 2 * world))
        sent = [r + 1 for r in range(world)]  # r + 1 elements to rank r
        uneven = torch.empty((rank + 1) * world, device=device)
        dist.all_to_all_single(uneven, values(device, sum(sent)), [rank + 1] * world, sent)
        lists = [torch.empty(rank + 1, 2, device=device) for _ in range(world)]
        given = [values(device, r + 1, 2, seed=r) for r in range(world)]
        fault = attempt(lambda: dist.all_to_all(lists, given))
        return [even, uneven, fault or lists]

    both(program)


def case_barriers() -> None:
    dist.barrier()
    dist.barrier(async_op=True).wait()
    if torch.__version__ >= "2.14":  # before, PyTorch looks at the default backend alone
        dist.monitored_barrier()


def case_point_to_point() -> None:
    world, rank = dist.get_world_size(), dist.get_rank()
    after, before = (rank + 1) % world, (rank - 1) % world

    def program(device: str) -> list[Any]:
        results: list[Any] = []
        for dtype in FLOATS + INTEGERS + OTHERS:
            got = torch.zeros(6, device=device, dtype=dtype)
            works = [
                dist.isend(values(device, 6, dtype=dtype), after, tag=3),
                dist.irecv(got, before, tag=3),
            ]
            for work in works:
                work.wait()
            results.append(got)
        got = torch.zeros(4, device=device)
        if rank == 0:
            dist.send(values(device, 4), 1)
        elif rank == 1:
            results.append(dist.recv(got))  # from any: the rank it came from
        results.append(got)
        got = torch.zeros(8, device=device)
        ops = [
            dist.P2POp(dist.isend, values(device, 8), after),
            dist.P2POp(dist.irecv, got, before),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        results.append(got * 2)
        return results

    both(program)


def case_coalesced() -> None:
    world = dist.get_world_size()
    group = dist.group.WORLD

    def program(device: str) -> list[Any]:
        reduced = [values(device, 3, seed=k) for k in range(3)]
        with dist._coalescing_manager(group, async_ops=True) as manager:
            for t in reduced:
                dist.all_reduce(t)
        manager.wait()
        gathered = [torch.empty(2 * world, device=device) for _ in range(2)]
        with dist._coalescing_manager(group):
            for k, t in enumerate(gathered):
                dist.all_gather_into_tensor(t, values(device, 2, seed=k))
        scattered = [torch.empty(2, device=device) for _ in range(2)]
        with dist._coalescing_manager(group):
            for k, t in enumerate(scattered):
                dist.reduce_scatter_tensor(t, values(device, 2 * world, seed=k))
        sent = [values(device, 5), values(device, 300, dtype=torch.float64)]
        dist._broadcast_coalesced(group, sent, 1024, 0)
        return [reduced, gathered, scattered, sent]

    both(program)


def case_objects() -> None:
    world, rank = dist.get_world_size(), dist.get_rank()
    for device in (None, torch.device("hologram")):
        held = {"rank": rank, "tensor": torch.full((2,), rank, device="hologram")}
        all_of: list[Any] = [None] * world
        dist.all_gather_object(all_of, held)
        assert [o["rank"] for o in all_of] == list(range(world))
        assert all_of[1]["tensor"].device.type == "hologram"
        sent = [held, "text"] if rank == 0 else [None, None]
        dist.broadcast_object_list(sent, src=0, device=device)
        assert sent[0]["rank"] == 0
        mine: list[Any] = [None]
        given = [("part", r) for r in range(world)] if rank == 1 else None
        dist.scatter_object_list(mine, given, src=1)
        assert mine == [("part", rank)]
        got: list[Any] | None = [None] * world if rank == 0 else None
        dist.gather_object(held, got, dst=0)
        assert got is None or [o["rank"] for o in got] == list(range(world))
        if rank == 0:
            dist.send_object_list([pickle.dumps(held), 5], dst=1, device=device)
        elif rank == 1:
            objects: list[Any] = [None, None]
            dist.recv_object_list(objects, src=0, device=device)
            assert objects[1] == 5


def case_groups() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    pairs = [dist.new_group([0, 1]), dist.new_group(list(range(world)), backend="gloo")]
    for group in pairs:
        if rank in dist.get_process_group_ranks(group):
            both(lambda device, g=group: _reduced(device, g))
    if torch.__version__ >= "2.15":  # before, PyTorch wants a group that is bound to a device
        half = dist.split_group(split_ranks=[[r] for r in range(world)])
        assert half is not None
        both(lambda device: _reduced(device, half))
    named = dist.new_group(list(range(world)), backend="cpu:gloo,hologram:gloo")
    both(lambda device: _reduced(device, named))
    for group in [*pairs, named]:
        if rank in dist.get_process_group_ranks(group):
            dist.destroy_process_group(group)


def _reduced(device: str, group: dist.ProcessGroup) -> Tensor:
    t = values(device, 4)
    dist.all_reduce(t, group=group)
    return t


def case_strides_and_empty() -> None:
    world = dist.get_world_size()

    def program(device: str) -> list[Any]:
        results: list[Any] = []
        turned = values(device, 4, 6).t()
        results += [attempt(lambda: dist.all_reduce(turned)), turned.contiguous()]
        steps = values(device, 12)[::2]
        results += [attempt(lambda: dist.broadcast(steps, 0)), steps.contiguous()]
        part = values(device, 6, 4)[2:4]  # contiguous, in the middle of its storage
        dist.all_reduce(part)
        results += [part.clone(), part._base.clone()]
        empty = values(device, 0)
        results += [attempt(lambda: dist.all_reduce(empty)), empty]
        single = values(device)
        dist.all_reduce(single)
        results.append(single)
        pieces = list(torch.zeros(world, 3, device=device).unbind())
        dist.all_gather(pieces, values(device, 3))
        results.append(pieces)
        return results

    both(program)


def case_async_work_is_ordered() -> None:
    """What is recorded before, beside and after an asynchronous collective sees what it should."""

    def program(device: str) -> list[Tensor]:
        results = []
        for size in (10, 100_000):
            whole = values(device, 2, size)
            first, second = whole.unbind()
            first.mul_(3).add_(1)  # recorded before: is sent
            copy = first + 0  # reads what it was
            work = dist.all_reduce(first, async_op=True)
            second.mul_(5)  # the same storage, other bytes
            second.add_(first.numel())
            work.wait()
            first.sub_(1)  # recorded after: sees the sum
            results += [copy, first, second, whole + 1]
        return results

    both(program)


def case_futures() -> None:
    world = dist.get_world_size()

    def program(device: str) -> list[Tensor]:
        t = values(device, 50)
        future = dist.all_reduce(t, async_op=True).get_future()
        halved = future.then(lambda f: f.value()[0].div(world))
        return [halved.wait(), future.value()[0]]

    both(program)


def case_many_in_flight() -> None:
    def program(device: str) -> list[Tensor]:
        tensors = [values(device, 200, seed=k) for k in range(40)]
        works = [dist.all_reduce(t.mul_(k), async_op=True) for k, t in enumerate(tensors)]
        for work in reversed(works):
            work.wait()
            assert work.is_completed()
            assert work.is_success()
        kept = values(device, 1000)
        dist.all_reduce(kept, async_op=True)  # the work object is dropped at once
        dist.barrier()
        return [*tensors, kept]

    both(program)


def case_functional_collectives() -> None:
    world = dist.get_world_size()
    group = list(range(world))

    def program(device: str) -> list[Tensor]:
        t = values(device, 2 * world, 3)
        results = [
            funcol.all_reduce(t, "sum", group),
            funcol.all_reduce(t, "avg", group),
            funcol.all_gather_tensor(t, 0, group),
            funcol.all_gather_tensor(t, 1, group),
            funcol.reduce_scatter_tensor(t, "sum", 0, group),
            funcol.broadcast(t, 1, group),
            funcol.all_to_all_single(t, None, None, group),
            *funcol.all_reduce_coalesced([t, t + 1], "sum", group),
            *funcol.all_gather_into_tensor_coalesced([t, t + 1], group),
            *funcol.reduce_scatter_tensor_coalesced([t, t + 1], "sum", [0, 0], group),
        ]
        results = [funcol.wait_tensor(r) for r in results]
        leaf = values(device, 4).requires_grad_()
        funcol.all_gather_tensor_autograd(leaf, 0, group).square().sum().backward()
        return [*results, leaf.grad]

    both(program)


def case_sparse() -> None:
    def program(device: str) -> list[Tensor]:
        rank = dist.get_rank()
        at = torch.tensor([[rank, rank + 2]])
        t = torch.sparse_coo_tensor(at, torch.tensor([1.0, 2.0]), (9,)).to(device)
        dist.all_reduce(t)
        return [t.to_dense()]

    both(program)


def case_ops_are_recorded_again() -> None:
    """A collective does not end deferred execution of the tensors that it had."""
    from hologram_torch import _C

    t = values("hologram", 1000)
    dist.all_reduce(t)
    before = _C.recorder_stats()["ops_recorded"]
    t.mul_(2).add_(1)
    if torch.hologram.is_available() and _C.is_deferring():
        assert _C.recorder_stats()["ops_recorded"] - before == 2


def case_faults_are_those_of_gloo() -> None:
    """A wrong call says on hologram what it says on cpu."""
    world = dist.get_world_size()

    def program(device: str) -> list[Any]:
        t = values(device, 4)
        faults = [
            attempt(lambda: dist.all_gather([t.clone() for _ in range(world + 1)], t)),
            attempt(lambda: dist.all_gather_into_tensor(torch.empty(3, device=device), t)),
            attempt(lambda: dist.reduce_scatter_tensor(torch.empty(3, device=device), t)),
            attempt(lambda: dist.all_to_all_single(t.clone(), t, [1] * world, [9] * world)),
            attempt(lambda: dist.scatter(t, [t], src=dist.get_rank())) if world != 1 else "",
            attempt(lambda: dist.broadcast(t, src=world)),
            attempt(lambda: dist.all_gather([t.int() for _ in range(world)], t)),
        ]
        assert all(isinstance(f, str) for f in faults), faults
        return faults

    both(program)


def case_devices_do_not_mix() -> None:
    t = values("hologram", 2)
    world = dist.get_world_size()
    said = attempt(lambda: dist.all_gather([torch.empty(2) for _ in range(world)], t))
    assert "cpu" in said
    assert "hologram" in said
    said = attempt(lambda: dist.all_gather_into_tensor(torch.empty(2 * world), t))
    assert "all must be on one device" in said
