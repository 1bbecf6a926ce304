# SPDX-License-Identifier: MIT
"""Functions of the op table on tensors and on buffers, the other ops, and all of them in need."""

from __future__ import annotations

import ast
import inspect
import math
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hologram as hg

ROOT = Path(__file__).resolve().parents[2]
rng = np.random.default_rng(5)
testing = hg._hologram.testing


# --- Functions of the op table ----------------------------------------------------------------

ROWS = {n: f for n, f in vars(hg._hologram.rows).items() if not n.startswith("_")}
OPS = {n: f for n, f in vars(hg._hologram.ops).items() if not n.startswith("_")}


@pytest.mark.parametrize("name", ROWS)
def test_rows_on_tensors_and_buffers_agree(name: str) -> None:
    function = ROWS[name]
    arity = len([p for p in inspect.signature(function).parameters if p != "out"])
    dtype = "int32" if name.startswith("bitwise") else "float32"
    inputs = [(rng.random(40) * 3 + 0.5).astype(dtype) for _ in range(arity)]
    result = function(*(hg.array(x) for x in inputs))
    # The namespace's sign gives NaN of NaN, as NumPy's; others take complex numbers.
    wrapped = ("sign", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh")
    assert (getattr(hg, name) is function) == (name not in wrapped)
    out = hg.empty(40, result.dtype)
    assert function(*inputs, out=out) is out
    np.testing.assert_array_equal(out.numpy(), result.numpy())
    with hg.Executor() as ex:
        buffers = [ex.allocate(40, dtype) for _ in range(arity)]
        for buffer, x in zip(buffers, inputs):
            buffer.from_numpy(x)
        c = ex.allocate((5, 8), result.dtype)
        assert getattr(hg.ops, name)(ex, *buffers, c) is None
        np.testing.assert_array_equal(c.to_numpy().ravel(), result.numpy())
    if hasattr(np, name) and name not in ("round", "gelu"):
        np.testing.assert_allclose(
            result.numpy(), getattr(np, name)(*(x.astype("float64") for x in inputs))
            if dtype == "float32" else getattr(np, name)(*inputs), rtol=2e-6,
        )  # fmt: skip
    assert "Accuracy:" in function.__doc__
    assert "Errors:" in OPS[name].__doc__


def test_rows_take_numbers() -> None:
    x = np.array([-1.0, 0.5, 2.0])
    assert hg.clamp(x, 0, 1).tolist() == [0, 0.5, 1]
    assert hg.where(hg.array(x) > 0, 1, 0).tolist() == [0, 1, 1]
    assert hg.exp(0).item() == 1.0
    assert hg.add(1, 2).dtype == np.int64
    assert hg.pow([2, 3], 2).tolist() == [4, 9]
    assert hg.leaky_relu(x, 0.5).tolist() == [-0.5, 0.5, 2.0]
    assert hg.maximum(hg.array([1, 2], "int8"), 2).dtype == np.int8
    with pytest.raises(TypeError, match=r"exp\(\) takes 1 operands; 2 were given"):
        hg.exp(1, 2)
    with pytest.raises(TypeError, match="unexpected keyword argument 'o'; it knows out"):
        hg.exp(1, o=2)
    with pytest.raises(TypeError, match="out is a Tensor or None, not list"):
        hg.exp(1, out=[])
    with pytest.raises(TypeError, match="float64"):
        hg.exp(x, out=hg.zeros(3, "int64"))
    with pytest.raises(ValueError):
        hg.add(hg.ones(2), hg.ones(3))
    with pytest.raises(OverflowError):
        hg.maximum(hg.array([1], "int8"), 300)


def test_the_types_match_the_table() -> None:
    package = Path(hg.__file__).parent
    for stub, module in (("_rows.pyi", hg._hologram.rows), ("_op_rows.pyi", hg._hologram.ops)):
        tree = ast.parse((package / stub).read_text())
        stubbed = {
            node.name: [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
            for node in tree.body
            if isinstance(node, ast.FunctionDef)
        }
        made = {n: f for n, f in vars(module).items() if not n.startswith("_")}
        signatures = {n: list(inspect.signature(f).parameters) for n, f in made.items()}
        if module is hg._hologram.rows:  # out is given by name alone
            signatures = {n: [p for p in names if p != "out"] for n, names in signatures.items()}
        assert {name: stubbed.pop(name, None) for name in signatures} == signatures
        # Beside the rows: the reductions.
        names = {name for name, *_ in hg._hologram.reductions._table}
        assert set(stubbed) <= names | {f"reduce_{name}" for name in names}
        for name in stubbed:
            assert callable(getattr(hg.ops if name.startswith("reduce_") else hg, name))
    for name in hg.__all__:
        assert hasattr(hg, name), name
        thing = getattr(hg, name)
        assert thing is None or thing.__doc__, name


# --- Executors' ops ---------------------------------------------------------------------------


def filled(ex: hg.Executor, x: Any, dtype: str = "float32") -> hg.Buffer:
    x = np.asarray(x, dtype=dtype)
    b = ex.allocate(x.shape, dtype)
    b.from_numpy(x)
    return b


@pytest.mark.parametrize("name", [name for name, *_ in hg._hologram.reductions._table])
def test_every_reduction_has_every_form(name: str) -> None:
    x = np.array([1.5, -2.0, np.nan, 4.0, 0.5, 3.0])
    spread = {"ddof": 1} if name in ("var", "std") else {}
    function = getattr(hg, name)
    result = function(x, **spread)
    np.testing.assert_array_equal(getattr(hg.array(x), name)(**spread).numpy(), result.numpy())
    with hg.Executor() as ex:
        out = ex.allocate(1, result.dtype)
        getattr(hg.ops, f"reduce_{name}")(ex, filled(ex, x, "float64"), out)
        np.testing.assert_array_equal(out.to_numpy(), [result.numpy()])
    if hasattr(np, name):
        np.testing.assert_allclose(result.numpy(), getattr(np, name)(x, **spread), rtol=1e-15)
    for thing in (function, getattr(hg.Tensor, name), getattr(hg.ops, f"reduce_{name}")):
        assert thing.__doc__.strip()
    assert getattr(hg.ops, f"reduce_{name}").__name__ == f"reduce_{name}"


def test_names_of_the_surface() -> None:
    x, y = np.array([1.0, -2, 3]), np.array([4.0, 5, -6])
    with hg.Executor() as ex:
        a, b, c = filled(ex, x), filled(ex, y), ex.allocate(3)
        expected = {
            "vector_add": x + y,
            "vector_sub": x - y,
            "vector_mul": x * y,
            "vector_div": x / y,
            "vector_min": np.minimum(x, y),
            "vector_max": np.maximum(x, y),
        }
        for name, values in expected.items():
            getattr(hg.ops, name)(ex, a, b, c)
            np.testing.assert_allclose(c.to_numpy(), values, rtol=1e-6)
        unary = {
            "vector_abs": np.abs(x),
            "vector_neg": -x,
            "vector_relu": np.maximum(x, 0),
            "sigmoid": 1 / (1 + np.exp(-x)),
            "tanh": np.tanh(x),
            "gelu": [x_ * 0.5 * (1 + math.erf(x_ / math.sqrt(2))) for x_ in x],
            "softmax": np.exp(x) / np.exp(x).sum(),
        }
        for name, values in unary.items():
            getattr(hg.ops, name)(ex, a, c)
            np.testing.assert_allclose(c.to_numpy(), values, rtol=2e-6, atol=1e-7)
        hg.ops.vector_clip(ex, a, -1, 2, c)
        assert c.to_numpy().tolist() == [1, -1, 2]
        hg.ops.scalar_add(ex, a, 2.5, c)
        assert c.to_numpy().tolist() == [3.5, 0.5, 5.5]
        hg.ops.scalar_mul(ex, a, 2, c)
        assert c.to_numpy().tolist() == [2, -4, 6]
        one = ex.allocate(1)
        for name, value in (("sum", 2), ("min", -2), ("max", 3), ("mean", 2 / 3)):
            getattr(hg.ops, "reduce_" + name)(ex, a, one)
            assert one.to_numpy()[0] == np.float32(value)


def test_losses() -> None:
    p = rng.random((4, 3)).astype("float32") * 0.8 + 0.1
    t = rng.random((4, 3)).astype("float32")
    with hg.Executor() as ex:
        pred, target, loss, one = filled(ex, p), filled(ex, t), ex.allocate(3), ex.allocate(1)
        squares = (p - t) ** 2
        entropies = -(t * np.log(p) + (1 - t) * np.log(1 - p))
        for name, terms in (("mse_loss", squares), ("binary_cross_entropy_loss", entropies)):
            getattr(hg.ops, name)(ex, pred, target, loss)
            np.testing.assert_allclose(loss.to_numpy(), [terms.mean(), terms.sum(), 12], rtol=1e-5)
            getattr(hg.ops, name)(ex, pred, target, one)
            np.testing.assert_allclose(one.to_numpy(), [terms.mean()], rtol=1e-5)
        logs = p - np.log(np.exp(p).sum(1, keepdims=True))
        classes = filled(ex, [0, 2, 1, 1], "int64")
        hg.ops.cross_entropy_loss(ex, pred, classes, loss)
        terms = -logs[range(4), [0, 2, 1, 1]]
        np.testing.assert_allclose(loss.to_numpy(), [terms.mean(), terms.sum(), 4], rtol=1e-5)
        hg.ops.cross_entropy_loss(ex, pred, target, loss)
        terms = -(logs * t).sum(1)
        np.testing.assert_allclose(loss.to_numpy(), [terms.mean(), terms.sum(), 4], rtol=1e-5)
        with pytest.raises(ValueError, match="give it 1 element"):
            hg.ops.mse_loss(ex, pred, target, ex.allocate(2))
        with pytest.raises(ValueError):
            hg.ops.mse_loss(ex, pred, ex.allocate(5), loss)
        wrong = filled(ex, [0, 9, 1, 1], "int64")
        with pytest.raises(IndexError):
            hg.ops.cross_entropy_loss(ex, pred, wrong, loss)


def test_products() -> None:
    m, n, k = 2, 5, 3
    a, b = rng.random((m, k)).astype("float32"), rng.random((k, n)).astype("float32")
    v = rng.random(k).astype("float32")
    with hg.Executor() as ex:
        c = ex.allocate((m, n))
        hg.ops.gemm(ex, filled(ex, a), filled(ex, b), c)
        np.testing.assert_allclose(c.to_numpy(), a @ b, rtol=1e-6)
        flat = ex.allocate(m * n + 3)
        hg.ops.gemm(ex, filled(ex, a.ravel()), filled(ex, b.ravel()), flat, m=m, n=n, k=k)
        np.testing.assert_allclose(flat.to_numpy()[: m * n].reshape(m, n), a @ b, rtol=1e-6)
        y = ex.allocate(m)
        hg.ops.matvec(ex, filled(ex, a), filled(ex, v), y)
        np.testing.assert_allclose(y.to_numpy(), a @ v, rtol=1e-6)
        hg.ops.matvec(ex, filled(ex, a.ravel()), filled(ex, v), y, m=m, n=k)
        np.testing.assert_allclose(y.to_numpy(), a @ v, rtol=1e-6)
        with pytest.raises(ValueError, match="a has 6 elements, and 4 x 3 are needed"):
            hg.ops.gemm(ex, filled(ex, a), filled(ex, b), c, m=4, n=n, k=k)
        with pytest.raises(ValueError, match="two dimensions, or pass the sizes"):
            hg.ops.gemm(ex, filled(ex, v), filled(ex, b), c)
        with pytest.raises(ValueError, match="x has 5 elements"):
            hg.ops.matvec(ex, filled(ex, a), ex.allocate(5), y)


def test_ops_check_their_arguments() -> None:
    ex = hg.Executor()
    a, b, c = (ex.allocate(4) for _ in range(3))
    add = hg.ops.vector_add
    with pytest.raises(TypeError, match=r"takes an Executor, 2 inputs and out; 3 arguments"):
        add(ex, a, b)
    with pytest.raises(TypeError, match="ex is an Executor, not"):
        add(a, a, b, c)
    with pytest.raises(TypeError, match="x is a Buffer, a Tensor or a number, not"):
        add(ex, np.ones(4), b, c)
    with pytest.raises(TypeError, match="at least one input"):
        add(ex, 1, 2, c)
    with pytest.raises(ValueError):
        add(ex, a, ex.allocate(3), c)
    with pytest.raises(TypeError, match=r"float32|int8"):
        add(ex, a, b, ex.allocate(4, "int8"))
    for name in ("softmax", "reduce_sum"):
        with pytest.raises(TypeError, match="out is a Buffer or a Tensor, not list"):
            getattr(hg.ops, name)(ex, a, [])
    freed = ex.allocate(4)
    freed.free()
    with pytest.raises(RuntimeError, match="the buffer was freed"):
        add(ex, a, freed, c)
    ex.close()
    for call in (lambda: add(ex, a, b, c), lambda: hg.ops.softmax(ex, a, c)):
        with pytest.raises(RuntimeError, match="the executor is closed"):
            call()


def test_out_may_be_named() -> None:
    with hg.Executor() as ex:
        a, c = filled(ex, [1, 2]), ex.allocate(2)
        hg.ops.vector_add(ex, a, a, out=c)
        assert c.to_numpy().tolist() == [2, 4]
        with pytest.raises(TypeError, match="only out may be given by name"):
            hg.ops.vector_add(ex, a, y=a, out=c)
    assert hg.ops.vector_add.__module__ == "hologram.ops"
    assert pickle.loads(pickle.dumps(hg.exp)) is hg.exp


def test_ops_mix_buffers_tensors_and_dtypes() -> None:
    with hg.Executor() as ex:
        a, c = filled(ex, [[1, 2], [3, 4]], "int32"), ex.allocate((2, 2), "float64")
        hg.ops.add(ex, a, hg.array([10.0, 20]), c)
        assert c.to_numpy().tolist() == [[11, 22], [13, 24]]
        t = hg.asarray(c)
        t *= 2
        assert c.to_numpy().tolist() == [[22, 44], [26, 48]]
        mask = ex.allocate((2, 2), bool)
        hg.ops.gt(ex, a, 2, mask)
        assert mask.to_numpy().tolist() == [[False, False], [True, True]]


# --- Under stress -----------------------------------------------------------------------------


def test_every_refused_allocation_is_a_clean_error() -> None:
    def program() -> float:
        x = hg.arange(400_000, dtype="float32")
        y = (x * 2 + 1).reshape(400, 1000)
        z = hg.softmax(y, 1) @ hg.ones((1000, 3), "float32")
        return float(z.sum()) + float(y[::2, ::-1].max()) + len(y.tobytes())

    expected = program()
    failed = 0
    for nth in range(1, 12):
        testing.empty_cache()
        testing.fail_os_allocations(nth)
        try:
            assert program() == expected
        except MemoryError:
            failed += 1
        finally:
            testing.fail_os_allocations(0)
        assert program() == expected
    assert failed > 2


def test_threads_share_tensors() -> None:
    x = hg.arange(2000, dtype="float64")
    failures: list[BaseException] = []

    def work(k: int) -> None:
        try:
            for _ in range(50):
                y = ((x + k) * 2)[::-1]
                assert y[0].item() == (1999 + k) * 2
                assert np.asarray(y.sum()) == (1999 * 1000 + 2000 * k) * 2
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_eager_and_deferred_agree() -> None:
    code = (
        "import hologram as hg\n"
        "x = hg.arange(1000, dtype='float32').reshape(10, 100) / 7\n"
        "y = hg.exp(hg.sin(x) * 2 - 1).softmax(1); x += y; z = (x @ y.T)[::-1] // 0.3\n"
        "import sys; sys.stdout.buffer.write(y.tobytes() + x.tobytes() + z.tobytes())\n"
    )
    results = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "HOLOGRAM_EXECUTION": execution},
            capture_output=True,
            check=True,
        ).stdout
        for execution in ("deferred", "eager")
    }
    assert len(results) == 1
    assert len(results.pop()) == 4 * (1000 + 1000 + 100)


@pytest.mark.usefixtures("recording")
def test_deferred_ops_fuse() -> None:
    with hg.Executor() as ex:
        x = hg.ones(100_000, "float32")
        x.tolist()
        before = ex.stats()
        y = ((x + 1) * 2 - 3) / 4
        z = hg.exp(y)
        z.tobytes()
        after = ex.stats()
    assert after["ops_recorded"] - before["ops_recorded"] == 5
    assert after["kernels"] - before["kernels"] == 1


def test_many_tensors_live() -> None:
    tensors = [hg.full(4, i) for i in range(20_000)]
    assert sum(t[0].item() for t in tensors[::100]) == sum(range(0, 20_000, 100))
