# SPDX-License-Identifier: MIT
"""The SDK on a device of OpenCL or CUDA, once on each driver that the machine has."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import hologram_ffi as ffi
import numpy as np
import opencl_drivers
import pytest

import hologram as hg

BACKEND = opencl_drivers.chosen_backend()
CHOSEN = bool(BACKEND)  # this is the inner run
HERE = BACKEND in hg.backend.list_available_backends()


def run_with(devices: str, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run Python with HOLOGRAM_DEVICES, which is read when the library is first used."""
    env = os.environ | {"HOLOGRAM_DEVICES": devices} | more
    return subprocess.run(
        [sys.executable, *command], env=env, capture_output=True, text=True, timeout=300
    )


LIST = "import hologram; print(*hologram.backend.list_available_backends())"


@pytest.mark.skipif(CHOSEN, reason="this is the inner run")
@pytest.mark.parametrize("driver", opencl_drivers.DRIVERS)
def test_on_the_device(driver: str, tmp_path: Path) -> None:
    if missing := opencl_drivers.why_missing(driver):
        pytest.skip(missing)
    chosen = opencl_drivers.environment(driver, tmp_path / "log")
    devices = chosen.pop("HOLOGRAM_DEVICES")
    backend = opencl_drivers.backend(driver)
    if backend not in run_with(devices, "-c", LIST, **chosen).stdout:
        pytest.skip(f"no device of {backend} on this machine")
    inner = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__)
    result = run_with(devices, *inner, **chosen)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "passed" in result.stdout
    assert not opencl_drivers.complaints(tmp_path / "log")


@pytest.mark.skipif(CHOSEN, reason="the inner run is about the device")
def test_a_driver_is_named() -> None:
    """Whatever is wrong with it is said, and the CPU is there all the same."""
    ask = LIST + "; hologram.Executor(backend='opencl')"
    missing = run_with("cpu,opencl", "-c", ask, HOLOGRAM_OPENCL_LIBRARY="/nowhere/libOpenCL.so")
    assert missing.stdout.split() == ["cpu"]
    why = "HOLOGRAM_OPENCL_LIBRARY=/nowhere/libOpenCL.so cannot be loaded: /nowhere/libOpenCL.so"
    assert missing.stderr.startswith(f"hologram: {why}")
    assert missing.stderr.count(why) == 2  # the error of the backend says it, too
    other = run_with("cpu,opencl", "-c", ask, HOLOGRAM_OPENCL_LIBRARY="libm.so.6")
    assert other.stdout.split() == ["cpu"]
    assert "HOLOGRAM_OPENCL_LIBRARY=libm.so.6 is no driver of OpenCL 1.2" in other.stderr
    if "opencl" in run_with("cpu,opencl", "-c", LIST).stdout:
        named = run_with("cpu,opencl", "-c", LIST, HOLOGRAM_OPENCL_LIBRARY="libOpenCL.so.1")
        assert named.stdout.split() == ["cpu", "opencl"]


def why_no_cuda(**chosen: str) -> subprocess.CompletedProcess[str]:
    """Ask for CUDA's device over the fake, with something wrong about it."""
    ask = "import hologram; print(hologram.backend.why_unavailable('cuda'))"
    fake = opencl_drivers.environment(opencl_drivers.FAKE_CUDA, os.devnull)
    return run_with("cpu,cuda", "-c", ask, **(fake | {"HOLOGRAM_DEVICES": "cpu,cuda"} | chosen))


