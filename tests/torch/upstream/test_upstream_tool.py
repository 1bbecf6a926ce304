# SPDX-License-Identifier: MIT
"""The tool of `make upstream`: pairs of tests, exceptions, and tests that crash or hang."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[3] / "tools"
sys.path.insert(0, str(TOOLS))

import upstream  # noqa: E402
import upstream_source  # noqa: E402
from upstream_results import (  # noqa: E402
    Excuse,
    Outcome,
    Results,
    judge,
    pair,
    read,
    read_exceptions,
    table,
    without_device,
)  # fmt: skip
from upstream_share import common_name, is_in_share  # noqa: E402

FILE = "test_a.py"


def results(**outcomes: str) -> Results:
    names = [name.replace("__T", "::t") for name in outcomes]
    tests = {n: Outcome(o, text=o) for n, o in zip(names, outcomes.values(), strict=True)}
    return Results(collected=names, tests=tests, finished=True)


@pytest.mark.parametrize(
    ("name", "side", "common"),
    [
        ("TestAPRIVATEUSE1::test_x_privateuse1_float32", "hologram", "TestA::test_x_float32"),
        ("TestAHOLOGRAM::test_x_hologram", "hologram", "TestA::test_x"),
        ("TestACPU::test_x_cpu_float32", "cpu", "TestA::test_x_float32"),
        # The last of several names is the device.
        ("TestACPU::test_x_to_cpu_cpu_int8", "cpu", "TestA::test_x_to_cpu_int8"),
        ("TestAPRIVATEUSE1::test_to_cpu_privateuse1", "hologram", "TestA::test_to_cpu"),
        # Not made for each device.
        ("TestA::test_x_cpu", "cpu", "TestA::test_x_cpu"),
        ("TestACPU::test_cpuinfo", "cpu", "TestACPU::test_cpuinfo"),
    ],
)
def test_the_device_goes_out_of_a_name(name, side, common):
    assert without_device(name, side) == common


def test_a_share_has_the_same_tests_on_each_device():
    names = [f"TestAPRIVATEUSE1::test_{k}_to_cpu_hologram_float32" for k in range(2000)]
    some = [n for n in names if is_in_share(n, 10)]
    assert 150 < len(some) < 250
    on_cpu = [n.replace("PRIVATEUSE1", "CPU").replace("hologram", "cpu") for n in names]
    assert [is_in_share(n, 10) for n in on_cpu] == [n in some for n in names]
    assert all(is_in_share(n, 20) for n in some)
    assert all(is_in_share(n, 100) for n in names) and not any(is_in_share(n, 0) for n in names)


def test_tests_of_no_device_are_pairs_by_their_own_name():
    device = results(TestFooCPU__Test_x_cpu="failed")
    cpu = results(TestFooCPU__Test_x_cpu="passed")
    (name,) = pair(device, cpu)
    assert name == "TestFooCPU::test_x_cpu"


DEVICE = results(
    TestAPRIVATEUSE1__Test_passes_privateuse1="passed",
    TestAPRIVATEUSE1__Test_xfail_privateuse1="xfailed",
    TestAPRIVATEUSE1__Test_drift_privateuse1="failed",
    TestAPRIVATEUSE1__Test_skip_privateuse1="skipped",
    TestAPRIVATEUSE1__Test_alone_privateuse1_int8="failed",
    TestAPRIVATEUSE1__Test_alone_privateuse1_int16="hung",
    TestAPRIVATEUSE1__Test_crash_privateuse1="crashed",
    TestAPRIVATEUSE1__Test_accelerator_privateuse1="failed",
    TestAPRIVATEUSE1__Test_absent_privateuse1="failed",
)
CPU = results(
    TestACPU__Test_drift_cpu="failed",
    TestACPU__Test_skip_cpu="passed",
    TestACPU__Test_alone_cpu_int8="passed",
    TestACPU__Test_alone_cpu_int16="passed",
    TestACPU__Test_crash_cpu="passed",
    TestACPU__Test_accelerator_cpu="skipped",
)


def test_what_fails_on_the_device_alone_is_found():
    verdict = judge(FILE, DEVICE, CPU, [])
    assert (verdict.passed, verdict.drift) == (2, ["TestA::test_drift"])
    assert (verdict.skipped, verdict.skipped_alone) == (1, ["TestA::test_skip"])
    assert {name.partition("::test_")[2]: t.outcome for name, t in verdict.new.items()} == {
        "alone_int8": "failed",
        "alone_int16": "hung",
        "crash": "crashed",
        # cpu skips it, or has no such test.
        "accelerator": "failed",
        "absent": "failed",
    }
    assert not verdict.good
    assert table([verdict]).splitlines()[-1] == "| all | 2 | 1 | 1 | 1 | 5 | 0 |"


def test_what_cpu_is_expected_to_fail_fails_on_both():
    device = results(TestAPRIVATEUSE1__Test_x_privateuse1="failed")
    verdict = judge(FILE, device, results(TestACPU__Test_x_cpu="xfailed"), [])
    assert verdict.good and verdict.drift == ["TestA::test_x"]


def excuses(*patterns: str) -> list[Excuse]:
    return [Excuse(f"{FILE}::TestA::test_{pattern}", "a reason") for pattern in patterns]


def test_a_listed_failure_is_good():
    verdict = judge(FILE, DEVICE, CPU, excuses("a*", "crash"))
    assert verdict.good and not verdict.new
    assert len(verdict.listed) == 5
    assert table([verdict]).splitlines()[-1] == "| all | 2 | 1 | 1 | 1 | 5 | 5 |"


@pytest.mark.parametrize("name", ["passes", "drift", "skip"])
def test_a_listed_test_that_does_not_fail_on_the_device_alone_is_an_error(name):
    verdict = judge(FILE, DEVICE, CPU, excuses("a*", "crash", name))
    assert verdict.stale == [f"TestA::test_{name}"]
    assert not verdict.good


def test_a_pattern_that_matches_no_test_is_an_error_once_the_file_ran_whole():
    listed = excuses("a*", "crash", "gone_*")
    assert judge(FILE, DEVICE, CPU, listed).stale == ["TestA::test_gone_* (no such test)"]
    part = Results(collected=[*DEVICE.collected, "TestA::more"], tests=DEVICE.tests)
    assert judge(FILE, part, CPU, listed).good


def test_an_exception_of_another_file_is_not_asked():
    other = [Excuse("test_b.py::TestA::test_alone_*", "a reason")]
    assert len(judge(FILE, DEVICE, CPU, other).new) == 5


def test_a_file_that_cannot_be_collected_is_an_error():
    verdict = judge(FILE, Results(errors=["ImportError: x"]), CPU, [])
    assert verdict.errors == ["hologram: ImportError: x"] and not verdict.good
    assert judge(FILE, Results(), CPU, []).errors == ["hologram: no tests"]


def test_exceptions_are_read():
    lines = ["# a comment", "", "nn/test_a.py::TestA::test_x_* # cuda, too"]
    assert read_exceptions(lines) == [Excuse("nn/test_a.py::TestA::test_x_*", "cuda, too")]


@pytest.mark.parametrize("line", ["a.py::A::t", "a.py::A::t # ", "a.py::A # reason"])
def test_an_exception_without_reason_or_test_is_refused(line):
    with pytest.raises(ValueError, match=r"line 1 is not `file.py::Class::test # reason`"):
        read_exceptions([line])


def test_the_exceptions_of_the_project_can_be_read():
    listed = read_exceptions((upstream.HERE / "exceptions.txt").read_text().splitlines())
    files = {e.pattern.partition("::")[0] for e in listed}
    assert files <= set(upstream.FILES)


def test_sources_of_apt_name_the_mirror(tmp_path):
    (tmp_path / "sources.list.d").mkdir()
    assert upstream_source.debian_mirror(tmp_path) is None
    listed = tmp_path / "sources.list.d" / "a.list"
    listed.write_text("deb https://x.example/other stable main\n# deb http://no.example/debian x\n")
    assert upstream_source.debian_mirror(tmp_path) is None
    listed.write_text("deb [arch=amd64] http://m.example/debian/ bookworm main\n")
    assert upstream_source.debian_mirror(tmp_path) == "http://m.example/debian"
    listed.unlink()
    modern = tmp_path / "sources.list.d" / "debian.sources"
    modern.write_text("Types: deb\n# http://s.example/debian/1\nURIs: http://n.example/debian\n")
    assert upstream_source.debian_mirror(tmp_path) == "http://n.example/debian"


def test_a_machine_without_apt_is_told_so(tmp_path, monkeypatch):
    monkeypatch.setattr(upstream_source, "FOLDER", tmp_path)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(upstream.StepError, match=r"2\.6\.0.*this machine has no apt-get"):
        upstream_source.fetch()


CRASHING = """
import os, time, unittest


