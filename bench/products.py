# SPDX-License-Identifier: MIT
"""The products and convolutions of a program alone: the least that its other operators may cost.

A program is watched once on cpu. Each of its matrix products and convolutions is then made again on
operands of its own, with the same sizes and strides, and called on cpu and on the device; the
faster of the two is what it counts as.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from bench.core import Peer, Side, Work, make_side
from bench.measure import Timing, take_turns

PRODUCTS = "its products alone"
_TIMING = Timing(min_time=0.02, max_pairs=20)
_aten = torch.ops.aten
_PRODUCTS = (
    _aten.mm.default,
    _aten.bmm.default,
    _aten.convolution.default,
    _aten.convolution_backward.default,
)
# Their first operand is what the product is added to: that is left to the other operators.
_SUMS = {_aten.addmm.default: _aten.mm.default, _aten.baddbmm.default: _aten.bmm.default}


@dataclass(frozen=True)
class _Like:
    """What an operand was."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    @staticmethod
    def of(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return tuple(value) if isinstance(value, list) else value
        return _Like(tuple(value.shape), value.stride(), value.dtype)

    def make(self, side: Side) -> Tensor:
        """Return an operand of that kind with other numbers."""
        on_cpu = torch.empty_strided(self.size, self.stride, dtype=self.dtype)
        on_cpu.copy_(torch.randn(self.size))
        out = torch.empty_strided(self.size, self.stride, dtype=self.dtype, device=side.device)
        return out.copy_(on_cpu)


@dataclass(frozen=True)
class Product:
    """A call of a product, without its operands' numbers."""

    operator: Any
    arguments: tuple[Any, ...]

    def call(self, side: Side) -> Callable[[], Any]:
        """Return what computes it on operands of its own, without gradients."""
        arguments = tree_map(lambda a: a.make(side) if isinstance(a, _Like) else a, self.arguments)
        return lambda: self.operator(*arguments)


class _Watch(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[Product] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        product, operands = (_SUMS[func], args[1:]) if func in _SUMS else (func, args)
        if product in _PRODUCTS:
            self.found[Product(product, tuple(_Like.of(a) for a in operands))] += 1
        return func(*args, **(kwargs or {}))


@dataclass
class Products:
    """The products of a program, and how often it computes each."""

    counts: Counter[Product]

    @staticmethod
    def of(program: Callable[[], Any]) -> Products:
        """Watch a program that runs on cpu, all of whose products are operators of their own."""
        whole = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            with (
                sdpa_kernel(SDPBackend.MATH),
                torch.backends.mkldnn.flags(enabled=False),
                _Watch() as watch,
            ):
                program()
        finally:
            torch.backends.mha.set_fastpath_enabled(whole)
        return Products(watch.found)

    def work(self, cpu: Side, device: Side, ops: int = 1) -> Work:
        """Return all of them as work that counts as `ops`, each by the faster side.

        The device has to be waited for after each run.
        """
        calls: list[Callable[[], Any]] = []
        for product, count in self.counts.items():
            both = [product.call(side) for side in (cpu, device)]
            works = [(Work(lambda call=call: [call()]), s) for call, s in zip(both, (cpu, device))]
            times = [min(turns) for turns in take_turns(works, _TIMING)]
            calls += count * [both[times.index(min(times))]]
        return Work(lambda: [call() for call in calls], ops)


def limit(build: Callable[[Side], Work], device: Side) -> Peer:
    """Return the products of a work as a limit: what it would take without any other operator."""

    def work() -> tuple[Work, Side]:
        cpu = make_side("cpu")
        on_cpu = build(cpu)
        return Products.of(on_cpu.run).work(cpu, device, on_cpu.ops), device

    return Peer(PRODUCTS, work, is_limit=True)
