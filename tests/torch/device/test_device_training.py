# SPDX-License-Identifier: MIT
"""Autograd, modules, optimizers, autocast and torch.func against the same on cpu."""

from __future__ import annotations

import copy

import pytest
import torch
from accuracy import Rounding
from torch.func import grad, hessian, jacrev, jvp, vmap

D = "hologram"

OPTIMIZERS = [
    (name, options)
    for name in (
        "SGD Adam AdamW Adagrad Adadelta Adamax ASGD NAdam RAdam RMSprop Rprop LBFGS Adafactor Muon"
    ).split()
    for options in ({}, {"foreach": False}, {"foreach": True}, {"fused": True})
    if hasattr(torch.optim, name)
    and not (name in ("LBFGS", "Muon") and options)
    and not ("fused" in options and name not in ("SGD", "Adam", "AdamW", "Adagrad"))
]


def test_backward_runs_on_the_calling_thread() -> None:
    import threading

    seen = []

    class Note(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            seen.append(threading.get_ident())
            return g * 2

    Note.apply(torch.ones(3, device=D, requires_grad=True)).sum().backward()
    assert seen == [threading.get_ident()]


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_optimizers(name: str, options: dict) -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3, bias=name != "Muon")
    ours = copy.deepcopy(model).to(D)
    wide, off = (copy.deepcopy(model).double() for _ in range(2))
    with torch.no_grad():
        for p in off.parameters():
            p.mul_(1 + torch.finfo(torch.float32).eps)
    x, y = torch.randn(5, 4), torch.randn(5, 3)
    if name == "LBFGS":
        # Far from the minimum: there its steps are quotients of what rounding has left.
        options = {"max_iter": 2}

    def train(m, x, y):
        optimizer = getattr(torch.optim, name)(m.parameters(), **options)

        def closure():
            optimizer.zero_grad()
            loss = ((m(x) - y) ** 2).sum()
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)
        return optimizer

    train(model, x, y)
    optimizer = train(ours, x.to(D), y.to(D))
    for m in (wide, off):
        train(m, x.double(), y.double())
    # Some twenty operations a step, in which gradient and state are rounded.
    bound = Rounding(units=32)
    for rows in zip(*(m.parameters() for m in (ours, model, wide, off)), strict=True):
        problem = bound.excess(*(p.detach().cpu() for p in rows))
        assert problem is None, problem
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))


def test_sparse_adam() -> None:
    embedding = torch.nn.Embedding(10, 3, sparse=True).to(D)
    before = embedding.weight.detach().clone()
    optimizer = torch.optim.SparseAdam(embedding.parameters())
    embedding(torch.tensor([1, 2], device=D)).sum().backward()
    optimizer.step()
    changed = (embedding.weight != before).any(1).cpu().tolist()
    assert changed == [i in (1, 2) for i in range(10)]


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2}])
def test_recurrent_layers(kind: str, options: dict) -> None:
    torch.manual_seed(0)
    layer = getattr(torch.nn, kind)(4, 6, **options)
    ours = copy.deepcopy(layer).to(D)
    x = torch.randn(5, 2, 4)
    results = []
    for module, value in ((layer, x.clone()), (ours, x.to(D))):
        value.requires_grad_()
        output, state = module(value)
        last = state[1] if isinstance(state, tuple) else state
        (output.pow(2).sum() + last.sum()).backward()
        results.append([output, value.grad, *(p.grad for p in module.parameters())])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(b.cpu(), a, rtol=1e-4, atol=1e-5)
    packed = torch.nn.utils.rnn.pack_padded_sequence(x.to(D), [5, 3])
    assert packed.is_hologram
    ours(packed)


@pytest.mark.parametrize("kind", ["conv1d", "conv2d", "conv3d"])
@pytest.mark.parametrize("transposed", [False, True])
def test_double_backward_of_convolution(kind: str, transposed: bool) -> None:
    dims = int(kind[4])
    name = kind if not transposed else f"conv_transpose{dims}d"
    x = torch.randn(1, 2, *[4] * dims, dtype=torch.float64, device=D, requires_grad=True)
    w = torch.randn(2, 2, *[3] * dims, dtype=torch.float64, device=D, requires_grad=True)
    function = getattr(torch.nn.functional, name)
    options = {"fast_mode": True}
    assert torch.autograd.gradcheck(lambda a, b: function(a, b, padding=1), (x, w), **options)
    assert torch.autograd.gradgradcheck(lambda a, b: function(a, b, padding=1), (x, w), **options)


def test_attention() -> None:
    q = torch.randn(2, 2, 5, 8)
    mask = torch.zeros(5, 5).masked_fill_(torch.ones(5, 5).triu(1).bool(), float("-inf"))
    for options in ({}, {"is_causal": True}, {"attn_mask": mask}):
        a = q.clone().requires_grad_()
        b = q.to(D).requires_grad_()
        attend = torch.nn.functional.scaled_dot_product_attention
        here = {k: v.to(D) if isinstance(v, torch.Tensor) else v for k, v in options.items()}
        attend(a, a, a, **options).pow(2).sum().backward()
        attend(b, b, b, **here).pow(2).sum().backward()
        torch.testing.assert_close(b.grad.cpu(), a.grad, rtol=1e-4, atol=1e-5)
    attend(b, b, b, dropout_p=0.3).sum().backward()


