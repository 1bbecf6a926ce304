# SPDX-License-Identifier: MIT
"""The handle interface in Python: every op beside NumPy, every refusal, lifetimes and threads."""

from __future__ import annotations

import ast
import datetime
import gc
import importlib.metadata
import inspect
import itertools
import json
import math
import re
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hologram_ffi as ffi
import numpy as np
import pytest

import hologram

ROOT = Path(__file__).resolve().parents[2]
N = 1003

# What a user must be able to write.
SURFACE = """get_version new_executor new_executor_with_backend new_executor_auto
executor_allocate_buffer executor_cleanup buffer_cleanup buffer_length buffer_copy_from_bytes
buffer_to_bytes buffer_as_ptr buffer_as_mut_ptr buffer_copy_from_slice buffer_to_vec buffer_fill
buffer_copy tensor_to_dlpack tensor_from_dlpack clear_all_registries vector_add_f32 vector_sub_f32
vector_mul_f32 vector_div_f32 vector_min_f32 vector_max_f32 vector_abs_f32 vector_neg_f32
vector_relu_f32 vector_clip_f32 scalar_add_f32 scalar_mul_f32 sigmoid_f32 tanh_f32 gelu_f32
softmax_f32 reduce_sum_f32 reduce_min_f32 reduce_max_f32 mse_loss_f32 cross_entropy_loss_f32
binary_cross_entropy_loss_f32 gemm_f32 matvec_f32 HologramTensor""".split()


@pytest.fixture
def ex() -> Iterator[int]:
    executor = ffi.new_executor()
    yield executor
    ffi.executor_cleanup(executor)


class Buffers:
    """Buffers of one executor, freed together."""

    def __init__(self, ex: int) -> None:
        self.ex = ex
        self.handles: list[int] = []

    def of(self, values: Any, dtype: Any = np.float32) -> int:
        array = np.ascontiguousarray(values, dtype=dtype)
        handle = ffi.executor_allocate_buffer(self.ex, array.size, array.dtype)
        self.handles.append(handle)
        ffi.buffer_copy_from_bytes(self.ex, handle, array)
        return handle

    def empty(self, n: int, dtype: Any = np.float32) -> int:
        return self.of(np.zeros(n, dtype), dtype)

    def read(self, handle: int) -> np.ndarray:
        dtype = ffi.buffer_dtype(handle)
        return np.frombuffer(ffi.buffer_to_bytes(self.ex, handle), dtype=dtype).copy()


@pytest.fixture
def buffers(ex: int) -> Iterator[Buffers]:
    made = Buffers(ex)
    yield made
    for handle in made.handles:
        ffi.buffer_cleanup(handle)


def inputs(count: int, low: float = -3.0, high: float = 3.0, n: int = N) -> list[np.ndarray]:
    generator = np.random.default_rng(count)
    return [generator.uniform(low, high, n).astype(np.float32) for _ in range(count)]


def ulps(got: np.ndarray, want: np.ndarray) -> float:
    """Return the largest error in units of the last place of float32; want is float64."""
    unit = np.spacing(np.abs(want).astype(np.float32)).astype(np.float64)
    return float(np.max(np.abs(got.astype(np.float64) - want) / unit))


def erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf)(x)


# --- Names ---------------------------------------------------------------------------------------


def test_everything_that_was_promised_is_there() -> None:
    assert [name for name in SURFACE if not hasattr(ffi, name)] == []


def header_functions() -> set[str]:
    text = (Path(hologram.get_include()) / "hologram" / "hologram.h").read_text()
    named = set(re.findall(r"HOLOGRAM_C_API [\w\s*]*?\bhologram_(\w+)\(", text))
    named |= set(re.findall(r"^  (?:FUNCTION|LOSS)\((\w+)", text, re.MULTILINE))
    return (named - {""}) | {name for name, _ in table_rows()}


def table_rows() -> list[tuple[str, str]]:
    """Return the names and numbers of the op table's rows."""
    text = (Path(hologram.get_include()) / "hologram" / "elementwise.def").read_text()
    return re.findall(r"^HOLOGRAM_OP\((\w+), *(\d+)", text, re.MULTILINE)


def test_header_module_and_frozen_table_list_the_same_functions() -> None:
    declared = header_functions()
    rows = {name for name, _ in table_rows()}
    assert len(declared) > 130 and len(rows) > 70
    frozen = (ROOT / "tests" / "abi" / "abi_test.c").read_text()
    assert [n for n in sorted(declared - rows) if f"hologram_{n}," not in frozen] == []
    # What Python needs no function for.
    apart = {"last_error", "status_name", "dtype_name", "free"}
    apart |= {n for n in declared if n.endswith("_unversioned")}
    assert [n for n in sorted(declared - apart) if not hasattr(ffi, n)] == []