class TestA(unittest.TestCase):
    def test_1(self):
        pass

    def test_2_crashes(self):
        os.abort()

    def test_3_hangs(self):
        time.sleep(600)

    def test_4_fails(self):
        self.assertEqual(1, 2)

    @unittest.skip("no")
    def test_5_skips(self):
        pass

    @unittest.expectedFailure
    def test_6_expects(self):
        self.fail()

    @unittest.expectedFailure
    def test_7_expects_in_vain(self):
        pass

    def test_8_subtests(self):
        for k in range(2):
            with self.subTest(k=k):
                self.assertEqual(k, 0)
"""


PASSING = "import unittest\n\n\nclass TestB(unittest.TestCase):\n" + "".join(
    f"    def test_{k}(self):\n        pass\n" for k in range(40)
)


@pytest.fixture
def runner(tmp_path, monkeypatch):
    tests = tmp_path / "test"
    tests.mkdir()
    (tests / "test_a.py").write_text(CRASHING)
    # These tests need no PyTorch, whose import takes most of a short process's time.
    plugin = tmp_path / "plugin"
    plugin.mkdir()
    for name in ("upstream_plugin.py", "upstream_share.py"):
        shutil.copy(upstream.HERE / name, plugin)
    (plugin / "upstream_shim.py").write_text("def install():\n    pass\n")
    monkeypatch.setattr(upstream, "HERE", plugin)
    monkeypatch.setattr(upstream, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(upstream, "FOLDER", tmp_path)
    monkeypatch.setattr(upstream, "LOGS", tmp_path / "logs")
    return upstream.Runner(tests, upstream.Limits(seconds=2.0, threads=1))


def test_a_crash_and_a_hang_cost_themselves_alone(runner):
    job = upstream.Job("test_a.py", "cpu")
    runner.run(job)
    found = read(job.events)
    assert {name.partition("::test_")[2]: t.outcome for name, t in found.tests.items()} == {
        "1": "passed",
        "2_crashes": "crashed",
        "3_hangs": "hung",
        "4_fails": "failed",
        "5_skips": "skipped",
        "6_expects": "xfailed",
        "7_expects_in_vain": "failed",
        "8_subtests": "failed",
    }
    assert found.whole and found.finished
    assert "AssertionError: 1 != 2" in found.tests["TestA::test_4_fails"].text
    assert upstream.last_line(found.tests["TestA::test_4_fails"].text) == "AssertionError: 1 != 2"

    # A second run takes what is there; a part of it adds to that.
    size = job.events.stat().st_size
    runner.run(job)
    assert job.events.stat().st_size == size
    runner.run(job, "test_1")
    runner.run(job, names={"TestA::test_4_fails"})
    lines = [json.loads(line) for line in job.events.read_bytes()[size:].splitlines()]
    started = [line["name"] for line in lines if line["kind"] == "start"]
    assert started == ["TestA::test_1", "TestA::test_4_fails"]
    assert read(job.events).whole

    # A share adds what it lacks, and is no whole run.
    part = upstream.Job("test_b.py", "cpu")
    (runner._tests / "test_b.py").write_text(PASSING)
    some = upstream.Runner(runner._tests, upstream.Limits(seconds=60.0, threads=1, percent=30))
    some.run(part)
    found = read(part.events)
    names = {f"TestB::test_{k}" for k in range(40)}
    assert set(found.collected) == names and not found.whole
    assert set(found.tests) == {name for name in names if is_in_share(name, 30)}
    assert 3 < len(found.tests) < 25
    size = part.events.stat().st_size
    some.run(part)
    assert part.events.stat().st_size == size

    # cpu is asked about the tests that did not pass on the device.
    device, cpu = upstream.Job("test_b.py", "hologram"), upstream.Job("test_b.py", "cpu")
    cpu.events.unlink()
    device.events.write_text(
        json.dumps({"kind": "collected", "names": ["TestB::test_1", "TestB::test_2"]})
        + "".join(
            "\n" + json.dumps({"kind": "end", "name": f"TestB::test_{k}", **end, "seconds": 0})
            for k, end in enumerate([{"outcome": o} for o in ("passed", "failed", "skipped")])
        )
    )
    assert upstream.not_passed("test_b.py") == {"TestB::test_1", "TestB::test_2"}
    for _ in range(2):
        runner.run(cpu, twins=upstream.not_passed("test_b.py"))
        found = read(cpu.events)
        assert set(found.tests) == {"TestB::test_1", "TestB::test_2"} and found.errors == []
        started = [e for e in cpu.events.read_text().splitlines() if '"start"' in e]
        assert len(started) == 2
    runner.run(cpu, twins=set())
    assert common_name("TestAPRIVATEUSE1::test_x_privateuse1") == common_name(
        "TestACPU::test_x_cpu"
    )

    # Results of another build are made again.
    text = job.events.read_text().replace(read(job.events).key, "other", 1)
    job.events.write_text(text.splitlines()[0] + "\n")
    runner.run(job, "test_1")
    assert read(job.events).key == "other"


def test_a_cut_off_line_is_left_out(tmp_path):
    path = tmp_path / "events"
    end = {"kind": "end", "name": "A::a", "outcome": "passed", "seconds": 1, "text": ""}
    path.write_text(json.dumps(end) + '\n{"kind": "end", "na')
    assert list(read(path).tests) == ["A::a"]
