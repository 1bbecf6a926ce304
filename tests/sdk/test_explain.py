# SPDX-License-Identifier: MIT
"""``hologram.explain``: circuits, what ran at its call and why, names and the drawing."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
import threading
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hologram as hg
from hologram._hologram import testing
from hologram.observe import Explanation

_SVG = "{http://www.w3.org/2000/svg}"
N = 50_000

pytestmark = pytest.mark.usefixtures("small_at_call")


def large(seed: int = 0, n: int = N) -> hg.Tensor:
    return hg.array(np.random.default_rng(seed).standard_normal(n).astype(np.float32))


def chain(x: hg.Tensor, w: hg.Tensor) -> hg.Tensor:
    return hg.maximum(x * w + x, 0) * 0.5 + w


def calls(e: Any) -> dict[tuple[str, str], int]:
    """Return how often which op ran at its call, by the reason."""
    found: dict[tuple[str, str], int] = {}
    for call in e.at_call:
        found[call.op, call.why] = found.get((call.op, call.why), 0) + call.count
    return found


def names(e: Explanation) -> set[str]:
    return {port.name for c in e.circuits for kernel in c.after for port in kernel.ports}


def texts(svg: str) -> list[str]:
    return [t.text or "" for t in ET.fromstring(svg).iter(f"{_SVG}text")]


# --- Circuits --------------------------------------------------------------------------------


def test_a_chain_of_five_is_one_kernel() -> None:
    x, w = large(0), large(1)
    e = hg.explain(chain, x, w)
    a, b = np.asarray(x), np.asarray(w)
    np.testing.assert_array_equal(np.asarray(e.result), np.maximum(a * b + a, 0) * 0.5 + b)
    assert len(e.circuits) == 1
    s = e.stats
    assert (s["ops_recorded"], s["kernels_run"], s["ops_at_call"]) == (5, 1, 0)
    assert s["bytes_moved"] == 3 * 4 * N
    assert s["bytes_unfused"] == (3 + 3 + 2 + 2 + 3) * 4 * N
    assert s["bytes_saved"] == s["bytes_unfused"] - s["bytes_moved"]
    before, (kernel,) = e.circuits[0].before, e.circuits[0].after
    assert [op.name for op in before] == ["mul", "add", "maximum", "mul", "add"]
    assert kernel.name == "mul_add_maximum_mul_add"
    assert names(e) == {"x", "w", "result"}
    assert e.name == "chain(x, w)"
    assert e.circuits[0].cause == "the end of the call"
    (launch,) = e.circuits[0].launches
    assert 0 < launch.ns <= e.ns
    assert e.at_call == []


def test_the_text_has_the_figures() -> None:
    text = str(hg.explain(chain, large(0), large(1)))
    head, sums, circuit, kernel = text.splitlines()
    assert head.startswith("chain(x, w): 5 ops recorded, 0 run at their calls, ")
    assert sums == (
        "5 ops recorded, 1 kernel run (80% fewer), 600 KB moved of 2.6 MB (77% less), 1 circuit"
    )
    assert circuit.startswith("circuit 1: 5 ops -> 1 kernel · ended by the end of the call · plan ")
    assert kernel.split()[:3] == ["mul_add_maximum_mul_add", "5", "ops"]


def test_warm_calls_it_again() -> None:
    seen = []

    def fn(x: hg.Tensor) -> hg.Tensor:
        seen.append(len(seen))
        return x * 2 + 1

    e = hg.explain(fn, large())
    first = e.ns
    assert (e.warm_ns, e.warm_runs, e.stats["warm_kernel_ns"]) == (0, 0, 0)
    assert e.warm(runs=3) is e
    assert seen == [0, 1, 2, 3]
    assert e.ns == first
    assert e.stats["warm_kernel_ns"] == e.circuits[0].launches[0].warm_ns > 0
    assert "warmed (median of 3 calls)" in str(e)
    assert re.search(r"mul_add +2 ops .* then [\d.]+ \S+$", str(e), re.MULTILINE)
    with pytest.raises(ValueError, match=r"Explanation\.warm: runs is 0; it has to be 1 or more"):
        e.warm(0)


def test_a_look_in_a_loop_is_seen() -> None:
    def fn(x: hg.Tensor) -> float:
        total = 0.0
        for k in range(3):
            total += float((x * (k + 3.5)).sum())
        return total

    e = hg.explain(fn, large())
    assert [c.cause for c in e.circuits] == ["float()"] * 3
    assert "circuit 1 x3: 2 ops -> 2 kernels · ran 3 times" in str(e)
    assert "ended by float()" in str(e)


CAUSES: dict[str, Callable[[Any], Any]] = {
    "float()": lambda x: float(x.sum()),
    "int()": lambda x: int(x.sum()),
    "complex()": lambda x: complex(x.sum()),
    "bool()": lambda x: bool((x > 100).any()),
    "index()": lambda x: [0] * int(hg.argmax(x).__index__() * 0),
    "item()": lambda x: x.sum().item(),
    "tolist()": lambda x: (x + 1).tolist(),
    "tobytes()": lambda x: (x + 1).tobytes(),
    "numpy()": lambda x: (x + 1).numpy(),
    "np.asarray()": lambda x: np.asarray(x + 1),
    "repr()": lambda x: repr(x + 1),
    "print()": lambda x: str(x + 1),
    "format()": lambda x: f"{x.sum():.3f}",
    "hash()": lambda x: hash(x.sum()),
    "in": lambda x: 3.0 in (x + 1),
    "DLPack": lambda x: np.from_dlpack(x + 1),
    "pickle": lambda x: (x + 1).__reduce__(),
    "nonzero()": lambda x: (x > 0).nonzero(),
    "x[index]": lambda x: x[x > 0],
    "np.sort": lambda x: np.sort(x + 1),
    "np.linalg.norm": lambda x: np.linalg.norm(x + 1, ord=3),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_what_python_asked_is_the_cause(cause: str) -> None:
    e = hg.explain(CAUSES[cause], large())
    assert [c.cause for c in e.circuits][:1] == [cause], e


# --- What ran at its call --------------------------------------------------------------------


def test_small_ops_are_told() -> None:
    a, b = hg.array([1.0, 2.0, 3.0]), hg.array([4.0, 5.0, 6.0])
    m = hg.array(np.eye(3))

    def fn() -> hg.Tensor:
        for _ in range(10):
            a + b
        return m @ a

    e = hg.explain(fn)
    assert calls(e) == {("add", "small"): 10, ("matmul", "small"): 1}
    assert e.circuits == []
    assert e.stats["ops_at_call"] == 11
    lines = str(e).splitlines()
    assert lines[0].startswith("fn(): 0 ops recorded, 11 run at their calls, ")
    assert lines[1:] == [
        "ran at their calls:",
        "  add     10  small: no operand has more than 4,096 bytes, and all were there",
        "  matmul   1  small: no operand has more than 4,096 bytes, and all were there",
    ]
    assert "nothing was recorded" in texts(e.svg())
    assert "ran at their calls: add ×10 (small), matmul (small)" in texts(e.svg())


def test_a_shared_array_is_named() -> None:
    given = np.ones(N, np.float32)
    shared = hg.asarray(given, copy=False)
    own = large()

    def fn(x: hg.Tensor) -> hg.Tensor:
        return (x + shared) * x

    e = hg.explain(fn, own)
    assert calls(e) == {("add", "shared"): 1}
    (call,) = e.at_call
    assert call.array == "shared"
    assert str(call) == "add x1: shared: other code can look at the memory of shared"
    assert [op.name for c in e.circuits for op in c.before] == ["mul"]
    # An array that has no name is one all the same.
    e = hg.explain(lambda: (hg.asarray(given, copy=False) + 1) * 2)
    assert "shared: other code can look at the memory of an array" in str(e)


def test_an_export_ends() -> None:
    x = large()
    view = np.asarray(x)
    assert calls(hg.explain(lambda: x + 1)) == {("add", "shared"): 1}
    del view
    assert calls(hg.explain(lambda: x + 1)) == {}


@pytest.mark.parametrize("function", [np.sign, np.conjugate, np.rint, np.fmax, np.arctan2])
def test_functions_with_rows_are_not_numpys(function: Any) -> None:
    operands = [large()] * function.nin
    if function is np.conjugate:
        operands = [large().astype("complex128")]
    e = hg.explain(function, *operands)
    assert not [name for name, reason in calls(e) if reason == "NumPy"]
    assert e.stats["ops_recorded"] >= 1


def test_numpys_functions_are_told_by_name() -> None:
    def fn(x: hg.Tensor) -> list[hg.Tensor]:
        found = [np.sort(x), np.linalg.norm(x, ord=3), np.add.reduceat(x, [0, 5]), np.cbrt(x)]
        found.append(hg.sort(x))
        x.copy().sort()
        return found

    e = hg.explain(fn, large())
    found = calls(e)
    assert found.pop(("np.sort", "NumPy")) == 2
    assert found == {
        ("np.linalg.norm", "NumPy"): 1,
        ("np.add.reduceat", "NumPy"): 1,
        ("np.cbrt", "NumPy"): 1,
        ("ndarray.sort", "NumPy"): 1,
    }
    assert re.search(r"^  np\.sort +2  NumPy computed it$", str(e), re.MULTILINE)


def test_elements_and_indices_are_told() -> None:
    def fn(x: hg.Tensor) -> Any:
        total = x[3] + x[-1]
        x[0] = 2.5
        x[1] = total
        for _ in x[:5]:
            pass
        return x[x > 1], x[[1, 2, 3]]

    x = large()
    e = hg.explain(fn, x)
    found = calls(e)
    assert found["x[i]", "element"] == 2 + 5
    assert found["x[i] = y", "element"] == 2
    assert found["x[index]", "values"] == 1
    assert found["x[index]", "small"] == 1
    assert "its values say which elements there are" in str(e)


def test_more_than_eight_dimensions_and_eager_execution() -> None:
    x = hg.array(np.random.default_rng(0).standard_normal((4,) * 9))
    e = hg.explain(lambda: x * x.T)
    assert calls(e) == {("mul", "form"): 1}
    assert "no circuit takes such operands, as those of more than 8 dimensions" in str(e)
    y = large()
    testing.set_deferring(False)
    try:
        e = hg.explain(lambda: y + 1)
    finally:
        testing.set_deferring(True)
    assert calls(e) == {("add", "eager"): 1}
    assert "execution is not deferred" in str(e)


def test_what_ran_between_circuits_is_placed() -> None:
    small = hg.array([1.0, 2.0])

    def fn(x: hg.Tensor) -> hg.Tensor:
        y = x * 2
        small + 1
        np.sort(y)
        small * 3
        return y + 1

    e = hg.explain(fn, large())
    found = texts(e.svg())
    assert [t for t in found if t.startswith("ran at their calls")] == [
        "ran at their calls: add (small), np.sort (NumPy)",
        "ran at their calls: mul (small)",
    ]
    assert [c.cause for c in e.circuits] == ["np.sort", "the end of the call"]


def test_many_kinds_are_told_shortly() -> None:
    given = [np.ones(2000) for _ in range(40)]
    arrays = [hg.asarray(x, copy=False) for x in given]
    e = hg.explain(lambda: [a + 1 for a in arrays])
    assert e.stats["ops_at_call"] == 40
    assert "  ... and 8 more of 8 other kinds" in str(e)
    assert "memory of arrays[0]" in str(e)
    assert any("ran at their calls: add (shared of arrays[0])" in t for t in texts(e.svg()))


def test_other_threads_are_counted() -> None:
    small = hg.array([1.0, 2.0])

    def fn() -> None:
        def work() -> None:
            for _ in range(100):
                small + 1

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert calls(hg.explain(fn)) == {("add", "small"): 400}


# --- Names -----------------------------------------------------------------------------------

_GLOBAL = hg.ones(N, "float32")


class _Model:
    def __init__(self) -> None:
        self.weight = large(5)

    def step(self, x: hg.Tensor) -> hg.Tensor:
        return x * self.weight + 1


def test_arrays_are_named_as_the_caller_names_them() -> None:
    bias = large(2)

    def fn(x: Any, pair: Any, *, scale: Any = None, **more: Any) -> dict[str, hg.Tensor]:
        return {"y": (x + pair[1]) * scale + bias, "z": _GLOBAL - more["other"]}

    x, p, q, s, o = (large(k) for k in range(5))
    e = hg.explain(fn, x, [p, q], scale=s, other=o)
    assert names(e) == {
        "x", "pair[1]", "scale", "bias", "_GLOBAL", "other", "result['y']", "result['z']",
    }  # fmt: skip
    assert e.name == "fn(x, pair, scale, other)"
    model = _Model()
    e = hg.explain(model.step, x)
    assert names(e) == {"x", "self.weight", "result"}
    assert hg.explain(hg.exp, x).name == "exp(x)"
    assert hg.explain(divmod, x, 2).name == "divmod(x, y)"
    assert hg.explain(lambda: x + 1).name == "lambda"


def test_a_name_does_not_outlive_its_buffer() -> None:
    def fn(x: hg.Tensor) -> hg.Tensor:
        for _ in range(8):
            y = hg.exp(x)  # memory that comes back again and again
            y.sum().item()
            del y
        return hg.sin(x)

    e = hg.explain(fn, large())
    *looks, last = e.circuits
    assert {p.name for k in last.after for p in k.ports if p.stored} == {"result"}
    for circuit in looks:
        assert "result" not in {p.name for k in circuit.after for p in k.ports}


# --- Errors, drawings, imports ---------------------------------------------------------------


def test_errors_end_the_trace() -> None:
    def fn(x: hg.Tensor) -> hg.Tensor:
        x + 1
        raise KeyError("mine")

    from hologram import _noting

    with pytest.raises(KeyError, match="mine"):
        hg.explain(fn, large())
    assert _noting.traces == 0
    assert len(hg.explain(chain, large(0), large(1)).circuits) == 1
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        hg.explain(chain, large())
    with pytest.raises(ValueError, match="there is no open trace 12345678; give the number"):
        hg._hologram._stop_tracing(12345678)


def test_the_drawing_is_well_formed(tmp_path: Any) -> None:
    e = hg.explain(lambda d: d["<&\"'>"] + 1, {"<&\"'>": large()})
    svg = e.svg()
    assert any("<&" in t for t in texts(svg))
    assert svg == e._repr_svg_()
    assert svg in e._repr_html_()
    e.save_svg(tmp_path / "chain.svg")
    assert ET.parse(tmp_path / "chain.svg").getroot().tag == f"{_SVG}svg"


def test_circuits_print_their_ops() -> None:
    (circuit,) = hg.explain(chain, large(0), large(1)).circuits
    assert "%0 = mul(x, w)  f32 [50000]" in str(circuit)
    assert "mul_add_maximum_mul_add [50000], 5 ops" in str(circuit)


def test_nothing_of_pytorch_and_nothing_early_is_imported() -> None:
    program = """
        import sys
        import hologram as hg
        early = {"json", "hologram.observe", "xml", "statistics"} & set(sys.modules)
        assert not early, early
        import numpy as np
        x = hg.array(np.ones(50_000))
        e = hg.explain(lambda: float((x * 2 + 1).sum()))
        e.svg(), str(e)
        with hg.profile() as p:
            float((x + 1).sum())
        p.svg(), str(p)
        assert e.circuits[0].cause == "float()"
        assert "torch" not in sys.modules
        assert "explain" in hg.__all__ and "profile" in hg.__all__
        try:
            hg.no_such_name
        except AttributeError as error:
            assert str(error) == "module 'hologram' has no attribute 'no_such_name'"
        else:
            raise AssertionError("no error")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