def test_the_library_exports_what_the_header_declares() -> None:
    (library,) = (Path(hologram.__file__).parent / "lib").glob("libhologram.so*")
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True
    )
    if listing.returncode != 0:
        pytest.skip("nm is not installed")
    exported = set(re.findall(r" T hologram_(\w+)$", listing.stdout, re.MULTILINE))
    assert exported == header_functions()


def test_stubs_and_signatures_agree() -> None:
    stub = Path(hologram.__file__).with_name("_ffi.pyi")
    tree = ast.parse(stub.read_text())
    stubbed = {
        node.name: [a.arg for a in node.args.args]
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }
    functions = {n: f for n, f in vars(hologram._ffi).items() if inspect.isbuiltin(f)}
    assert stubbed == {n: list(inspect.signature(f).parameters) for n, f in functions.items()}
    assert [n for n, f in functions.items() if not (f.__doc__ or "").strip()] == []


def test_calls_by_name(buffers: Buffers) -> None:
    rows = {ffi.call_info(i)[0]: ffi.call_info(i) for i in range(ffi.call_count())}
    assert all(schema.count("->") == 1 and doc for _, schema, doc in rows.values())
    with pytest.raises(TypeError, match="call: name: expected the name of a call"):
        ffi.call(3, [])
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    t = ffi.tensor_from_buffer(buffers.of(x.ravel()), (3, 4))
    out, mean, _ = ffi.call("layer_norm", [t, None, None], {"eps": 0.0, "axes": 1})
    assert ffi.tensor_shape(out) == (3, 4)
    want = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)
    got = buffers.read(ffi.tensor_as_buffer(out)).reshape(3, 4)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(buffers.read(ffi.tensor_as_buffer(mean)), x.mean(1))
    params, grads = [buffers.of([1.0, 2.0])], [buffers.of([10.0, 20.0])]
    assert ffi.call("sgd", [None, None, params, grads], {"lr": 0.5}) == []
    np.testing.assert_array_equal(buffers.read(params[0]), [-4, -8])
    for inputs, arguments, error, message in [
        ([t], {"axis": 1}, ValueError, 'layer_norm: has no parameter "axis"'),
        ([t], [1], TypeError, "a dict of parameters by name"),
        (["x"], None, TypeError, "call: inputs"),
    ]:
        with pytest.raises(error, match=message):
            ffi.call("layer_norm", inputs, arguments)


def test_versions() -> None:
    assert ffi.get_version() == hologram.__version__ == importlib.metadata.version("hologram")


# --- Ops -----------------------------------------------------------------------------------------

BINARY: list[tuple[str, Callable[..., np.ndarray]]] = [
    ("vector_add_f32", np.add),
    ("vector_sub_f32", np.subtract),
    ("vector_mul_f32", np.multiply),
    ("vector_div_f32", np.divide),
    ("vector_min_f32", np.minimum),
    ("vector_max_f32", np.maximum),
]
UNARY: list[tuple[str, Callable[..., np.ndarray], float]] = [
    ("vector_abs_f32", np.abs, 0.5),
    ("vector_neg_f32", np.negative, 0.5),
    ("vector_relu_f32", lambda x: np.maximum(x, 0), 0.5),
    ("sigmoid_f32", lambda x: 1 / (1 + np.exp(-x)), 4),
    ("tanh_f32", np.tanh, 4),
    ("gelu_f32", lambda x: x * 0.5 * (1 + erf(x / math.sqrt(2))), 6),
]


@pytest.mark.parametrize("name, reference", BINARY)
def test_binary(buffers: Buffers, name: str, reference: Callable[..., np.ndarray]) -> None:
    x, y = inputs(2)
    a, b, c = buffers.of(x), buffers.of(y), buffers.empty(N)
    getattr(ffi, name)(buffers.ex, a, b, c, N - 3)
    want = reference(x.astype(np.float64), y.astype(np.float64))
    got = buffers.read(c)
    assert ulps(got[:-3], want[:-3]) <= 0.5
    assert not got[-3:].any()
    getattr(ffi, name)(buffers.ex, a, b, a, n=N)
    assert ulps(buffers.read(a), want) <= 0.5


