# SPDX-License-Identifier: MIT
"""tools/gpu_test.py over the fake of CUDA: its steps and its reports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import opencl_drivers
import pytest

ROOT = Path(__file__).resolve().parents[3]
missing = opencl_drivers.why_missing(opencl_drivers.FAKE_CUDA)
pytestmark = pytest.mark.skipif(bool(missing), reason=missing)


@pytest.mark.parametrize(
    "steps", ["devices,sanitizer", pytest.param("", marks=pytest.mark.heavy)], ids=["some", "all"]
)
def test_it_reports_what_became_of_its_steps(steps: str, tmp_path: Path) -> None:
    command = [sys.executable, "tools/gpu_test.py", "--fake", "--installed", "--out", str(tmp_path)]
    done = subprocess.run(
        [*command, "--only", steps], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["failed"] == []
    found = {step["name"]: step["state"] for step in report["steps"]}
    assert found["the device"] == "passed"
    assert found["compute-sanitizer"] == "not run"
    assert all(row["state"] == "agrees" for row in report["benchmarks"])
    assert "No step failed." in (tmp_path / "report.md").read_text()
    if not steps:
        assert found["PyTorch on the device"] == found["kernels against the cpu"] == "passed"
        assert len(report["benchmarks"]) > 10


def test_a_step_that_fails_does_not_keep_others_from_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import gpu_test

    monkeypatch.setattr(gpu_test, "WORK", tmp_path / "work")
    options = gpu_test.parse(["--fake", "--installed"])
    test = gpu_test.GpuTest(options)

    def broken() -> None:
        raise RuntimeError("no such file")

    for name in ("build", "kernels", "conformance", "programs", "sanitizer", "benchmarks"):
        monkeypatch.setattr(test, name, broken)
    say = "print('3 passed'); raise SystemExit(7)"
    monkeypatch.setattr(test, "devices", lambda: test.run("it", [sys.executable, "-c", say], 60))
    test.run_all()
    slow = "import subprocess; subprocess.run(['sleep', '100'])"
    test.run("slow", [sys.executable, "-c", slow], 1)
    test.run("skips", [sys.executable, "-c", "print('[  PASSED  ] 0 tests.')"], 60)
    assert not test.report(tmp_path)
    report = json.loads((tmp_path / "report.json").read_text())
    found = {step["name"]: step for step in report["steps"]}
    assert found["it"]["summary"] == "exit status 7, 3 passed"
    assert found["slow"]["summary"] == "it took more than 1 s"
    assert found["benchmarks"]["summary"] == "RuntimeError: no such file"
    assert found["skips"]["summary"] == "nothing ran, [  PASSED  ] 0 tests."
    assert len(report["failed"]) == 9
    assert (tmp_path / "report.md").read_text().count("FAILED") == 10
