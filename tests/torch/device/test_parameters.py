# SPDX-License-Identifier: MIT
"""Parameters between devices stay the objects they were, as on PyTorch's own accelerators."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

D = "hologram"

WAYS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "to a name": lambda m: m.to(D),
    "to a device": lambda m: m.to(torch.device(D, 0)),
    "to a dtype, too": lambda m: m.to(D, torch.float64),
    "to another tensor": lambda m: m.to(torch.ones(1, device=D)),
    "its own method": lambda m: m.hologram(),
    "without blocking": lambda m: m.to(D, non_blocking=True),
}


class Tied(nn.Module):
    """An embedding whose weight is the last layer's, too."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Embedding(7, 4)
        self.last = nn.Linear(4, 7, bias=False)
        self.last.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.first(x)))


@pytest.mark.parametrize("way", WAYS)
def test_to_keeps_parameters_and_back(way: str) -> None:
    m = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    before = dict(m.named_parameters())
    state = {k: v.clone() for k, v in m.state_dict().items()}
    references = [weakref.ref(p) for p in before.values()]
    before["0.weight"].note = "mine"
    assert WAYS[way](m) is m
    for name, p in m.named_parameters():
        assert p is before[name]
        assert isinstance(p, nn.Parameter)
        assert p.is_leaf
        assert p.requires_grad
        assert p.device == torch.device(D, 0)
    assert all(b.device.type == D for b in m.buffers())
    m.cpu().float()
    for name, p in m.named_parameters():
        assert p is before[name]
        assert p.device.type == "cpu"
    assert before["0.weight"].note == "mine"
    assert all(r() is not None for r in references)
    for name, value in m.state_dict().items():
        assert torch.equal(value, state[name])


def test_an_optimizer_made_before_trains() -> None:
    torch.manual_seed(0)
    m = nn.Linear(3, 2)
    reference = copy.deepcopy(m)
    x = torch.randn(5, 3)
    optimizer = torch.optim.SGD(m.parameters(), lr=0.5, momentum=0.9)
    theirs = torch.optim.SGD(reference.parameters(), lr=0.5, momentum=0.9)
    m.to(D)
    for _ in range(2):
        for model, o, value in ((m, optimizer, x.to(D)), (reference, theirs, x)):
            o.zero_grad()
            model(value).square().mean().backward()
            o.step()
    for ours, cpu in zip(m.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours.cpu(), cpu)
    assert not torch.equal(m.weight.cpu(), nn.Linear(3, 2).weight)


def test_tied_weights_stay_tied() -> None:
    torch.manual_seed(0)
    m = Tied()
    reference = copy.deepcopy(m)
    assert reference.first.weight is reference.last.weight
    m.to(D)
    assert m.first.weight is m.last.weight
    x = torch.tensor([0, 3, 3, 6])
    m(x.to(D)).square().sum().backward()
    reference(x).square().sum().backward()
    torch.testing.assert_close(m.first.weight.grad.cpu(), reference.first.weight.grad)
    assert copy.deepcopy(m).first.weight.device.type == D
    twin = copy.deepcopy(m)
    assert twin.first.weight is twin.last.weight


def test_hooks_are_kept() -> None:
    m = nn.Linear(3, 2)
    calls = []
    m.weight.register_hook(lambda g: calls.append(("hook", g.device.type)))
    m.weight.register_post_accumulate_grad_hook(lambda p: calls.append(("post", p is m.weight)))
    m.to(D)(torch.ones(1, 3, device=D)).sum().backward()
    assert calls == [("hook", D), ("post", True)]
    m.cpu().zero_grad()
    m(torch.ones(1, 3)).sum().backward()
    assert calls[2:] == [("hook", "cpu"), ("post", True)]