@pytest.mark.parametrize("name, reference, most", UNARY)
def test_unary(
    buffers: Buffers, name: str, reference: Callable[..., np.ndarray], most: float
) -> None:
    (x,) = inputs(1)
    a, y = buffers.of(x), buffers.empty(N)
    getattr(ffi, name)(buffers.ex, a, y, N)
    want = reference(x.astype(np.float64))
    assert ulps(buffers.read(y), want) <= most
    getattr(ffi, name)(buffers.ex, a, a, N)
    np.testing.assert_array_equal(buffers.read(a), buffers.read(y))


def test_clip_and_scalars(buffers: Buffers) -> None:
    (x,) = inputs(1)
    a, y = buffers.of(x), buffers.empty(N)
    ffi.vector_clip_f32(buffers.ex, a, y, N, -0.5, 1.25)
    np.testing.assert_array_equal(buffers.read(y), np.clip(x, -0.5, 1.25))
    ffi.scalar_add_f32(buffers.ex, a, y, N, 0.1)
    np.testing.assert_array_equal(buffers.read(y), x + np.float32(0.1))
    ffi.scalar_mul_f32(buffers.ex, a, y, N, scalar=-3)
    np.testing.assert_array_equal(buffers.read(y), x * np.float32(-3))


@pytest.mark.parametrize("n", [1, 7, N, 20000])
def test_softmax_and_reductions(buffers: Buffers, n: int) -> None:
    (x,) = inputs(1, n=n)
    a, y = buffers.of(x), buffers.empty(n)
    ffi.softmax_f32(buffers.ex, a, y, n)
    e = np.exp(x.astype(np.float64) - x.max())
    np.testing.assert_allclose(buffers.read(y), e / e.sum(), rtol=2e-6)
    for name, want in [
        ("reduce_sum_f32", x.astype(np.float64).sum()),
        ("reduce_min_f32", x.min()),
        ("reduce_max_f32", x.max()),
    ]:
        getattr(ffi, name)(buffers.ex, a, y, n)
        np.testing.assert_allclose(buffers.read(y)[0], want, rtol=1e-5, atol=1e-4)


def test_losses(buffers: Buffers) -> None:
    p, t = inputs(2, 0.01, 0.99)
    wide, target = p.astype(np.float64), t.astype(np.float64)
    pred, goal, loss = buffers.of(p), buffers.of(t), buffers.empty(5)
    for name, terms in [
        ("mse_loss_f32", (wide - target) ** 2),
        ("cross_entropy_loss_f32", -target * np.log(wide)),
        (
            "binary_cross_entropy_loss_f32",
            -(target * np.log(wide) + (1 - target) * np.log(1 - wide)),
        ),
    ]:
        value = getattr(ffi, name)(buffers.ex, pred, goal, loss, N)
        np.testing.assert_allclose(value, terms.mean(), rtol=1e-5)
        np.testing.assert_allclose(
            buffers.read(loss), [value, terms.sum(), N, 0, 0], rtol=1e-5, err_msg=name
        )


@pytest.mark.parametrize("m, n, k", [(2, 3, 5), (1, 9, 4), (64, 17, 33), (7, 1, 2), (120, 250, 60)])
def test_products_of_matrices_that_are_not_square(buffers: Buffers, m: int, n: int, k: int) -> None:
    a, b = inputs(1, n=m * k)[0], inputs(2, n=k * n)[1]
    c = buffers.empty(m * n)
    ffi.gemm_f32(buffers.ex, buffers.of(a), buffers.of(b), c, m, n, k)
    left, right = a.astype(np.float64).reshape(m, k), b.astype(np.float64).reshape(k, n)
    np.testing.assert_allclose(
        buffers.read(c).reshape(m, n), left @ right, rtol=1e-5, atol=1e-5 * k
    )
    y = buffers.empty(m)
    ffi.matvec_f32(buffers.ex, buffers.of(a), buffers.of(b[:k]), y, m, k)
    np.testing.assert_allclose(
        buffers.read(y), left @ b[:k].astype(np.float64), rtol=1e-5, atol=1e-5 * k
    )


