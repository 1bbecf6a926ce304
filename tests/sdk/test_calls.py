# SPDX-License-Identifier: MIT
"""The calls of the catalogue as functions of tensors and of buffers, beside PyTorch."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import hologram as hg
from hologram._calls import CALLS

_rng = np.random.default_rng(3)


def _array(*shape: int, dtype: str = "float32", low: float = -1.0) -> np.ndarray:
    return _rng.uniform(low, 1.0, shape).astype(dtype)


def _positions(size: int, *shape: int) -> np.ndarray:
    return _rng.integers(0, size, shape)


def _t(x: Any) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(x)).clone()


def _grads(function: Callable[..., torch.Tensor], *inputs: Any) -> list[np.ndarray]:
    leaves = [_t(x).requires_grad_() for x in inputs]
    out = function(*leaves)
    grads = torch.autograd.grad(out, leaves, torch.ones_like(out) * 0.5)
    return [g.numpy() for g in grads]


# --- Cases: operands, parameters, and what every visible result has to be ------------------------


def _layer_norm(dt: str) -> tuple:
    x, w, b = _array(4, 5, 6, dtype=dt), _array(5, 6, dtype=dt), _array(5, 6, dtype=dt)
    return (x, w, b), {"axes": 2}, [F.layer_norm(_t(x), (5, 6), _t(w), _t(b)).numpy()]


def _layer_norm_backward(dt: str) -> tuple:
    x, w, b = _array(4, 6, dtype=dt), _array(6, dtype=dt), _array(6, dtype=dt)
    _, mean, rstd = torch.native_layer_norm(_t(x), (6,), _t(w), _t(b), 1e-5)
    want = _grads(lambda x, w, b: F.layer_norm(x, (6,), w, b), x, w, b)
    grad = np.full_like(x, 0.5)
    return (grad, x, mean.numpy().reshape(4), rstd.numpy().reshape(4), w), {}, want


def _group_norm(dt: str) -> tuple:
    x, w, b = _array(3, 6, 4, 5, dtype=dt), _array(6, dtype=dt), _array(6, dtype=dt)
    return (x, w, b), {"groups": 3}, [F.group_norm(_t(x), 3, _t(w), _t(b)).numpy()]


def _group_norm_backward(dt: str) -> tuple:
    x, w, b = _array(3, 6, 4, dtype=dt), _array(6, dtype=dt), _array(6, dtype=dt)
    _, mean, rstd = torch.native_group_norm(_t(x), _t(w), _t(b), 3, 6, 4, 2, 1e-5)
    want = _grads(lambda x, w, b: F.group_norm(x, 2, w, b), x, w, b)
    return (np.full_like(x, 0.5), x, mean.numpy(), rstd.numpy(), w), {"groups": 2}, want


def _batch_norm(dt: str) -> tuple:
    x, w, b = _array(4, 3, 5, dtype=dt), _array(3, dtype=dt), _array(3, dtype=dt)
    mean, var = _array(3, dtype=dt), _array(3, dtype=dt, low=0.5)
    want = F.batch_norm(_t(x), _t(mean), _t(var), _t(w), _t(b)).numpy()
    return (x, w, b, hg.array(mean), hg.array(var)), {}, [want]


def _batch_norm_backward(dt: str) -> tuple:
    x, w, b = _array(4, 3, 5, dtype=dt), _array(3, dtype=dt), _array(3, dtype=dt)
    mean, invstd = x.mean((0, 2)), 1 / np.sqrt(x.var((0, 2)) + 1e-5)
    want = _grads(lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), x, w, b)
    operands = (np.full_like(x, 0.5), x, w, None, None, mean, invstd.astype(dt))
    return operands, {"training": True}, want


def _convolution(dt: str) -> tuple:
    x, w, b = _array(2, 4, 9, 8, dtype=dt), _array(6, 2, 3, 2, dtype=dt), _array(6, dtype=dt)
    given = {"stride": (2, 1), "padding": 1, "dilation": (1, 2), "groups": 2}
    return (x, w, b), given, [F.conv2d(_t(x), _t(w), _t(b), **given).numpy()]


def _convolution_backward_input(dt: str) -> tuple:
    grad, w, b = _array(2, 4, 5, dtype=dt), _array(4, 3, 3, dtype=dt), _array(3, dtype=dt)
    given = {"stride": 2, "padding": 1, "output_padding": 1}
    return (grad, w, b), given, [F.conv_transpose1d(_t(grad), _t(w), _t(b), **given).numpy()]


def _convolution_backward_weight(dt: str) -> tuple:
    x, w = _array(2, 3, 7, dtype=dt), _array(4, 3, 3, dtype=dt)
    want = _grads(lambda w: F.conv1d(_t(x), w, padding=1), w)
    grad = np.full((2, 4, 7), 0.5, dt)
    return (x, grad), {"padding": 1, "kernel_size": 3}, want


def _max_pool(dt: str) -> tuple:
    x = _array(2, 3, 7, 6, dtype=dt)
    want = F.max_pool2d(_t(x), (3, 2), (2, 2), (1, 0), ceil_mode=True).numpy()
    return (x,), {"kernel_size": (3, 2), "stride": 2, "padding": (1, 0), "ceil_mode": True}, [want]


def _max_pool_backward(dt: str) -> tuple:
    x = _array(2, 3, 6, dtype=dt)
    out, positions = F.max_pool1d(_t(x), 2, return_indices=True)
    want = _grads(lambda x: F.max_pool1d(x, 2), x)
    grad = np.full(out.shape, 0.5, dt)
    return (grad, positions.numpy()), {"kernel_size": 2, "input_size": 6}, want


def _attention(dt: str) -> tuple:
    q, k, v = (
        _array(2, 4, 5, 8, dtype=dt),
        _array(2, 2, 7, 8, dtype=dt),
        _array(2, 2, 7, 6, dtype=dt),
    )
    mask = _array(5, 7, dtype=dt)
    want = F.scaled_dot_product_attention(
        _t(q), _t(k).repeat_interleave(2, 1), _t(v).repeat_interleave(2, 1), _t(mask)
    )
    return (q, k, v, mask), {}, [want.numpy()]


def _attention_backward(dt: str) -> tuple:
    q, k, v = (_array(1, 2, 4, 8, dtype=dt) for _ in range(3))
    out, logsumexp = hg._hologram.calls.run(
        "attention", [hg.array(x) for x in (q, k, v)], {"is_causal": True}, []
    )
    attend = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)  # noqa: E731
    operands = (q, k, v, None, out, logsumexp, np.full((1, 2, 4, 8), 0.5, dt))
    return operands, {"is_causal": True}, _grads(attend, q, k, v)


def _lstm_recurrence(dt: str) -> tuple:
    layer = torch.nn.LSTM(3, 5).to(getattr(torch, dt))
    x, h0, c0 = _array(4, 2, 3, dtype=dt), _array(2, 5, dtype=dt), _array(2, 5, dtype=dt)
    with torch.no_grad():
        out, (h, c) = layer(_t(x), (_t(h0)[None], _t(c0)[None]))
        gates = F.linear(_t(x), layer.weight_ih_l0, layer.bias_ih_l0).numpy()
    weight, bias = layer.weight_hh_l0.detach().numpy(), layer.bias_hh_l0.detach().numpy()
    want = [out.numpy(), h[0].numpy(), c[0].numpy()]
    return (hg.array(gates), weight, bias, h0, c0), {}, want


def _lstm_forward(dt: str) -> tuple:
    (gates, *states), _, want = _lstm_recurrence(dt)
    rows = np.asarray(gates)
    parts = [hg.array(rows[: n + 1].copy()) for n in range(len(rows))]
    c = [hg.lstm_recurrence(part, *states)[2] for part in parts]
    return (gates, *states), {}, [*want, np.stack([np.asarray(x) for x in c])]


def _lstm_backward(dt: str) -> tuple:
    weight, h0, c0 = _array(20, 5, dtype=dt), _array(2, 5, dtype=dt), _array(2, 5, dtype=dt)
    gates = _array(4, 2, 20, dtype=dt)
    grads = _array(4, 2, 5, dtype=dt), _array(2, 5, dtype=dt), _array(2, 5, dtype=dt)
    leaves = [_t(x).requires_grad_() for x in (gates, h0, c0)]
    h, c = leaves[1:]
    steps = []
    for row in leaves[0]:
        i, f, g, o = (row + h @ _t(weight).T).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        steps.append(h)
    want = torch.autograd.grad([torch.stack(steps), h, c], leaves, [_t(g) for g in grads])
    active = hg.array(gates)
    cells = hg.lstm_forward(active, weight, None, h0, c0)[3]
    return (active, cells, weight, c0, *grads), {}, [w.numpy() for w in want]


def _gru_steps(gates: torch.Tensor, h: torch.Tensor, *params: torch.Tensor) -> list:
    weight, bias = params
    steps, hidden = [], []
    for row in gates:
        x, s = row.chunk(3, 1), (h @ weight.T + bias).chunk(3, 1)
        r, z = (x[0] + s[0]).sigmoid(), (x[1] + s[1]).sigmoid()
        n = (x[2] + r * s[2]).tanh()
        h = (1 - z) * n + z * h
        steps.append(h)
        hidden.append(s[2])
    return [torch.stack(steps), h, torch.stack(hidden)]


def _gru_forward(dt: str) -> tuple:
    gates, h0 = _array(4, 2, 15, dtype=dt), _array(2, 5, dtype=dt)
    params = _array(15, 5, dtype=dt), _array(15, dtype=dt)
    want = _gru_steps(_t(gates), _t(h0), *map(_t, params))
    return (hg.array(gates), *params, h0), {}, [w.numpy() for w in want]


def _gru_backward(dt: str) -> tuple:
    gates, h0 = _array(4, 2, 15, dtype=dt), _array(2, 5, dtype=dt)
    weight, grads = _array(15, 5, dtype=dt), (_array(4, 2, 5, dtype=dt), _array(2, 5, dtype=dt))
    leaves = [_t(x).requires_grad_() for x in (gates, h0)]
    # A bias for each step, whose gradient is that of the product with the state.
    bias = torch.zeros(4, 2, 15, dtype=leaves[0].dtype, requires_grad=True)
    h, steps = leaves[1], []
    for row, b in zip(leaves[0], bias, strict=True):
        h = _gru_steps(row[None], h, _t(weight), b)[1]
        steps.append(h)
    wanted = [leaves[0], bias, leaves[1]]
    want = torch.autograd.grad([torch.stack(steps), h], wanted, [_t(g) for g in grads])
    active = hg.array(gates)
    output, _, hidden = hg.gru_forward(active, weight, None, h0)
    return (active, hidden, output, weight, h0, *grads), {}, [w.numpy() for w in want]


def _rnn_steps(gates: torch.Tensor, h: torch.Tensor, *params: torch.Tensor) -> list[torch.Tensor]:
    steps = []
    for row in gates:
        h = torch.tanh(row + torch.nn.functional.linear(h, *params))
        steps.append(h)
    return [torch.stack(steps), h]


def _rnn_forward(dt: str) -> tuple:
    gates, h0 = _array(4, 2, 5, dtype=dt), _array(2, 5, dtype=dt)
    params = _array(5, 5, dtype=dt), _array(5, dtype=dt)
    want = _rnn_steps(_t(gates), _t(h0), *map(_t, params))
    return (gates, *params, h0), {}, [w.numpy() for w in want]


def _rnn_backward(dt: str) -> tuple:
    gates, h0 = _array(4, 2, 5, dtype=dt), _array(2, 5, dtype=dt)
    weight, grads = _array(5, 5, dtype=dt), (_array(4, 2, 5, dtype=dt), _array(2, 5, dtype=dt))
    leaves = [_t(x).requires_grad_() for x in (gates, h0)]
    results = _rnn_steps(*leaves, _t(weight))
    want = torch.autograd.grad(results, leaves, [_t(g) for g in grads])
    return (results[0].detach().numpy(), weight, *grads), {}, [w.numpy() for w in want]


_LENGTHS = np.array([3, 2, 2])  # rows of each step of packed sequences


def _pack_rows(dt: str) -> tuple:
    x = _array(3, 3, 2, 5, dtype=dt)
    want = [np.concatenate([x[t, :n] for t, n in enumerate(_LENGTHS)])]
    return (x, _LENGTHS), {"rows": 7}, want


def _pad_rows(dt: str) -> tuple:
    x = _array(7, 5, dtype=dt)
    given = torch.nn.utils.rnn.PackedSequence(_t(x), torch.from_numpy(_LENGTHS))
    want = torch.nn.utils.rnn.pad_packed_sequence(given, total_length=4)[0]
    return (x, _LENGTHS), {"steps": 4, "batch": 3}, [want.numpy()]


def _rows_before(dt: str) -> tuple:
    x, first = _array(7, 5, dtype=dt), _array(3, 5, dtype=dt)
    # In reverse order: the third sequence has the first step alone.
    want = [x[3:5], first[2:], x[5:7], first[:2]]
    return (x, first, _LENGTHS), {"reverse": True}, [np.concatenate(want)]


def _take(dt: str) -> tuple:
    x, at = _array(3, 5, 2, dtype=dt), _positions(5, 4, 2)
    return (x, at), {"dim": 1}, [np.take(x, at, 1)]


def _add_at(dt: str) -> tuple:
    x, at, more = _array(4, 3, dtype=dt), _positions(4, 6), _array(6, 3, dtype=dt)
    want = x.copy()
    np.add.at(want, at, more)
    return (hg.array(x), at, more), {}, [want]


def _put_at(dt: str) -> tuple:
    x, more = _array(4, 3, dtype=dt), _array(2, 3, dtype=dt)
    want = x.copy()
    want[[3, 1]] = more
    return (hg.array(x), np.array([3, 1]), more), {}, [want]


def _embedding_backward(dt: str) -> tuple:
    at, w = _positions(5, 3, 2), _array(5, 4, dtype=dt)
    want = _grads(lambda w: F.embedding(_t(at), w, padding_idx=2), w)
    return (np.full((3, 2, 4), 0.5, dt), at), {"num_weights": 5, "padding_idx": 2}, want


def _gather(dt: str) -> tuple:
    x, at = _array(3, 5, dtype=dt), _positions(5, 3, 2)
    return (x, at), {"dim": 1}, [np.take_along_axis(x, at, 1)]


def _scatter(dt: str) -> tuple:
    x, at, more = _array(3, 5, dtype=dt), _positions(5, 3, 2), _array(3, 2, dtype=dt)
    want = _t(x).scatter_add(1, _t(at), _t(more)).numpy()
    return (hg.array(x), at, more), {"dim": 1, "add": True}, [want]


def _searchsorted(dt: str) -> tuple:
    lines, values = _array(3, 17, dtype=dt), _array(3, 9, dtype=dt)
    values[:, 2:5], order = lines[:, 5:8], lines.argsort(-1)
    want = torch.searchsorted(_t(lines), _t(values), right=True, sorter=_t(order)).numpy()
    return (lines, values, order), {"right": True}, [want]


def _triangle(dt: str) -> tuple:
    x = _array(2, 4, 5, dtype=dt)
    return (x,), {"diagonal": -1, "upper": True}, [np.triu(x, -1)]


def _dropout_backward(dt: str) -> tuple:
    grad, mask = _array(40, dtype=dt), _rng.random(40) < 0.5
    return (grad, mask), {"scale": 2.0}, [grad * mask * np.asarray(2, dt)]


def _optimizer(make: Callable[..., Any], lists: Callable[[dict], list], **given: Any) -> Callable:
    """A step of the second of two, so that the state is not that of a first one."""

    def case(dt: str) -> tuple:
        params = [_array(3, 4, dtype=dt), _array(5, dtype=dt)]
        leaves = [torch.nn.Parameter(_t(p)) for p in params]
        optimizer = make(leaves)
        for leaf in leaves:
            leaf.grad = torch.full_like(leaf, 0.25)
        optimizer.step()
        states = [optimizer.state[leaf] for leaf in leaves]
        before = [[leaf.detach().numpy().copy() for leaf in leaves]]
        before += [[leaf.grad.numpy().copy() for leaf in leaves]]
        before += [[s[name].numpy().copy() for s in states] for name in lists(states[0])]
        optimizer.step()
        want = [leaf.detach().numpy() for leaf in leaves]
        tensors = [[hg.array(x) for x in group] for group in before]
        return (None, None, *tensors), given, want

    return case


def _linear_int8(dt: str) -> tuple:
    x, scale = _array(3, 5, 70, dtype=dt), 0.01 * _array(37, dtype=dt)
    weight = _rng.integers(-128, 128, (37, 70), dtype="int8")
    want = (x.astype("float64") @ weight.astype("float64").T) * scale
    return (x, weight, scale), {}, [want.astype(dt)]


def _linear_int4(dt: str) -> tuple:
    groups, columns, n, block = 3, 32, 80, 32
    x, pairs = _array(3, 5, groups * columns, dtype=dt), _array(groups, n, 2, dtype=dt)
    q = _rng.integers(0, 16, (n, groups * columns), dtype="uint8")
    parts = []
    for first in range(0, n, block):
        rows = q[first : first + block].T
        low, high = (
            (rows[:, : block // 2], rows[:, block // 2 :])
            if rows.shape[1] == block
            else (rows[:, ::2], rows[:, 1::2])
        )
        parts.append((low | high << 4).reshape(-1))
    weight = np.concatenate(parts).reshape(n, -1)
    scale, zero = pairs.astype("float64").repeat(columns, 0).transpose(2, 1, 0)
    want = x.astype("float64") @ ((q.astype("float64") - 8) * scale + zero).T
    return (x, weight, pairs), {"block": block}, [want.astype(dt)]


_CASES: dict[str, Callable[[str], tuple]] = {
    "layer_norm": _layer_norm,
    "layer_norm_backward": _layer_norm_backward,
    "group_norm": _group_norm,
    "group_norm_backward": _group_norm_backward,
    "batch_norm": _batch_norm,
    "batch_norm_backward": _batch_norm_backward,
    "convolution": _convolution,
    "convolution_backward_input": _convolution_backward_input,
    "convolution_backward_weight": _convolution_backward_weight,
    "max_pool": _max_pool,
    "max_pool_backward": _max_pool_backward,
    "attention": _attention,
    "attention_backward": _attention_backward,
    "lstm_recurrence": _lstm_recurrence,
    "lstm_forward": _lstm_forward,
    "lstm_backward": _lstm_backward,
    "gru_forward": _gru_forward,
    "gru_backward": _gru_backward,
    "rnn_forward": _rnn_forward,
    "rnn_backward": _rnn_backward,
    "pack_rows": _pack_rows,
    "pad_rows": _pad_rows,
    "rows_before": _rows_before,
    "linear_int8": _linear_int8,
    "linear_int4": _linear_int4,
    "take": _take,
    "add_at": _add_at,
    "put_at": _put_at,
    "embedding_backward": _embedding_backward,
    "gather": _gather,
    "searchsorted": _searchsorted,
    "scatter": _scatter,
    "triangle": _triangle,
    "dropout_backward": _dropout_backward,
    "adam": _optimizer(
        lambda p: torch.optim.Adam(p, lr=0.01, foreach=False),
        lambda s: ["exp_avg", "exp_avg_sq"],
        lr=0.01,
        steps=2,
    ),
    "sgd": _optimizer(
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=False),
        lambda s: ["momentum_buffer"],
        lr=0.1,
        momentum=0.9,
    ),
    "adagrad": _optimizer(
        lambda p: torch.optim.Adagrad(p, lr=0.1, foreach=False),
        lambda s: ["sum"],
        lr=0.1,
        steps=[2, 2],
    ),
}
# Whose results are random: they have tests of their own below.
_RANDOM = {"uniform", "normal", "bernoulli", "integers", "dropout"}


def test_every_call_has_a_case() -> None:
    names = {call.name for call in CALLS}
    assert names - set(_CASES) - _RANDOM == set()
    for name in names:
        function = getattr(hg, name)
        assert function.__doc__ and inspect.signature(function)
        assert inspect.signature(getattr(hg.ops, name)).parameters["ex"]


def _results(call: Any, operands: tuple, given: dict[str, Any]) -> list[np.ndarray]:
    result = getattr(hg, call.name)(*operands, **given)
    if not call.visible and any(o["is_list"] for o in call.inputs):
        result = tuple(operands[2])  # the parameters, which the step updates
    return [np.asarray(r) for r in (result if isinstance(result, tuple) else (result,))]


def _close(got: list[np.ndarray], want: list[np.ndarray], dt: str) -> None:
    assert len(got) == len(want)
    limit = 1e-5 if dt == "float32" else 1e-12
    for g, w in zip(got, want, strict=True):
        assert g.dtype == w.dtype and g.shape == w.shape
        np.testing.assert_allclose(g, w, rtol=limit, atol=limit)


@pytest.mark.parametrize("dt", ["float32", "float64"])
@pytest.mark.parametrize("call", [c for c in CALLS if c.name in _CASES], ids=lambda c: c.name)
def test_agrees_with_pytorch(call: Any, dt: str) -> None:
    operands, given, want = _CASES[call.name](dt)
    _close(_results(call, operands, given), want, dt)


@pytest.mark.parametrize(
    "call", [c for c in CALLS if c.name in _CASES and c.visible], ids=lambda c: c.name
)
def test_takes_any_strides_and_writes_into_out(call: Any) -> None:
    operands, given, want = _CASES[call.name]("float32")

    def strided(x: Any) -> Any:
        if not isinstance(x, np.ndarray):
            return x
        wide = np.repeat(x[..., None], 2, -1) if x.ndim else x
        return hg.array(wide)[..., 0] if x.ndim else x

    out = [hg.empty((*w.shape, 2), str(w.dtype))[..., 1] for w in want]
    result = getattr(hg, call.name)(*map(strided, operands), **given, out=out)
    _close([np.asarray(r) for r in out], want, "float32")
    assert result is out[0] if len(out) == 1 else result == tuple(out)


@pytest.mark.parametrize(
    "call", [c for c in CALLS if c.name in _CASES and c.visible], ids=lambda c: c.name
)
def test_on_buffers_of_an_executor(call: Any) -> None:
    operands, given, want = _CASES[call.name]("float32")
    with hg.Executor("cpu") as ex:

        def buffer(x: Any) -> Any:
            if x is None:
                return None
            array = np.asarray(x)
            made = ex.allocate(array.shape, array.dtype)
            made.from_numpy(array)
            return made

        out = [ex.allocate(w.shape, w.dtype) for w in want]
        args = [buffer(x) for x in operands] + [None] * (len(call.inputs) - len(operands))
        assert getattr(hg.ops, call.name)(ex, *args, *out, **given) is None
        _close([o.to_numpy() for o in out], want, "float32")


def test_half_types_take_float32_parameters() -> None:
    x, w = _array(4, 8).astype("float16"), _array(8)
    got = hg.layer_norm(x, w)
    assert got.dtype == hg.float16
    want = F.layer_norm(_t(x).float(), (8,), _t(w)).half().numpy()
    np.testing.assert_allclose(np.asarray(got), want, rtol=2e-3, atol=2e-3)


def test_named_forms() -> None:
    x, w = _array(2, 3, 4, 5, 6), _array(4, 3, 2, 2, 2)
    want = F.conv3d(_t(x), _t(w), None, 2).numpy()
    _close([np.asarray(hg.conv3d(x, w, None, 2))], [want], "float32")
    with pytest.raises(ValueError, match=r"conv2d: input has shape \(2, 3, 4, 5, 6\); it has 4"):
        hg.conv2d(x, w)
    at, weight = _positions(7, 2, 3), _array(7, 4)
    np.testing.assert_array_equal(np.asarray(hg.embedding(at, weight)), weight[at])
    layer = torch.nn.LSTM(3, 5)
    x, h, c = _array(4, 2, 3), _array(2, 5), _array(2, 5)
    with torch.no_grad():
        want, (h_n, c_n) = layer(_t(x), (_t(h)[None], _t(c)[None]))
    given = [p.detach().numpy() for p in layer.parameters()]
    got = hg.lstm(x, h, c, *given)
    _close([np.asarray(g) for g in got], [want.numpy(), h_n[0].numpy(), c_n[0].numpy()], "float32")


# --- Random numbers -------------------------------------------------------------------------------


def test_random_fills_are_those_of_their_place_in_the_stream() -> None:
    x = hg.zeros(1000, "float32")
    assert hg.uniform(x, seed=7) is x
    first = np.asarray(x).copy()
    assert first.min() >= 0 and first.max() < 1 and abs(first.mean() - 0.5) < 0.05
    np.testing.assert_array_equal(np.asarray(hg.uniform(hg.zeros(1000, "float32"), seed=7)), first)
    # 64 elements take 16 blocks.
    later = np.asarray(hg.uniform(hg.zeros(1000 - 64, "float32"), seed=7, offset=16))
    np.testing.assert_array_equal(later, first[64:])
    assert not np.array_equal(np.asarray(hg.uniform(hg.zeros(1000, "float32"), seed=8)), first)

    normal = np.asarray(hg.normal(hg.zeros(20000, "float64"), seed=2**64 - 1, mean=3, std=2))
    assert abs(normal.mean() - 3) < 0.1 and abs(normal.std() - 2) < 0.1
    ones = np.asarray(hg.bernoulli(hg.zeros(20000, "bool"), seed=1, p=0.25))
    assert abs(ones.mean() - 0.25) < 0.02
    whole = np.asarray(hg.integers(hg.zeros(20000, "int64"), seed=1, low=5, count=3))
    assert set(np.unique(whole)) == {5, 6, 7}


def test_dropout_scales_what_it_keeps() -> None:
    x = _array(1000)
    got = np.asarray(hg.dropout(x, seed=3, p=0.25))
    kept = got != 0
    assert abs(kept.mean() - 0.75) < 0.05
    np.testing.assert_allclose(got[kept], x[kept] / np.float32(0.75), rtol=1e-6)
    strided = hg.zeros((4, 6)).transpose(1, 0)
    hg.uniform(strided, seed=1, low=2, high=3)
    assert np.asarray(strided).min() >= 2


# --- Edges ----------------------------------------------------------------------------------------


def test_operands_of_many_dimensions() -> None:
    """The strides of row-major operands are worked out when a call runs, for any number of them."""
    dims = (2, *[1] * 28, 3)
    x = np.random.default_rng(4).standard_normal(dims).astype("float32")
    for given in (x, np.asfortranarray(x), x[::-1], np.broadcast_to(x[:1], dims)):
        want = F.layer_norm(torch.from_numpy(given.copy()), (3,)).numpy()
        np.testing.assert_allclose(np.asarray(hg.layer_norm(given)), want, rtol=1e-5, atol=1e-6)


def test_nothing_to_compute() -> None:
    assert hg.layer_norm(np.zeros((0, 4), "float32")).shape == (0, 4)
    assert hg.conv1d(np.zeros((0, 2, 5), "float32"), _array(3, 2, 2)).shape == (0, 3, 4)
    assert hg.take(_array(3, 2), np.zeros(0, "int64")).shape == (0, 2)
    grad = hg.embedding_backward(np.zeros((0, 4), "float32"), np.zeros(0, "int64"), num_weights=3)
    np.testing.assert_array_equal(np.asarray(grad), np.zeros((3, 4)))


def test_operands_that_overlap() -> None:
    x = hg.array(np.arange(12, dtype="float32").reshape(4, 3))
    at = hg.array(np.array([1, 2, 3]))
    want = np.asarray(x).copy()
    want[[1, 2, 3]] = want[[0, 1, 2]]
    assert hg.put_at(x, at, x[:3]) is x
    np.testing.assert_array_equal(np.asarray(x), want)
    y = hg.array(_array(4, 6))
    want = F.layer_norm(_t(np.asarray(y)), (6,)).numpy()
    hg.layer_norm(y, out=y)
    np.testing.assert_allclose(np.asarray(y), want, rtol=1e-5, atol=1e-6)


def test_results_that_share_memory_are_written_in_turn() -> None:
    gates, weight = hg.array(_array(3, 2, 8)), _array(8, 2)
    h0, c0 = _array(2, 2), _array(2, 2)
    want = hg.lstm_recurrence(hg.array(np.asarray(gates)), weight, None, h0, c0)
    output, state = hg.empty((3, 2, 2), "float32"), hg.empty((2, 2), "float32")
    hg.lstm_recurrence(gates, weight, None, h0, c0, out=(output, state, state))
    np.testing.assert_array_equal(np.asarray(output), np.asarray(want[0]))
    np.testing.assert_array_equal(np.asarray(state), np.asarray(want[2]))


def _packed(x: np.ndarray) -> torch.nn.utils.rnn.PackedSequence:
    return torch.nn.utils.rnn.PackedSequence(_t(x), torch.from_numpy(_LENGTHS))


@pytest.mark.parametrize("reverse", [False, True])
def test_recurrences_of_packed_rows(reverse: bool) -> None:
    x, h0, c0 = _array(7, 4), _array(3, 4), _array(3, 6)
    layer = torch.nn.LSTM(4, 6, proj_size=4, bidirectional=True)
    states = torch.stack([_t(h0)] * 2), torch.stack([_t(c0)] * 2)
    output, last = layer(_packed(x), states)
    names = [f"{n}_l0{'_reverse' if reverse else ''}" for n in ("weight_ih", "bias_ih")]
    gates = F.linear(_t(x), *(getattr(layer, n) for n in names)).detach().numpy()
    names = [n.replace("ih", "hh") for n in names] + [names[0].replace("ih", "hr")]
    weight, bias, weight_hr = (getattr(layer, n).detach().numpy() for n in names)
    operands = weight, bias, h0, c0, weight_hr, _LENGTHS
    want = [output.data.chunk(2, 1)[reverse], *(t[int(reverse)] for t in last)]
    for name in ("lstm_recurrence", "lstm_forward"):
        got = getattr(hg, name)(hg.array(gates), *operands, reverse=reverse)
        _close([np.asarray(g) for g in got[:3]], [w.detach().numpy() for w in want], "float32")
    # The way back: of the projection's weight, too.
    own = getattr(layer, names[2])
    want_hr = torch.autograd.grad(want[0].square().sum(), own)[0].numpy()
    active = hg.array(gates)
    out, _, _, cells = hg.lstm_forward(active, *operands, reverse=reverse)
    grad = 2 * np.asarray(out)
    into = hg.empty((7, 4), "float32"), hg.empty((7, 6), "float32")
    given = active, cells, weight, c0, grad, None, None, weight_hr, _LENGTHS
    hg.lstm_backward(*given, *into, reverse=reverse)
    _close([np.asarray(into[0]).T @ np.asarray(into[1])], [want_hr], "float32")
    with pytest.raises(ValueError, match="grad_projection and projected have to be given"):
        hg.lstm_backward(*given)


def test_other_recurrences_of_packed_rows() -> None:
    x, h0 = _array(7, 4), _array(3, 6)
    for kind in ("GRU", "RNN"):
        layer = getattr(torch.nn, kind)(4, 6)
        first = _t(h0)[None].requires_grad_()
        weight, bias = layer.weight_hh_l0.detach().numpy(), layer.bias_hh_l0.detach().numpy()
        gates = F.linear(_t(x), layer.weight_ih_l0, layer.bias_ih_l0).detach().numpy()
        with torch.no_grad():
            want, last = layer(_packed(x), first)
        forward, backward = (getattr(hg, f"{kind.lower()}_{n}") for n in ("forward", "backward"))
        active = hg.array(gates)
        got = forward(active, weight, bias, h0, _LENGTHS)
        _close([np.asarray(g) for g in got[:2]], [want.data.numpy(), last[0].numpy()], "float32")
        grads = np.ones((7, 6), "float32"), np.ones((3, 6), "float32")
        before = (active, got[2], got[0], weight, h0) if kind == "GRU" else (got[0], weight)
        found = backward(*before, *grads, _LENGTHS)
        output, last = layer(_packed(x), first)
        bias_ih, wanted = torch.autograd.grad(
            output.data.sum() + last.sum(), [layer.bias_ih_l0, first]
        )
        _close(
            [np.asarray(found[0]).sum(0), np.asarray(found[-1])],
            [bias_ih.numpy(), wanted[0].numpy()],
            "float32",
        )


_x = np.ones((2, 6, 4), "float32")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: hg.layer_norm(_x, np.ones(5, "float32")),
            ValueError,
            r"layer_norm: weight has shape \[5\]; it has to be \[\*M\] where M is \[4\]",
        ),
        (
            lambda: hg.layer_norm(_x, axes=4),
            ValueError,
            "layer_norm: axes is 4; input has 3 dimensions",
        ),
        (
            lambda: hg.group_norm(_x, groups=4),
            ValueError,
            r"group_norm: input has shape \[2, 6, 4\]; it has to be \[N, groups\*G, \*S\]",
        ),
        (lambda: hg.layer_norm(np.ones((2, 3), "int64")), TypeError, "input is int64; it takes"),
        (
            lambda: hg.conv1d(_x, np.ones((3, 6, 2), "float64")),
            TypeError,
            "convolution: weight is float64; .* which is here float32; cast the tensor first",
        ),
        (lambda: hg.conv1d(_x, np.ones((3, 6, 9), "float32")), ValueError, "kernel reaches over 9"),
        (
            lambda: hg.conv1d(_x, np.ones((3, 3, 1), "float32"), groups=2),
            ValueError,
            "groups is 2, which does not divide the 3 output channels",
        ),
        (
            lambda: hg.conv1d(_x, np.ones((3, 6, 1), "float32"), stride=0),
            ValueError,
            "stride is 0; it has to be 1 or more",
        ),
        (
            lambda: hg.conv1d(_x, np.ones((3, 6, 1), "float32"), stride=(1, 2)),
            ValueError,
            "stride has 2 numbers; give one, or 1, one for each dimension",
        ),
        (
            lambda: hg.max_pool(_x[:, :, :1], kernel_size=2, padding=1, dilation=2),
            ValueError,
            "dimension 2 has 1 windows of which some lie outside 1 elements: kernel 2, stride 2, "
            "padding 1, dilation 2",
        ),
        (
            lambda: hg.max_pool_backward(
                _x, np.zeros((2, 6, 4), "int64"), kernel_size=2, input_size=4
            ),
            ValueError,
            "dimension 2 has 4 windows of which some lie outside 4 elements",
        ),
        (
            lambda: hg.max_pool_backward(
                _x, np.zeros((2, 6, 4), "int64"), kernel_size=2, input_size=-4
            ),
            ValueError,
            "dimension 2 has 4 windows of which some lie outside -4 elements",
        ),
        (
            lambda: hg.embedding(np.array([0, 5]), np.ones((5, 2), "float32")),
            IndexError,
            "take: index holds 5 at position 1, which is out of range for size 5",
        ),
        (
            lambda: hg.attention(_x[None], _x[None, :1, :, :3], _x[None]),
            ValueError,
            "attention: ",
        ),
        (
            lambda: hg.rnn_forward(_x, np.ones((4, 4), "float32"), None, _x[0, :5]),
            ValueError,
            r"the rows of gates have shape \[2, 6\]; they have to have steps and the batch",
        ),
        (
            lambda: hg.rnn_forward(_x, np.ones((4, 4), "float32"), None, _x[0], np.array([6, 6])),
            ValueError,
            r"the rows of gates have shape \[2, 6\]; with batch_sizes, they lie one after another",
        ),
        (
            lambda: hg.rnn_forward(
                _x[0], np.ones((4, 4), "float32"), None, _x[0, :3], np.array([3, 2])
            ),
            ValueError,
            "batch_sizes adds up to 5 rows, given were 6",
        ),
        (
            lambda: hg.lstm_backward(
                _x,
                _x[:, :, :1],
                np.ones((4, 0), "float32"),
                _x[0, :, :1],
                None,
                None,
                None,
                np.ones((0, 1), "float32"),
            ),
            ValueError,
            "h is projected to 0 columns; it has to have 1 or more",
        ),
        (
            lambda: hg.pad_rows(_x[0], np.array([3, 3]), steps=1, batch=3),
            ValueError,
            "room for 1 steps of 3 rows; batch_sizes has 2 steps",
        ),
        (lambda: hg.dropout(_x, seed=1, p=1.0), ValueError, r"p is 1; it has to be in \[0, 1\)"),
        (lambda: hg.batch_norm(_x), ValueError, "running_mean and running_var are missing"),
        (lambda: hg.uniform(_x, seed=1), TypeError, "uniform: self is written, so it is a Tensor"),
        (lambda: hg.dropout(_x), TypeError, "missing a required .*'seed'"),
        (
            lambda: hg.layer_norm(_x, out=hg.zeros((2, 6, 5))),
            ValueError,
            r"result 0 has shape \[2, 6, 4\], out has \[2, 6, 5\]",
        ),
        (
            lambda: hg.layer_norm(_x, out=hg.zeros((2, 6, 4), "float64")),
            TypeError,
            "result 0 is float32, out is float64",
        ),
        (
            lambda: hg.adam(None, None, [hg.zeros(2)], [], [hg.zeros(2)], [hg.zeros(2)], steps=1),
            ValueError,
            "adam: grads is missing",
        ),
    ],
)
def test_errors_say_what_does_not_fit(
    call: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call()
