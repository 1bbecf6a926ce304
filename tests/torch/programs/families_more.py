# SPDX-License-Identifier: MIT
"""More kinds of steps: folds, rows, matmul, lists, optimizers, random numbers, and looks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .families import dim_of, family, may_write, numel, resizable, share, writable
from .steps import V, form

if TYPE_CHECKING:
    from .generate import Generator

# --- Folds and rows ----------------------------------------------------------------------------

FOLDS = "sum sum sum mean mean amax amin prod var std norm logsumexp any all".split()
RARE_FOLDS = "argmax argmin cumsum cumprod median nansum nanmean count_nonzero sort".split()


@family(10, common=True)
def fold(g: Generator) -> None:
    rare = g.chance(0.1)
    name = g.choice(RARE_FOLDS if rare else FOLDS)
    floating = name in ("mean", "var", "std", "norm", "logsumexp", "nanmean") and g.chance(0.95)
    v = g.floating() if floating else g.tensor()
    t = g.get(v)
    dim: Any = -1 if g.chance(0.5) else dim_of(g, t)
    if t.dim() >= 2 and g.chance(0.25) and name not in ("prod", "any", "all") and not rare:
        dim = tuple(sorted(range(t.dim()), key=lambda _: g.random())[:2])
    keep = g.chance(0.5)
    if rare:
        if name == "sort":
            g.emit("{0}.sort({1})", v, dim, results=2)
        elif name == "median":
            # Which of equal elements it finds differs from call to call on PyTorch's cpu.
            g.emit("{0}.median({1}).values", v, dim)
        else:
            g.emit(f"{{0}}.{name}({{1}})", v, dim)
    elif name == "norm":
        p = g.choice([2, 2, 1, 0, float("inf"), 3.0])
        g.emit("torch.linalg.vector_norm({0}, {1}, dim={2}, keepdim={3})", v, p, dim, keep)
    elif g.chance(0.2) and name not in ("logsumexp", "amax", "amin"):
        g.emit(f"{{0}}.{name}()", v)
    elif name in ("sum", "mean", "prod") and g.chance(0.1):
        g.emit(f"{{0}}.{name}({{1}}, keepdim={{2}}, dtype={{3}})", v, dim, keep, g.dtype())
    elif name in ("var", "std"):
        g.emit(f"{{0}}.{name}({{1}}, correction={{2}}, keepdim={{3}})", v, dim, g.below(3), keep)
    elif name in ("sum", "amax") and g.chance(0.05) and (into := resizable(g)) is not None:
        if not share(g.get(into), t):
            g.emit(
                f"torch.{name}({{0}}, {{1}}, keepdim={{2}}, out={{3}})",
                v,
                dim,
                keep,
                into,
                results=0,
            )
    else:
        g.emit(f"{{0}}.{name}({{1}}, keepdim={{2}})", v, dim, keep)


@family(5, common=True)
def rows(g: Generator) -> None:
    v = g.floating()
    t = g.get(v)
    dim = -1 if g.chance(0.8) else dim_of(g, t)
    text = g.choice(
        [
            "{0}.softmax({1})",
            "{0}.softmax({1})",
            "{0}.log_softmax({1})",
            "softmax_by_hand({0})",
            "layer_norm({0})",
            "layer_norm_var({0})",
            "rms_norm({0})",
            "gelu_by_hand({0})",
            "unused_chain({0})",
            "F.layer_norm({0}, {0}.shape[-1:])",
            "F.normalize({0}, dim={1})",
        ]
    )
    g.emit(text, v, dim)


@family(3)
def rows_of_two(g: Generator) -> None:
    v = g.floating()
    w = g.like(v, exact=True)
    text = g.choice(
        [
            "aten._softmax_backward_data({0}, {1}.softmax(-1), -1, {0}.dtype)",
            "aten._log_softmax_backward_data({0}, {1}.log_softmax(-1), -1, {0}.dtype)",
            "swiglu({0}, {1})",
            "F.mse_loss({0}, {1})",
            "F.mse_loss({0}, {1}, reduction='none')",
            "F.l1_loss({0}, {1})",
            "F.smooth_l1_loss({0}, {1})",
            "F.binary_cross_entropy_with_logits({0}, {1})",
            "F.mse_loss({0}, {1}, reduction='sum')",
            "layer_norm({0}, {1}, {0})",
            "F.huber_loss({0}, {1})",
            "((({0} - {1}) ** 2).mean(-1, keepdim=True) + {1})",
        ]
    )
    g.emit(text, v, w)


@family(2)
def moments(g: Generator) -> None:
    g.emit("moments({0})", g.floating(), results=3)


# --- What is not elementwise -------------------------------------------------------------------


@family(3, moves=True)
def structure(g: Generator) -> None:
    v = g.tensor()
    t = g.get(v)
    d = dim_of(g, t)
    text = g.choice(
        [
            "torch.cat([{0}, {0}], {1})",
            "torch.stack([{0}, {0}], {1})",
            "{0}.flip({1})",
            "{0}.roll(1, {1})",
            "{0}.repeat_interleave(2, {1})",
            "{0}.tile(2)",
            "torch.tril({0})",
            "{0}.index_select({1}, torch.tensor([0, 0], device=device))",
            "{0}[{0} != 0]",
            "{0}.nonzero()",
            "F.pad({0}, (1, 1))",
            "{0}.masked_select({0} > 0)",
            "{0}[torch.tensor([0, -1], device=device)]",
            "{0}.argsort({1})",
        ]
    )
    g.emit(text, v, d)


@family(3, moves=True)
def join(g: Generator) -> None:
    v = g.tensor()
    others = [g.like(v, exact=True) for _ in range(1 + g.below(2))]
    g.emit(
        g.choice(["torch.cat({0}, {1})", "torch.stack({0}, {1})"]),
        [v, *others],
        dim_of(g, g.get(v)),
    )


@family(4)
def matmul(g: Generator) -> None:
    v = g.floating()
    t = g.get(v)
    if t.dim() < 1:
        return
    k = t.shape[-1]
    w = g.tensor_where(lambda o: o.dim() == 2 and k in o.shape and o.dtype == t.dtype)
    if w is None:
        n = g.choice(g.dims)
        if k * n > g.most:
            return
        w = g.new_input((k, n), t.dtype)
    rows, columns = g.get(w).shape
    if numel(t.shape) * columns * rows > 1 << 22:
        return
    second = "{1}" if rows == k else "{1}.t()"
    if t.dim() == 2 and g.chance(0.3):
        g.emit(
            f"torch.addmm({{2}}, {{0}}, {second}, beta={{3}}, alpha={{4}})",
            v,
            w,
            g.new_input((columns if rows == k else rows,), t.dtype),
            g.choice([0, 1, 0.5]),
            g.choice([1, 2.0]),
        )
    elif columns == k and g.chance(0.4):
        g.emit("F.linear({0}, {1})", v, w)
    else:
        g.emit(f"{{0}} @ {second}", v, w)


@family(2)
def index_write(g: Generator) -> None:
    v = writable(g)
    if v is None:
        return
    t = g.get(v)
    text = g.choice(
        [
            "{0}.__setitem__({0} > 0, {1})",
            "{0}.masked_fill_({0}.isnan(), {1})",
            "{0}.fill_diagonal_({1})",
            "{0}.index_fill_(0, torch.tensor([0], device=device), {1})",
            "{0}[:1].zero_()",
            "{0}.__setitem__(torch.tensor([0], device=device), {1})",
            "{0}.T.add_({1})",
            "{0}[..., ::2].mul_({1})",
        ]
    )
    g.emit(text, v, g.number(t.dtype), results=0)


@family(1)
def complex_view(g: Generator) -> None:
    """Let complex numbers, which are never recorded, share memory with floats, which are."""
    v = g.tensor_where(
        lambda t: t.dtype == torch.float32 and t.is_contiguous() and t.numel() % 2 == 0
    )
    if v is not None and v not in g.overlapping:
        text = g.choice(
            [
                "torch.view_as_complex({0}.view(-1, 2)).mul_(1j)",
                "torch.view_as_complex({0}.view(-1, 2)).add_(1)",
            ]
        )
        g.emit(text, v, results=0)


# --- Lists -------------------------------------------------------------------------------------

FOREACH_UNARY = "abs neg sqrt exp sin tanh sigmoid reciprocal floor sign".split()
FOREACH_NUMBER = "add sub mul div clamp_min clamp_max maximum pow".split()
FOREACH_LIST = "add sub mul div maximum minimum".split()


def apart(g: Generator, targets: list[V]) -> bool:
    """Tell whether the tensors may be written as one list."""
    return all(v not in g.overlapping for v in targets) and not any(
        share(g.get(a), g.get(b)) for i, a in enumerate(targets) for b in targets[:i]
    )


@family(4)
def foreach(g: Generator) -> None:
    targets = [g.floating() if g.chance(0.7) else g.tensor() for _ in range(1 + g.below(4))]
    if g.chance(0.5):
        targets = [targets[0], *(g.like(targets[0], exact=True) for _ in targets[1:])]
    in_place = g.chance(0.6) and apart(g, targets)
    tail, results = ("_", 0) if in_place else ("", len(targets))
    r = g.random()
    if r < 0.3:
        g.emit_list(
            f"torch._foreach_{g.choice(FOREACH_UNARY)}{tail}({{0}})", targets, results=results
        )
        return
    if r < 0.6:
        number = g.number(g.get(targets[0]).dtype)
        name = g.choice(FOREACH_NUMBER)
        g.emit_list(f"torch._foreach_{name}{tail}({{0}}, {{1}})", targets, number, results=results)
        return
    others = [g.like(v, exact=True) for v in targets]
    third = [g.like(v, exact=True) for v in targets]
    if in_place and not all(may_write(g, v, *others, *third) for v in targets):
        return
    if r < 0.75:
        name = g.choice(FOREACH_LIST)
        g.emit_list(f"torch._foreach_{name}{tail}({{0}}, {{1}})", targets, others, results=results)
    elif r < 0.85:
        g.emit_list(
            f"torch._foreach_lerp{tail}({{0}}, {{1}}, 0.25)", targets, others, results=results
        )
    elif r < 0.93 or not in_place:
        name = g.choice(["addcmul", "addcdiv"])
        g.emit_list(
            f"torch._foreach_{name}{tail}({{0}}, {{1}}, {{2}}, {{3}})",
            targets,
            others,
            third,
            g.number(torch.float32),
            results=results,
        )
    else:
        g.emit("torch._foreach_copy_({0}, {1})", targets, others, results=0)


@family(3)
def optimizer(g: Generator) -> None:
    first = g.tensor_where(lambda t: t.dtype in (torch.float32, torch.float64) and t.numel() > 0)
    if first is None:
        return
    n = 1 + g.below(2)
    shape, dtype = tuple(g.get(first).shape), g.get(first).dtype
    ps = [g.new_input(shape, dtype) for _ in range(n)]
    gs = [first] + [g.like(first, exact=True) for _ in range(n - 1)]
    if any(g.get(x).dtype != dtype or g.get(x).shape != shape for x in gs):
        return
    ms = [g.new_input(shape, dtype) for _ in range(n)]
    vs = [v for p in ps for v in g.emit("torch.zeros_like({0})", p)]
    step, r = 1 + g.below(3), g.random()
    if r < 0.4:
        g.emit("adam({0}, {1}, {2}, {3}, {4})", ps[0], gs[0], ms[0], vs[0], step, results=0)
    elif r < 0.7:
        g.emit("adam_foreach({0}, {1}, {2}, {3}, {4})", ps, gs, ms, vs, step, results=0)
    elif r < 0.85:
        name, decay = g.choice(["'adam'", "'adamw'"]), g.choice([0, 0.1])
        text = f"adam_fused({name}, {{0}}, {{1}}, {{2}}, {{3}}, weight_decay={decay})"
        g.emit(text, ps, gs, ms, vs, results=0)
    else:
        g.emit("sgd_fused({0}, {1}, {2}, {3})", ps, gs, ms, g.chance(0.5), results=0)


@family(2)
def autograd(g: Generator) -> None:
    v = g.floating()
    text = g.choice(
        [
            "layer_norm",
            "rms_norm",
            "softmax_by_hand",
            "gelu_by_hand",
            "torch.tanh",
            "torch.sigmoid",
            "F.silu",
            "F.gelu",
            "lambda x: F.softmax(x, -1)",
            "lambda x: x.log_softmax(-1)",
            "lambda x: x.std(-1)",
            "lambda x: x.clamp(-1, 1)",
            "lambda x: x[..., :1] * x",
            "F.softplus",
        ]
    )
    if g.chance(0.7):
        g.emit(f"gradient({text}, {{0}})", v, results=2)
        return
    text = g.choice(
        ["swiglu", "F.mse_loss", "torch.mul", "torch.div", "torch.maximum", "torch.lerp"]
    )
    text = "lambda x, y: torch.lerp(x, y, 0.3)" if text == "torch.lerp" else text
    g.emit(f"gradient({text}, {{0}}, {{1}})", v, g.like(v), results=3)


@family(0.5)
def training(g: Generator) -> None:
    n, k, m = 1 + g.below(9), 1 + g.below(9), 1 + g.below(5)
    dtype = g.choice([torch.float32, torch.float64])
    inputs = [g.new_input(s, dtype) for s in ((n, k), (n, m), (k, m), (m,))]
    g.emit("train({0}, {1}, {2}, {3}, {4})", *inputs, 1 + g.below(3), results=3)


# --- Random numbers ----------------------------------------------------------------------------


@family(1, moves=True)
def move(g: Generator) -> None:
    """Copy and choose; the bits stay."""
    v = g.tensor()
    other = g.like(v)
    if g.get(other).dtype != g.get(v).dtype:
        other = v
    mask = g.tensor_where(lambda t: t.dtype == torch.bool)
    if mask is None:
        mask = g.new_input(tuple(g.get(v).shape), torch.bool)
    texts = [
        "{0}.clone()",
        "{0}.contiguous()",
        "torch.where({1}, {0}, {2})",
        "{0}.masked_fill({1}, 1)",
    ]
    r = g.random()
    if r < 0.6:
        g.emit(g.choice(texts), v, mask, other)
    elif may_write(g, v, mask, other):
        g.emit(
            "torch.cat([{1}, {1}], out={0})"
            if g.chance(0.3) and not g.foreign
            else "{0}.copy_({1})",
            v,
            other,
            results=0,
        )


@family(1.5)
def random_numbers(g: Generator) -> None:
    v = g.floating()
    text = g.choice(
        [
            "torch.rand_like({0})",
            "torch.randn_like({0})",
            "F.dropout({0}, 0.4)",
            "torch.randint(0, 9, {0}.shape, device=device)",
            "torch.bernoulli({0}.sigmoid())",
        ]
    )
    if g.chance(0.3) and v not in g.overlapping:
        g.emit(g.choice(["{0}.uniform_(-1, 1)", "{0}.normal_()"]), v, results=0)
    else:
        g.emit(text, v)


# --- Looks -------------------------------------------------------------------------------------


@family(5, common=True, moves=True)
def look(g: Generator) -> None:
    v = g.tensor()
    t = g.get(v)
    r = g.random()
    if r < 0.35:
        text = "{0}.cpu()"
    elif r < 0.5 and t.numel() >= 1:
        text = "{0}.flatten()[0].item()"
    elif r < 0.6:
        text = "bool(({0} > 0).any())"
    elif r < 0.65:
        text = "torch.equal({0}, {0})"
    elif r < 0.7:
        text = "{0}.data_ptr() != 0"
    elif r < 0.75 and t.numel() < 50:
        text = "repr({0})"
    elif r < 0.8:
        text = "torch.hologram.synchronize() if device.type == 'hologram' else None"
    elif r < 0.82:
        text = "torch.hologram.empty_cache() if device.type == 'hologram' else None"
    elif r < 0.9:
        text = "{0}.to('cpu', torch.float64)"
    else:
        text = "{0}.tolist().__repr__()" if t.numel() < 50 else "{0}.cpu().sum().isnan().item()"
    g.emit(form(text, look=True), v, results=0)


@family(1, moves=True)
def host_copies(g: Generator) -> None:
    v = writable(g)
    if v is None:
        return
    r = g.random()
    if r < 0.4:
        g.emit("from_host({0}, {1})", v, float(g.number(torch.float32)), results=0)
    elif r < 0.6:
        g.emit(form("to_host({0})", look=True), v, results=0)
    elif r < 0.8:
        g.emit("copied({0})", v, results=2)
    else:
        g.emit("saved({0})", v)


@family(0.7)
def many_ops(g: Generator) -> None:
    v = g.floating()
    if g.chance(0.5):
        g.emit("two_threads({0}, {1})", v, g.floating(), results=2)
    else:
        g.emit("long_chain({0}, {1})", v, g.choice([10, 30, 70, 300]))


@family(1, moves=True)
def foreign_memory(g: Generator) -> None:
    """Read and write device memory behind the device's back."""
    v = writable(g)
    if v is None:
        return
    r = g.random()
    if r < 0.5 or not g.foreign:
        g.emit("host_view({0})", v)
    elif r < 0.8:
        g.emit(g.choice(["{0}.fill_(3)", "{0}.neg_()"]), V(g.choice(g.foreign)), results=0)
    else:
        g.emit(form("{0}.clone()", look=True), V(g.choice(g.foreign)), results=0)


@family(0.7)
def change_cpu_number(g: Generator) -> None:
    """A number on the cpu counts with the value that it has at the call."""
    if g.cpu:
        g.emit("{0}.fill_({1})", V(g.choice(g.cpu)), g.below(5), results=0)
    else:
        g.emit("torch.tensor({0}, dtype=torch.float32)", g.number(torch.float32))


@family(0.7, moves=True)
def storage(g: Generator) -> None:
    """Change what a tensor is: its shape, or the tensor behind the name."""
    v, w = g.tensor(), g.tensor()
    r = g.random()
    if r < 0.4:
        g.emit("{0}.set_({1})", v, w, results=0)
        if w in g.overlapping:
            g.overlapping.add(v)
    elif r < 0.7:
        t = g.get(v)
        if v not in g.overlapping and t.is_contiguous() and t.numel() > 1:
            g.emit("{0}.resize_({1})", v, (t.numel() // 2,), results=0)
    else:
        g.emit("setattr({0}, 'data', {1})", v, w, results=0)
        if w in g.overlapping:
            g.overlapping.add(v)