ROWS: list[tuple[str, Callable[..., Any], int]] = [
    ("exp", np.exp, 1),
    ("log1p", lambda x: np.log1p(np.abs(x)), 1),
    ("sqrt", np.sqrt, 1),
    ("floor", np.floor, 1),
    ("pow", np.power, 2),
    ("squared_difference", lambda x, y: (x - y) ** 2, 2),
    ("fma", lambda x, y, z: x * y + z, 3),
    ("lerp", lambda x, y, z: x + z * (y - x), 3),
    ("addcmul", lambda x, y, z, w: x + w * y * z, 4),
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("name, reference, arity", ROWS)
def test_rows_of_the_table(
    buffers: Buffers, name: str, reference: Callable[..., Any], arity: int, dtype: str
) -> None:
    x = [np.abs(v).astype(dtype) for v in inputs(arity)]
    out = buffers.empty(N, dtype)
    handles = [buffers.of(v, dtype) for v in x]
    getattr(ffi, name)(buffers.ex, *handles, out, N)
    want = reference(*(v.astype(np.float64) for v in x))
    # A half is rounded once, from float32; the others may round at every step of a row.
    rtol = {"float16": 2.0**-10, "float32": 1e-5, "float64": 1e-12}[dtype]
    atol = {"float16": 2.0**-24, "float32": 1e-5, "float64": 1e-12}[dtype]
    np.testing.assert_allclose(buffers.read(out), want, rtol=rtol, atol=atol)
    by_name = buffers.empty(N, dtype)
    ffi.elementwise(buffers.ex, name, handles, by_name, N)
    np.testing.assert_array_equal(buffers.read(by_name), buffers.read(out))


def test_every_row_runs_on_some_dtype(buffers: Buffers) -> None:
    for (name, number), dtype in itertools.product(table_rows(), ["float32", "int32"]):
        parameters = list(inspect.signature(getattr(ffi, name)).parameters)
        x = buffers.of([1, 2, 3], dtype)
        out = buffers.empty(3, dtype)
        try:
            getattr(ffi, name)(buffers.ex, *[x] * (len(parameters) - 3), out, 3)
            ffi.elementwise(buffers.ex, int(number), [x] * (len(parameters) - 3), out, 3)
            ffi.executor_synchronize(buffers.ex)
        except TypeError as error:
            assert name.startswith("bitwise") or dtype == "int32", (name, error)


def test_numbers_reductions_and_rows_of_any_dtype(buffers: Buffers) -> None:
    x = np.array([[3, -1, 2], [7, 5, 0]], np.int32)
    a, out = buffers.of(x, np.int32), buffers.empty(6, np.int32)
    ffi.elementwise(buffers.ex, "clamp", [a, 0.0, 4.0], out, 6)
    np.testing.assert_array_equal(buffers.read(out), np.clip(x, 0, 4).ravel())
    with pytest.raises(TypeError, match=r"^elementwise: "):
        ffi.elementwise(buffers.ex, "mul", [a, 0.5], out, 6)
    total = buffers.empty(1, np.int64)
    for name, want in [("sum", 16), ("prod", 0), ("argmax", 3), ("argmin", 1)]:
        ffi.reduce(buffers.ex, name, a, total, 6)
        assert buffers.read(total)[0] == want
    wide = buffers.empty(1, np.float64)
    for name, want in [("mean", x.mean()), ("std", x.std(ddof=1)), ("norm", np.linalg.norm(x))]:
        ffi.reduce(buffers.ex, name, a, wide, 6)
        np.testing.assert_allclose(buffers.read(wide)[0], want, rtol=1e-14)
    d, y = buffers.of(x, np.float64), buffers.empty(6, np.float64)
    ffi.softmax(buffers.ex, d, y, 2, 3)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(buffers.read(y).reshape(2, 3), e / e.sum(1, keepdims=True))
    ffi.log_softmax(buffers.ex, d, y, rows=2, cols=3)
    np.testing.assert_allclose(buffers.read(y).reshape(2, 3), np.log(e / e.sum(1, keepdims=True)))
    ffi.gemm(buffers.ex, d, d, y, 2, 2, 3)
    flat = x.ravel().astype(float)
    np.testing.assert_array_equal(buffers.read(y)[:4], (x @ flat.reshape(3, 2)).ravel())


# --- Transfers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int64", "bool"])
def test_json_is_what_python_reads_and_writes(buffers: Buffers, dtype: str) -> None:
    values = np.array([0, 1, 1, 0, 1], dtype) if dtype == "bool" else np.array([0, 1, -2], dtype)
    if dtype.startswith("float"):
        values = np.array([0.1, -0.0, math.inf, -math.inf, 6e-5, 1e4, 3], dtype)
    a, b = buffers.of(values, dtype), buffers.empty(values.size, dtype)
    text = ffi.buffer_to_vec(buffers.ex, a)
    assert np.array(json.loads(text), dtype).tobytes() == values.tobytes()
    assert text == json.dumps(json.loads(text))
    ffi.buffer_copy_from_slice(buffers.ex, b, json.dumps(values.tolist()))
    assert ffi.buffer_to_bytes(buffers.ex, b) == values.tobytes()
    ffi.buffer_copy_from_slice(buffers.ex, b, text.encode())
    assert ffi.buffer_to_bytes(buffers.ex, b) == values.tobytes()


def test_json_of_nan(buffers: Buffers) -> None:
    a = buffers.empty(2)
    ffi.buffer_copy_from_slice(buffers.ex, a, json.dumps([math.nan, 1]))
    assert ffi.buffer_to_vec(buffers.ex, a) == "[NaN, 1.0]"


def test_bytes_of_any_contiguous_object(buffers: Buffers) -> None:
    a = buffers.empty(4)
    x = np.arange(8, dtype=np.float32)
    for data in (x[:4], bytearray(x[:4].tobytes()), memoryview(x[:4].tobytes())):
        ffi.buffer_fill(buffers.ex, a, 9)
        ffi.buffer_copy_from_bytes(buffers.ex, a, data)
        assert ffi.buffer_to_bytes(buffers.ex, a) == x[:4].tobytes()
    with pytest.raises(TypeError, match=r"^buffer_copy_from_bytes: data: expected bytes, or an"):
        ffi.buffer_copy_from_bytes(buffers.ex, a, x[::2])
    with pytest.raises(ValueError, match="nbytes is 32 but the buffer has 16"):
        ffi.buffer_copy_from_bytes(buffers.ex, a, x)


def test_an_address_is_that_of_the_elements(buffers: Buffers) -> None:
    import ctypes

    a = buffers.of([1, 2, 3])
    ffi.scalar_add_f32(buffers.ex, a, a, 3, 1)
    address = ffi.buffer_as_mut_ptr(buffers.ex, a)
    assert address == ffi.buffer_as_ptr(buffers.ex, a)
    array = (ctypes.c_float * 3).from_address(address)
    assert list(array) == [2, 3, 4]
    array[0] = 10
    ffi.vector_neg_f32(buffers.ex, a, a, 3)
    assert list(array) == [-10, -3, -4]


# --- Refusals ------------------------------------------------------------------------------------


def test_refusals_name_function_and_argument(buffers: Buffers) -> None:
    ex, a, b = buffers.ex, buffers.of([1, 2, 3]), buffers.of([1.0], np.float64)
    freed = ffi.executor_allocate_buffer(ex, 3)
    ffi.buffer_cleanup(freed)
    add = ffi.vector_add_f32
    maker = "pass one from executor_allocate_buffer"
    cases: list[tuple[type[Exception], str, Callable[[], Any]]] = [
        (ValueError, f"vector_add_f32: b: the handle is 0; {maker}", lambda: add(ex, a, 0, a, 3)),
        (
            ValueError,
            f"vector_add_f32: c: 0x4d2 is no handle of this process; {maker}",
            lambda: add(ex, a, a, 1234, 3),
        ),
        (
            RuntimeError,
            f"vector_add_f32: a: handle {freed:#x} was a buffer and has been freed",
            lambda: add(ex, freed, a, a, 3),
        ),
        (
            RuntimeError,
            f"buffer_cleanup: buf: handle {freed:#x} was a buffer and has been freed",
            lambda: ffi.buffer_cleanup(freed),
        ),
        (
            ValueError,
            f"vector_add_f32: c: handle {ex:#x} is an executor, not a buffer; {maker}",
            lambda: add(ex, a, a, ex, 3),
        ),
        (
            ValueError,
            "vector_add_f32: a: n is 4 but the buffer has 3 elements",
            lambda: add(ex, a, a, a, 4),
        ),
        (ValueError, "vector_add_f32: n is -1; pass 0 or more", lambda: add(ex, a, a, a, -1)),
        (
            ValueError,
            "vector_add_f32: n: expected an int of 64 bits, got 9223372036854775808",
            lambda: add(ex, a, a, a, 2**63),
        ),
        (
            TypeError,
            "vector_add_f32: b: the buffer holds float64, not float32",
            lambda: add(ex, a, b, a, 1),
        ),
        (
            TypeError,
            "vector_add_f32: a: expected a handle (int), got 'a'",
            lambda: add(ex, "a", a, a, 3),  # type: ignore[arg-type]
        ),
        (
            ValueError,
            "vector_add_f32: a: expected a handle (int), got -1",
            lambda: add(ex, -1, a, a, 3),
        ),
        (
            TypeError,
            "vector_add_f32: n: expected an int, got 3.0",
            lambda: add(ex, a, a, a, 3.0),  # type: ignore[arg-type]
        ),
        (
            TypeError,
            "vector_add_f32: takes 5 arguments, got 6",
            lambda: add(ex, a, a, a, 3, 4),  # type: ignore[call-arg]
        ),
        (TypeError, "vector_add_f32: n is missing", lambda: add(ex, a, a, a)),  # type: ignore[call-arg]
        (
            TypeError,
            "vector_add_f32: no parameter is named 'm'",
            lambda: add(ex, a, a, a, m=3),  # type: ignore[call-arg]
        ),
        (
            TypeError,
            "vector_add_f32: a is given twice",
            lambda: add(ex, a, a, a, a=a),  # type: ignore[call-arg, misc]
        ),
        (
            TypeError,
            "scalar_add_f32: scalar: expected a number, got None",
            lambda: ffi.scalar_add_f32(ex, a, a, 3, None),  # type: ignore[arg-type]
        ),
        (
            ValueError,
            "buffer_copy_from_slice: json: byte 4: expected a number, found 'x'",
            lambda: ffi.buffer_copy_from_slice(ex, a, "[1, x]"),
        ),
        (
            TypeError,
            "buffer_copy_from_slice: json: expected JSON text (str or bytes), got [1]",
            lambda: ffi.buffer_copy_from_slice(ex, a, [1]),  # type: ignore[arg-type]
        ),
        (
            ValueError,
            "executor_allocate_buffer: dtype is 99; pass a hologram_dtype, 0 to 14",
            lambda: ffi.executor_allocate_buffer(ex, 3, 99),
        ),
        (
            TypeError,
            "executor_allocate_buffer: dtype: expected a dtype (bool, uint8 to uint64, "
            "int8 to int64, float16, bfloat16, float32, float64, complex64, complex128), "
            "got 'quaternion'",
            lambda: ffi.executor_allocate_buffer(ex, 3, "quaternion"),
        ),
        (
            ValueError,
            "executor_allocate_buffer: n is -3; pass 0 or more",
            lambda: ffi.executor_allocate_buffer(ex, -3),
        ),
        (
            ValueError,
            "elementwise: op: expected a row of the op table, got 'frobnicate'",
            lambda: ffi.elementwise(ex, "frobnicate", [a], a, 3),
        ),
        (
            ValueError,
            "elementwise: arity is 1 but add takes 2",
            lambda: ffi.elementwise(ex, "add", [a], a, 3),
        ),
        (
            ValueError,
            f"tensor_shape: tensor: handle {a:#x} is a buffer, not a tensor; "
            "pass one from tensor_from_dlpack or tensor_from_buffer",
            lambda: ffi.tensor_shape(a),
        ),
        (
            TypeError,
            "tensor_from_dlpack: x: expected a DLPack capsule or an object with __dlpack__, "
            "got list",
            lambda: ffi.tensor_from_dlpack([1]),
        ),
        (
            ValueError,
            "tensor_from_buffer: strides: expected as many as in shape, got (1, 1)",
            lambda: ffi.tensor_from_buffer(a, (3,), (1, 1)),
        ),
    ]
    for kind, text, call in cases:
        with pytest.raises(kind) as caught:
            call()
        assert str(caught.value) == text
        assert type(caught.value) is kind
    np.testing.assert_array_equal(buffers.read(a), [1, 2, 3])


def test_a_backend_that_is_not_here_and_memory_that_is_not_there(ex: int) -> None:
    with pytest.raises(ValueError, match="available: cpu"):
        ffi.new_executor_with_backend("abacus")
    with pytest.raises(MemoryError, match="out of memory"):
        ffi.executor_allocate_buffer(ex, 2**60)
    for make in (lambda: ffi.new_executor_with_backend("cpu"), ffi.new_executor_auto):
        other = make()
        assert ffi.executor_backend(other) == "cpu"
        ffi.executor_cleanup(other)


# --- DLPack --------------------------------------------------------------------------------------

DTYPES = "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64".split()
DTYPES += ["complex64", "complex128"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_come_and_go_without_a_copy(dtype: str) -> None:
    x = np.ones((3, 4, 2), dtype)[:, ::2].transpose(2, 0, 1)
    t = ffi.HologramTensor.from_dlpack(x)
    assert (t.shape, t.dtype, t.ndim) == (x.shape, dtype, 3)
    assert t.dtype == x.dtype
    assert t.strides == tuple(s // x.itemsize for s in x.strides)
    y = np.from_dlpack(t)
    assert y.ctypes.data == x.ctypes.data
    assert (y.strides, y.dtype) == (x.strides, x.dtype)
    assert t.__dlpack_device__() == (1, 0)
    assert repr(t) == f"HologramTensor(shape=(2, 3, 2), dtype='{dtype}')"


def test_memory_lives_until_both_sides_are_gone() -> None:
    class Owner(np.ndarray):
        """An array that can be watched."""

    x = np.arange(4.0).view(Owner)
    watch = weakref.ref(x)
    t = ffi.HologramTensor.from_dlpack(x)
    handle = ffi.tensor_as_buffer(t.handle)
    y = np.from_dlpack(t)
    del x
    del t
    gc.collect()
    assert watch() is not None
    np.testing.assert_array_equal(y, [0, 1, 2, 3])
    del y
    assert watch() is not None
    threading.Thread(target=ffi.buffer_cleanup, args=(handle,)).start()
    for _ in range(1000):
        if watch() is None:
            break
        threading.Event().wait(0.01)
    assert watch() is None


def test_buffers_are_seen_by_numpy_and_outlive_their_handles(buffers: Buffers) -> None:
    a = ffi.executor_allocate_buffer(buffers.ex, 6)
    ffi.buffer_fill(buffers.ex, a, 2)
    view = np.from_dlpack(ffi.HologramTensor.from_buffer(a, (2, 2), strides=(3, 1), offset=1))
    assert view.ctypes.data == ffi.buffer_as_ptr(buffers.ex, a) + 4
    ffi.scalar_mul_f32(buffers.ex, a, a, 6, 3)
    np.testing.assert_array_equal(view, np.full((2, 2), 6))
    ffi.buffer_cleanup(a)
    gc.collect()
    np.testing.assert_array_equal(view, np.full((2, 2), 6))


def test_capsules_are_taken_once_and_may_be_left(buffers: Buffers) -> None:
    x = np.ones(3)
    capsule = x.__dlpack__(max_version=(1, 0))
    tensor = ffi.tensor_from_dlpack(capsule)
    with pytest.raises(ValueError, match=r"the capsule used_dltensor_versioned was taken already"):
        ffi.tensor_from_dlpack(capsule)
    ffi.tensor_cleanup(tensor)
    old = ffi.tensor_from_dlpack(x.__dlpack__())
    assert ffi.tensor_dtype(old) == "float64"
    left = ffi.tensor_to_dlpack(old)
    again = ffi.tensor_from_dlpack(ffi.tensor_to_dlpack(old, max_version=None))
    ffi.tensor_cleanup(old)
    assert '"dltensor_versioned"' in repr(left)
    del left
    assert ffi.tensor_shape(again) == (3,)
    ffi.tensor_cleanup(again)
    flat = ffi.tensor_from_dlpack(ffi.tensor_to_dlpack(buffers.of([1, 2])))
    assert ffi.tensor_strides(flat) == (1,)
    assert ffi.tensor_ndim(flat) == 1
    copy = ffi.tensor_copy(flat)
    ffi.tensor_cleanup(flat)
    ffi.tensor_cleanup(copy)
    with pytest.raises(ValueError, match="expected a DLPack capsule, got one named"):
        ffi.tensor_from_dlpack(datetime.datetime_CAPI)  # type: ignore[attr-defined]


def test_read_only_memory_stays_so(buffers: Buffers) -> None:
    x = np.arange(3, dtype=np.float32)
    x.flags.writeable = False
    t = ffi.HologramTensor.from_dlpack(x)
    assert not np.from_dlpack(t).flags.writeable
    b = ffi.tensor_as_buffer(t.handle)
    buffers.handles.append(b)
    with pytest.raises(ValueError, match=r"^scalar_add_f32: y: the memory is lent read-only"):
        ffi.scalar_add_f32(buffers.ex, b, b, 3, 1)
    with pytest.raises(ValueError, match="read-only, which only versioned"):
        t.__dlpack__()
    copy = t.__dlpack__(max_version=(1, 0), copy=True)
    own = ffi.HologramTensor.from_dlpack(copy)
    view = np.from_dlpack(own)
    view[0] = 5
    assert x[0] == 0


def test_what_an_export_may_be_asked_for() -> None:
    t = ffi.HologramTensor.from_dlpack(np.ones(3))
    for keywords, kind in [
        ({"stream": 1}, BufferError),
        ({"dl_device": (2, 0)}, BufferError),
        ({"dl_device": 1}, TypeError),
        ({"max_version": 1}, TypeError),
    ]:
        with pytest.raises(kind, match=r"^__dlpack__: "):
            t.__dlpack__(**keywords)  # type: ignore[arg-type]
    assert '"dltensor"' in repr(t.__dlpack__(max_version=(0, 8)))
    assert '"dltensor_versioned"' in repr(t.__dlpack__(None, (7, 0), (1, 0), False))
    with pytest.raises(TypeError):
        type(t)()


def test_memory_without_elements() -> None:
    empty = ffi.HologramTensor.from_dlpack(np.empty((0, 3)))
    assert empty.shape == (0, 3)
    assert np.from_dlpack(empty).shape == (0, 3)


def test_torch_tensors_of_either_device() -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3).t()
    t = ffi.HologramTensor.from_dlpack(x)
    assert (t.shape, t.strides, t.dtype) == ((3, 2), (1, 3), "bfloat16")
    assert torch.from_dlpack(t).data_ptr() == x.data_ptr()
    y = torch.ones(4, device="hologram") * 2
    u = ffi.HologramTensor.from_dlpack(y)
    assert np.from_dlpack(u).tolist() == [2, 2, 2, 2]
    assert np.from_dlpack(u).ctypes.data == y.data_ptr()
    buffer = ffi.executor_allocate_buffer(ffi.new_executor(), 3, torch.int64)
    assert ffi.buffer_dtype(buffer) == "int64"
    ffi.buffer_cleanup(buffer)


# --- Many ----------------------------------------------------------------------------------------


def test_a_million_buffers(ex: int) -> None:
    handles = [ffi.executor_allocate_buffer(ex, 1) for _ in range(1_000_000)]
    assert len(set(handles)) == len(handles)
    for handle in handles:
        ffi.buffer_cleanup(handle)
    with pytest.raises(RuntimeError, match="has been freed"):
        ffi.buffer_length(handles[500_000])


def test_threads(ex: int) -> None:
    faults: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            mine = Buffers(ex)
            x = np.random.default_rng(seed).standard_normal(500, dtype=np.float32)
            a, c = mine.of(x), mine.empty(500)
            for _ in range(50):
                ffi.vector_mul_f32(ex, a, a, c, 500)
                ffi.scalar_add_f32(ex, c, c, 500, seed)
                t = ffi.HologramTensor.from_dlpack(x)
                np.testing.assert_array_equal(np.from_dlpack(t), x)
                np.testing.assert_array_equal(mine.read(c), x * x + np.float32(seed))
            for handle in mine.handles:
                ffi.buffer_cleanup(handle)
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


def run(code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


def test_needs_neither_numpy_nor_torch_and_may_end_with_handles_open() -> None:
    code = (
        "import sys, hologram_ffi as ffi\n"
        "ex = ffi.new_executor()\n"
        "a = ffi.executor_allocate_buffer(ex, 3)\n"
        "ffi.buffer_copy_from_slice(ex, a, '[1, 2, 3]')\n"
        "ffi.vector_add_f32(ex, a, a, a, 3)\n"
        "print(ffi.buffer_to_vec(ex, a))\n"
        "t = ffi.HologramTensor.from_buffer(a, (3,))\n"
        "c = t.__dlpack__()\n"
        "ffi.vector_add_f32(ex, a, a, a, 3)\n"
        "assert not {'numpy', 'torch'} & set(sys.modules)\n"
    )
    assert run(code) == "[2.0, 4.0, 6.0]\n"


def test_clearing_all_handles() -> None:
    code = (
        "import hologram_ffi as ffi\n"
        "ex = ffi.new_executor()\n"
        "a = ffi.executor_allocate_buffer(ex, 3)\n"
        "t = ffi.HologramTensor.from_buffer(a, (3,))\n"
        "c = t.__dlpack__()\n"
        "ffi.clear_all_registries()\n"
        "for call in (lambda: ffi.buffer_length(a), lambda: ffi.executor_synchronize(ex),\n"
        "             lambda: t.shape):\n"
        "    try: call()\n"
        "    except RuntimeError as error: print('has been freed' in str(error))\n"
        "print(t)\n"
        "u = ffi.HologramTensor.from_dlpack(c)\n"
        "print(u)\n"
    )
    assert run(code).split("\n")[:5] == [
        "True",
        "True",
        "True",
        "HologramTensor(freed)",
        "HologramTensor(shape=(3,), dtype='float32')",
    ]


def test_interpreter_exit_with_foreign_memory_borrowed() -> None:
    code = (
        "import numpy as np, hologram_ffi as ffi\n"
        "keep = [ffi.HologramTensor.from_dlpack(np.ones(10)) for _ in range(10)]\n"
        "open_handle = ffi.tensor_from_dlpack(np.ones(10))\n"
        "view = np.from_dlpack(keep[0])\n"
    )
    assert run(code) == ""
