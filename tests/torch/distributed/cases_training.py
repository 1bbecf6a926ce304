# SPDX-License-Identifier: MIT
"""DDP, FSDP2, tensor and pipeline parallelism and checkpoints, on hologram beside cpu tensors."""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

STEPS = 3


class Net(nn.Module):
    """Two branches, one of which a step may leave out."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.norm = nn.LayerNorm(16)
        self.second = nn.Linear(16, 16)
        self.spare = nn.Linear(16, 16)
        self.last = nn.Linear(16, 4)

    def forward(self, x: Tensor, spare: bool = True) -> Tensor:
        x = torch.relu(self.norm(self.first(x)))
        x = x + self.second(x)
        if spare:
            x = x + self.spare(x)
        return self.last(x)


def make(device: str) -> Net:
    torch.manual_seed(7)
    return Net().to(device)


def batch(device: str, step: int, rank: int | None = None) -> tuple[Tensor, Tensor]:
    """Return what a rank learns from at a step; no rank: what all of them do together."""
    ranks = range(dist.get_world_size()) if rank is None else [rank]
    parts = []
    for r in ranks:
        generator = torch.Generator().manual_seed(1000 * step + r)
        x = torch.randn(6, 8, generator=generator)
        parts.append((x, torch.randint(4, (6,), generator=generator)))
    x, y = (torch.cat(part).to(device) for part in zip(*parts, strict=True))
    return x, y


def loss_of(model: nn.Module, data: tuple[Tensor, Tensor], **kwargs: Any) -> Tensor:
    return nn.functional.cross_entropy(model(data[0], **kwargs).float(), data[1])


def close(ours: Any, theirs: Any, tolerance: float = 1e-5) -> None:
    """Check numbers, tensors, lists and dicts of them against those of another run."""
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for key, value in theirs.items():
            close(ours[key], value, tolerance)
    elif isinstance(theirs, (list, tuple)):
        for a, b in zip(ours, theirs, strict=True):
            close(a, b, tolerance)
    else:
        torch.testing.assert_close(ours.cpu(), theirs.cpu(), rtol=tolerance, atol=tolerance)


def compare(program: Callable[[str], Any], tolerance: float = 1e-5) -> Any:
    theirs = program("cpu")
    ours = program("hologram")
    close(ours, theirs, tolerance)
    return ours


def gradients(model: nn.Module) -> list[Tensor]:
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def train(model: nn.Module, device: str, **kwargs: Any) -> list[Tensor]:
    """Take some steps; return the losses and the weights."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, batch(device, step, dist.get_rank()), **kwargs)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses + [p.detach().clone() for p in model.parameters()]


def case_ddp_gradients_are_those_of_one_process() -> None:
    for options in (
        {},
        {"gradient_as_bucket_view": True},
        {"static_graph": True},
        {"find_unused_parameters": True},
        {"bucket_cap_mb": 0.0005},
        {"bucket_cap_mb": 0.0005, "gradient_as_bucket_view": True},
        {"broadcast_buffers": False, "init_sync": False},
    ):
        model = DistributedDataParallel(make("hologram"), **options)
        alone = make("hologram")
        for step in range(STEPS):  # the second step has other buckets
            model.zero_grad()
            alone.zero_grad()
            loss_of(model, batch("hologram", step, dist.get_rank())).backward()
            loss_of(alone, batch("hologram", step)).backward()
            close(gradients(model), gradients(alone))
        assert all(p.grad.device.type == "hologram" for p in model.parameters())


def case_ddp_trains_as_on_cpu() -> None:
    for options in ({}, {"gradient_as_bucket_view": True}, {"static_graph": True}):
        compare(lambda device, o=options: train(DistributedDataParallel(make(device), **o), device))
    compare(
        lambda device: train(
            DistributedDataParallel(make(device), find_unused_parameters=True), device, spare=False
        )
    )


def case_ddp_no_sync() -> None:
    def program(device: str) -> list[Tensor]:
        model = DistributedDataParallel(make(device), gradient_as_bucket_view=True)
        with model.no_sync():
            loss_of(model, batch(device, 0, dist.get_rank())).backward()
        apart = [g.clone() for g in gradients(model)]
        loss_of(model, batch(device, 1, dist.get_rank())).backward()
        return apart + gradients(model)

    compare(program)


def case_ddp_hooks() -> None:
    def train_with(hook: Callable[..., Any], state: Callable[[], Any]) -> None:
        def program(device: str) -> list[Tensor]:
            model = DistributedDataParallel(make(device))
            model.register_comm_hook(state(), hook)
            return train(model, device)

        compare(program, 2e-2)

    train_with(default_hooks.allreduce_hook, lambda: None)
    train_with(default_hooks.fp16_compress_hook, lambda: None)
    train_with(default_hooks.bf16_compress_hook, lambda: None)
    train_with(
        powerSGD_hook.powerSGD_hook,
        lambda: powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=4, start_powerSGD_iter=2
        ),
    )


