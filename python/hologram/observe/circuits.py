# SPDX-License-Identifier: MIT
"""Circuits as the native side traced them, made into objects for tables and drawings."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from hologram.observe._texts import bytes_text, count_text, shape_text, short_name, type_text

__all__ = [
    "Birth", "BufferNames", "Circuit", "Instr", "Kernel", "Launch", "Named", "Op", "Operand",
    "Port", "Shape", "births_of", "merge_equal", "read_trace", "share", "sum_stats",
]  # fmt: skip


class Named(NamedTuple):
    """A buffer's name, and the shape of the tensor that has it."""

    name: str
    shape: list[int]


class Birth(NamedTuple):
    """When an operator made a buffer, and what to call it where no tensor has a name for it."""

    ns: int
    named: Named


class BufferNames:
    """Names of buffers by the id that traces give them, which is used again after a buffer's end.

    early: of buffers that are there from before a trace to its end; late: of those that are there
    at its end; births: of all that were made in between, in order.
    """

    def __init__(
        self,
        early: Mapping[int, Named],
        late: Mapping[int, Named],
        births: Mapping[int, Sequence[Birth]],
    ) -> None:
        self.early, self.late, self.births = early, late, births

    def _name(self, buffer: int, ns: int, fresh: bool) -> Named | None:
        births = self.births.get(buffer, ())
        made = [birth.named for birth in births if birth.ns <= ns]
        if not made and buffer in self.early:
            return self.early[buffer]
        if buffer in self.late and len(made) == len(births):
            return self.late[buffer]
        # What a circuit makes itself is called by its slot.
        return made[-1] if made and made[-1].name and not fresh else None

    def of_slots(self, buffers: Sequence[int], states: Sequence[int], ns: int) -> dict[int, Named]:
        """Name the slots of a circuit that was sealed at `ns`; no two slots get one name."""
        named: dict[int, Named] = {}
        taken: dict[str, int] = {}
        for slot, buffer in enumerate(buffers):
            found = self._name(buffer, ns, bool(states[slot] & _FRESH))
            if found is None or states[slot] & (_LIVE | _FRESH) == _FRESH:  # none outlives it
                continue
            count = taken[found.name] = taken.get(found.name, 0) + 1
            name = found.name if count == 1 else f"{found.name}#{count}"
            named[slot] = Named(name, found.shape)
        return named


_ITEM_BYTES = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "float16": 2,
    "bfloat16": 2, "float32": 4, "float64": 8, "complex64": 8, "complex128": 16,
}  # fmt: skip
_LIVE, _FRESH = 1, 2  # circuit::SlotState


@dataclass
class Operand:
    """What an op reads: a number, or a buffer and the ops that wrote what is read of it."""

    text: str
    slot: int = -1  # -1: a number
    dtype: str = ""
    producers: list[int] = field(default_factory=list)
    external: bool = False  # some of it was there before the circuit


@dataclass
class Op:
    """One recorded op."""

    index: int
    name: str
    compute: str
    shape: list[int]  # as recorded: dimensions that can be walked as one are one
    out_slot: int
    out_dtype: str
    operands: list[Operand]
    kernel: int | None = None  # which runs it
    output: str | None = None  # the buffer where its result stays visible
    state: str = "runs"  # 'runs', 'dead' (no one reads its result) or 'folded' (needs no work)
    label: str = ""  # the operator that recorded it, where known
    tensor_shape: list[int] | None = None  # of that operator's result

    @property
    def seen_shape(self) -> list[int]:
        """The shape of the tensor where it is known, else the recorded one."""
        return self.shape if self.tensor_shape is None else self.tensor_shape

    def __str__(self) -> str:
        inputs = ", ".join(o.text for o in self.operands)
        note = "" if self.state == "runs" else f"  ({self.state})"
        kind = type_text(self.out_dtype, self.seen_shape)
        result = f" -> {self.output}" if self.output else ""
        return f"%{self.index} = {self.name}({inputs})  {kind}{result}{note}"