@pytest.mark.skipif(CHOSEN, reason="the inner run is about the device")
def test_why_there_is_no_cuda() -> None:
    ask = "import hologram; print(hologram.backend.why_unavailable('cuda'))"
    assert run_with("", "-c", ask).stdout.strip() == "HOLOGRAM_DEVICES=cpu,cuda takes it"
    missing = why_no_cuda(HOLOGRAM_CUDA_LIBRARY="/nowhere/libcuda.so.1")
    why = "HOLOGRAM_CUDA_LIBRARY=/nowhere/libcuda.so.1 cannot be loaded: /nowhere/libcuda.so.1"
    assert missing.stdout.startswith(why)
    assert missing.stderr.startswith(f"hologram: {why}")
    other = why_no_cuda(HOLOGRAM_CUDA_LIBRARY="libm.so.6")
    assert other.stdout.startswith("HOLOGRAM_CUDA_LIBRARY=libm.so.6 is no driver of CUDA 11")
    if missing_fake := opencl_drivers.why_missing(opencl_drivers.FAKE_CUDA):
        pytest.skip(missing_fake)
    no_compiler = "its compiler NVRTC is missing: HOLOGRAM_NVRTC_LIBRARY="
    for name, value, why in (
        ("HOLOGRAM_NVRTC_LIBRARY", "/nowhere/libnvrtc.so", f"{no_compiler}/nowhere/libnvrtc.so"),
        ("HOLOGRAM_NVRTC_LIBRARY", "libm.so.6", f"{no_compiler}libm.so.6 is no NVRTC"),
        ("FAKE_CUDA_DEVICES", "0", "the driver has no device"),
        ("FAKE_CUDA_FAIL", "cuDeviceGetCount:0:100", "the driver says CUDA_ERROR_NO_DEVICE"),
        ("FAKE_CUDA_FAIL", "cuDeviceGetAttribute:0:1", "cuda: cuDeviceGetAttribute"),
    ):
        assert why_no_cuda(**{name: value}).stdout.startswith(why)


# A product, and how many the fake of cuBLASLt was asked for.
PRODUCT = """
import ctypes, os
import numpy as np
import hologram as hg
x, y = (np.random.default_rng(n).standard_normal((16, 40)).astype(np.float32) for n in (0, 1))
with hg.Executor(backend="cuda") as ex:
    a, b, c = ex.allocate((16, 40)), ex.allocate((40, 16)), ex.allocate((16, 16))
    a.from_numpy(x)
    b.from_numpy(np.ascontiguousarray(y.T))
    hg.ops.gemm(ex, a, b, c)
    np.testing.assert_allclose(c.to_numpy(), x @ y.T, rtol=1e-4, atol=1e-4)
print(ctypes.CDLL(os.environ["HOLOGRAM_CUDA_LIBRARY"]).fake_cuda_count(b"products"))
"""


@pytest.mark.skipif(CHOSEN, reason="the inner run is about the device")
@pytest.mark.parametrize(
    ("library", "products", "said"),
    [
        (None, "1", ""),
        ("none", "0", ""),
        ("/nowhere/libcublasLt.so", "0", "cannot be loaded: /nowhere/libcublasLt.so"),
        ("libm.so.6", "0", "is no cuBLASLt of CUDA 12 or later: it has no function cublasLtCreate"),
    ],
)
def test_products_without_cublaslt(library: str | None, products: str, said: str) -> None:
    """Where the library is missing they are kernels of ours; a library that was named is missed."""
    if missing := opencl_drivers.why_missing(opencl_drivers.FAKE_CUDA):
        pytest.skip(missing)
    chosen = opencl_drivers.environment(opencl_drivers.FAKE_CUDA, os.devnull)
    if library is not None:
        chosen["HOLOGRAM_CUBLASLT_LIBRARY"] = library
    result = run_with(chosen.pop("HOLOGRAM_DEVICES"), "-c", PRODUCT, **chosen)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == products
    if said:
        name = f"hologram: cuBLASLt is left out: HOLOGRAM_CUBLASLT_LIBRARY={library} "
        assert (name + said) in result.stderr
    else:
        assert "cuBLASLt" not in result.stderr


@pytest.mark.skipif(CHOSEN, reason="the inner run is about the device")
def test_which_devices_there_are() -> None:
    assert run_with("cpu", "-c", LIST).stdout.split() == ["cpu"]
    # The CPU runs what other devices leave to the host.
    assert run_with("opencl", "-c", LIST).stdout.split()[0] == "cpu"
    result = run_with("cpu,opncl", "-c", LIST)
    assert result.stdout.split() == ["cpu"]
    assert "HOLOGRAM_DEVICES=cpu,opncl names 'opncl', which this build does not have" in (
        result.stderr
    )


on_device = pytest.mark.skipif(not (CHOSEN and HERE), reason="runs inside test_on_the_device")


