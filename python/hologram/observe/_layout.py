# SPDX-License-Identifier: MIT
"""Where everything of a circuit's drawing goes: rows of ops with lanes for values, kernel cards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hologram.observe._canvas import text_width
from hologram.observe._texts import count_text, type_text
from hologram.observe.circuits import Circuit, Kernel, Op

ROW = 23.0  # of an op
STEP = 20.0  # of an instruction
CHIP = 22.0  # a line of buffers
GAP = 18.0  # between cards
LANE = 13.0
MAX_GUTTER = 156.0
CHIP_LINES = 3
MAX_CHIP = 250.0


@dataclass
class Group:
    """Kernels that do the same to different buffers, drawn once."""

    index: int
    kernel: Kernel  # the first
    members: list[Kernel]
    launches: int = 0
    ns: int = 0
    warm_ns: int = 0  # of a later call; 0: not known
    first: bool = False  # `ns` is the time of a first run

    @property
    def bytes(self) -> int:
        return sum(k.bytes for k in self.members)


@dataclass
class Row:
    """A line on the left: an op, or a buffer that was there before."""

    id: str
    name: str
    detail: str = ""
    kind: str = ""
    count: int = 1
    group: int | None = None
    state: str = "runs"  # of ops; 'input' for buffers
    output: str | None = None
    tip: str = ""
    sources: list[int] = field(default_factory=list)  # rows
    again: bool = False  # reads its own earlier result
    lane: int = 0
    y: float = 0


@dataclass
class Chip:
    """A buffer, placed in a card; a count of those left out has no type."""

    name: str
    type: str
    x: float
    y: float
    w: float


@dataclass
class Card:
    """A kernel on the right."""

    group: Group
    x: float
    w: float
    y: float = 0
    h: float = 0
    reads: list[Chip] = field(default_factory=list)
    writes: list[Chip] = field(default_factory=list)
    reads_y: float = 0
    steps_y: float = 0
    writes_y: float = 0
    lanes_x: float = 0
    lane_pitch: float = 0
    lane_of: dict[int, int] = field(default_factory=dict)  # of its values

    def step_y(self, step: int) -> float:
        """Return the middle of an instruction's line."""
        return self.y + self.steps_y + (step + 0.5) * STEP


def group_kernels(circuit: Circuit) -> list[Group]:
    """Put kernels with equal programs together, in the order in which they first run."""
    groups: dict[str, Group] = {}
    for kernel in circuit.after:
        group = groups.get(kernel.program)
        if group is None:
            group = groups[kernel.program] = Group(len(groups), kernel, [])
        group.members.append(kernel)
    of_kernel = {k.index: group for group in groups.values() for k in group.members}
    for launch in circuit.launches:
        group = of_kernel[launch.kernels[0]]
        group.launches += 1
        group.ns += launch.ns
        group.warm_ns += launch.warm_ns
        group.first = group.first or launch.first
    return list(groups.values())


def _op_row(op: Op, count: int) -> Row:
    operands = ", ".join(o.text for o in op.operands)
    tip = str(op) + (f"\nrecorded by {op.label}" if op.label else "")
    return Row(
        f"%{op.index}", op.name, operands, type_text(op.out_dtype, op.seen_shape), count,
        state=op.state, output=op.output, tip=tip,
    )  # fmt: skip