@dataclass
class Instr:
    """One step of a kernel."""

    name: str
    operands: list[str]
    out: str
    record: int
    compute: str
    result: str
    rank: str
    reads: list[int]  # temps
    writes: int | None  # a temp
    stores: bool

    def __str__(self) -> str:
        return f"{self.out} = {self.name}({', '.join(self.operands)})"


@dataclass
class Port:
    """A buffer that a kernel reads or writes."""

    slot: int
    name: str
    dtype: str
    shape: list[int]
    loaded: bool
    stored: bool

    def __str__(self) -> str:
        return f"{self.name} {type_text(self.dtype, self.shape)}"


@dataclass
class Kernel:
    """One kernel of a plan."""

    index: int
    name: str
    launch: int
    stage: int
    shape: list[int]
    whole_rows: bool
    live_values: int  # intermediate values alive at once, at most
    bytes: int
    instrs: list[Instr]
    ports: list[Port]
    program: str  # equal for kernels that do the same to other buffers

    @property
    def records(self) -> list[int]:
        """The ops that it runs, in the order of its steps."""
        return list(dict.fromkeys(i.record for i in self.instrs if i.record >= 0))

    def lifetimes(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return by value the step that writes it, and the last that reads it."""
        written: dict[int, int] = {}
        last: dict[int, int] = {}
        for step, instr in enumerate(self.instrs):
            last.update(dict.fromkeys(instr.reads, step))
            if instr.writes is not None:
                written[instr.writes] = last[instr.writes] = step
        return written, last

    @property
    def ops(self) -> int:
        """How many recorded ops went into it."""
        return len(self.records)

    def __str__(self) -> str:
        head = f"{self.name} {shape_text(self.shape)}" if self.shape else self.name  # a call
        head += f", {count_text(self.ops, 'op')}"
        head += f", {count_text(self.live_values, 'value')} at once" if self.live_values else ""
        return "\n".join([head, *(f"  {instr}" for instr in self.instrs)])


@dataclass
class Launch:
    """One launch of a circuit: a kernel, or kernels with equal programs."""

    name: str
    kernels: list[int]
    bytes: int
    ops: int
    begin_ns: int = 0
    end_ns: int = 0
    first: bool = False
    warm_ns: int = 0  # how long it took in a later call; 0: not known

    @property
    def ns(self) -> int:
        """How long it took."""
        return self.end_ns - self.begin_ns


class Shape:
    """What circuits with equal words have in common; parsed when first asked for."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = data
        self.states: list[int] = list(data["slot_states"])

    @cached_property
    def tape(self) -> list[dict[str, Any]]:
        """The recorded ops."""
        return json.loads(self.data["ops_json"])

    @cached_property
    def plan(self) -> dict[str, Any]:
        """The plan."""
        return json.loads(self.data["plan_json"])

    @cached_property
    def ops_by_launch(self) -> dict[int, int]:
        """How many recorded ops each launch runs."""
        records: dict[int, set[int]] = {}
        for kernel in self.plan["kernels"]:
            into = records.setdefault(kernel["launch"], set())
            into.update(i["record"] for i in kernel["instrs"] if i["record"] >= 0)
        return {launch: len(found) for launch, found in records.items()}


def _extent(operand: Mapping[str, Any], shape: Sequence[int]) -> tuple[int, int]:
    """Return the bytes from first to last that an operand reaches."""
    if "bytes" in operand:  # of a call
        return operand["offset"], operand["offset"] + operand["bytes"]
    size = _ITEM_BYTES.get(operand["dtype"], 1)
    low = high = 0
    for n, stride in zip(shape, operand["strides"], strict=False):
        reach = (n - 1) * stride
        low, high = low + min(0, reach), high + max(0, reach)
    begin = operand["offset"]
    return begin + low * size, begin + (high + 1) * size


def _reads(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what a recorded op reads: of a call the operands that it loads."""
    operands = record["operands"]
    return [o for o in operands if o["loaded"]] if "call" in record else operands[1:]


def _writes(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what a recorded op writes."""
    operands = record["operands"]
    return [o for o in operands if o["stored"]] if "call" in record else operands[:1]


_NOTHING: dict[str, Any] = {"slot": 0, "offset": 0, "dtype": "bytes", "strides": [1], "bytes": 0}


class Circuit:
    """A circuit that ran: ``before``, the ops recorded; ``after``, the kernels; ``stats``."""

    def __init__(
        self,
        shape: Shape,
        data: Mapping[str, Any],
        names: BufferNames | None = None,
    ) -> None:
        self.shape = shape
        self.cause: str = data.get("cause", "")
        self.plan_hit: bool = data.get("plan_hit", False)
        self.failed: bool = data.get("failed", False)
        self.epoch: int = data.get("circuit", 0)  # ascending in the order of recording
        self.thread: int = data.get("thread", 0)
        self.sealed_ns: int = data.get("sealed_ns", 0)
        self.begin_ns: int = data.get("begin_ns", 0)
        self.end_ns: int = data.get("end_ns", 0)
        self.count = 1  # how many equal ones it stands for
        self.numbers: list[str] = list(data.get("numbers", ()))
        self.first_op = 0  # among all ops recorded while it was traced
        self.labels: Mapping[int, tuple[str, list[int] | None]] = {}
        self._times = data.get("times", ())
        self._names: dict[int, Named] = {}
        if names is not None:
            self._names = names.of_slots(data["buffers"], self.shape.states, self.sealed_ns)

    # --- What it was and became --------------------------------------------------------------

    def name_of(self, slot: int) -> str:
        """Return how a buffer is called: as the caller calls it, else by its slot."""
        return short_name(self._names[slot].name) if slot in self._names else f"b{slot}"

    def _seen_shape(self, slot: int, walked: list[int]) -> list[int]:
        """Return the shape of the tensor in a buffer, if a walk of this shape is over all of it."""
        known = [self._names[slot].shape] if slot in self._names else []
        for _, _, op in reversed(self._writes.get(slot, ())):
            shape = self.labels.get(self.first_op + op, ("", None))[1]
            known += [shape] if shape is not None else []
        return next((shape for shape in known if math.prod(shape) == math.prod(walked)), walked)

    def input_shape(self, slot: int) -> list[int] | None:
        """Return the shape in which a buffer is first read by a kernel, where one reads it."""
        for kernel in self.after:
            for port in kernel.ports:
                if port.slot == slot and port.loaded:
                    return port.shape
        return None

    @cached_property
    def before(self) -> list[Op]:
        """The recorded ops, in order."""
        ops = [self._op(index, record) for index, record in enumerate(self.shape.tape)]
        for kernel in self.after:
            for instr in kernel.instrs:
                if instr.record < 0:
                    continue
                op = ops[instr.record]
                op.kernel = kernel.index
                if instr.stores and self.shape.states[op.out_slot] & _LIVE:
                    op.output = self.name_of(op.out_slot)
        wanted = {
            p for op in ops if op.kernel is not None for o in op.operands for p in o.producers
        }
        for op in reversed(ops):
            if op.kernel is not None:
                continue
            op.state = "folded" if op.index in wanted else "dead"
            if op.state == "folded":
                wanted.update(p for o in op.operands for p in o.producers)
        return ops

    def _op(self, index: int, record: Mapping[str, Any]) -> Op:
        writes = self._writes
        operands = []
        for operand in _reads(record):
            if "number" in operand:
                at = operand["number"]
                text = self.numbers[at] if at < len(self.numbers) else f"#{at}"
                operands.append(Operand(text))
                continue
            slot = operand["slot"]
            begin, end = _extent(operand, record["shape"])
            producers = []
            external = True
            for w_begin, w_end, writer in reversed(writes.get(slot, ())):
                if writer >= index or w_begin >= end or begin >= w_end:
                    continue
                producers.append(writer)
                if w_begin <= begin and end <= w_end:
                    external = False
                    break
            external = external and not (producers and self.shape.states[slot] & _FRESH)
            text = self.name_of(slot) if not producers else f"%{producers[0]}"
            operands.append(Operand(text, slot, operand["dtype"], producers, external))
        out = next(iter(_writes(record)), _NOTHING)
        label, tensor_shape = self.labels.get(self.first_op + index, ("", None))
        dtype, walked = out["dtype"], list(record["shape"])
        if "result" in record:  # of a call: a matrix
            dtype, walked = record["result"]["dtype"], record["result"]["shape"]
        elif "call" in record:
            walked = [out["bytes"]]
        if out["strides"][-1:] == [0] and len(walked) > 1:
            walked.pop()  # a fold: the last dimension is gone
        return Op(
            index, record["op"], record["compute"], walked, out["slot"], dtype, operands,
            label=label, tensor_shape=tensor_shape,
        )  # fmt: skip

    @cached_property
    def _writes(self) -> dict[int, list[tuple[int, int, int]]]:
        writes: dict[int, list[tuple[int, int, int]]] = {}
        for index, record in enumerate(self.shape.tape):
            for out in _writes(record):
                begin, end = _extent(out, record["shape"])
                writes.setdefault(out["slot"], []).append((begin, end, index))
        return writes

    @cached_property
    def after(self) -> list[Kernel]:
        """The kernels, in the order in which they run."""
        return [self._kernel(i, k) for i, k in enumerate(self.shape.plan["kernels"])]

    def _kernel(self, index: int, data: Mapping[str, Any]) -> Kernel:
        shape = data["shape"]
        ports = []
        for access in data["accesses"]:
            steps = access["strides"]
            loops = [access["bytes"]] if "bytes" in access else shape
            walked = [n if s else 1 for n, s in zip(loops, steps, strict=True)]
            while len(walked) > 1 and walked[-1] == 1 and access["rank"] != "full":
                walked.pop()
            if 0 not in steps:
                walked = self._seen_shape(access["slot"], walked)
            ports.append(
                Port(
                    access["slot"], self.name_of(access["slot"]), access["dtype"], walked,
                    access["loaded"], access["stored"],
                )
            )  # fmt: skip

        def text(ref: Mapping[str, int]) -> str:
            if "access" in ref:
                return ports[ref["access"]].name
            if "temp" in ref:
                return f"t{ref['temp']}"
            if "result" in ref:  # of the kernel's call
                return "result"
            at = ref["number"]
            return self.numbers[at] if at < len(self.numbers) else f"#{at}"

        instrs = []
        for i in data["instrs"]:
            out = i["out"]
            instrs.append(
                Instr(
                    i["op"], [text(ref) for ref in i["in"]], text(out), i["record"], i["compute"],
                    i["result"], i["rank"], [ref["temp"] for ref in i["in"] if "temp" in ref],
                    out.get("temp"), "access" in out,
                )
            )  # fmt: skip
        program = json.dumps(
            [
                shape,
                [[a["dtype"], a["rank"], a["loaded"], a["stored"], a["strides"]]
                 for a in data["accesses"]],
                [[i["op"], i["compute"], i["result"],
                  [{"number": 0} if "number" in ref else ref for ref in i["in"]], i["out"]]
                 for i in data["instrs"]],
            ]
        )  # fmt: skip
        return Kernel(
            index, data["name"], data["launch"], data["stage"], list(shape), data["rows"],
            data["live_values"], data["bytes"], instrs, ports, program,
        )  # fmt: skip

    @cached_property
    def launches(self) -> list[Launch]:
        """The launches, in order, with the times that they took in this run."""
        result = []
        members: dict[int, list[int]] = {}
        for index, kernel in enumerate(self.shape.plan["kernels"]):
            members.setdefault(kernel["launch"], []).append(index)
        for i, (name, launch, _, nbytes) in enumerate(self.shape.data["launches"]):
            ops = self.shape.ops_by_launch[launch]
            times = self._times[i] if i < len(self._times) else (0, 0, False)
            result.append(Launch(name, members[launch], nbytes, ops, *times))
        return result

    @property
    def ns(self) -> int:
        """How long its launches took, together."""
        return sum(launch.ns for launch in self.launches)

    @property
    def stats(self) -> dict[str, Any]:
        """What it was and became in numbers, see ``sum_stats``."""
        return sum_stats([self])

    def __str__(self) -> str:
        s = self.stats
        head = (
            f"{count_text(s['ops_recorded'], 'op')} -> {count_text(s['kernels_run'], 'kernel')}, "
            f"{bytes_text(s['bytes_moved'])} moved of {bytes_text(s['bytes_unfused'])}"
        )
        return "\n".join(
            [head, "before:", *(f"  {op}" for op in self.before), "after:"]
            + [f"  {line}" for k in self.after for line in str(k).splitlines()]
        )


def read_trace(
    trace: Mapping[str, Any],
    names: BufferNames | None = None,
    labels: Mapping[int, tuple[str, list[int] | None]] | None = None,
) -> list[Circuit]:
    """Make circuits of what the end of a trace returned.

    labels: operator and shape of its result, by the number of an op in the trace.
    """
    shapes = [Shape(data) for data in trace["shapes"]]
    circuits = []
    ops = 0
    for data in trace["circuits"]:
        circuit = Circuit(shapes[data["shape"]], data, names)
        circuit.first_op = ops
        circuit.labels = labels or {}
        circuits.append(circuit)
        ops += len(circuit.shape.tape)
    return circuits


def births_of(trace: Mapping[str, Any]) -> dict[int, list[Birth]]:
    """Return when circuits made buffers, of which no one saw the names that they had then."""
    births: dict[int, list[Birth]] = {}
    for data in trace["circuits"]:
        states = trace["shapes"][data["shape"]]["slot_states"]
        for buffer, state in zip(data["buffers"], states, strict=False):
            if state & _FRESH:
                births.setdefault(buffer, []).append(Birth(data["sealed_ns"], Named("", [])))
    return births


def share(part: float, whole: float) -> float:
    """Return what is saved by needing `part` instead of `whole`, between 0 and 1."""
    return max(0.0, 1.0 - part / whole) if whole else 0.0


def merge_equal(circuits: Iterable[Circuit]) -> list[Circuit]:
    """Return one of each kind of circuit, with how many there were in its ``count``.

    They are in the order in which the first of each kind ran. The last one stands for all: it finds
    plan and code made.
    """
    last: dict[int, Circuit] = {}
    counts: dict[int, int] = {}
    for circuit in circuits:
        kind = id(circuit.shape)
        counts[kind] = counts.get(kind, 0) + 1
        last[kind] = circuit
    for kind, circuit in last.items():
        circuit.count = counts[kind]
    return list(last.values())


def sum_stats(circuits: Iterable[Circuit]) -> dict[str, Any]:
    """Count over circuits what was recorded, what ran and what that saved.

    ``kernels_run`` counts each kernel that was bound and run, equal ones too;
    ``operation_reduction`` is 1 - kernels run / ops recorded; ``live_values`` is the most
    intermediate values that one kernel holds at once; ``kernel_ns`` is the time of all launches (a
    launch is kernels of one stage with equal programs, which are timed together).
    """
    s: dict[str, Any] = dict.fromkeys(
        ("circuits", "ops_recorded", "ops_without_work", "kernels_run", "operation_reduction",
         "live_values", "bytes_moved", "bytes_unfused", "bytes_saved", "plan_hits", "kernel_ns"), 0,
    )  # fmt: skip
    for circuit in circuits:
        plan = circuit.shape.plan
        s["circuits"] += 1
        s["ops_recorded"] += plan["ops"]
        s["ops_without_work"] += plan["dead"]
        s["kernels_run"] += len(plan["kernels"])
        s["live_values"] = max(s["live_values"], plan["live_values"])
        s["bytes_moved"] += plan["bytes_moved"]
        s["bytes_unfused"] += plan["bytes_unfused"]
        s["plan_hits"] += circuit.plan_hit
        s["kernel_ns"] += circuit.ns
    s["operation_reduction"] = share(s["kernels_run"], s["ops_recorded"])
    s["bytes_saved"] = s["bytes_unfused"] - s["bytes_moved"]
    return s