def case_ddp_communicates_during_backward() -> None:
    model = DistributedDataParallel(make("hologram"), bucket_cap_mb=0.0005)
    events: list[str] = []

    def hook(state: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        events.append("sent")
        return default_hooks.allreduce_hook(None, bucket)

    # DDP compares the annotations themselves, which are strings in this module.
    hook.__annotations__ = {"bucket": dist.GradBucket, "return": torch.futures.Future[Tensor]}
    model.register_comm_hook(None, hook)
    for parameter in model.module.first.parameters():
        parameter.register_hook(lambda g: events.append("first layer"))
    for step in range(2):
        events.clear()
        loss_of(model, batch("hologram", step, dist.get_rank())).backward()
    assert events.count("sent") > 2
    assert events.index("sent") < events.index("first layer")


def case_ddp_sparse_gradients() -> None:
    def program(device: str) -> list[Tensor]:
        torch.manual_seed(3)
        model = nn.Sequential(nn.Embedding(20, 4, sparse=True), nn.Linear(4, 2)).to(device)
        parallel = DistributedDataParallel(model)
        positions = torch.arange(5).to(device) + 3 * dist.get_rank()
        parallel(positions).square().sum().backward()
        return [model[0].weight.grad.to_dense(), model[1].weight.grad]

    compare(program)


def images(device: str, step: int, rank: int, rows: int) -> Tensor:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return (torch.randn(rows, 3, 6, 5, generator=generator) * 2 + rank).to(device)


def case_sync_batch_norm_of_uneven_batches() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    rows = [r + 1 for r in range(world)]
    rows[-1] = 0  # one rank has nothing
    for options in ({}, {"affine": False}, {"track_running_stats": False}, {"momentum": None}):
        synced = nn.SyncBatchNorm(3, **options).to("hologram")
        alone = nn.BatchNorm2d(3, **options)
        for step in range(2):
            x = images("hologram", step, rank, rows[rank]).requires_grad_()
            if step == 1:
                x = x.detach().contiguous(memory_format=torch.channels_last).requires_grad_()
            whole = torch.cat([images("cpu", step, r, n) for r, n in enumerate(rows)])
            whole.requires_grad_()
            y, wanted = synced(x), alone(whole)
            y.pow(3).sum().backward()
            wanted.pow(3).sum().backward()
            start = sum(rows[:rank])
            close(y, wanted[start : start + rows[rank]], 1e-4)
            if rows[rank]:
                close(x.grad, whole.grad[start : start + rows[rank]], 1e-3)
            assert y.device.type == "hologram"
            assert not y.numel() or y.stride() == x.stride()
        close(dict(synced.named_buffers()), dict(alone.named_buffers()))
        for ours, theirs in zip(synced.parameters(), alone.parameters(), strict=True):
            total = torch.zeros_like(ours) if ours.grad is None else ours.grad.clone()
            dist.all_reduce(total)
            close(total, theirs.grad, 1e-3)


def case_sync_batch_norm_trains_as_one_process() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()

    def layers() -> nn.Module:
        torch.manual_seed(23)
        parts = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 3)]
        return nn.Sequential(*parts, nn.BatchNorm2d(2))

    def steps(model: nn.Module, device: str, ranks: list[int]) -> list[Tensor]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for step in range(STEPS):
            optimizer.zero_grad()
            x = torch.cat([images(device, step, r, 4) for r in ranks])
            (model(x) - 1).pow(4).mean().backward()
            optimizer.step()
        return [t.detach() for t in model.state_dict().values()]

    synced = nn.SyncBatchNorm.convert_sync_batchnorm(layers()).to("hologram")
    ours = steps(DistributedDataParallel(synced), "hologram", [rank])
    for device in ("hologram", "cpu"):
        close(ours, steps(layers().to(device), device, list(range(world))), 1e-4)


def case_sync_batch_norm_of_half_types() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    for dtype in (torch.float16, torch.bfloat16):
        synced = nn.SyncBatchNorm(3).to("hologram")
        alone = nn.BatchNorm2d(3).double()
        x = images("hologram", 0, rank, 4).to(dtype).requires_grad_()
        whole = torch.cat([images("cpu", 0, r, 4) for r in range(world)]).to(dtype).double()
        whole.requires_grad_()
        y, wanted = synced(x), alone(whole)
        assert y.dtype == dtype
        y.float().pow(3).sum().backward()
        wanted.pow(3).sum().backward()
        part = slice(4 * rank, 4 * rank + 4)
        close(y.double(), wanted[part], 2e-2)
        assert x.grad.dtype == dtype
        close(x.grad.double(), whole.grad[part], 5e-2)
        close(synced.running_var.double(), alone.running_var, 1e-4)