@on_device
def test_buffers_keep_what_is_put_there() -> None:
    with hg.Executor(backend=BACKEND) as ex:
        assert ex.backend == BACKEND
        x = np.arange(12, dtype=np.int32).reshape(3, 4)
        a = ex.allocate((3, 4), dtype=np.int32)
        a.from_numpy(x.T.copy().T)
        np.testing.assert_array_equal(a.to_numpy(), x)
        assert a.to_bytes() == x.tobytes()
        a.from_bytes(bytes(48))
        assert not np.asarray(a).any()
        a.fill(7)
        b = ex.allocate((3, 4), dtype=np.float64)
        b.copy_from(a)
        np.testing.assert_array_equal(b.to_numpy(), np.full((3, 4), 7.0))
        view = b.to_numpy()
        assert not view.flags.writeable
        with pytest.raises(BufferError, match="a view is a read-only copy"):
            ctypes.pythonapi.PyObject_GetBuffer(
                ctypes.py_object(b), ctypes.create_string_buffer(256), 1
            )


@on_device
def test_the_memory_is_not_lent() -> None:
    with hg.Executor(backend=BACKEND) as ex:
        a = ex.allocate(4)
        with pytest.raises(NotImplementedError, match="copy it to the CPU first"):
            a.__dlpack__()
        assert a.__dlpack_device__() == ({"cuda": 2, "opencl": 4}[BACKEND], 0)


@on_device
def test_arrays_of_positions_and_masks_read_and_assign() -> None:
    """Indices lie in host memory, the elements on the device."""
    with hg.Executor(backend=BACKEND) as ex:
        for shape in ((6, 4), (5, 6, 7)):
            x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
            at, column = np.array([1, -1, 0]), np.array([[1], [2]])
            keys = [at, x > 7, x[:, 0] > 9, (slice(None), column), (at, at), (at, None, at), ([],)]
            keys += [(slice(1, None), x[0] > 3), (0, [1, 2])]
            for key in keys[:2] + keys[3:] if len(shape) == 3 else keys:
                for value in (7, x[key] * 2, hg.array(np.float32(5))):
                    b = ex.allocate(shape)
                    b.from_numpy(x)
                    t, y = hg.asarray(b), x.copy()
                    found = np.array(t[key].tolist(), np.float32).reshape(x[key].shape)
                    np.testing.assert_array_equal(found, x[key])
                    t[key] = value
                    y[key] = np.asarray(value)
                    np.testing.assert_array_equal(b.to_numpy(), y)
            assert [p.tolist() for p in t.nonzero()] == [p.tolist() for p in y.nonzero()]


@on_device
def test_sizes_may_change_at_every_call() -> None:
    x = np.random.default_rng(0).standard_normal(200).astype(np.float32)
    with hg.Executor(backend=BACKEND) as ex:
        for n in [101, 103, 107, 109, 113, 101, 127, 131]:
            a, b = ex.allocate(n), ex.allocate(n)
            a.from_numpy(x[:n])
            hg.ops.vector_add(ex, a, a, b)
            hg.ops.vector_relu(ex, b, b)
            np.testing.assert_array_equal(b.to_numpy(), np.maximum(x[:n] + x[:n], 0))


@on_device
def test_operations_agree_with_numpy() -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((32, 48)).astype(np.float32) for _ in range(2))
    with hg.Executor(backend=BACKEND) as ex:
        before = ex.stats()  # these count for all executors of the device
        a, b, c, d = (ex.allocate((32, 48)) for _ in range(4))
        s = ex.allocate(1)
        a.from_numpy(x)
        b.from_numpy(y)
        hg.ops.vector_add(ex, a, b, c)
        np.testing.assert_array_equal(c.to_numpy(), x + y)
        hg.ops.vector_relu(ex, c, d)
        np.testing.assert_array_equal(d.to_numpy(), np.maximum(x + y, 0))
        hg.ops.tanh(ex, a, d)
        np.testing.assert_allclose(d.to_numpy(), np.tanh(x), rtol=1e-6)
        hg.ops.reduce_sum(ex, a, s)
        np.testing.assert_allclose(s.to_numpy()[0], x.sum(), rtol=1e-4)
        hg.ops.softmax(ex, a, d)
        rows = np.exp(x - x.max(-1, keepdims=True))
        np.testing.assert_allclose(d.to_numpy(), rows / rows.sum(-1, keepdims=True), rtol=1e-5)
        g = ex.allocate((32, 32))
        hg.ops.gemm(ex, a, transposed(ex, b), g)
        np.testing.assert_allclose(g.to_numpy(), x @ y.T, rtol=1e-4, atol=1e-4)
        ex.synchronize()
        for count in ("host_kernels", "host_bytes"):
            assert ex.stats()[count] == before[count]


