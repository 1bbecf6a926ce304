# SPDX-License-Identifier: MIT
"""PyTorch's databases in every variant: what cpu runs is alike on hologram."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from conformance import exceptions, harness, publish, variants
from conformance.__main__ import run_all, table, unneeded
from conformance.databases import DATABASES, Outcome, Piece, covers, pieces, run_piece
from conformance.test_opinfo import Doctored

# Of op_db, every so-manieth op in the ordinary tests.
STRIDE = 12


@pytest.fixture(autouse=True)
def one_thread():
    """Pieces set the number of threads of their process."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", variants.VARIANTS)
def test_some_ops_in_every_variant(name: str) -> None:
    report = harness.Report()
    variant = variants.VARIANTS[name]
    dtype = variant.dtypes[0] if variant.dtypes else torch.float32
    with harness.quiet():
        for op in DATABASES["op_db"]()[:: 1 if name == "views" else STRIDE]:
            if dtype in op.supported_dtypes("cpu"):
                variants.check_variant(op, name, dtype, 1, report)
    assert not report.failures, "\n".join(str(f) for f in report.failures[:40])
    assert report.samples >= 10
    assert report.alike + report.excused.total() >= report.on_cpu


LAZY = {"conjugated": torch.conj, "negated": lambda t: torch._neg_view(t)}


@pytest.mark.parametrize("bit", LAZY)
def test_what_is_written_into_a_lazy_view_is_there(bit: str) -> None:
    """Whatever writes, and wherever the source is: PyTorch would write into a copy of the view."""
    source = torch.tensor([5 + 6j, 7 + 8j])
    writes = {
        "copy_": lambda view, s: view.copy_(s),
        "from another": lambda view, s: view.copy_(LAZY[bit](s)),
        "from cpu": lambda view, s: view.copy_(LAZY[bit](source)),
        "add_": lambda view, s: view.add_(s),
        "fill_": lambda view, s: view.fill_(3 + 1j),
        "setitem": lambda view, s: view.__setitem__(0, 9j),
        "out=": lambda view, s: torch.exp(s, out=view),
        "imag": lambda view, s: view.imag.copy_(s.real),
        "conj_physical_": lambda view, s: view.conj_physical_(),
    }
    for name, write in writes.items():
        results = []
        for device in ("cpu", "hologram"):
            memory = torch.tensor([1 + 2j, 3 + 4j]).to(device)
            write(LAZY[bit](memory), source.to(device))
            host = torch.zeros(2, dtype=torch.complex64)
            LAZY[bit](host).copy_(LAZY[bit](memory))
            results.append((memory.cpu(), host))
        for ours, cpu in zip(results[1], results[0], strict=True):
            torch.testing.assert_close(ours, cpu, msg=name)


SMALL = [
    ("foreach_op_db", "functional", "float32"),
    ("foreach_op_db", "in-place", "float32"),
    ("autograd_function_db", "functional", "float32"),
    ("autograd_function_db", "gradcheck", "float64"),
    ("custom_op_db", "functional", "float32"),
    ("custom_op_db", "opcheck", ""),
]


@pytest.mark.parametrize(("database", "variant", "dtype"), SMALL)
def test_the_small_databases(database: str, variant: str, dtype: str) -> None:
    count = len(DATABASES[database]())
    outcome = run_piece(Piece(database, variant, dtype, "deferred", 0, count, 1, None))
    assert not outcome.failures, "\n".join(outcome.failures[:40])
    # Of custom_op_db six entries are operators, the others functions that call them.
    assert outcome.on_cpu >= 6
    assert outcome.alike + outcome.excused >= outcome.on_cpu


@pytest.mark.heavy
@pytest.mark.parametrize("database", DATABASES)
def test_every_sample_of_every_database(database: str) -> None:
    """As `make conformance` does."""
    work = list(pieces([database], [], [], [], None, None))
    outcomes = run_all(work, len(os.sched_getaffinity(0)))
    failures = [f"{o.piece.variant}, {o.piece.dtype}: {f}" for o in outcomes for f in o.failures]
    assert not failures, "\n".join(failures[:80])
    assert sum(o.on_cpu for o in outcomes) > 0


# --- The command ----------------------------------------------------------------------------------


