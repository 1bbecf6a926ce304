# SPDX-License-Identifier: MIT
"""Writes random programs: each step is chosen from what the steps before it made.

The program runs while it is written, in eager mode, so that shapes and types are those PyTorch
gives; what it made and showed is at once the result that other runs are compared with.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import Any, TypeVar

import torch

import hologram_torch

from . import families
from .steps import DELETE, Env, Form, Log, Step, V, form, run_step

T = TypeVar("T")
# More than one even on one core: what is tested is that results do not depend on it.
MANY = max(2, len(os.sched_getaffinity(0)))
Tensor = torch.Tensor

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8]
DTYPES = [*FLOATS, *INTEGERS, torch.bool]
PALETTES = [
    *[[torch.float32]] * 6,
    *[[torch.float32, torch.float32, torch.bool, torch.int64]] * 2,
    [torch.float64],
    [torch.bfloat16],
    [torch.float16],
    [torch.float32, torch.bfloat16],
    [torch.float32, torch.float64],
    [torch.float32, torch.float16],
    [torch.int64],
    [torch.int32, torch.bool],
    [torch.uint8, torch.int8, torch.int16],
    DTYPES,
    DTYPES,
]
# Sizes a dimension may have, by how large the tensors of a program are. Blocks hold 12,288 bytes,
# tiles 1,024 elements, vectors up to 64 bytes.
DIMS = {
    "small": [1, 1, 2, 3, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64],
    "medium": [1, 3, 4, 16, 17, 127, 256, 768, 1000, 1023, 1025, 1536, 3072, 3073, 4096],
    "large": [1, 2, 3, 8, 16, 64, 129, 512, 768, 1024, 3072, 3074, 5000, 40000],
}
MOST_ELEMENTS = {"small": 2048, "medium": 20000, "large": 300000}
# Where kernels are interpreted: small programs only, of at most that many elements a tensor.
most_interpreted: int | None = None

FLOAT_NUMBERS = [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.0, -1.5, 0.1, 1e-3, 0.25, -2.0, 1e-5, 88.0]
ODD_NUMBERS = [
    float("inf"),
    -float("inf"),
    float("nan"),
    1e30,
    -3e38,
    1e-40,
    65504.0,
    1e300,
    16777217.0,
]
INTEGER_NUMBERS = [0, 1, -1, 2, 3, 7, -5, 10, 127, 255]
ODD_INTEGERS = [1000, 32768, 2**31 - 1, -(2**31), 2**40, 2**63 - 1, -(2**63)]


class Generator:
    """Writes one program. Families of steps (see families.py) ask it for tensors and numbers."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.random = rng.random
        self.steps: list[Step] = []
        self.env: Env = []
        self.log: Log = []
        self.live: list[int] = []  # tensors on the device, in the order they were made
        self.cpu: list[int] = []  # 0-d tensors on the cpu
        self.foreign: list[int] = []  # cpu aliases of device memory
        self.seeded = False
        self.overlapping: set[int] = set()  # tensors some of whose elements share memory
        r = self.random()
        self.scale = "small" if r < 0.9 or most_interpreted else "medium" if r < 0.985 else "large"
        # Several threads only where there is work for them, or to see that there is none.
        several = self.chance(0.5 if self.scale != "small" else 0.03)
        torch.set_num_threads(MANY if several else 1)
        self.most = most_interpreted or MOST_ELEMENTS[self.scale]
        self.palette = self.choice(PALETTES)
        self.kinds = self.choice(
            [["plain"], ["plain"], ["plain", "special"], ["special"], ["bits"]]
        )
        self.odd = (
            0.0 if self.chance(0.5) else 0.25
        )  # how often a number is at the edge of its type
        # Nothing but moves: then every bit must stay, also those of a NaN.
        self.moves = self.chance(0.1)
        self.threads = 0.1 if self.chance(0.02) else 0.0
        self.dims = [self.choice(DIMS[self.scale]) for _ in range(3)]
        if self.chance(0.04):
            self.dims[0] = 0
        self.shapes = [self.new_shape() for _ in range(2)]
        self.families, self.weights = self.choose_families()
        self.length = 5 + int(self.random() ** 1.5 * (28 if self.scale == "small" else 12))

    def choose_families(self) -> tuple[list[families.Family], list[float]]:
        """Draw which kinds of steps this program likes; cumulative weights."""
        boost = [self.choice(families.ALL) for _ in range(3)]
        chosen, weights, total = [], [], 0.0
        narrow = not self.moves and self.chance(0.3)  # few kinds of steps: long chains that fuse
        for family in families.ALL:
            if self.moves and not family.moves:
                continue
            weight = family.weight * (8 if family in boost else 1)
            if narrow and not (family.common or family in boost):
                continue
            total += weight
            chosen.append(family)
            weights.append(total)
        return chosen, [w / total for w in weights]

    # --- Choices ---------------------------------------------------------------------------

    def chance(self, p: float) -> bool:
        """Return True with probability p."""
        return self.random() < p

    def below(self, n: int) -> int:
        """Return an int in [0, n)."""
        return int(self.random() * n)

    def choice(self, values: Sequence[T]) -> T:
        """Return one of the values."""
        return values[int(self.random() * len(values))]

    def new_shape(self) -> tuple[int, ...]:
        """Draw a shape from the program's sizes."""
        rank = self.choice([1, 1, 2, 2, 2, 3] if self.chance(0.95) else [0, 4, 5])
        shape = tuple(1 if self.chance(0.06) else self.choice(self.dims) for _ in range(rank))
        while families.numel(shape) > self.most:
            shape = shape[1:]
        return shape

    def dtype(self) -> torch.dtype:
        """Draw an element type, mostly one of the program's."""
        return self.choice(self.palette) if self.chance(0.93) else self.choice(DTYPES)

    def number(self, dtype: torch.dtype | None = None) -> float | int | bool:
        """Draw a Python number, mostly of the kind of dtype."""
        floating = (dtype is None or dtype.is_floating_point) != self.chance(0.1)
        if dtype is torch.bool and self.chance(0.5):
            return self.chance(0.5)
        odd = self.chance(self.odd)
        if floating:
            if not odd and self.chance(0.3):
                return round(4 * self.random() - 2, 3)
            return self.choice(ODD_NUMBERS if odd else FLOAT_NUMBERS)
        return self.choice(ODD_INTEGERS if odd else INTEGER_NUMBERS)

    def tensor(self) -> V:
        """Draw a tensor, the last ones rather than the first."""
        if not self.live:
            self.new_input()
        r = self.random()
        return V(self.live[-1 - int(len(self.live) * r * r)])

    def get(self, v: int) -> Tensor:
        """Return the tensor a variable holds."""
        return self.env[v]

    def tensor_where(self, holds: Any, tries: int = 5) -> V | None:
        """Draw a tensor for which holds(tensor), or None."""
        for _ in range(tries):
            v = self.tensor()
            if holds(self.env[v]):
                return v
        return None

    def floating(self) -> V:
        """Draw a floating tensor; make one where there is none."""
        v = self.tensor_where(lambda t: t.is_floating_point())
        return v if v is not None else self.new_input(dtype=self.choice(FLOATS))

    def like(self, v: V, exact: bool = False, into: bool = False) -> V:
        """Draw a tensor that broadcasts with v (to v's shape if `into`), or has v's shape."""
        shape = self.env[v].shape
        for _ in range(5):
            other = self.tensor()
            theirs = self.env[other].shape
            if theirs == shape:
                return other
            if not exact and families.broadcasts(shape, theirs, into):
                return other
        if self.chance(0.03):
            return self.tensor()  # of any shape: PyTorch must refuse it in both modes
        wanted = tuple(shape)
        if not exact and self.chance(0.3):
            wanted = tuple(1 if self.chance(0.5) else s for s in wanted)[
                self.below(len(wanted) + 1) :
            ]
        return self.new_input(wanted, self.env[v].dtype if self.chance(0.8) else None)

    # --- Steps -----------------------------------------------------------------------------

    def emit_list(self, text: str, *arguments: Any, results: int) -> list[V]:
        """Append a step whose form gives a list, whatever its length."""
        return self.emit(text + "[0]" if results == 1 else text, *arguments, results=results)

    def emit(self, what: Form | str, *arguments: Any, results: int = 1) -> list[V]:
        """Append a step and run it. Return the variables of its results that are tensors."""
        made = form(what) if isinstance(what, str) else what
        # Also what is written to may grow.
        if (results or "out=" in made.text) and self.spread(arguments) > self.most:
            return []
        first = len(self.env)
        self.env.extend([None] * results)
        other_thread = self.threads > 0 and self.chance(self.threads)
        step = Step(made, arguments, tuple(range(first, first + results)), other_thread, self.moves)
        self.steps.append(step)
        if made.random and not self.seeded:
            torch.manual_seed(0)
            self.seeded = True
        run_step(self.env, step, self.log)
        names = [V(i) for i in range(first, first + results) if self.env[i] is not None]
        for name in names:
            t = self.env[name]
            if t.device.type == "cpu" and step.form.text.startswith("torch.tensor("):
                self.cpu.append(name)
            elif step.form.text.startswith("host_view("):
                self.foreign.append(name)
            elif (t.numel() > self.most or t.dim() > 6) and not made.text.startswith("make("):
                self.emit(DELETE, name, results=0)
            else:
                self.live.append(name)
                if self.overlapping and any(a in self.overlapping for a in step.variables):
                    self.overlapping.add(name)
        return [name for name in names if self.env[name] is not None]

    def spread(self, arguments: tuple[Any, ...]) -> int:
        """Return how many elements the tensors among arguments have when broadcast, or folded."""
        lists = [a for a in arguments if type(a) is list]
        if lists:  # whose tensors belong together one by one, as those of _foreach_ ops
            others = tuple(a for a in arguments if type(a) is V)
            groups = zip(*lists, strict=False)
            return max((self.spread((*group, *others)) for group in groups), default=0)
        shapes = {self.env[a].shape for a in arguments if type(a) is V}
        # A fold over the empty dimensions leaves the others, whose sizes nothing else bounds.
        empty = [families.numel([n for n in s if n != 0]) for s in shapes if 0 in s]
        if len(shapes) < 2:
            return max(empty, default=0)
        sizes: list[int] = []
        for shape in shapes:
            sizes += [1] * (len(shape) - len(sizes))
            for d, size in enumerate(reversed(shape)):
                sizes[d] = max(sizes[d], size)
        return max([families.numel(sizes), *empty])

    def new_input(
        self, shape: tuple[int, ...] | None = None, dtype: torch.dtype | None = None
    ) -> V:
        """Add an input."""
        if shape is None:
            shape = self.choice(self.shapes) if self.chance(0.8) else self.new_shape()
        kind, dtype = self.choice(self.kinds), dtype or self.dtype()
        return self.emit(
            "make({0}, {1}, {2}, {3}).to(device, copy=True)", kind, shape, dtype, self.below(6)
        )[0]

    def delete(self, at: int) -> None:
        """Drop the reference live[at]."""
        self.emit(DELETE, V(self.live.pop(at)), results=0)

    def write(self) -> list[Step]:
        """Write the program."""
        for _ in range(1 + self.below(3)):
            self.new_input()
        while len(self.steps) < self.length:
            r = self.random()
            at = 0
            while self.weights[at] < r:
                at += 1
            self.families[at].add(self)
            if len(self.live) > 12:
                self.delete(self.below(len(self.live) - 2))
        return self.steps


def generate(seed: int) -> tuple[list[Step], Env, Log]:
    """Return the program of a seed, and what its variables and looks are in eager mode."""
    with hologram_torch.execution("eager"):
        generator = Generator(seed)
        generator.write()
    return generator.steps, generator.env, generator.log