class _Rows:
    """Makes the rows: an op of a group stands for those of all its kernels."""

    def __init__(self, circuit: Circuit, groups: Sequence[Group]) -> None:
        self.circuit = circuit
        self.rows: list[Row] = []
        self.row_of: dict[int, int] = {}  # by op
        self.inputs: dict[int, int] = {}  # by slot
        self.stands_for: dict[int, tuple[int, int]] = {}  # op: (op drawn, group)
        self.counts: dict[int, int] = {}
        for group in groups:
            leaders = group.kernel.records
            for kernel in group.members:
                for leader, op in zip(leaders, kernel.records, strict=False):
                    self.stands_for[op] = (leader, group.index)
                    self.counts[leader] = self.counts.get(leader, 0) + 1

    def make(self) -> list[Row]:
        previous: tuple[Row, int] | None = None  # the last idle row, and after which op
        for op in self.circuit.before:
            drawn, group = self.stands_for.get(op.index, (op.index, None))
            if group is None and previous is not None:
                row, after = previous
                if after == op.index - 1 and (row.name, row.kind, row.state) == (
                    op.name, type_text(op.out_dtype, op.seen_shape), op.state,
                ):  # fmt: skip
                    row.count += 1
                    self.row_of[op.index] = self.rows.index(row)
                    previous = row, op.index
                    continue
            if drawn != op.index:
                self._follow(op, drawn)
                continue
            row = _op_row(op, self.counts.get(op.index, 1))
            row.group = group
            row.sources = self._sources(op)
            self.row_of[op.index] = len(self.rows)
            self.rows.append(row)
            previous = (row, op.index) if group is None else None
        return self.rows

    def _sources(self, op: Op) -> list[int]:
        sources: list[int] = []
        for operand in op.operands:
            if operand.slot < 0:
                continue
            found = [self.row_of[p] for p in operand.producers if p in self.row_of]
            if operand.external:
                found.append(self._input(operand.slot, operand.dtype, self.counts.get(op.index, 1)))
            sources += [s for s in found if s not in sources]
        return sources

    def _follow(self, op: Op, drawn: int) -> None:
        # An op that another stands for may read what that one makes in an earlier round.
        if drawn not in self.row_of:
            return
        at = self.row_of[drawn]
        self.row_of[op.index] = at
        for operand in op.operands:
            for producer in operand.producers:
                source = self.row_of.get(producer)
                if source is not None and source >= at:
                    self.rows[at].again |= self.rows[source].group == self.rows[at].group

    def _input(self, slot: int, dtype: str, count: int) -> int:
        if slot not in self.inputs:
            self.inputs[slot] = len(self.rows)
            name = self.circuit.name_of(slot)
            shape = self.circuit.input_shape(slot)
            kind = type_text(dtype, shape) if shape is not None else ""
            tip = f"{name}: memory from before the circuit"
            self.rows.append(Row("", name, "", kind, count, state="input", tip=tip))
        return self.inputs[slot]


def make_rows(circuit: Circuit, groups: Sequence[Group]) -> list[Row]:
    """Return the rows in order, inputs just before the op that first reads them."""
    return _Rows(circuit, groups).make()


def assign_lanes(rows: Sequence[Row]) -> int:
    """Give each row's value a lane from there to its last reader; return how many lanes."""
    last = list(range(len(rows)))
    for at, row in enumerate(rows):
        for source in row.sources:
            last[source] = max(last[source], at)
    taken: list[int | None] = []  # by lane, the row whose value is in it
    for at, row in enumerate(rows):
        ending = [s for s in row.sources if last[s] == at]
        for source in ending:
            taken[rows[source].lane] = None
        # The first value that ends here goes on as this one: chains are straight lines.
        if ending:
            row.lane = rows[ending[0]].lane
        else:
            row.lane = next((i for i, t in enumerate(taken) if t is None), len(taken))
        if row.lane == len(taken):
            taken.append(None)
        if last[at] > at:
            taken[row.lane] = at
    return len(taken)


def assign_value_lanes(kernel: Kernel) -> dict[int, int]:
    """Give each value of a kernel a lane in which no other lives at the same time."""
    written, last = kernel.lifetimes()
    ends: list[int] = []  # by lane, the last step that reads what is in it
    lane_of = {}
    for temp, step in written.items():
        lane = next((i for i, end in enumerate(ends) if end <= step), len(ends))
        ends[lane : lane + 1] = [last[temp]]
        lane_of[temp] = lane
    return lane_of