def test_transformer() -> None:
    torch.manual_seed(0)
    model = torch.nn.Transformer(8, 2, 1, 1, 16, dropout=0.0)
    ours = copy.deepcopy(model).to(D)
    x = torch.randn(3, 2, 8)
    torch.testing.assert_close(ours(x.to(D), x.to(D)).cpu(), model(x, x), rtol=1e-4, atol=1e-5)
    ours(x.to(D), x.to(D)).sum().backward()
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    encoder = torch.nn.TransformerEncoder(layer, 2).eval()
    here = copy.deepcopy(encoder).to(D)
    pad = torch.tensor([[False, False, True], [False, False, False]])
    y = torch.randn(2, 3, 8)
    with torch.no_grad():
        expected = encoder(y, src_key_padding_mask=pad)
        actual = here(y.to(D), src_key_padding_mask=pad.to(D))
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-5)


def test_autocast_and_grad_scaler() -> None:
    layer = torch.nn.Linear(4, 4).to(D)
    x = torch.randn(2, 4, device=D)
    with torch.autocast(D, dtype=torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
        assert torch.exp(layer(x)).dtype == torch.float32
        assert torch.softmax(layer(x), 1).dtype == torch.float32
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            torch.nn.functional.binary_cross_entropy(torch.sigmoid(x), torch.ones_like(x))
    scaler = torch.amp.GradScaler(D, init_scale=1024.0)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    with torch.autocast(D, dtype=torch.float16):
        loss = layer(x).float().sum()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    layer.weight.grad.fill_(float("inf"))
    before = layer.weight.detach().clone()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 512.0
    assert torch.equal(before, layer.weight)


def test_functional_transforms() -> None:
    x = torch.randn(4, 3, device=D)
    torch.testing.assert_close(vmap(grad(lambda v: (v**3).sum()))(x), 3 * x**2)
    jvp(lambda v: v.sin(), (x,), (torch.ones_like(x),))
    torch.testing.assert_close(jacrev(lambda v: v.sin())(x[0]), torch.diag(x[0].cos()))
    torch.testing.assert_close(hessian(lambda v: (v**3).sum())(x[0]), torch.diag(6 * x[0]))
    vmap(torch.nn.functional.dropout, randomness="different")(x)


def test_gradcheck() -> None:
    x = torch.randn(3, 3, device=D, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: v.sin().mm(v.t()), (x,))
    assert torch.autograd.gradgradcheck(lambda v: v.sin().mm(v.t()), (x,))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(reentrant: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5)).to(D)
    x = torch.randn(2, 4, device=D, requires_grad=True)
    torch.manual_seed(1)
    model(x).sum().backward()
    expected = x.grad.clone()
    x.grad = None
    torch.manual_seed(1)
    checkpoint(model, x, use_reentrant=reentrant).sum().backward()
    torch.testing.assert_close(x.grad, expected)


def test_hooks_and_saved_tensors() -> None:
    model = torch.nn.Linear(4, 4).to(D)
    x = torch.randn(2, 4, device=D, requires_grad=True)
    hits = []
    model.register_full_backward_hook(lambda *args: hits.append("module"))
    x.register_hook(lambda g: hits.append("tensor"))
    model(x).sum().backward()
    assert sorted(hits) == ["module", "tensor"]
    with torch.autograd.graph.save_on_cpu():
        y = (x * x).sum()
    y.backward()
    y = x * 2
    z = y.exp()
    y.add_(1)
    z.sum().backward()
    w = x.exp()
    w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        w.sum().backward()


def test_inference_mode() -> None:
    with torch.inference_mode():
        y = torch.ones(3, device=D) * 2
        assert y.is_inference()
        assert torch.sort(y)[0].is_inference()
    assert not (y + 1).is_inference()
    with pytest.raises(RuntimeError, match=r"[Ii]nference"):
        y.requires_grad_().mul_(2)


def test_ctc_loss_takes_lengths_on_either_device() -> None:
    scores = torch.randn(10, 2, 5).log_softmax(2)
    targets, lengths = torch.randint(1, 5, (2, 3)), (torch.tensor([10, 10]), torch.tensor([3, 3]))
    expected = torch.nn.CTCLoss()(scores, targets, *lengths)
    for move in (lambda t: t, lambda t: t.to(D)):
        loss = torch.nn.CTCLoss()(scores.to(D), targets.to(D), *map(move, lengths))
        torch.testing.assert_close(loss.cpu(), expected)


def test_embedding_bag() -> None:
    bag = torch.nn.EmbeddingBag(10, 3)
    ours = copy.deepcopy(bag).to(D)
    ids, offsets = torch.tensor([1, 2, 4]), torch.tensor([0, 2])
    torch.testing.assert_close(ours(ids.to(D), offsets.to(D)).cpu(), bag(ids, offsets))
