# SPDX-License-Identifier: MIT
"""Saving, copying, exporting, storages, views and the random state."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest
import torch
from torch._prims.context import TorchRefsMode

D = "hologram"


@pytest.mark.parametrize("where", [None, "cpu", D, {"hologram:0": "cpu"}, torch.device("cpu")])
def test_save_and_load(where) -> None:
    a = torch.randn(4, 5, device=D)
    module = torch.nn.Linear(3, 2).to(D)
    file = io.BytesIO()
    torch.save({"a": a, "view": a[1:], "state": module.state_dict()}, file)
    file.seek(0)
    loaded = torch.load(file, map_location=where)
    assert loaded["a"].device.type == (D if where in (None, D) else "cpu")
    assert torch.equal(loaded["a"].cpu(), a.cpu())
    assert loaded["view"].untyped_storage().data_ptr() == loaded["a"].untyped_storage().data_ptr()
    module.load_state_dict(loaded["state"])


def test_cpu_checkpoint_to_device() -> None:
    file = io.BytesIO()
    torch.save(torch.arange(3.0), file)
    file.seek(0)
    loaded = torch.load(file, map_location=D)
    assert loaded.device.type == D
    assert loaded.tolist() == [0, 1, 2]


def test_deepcopy_keeps_sharing() -> None:
    a = torch.randn(4, device=D)
    both = copy.deepcopy({"a": a, "view": a[1:]})
    assert both["view"].data_ptr() == both["a"][1:].data_ptr() != a[1:].data_ptr()
    module = torch.nn.Linear(3, 3).to(D)
    twin = copy.deepcopy(module)
    assert twin.weight.device.type == D
    assert torch.equal(twin.weight, module.weight)


def test_pickle() -> None:
    a = torch.randn(3, device=D)
    again = pickle.loads(pickle.dumps(a))
    assert again.device.type == D
    assert torch.equal(a, again)


def test_dlpack_round_trips_share_memory() -> None:
    a = torch.arange(6.0, device=D)
    assert tuple(map(int, a.__dlpack_device__())) == (12, 0)
    capsule = torch.utils.dlpack.to_dlpack(a)
    for b in (torch.from_dlpack(a), torch.utils.dlpack.from_dlpack(capsule)):
        assert b.device.type == D
        assert b.data_ptr() == a.data_ptr()
    host = np.from_dlpack(a + 0)  # recorded, and computed as it is handed out
    assert host.tolist() == [0, 1, 2, 3, 4, 5]
    for host in (np.from_dlpack(a), np.from_dlpack(a, device="cpu")):
        assert host.ctypes.data == a.data_ptr()
    copied = np.from_dlpack(a, copy=True)
    assert copied.ctypes.data != a.data_ptr()
    del a, b
    assert host.tolist() == copied.tolist() == [0, 1, 2, 3, 4, 5]
    for options in ({"dl_device": (1, 0)}, {"dl_device": None}):
        with pytest.raises(BufferError, match="require gradient"):
            torch.ones(2, device=D, requires_grad=True).__dlpack__(**options)
    part = torch.arange(12.0, device=D).reshape(3, 4)[1:, ::2].t()
    assert np.from_dlpack(part).ctypes.data == part.data_ptr()
    assert np.from_dlpack(part).tolist() == [[4, 8], [6, 10]]
    z = torch.ones(2, device=D, dtype=torch.complex64)
    assert np.from_dlpack(z).tolist() == [1, 1]
    with pytest.raises(BufferError, match="conjugate bit"):
        np.from_dlpack(z.conj())
    unversioned = part.__dlpack__(dl_device=None, max_version=(0, 8))
    assert torch.utils.dlpack.from_dlpack(unversioned).tolist() == [[4, 8], [6, 10]]
    with pytest.raises(TypeError, match="unexpected keyword argument 'why'"):
        part.__dlpack__(dl_device=None, max_version=(1, 0), why=1)
    assert torch.from_dlpack(np.arange(3.0)).to(D).sum().item() == 3
    assert torch.ones(2).__dlpack_device__()[0] == 1


@pytest.mark.filterwarnings("ignore:__array_wrap__ must accept")  # on cpu too
def test_numpy_reads_a_tensor_where_it_lies() -> None:
    a = torch.arange(6.0, device=D).reshape(2, 3)
    array = np.asarray(a.t())
    assert array.ctypes.data == a.data_ptr()
    assert array.strides == (4, 12)
    a += 1  # recorded; NumPy's array is the same memory
    torch.hologram.synchronize()
    assert array.tolist() == [[1, 4], [2, 5], [3, 6]]
    assert np.asarray(a * 2, dtype=np.int64).tolist() == [[2, 4, 6], [8, 10, 12]]
    assert np.array(a).ctypes.data != a.data_ptr()
    result = np.negative(a)
    assert isinstance(result, torch.Tensor) and result.device == a.device
    assert result.tolist() == [[-1, -2, -3], [-4, -5, -6]]
    assert np.asarray(torch.empty(0, 3, device=D)).shape == (0, 3)
    with pytest.raises(RuntimeError, match=r"requires grad is no array; use tensor\.detach\(\)"):
        np.asarray(torch.ones(2, device=D, requires_grad=True))
    with pytest.raises(TypeError, match="BFloat16"):
        np.asarray(torch.ones(2, device=D, dtype=torch.bfloat16))
    with pytest.raises(RuntimeError, match="conjugate bit"):
        np.asarray(torch.ones(2, device=D, dtype=torch.complex64).conj())


def test_views_alias() -> None:
    a = torch.zeros(4, 6, device=D)
    for view in (
        a.view(24),
        a.t(),
        a[1:],
        a.as_strided((2, 2), (1, 6)),
        a.unfold(1, 2, 2),
        a.reshape(2, 12),
        torch.view_as_complex(a.view(12, 2)),
        a.diagonal(),
        a.expand(3, 4, 6),
        a.detach(),
    ):
        assert view.untyped_storage().data_ptr() == a.untyped_storage().data_ptr()
    a[1:].add_(1)
    assert a.sum().item() == 18
    x = torch.ones(3, device=D, requires_grad=True) * 2
    x[1:].mul_(3)
    assert x.tolist() == [2, 6, 6]


def test_overlapping_copy_reads_before_it_writes() -> None:
    expected = torch.arange(10.0)
    expected[1:] = expected[:-1].clone()
    x = torch.arange(10.0, device=D)
    x[1:] = x[:-1].clone()
    assert torch.equal(x.cpu(), expected)


@pytest.mark.parametrize("source", ["cpu", D])
@pytest.mark.parametrize("target", ["cpu", D])
@pytest.mark.parametrize("types", [(torch.float32, torch.float32), (torch.int64, torch.float16)])
def test_copies_in_all_directions(source: str, target: str, types) -> None:
    values = torch.arange(24).view(4, 6).to(types[0])
    src = values.to(source)
    arrangements = (
        lambda t: t,
        lambda t: t.t(),
        lambda t: t[::2, 1:5],
        lambda t: t[1].expand(3, 6),
    )
    for arrange in arrangements:
        expected = torch.empty(arrange(values).shape, dtype=types[1])
        expected.copy_(arrange(values))
        dst = torch.empty(arrange(values).shape, dtype=types[1], device=target)
        dst.copy_(arrange(src), non_blocking=True)
        assert torch.equal(dst.cpu(), expected)
    c = torch.randn(3, 2, dtype=torch.complex64, device=source)
    d = torch.empty(2, 3, dtype=torch.complex64, device=target).copy_(c.mH)
    assert torch.equal(d.cpu(), c.cpu().mH)


def test_storage_resize() -> None:
    storage = torch.UntypedStorage(10, device=D)
    storage.fill_(7)
    storage.resize_(20)
    assert storage.nbytes() == 20
    assert storage[9] == 7
    storage.resize_(0)
    assert storage.nbytes() == 0
    a = torch.arange(10.0, device=D)
    a.resize_(20)
    assert a[:10].tolist() == list(range(10))
    out = torch.empty(0, device=D)
    torch.sinh(torch.ones(3, device=D), out=out)
    address = out.data_ptr()
    torch.sinh(torch.zeros(3, device=D), out=out)
    assert out.data_ptr() == address
    assert out.tolist() == [0, 0, 0]


def test_set_and_is_set_to() -> None:
    a, b = torch.ones(3, device=D), torch.zeros(4, device=D)
    a.set_(b)
    assert a.is_set_to(b)
    a.set_(b.untyped_storage(), 1, (2,), (1,))
    assert a.shape == (2,)
    assert not a.is_set_to(b)
    a.set_()
    assert a.numel() == 0
    p = torch.nn.Parameter(torch.ones(3, device=D))
    p.data = torch.zeros(3, device=D)
    assert p.sum().item() == 0


def test_random_state() -> None:
    torch.manual_seed(3)
    a = torch.randn(5, device=D)
    torch.manual_seed(3)
    assert torch.equal(a, torch.randn(5, device=D))
    state = torch.hologram.get_rng_state()
    a = torch.rand(4, device=D)
    torch.hologram.set_rng_state(state)
    assert torch.equal(a, torch.rand(4, device=D))
    with torch.random.fork_rng(devices=[0], device_type=D):
        b = torch.randn(3, device=D)
    assert torch.equal(b, torch.randn(3, device=D))
    assert not torch.equal(torch.randn(3, device=D), torch.randn(3, device=D))


def test_generators() -> None:
    g = torch.Generator(D)
    assert g.device.type == D
    g.manual_seed(5)
    a = torch.randn(3, device=D, generator=g)
    g.manual_seed(5)
    assert torch.equal(a, torch.randn(3, device=D, generator=g))
    state = g.get_state()
    a = torch.rand(3, device=D, generator=g)
    twin = torch.Generator(D)
    twin.set_state(state)
    assert torch.equal(a, torch.rand(3, device=D, generator=twin))
    g.set_offset(16)
    assert g.get_offset() == 16


def test_random_ops_leave_the_cpu_generator_alone() -> None:
    before = torch.get_rng_state()
    torch.nn.functional.dropout(torch.ones(10, device=D))
    torch.randn(4, device=D)
    torch.randperm(10, device=D)
    torch.multinomial(torch.ones(5, device=D), 3)
    torch.bernoulli(torch.full((3,), 0.5, device=D))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("threads", [1, 2])
def test_random_numbers_do_not_depend_on_threads(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        torch.manual_seed(11)
        x = torch.randn(40_000, device=D)
        y = torch.bernoulli(torch.full((40_000,), 0.3, device=D))
    finally:
        torch.set_num_threads(before)
    torch.manual_seed(11)
    assert torch.equal(x, torch.randn(40_000, device=D))
    assert torch.equal(y, torch.bernoulli(torch.full((40_000,), 0.3, device=D)))
    assert abs(x.mean().item()) < 0.03
    assert abs(x.std().item() - 1) < 0.03
    assert abs(y.mean().item() - 0.3) < 0.02


@pytest.mark.parametrize("layout", ["coo", "csr", "bsr"])
def test_sparse(layout: str) -> None:
    dense = torch.eye(4) * 3
    make = {
        "coo": lambda t: t.to_sparse(),
        "csr": lambda t: t.to_sparse_csr(),
        "bsr": lambda t: t.to_sparse_bsr((2, 2)),
    }[layout]
    here = make(dense.to(D))
    assert here.device.type == D
    assert torch.equal(here.to_dense().cpu(), dense)
    assert torch.equal(here.cpu().to_dense(), dense)
    moved = make(dense).to(D)
    assert torch.equal(moved.to_dense().cpu(), dense)
    if layout != "bsr":
        assert torch.equal((moved @ torch.ones(4, 2, device=D)).cpu(), dense @ torch.ones(4, 2))
    assert "hologram" in repr(here)


def test_quantized_and_nested() -> None:
    x = torch.randn(8)
    q = torch.quantize_per_tensor(x.to(D), 0.1, 0, torch.qint8)
    expected = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
    assert torch.equal(q.dequantize().cpu(), expected.dequantize())
    assert q.q_scale() == pytest.approx(0.1)
    parts = [torch.randn(2, 3), torch.randn(3, 3)]
    nested = torch.nested.nested_tensor(parts, device=D)
    padded = torch.nested.nested_tensor(parts).to_padded_tensor(0.0)
    assert torch.equal(nested.to_padded_tensor(0.0).cpu(), padded)


def test_printing() -> None:
    assert repr(torch.tensor([1, 2], device=D)) == "tensor([1, 2], device='hologram:0')"
    assert "hologram" in repr(torch.randn(2, dtype=torch.complex64, device=D).conj())
    assert "device='hologram:0'" in repr(torch.empty(0, device=D))


def test_modes_that_watch_operators_leave_random_state_alone() -> None:
    state = torch.hologram.get_rng_state()
    with TorchRefsMode(strict=True):
        torch.hologram.set_rng_state(torch.hologram.get_rng_state())
    assert torch.equal(torch.hologram.get_rng_state(), state)