def case_fsdp2() -> None:
    policies = (
        (MixedPrecisionPolicy(), 1e-5),
        (MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32), 5e-2),
    )
    for policy, tolerance in policies:
        for reshard in (True, False):

            def program(
                device: str, policy: MixedPrecisionPolicy = policy, reshard: bool = reshard
            ) -> list[Any]:
                mesh = init_device_mesh(device, (dist.get_world_size(),))
                model = make(device)
                for part in (model.first, model.second, model.spare):
                    fully_shard(part, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard)
                fully_shard(model, mesh=mesh, mp_policy=policy)
                results = train(model, device)
                norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                whole = [t.full_tensor() for t in [*results[STEPS:], norm]]
                assert all(t.device.type == device for t in whole)
                return results[:STEPS] + whole

            compare(program, tolerance)


def case_fsdp2_is_as_one_process() -> None:
    mesh = init_device_mesh("hologram", (dist.get_world_size(),))
    model, alone = make("hologram"), make("hologram")
    fully_shard(model.second, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for step in range(2):
        model.zero_grad()
        alone.zero_grad()
        loss_of(model, batch("hologram", step, dist.get_rank())).backward()
        loss_of(alone, batch("hologram", step)).backward()
        close([p.grad.full_tensor() for p in model.parameters()], gradients(alone))


def case_dtensor() -> None:
    world = dist.get_world_size()

    def program(device: str) -> list[Tensor]:
        mesh = init_device_mesh(device, (world,))
        torch.manual_seed(5)
        a, b = torch.randn(8, 12).to(device), torch.randn(12, 8).to(device)
        results = []
        for left in (Replicate(), Shard(0), Shard(1)):
            for right in (Replicate(), Shard(0), Shard(1)):
                x = distribute_tensor(a.clone().requires_grad_(), mesh, [left])
                y = distribute_tensor(b, mesh, [right])
                product = (x @ y).relu().sum(0)
                results.append(product.full_tensor())
                product.square().sum().backward()
                results.append(x.grad.full_tensor())
        moved = distribute_tensor(a, mesh, [Shard(0)]).redistribute(mesh, [Shard(1)])
        results.append(moved.to_local())
        parts = DTensor.from_local(a.clone(), mesh, [Partial()])
        results += [parts.full_tensor(), parts.redistribute(mesh, [Shard(0)]).to_local()]
        uneven = distribute_tensor(torch.arange(world * 2.0 - 1).to(device), mesh, [Shard(0)])
        results += [uneven.to_local(), (uneven * 2).full_tensor()]
        assert all(t.device.type == device for t in results)
        return results

    compare(program)


def case_dtensor_attention() -> None:
    world = dist.get_world_size()
    mesh = init_device_mesh("hologram", (world,))
    generator = torch.Generator().manual_seed(31)
    masks = [None, torch.ones(5, 5, dtype=torch.bool).tril()]
    masks += [torch.randn(s, generator=generator) for s in ((4, 4, 5, 5), (4, 1, 5, 5))]
    for mask in masks:
        for shared in (4, 1):  # heads of the keys
            given = [torch.randn(4, n, 5, 8, generator=generator) for n in (4, shared, shared)]
            alone = [t.clone().requires_grad_() for t in given]
            wanted = nn.functional.scaled_dot_product_attention(*alone, mask, enable_gqa=True)
            wanted.square().sum().backward()
            for place in (Replicate(), Shard(0), Shard(1), Shard(2)):
                split = [distribute_tensor(t.to("hologram"), mesh, [place]) for t in given]
                for t in split:
                    t.requires_grad_()
                whole = None if mask is None else mask.to("hologram")
                if mask is not None:
                    whole = distribute_tensor(whole, mesh, [Replicate()])
                y = nn.functional.scaled_dot_product_attention(*split, whole, enable_gqa=True)
                y.square().sum().backward()
                # Batches and heads stay where they are, but for heads that share keys elsewhere.
                stays = place == Shard(0) or (place == Shard(1) and shared % world == 0)
                assert y.placements == ((place if stays else Replicate()),)
                ours = [y, *(t.grad for t in split)]
                close([t.full_tensor() for t in ours], [wanted, *(t.grad for t in alone)], 1e-4)


class Block(nn.Module):
    """The shape of a transformer's feed-forward part."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 32)
        self.down = nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def make_block(device: str) -> Block:
    torch.manual_seed(11)
    return Block().to(device)


def parallel_block(device: str, mesh: DeviceMesh, plan: dict[str, Any]) -> nn.Module:
    return parallelize_module(make_block(device), mesh, plan)


def case_tensor_parallel() -> None:
    plain = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    sequence = {
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Replicate()),
    }

    def program(device: str) -> list[Tensor]:
        mesh = init_device_mesh(device, (dist.get_world_size(),))
        torch.manual_seed(13)
        x = torch.randn(3, 8, 8).to(device)
        alone = make_block(device)
        results = []
        for plan in (plain, sequence):
            model = parallel_block(device, mesh, plan)
            alone.zero_grad()
            rows = x if plan is plain else x.chunk(dist.get_world_size(), 1)[dist.get_rank()]
            y, wanted = model(rows), alone(x)
            close(y, wanted)
            y.square().sum().backward()
            wanted.square().sum().backward()
            close(model.up.weight.grad.full_tensor(), alone.up.weight.grad, 1e-4)
            results += [y.detach(), model.up.weight.grad.full_tensor()]
        return results

    compare(program, 1e-4)


def case_meshes() -> None:
    world = dist.get_world_size()
    if world < 4:
        return

    def program(device: str) -> list[Tensor]:
        mesh = init_device_mesh(device, (world // 2, 2), mesh_dim_names=("data", "tensor"))
        plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
        model = fully_shard(parallel_block(device, mesh["tensor"], plan), mesh=mesh["data"])
        x = torch.ones(2, 8, device=device) * (1 + mesh["data"].get_local_rank())
        model(x).square().sum().backward()
        return [p.grad.full_tensor() for p in model.parameters()]

    compare(program, 1e-4)


def case_pipelines() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()

    def program(device: str) -> list[Tensor]:
        results = []
        for schedule in (ScheduleGPipe, Schedule1F1B):
            torch.manual_seed(17)
            layers = [nn.Sequential(nn.Linear(8, 8), nn.Tanh()).to(device) for _ in range(world)]
            alone = copy.deepcopy(layers)
            stage = PipelineStage(layers[rank], rank, world, torch.device(device))
            run = schedule(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
            x, y = torch.randn(8, 8).to(device), torch.randn(8, 8).to(device)
            losses: list[Tensor] = []
            if rank == 0:
                run.step(x)
            elif rank == world - 1:
                results.append(run.step(target=y, losses=losses).detach())
            else:
                run.step()
            results += losses
            for a, b in zip(x.chunk(4), y.chunk(4), strict=True):
                nn.functional.mse_loss(nn.Sequential(*alone)(a), b).div(4).backward()
            close(gradients(layers[rank]), gradients(alone[rank]))
            results += gradients(layers[rank])
        return results

    compare(program)


def sharded(device: str, parts: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return a model after a step; each group of `parts` ranks holds it in as many shards."""
    world = dist.get_world_size()
    mesh = init_device_mesh(device, (world // parts, parts), mesh_dim_names=("copies", "shards"))
    model = fully_shard(make(device), mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loss_of(model, batch(device, 0, dist.get_rank())).backward()
    optimizer.step()
    return model, optimizer


def case_checkpoints_are_resharded() -> None:
    world = dist.get_world_size()
    folder = [tempfile.mkdtemp()] if dist.get_rank() == 0 else [""]
    dist.broadcast_object_list(folder, src=0)
    whole = StateDictOptions(full_state_dict=True)
    model, optimizer = sharded("hologram", world)
    names = ("model", "optimizer")
    dcp.save(
        dict(zip(names, get_state_dict(model, optimizer), strict=True)), checkpoint_id=folder[0]
    )
    saved = get_model_state_dict(model, options=whole)
    for device in ("hologram", "cpu"):
        for parts in (1, world // 2, world):
            other, its = sharded(device, parts)
            with torch.no_grad():
                for parameter in other.parameters():
                    parameter.zero_()
            states = dict(zip(names, get_state_dict(other, its), strict=True))
            dcp.load(states, checkpoint_id=folder[0])
            set_state_dict(
                other, its, model_state_dict=states["model"], optim_state_dict=states["optimizer"]
            )
            close(get_model_state_dict(other, options=whole), saved, 0.0)
            loss_of(other, batch(device, 1, dist.get_rank())).backward()
            its.step()
    alone = make("hologram")  # one process, without a group
    state = {"model": alone.state_dict()}
    dcp.load(state, checkpoint_id=folder[0], no_dist=True)
    close(alone.state_dict(), saved, 0.0)
    future = dcp.async_save({"model": alone.state_dict()}, checkpoint_id=folder[0] + "/later")
    with torch.no_grad():
        alone.first.weight.zero_()  # what is saved is what was there
    future.result()
    dcp.load(state, checkpoint_id=folder[0] + "/later")
    close(state["model"], saved, 0.0)
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(folder[0])
