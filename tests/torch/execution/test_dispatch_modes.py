# SPDX-License-Identifier: MIT
"""What a user's dispatch mode sees of the device: the operators that it sees on cpu."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from execution.dispatch_cases import CASES, run
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

aten = torch.ops.aten

# The device's attention is one operator, as cpu's is, under the name that PyTorch has for devices.
ATTENTION = {
    "_scaled_dot_product_fused_attention_overrideable": (
        "_scaled_dot_product_flash_attention_for_cpu"
    ),
    "_scaled_dot_product_fused_attention_overrideable_backward": (
        "_scaled_dot_product_flash_attention_for_cpu_backward"
    ),
}

# Cases in which cpu has another way, and why the device has not.
CELLS = "a step is an operator of its own, as on other devices than cpu; cpu takes all inputs first"
JOINED = "attention gives its heads as the queries lie, so that a copy joins them"
OTHERWISE = {
    "Dropout": "native_dropout keeps its mask, as CUDA's does; cpu composes it",
    "attention, dropout": "its dropout is native_dropout",
    "attention, learned mask": "without gradients it is one operator; cpu asks requires_grad alone",
    "TransformerEncoderLayer": JOINED,
    "TransformerEncoderLayer, eval": JOINED,
    "TransformerDecoderLayer": JOINED,
    **dict.fromkeys(
        ("LSTM", "GRU", "RNN", "RNN, relu", "packed RNN", "packed GRU", "LSTMCell"), CELLS
    ),
}


class Log(TorchDispatchMode):
    """Writes down the names of operators."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def seen_by_a_mode(name: str, device: str, backward: bool) -> list[str]:
    run(name, device, backward, log := Log())
    return log.seen


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("name", [name for name in CASES if name not in OTHERWISE])
def test_operators_are_those_of_cpu(name: str, backward: bool) -> None:
    ours = seen_by_a_mode(name, "hologram", backward)
    assert [ATTENTION.get(op, op) for op in ours] == seen_by_a_mode(name, "cpu", backward)


PRODUCTS = ("addmm", "mm", "bmm", "mv", "convolution", "convolution_backward")


@pytest.mark.parametrize("name", [name for name, why in OTHERWISE.items() if why != CELLS])
def test_products_are_those_of_cpu(name: str) -> None:
    ours, theirs = (
        [op for op in seen_by_a_mode(name, device, True) if op in PRODUCTS]
        for device in ("hologram", "cpu")
    )
    assert ours == theirs


def test_what_cpu_has_otherwise() -> None:
    assert Counter(seen_by_a_mode("Dropout", "hologram", True))["native_dropout"] == 1
    for name in ("LSTM", "GRU"):
        seen = Counter(seen_by_a_mode(name, "hologram", False))
        assert seen[f"_thnn_fused_{name.lower()}_cell"] == 5  # one for each step
        assert seen["mm"] == 10 and not seen["linear"]


def test_a_mode_sees_a_backward_pass_of_what_ran_without_it() -> None:
    seen = []
    for device in ("cpu", "hologram"):
        torch.manual_seed(0)
        model, x = nn.Linear(4, 5).to(device), torch.randn(3, 4).to(device).requires_grad_()
        loss = model(x).square().sum()
        with Log() as log:
            loss.backward()
        seen.append([op for op in log.seen if op in ("mm", "sum", "linear_backward")])
    assert seen[1] == seen[0]


# --- Selective checkpoints -----------------------------------------------------------------


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q = x.view(2, 3, 2, 4).transpose(1, 2)
        x = x + F.scaled_dot_product_attention(q, q, q).transpose(1, 2).reshape(x.shape)
        return self.down(F.gelu(self.up(x)))


@pytest.mark.parametrize("saved", [(), (aten.mm.default,), (aten.mm.default, aten.addmm.default)])
def test_policies_of_selective_checkpoints_name_products(saved: tuple) -> None:
    """What a policy asks for is not computed a second time."""
    computed, grads = [], []
    for device in ("cpu", "hologram"):
        torch.manual_seed(0)
        model, x = Layers().to(device), torch.randn(2, 3, 8).to(device).requires_grad_()

        def policy(context, op, *args, **kwargs):
            keeps = op in saved
            return CheckpointPolicy.MUST_SAVE if keeps else CheckpointPolicy.PREFER_RECOMPUTE

        contexts = partial(create_selective_checkpoint_contexts, policy)
        with Log() as log:
            y = checkpoint(model, x, use_reentrant=False, context_fn=contexts)
            y.square().sum().backward()
        seen = Counter(ATTENTION.get(op, op) for op in log.seen)
        computed.append({op: seen[op] for op in ("mm", "addmm", "gelu", *ATTENTION.values())})
        grads.append([x.grad.cpu(), *(p.grad.cpu() for p in model.parameters())])
    assert computed[1] == computed[0]
    assert computed[0]["addmm"] == (1 if aten.addmm.default in saved else 2)
    assert computed[0]["gelu"] == 2
    torch.testing.assert_close(grads[1], grads[0], rtol=1e-5, atol=1e-5)


# --- Subclasses -----------------------------------------------------------------------------------


class Logged(Tensor):
    """A subclass that writes down what it is dispatched."""

    seen: list[str]

    @staticmethod
    def __new__(cls, inner: Tensor) -> Logged:
        return Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, device=inner.device, strides=inner.stride()
        )

    def __init__(self, inner: Tensor) -> None:
        self.inner = inner

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(func.overloadpacket.__name__)

        def unwrap(t):
            return t.inner if isinstance(t, Logged) else t

        def wrap(t):
            return Logged(t) if isinstance(t, Tensor) else t

        return tree_map(wrap, func(*tree_map(unwrap, args), **tree_map(unwrap, kwargs or {})))


@pytest.mark.parametrize("wrapped", ["input", "weight"])
def test_a_subclass_sees_the_operators_that_it_sees_on_cpu(wrapped: str) -> None:
    seen = []
    for device in ("cpu", "hologram"):
        torch.manual_seed(0)
        x, weight = torch.randn(2, 3, 4).to(device), torch.randn(5, 4).to(device)
        x, weight = (Logged(x), weight) if wrapped == "input" else (x, Logged(weight))
        x.requires_grad_(), weight.requires_grad_()
        Logged.seen = []
        y = F.linear(x, weight, torch.ones(5, device=device))
        y.sum().backward()
        seen.append(Logged.seen)
    assert "addmm" in seen[0]
    assert seen[1] == seen[0]


def test_traces_see_operators_of_the_device() -> None:
    weight = torch.randn(5, 4).to("hologram")
    graph = make_fx(lambda x: F.linear(x, weight))(torch.randn(3, 4).to("hologram"))
    assert [n.target for n in graph.graph.nodes if n.op == "call_function"] == [aten.linear.default]
