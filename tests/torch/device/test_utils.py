# SPDX-License-Identifier: MIT
"""hologram_torch.utils: memory shared with the SDK, its lifetime, and what is refused."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hologram_ffi import HologramTensor

import hologram
import hologram_torch
from hologram_torch import utils

D = "hologram"
DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
]


@pytest.fixture
def ex() -> Iterator[hologram.Executor]:
    with hologram_torch.Executor() as executor:
        yield executor


def test_executor_is_the_sdks() -> None:
    assert hologram_torch.Executor is hologram.Executor


# --- tensor_to_buffer, buffer_to_tensor ----------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", D])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_memory_is_one(dtype: torch.dtype, device: str, ex) -> None:
    x = torch.tensor([[1, 0, 1], [0, 0, 1]], device=device).to(dtype)
    buffer, same = utils.tensor_to_buffer(ex, x)
    assert same is x
    assert buffer.shape == (2, 3)
    assert str(np.dtype(buffer.dtype)) == str(dtype).removeprefix("torch.")
    array = buffer.to_numpy()
    assert array.ctypes.data == x.data_ptr()
    back = utils.buffer_to_tensor(buffer, (3, 2))
    assert back.is_cpu
    assert back.dtype == dtype
    assert back.data_ptr() == x.data_ptr()
    x.zero_()
    if device == D:
        torch.hologram.synchronize()
    assert not array.any()
    assert not back.any()
    array[0, 1] = 1
    back[2, 1] = 1
    assert (x.cpu() != 0).int().tolist() == [[0, 1, 0], [0, 0, 1]]


def test_bfloat16_is_shared_too(ex) -> None:
    x = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    buffer, _ = utils.tensor_to_buffer(ex, x)
    hologram.ops.vector_neg(ex, buffer, buffer)
    assert x.tolist() == [-1.5, 2.0]
    assert utils.buffer_to_tensor(buffer).dtype == torch.bfloat16


def test_ops_of_the_sdk_write_the_tensor(ex) -> None:
    x, y = torch.randn(1000), torch.randn(1000)
    out = torch.empty(1000)
    a, b, c = (utils.tensor_to_buffer(ex, t)[0] for t in (x, y, out))
    hologram.ops.vector_add(ex, a, b, c)
    assert torch.equal(out, x + y)  # at once: readers of a CPU tensor do not ask first
    x.fill_(2)
    hologram.ops.vector_mul(ex, a, c, c)
    assert torch.equal(out, 2 * (out / 2))


def test_a_buffer_of_the_sdks_becomes_a_tensor(ex) -> None:
    buffer = ex.allocate((2, 3), dtype=np.float32)
    buffer.from_numpy(np.arange(6))
    x = utils.buffer_to_tensor(buffer, 6)
    x += 1
    assert buffer.to_numpy().tolist() == [[1, 2, 3], [4, 5, 6]]
    assert utils.buffer_to_tensor(buffer).shape == (2, 3)
    assert utils.buffer_to_tensor(buffer, (3, -1)).shape == (3, 2)
    hologram.ops.vector_neg(ex, buffer, buffer)
    assert x.tolist() == [-1, -2, -3, -4, -5, -6]


def test_without_elements(ex) -> None:
    buffer, x = utils.tensor_to_buffer(ex, torch.empty(0, 4))
    assert buffer.size == 0
    assert utils.buffer_to_tensor(buffer, (4, 0)).shape == (4, 0)
    assert x.shape == (0, 4)
    number, _ = utils.tensor_to_buffer(ex, torch.tensor(2.5))
    assert utils.buffer_to_tensor(number, ()).item() == 2.5


@pytest.mark.parametrize("device", ["cpu", D])
def test_either_side_keeps_the_memory(device: str) -> None:
    ex = hologram_torch.Executor()
    x = torch.arange(10000.0, device=device)
    storage = weakref.ref(x.untyped_storage())
    buffer, _ = utils.tensor_to_buffer(ex, x)
    ex.close()
    del x, _
    gc.collect()
    y = utils.buffer_to_tensor(buffer, 10000)
    del buffer
    gc.collect()
    filler = [torch.zeros(10000) for _ in range(8)]
    assert y.sum().item() == sum(range(10000))
    del y, filler
    gc.collect()
    assert storage() is None


def test_memory_goes_back_when_all_are_gone(ex) -> None:
    gc.collect()
    before = torch.hologram.memory_allocated()
    x = torch.ones(1 << 18, device=D)
    buffer, _ = utils.tensor_to_buffer(ex, x)
    y = utils.buffer_to_tensor(buffer, 1 << 18)
    assert torch.hologram.memory_allocated() >= before + (1 << 20)
    del x, buffer, _
    assert y.sum().item() == 1 << 18

    def drop(tensors: list[torch.Tensor]) -> None:
        tensors.clear()

    thread = threading.Thread(target=drop, args=([y],))
    del y
    thread.start()
    thread.join()
    del thread
    gc.collect()
    assert torch.hologram.memory_allocated() == before


def test_what_is_no_executor_or_closed(ex) -> None:
    x = torch.ones(3)
    with pytest.raises(TypeError, match=r"must be a hologram\.Executor, not Tensor; make one"):
        utils.tensor_to_buffer(x, x)
    ex.close()
    with pytest.raises(RuntimeError, match="tensor_to_buffer: the Executor is closed"):
        utils.tensor_to_buffer(ex, x)


def test_what_is_no_buffer_or_has_another_size(ex) -> None:
    buffer = ex.allocate(6)
    with pytest.raises(TypeError, match=r"expected a hologram\.Buffer, got ndarray"):
        utils.buffer_to_tensor(np.ones(3), 3)
    with pytest.raises(ValueError, match=r"the shape \(4, 2\) has another number .* which has 6"):
        utils.buffer_to_tensor(buffer, (4, 2))
    buffer.free()
    with pytest.raises(RuntimeError, match="the buffer was freed"):
        utils.buffer_to_tensor(buffer, 6)


# --- validate_tensor_compatible ------------------------------------------------------------------

REFUSED: list[tuple[Any, str, str]] = [
    (lambda: torch.ones(3, 2).t(), r"not contiguous \(shape \(2, 3\)", ".contiguous()"),
    (lambda: torch.ones(3, device=D)[::2], "not contiguous", ".contiguous()"),
    (lambda: torch.ones(2, requires_grad=True), "requires a gradient", ".detach()"),
    (lambda: torch.empty(2, device="meta"), "is on meta", ".cpu()"),
    (lambda: torch.eye(2).to_sparse(), "layout is torch.sparse_coo", ".to_dense()"),
    (lambda: torch.ones(2, dtype=torch.uint16), "no torch.uint16", ".to()"),
    (lambda: torch.ones(2, dtype=torch.float8_e5m2), "no torch.float8_e5m2", "bfloat16"),
    (lambda: torch.ones(2, dtype=torch.complex64).conj(), "lazily", ".resolve_conj()"),
]


@pytest.mark.parametrize(("make", "what", "remedy"), REFUSED, ids=[r[1][:16] for r in REFUSED])
def test_what_cannot_be_shared(make: Any, what: str, remedy: str, ex) -> None:
    for call in (
        utils.validate_tensor_compatible,
        utils.create_executor_for_tensor,
        lambda t: utils.tensor_to_buffer(ex, t),
    ):
        with pytest.raises(ValueError, match=what) as refused:
            call(make())
        assert remedy in str(refused.value)


def test_what_is_no_tensor() -> None:
    with pytest.raises(TypeError, match=r"expected a torch\.Tensor, got ndarray"):
        utils.validate_tensor_compatible(np.ones(2))
    for good in (torch.ones(2, 3), torch.ones(2, device=D), torch.nn.Parameter(torch.ones(1)).data):
        assert utils.validate_tensor_compatible(good) is None


def test_an_executor_for_a_tensor() -> None:
    for x in (torch.ones(2), torch.ones(2, device=D)):
        with utils.create_executor_for_tensor(x) as ex:
            assert ex.backend == "cpu"
            assert utils.tensor_to_buffer(ex, x)[0].size == 2


# --- HologramTensor ------------------------------------------------------------------------------


def test_random_numbers_are_torchs() -> None:
    for args in ((2, 3), ((2, 3),), ([2, 3],)):
        torch.manual_seed(4)
        ours = utils.hologram_randn(*args)
        torch.manual_seed(4)
        assert isinstance(ours, HologramTensor)
        assert torch.equal(utils.to_pytorch(ours), torch.randn(2, 3))
    assert utils.to_pytorch(utils.hologram_randn(5, dtype=torch.float64)).dtype == torch.float64
    generator = torch.Generator().manual_seed(9)
    first = utils.to_pytorch(utils.hologram_randn(3, generator=generator))
    assert torch.equal(first, torch.randn(3, generator=generator.manual_seed(9)))


@pytest.mark.parametrize(
    "data",
    [
        [[1, 2], [3, 4]],
        2.5,
        np.arange(6, dtype=np.int16).reshape(2, 3),
        torch.arange(6.0).reshape(2, 3).t(),
        torch.ones(3, device=D),
        torch.ones(2, requires_grad=True),
        lambda: hologram.arange(4),  # kept by pytest to the very end otherwise
    ],
    ids=["list", "number", "numpy", "transposed", "device", "tracked", "hologram"],
)
def test_data_are_copied(data: Any) -> None:
    data = data() if callable(data) else data
    expected = data if isinstance(data, torch.Tensor) else torch.tensor(np.asarray(data))
    ours = utils.hologram_tensor(data)
    assert isinstance(ours, HologramTensor)
    x = utils.to_pytorch(ours)
    assert x.shape == expected.shape
    torch.testing.assert_close(x, expected.detach().cpu(), check_dtype=not isinstance(data, float))
    x += 1
    if isinstance(data, (torch.Tensor, np.ndarray)):
        torch.testing.assert_close(torch.as_tensor(data).detach().cpu(), x - 1)
    assert utils.to_pytorch(utils.hologram_tensor(data, dtype=torch.float64)).dtype == torch.float64


def test_to_pytorch_shares(ex) -> None:
    x = torch.arange(5.0)
    ours = HologramTensor.from_dlpack(x)
    assert utils.to_pytorch(ours).data_ptr() == x.data_ptr()
    del x
    gc.collect()
    assert utils.to_pytorch(ours).tolist() == [0, 1, 2, 3, 4]
    array = hologram.arange(4)
    assert utils.to_pytorch(array).tolist() == [0, 1, 2, 3]
    assert utils.to_pytorch(ex.allocate(3)).shape == (3,)
    with pytest.raises(TypeError, match=r"got ndarray; torch\.from_dlpack takes other arrays"):
        utils.to_pytorch(np.ones(3))