def test_a_graph_made_before_does_not_hold_the_device() -> None:
    m = nn.Linear(3, 2)
    alive = m(torch.ones(1, 3))  # keeps the node that accumulates the gradient
    m.to(D)
    m(torch.ones(1, 3, device=D)).sum().backward()
    assert m.weight.grad.device.type == D
    assert torch.equal(m.weight.grad.cpu(), torch.ones(2, 3))
    assert alive.device.type == "cpu"


def test_gradients_move_along() -> None:
    m = nn.Linear(3, 2)
    m(torch.ones(1, 3)).sum().backward()
    grad = m.weight.grad
    m.to(D)
    assert m.weight.grad is grad
    assert grad.device.type == D
    m(torch.ones(1, 3, device=D)).sum().backward()
    assert torch.equal(m.weight.grad.cpu(), torch.full((2, 3), 2.0))
    m.cpu()
    assert m.weight.grad is grad
    assert torch.equal(grad, torch.full((2, 3), 2.0))


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.LazyLinear(4), (2, 3)),
        (lambda: nn.LazyConv1d(4, 3), (2, 3, 7)),
        (lambda: nn.LazyConv2d(4, 3), (2, 3, 7, 7)),
        (lambda: nn.LazyConvTranspose2d(4, 3), (2, 3, 7, 7)),
        (lambda: nn.LazyBatchNorm1d(), (4, 3)),
        (lambda: nn.LazyInstanceNorm2d(affine=True, track_running_stats=True), (2, 3, 5, 5)),
    ],
)
def test_lazy_modules(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    m, x = make(), torch.randn(shape)
    before = list(m.parameters())
    optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
    y = m.to(D)(x.to(D))
    assert all(a is b for a, b in zip(before, m.parameters(), strict=True))
    assert all(p.device.type == D for p in m.parameters())
    reference = make()
    reference(x)
    reference.load_state_dict(m.state_dict())
    if "running_mean" not in m.state_dict():
        torch.testing.assert_close(y.cpu(), reference(x))
    old = before[0].detach().clone()
    y.sum().backward()
    before[0].grad.fill_(1.0)
    optimizer.step()
    assert torch.equal(before[0], old - 0.1)


def test_recurrent_layers_keep_their_lists() -> None:
    m = nn.LSTM(3, 4, num_layers=2, bidirectional=True)
    before = list(m.parameters())
    m.to(D)
    assert all(a is b for a, b in zip(before, m._flat_weights, strict=True))
    assert m(torch.ones(2, 1, 3, device=D))[0].device.type == D


@pytest.mark.parametrize("kind", ["weight_norm", "spectral_norm", "orthogonal"])
def test_parametrizations(kind: str) -> None:
    torch.manual_seed(0)
    m = getattr(nn.utils.parametrizations, kind)(nn.Linear(4, 4))
    reference = copy.deepcopy(m).eval()
    before = list(m.parameters())
    m.to(D).eval()
    assert all(a is b for a, b in zip(before, m.parameters(), strict=True))
    x = torch.randn(2, 4)
    torch.testing.assert_close(m(x.to(D)).cpu(), reference(x))


# --- Tensors --------------------------------------------------------------------------------------


def test_which_tensors_can_take_each_others_place() -> None:
    can = torch._has_compatible_shallow_copy_type
    cpu, ours = torch.ones(2), torch.ones(2, device=D)
    sparse, meta = torch.eye(2).to_sparse(), torch.ones(2, device="meta")
    assert can(cpu, ours)
    assert can(ours, cpu)
    assert can(ours, ours.double())
    assert can(nn.Parameter(cpu), ours)
    assert not can(ours, sparse)
    assert not can(sparse, ours)
    assert not can(ours, sparse.to(D))
    assert not can(ours, meta)
    assert not can(meta, ours)
    # PyTorch's sparse tensors know PyTorch's own devices alone, and assert it.
    assert not can(sparse, sparse.to(D))


@pytest.mark.parametrize("start", ["cpu", D])
@pytest.mark.parametrize("end", ["cpu", D])
def test_data_of_either_device(start: str, end: str) -> None:
    for leaf in (False, True):
        p = torch.zeros(3, 2, device=start, requires_grad=leaf)
        alias, version = p.detach(), p._version
        new = torch.ones(4, device=end).add(1)  # not run yet
        p.data = new
        assert p.device.type == end
        assert p.shape == (4,)
        assert p._version == version
        assert p.requires_grad == leaf
        assert p.data_ptr() == new.data_ptr()
        new.mul_(3)
        assert p.tolist() == [6.0] * 4
        # What shared the old memory keeps it.
        assert alias.device.type == start
        assert alias.add_(5).cpu().tolist() == [[5.0, 5.0]] * 3
        assert p.tolist() == [6.0] * 4
        with torch.no_grad():
            count = p._version
            p.add_(1)
            assert p._version == count + 1
        assert new.tolist() == [7.0] * 4
        del new
        gc.collect()
        assert (p * 2).tolist() == [14.0] * 4


def test_data_may_change_dtype_and_layout() -> None:
    p = nn.Parameter(torch.zeros(2, 3))
    p.data = torch.arange(6.0, dtype=torch.float64, device=D).view(3, 2).t() * 2
    assert p.dtype == torch.float64
    assert p.stride() == (1, 2)
    assert (p + 0).tolist() == [[0.0, 4.0, 8.0], [2.0, 6.0, 10.0]]
    p.data = torch.ones(2, device=D)
    p.sum().backward()
    assert p.grad.tolist() == [1.0, 1.0]
    assert p.grad.dtype == torch.float32
    p.data = p.data[1:]
    assert p.storage_offset() == 1
    assert p.tolist() == [1.0]


def test_work_that_waits_on_either_side() -> None:
    source = torch.arange(4.0, device=D)
    p = nn.Parameter(source * 2)
    reader, alias = p.detach() + 1, p.detach()
    p.data = torch.full((4,), 9.0)
    assert p.device.type == "cpu"
    assert reader.tolist() == [1.0, 3.0, 5.0, 7.0]
    assert alias.tolist() == [0.0, 2.0, 4.0, 6.0]
    p.data = source.neg()
    source.fill_(100.0)
    assert p.tolist() == [0.0, -1.0, -2.0, -3.0]
    m = nn.Linear(2, 1, bias=False).to(D)
    with torch.no_grad():
        m.weight.fill_(1.0).mul_(2.0)
    m.cpu()
    assert m.weight.tolist() == [[2.0, 2.0]]
    with torch.no_grad():
        m.weight.add_(1.0)
    m.to(D)
    with torch.no_grad():
        m.weight.add_(1.0)
        m.weight[:, 0] = 7.0
    assert m(torch.ones(1, 2, device=D)).item() == 11.0


def test_versions_guard_what_backward_saved() -> None:
    """The counter stays the tensor's own, and goes on guarding what a graph has saved."""
    p = nn.Parameter(torch.ones(3))
    p.data = torch.full((3,), 2.0, device=D)
    y = p.exp().mul(p).sum()
    with torch.no_grad():
        p.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()
    y = p.square().sum()
    y.backward()
    assert p.grad.tolist() == [6.0] * 3
    # As with any device: a detached alias from before shares the counter, not the memory.
    for there in ("cpu", D):
        q = nn.Parameter(torch.ones(3))
        alias, version = q.detach(), q._version
        q.data = torch.zeros(3, device=there)
        alias.add_(1)
        assert (q._version, q.tolist()) == (version + 1, [0.0] * 3)


def test_set_() -> None:
    x, y = torch.zeros(3, device=D), torch.arange(4.0, device=D) + 1
    version = x._version
    x.set_(y)
    assert x._version == version + 1
    assert x.tolist() == [1.0, 2.0, 3.0, 4.0]
    y.mul_(2)
    assert x.tolist() == [2.0, 4.0, 6.0, 8.0]
    x.set_(y.untyped_storage(), 1, (2,), (2,))
    assert (x + 0).tolist() == [4.0, 8.0]
    x.set_()
    assert x.shape == (0,)
    assert x.device.type == D
    assert y.tolist() == [2.0, 4.0, 6.0, 8.0]
    for a, b in ((torch.zeros(2), y), (y, torch.zeros(2))):
        values = a.tolist()
        with pytest.raises(RuntimeError, match="device"):
            a.set_(b)
        with pytest.raises(RuntimeError, match="device"):
            a.set_(b.untyped_storage())
        assert a.tolist() == values


@pytest.fixture
def swapping() -> Iterator[None]:
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield
    torch.__future__.set_swap_module_params_on_conversion(False)


def test_conversion_by_swapping(swapping: None) -> None:
    m = Tied()
    w, value = m.first.weight, m.first.weight.detach().clone()
    optimizer = torch.optim.SGD(m.parameters(), lr=1.0)
    m.to(D)
    assert m.first.weight is w
    assert w.device.type == D
    assert torch.equal(w.cpu(), value)
    m(torch.tensor([1, 2], device=D)).sum().backward()
    optimizer.step()
    assert not torch.equal(w.cpu(), value)
    grad = w.grad.clone()
    m.cpu()
    assert m.last.weight is w
    assert w.device.type == "cpu"
    assert torch.equal(w.grad, grad.cpu())
    state = {k: torch.full_like(v, 2.0, device=D) for k, v in m.state_dict().items()}
    m.load_state_dict(state)
    assert m.first.weight is w
    assert (w.device.type, w[0, 0].item()) == ("cpu", 2.0)


def test_swap_tensors() -> None:
    a, b = torch.zeros(3), torch.arange(2.0, device=D) + 1
    a.note, b.note = "a", "b"
    torch.utils.swap_tensors(a, b)
    assert (a.device.type, a.tolist(), a.note) == (D, [1.0, 2.0], "b")
    assert (b.device.type, b.tolist(), b.note) == ("cpu", [0.0] * 3, "a")
    a.add_(1)
    b.add_(1)
    torch.utils.swap_tensors(a, b)
    assert (a.device.type, a.tolist()) == ("cpu", [1.0] * 3)
    assert (b.device.type, b.tolist()) == (D, [2.0, 3.0])
    p, q = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.ones(2, device=D) * 3)
    torch.utils.swap_tensors(p, q)
    p.square().sum().backward()
    assert p.grad.tolist() == [6.0, 6.0]


