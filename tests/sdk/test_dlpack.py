# SPDX-License-Identifier: MIT
"""Memory that crosses to other libraries and back: DLPack, the buffer protocol, lifetimes."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import hologram as hg

DTYPES = [
    "bool",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]
VERSION = (1, 0)
testing = hg._hologram.testing


def pointer(x: Any) -> int:
    return np.asarray(x).__array_interface__["data"][0]


def kind(capsule: object) -> str:
    return repr(capsule).split('"')[1]


def python(code: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    return subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120
    )


def recorded(ex: hg.Executor, work: Callable[[], Any]) -> int:
    """Return how many ops `work` records."""
    before = ex.stats()["ops_recorded"]
    work()
    return ex.stats()["ops_recorded"] - before


# --- NumPy ------------------------------------------------------------------------------------


@pytest.mark.parametrize("look", [np.asarray, np.from_dlpack, memoryview, lambda t: t.__dlpack__()])
@pytest.mark.usefixtures("recording")
def test_ops_are_recorded_again_after_a_look(look: Callable[[Any], Any]) -> None:
    with hg.Executor() as ex:
        t = hg.ones(16, "float32") * 2
        view = look(t)
        assert recorded(ex, lambda: t + 1) == 0
        again = look(t)
        del view
        assert recorded(ex, lambda: t + 1) == 0
        del again
        gc.collect()
        assert recorded(ex, lambda: t + 1) == 1
        assert (t + 1).tolist() == [3.0] * 16


def test_ops_on_memory_of_others_are_never_recorded() -> None:
    x = np.ones(16, "float32")
    with hg.Executor() as ex:
        t = hg.from_dlpack(x)
        del x
        view = np.asarray(t)
        del view
        gc.collect()
        assert recorded(ex, lambda: t + 1) == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (0,), (2, 0, 3), (2, 3, 4)])
def test_numpy_both_ways(dtype: str, shape: tuple[int, ...]) -> None:
    x = (np.arange(np.prod(shape)) % 3).reshape(shape).astype(dtype)
    t = hg.from_dlpack(x)
    back = np.from_dlpack(t)
    assert (t.shape, t.dtype, t.strides) == (x.shape, x.dtype, x.strides) or x.size == 0
    assert (back.shape, back.dtype) == (x.shape, x.dtype)
    np.testing.assert_array_equal(back, x)
    if x.size:
        assert pointer(t) == pointer(back) == pointer(x)
        x[...] = 1
        np.testing.assert_array_equal(back, np.ones_like(x))
        assert t.tolist() == np.ones_like(x).tolist()
    same = hg.asarray(x, copy=False)
    assert x.size == 0 or pointer(same) == pointer(x)
    assert x.size == 0 or pointer(hg.array(x)) != pointer(x)


STRIDED: list[Callable[[np.ndarray], np.ndarray]] = [
    lambda x: x.T,
    lambda x: x[::-1],
    lambda x: x[:, ::-2],
    lambda x: x[1:3, 2],
    lambda x: x[..., None],
    lambda x: x[2:2],
    lambda x: np.broadcast_to(x[:1], (3, 6)),
]


@pytest.mark.parametrize("view", STRIDED)
@pytest.mark.parametrize("take", [hg.from_dlpack, lambda x: hg.asarray(x, copy=False)])
def test_strides_cross(view: Callable[[np.ndarray], np.ndarray], take: Any) -> None:
    x = view(np.arange(24.0).reshape(4, 6))
    t = take(x)
    assert t.tolist() == x.tolist()
    assert (t * 2).tolist() == (x * 2).tolist()
    if x.size:
        assert [n for n, size in zip(t.strides, t.shape) if size > 1] == [
            n for n, size in zip(x.strides, x.shape) if size > 1
        ]
        assert pointer(t) == pointer(x)
        back = np.from_dlpack(t)
        assert pointer(back) == pointer(x)


def test_views_of_tensors_cross() -> None:
    t = hg.arange(24, dtype="int32").reshape(4, 6)
    base = pointer(t)
    for index in (np.s_[1], np.s_[:, 2], np.s_[::-1, ::2], np.s_[3, 5, None]):
        expected = t.numpy()[index]
        for out in (np.from_dlpack(t[index]), np.asarray(t[index])):
            np.testing.assert_array_equal(out, expected)
            assert pointer(out) == pointer(expected)
    assert pointer(t[1]) == base + 24


def test_versions_of_capsules() -> None:
    t = hg.ones(3)
    assert kind(t.__dlpack__()) == "dltensor"
    assert kind(t.__dlpack__(max_version=None)) == "dltensor"
    assert kind(t.__dlpack__(max_version=(0, 8))) == "dltensor"
    for version in ((1, 0), (1, 3), (2, 0)):
        assert kind(t.__dlpack__(max_version=version)) == "dltensor_versioned"
    for options in ({}, {"max_version": VERSION}):
        capsule = t.__dlpack__(**options)
        taken = hg.from_dlpack(capsule)
        assert pointer(taken) == pointer(t)
        assert kind(capsule).startswith("used_dltensor")
    with pytest.raises(TypeError, match="max_version is a tuple of two ints"):
        t.__dlpack__(max_version=1)
    with pytest.raises(TypeError, match="unexpected keyword"):
        t.__dlpack__(version=VERSION)
    assert t.__dlpack_device__() == (1, 0)


def test_a_capsule_gives_its_memory_once() -> None:
    for options in ({}, {"max_version": VERSION}):
        capsule = hg.ones(3).__dlpack__(**options)
        first = hg.from_dlpack(capsule)
        with pytest.raises(ValueError, match="the capsule was used already"):
            hg.from_dlpack(capsule)
        del capsule
        gc.collect()
        assert first.tolist() == [1, 1, 1]


def test_a_capsule_without_a_consumer_gives_its_memory_back() -> None:
    testing.empty_cache()
    before = testing.allocated_bytes()
    t = hg.ones(100_000)
    capsules = [t.__dlpack__(), t.__dlpack__(max_version=VERSION), t.__dlpack__(copy=True)]
    assert testing.allocated_bytes() > before
    del t
    gc.collect()
    assert testing.allocated_bytes() > before
    del capsules
    gc.collect()
    assert testing.allocated_bytes() == before


def test_copy_and_device() -> None:
    t = hg.ones(3)
    copied = hg.from_dlpack(t.__dlpack__(copy=True, max_version=VERSION))
    copied[0] = 5
    assert t.tolist() == [1, 1, 1]
    assert pointer(hg.from_dlpack(t.__dlpack__(copy=False))) == pointer(t)
    assert pointer(hg.from_dlpack(t.__dlpack__(dl_device=(1, 0)))) == pointer(t)
    assert pointer(hg.from_dlpack(t, copy=True)) != pointer(t)
    assert pointer(hg.from_dlpack(t)) == pointer(t)
    with pytest.raises(BufferError, match=r"on device \(1, 0\), and dl_device asks for \(2, 0\)"):
        t.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="stream=None"):
        t.__dlpack__(stream=5)
    with pytest.raises(ValueError, match="ambiguous"):
        t.__dlpack__(copy=hg.ones(2))
    assert np.from_dlpack(t, copy=True).tolist() == [1, 1, 1]


def test_read_only_memory_stays_so() -> None:
    x = np.arange(3.0)
    x.setflags(write=False)
    for t in (hg.asarray(x), hg.from_dlpack(x), hg.asarray(bytes(x.tobytes()))):
        assert t.readonly
        writes: list[Callable[[], Any]] = [
            lambda t=t: t.__setitem__(0, 1),
            lambda t=t: t.__setitem__([0], 1),
            lambda t=t: t.__iadd__(1),
            lambda t=t: t.__ipow__(2),
            lambda t=t: t.__ifloordiv__(2),
            lambda t=t: t[1:].__imul__(2),
            lambda t=t: hg.abs(t, out=t),
            lambda t=t: np.add(t, t, out=t),
            lambda t=t: t.sum(out=t[0, ...]),
        ]
        for write in writes:
            with pytest.raises(ValueError, match="read-only"):
                write()
        assert not np.from_dlpack(t).flags.writeable
        assert not np.asarray(t).flags.writeable
        assert memoryview(t).readonly
        with pytest.raises(BufferError, match="read-only"):
            t.__dlpack__()
        assert hg.from_dlpack(t.__dlpack__(copy=True)).readonly is False
        assert (t + 1).readonly is False
        assert t.reshape(-1, 1).readonly
        assert t.copy().readonly is False
    with hg.Executor() as ex:
        b = ex.allocate(3, dtype="float64")
        b.fill(1)
        with pytest.raises(ValueError, match="read-only"):
            hg.ops.add(ex, b, b, hg.asarray(x))
    assert x.tolist() == [0, 1, 2]


def test_ops_on_shared_memory_run_at_their_calls() -> None:
    x = np.ones(4)
    t = hg.asarray(x, copy=False)
    double = t * 2
    x[:] = 100
    assert double.tolist() == [2] * 4
    t += 1
    assert x.tolist() == [101] * 4
    fresh = hg.ones(4)
    view = np.asarray(fresh)
    fresh *= 3
    assert view.tolist() == [3] * 4
    fresh[1] = 0
    assert view.tolist() == [3, 0, 3, 3]
    with hg.Executor() as ex:
        a, b = ex.allocate(4), ex.allocate(4)
        a.fill(2)
        look = b.to_numpy()
        hg.ops.vector_mul(ex, a, a, b)
        assert look.tolist() == [4] * 4


# --- Who refuses what -------------------------------------------------------------------------


class Producer:
    """Hands out what it was made with."""

    def __init__(self, give: Callable[..., Any]) -> None:
        self.__dlpack = give

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__dlpack(*args, **kwargs)


def test_older_producers_know_no_max_version() -> None:
    t = hg.ones(3)
    calls: list[dict[str, Any]] = []

    def old(**options: Any) -> Any:
        calls.append(options)
        if options:
            raise TypeError("unexpected keyword argument 'max_version'")
        return t.__dlpack__()

    assert pointer(hg.from_dlpack(Producer(old))) == pointer(t)
    assert calls == [{"max_version": VERSION}, {}]


def test_what_cannot_be_imported_is_refused() -> None:
    with pytest.raises(TypeError, match="list has no __dlpack__; use asarray"):
        hg.from_dlpack([1, 2])
    with pytest.raises(TypeError, match="gave no capsule but int"):
        hg.from_dlpack(Producer(lambda **_: 3))
    with pytest.raises(KeyError, match="theirs"):
        hg.from_dlpack(Producer(lambda **_: {}["theirs"]))
    with pytest.raises(ValueError, match="not 'dltensor' or 'dltensor_versioned'"):
        hg.from_dlpack(__import__("datetime").datetime_CAPI)
    with pytest.raises(TypeError, match="str128 is not supported"):
        hg.asarray(np.zeros(3, "U4"))
    with pytest.raises(TypeError, match="byte order"):
        hg.asarray(np.zeros(3, ">f4"))
    unaligned = np.frombuffer(bytes(33), np.uint8)[1:].view(np.float64)
    with pytest.raises(ValueError, match="not aligned"):
        hg.from_dlpack(unaligned)
    assert hg.asarray(unaligned).tolist() == [0.0] * 4
    with pytest.raises(ValueError, match="a copy is needed"):
        hg.asarray(unaligned, copy=False)
    with pytest.raises(ValueError, match="a copy is needed"):
        hg.asarray([1, 2], copy=False)
    with pytest.raises(ValueError, match="a copy is needed"):
        hg.asarray(np.ones(2), "float32", copy=False)


def test_elements_that_are_no_dtype_are_refused() -> None:
    import ctypes

    from hologram import _ffi as ffi

    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    for take in (hg.from_dlpack, ffi.tensor_from_dlpack):
        capsule = np.ones(3).__dlpack__()
        # After data, device, ndim, code and bits: the lanes.
        ctypes.c_uint16.from_address(pointer_of(capsule, b"dltensor") + 22).value = 4
        with pytest.raises(TypeError, match=r"dtype \(code 2, 64 bits, 4 lanes\)"):
            take(capsule)


def test_buffer_protocol_refuses_what_it_cannot_say() -> None:
    t = hg.arange(6).reshape(2, 3)
    assert memoryview(t).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert memoryview(t).format == "l"
    with pytest.raises(BufferError, match="not contiguous"):
        __import__("zlib").crc32(t.T)
    with pytest.raises(BufferError, match="no format for bfloat16"):
        memoryview(hg.ones(3, "bfloat16"))
    assert bytes(t[0]) == np.arange(3).tobytes()


# --- Lifetimes --------------------------------------------------------------------------------


def test_either_side_may_go_first() -> None:
    for take in (np.from_dlpack, np.asarray):
        t = hg.arange(1000, dtype="float64")
        x = take(t)
        del t
        gc.collect()
        hg.zeros(1000).numpy()
        assert x[-1] == 999
        y = take(hg.from_dlpack(x))
        del x
        gc.collect()
        assert y[-1] == 999
    x = np.arange(1000.0)
    t = hg.from_dlpack(x)
    u = t + 1
    row = t[10:20]
    del x, t
    gc.collect()
    assert row.tolist() == list(range(10, 20))
    assert u[-1].item() == 1000


def test_memory_of_numpy_is_given_back() -> None:
    released: list[int] = []

    class Owner(np.ndarray):
        def __del__(self) -> None:
            released.append(1)

    for take in (hg.from_dlpack, lambda x: hg.asarray(x, copy=False)):
        released.clear()
        t = take(np.zeros(10).view(Owner))
        view = t[2:4]
        result = view + 1
        del t
        gc.collect()
        assert not released
        del view
        gc.collect()
        assert released == [1]
        assert result.tolist() == [1, 1]


def test_other_threads_drop_memory() -> None:
    for _ in range(20):
        x = np.arange(5000.0)
        tensors = [hg.from_dlpack(x), hg.asarray(x, copy=False)]
        arrays = [np.from_dlpack(hg.arange(5000)), np.asarray(hg.arange(5000))]

        def drop(held: list[Any]) -> None:
            total = sum(float(np.asarray(h).sum()) for h in held)
            held.clear()
            assert total == 2 * 4999 * 2500

        threads = [threading.Thread(target=drop, args=(h,)) for h in (tensors, arrays)]
        del tensors, arrays, x
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def test_threads_record_on_memory_of_numpy() -> None:
    """Buffers whose deleters want the GIL die while other threads record and wait."""
    x = hg.arange(5000, dtype="float64")
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            for _ in range(60):
                index = rng.integers(0, 5000, int(rng.integers(1, 5000)))
                t = x[index]
                y = t * 2 + 1 - np.hypot(t, t) * 0
                w = hg.asarray(np.ones(100), copy=False) + 1
                del t
                assert y[-1].item() == index[-1] * 2 + 1
                assert w[0].item() == 2
        except BaseException as error:
            failures.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)
    assert not failures


def test_memory_survives_the_end_of_the_interpreter() -> None:
    for code in (
        "import numpy as np, hologram as hg\n"
        "x = np.arange(10.); t = hg.from_dlpack(x); u = hg.asarray(x, copy=False)\n"
        "y = np.from_dlpack(t + 1)\n"
        "c = t.__dlpack__(); d = hg.ones(3).__dlpack__(max_version=(1, 0)); p = hg.ones(4) * 2\n",
        "import numpy as np, hologram as hg, threading, time\n"
        "t = hg.asarray(np.arange(1e6), copy=False)\n"
        "def work():\n"
        "    while True:\n"
        "        y = hg.asarray(np.ones(1000), copy=False) + hg.ones(1000); np.asarray(y)\n"
        "for _ in range(3): threading.Thread(target=work, daemon=True).start()\n"
        "time.sleep(0.1)\n",
        "import hologram as hg, sys, atexit\n"
        "x = [hg.ones(1000)]; sys.keep = x; x.append(x); ex = hg.Executor(); b = ex.allocate(5)\n"
        "sys.view = memoryview(b); atexit.register(lambda: x.append(hg.ones(3) + 1))\n",
    ):
        result = python(code)
        assert result.returncode == 0, result.stderr
        assert result.stderr == ""


# --- Other libraries --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.fixture(scope="module")
def jax() -> Iterator[Any]:
    found = pytest.importorskip("jax")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found.config.update("jax_platforms", "cpu")
        found.config.update("jax_enable_x64", True)
        yield found


TORCH_DTYPES = [*DTYPES, "bfloat16"]


def test_an_interrupt_while_the_owner_is_asked_again_comes_out(torch: Any) -> None:
    t = torch.ones(3, device="hologram")

    def give(**options: Any) -> Any:
        if "dl_device" in options:
            raise KeyboardInterrupt
        return t.__dlpack__(**options)

    with pytest.raises(KeyboardInterrupt):
        hg.from_dlpack(Producer(give))

    # After an ordinary error the user learns why the first answer was of no use.
    def refuse(**options: Any) -> Any:
        if "dl_device" in options:
            raise RuntimeError
        return t.__dlpack__(**options)

    with pytest.raises(NotImplementedError, match="device type 12 is not host memory"):
        hg.from_dlpack(Producer(refuse))


@pytest.mark.parametrize("dtype", TORCH_DTYPES)
@pytest.mark.parametrize("shape", [(), (3, 4), (0, 2)])
def test_torch_both_ways(torch: Any, dtype: str, shape: tuple[int, ...]) -> None:
    x = torch.ones(shape, dtype=getattr(torch, dtype))
    t = hg.from_dlpack(x)
    assert (t.shape, str(t.dtype)) == (shape, dtype)
    back = torch.from_dlpack(t)
    assert back.dtype == x.dtype
    assert back.shape == x.shape
    assert torch.equal(back, x)
    if x.numel():
        assert back.data_ptr() == x.data_ptr()
        back.zero_()
        assert t.tolist() == torch.zeros(shape, dtype=x.dtype).tolist()
    assert hg.asarray(x).shape == shape
    made = torch.from_dlpack(hg.ones(shape, dtype) + hg.ones(shape, dtype))
    assert made.shape == shape


def test_torch_strides_and_gradients(torch: Any) -> None:
    x = torch.arange(24.0).reshape(4, 6)
    for view in (x.T, x[::2, 1:], x[1], x.expand(2, 4, 6)):
        t = hg.from_dlpack(view)
        assert t.stride() == view.stride()
        assert t.tolist() == view.tolist()
        assert torch.from_dlpack(t).data_ptr() == view.data_ptr()
    with pytest.raises(BufferError, match="gradient"):
        hg.from_dlpack(x.clone().requires_grad_())
    model = torch.nn.Linear(4, 2)
    data = hg.ones((3, 4), "float32")
    assert model(torch.from_dlpack(data)).shape == (3, 2)


def _reversed(shape: tuple[int, ...], dtype: str) -> Any:
    x = hg.array(np.arange(np.prod(shape)).reshape(shape), dtype)
    return x[tuple(slice(None, None, -1) for _ in shape)]


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "complex64", "bfloat16"])
@pytest.mark.parametrize("shape", [(4,), (2, 3), (1, 5)])
@pytest.mark.parametrize("device", [{}, {"device": "cpu"}])
def test_torch_copies_what_has_negative_strides(
    torch: Any, dtype: str, shape: tuple[int, ...], device: dict[str, str]
) -> None:
    t = _reversed(shape, dtype)
    for options in ({}, {"copy": None}, {"copy": True}):
        x = torch.from_dlpack(t, **options, **device)
        assert str(x.dtype).removeprefix("torch.") == dtype
        assert x.tolist() == t.tolist()
        assert x.is_contiguous()
        x.zero_()
    assert t.tolist() == _reversed(shape, dtype).tolist()
    with pytest.raises(BufferError, match=r"negative.*PyTorch.*copy=False rules out"):
        torch.from_dlpack(t, copy=False, **device)
    # Others read such strides.
    if dtype != "bfloat16":
        assert pointer(np.from_dlpack(t)) == pointer(t)
    assert pointer(hg.from_dlpack(t)) == pointer(t)


def test_torch_shares_what_strides_do_not_matter_to(torch: Any) -> None:
    for t in (hg.arange(1.0)[::-1], hg.zeros((0, 3))[::-1], hg.arange(6.0).reshape(2, 3).T):
        for options in ({}, {"copy": False}):
            x = torch.from_dlpack(t, **options)
            assert x.tolist() == t.tolist()
            if x.numel():
                assert x.data_ptr() == pointer(t)


@pytest.mark.parametrize("options", [{}, {"copy": None}, {"copy": False}, {"device": "cpu"}])
def test_torch_does_not_get_read_only_memory(torch: Any, options: dict[str, Any]) -> None:
    x = np.arange(3.0)
    x.setflags(write=False)
    for t in (hg.asarray(x), hg.asarray(x)[::-1], hg.ones(1).expand(3)):
        with pytest.raises(BufferError, match=r"the Tensor is read-only, and PyTorch.*copy=True"):
            torch.from_dlpack(t, **options)
        copied = torch.from_dlpack(t, copy=True)
        assert copied.tolist() == t.tolist()
        copied.zero_()
    assert x.tolist() == [0, 1, 2]
    assert not np.from_dlpack(hg.asarray(x)).flags.writeable


def test_the_torch_device_shares_memory(torch: Any) -> None:
    if not hasattr(torch, "hologram"):
        pytest.skip("torch's autoload is off")
    x = torch.arange(12.0, device="hologram").reshape(3, 4) * 2
    t = hg.from_dlpack(x)
    assert t.tolist() == x.cpu().tolist()
    assert pointer(t) == x.data_ptr()
    t += 1
    assert x.cpu().tolist() == t.tolist()
    x *= 3
    assert t.tolist() == x.cpu().tolist()
    total = x.sum().item()
    del x
    gc.collect()
    assert t.sum().item() == total
    back = torch.from_dlpack(t).to("hologram") + 1
    assert back.cpu().numpy().tolist() == (t + 1).tolist()
    for dtype in (torch.bfloat16, torch.bool, torch.int64):
        assert hg.from_dlpack(torch.ones(3, device="hologram", dtype=dtype)).tolist() == [1] * 3


def test_torch_lifetimes(torch: Any) -> None:
    t = hg.from_dlpack(torch.arange(1000))
    gc.collect()
    assert int(t[-1]) == 999
    x = torch.from_dlpack(hg.arange(1000))
    gc.collect()
    assert int(x[-1]) == 999
    threads = [threading.Thread(target=held.clear) for held in ([t], [x])]
    del t, x
    for thread in threads:
        thread.start()
        thread.join()


@pytest.mark.parametrize("dtype", TORCH_DTYPES)
@pytest.mark.parametrize("shape", [(), (3, 4), (0, 2)])
def test_jax_both_ways(jax: Any, dtype: str, shape: tuple[int, ...]) -> None:
    x = jax.numpy.ones(shape, dtype)
    t = hg.from_dlpack(x)
    assert (t.shape, str(t.dtype)) == (shape, dtype)
    assert t.tolist() == x.tolist()
    if x.size:
        assert np.asarray(hg.from_dlpack(x)._peek()).__array_interface__["data"][0] == (
            x.unsafe_buffer_pointer()
        )
    made = hg.array(np.ones(shape), dtype) + hg.ones(shape, dtype)
    back = jax.numpy.from_dlpack(made)
    assert back.shape == shape
    assert back.tolist() == made.tolist()
    del t, x, made
    gc.collect()
    assert back.sum() == 2 * np.prod(shape) or dtype == "bool"


def test_jax_shares_aligned_memory(jax: Any) -> None:
    t = hg.arange(4096, dtype="float32")
    x = jax.numpy.from_dlpack(t)
    assert x.unsafe_buffer_pointer() == pointer(t)
    y = jax.numpy.sin(x)
    assert pointer(hg.from_dlpack(y)) == y.unsafe_buffer_pointer()
    np.testing.assert_allclose(hg.from_dlpack(y).numpy(), hg.sin(t).numpy(), atol=1e-5)


@pytest.mark.heavy
@pytest.mark.parametrize("dtype", ["int32", "float32", "float64", "float16"])
def test_tensorflow_both_ways(dtype: str) -> None:
    tf = pytest.importorskip("tensorflow")
    x = tf.ones((3, 64), getattr(tf, dtype))
    t = hg.from_dlpack(tf.experimental.dlpack.to_dlpack(x))
    assert t.tolist() == x.numpy().tolist()
    made = hg.ones((3, 64), dtype) * 2
    back = tf.experimental.dlpack.from_dlpack(made.__dlpack__())
    assert back.numpy().tolist() == made.tolist()
    assert pointer(hg.from_dlpack(tf.experimental.dlpack.to_dlpack(back))) == pointer(made)
    lent = tf.experimental.dlpack.from_dlpack(tf.experimental.dlpack.to_dlpack(x))
    assert pointer(hg.from_dlpack(tf.experimental.dlpack.to_dlpack(lent))) == pointer(t)
    del x, made
    gc.collect()
    assert t.tolist() == [[1] * 64] * 3
    assert back.numpy()[0, 0] == 2