def _chips(
    ports: Sequence[tuple[str, str]], x: float, right: float, y: float
) -> tuple[list[Chip], float]:
    """Place buffers in lines from x to right; return them and the height used."""
    chips: list[Chip] = []
    at_x, line = x, 0
    for done, (name, kind) in enumerate(ports):
        w = min(text_width(name, 11) + text_width(f" {kind}", 11) + 14, MAX_CHIP)
        rest = f"{len(ports) - done} more"
        room = right - (text_width(f"{len(ports)} more", 11) + 20 if line == CHIP_LINES - 1 else 0)
        if at_x > x and at_x + w > (room if done + 1 < len(ports) else right):
            if line == CHIP_LINES - 1:
                chips.append(Chip(rest, "", at_x, y + line * CHIP, text_width(rest, 11) + 14))
                break
            at_x, line = x, line + 1
        chips.append(Chip(name, kind, at_x, y + line * CHIP, w))
        at_x += w + 6
    return chips, (line + 1) * CHIP if ports else 0


def make_card(group: Group, x: float, w: float) -> Card:
    """Lay out a card whose top is at 0."""
    kernel = group.kernel
    card = Card(group, x, w)
    inner, right = x + 48, x + w - 14
    at = 50.0
    loads = [(p.name, type_text(p.dtype, p.shape)) for p in kernel.ports if p.loaded]
    stores = [(p.name, type_text(p.dtype, p.shape)) for p in kernel.ports if p.stored]
    card.reads_y = at
    card.reads, used = _chips(loads, inner, right, at)
    at += used + 4
    card.lane_of = assign_value_lanes(kernel)
    lanes = max(card.lane_of.values(), default=-1) + 1
    card.lane_pitch = min(17.0, 170.0 / lanes) if lanes else 0
    card.lanes_x = right - lanes * card.lane_pitch
    card.steps_y = at
    at += len(kernel.instrs) * STEP + 6
    card.writes_y = at
    card.writes, used = _chips(stores, inner, right, at)
    card.h = at + used + 10
    return card


def card_meta(group: Group) -> str:
    """Return what a card says below its name."""
    kernel = group.kernel
    parts = ["[" + "×".join(str(n) for n in kernel.shape) + "]"] if kernel.shape else ["call"]
    if kernel.whole_rows:
        parts.append("whole rows")
    parts.append(f"{count_text(kernel.ops, 'op')}")
    if len(group.members) > 1:
        parts.append(count_text(len(group.members), "kernel"))
    return " · ".join(parts)


def spread(wanted: Sequence[float], step: float, top: float) -> list[float]:
    """Place points in order, at least `step` apart and not above `top`, near where they want to be.

    Least squares: neighbours that would come too near share their displacement.
    """
    blocks: list[tuple[float, int]] = []  # mean of (wanted - i * step), points
    for i, y in enumerate(wanted):
        mean, count = y - i * step, 1
        while blocks and blocks[-1][0] > mean:
            before, n = blocks.pop()
            mean, count = (before * n + mean * count) / (n + count), n + count
        blocks.append((mean, count))
    placed: list[float] = []
    for mean, count in blocks:
        for _ in range(count):
            i = len(placed)
            placed.append(max(mean + i * step, top + i * step))
    return placed


def place(rows: Sequence[Row], cards: Sequence[Card], top: float) -> float:
    """Set where cards and rows are, rows beside the instructions they became; return the bottom."""
    at = top
    target: dict[str, float] = {}
    for card in cards:
        card.y = at
        at += card.h + GAP
        for step, instr in enumerate(card.group.kernel.instrs):
            if instr.record >= 0:
                target[f"%{instr.record}"] = card.step_y(step)
    bottom = at - GAP if cards else top
    # A row that became nothing stays above the next one that did, or below all of them.
    wanted: list[float] = []
    for i in range(len(rows)):
        ahead = next((k for k in range(i, len(rows)) if rows[k].id in target), None)
        if ahead is not None:
            wanted.append(target[rows[ahead].id] - (ahead - i) * ROW)
        else:
            wanted.append(wanted[-1] + ROW if wanted else top + ROW / 2)
    for row, y in zip(rows, spread(wanted, ROW, top + ROW / 2), strict=True):
        row.y = y
    return max(bottom, rows[-1].y + ROW / 2 if rows else top)
