# SPDX-License-Identifier: MIT
"""Draws circuits: on the left the ops as recorded, on the right the kernels they became."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hologram.observe._canvas import Canvas, color_of, fit, number, text_width
from hologram.observe._layout import (
    LANE,
    MAX_GUTTER,
    Card,
    Row,
    assign_lanes,
    card_meta,
    group_kernels,
    make_card,
    make_rows,
    place,
)
from hologram.observe._texts import bytes_text, count_text, percent_text, time_text
from hologram.observe.circuits import Circuit, share, sum_stats

WIDTH = 1200.0
MARGIN = 30.0
LEFT = 486.0  # where the rows of ops end
RIGHT = 594.0  # where the cards begin
MAX_CIRCUITS = 24


@dataclass
class Section:
    """A circuit to draw, and what ran between it and the one before."""

    circuit: Circuit
    title: str
    note: str = ""
    between: str = ""


@dataclass
class Summary:
    """The head of a drawing."""

    title: str
    subtitle: str = ""
    totals: dict[str, Any] = field(default_factory=dict)  # as sum_stats


def draw(summary: Summary, sections: Sequence[Section], after: str = "") -> str:
    """Return an SVG document; `after` tells what ran after the last circuit."""
    totals = summary.totals or sum_stats(s.circuit for s in sections)
    described = (
        f"{count_text(totals['ops_recorded'], 'recorded op')} run as "
        f"{count_text(totals['kernels_run'], 'kernel')}; {bytes_text(totals['bytes_moved'])} moved "
        f"instead of {bytes_text(totals['bytes_unfused'])}"
    )
    canvas = Canvas(WIDTH, summary.title, described)
    y = _head(canvas, summary, totals)
    drawn = sections
    if len(sections) > MAX_CIRCUITS:
        by_ops = sorted(sections, key=lambda s: -s.circuit.stats["ops_recorded"] * s.circuit.count)
        kept = {id(s) for s in by_ops[:MAX_CIRCUITS]}
        drawn = [s for s in sections if id(s) in kept]
    for section in drawn:
        y = _section(canvas, section, y)
    if len(drawn) < len(sections):
        more = f"{count_text(len(sections) - len(drawn), 'smaller circuit')} not drawn"
        canvas.text(MARGIN, y + 12, more, 12, "muted", mono=False)
        y += 30
    y = _aside(canvas, after, y)
    return canvas.svg(y + 12)


# --- The head --------------------------------------------------------------------------------


def _head(canvas: Canvas, summary: Summary, totals: dict[str, Any]) -> float:
    title = fit(summary.title, WIDTH - 2 * MARGIN, 22, mono=False, bold=True)
    canvas.text(MARGIN, 46, title, 22, mono=False, bold=True)
    subtitle = fit(summary.subtitle, WIDTH - 2 * MARGIN, 13, mono=False)
    canvas.text(MARGIN, 70, subtitle, 13, "muted", mono=False)
    saved_ops = share(totals["kernels_run"], totals["ops_recorded"])
    saved_bytes = share(totals["bytes_moved"], totals["bytes_unfused"])
    tiles = [
        (
            "ops → kernels",
            f"{totals['ops_recorded']:,} → {totals['kernels_run']:,}",
            f"{percent_text(saved_ops)} fewer kernels"
            if totals["ops_recorded"]
            else "nothing was recorded",
            1 - saved_ops,
        ),
        (
            "bytes moved",
            bytes_text(totals["bytes_moved"]),
            f"{percent_text(saved_bytes)} less than {bytes_text(totals['bytes_unfused'])} op by op",
            1 - saved_bytes,
        ),
        (
            "values at once",
            f"{totals['live_values']}",
            "in the kernel that holds most",
            None,
        ),
    ]
    warm_ns = totals.get("warm_kernel_ns", 0)
    if ns := warm_ns or totals["kernel_ns"]:
        note = f"{totals['bytes_moved'] / ns:.3g} GB/s"
        if warm_ns:
            note += f", {time_text(totals['kernel_ns'])} the first time"
        tiles.append(("time in kernels", time_text(ns), note, None))
    gap = 16.0
    w = (WIDTH - 2 * MARGIN - gap * (len(tiles) - 1)) / len(tiles)
    for i, (label, value, note, ratio) in enumerate(tiles):
        _tile(canvas, MARGIN + i * (w + gap), 90, w, label, value, note, ratio)
    return 90 + 102 + 14


def _tile(
    canvas: Canvas,
    x: float,
    y: float,
    w: float,
    label: str,
    value: str,
    note: str,
    ratio: float | None,
) -> None:
    canvas.rect(x, y, w, 102, "panel", 10)
    canvas.text(x + 16, y + 24, label, 12, "muted", mono=False)
    canvas.text(x + 16, y + 55, fit(value, w - 32, 25, False, True), 25, mono=False, bold=True)
    canvas.text(x + 16, y + 75, fit(note, w - 32, 12, False), 12, "muted", mono=False)
    if ratio is not None:
        canvas.rect(x + 16, y + 86, w - 32, 5, "track", 2.5)
        if ratio > 0:
            canvas.rect(x + 16, y + 86, max(5.0, (w - 32) * min(1.0, ratio)), 5, "k0", 2.5)


# --- A circuit -------------------------------------------------------------------------------


def _aside(canvas: Canvas, text: str, y: float) -> float:
    if not text:
        return y
    canvas.dot(MARGIN + 7, y + 14, 3, "faint")
    text = fit(text, WIDTH - 2 * MARGIN - 40, 12, mono=False)
    canvas.text(MARGIN + 20, y + 18, text, 12, "muted", mono=False)
    return y + 32


def _section(canvas: Canvas, section: Section, y: float) -> float:
    circuit = section.circuit
    y = _aside(canvas, section.between, y)
    canvas.rect(MARGIN, y, WIDTH - 2 * MARGIN, 1, "rule")
    y += 32
    used = canvas.text(MARGIN, y, section.title, 15, mono=False, bold=True)
    room = WIDTH - 2 * MARGIN - used - 14
    canvas.text(
        MARGIN + used + 14, y, fit(section.note, room, 12.5, False), 12.5, "muted", mono=False
    )
    y += 18
    groups = group_kernels(circuit)
    rows = make_rows(circuit, groups)
    lanes = assign_lanes(rows)
    cards = [make_card(group, RIGHT, WIDTH - MARGIN - RIGHT) for group in groups]
    bottom = place(rows, cards, y)
    if not cards:
        canvas.text(
            RIGHT, y + 16, "nothing had to run: these results are not read", 12.5, "muted",
            mono=False,
        )  # fmt: skip
    _graph(canvas, rows, lanes)
    by_id = {row.id: row for row in rows if row.id}
    for card in cards:
        with canvas.group("kernel"):
            _wires(canvas, card, by_id)
            _card(canvas, card)
    return bottom + 30


def _graph(canvas: Canvas, rows: Sequence[Row], lanes: int) -> None:
    pitch = min(LANE, MAX_GUTTER / max(lanes, 1))
    xs = [MARGIN + 7 + pitch * row.lane for row in rows]
    text_x = MARGIN + 7 + pitch * (lanes - 1) + 16
    for at, row in enumerate(rows):
        for source in row.sources:
            # Straight down in the source's lane, then over to the reader's.
            x, y, to_x, to_y = xs[source], rows[source].y, xs[at], row.y
            d = f"M{number(x)} {number(y)}"
            if x == to_x:
                d += f"V{number(to_y)}"
            else:
                turn = max(y, to_y - 20)
                middle = (turn + to_y) / 2
                d += (
                    f"V{number(turn)}C{number(x)} {number(middle + 3)} "
                    f"{number(to_x)} {number(middle - 3)} {number(to_x)} {number(to_y)}"
                )
            idle = row.state not in ("runs", "input")
            canvas.path(d, "faint" if idle else "muted", 1.3, "2 3" if idle else "")
    for x, row in zip(xs, rows, strict=True):
        _row(canvas, row, x, text_x)


def _row(canvas: Canvas, row: Row, x: float, text_x: float) -> None:
    baseline = row.y + 4
    idle = row.state in ("dead", "folded")
    color = "muted" if row.group is None else color_of(row.group)
    kind = row.kind
    if row.state == "input":
        canvas.dot(x, row.y, 3.4, "ground", "muted")
    with canvas.group("idle" if idle else "", row.tip):
        if idle:
            canvas.dot(x, row.y, 3.4, "ground", "faint")
        elif row.state != "input":
            if row.output is not None:
                canvas.dot(x, row.y, 6.4, "ground", color)
            canvas.dot(x, row.y, 4.0 if row.output is None else 3.4, color)
        notes = row.state if idle else "↻" if row.again else ""
        if row.count > 1:
            notes = f"{notes} ×{row.count}".strip()
        right = LEFT
        kind = fit(kind, 150, 11.5)
        kind_x = right - text_width(kind, 11.5)
        canvas.text(right, baseline, kind, 11.5, "muted", anchor="end")
        if notes:
            notes_w = text_width(notes, 11.5)
            kind_x -= notes_w + 10
            canvas.text(kind_x, baseline, notes, 11.5, color, bold=not idle)
        at = text_x
        if row.id:
            at += canvas.text(at, baseline, row.id, 11.5, "muted") + 8
        name = fit(row.name, kind_x - at - 8, 12.5, bold=True)
        at += canvas.text(at, baseline, name, 12.5, color, bold=row.state != "input") + 9
        detail = fit(row.detail, kind_x - at - 10, 12) if kind_x - at > 40 else ""
        at += canvas.text(at, baseline, detail, 12, "ink")
        if row.output is not None and row.output:
            target = f"→ {row.output}"
            if at + 8 + text_width(target, 12) < kind_x - 6:
                canvas.text(at + 8, baseline, target, 12, "ink", bold=True)


def _wires(canvas: Canvas, card: Card, rows: dict[str, Row]) -> None:
    color = color_of(card.group.index)
    main: dict[int, int] = {}  # the step that does the work of an op
    for step, instr in enumerate(card.group.kernel.instrs):
        if instr.record >= 0 and (instr.name != "convert" or instr.record not in main):
            main[instr.record] = step
    with canvas.group("wires"):
        for record, step in main.items():
            row = rows.get(f"%{record}")
            if row is None:
                continue
            x, to_x, to_y = LEFT + 10, card.x, card.step_y(step)
            bend = (to_x - x) * 0.5
            canvas.path(
                f"M{number(x)} {number(row.y)}C{number(x + bend)} {number(row.y)} "
                f"{number(to_x - bend)} {number(to_y)} {number(to_x)} {number(to_y)}",
                color,
                1.6,
            )


def _card(canvas: Canvas, card: Card) -> None:
    group, kernel = card.group, card.group.kernel
    color = color_of(group.index)
    x, y, right = card.x, card.y, card.x + card.w
    canvas.rect(x, y, card.w, card.h, "panel", 9)
    canvas.rect(x, y + 9, 3.5, card.h - 18, color, 1.7)
    badge = f"×{len(group.members)}" if len(group.members) > 1 else ""
    badge_w = text_width(badge, 12.5, bold=True) + 14 if badge else 0
    cost = [bytes_text(group.bytes)]
    if ns := group.warm_ns or group.ns:
        cost.append(time_text(ns))
        if group.bytes >= 1 << 16:
            cost.append(f"{group.bytes / ns:.3g} GB/s")
        when = "first run" if group.first else "first call" if group.warm_ns else ""
        if when:
            cost.append(f"{when} {time_text(group.ns)}" if group.warm_ns else when)
    costs = " · ".join(cost)
    name = fit(kernel.name, card.w - 40 - badge_w, 13.5, bold=True)
    used = canvas.text(x + 16, y + 23, name, 13.5, color, bold=True)
    if badge:
        canvas.rect(x + 16 + used + 8, y + 10, badge_w, 18, "track", 9)
        canvas.text(x + 16 + used + 15, y + 23, badge, 12.5, color, bold=True)
    canvas.text(right - 14, y + 41, costs, 11.5, "ink", mono=False, anchor="end")
    room = card.w - 44 - text_width(costs, 11.5, mono=False)
    canvas.text(x + 16, y + 41, fit(card_meta(group), room, 11.5, False), 11.5, "muted", mono=False)
    for label, chips, at in (
        ("in", card.reads, card.reads_y),
        ("out", card.writes, card.writes_y),
    ):
        if chips:
            canvas.text(x + 16, y + at + 14, label, 11, "muted", mono=False)
        for chip in chips:
            canvas.rect(chip.x, y + chip.y + 1, chip.w, 18, "track", 5)
            shown = fit(chip.name, chip.w - 14, 11, bold=True)
            used = canvas.text(chip.x + 7, y + chip.y + 14, shown, 11, "ink", bold=bool(chip.type))
            if chip.type:
                kind = fit(chip.type, chip.w - 14 - used - 6, 11)
                canvas.text(chip.x + 7 + used + 6, y + chip.y + 14, kind, 11, "muted")
    _steps(canvas, card)
    _lanes(canvas, card)


def _steps(canvas: Canvas, card: Card) -> None:
    kernel = card.group.kernel
    color = color_of(card.group.index)
    x = card.x
    right = card.lanes_x - 14 if card.lane_of else card.x + card.w - 14
    widest = max((len(i.out) for i in kernel.instrs), default=2)
    out_w = min(text_width("m" * widest, 12), 190.0)
    for step, instr in enumerate(kernel.instrs):
        baseline = card.step_y(step) + 4
        out = fit(instr.out, out_w, 12)
        canvas.text(x + 16 + out_w, baseline, out, 12, "ink", bold=instr.stores, anchor="end")
        at = x + 16 + out_w + 8
        at += canvas.text(at, baseline, "=", 12, "faint") + 8
        name = instr.name
        if instr.name == "convert":
            name = f"convert {instr.result}"
        notes = {"row": "per row", "one": "once"}.get(instr.rank, "")
        note_w = text_width(notes, 11, mono=False) + 12 if notes else 0
        name = fit(name, right - at, 12, bold=True)
        at += canvas.text(at, baseline, name, 12, color, bold=True) + 8
        operands = fit(", ".join(instr.operands), right - at - note_w, 12)
        canvas.text(at, baseline, operands, 12)
        if notes:
            canvas.text(right, baseline, notes, 11, "muted", mono=False, anchor="end")


def _lanes(canvas: Canvas, card: Card) -> None:
    """Draw a value as a bar from the step that writes it to the last that reads it."""
    kernel = card.group.kernel
    if not card.lane_of:
        return
    pitch = card.lane_pitch
    top, bottom = card.step_y(0) - 8, card.step_y(len(kernel.instrs) - 1) + 8
    for lane in range(max(card.lane_of.values()) + 1):
        x = card.lanes_x + (lane + 0.5) * pitch
        canvas.rect(x - 0.5, top, 1, bottom - top, "rule")
    written, last = kernel.lifetimes()
    w = min(8.0, pitch * 0.6)
    color = color_of(card.group.index)
    for temp, step in written.items():
        x = card.lanes_x + (card.lane_of[temp] + 0.5) * pitch
        begin = card.step_y(step)
        end = card.step_y(last[temp]) - (3 if last[temp] > step else -2)
        canvas.rect(x - w / 2, begin - w / 2, w, end - begin + w / 2, color, w / 2)