def transposed(ex: hg.Executor, b: hg.Buffer) -> hg.Buffer:
    result = ex.allocate(tuple(reversed(b.shape)))
    result.from_numpy(np.ascontiguousarray(b.to_numpy().T))
    return result


@on_device
def test_tensors_on_its_buffers() -> None:
    with hg.Executor(backend=BACKEND) as ex:
        a = ex.allocate((2, 3))
        a.from_numpy(np.arange(6, dtype=np.float32).reshape(2, 3))
        t = hg.asarray(a)
        flipped = t.transpose(0, 1)
        np.testing.assert_array_equal(np.asarray(flipped * 2 + flipped), 3 * np.asarray(t).T)
        np.testing.assert_array_equal(np.asarray(t[1]), [3, 4, 5])
        assert t.sum().item() == 15.0
        assert "3." in repr(t)
        # A complex dtype and more dimensions than a record has go through the host.
        deep = t.reshape(1, 2, 1, 3, 1, 1, 1, 1, 1, 1)
        np.testing.assert_array_equal(np.asarray(deep + deep).ravel(), [0, 2, 4, 6, 8, 10])
        with pytest.raises(ValueError, match="different devices"):
            t + hg.asarray(np.ones((2, 3), np.float32))


@on_device
def test_the_handle_api() -> None:
    ex = ffi.new_executor_with_backend(BACKEND)
    assert ffi.executor_backend(ex) == BACKEND
    a, b, c = (ffi.executor_allocate_buffer(ex, 4) for _ in range(3))
    ffi.buffer_copy_from_slice(ex, a, "[1, 2, 3, 4]")
    ffi.buffer_fill(ex, b, 10.0, 4)
    ffi.vector_add_f32(ex, a, b, c, 4)
    assert ffi.buffer_to_vec(ex, c) == "[11.0, 12.0, 13.0, 14.0]"
    raw = np.frombuffer(ffi.buffer_to_bytes(ex, c), np.float32)
    np.testing.assert_array_equal(raw, [11, 12, 13, 14])
    with pytest.raises(NotImplementedError, match="cannot be reached from the processor"):
        ffi.buffer_as_ptr(ex, a)
    for buffer in (a, b, c):
        ffi.buffer_cleanup(buffer)
    ffi.executor_cleanup(ex)


def recurrent_results(put, reverse: bool) -> list[np.ndarray]:
    """Of every recurrent call, over rows that `put` makes tensors of; states are also updated."""
    rng = np.random.default_rng(0)

    def rows(*shape: int) -> hg.Tensor:
        return put(rng.standard_normal(shape).astype(np.float32))

    steps, batch, width = 3, 2, 5
    h, c, grad = rows(batch, width), rows(batch, width), rows(steps, batch, width)
    weight, bias, gates = rows(4 * width, width), rows(4 * width), rows(steps, batch, 4 * width)
    output, _, _, cells = lstm = hg.lstm_forward(gates, weight, bias, h, c, reverse=reverse)
    found = [*lstm, gates]
    found += hg.lstm_backward(gates, cells, weight, c, grad, h, None, reverse=reverse)
    gates = rows(steps, batch, 4 * width)
    last_h, last_c = rows(batch, width), rows(batch, width)
    states = rows(steps, batch, width), last_h, last_c
    hg.lstm_recurrence(gates, weight, None, last_h, last_c, reverse=reverse, out=states)
    found += states
    weight, bias, gates = rows(3 * width, width), rows(3 * width), rows(steps, batch, 3 * width)
    output, _, hidden = gru = hg.gru_forward(gates, weight, bias, h, reverse=reverse)
    found += [*gru, gates]
    found += hg.gru_backward(gates, hidden, output, weight, h, None, c, reverse=reverse)
    weight, gates = rows(width, width), rows(steps, batch, width)
    for relu in (False, True):
        output, last = hg.rnn_forward(gates, weight, None, h, relu=relu, reverse=reverse)
        grads = hg.rnn_backward(output, weight, grad, relu=relu, reverse=reverse)
        found += [output, last, *grads]
    return [np.asarray(x) for x in found]


