# SPDX-License-Identifier: MIT
"""Gets PyTorch's own tests from Debian's source package, without a change to the machine's apt.

A wheel of PyTorch has no tests. apt is told to use lists, a cache and a list of sources in
build/upstream, checks what it gets with Debian's keyring, and only `test/` is unpacked.
"""

from __future__ import annotations

import os
import re
import shutil
import tarfile
from pathlib import Path

from steps import ROOT, StepError, say, step

FOLDER = ROOT / "build" / "upstream"
PACKAGE, VERSION, SUITE = "pytorch", "2.6.0+dfsg-7", "trixie"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

_MIRROR_LINE = re.compile(
    r"^\s*(?:deb\s+(?:\[[^]]*\]\s+)?|URIs:\s*)(https?://\S+/debian)/?(?=\s|$)"
)


def debian_mirror(sources: Path = Path("/etc/apt")) -> str | None:
    """Return the mirror of Debian that the machine's own apt uses, or None."""
    files = [sources / "sources.list", *sorted((sources / "sources.list.d").glob("*"))]
    for file in files:
        if file.suffix not in (".list", ".sources") or not file.is_file():
            continue
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            match = _MIRROR_LINE.match(line)
            if match:
                return match.group(1)
    return None


def _apt(folder: Path, mirror: str) -> list[str]:
    """Write the list of sources; return apt-get with everything that it writes below `folder`."""
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    sources = folder / "sources.list"
    sources.write_text(f"deb-src [signed-by={KEYRING}] {mirror} {SUITE} main\n")
    settings = {
        "Dir::Etc::SourceList": sources,
        "Dir::Etc::SourceParts": "-",
        "Dir::State": folder,
        "Dir::State::Lists": folder / "lists",
        "Dir::State::Status": os.devnull,
        "Dir::Cache": folder / "cache",
        # The user `_apt`, whom root's apt becomes for downloads, cannot write in a checkout.
        "APT::Sandbox::User": "root",
        "Acquire::Retries": 3,
        "Acquire::Languages": "none",
    }
    return ["apt-get", "-q", *(f"-o{name}={value}" for name, value in settings.items())]


def _unpack(archive: Path, target: Path) -> None:
    """Unpack what the archive has below `test/`, without the name of its top folder."""
    with tarfile.open(archive) as tar:
        for member in tar:
            top, _, rest = member.name.partition("/")
            if top and (rest == "test" or rest.startswith("test/")):
                member.name = rest
                tar.extract(member, target, filter="data")


def fetch() -> Path:
    """Return the folder with PyTorch's tests; get them if they are not there yet."""
    tests, stamp = FOLDER / "test", FOLDER / "version"
    if stamp.is_file() and stamp.read_text() == VERSION and tests.is_dir():
        return tests
    where = f"PyTorch's tests come with Debian's source package {PACKAGE} {VERSION}"
    if shutil.which("apt-get") is None:
        raise StepError(f"{where}, and this machine has no apt-get.")
    if not KEYRING.is_file():
        raise StepError(f"{where}, signed by a key in {KEYRING}, which this machine lacks.")
    mirror = os.environ.get("HOLOGRAM_DEBIAN_MIRROR") or debian_mirror()
    if mirror is None:
        raise StepError(
            f"{where}, and /etc/apt names no mirror of Debian. HOLOGRAM_DEBIAN_MIRROR can name one,"
            " such as http://deb.debian.org/debian."
        )
    apt = _apt(FOLDER / "apt", mirror)
    download = FOLDER / "download"
    download.mkdir(parents=True, exist_ok=True)
    # An update that reaches nobody only warns, unless it is told that this is an error.
    update = [*apt, "-oAPT::Update::Error-Mode=any", "update"]
    try:
        step(f"lists of sources of {SUITE}", update, log_name="upstream-update")
        source = [*apt, "source", "--download-only", f"{PACKAGE}={VERSION}"]
        step(f"sources of {PACKAGE} {VERSION}", source, log_name="upstream-source", cwd=download)
    except StepError as error:
        raise StepError(f"{error}\n{where}, which could not be had from {mirror}.") from None
    archives = list(download.glob(f"{PACKAGE}_*.orig.tar.*"))
    if len(archives) != 1:
        raise StepError(f"{where}; in {download} are {len(archives)} archives instead of one.")
    shutil.rmtree(tests, ignore_errors=True)
    _unpack(archives[0], FOLDER)
    stamp.write_text(VERSION)
    shutil.rmtree(download)
    say(f"         unpacked into {tests.relative_to(ROOT)}")
    return tests