def test_the_table_sums_pieces_up() -> None:
    piece = Piece("op_db", "functional", "float32", "deferred", 0, 1, 1, "nothing of this name")
    first, second = run_piece(piece), run_piece(replace(piece, begin=1, end=2))
    first.samples, first.on_cpu, first.alike, first.failures = 5, 4, 3, ["x"]
    second.samples, second.on_cpu, second.alike = 2, 2, 2
    cells, records = table([first, second])
    assert len(cells) == 2
    wanted = {"samples": 7, "cpu": 6, "hologram": 5, "failures": 1}
    assert {k: records[0][k] for k in wanted} == wanted


def test_an_exception_that_is_not_needed_is_told() -> None:
    piece = Piece("op_db", "functional", "float32", "deferred", 0, 1, None, None)
    entries = list(exceptions.listed())
    assert ("raises", "sparse.sampled_addmm", "float16") in entries
    assert ("error", "narrow_copy", "errors") in entries
    needed = Counter(entries[1:])
    met = covers([], [], None)
    (line,) = unneeded([Outcome(piece, needed=needed), Outcome(piece)], met)
    assert all(word in line for word in entries[0])
    assert not unneeded([Outcome(piece, needed=Counter(entries))], met)
    # What was not run cannot tell.
    assert not covers(["optim_db"], [], None)(entries[0])
    assert not covers([], ["int64"], None)(("raises", "sparse.sampled_addmm", "float16"))
    assert covers(["op_db"], ["int64"], "narrow")(("error", "narrow_copy", "errors"))
    assert not covers([], [], "linalg")(("error", "narrow_copy", "errors"))


def test_a_bound_of_an_op_is_counted_where_it_is_needed() -> None:
    op = next(o for o in DATABASES["op_db"]() if o.name == "exp")
    name = harness.op_name(op)
    x = torch.linspace(-1, 1, 8)
    good, off = x.exp(), x.exp() * (1 + 20 * torch.finfo(torch.float32).eps)
    report = harness.Report()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(exceptions.UNITS, name, (64, "for this test"))
        assert harness.as_accurate(op, (x, (), {}), good, good, False, None, report)
        assert not report.bounds
        assert harness.as_accurate(op, (x, (), {}), good, off, False, None, report)
        assert report.bounds == {("units", name, ""): 1}
    assert not harness.as_accurate(op, (x, (), {}), good, off, False, None, report)


def test_the_page_keeps_what_was_not_run(tmp_path: Path) -> None:
    def record(database: str, variant: str, alike: int) -> dict[str, object]:
        return {"database": database, "variant": variant, "dtype": "float32", "mode": "deferred",
                "cpu": 1500, "hologram": alike}  # fmt: skip

    path = tmp_path / "page.md"
    publish.write([record("op_db", "functional", 1500), record("op_db", "in-place", 1499)], path)
    assert "| op_db | float32 | 2,999 of 3,000 |" in path.read_text()
    publish.write([record("hop_db", "functional", 1500)], path)
    text = path.read_text()
    assert "| op_db | float32 | 2,999 of 3,000 |" in text
    assert "| hop_db | float32 | 1,500 |" in text
    publish.write([record("op_db", "functional", 1500)], path)
    assert "| op_db | float32 | 1,500 |" in path.read_text()
    assert "sparse.sampled_addmm" in text


def test_a_variant_sees_a_difference() -> None:
    """Every variant that compares values finds a wrong one."""

    class Wrong(Doctored):
        supports_forward_ad = supports_out = True

        def get_inplace(self):
            return lambda x: x.mul_(2 if x.device.type == "cpu" else 3)

        def __call__(self, x: torch.Tensor, out: torch.Tensor | None = None):
            result = x.exp() * (2 if x.device.type == "cpu" else 3)
            return result if out is None else out.copy_(result)

    for name in ("functional", "in-place", "out= fitting", "non-contiguous", "forward mode", "vmap",
                 "vjp"):  # fmt: skip
        report = harness.Report()
        variants.check_variant(Wrong(None), name, torch.float32, 2, report)
        assert {f.stage.split()[-1] for f in report.failures} == {"values"}, name
        assert report.alike < report.on_cpu
