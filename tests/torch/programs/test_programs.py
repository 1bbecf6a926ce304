# SPDX-License-Identifier: MIT
"""Random eager programs: deferred execution gives the very bits and errors of eager execution.

As a script it runs as many as asked, in every configuration, and prints the smallest program of
each failure: `python tests/torch/programs/test_programs.py --programs 1000000 --seed 0`. Seeds name
programs, so a run goes on where another ended by the seed it is given.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from pathlib import Path

import pytest

from hologram._hologram import rows
from hologram_torch import _C

# Not the folder above: it would shadow the package torch.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import opencl_drivers

from programs import shards

QUICK = 2000  # programs of each configuration
HEAVY = 1_000_000
# On a device with memory of its own, for which every program makes new kernels.
OWN_MEMORY_QUICK = {opencl_drivers.OCLGRIND: 200, opencl_drivers.FAKE_CUDA: 50}
OWN_MEMORY_HEAVY = 100_000
PROCESSES = min(8, len(os.sched_getaffinity(0)))


def require(report: shards.Report, programs: int, elements: int = 500) -> None:
    """Fail with the smallest programs; fail too if little was compared."""
    if report.failures:
        shown = "\n\n".join(shards.minimal(f) for f in report.failures[:3])
        pytest.fail(
            f"{len(report.failures)} programs failed, the first are\n\n{shown}", pytrace=False
        )
    counts = report.counts
    assert counts["programs"] == programs
    assert counts["tensors"] > 4 * programs
    assert counts["elements"] > elements * programs
    assert counts["looks"] > 0.1 * programs
    assert 0 < counts["errors"] < 0.1 * counts["steps"]
    if _C.can_defer:
        assert counts["with_kernels"] > 0.8 * programs, counts
        assert counts["recorded"] > 4 * programs, counts


def test_deferred_equals_eager() -> None:
    configs = shards.configurations()
    jobs = [job for i, c in enumerate(configs) for job in shards.split(c, i * QUICK, QUICK, QUICK)]
    require(shards.run(jobs, PROCESSES), QUICK * len(configs))


@pytest.mark.heavy
def test_a_million_programs() -> None:
    configs = shards.configurations()
    each = HEAVY // len(configs)
    jobs = [
        job for i, c in enumerate(configs) for job in shards.split(c, (i + 1) * HEAVY, each, 20_000)
    ]
    require(shards.run(jobs, PROCESSES, progress=True), each * len(configs))


def check_programs_on(driver: str, first: int, programs: int, size: int) -> None:
    """Check programs on a device with memory of its own, whose driver watches kernels."""
    if missing := opencl_drivers.why_missing(driver):
        pytest.skip(missing)
    main = shards.configurations()[0]
    config = shards.Config(main.jit, main.isa, driver)
    report = shards.run(
        shards.split(config, first, programs, size), PROCESSES, progress=programs > 1000
    )
    require(report, programs, elements=200)


@pytest.mark.parametrize("driver", OWN_MEMORY_QUICK)
def test_deferred_equals_eager_on_a_device_with_memory_of_its_own(driver: str) -> None:
    programs = OWN_MEMORY_QUICK[driver]
    check_programs_on(driver, 50_000_000, programs, -(-programs // PROCESSES))


@pytest.mark.heavy
def test_many_programs_on_a_device_with_memory_of_its_own() -> None:
    check_programs_on(opencl_drivers.OCLGRIND, 60_000_000, OWN_MEMORY_HEAVY, 1000)


def test_threads_do_not_disturb_each_other() -> None:
    """Threads record into one circuit; each sees the results of its own program."""
    from concurrent.futures import ThreadPoolExecutor

    import hologram_torch
    from programs import check, generate, steps

    programs = []
    for seed in range(240):
        made, env, log = generate.generate(seed)
        if not any(s.form.random for s in made):
            programs.append((made, steps.snapshots(env), log))
    with hologram_torch.execution("deferred"), ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda p: steps.execute(p[0]), programs))
    for (made, expected, log), (actual, shown) in zip(programs, results, strict=True):
        what = check.difference(made, expected, log, actual, shown)
        assert what is None, what
    assert len(programs) > 150


# --- The check itself --------------------------------------------------------------------------


def test_most_values_agree_with_cpu() -> None:
    """Whatever the programs compute, it is mostly what PyTorch computes."""
    from programs.check import agreement

    compared, agree = agreement(range(400))
    assert compared > 1500
    assert agree > 0.93 * compared, (agree, compared)


@pytest.mark.skipif(not _C.can_defer, reason="deferred execution needs PyTorch 2.13 or later")
def test_the_check_sees_a_wrong_value_and_shrinks(monkeypatch: pytest.MonkeyPatch) -> None:
    import hologram_torch
    from programs import check, shrink, steps

    right = steps.form("{0}.add({1})")

    def wrong(a, b):
        result = right.run(a, b)
        if hologram_torch.execution.mode() == "deferred" and result.numel():
            result = result.clone()
            result.view(-1)[-1:].bitwise_not_() if not result.is_floating_point() else None
            result.view(-1)[-1:].add_(1) if result.is_floating_point() else None
        return result

    sick = steps.Form(right.text, right.arity, wrong, False, False)
    counts = check.Counts()
    monkeypatch.setattr(steps, "form", lambda *a: sick if a[0] == right.text else right)
    from programs import generate

    made = generate.form
    monkeypatch.setattr(generate, "form", lambda t, *a: sick if t == right.text else made(t, *a))
    failures = [f for f in (check.check(s, counts) for s in range(150)) if f]
    assert failures
    for failure in failures[:3]:
        small = shrink.shrink(failure.steps, lambda s: check.deferred_differs(s) is not None)
        assert len(small) <= 4, shrink.listing(small)
        assert any(s.form is sick for s in small)


def test_a_printed_program_runs_and_compares() -> None:
    from programs import generate, shrink

    for seed in range(40):
        text = shrink.python(generate.generate(seed)[0])
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(text, f"program {seed}", "exec"), {"__name__": "program"})
        assert "equal" in out.getvalue()
        assert "differs" not in out.getvalue()


def test_what_folds_leave_of_empty_tensors_is_bounded() -> None:
    """As the norm over 0 and 2 of what seed 80004139 makes, which would be 19 GB."""
    import torch

    from programs import generate
    from programs.steps import V

    generator = generate.Generator(0)
    generator.env.append(torch.empty(0, 3073, 0, 1000, 3073))
    assert generator.spread((V(0),)) == 3073 * 1000 * 3073
    assert generator.emit("torch.linalg.vector_norm({0}, 0, dim={1})", V(0), (0, 2)) == []


def test_what_out_and_lists_grow_to_is_bounded() -> None:
    """As what seed 2134765 multiplied into a third tensor, which took 5 GB."""
    import torch

    from programs import generate
    from programs.steps import V

    generator = generate.Generator(0)
    generator.env.extend([torch.empty(40000), torch.empty(129, 129, 1), torch.empty(2)])
    assert generator.emit("torch.mul({0}, {1}, out={2})", V(0), V(1), V(2), results=0) == []
    assert not generator.steps
    pair = ([V(2), V(0)], [V(2), V(1)])
    assert generator.emit("torch._foreach_add({0}, {1})", *pair, results=2) == []
    assert generator.spread(([V(2)], [V(2)])) == 0
    assert not generator.steps


def test_a_crash_is_a_finding() -> None:
    from programs import shrink

    ended, _ = shrink.in_child(lambda: os.kill(os.getpid(), 9))
    assert ended == "killed by signal 9"
    ended, _ = shrink.in_child(lambda: __import__("time").sleep(60), limit_s=0.3)
    assert ended.startswith("hung")
    assert shrink.in_child(lambda: 7) == ("ok", 7)


def test_every_row_of_the_op_table_occurs() -> None:
    from programs import families, families_more, families_views

    spelled = {
        "gelu_tanh": "approximate='tanh'",
        "gelu_tanh_backward": "gelu_backward({0},{1},approximate='tanh')",
        "squared_difference": "mse_loss",
        "squared_difference_backward": "F.mse_loss",
        "add_scaled": "alpha=",
        "cube": "{0}**3",
        "finite_or": "nan_to_num",
        # A third operand of cpu's is what its forward kept; gradients reach it.
        "logsigmoid_backward": "F.logsigmoid",
        "fma": "addcmul",
        "hardtanh_backward": "hardtanh_backward",
    }
    source = "".join(
        Path(m.__file__).read_text() for m in (families, families_more, families_views)
    )
    source += " ".join(families.TABLE)
    names = [name for name, *_ in rows._table]
    assert len(names) > 60
    missing = [n for n in names if spelled.get(n, n) not in source]
    assert not missing


# --- Script ------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=10_000, help="in each configuration")
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--config", help="only those whose description contains this")
    parser.add_argument(
        "--driver", choices=opencl_drivers.DRIVERS, help="on its device instead of hologram:0"
    )
    parser.add_argument("--show", type=int, metavar="SEED", help="print a seed's program")
    parser.add_argument("--minimal", type=int, metavar="SEED", help="shrink what fails for a seed")
    parser.add_argument("--shard", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.shard:
        first, last, notes = args.shard
        shards.shard(int(first), int(last), notes)
        return 0
    if args.minimal is not None:
        from programs.shrink import minimal

        shards.choose_device()

        print(*minimal(args.minimal), sep="\n")
        return 0
    if args.show is not None:
        from programs import generate, shrink

        print(shrink.python(generate.generate(args.show)[0]))
        return 0
    configs = [c for c in shards.configurations() if args.config is None or args.config in str(c)]
    size = 5000
    if args.driver:
        configs, size = [shards.Config(configs[0].jit, configs[0].isa, args.driver)], 500
    jobs = [j for c in configs for j in shards.split(c, args.seed, args.programs, size)]
    report = shards.run(jobs, args.processes, progress=True)
    for failure in report.failures:
        print("=" * 100, shards.minimal(failure), sep="\n", flush=True)
    print(f"{report.counts}\n{len(report.failures)} failures, {report.seconds:.0f} s")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