def attention_results(put, causal: bool) -> list[np.ndarray]:
    """Of heads in pairs, whose values are narrower than their keys, and of none of those."""
    rng = np.random.default_rng(0)
    found = []
    for queries, keys in ((5, 3), (2, 5), (3, 0)):
        shapes = (2, 4, queries, 3), (2, 2, keys, 3), (2, 2, keys, 2), (2, 4, queries, keys)
        q, k, v, mask = (put(rng.standard_normal(s).astype(np.float32)) for s in shapes)
        found += [hg.attention(q, k, v, mask, is_causal=causal)]
        out, logsumexp = hg._hologram.calls.run(
            "attention", [q, k, v, mask], {"is_causal": causal, "scale": 0.7}, []
        )
        grad = put(np.full((2, 4, queries, 2), 0.5, np.float32))
        given = q, k, v, mask, out, logsumexp, grad
        grads = hg.attention_backward(*given, is_causal=causal, scale=0.7)
        found += [out, logsumexp, *grads]
    return [np.asarray(x) for x in found]


@on_device
@pytest.mark.parametrize("results", [recurrent_results, attention_results])
@pytest.mark.parametrize("flag", [False, True])
def test_calls_agree_with_the_cpu(results, flag: bool) -> None:
    with hg.Executor(backend=BACKEND) as ex:

        def put(x: np.ndarray) -> hg.Tensor:
            memory = ex.allocate(x.shape)
            memory.from_numpy(x)
            return hg.asarray(memory)

        before = ex.stats()["host_kernels"]
        found = results(put, flag)
        assert ex.stats()["host_kernels"] == before
    for x, y in zip(found, results(hg.array, flag), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


@on_device
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "float32"])
def test_random_integers_are_those_of_the_cpu(dtype: str) -> None:
    """Also where a word is drawn again, which it is for one in 64, in 4 and in 2 elements."""
    n, place = 3001, {"seed": 2**63 + 5, "offset": 2**64 - 9, "low": 5}
    with hg.Executor(backend=BACKEND) as ex:
        before = ex.stats()["host_kernels"]
        for count in (7, 3 << 26, (1 << 28) - 1, 3 << 40, 3 << 62, (1 << 63) + 1, 0):
            found = ex.allocate(n, dtype=dtype)
            hg.ops.integers(ex, found, **place, count=count)
            expected = hg.empty(n, dtype)
            hg.integers(expected, **place, count=count)
            np.testing.assert_array_equal(found.to_numpy(), np.asarray(expected), str(count))
        assert ex.stats()["host_kernels"] == before


@on_device
@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
def test_unsigned_integers(dtype: str) -> None:
    most = int(np.iinfo(dtype).max)
    x = np.array([0, 1, most // 2, most // 2 + 1, most, 5, most - 1, 40], dtype)
    y = np.roll(x, 3)
    with hg.Executor(backend=BACKEND) as ex:

        def put(values: np.ndarray) -> hg.Tensor:
            memory = ex.allocate(values.shape, values.dtype)
            memory.from_numpy(values)
            return hg.asarray(memory)

        a, b = put(x), put(y)
        for name in ("add", "multiply", "maximum", "less", "floor_divide", "right_shift"):
            f = getattr(np, name)
            np.testing.assert_array_equal(np.asarray(f(a, b)), f(x, y), err_msg=name)
        for to in ("bool", "uint8", "int64", "float32", "float64", "uint16", "uint64"):
            np.testing.assert_array_equal(np.asarray(a.astype(to)), x.astype(to), err_msg=to)
        halves = np.array([0.5, 3.75, 40000.0, most / 4, most * 0.75])
        np.testing.assert_array_equal(
            np.asarray(put(halves).astype(dtype)), halves.astype(dtype), err_msg=dtype
        )
        np.testing.assert_array_equal(np.asarray(a[::2] // 3), x[::2] // 3)
        for name in ("sum", "max", "min", "argmax", "cumsum", "mean"):
            found = np.asarray(getattr(a, name)())
            np.testing.assert_array_equal(found, getattr(x, name)(), err_msg=name)
        square = x.reshape(2, 4) @ y.reshape(4, 2)
        np.testing.assert_array_equal(np.asarray(a.reshape(2, 4) @ b.reshape(4, 2)), square)
        assert (a.tolist(), b[2].item()) == (x.tolist(), int(y[2]))
        a[1:3] = most
        assert a.tolist() == [0, most, most, *x[3:].tolist()]
        c = ex.allocate(8, dtype)
        c.fill(most)
        hg.ops.add(ex, c, 2, c)
        assert c.to_numpy().tolist() == [1] * 8
