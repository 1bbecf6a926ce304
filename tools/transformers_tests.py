# SPDX-License-Identifier: MIT
"""Runs transformers' own tests of models on hologram and on cpu, and names what cpu alone passes.

The tests are the shared ones of transformers' source distribution, of the version that is
installed (pip gets it into build/transformers); tests/torch/libraries/transformers_families.py
gives them small models of many families. transformers has to be importable, with accelerate and
parameterized. The exit status is 1 if a test fails on the device alone.

    transformers_tests.py                  all families
    transformers_tests.py Bert Llama       these
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from steps import ROOT, StepError, fail, say

FOLDER = ROOT / "build" / "transformers"
CASES = ROOT / "tests" / "torch" / "libraries" / "transformers_families.py"
FAMILIES = (
    "Bert Llama GPT2 T5 ViT Whisper Wav2Vec2 Bart CLIP Mamba Mistral Olmo XLNet Gemma2 ConvNext "
    "VideoMAE Hubert DebertaV2 Swin Qwen3 Falcon Marian PatchTST Segformer DistilBert OPT"
).split()
SECONDS = 1200

# Mixins that the distribution leaves out.
_ABSENT = {
    "exporters/test_export.py": "class ExportTesterMixin:\n    pass\n",
    "generation/test_utils.py": "class GenerationTesterMixin:\n    pass\n",
}
# Tests that end the process, or fail, through no fault of a device: an expression for pytest's -k.
_LEFT_OUT = {
    # It indexes a bias of batch size 1 by the number of every batch: an IndexError in eager code;
    # in code compiled by Inductor the end of the process.
    "T5": "not flex_attention_with_grads",
}
# The tolerances of half types are cpu's and cuda's; a device that is not named gets 1e-7.
_NAMED = '["hpu", "npu", "tpu"]'


def fetch() -> Path:
    """Return the folder that holds the tests of the installed transformers."""
    version = metadata.version("transformers")
    folder = FOLDER / version
    if (folder / "whole").exists():
        return folder
    say(f"get the tests of transformers {version}")
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:",
         "--no-build-isolation", f"transformers=={version}", "-d", str(folder)], check=True,
    )  # fmt: skip
    tests = f"transformers-{version}/tests/"
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        for member in archive.getmembers():
            if member.isfile() and member.name.startswith(tests) and member.name.endswith(".py"):
                member.name = "tests/" + member.name.removeprefix(tests)
                archive.extract(member, folder, filter="data")
    (folder / "tests" / "__init__.py").touch()
    for name, text in _ABSENT.items():
        file = folder / "tests" / name
        file.parent.mkdir(exist_ok=True)
        (file.parent / "__init__.py").touch()
        if not file.exists():
            file.write_text(text)
    common = folder / "tests" / "test_modeling_common.py"
    text = common.read_text()
    if _NAMED not in text:
        raise StepError(f"{common} names no devices {_NAMED}: see where it chooses tolerances")
    common.write_text(text.replace(_NAMED, _NAMED[:-1] + ', "hologram"]'))
    (folder / "whole").touch()
    return folder


def outcomes(folder: Path, family: str, device: str) -> dict[str, str]:
    """Run a family's tests on a device: "passed", "failed" or "skipped" by the name of the test."""
    report = folder / f"{family}.{device}.xml"
    report.unlink(missing_ok=True)
    paths = [str(folder), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "FAMILY": family,
        "TRANSFORMERS_TEST_DEVICE": device,
        "HF_HUB_OFFLINE": "1",
    }
    # Some tests call pytest again, by the name of their file below the folder.
    shutil.copyfile(CASES, folder / "tests" / "test_families.py")
    (folder / "pytest.ini").write_text("[pytest]\n")
    log = folder / f"{family}.{device}.log"
    with log.open("w") as output:
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-W", "ignore", "--noconftest", "--tb=short",
             "-p", "no:cacheprovider", f"--junitxml={report}", "-k", _LEFT_OUT.get(family, ""),
             "tests/test_families.py"],
            check=False, cwd=folder, env=env, timeout=SECONDS, stdout=output, stderr=output,
        )  # fmt: skip
    if not report.exists():
        raise StepError(f"{family} on {device} stopped: see {log}")
    found: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        bad = case.find("failure") is not None or case.find("error") is not None
        became = "failed" if bad else "skipped" if case.find("skipped") is not None else "passed"
        name = case.attrib["name"]
        found[name] = "failed" if found.get(name) == "failed" else became
    return found


def main() -> int:
    """Run the families that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("families", nargs="*", default=FAMILIES, metavar="FAMILY")
    families = parser.parse_args().families
    try:
        folder = fetch()
        alone = 0
        say("| family | passed on both | failed on both | passed on the device alone | lost |")
        say("|---|---|---|---|---|")
        for family in families:
            ours, cpu = (outcomes(folder, family, device) for device in ("hologram", "cpu"))
            pairs = [(name, was, cpu.get(name, "absent")) for name, was in ours.items()]
            both = sum(was == on_cpu == "passed" for _, was, on_cpu in pairs)
            neither = sum(was == on_cpu == "failed" for _, was, on_cpu in pairs)
            more = sum(was == "passed" != on_cpu for _, was, on_cpu in pairs)
            lost = [n for n, was, on_cpu in pairs if was == "failed" != on_cpu]
            lost += [n for n, was, on_cpu in pairs if was == "skipped" and on_cpu == "passed"]
            lost += sorted(n for n, on_cpu in cpu.items() if n not in ours and on_cpu == "passed")
            say(f"| {family} | {both} | {neither} | {more} | {len(lost)} |")
            for name in lost:
                here, there = (found.get(name, "absent") for found in (ours, cpu))
                say(f"{family}: {name}: {here}, {there} on cpu")
            alone += len(lost)
    except (StepError, subprocess.SubprocessError, OSError) as error:
        return fail(error if isinstance(error, StepError) else StepError(str(error)))
    return 1 if alone else 0


if __name__ == "__main__":
    raise SystemExit(main())
