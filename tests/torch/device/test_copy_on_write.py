# SPDX-License-Identifier: MIT
"""Copy-on-write clones: memory is shared until one of the holders is written."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

is_cow = torch._C._is_cow_tensor

pytestmark = pytest.mark.skipif(
    not hasattr(torch.Tensor, "_lazy_clone"), reason="this PyTorch has no copy-on-write"
)


def address(t):
    return torch._C._data_address(t)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8, torch.bool])
def test_a_clone_shares_memory_until_it_is_written(dtype):
    expected = torch.tensor([[0, 1, 1], [1, 0, 0]], dtype=dtype)
    t = expected.to("hologram")
    clone = t._lazy_clone()
    assert is_cow(t) and is_cow(clone)
    assert address(t) == address(clone)
    clone.fill_(1)
    assert not is_cow(clone) and is_cow(t)
    assert address(t) != address(clone)
    assert torch.equal(t.cpu(), expected)
    assert torch.equal(clone.cpu(), torch.ones_like(expected))
    # The last holder takes the memory over.
    before = address(t)
    t.zero_()
    assert not is_cow(t) and address(t) == before
    assert torch.equal(t.cpu(), torch.zeros_like(expected))


def test_reading_keeps_memory_shared():
    t = torch.arange(6.0, device="hologram")
    clone = t._lazy_clone()
    total = (t + clone * 2).sum()
    assert total.item() == 45.0
    assert is_cow(t) and is_cow(clone)


def test_pending_work_is_in_the_clone_and_later_work_is_not():
    t = torch.arange(6.0, device="hologram")
    t.mul_(2)
    read_before = t + 1
    clone = t._lazy_clone()
    t.add_(100)
    assert clone.tolist() == [0, 2, 4, 6, 8, 10]
    assert t.tolist() == [100, 102, 104, 106, 108, 110]
    assert read_before.tolist() == [1, 3, 5, 7, 9, 11]


def test_views_follow_their_storage():
    t = torch.arange(6.0, device="hologram")
    view = t.view(2, 3)
    clone = view._lazy_clone()
    assert clone.shape == (2, 3) and is_cow(view) and is_cow(t)
    view[0].fill_(-1)
    assert t.tolist() == [-1, -1, -1, 3, 4, 5]
    assert clone.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_strides_and_offsets_are_kept():
    t = torch.arange(12.0, device="hologram").view(3, 4).t()[1:]
    clone = t._lazy_clone()
    assert clone.stride() == t.stride() and clone.storage_offset() == t.storage_offset()
    assert torch.equal(clone.cpu(), t.cpu())


def test_many_clones_of_clones():
    t = torch.arange(4.0, device="hologram")
    clones = [t]
    for _ in range(5):
        clones.append(clones[-1]._lazy_clone())
    assert len({address(c) for c in clones}) == 1
    for k, c in enumerate(clones):
        c.add_(k)
    assert [c[0].item() for c in clones] == [0, 1, 2, 3, 4, 5]
    assert len({address(c) for c in clones}) == 6


def test_a_clone_outlives_its_origin():
    clone = torch.arange(4.0, device="hologram")._lazy_clone()
    assert clone.tolist() == [0, 1, 2, 3]
    clone.add_(1)
    assert clone.tolist() == [1, 2, 3, 4]


def test_the_fallback_and_foreign_code_write_to_memory_of_their_own():
    t = torch.arange(4.0, device="hologram")
    clone = t._lazy_clone()
    clone.put_(torch.tensor([0], device="hologram"), torch.tensor([9.0], device="hologram"))
    assert t.tolist() == [0, 1, 2, 3] and clone.tolist() == [9, 1, 2, 3]
    other = t._lazy_clone()
    other.data_ptr()
    assert not is_cow(other)
    other.resize_(8)[4:] = 7
    assert other.tolist() == [0, 1, 2, 3, 7, 7, 7, 7] and t.tolist() == [0, 1, 2, 3]


def test_gradients_go_through():
    t = torch.ones(3, device="hologram", requires_grad=True)
    (t._lazy_clone() * 3).sum().backward()
    assert t.grad.tolist() == [3, 3, 3]


def test_copies_and_pickles():
    t = torch.arange(3.0, device="hologram")
    clone = t._lazy_clone()
    for made in (copy.deepcopy(clone), pickle.loads(pickle.dumps(clone)), clone.clone()):
        assert made.tolist() == [0, 1, 2]
        made.zero_()
    assert t.tolist() == [0, 1, 2] and clone.tolist() == [0, 1, 2]


def test_an_empty_tensor_is_cloned():
    assert torch.empty(0, 3, device="hologram")._lazy_clone().shape == (0, 3)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.float32])
def test_the_fallback_reads_shared_memory(dtype):
    expected = torch.tensor([[0, 1], [2, 3]], dtype=dtype)
    t = expected.to("hologram")
    clone = t._lazy_clone()
    assert torch.equal((t * clone + 1).cpu(), expected * expected + 1)
    assert torch.equal(torch.linalg.vander(clone[1]).cpu(), torch.linalg.vander(expected[1]))
    assert torch.equal(torch.stack([t, clone]).cpu(), torch.stack([expected, expected]))
    assert is_cow(t) and is_cow(clone) and address(t) == address(clone)


def test_a_kernel_of_the_fallback_that_reads_and_writes_one_clone():
    t = torch.arange(1.0, 5.0, device="hologram").to(torch.complex64)
    clone = t._lazy_clone()
    view = clone[1:]
    clone.mul_(clone)
    assert not is_cow(clone) and is_cow(t)
    assert t.tolist() == [1, 2, 3, 4] and clone.tolist() == [1, 4, 9, 16]
    assert view.tolist() == [4, 9, 16]
    torch.add(t[1:], t[:3], out=view)
    assert clone.tolist() == [1, 3, 5, 7] and t.tolist() == [1, 2, 3, 4]


def test_an_output_that_was_shared_grows():
    t = torch.arange(2.0, device="hologram")
    clone = t._lazy_clone()
    base = torch.ones(3, 4, device="hologram", dtype=torch.complex64)
    grown = torch.zeros(1, device="hologram", dtype=torch.complex64)
    shared = grown._lazy_clone()
    with pytest.warns(UserWarning, match="resized"):
        torch.add(base, base, out=shared)
    assert shared.tolist() == [[2] * 4] * 3 and grown.tolist() == [0]
    shared.add_(1)
    assert shared.tolist() == [[3] * 4] * 3
    clone.resize_(3)[2] = 5
    assert clone.tolist() == [0, 1, 5] and t.tolist() == [0, 1]


def test_a_kernel_that_keeps_an_alias_gets_memory_of_its_own():
    t = torch.arange(4.0, device="hologram")
    clone = t._lazy_clone()
    host = torch.ops.hologram._host_view(clone)
    clone.add_(1)
    t.fill_(7)
    del t
    assert host.tolist() == clone.tolist() == [1, 2, 3, 4]
    host[0] = 9
    assert clone.tolist() == [9, 2, 3, 4]
