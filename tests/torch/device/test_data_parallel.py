# SPDX-License-Identifier: MIT
"""``torch.nn.DataParallel``, which takes the accelerator that is there, and what is below it."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn.parallel import comm, parallel_apply, replicate
from torch.nn.parallel.scatter_gather import gather, scatter
from torch.utils.checkpoint import checkpoint

DEVICE = torch.device("hologram", 0)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Linear(8, 3))


@pytest.mark.parametrize("place", ["cpu", "hologram"])
@pytest.mark.parametrize("recompute", [False, True])
def test_a_model_learns_as_without_it(place, recompute):
    expected = model()
    parallel = nn.DataParallel(copy.deepcopy(expected))
    assert {p.device for p in parallel.parameters()} == {DEVICE}
    x = torch.randn(6, 4)
    mine, theirs = (x.to(p, copy=True).requires_grad_() for p in (place, "cpu"))
    loss = checkpoint(parallel, mine, use_reentrant=False) if recompute else parallel(mine)
    loss.square().sum().backward()
    expected(theirs).square().sum().backward()
    assert loss.device == DEVICE and mine.grad.device == mine.device
    torch.testing.assert_close(mine.grad.cpu(), theirs.grad)
    for ours, other in zip(parallel.module.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(ours.grad.cpu(), other.grad)


def test_inputs_of_all_kinds_arrive():
    class Keep(nn.Module):
        def forward(self, x, parts, factor, scale=1):
            return {"sum": (x + parts["b"][0]) * scale, "factor": factor}

    x, b = torch.randn(3, 2, dtype=torch.complex64), torch.randn(3, 2)
    got = nn.DataParallel(Keep())(x, {"b": [b]}, 5, scale=2.0)
    assert got["factor"] == 5 and got["sum"].device == DEVICE
    torch.testing.assert_close(got["sum"].cpu(), (x + b) * 2)


def test_hooks_of_saved_tensors_see_the_device_alone():
    seen = []

    def pack(x):
        seen.append(x.device)
        return x

    parallel = nn.DataParallel(nn.Linear(5, 4))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        parallel(torch.randn(3, 5)).sum().backward()
    assert seen and set(seen) == {DEVICE}


def test_replicas_share_the_work_and_add_their_gradients():
    # Both replicas are on one device, which is all that this machine has.
    expected = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3, dtype=torch.float32))
    original = copy.deepcopy(expected).to(DEVICE)
    x = torch.randn(5, 4)
    inputs = scatter(x, [0, 0])
    assert [i.shape[0] for i in inputs] == [3, 2] and {i.device for i in inputs} == {DEVICE}
    outputs = parallel_apply(replicate(original, [0, 0]), inputs, devices=[0, 0])
    y = gather(outputs, 0)
    y.square().sum().backward()
    expected(x).square().sum().backward()
    for ours, other in zip(original.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(ours.grad.cpu(), other.grad)


def test_a_wrapper_over_two_indices_gives_one_result():
    expected = nn.Linear(4, 3)
    parallel = nn.DataParallel(copy.deepcopy(expected).to(DEVICE), device_ids=[0, 0])
    x = torch.randn(5, 4)
    torch.testing.assert_close(parallel(x).detach().cpu(), expected(x).detach())
    with torch.no_grad():
        torch.testing.assert_close(parallel(x.to(DEVICE)).cpu(), expected(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.complex64])
def test_tensors_go_out_and_come_back(dtype):
    x = torch.randint(0, 2, (2, 5)).to(dtype)
    real = torch.view_as_real(x) if dtype.is_complex else x
    parts = comm.scatter(x, [0, 0, 0], chunk_sizes=[1, 3, 1], dim=1)
    assert [p.shape[1] for p in parts] == [1, 3, 1]
    assert torch.equal(torch.cat([p.cpu() for p in parts], 1), real)
    for back, where in ((0, DEVICE), (None, DEVICE), ("cpu", torch.device("cpu"))):
        whole = comm.gather([x[:, :2].to(DEVICE), x[:, 2:].to(DEVICE)], 1, destination=back)
        assert whole.device == where and torch.equal(whole.cpu(), real)
    copies = comm.broadcast(x, [0, 0])
    assert len(copies) == 2 and all(torch.equal(c.cpu(), real) for c in copies)
    first, second = comm.broadcast_coalesced([x.to(DEVICE), x[:1].to(DEVICE)], [0, 0])
    assert torch.equal(second[0].cpu(), real) and torch.equal(second[1].cpu(), real[:1])
    assert first[0].data_ptr() != second[0].data_ptr()


def test_results_go_where_the_caller_says():
    x = torch.arange(10.0).view(2, 5)
    out = [torch.empty(2, 2, device=DEVICE), torch.empty(2, 3, device=DEVICE)]
    assert comm.scatter(x, out=out, dim=1)[1] is out[1]
    assert torch.equal(out[1].cpu(), x[:, 2:])
    for place in ("cpu", "hologram"):
        whole = torch.empty(2, 5, device=place)
        assert comm.gather(out, 1, out=whole) is whole and torch.equal(whole.cpu(), x)
    copies = [torch.empty(2, 5, device=DEVICE) for _ in range(2)]
    comm.broadcast(x, out=copies)
    assert all(torch.equal(c.cpu(), x) for c in copies)
    sums = comm.reduce_add_coalesced([[x.to(DEVICE)], [x.to(DEVICE)]], 0)
    assert torch.equal(sums[0].cpu(), 2 * x)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: comm.scatter(x, []), "scatter: no device is named"),
        (
            lambda x: comm.scatter(x, [0, 0], chunk_sizes=[5], dim=1),
            "there are 2 devices and 1 chunk sizes",
        ),
        (lambda x: comm.scatter(x, out=[x]), r"out\[0\] is on 'cpu'"),
        (
            lambda x: comm.scatter(x, out=[x[:1].to(DEVICE)]),
            "have 1 elements in dimension 0, and the input has 2",
        ),
        (
            lambda x: comm.scatter(x, out=[x[:, :1].to(DEVICE)]),
            r"has shape \[2, 5\], and its 'out' \[2, 1\]",
        ),
        (lambda x: comm.gather([]), "gather: there is no tensor"),
        (
            lambda x: comm.gather([x], out=x[:1]),
            r"the result has shape \[2, 5\], and 'out' \[1, 5\]",
        ),
        (lambda x: comm.broadcast(x, []), "broadcast: no device is named"),
        (lambda x: comm.broadcast(x, out=[x]), r"out\[0\] is on 'cpu'"),
        (
            lambda x: comm.broadcast(x, out=[x[:1].to(DEVICE)]),
            r"has shape \[2, 5\], and a tensor of 'out' \[1, 5\]",
        ),
        (lambda x: comm.broadcast_coalesced([x], [0]), "tensor 0 is on cpu"),
    ],
)
def test_what_cannot_be_done_is_refused(call, message):
    with pytest.raises(RuntimeError, match=message):
        call(torch.zeros(2, 5))