@pytest.mark.parametrize("start", ["cpu", D, "meta"])
@pytest.mark.parametrize("end", ["cpu", D])
def test_state_that_is_assigned(start: str, end: str) -> None:
    source = nn.Linear(3, 2).to(end)
    m = nn.Linear(3, 2, device=start)
    m.load_state_dict(source.state_dict(), assign=True)
    assert m.weight.device.type == end
    assert isinstance(m.weight, nn.Parameter)
    assert m.weight.data_ptr() == source.weight.data_ptr()
    m(torch.ones(1, 3, device=end)).sum().backward()
    assert m.weight.grad.cpu().tolist() == [[1.0] * 3] * 2
    m = nn.Linear(3, 2, device="cpu" if start == "meta" else start)
    w = m.weight
    m.load_state_dict(source.state_dict())
    assert m.weight is w
    assert torch.equal(w.cpu(), source.weight.cpu())


def test_a_model_made_without_memory() -> None:
    m = nn.Linear(3, 2, device="meta").to_empty(device=D)
    nn.init.ones_(m.weight)
    nn.init.zeros_(m.bias)
    assert m(torch.ones(1, 3, device=D)).tolist() == [[3.0, 3.0]]


def test_what_is_not_dense_keeps_its_own_rules() -> None:
    p = torch.ones(2, device=D)
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        p.data = torch.eye(2).to_sparse()
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        p.data = torch.ones(2, device="meta")
    assert p.tolist() == [1.0, 1.0]
