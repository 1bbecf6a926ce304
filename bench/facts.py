# SPDX-License-Identifier: MIT
"""What was measured where: the machine, the programs, and how the peers are set up."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.core import Setting
from bench.machine import ROOT, cores, die_with_parent, first_line_of, processor

# Variables that change how a side runs, of whatever value.
_VARIABLES = re.compile(r"^(HOLOGRAM|OMP|KMP|MKL|OPENBLAS|DNNL|ONEDNN|ATEN|TORCH|XLA|GOMP)_")
# What makes MKL and oneDNN say at their first call what they picked.
_TELL = {"MKL_VERBOSE": "1", "ONEDNN_VERBOSE": "1"}
_MULTIPLY = (
    "import torch; x = torch.ones(64, 64); x @ x;"
    "torch.nn.functional.conv2d(torch.ones(1, 3, 8, 8), torch.ones(4, 3, 3, 3))"
)


_SETS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


def _output(*command: str, **options: Any) -> str:
    """Return what a program writes; nothing where it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, **options)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _git(*arguments: str) -> str:
    return _output("git", "-C", str(ROOT), *arguments)


def environment(setting: Setting) -> dict[str, str]:
    """Return the variables with which a process is started that has these threads."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    # OpenBLAS's threads spin for 2^20 cycles after a product, not for 2^26, which are 27 ms.
    spin = {"OPENBLAS_THREAD_TIMEOUT": "20"}
    return {**os.environ, **spin, **dict.fromkeys(names, str(setting.threads))}


def machine_facts(device: str, machine: str = "") -> dict[str, Any]:
    """Describe the machine and the programs measured; nothing that names the host or a user."""
    import numpy as np
    import torch

    flags = first_line_of("/proc/cpuinfo", "flags").split()
    known: dict[str, Any] = {
        "machine": machine or f"{processor()}, {len(cores())} cores",
        "processor": processor(),
        "cores": len(cores()),
        "memory": first_line_of("/proc/meminfo", "MemTotal"),
        "instruction_sets": [f for f in _SETS if f in flags],
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "device": device,
        "commit": _git("rev-parse", "--short", "HEAD"),
        "modified": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "time": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "load_at_start": os.getloadavg()[0],
    }
    blas = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    known["torch BLAS"] = blas.group(1) if blas else "unknown"
    known["torch kernels"] = torch.backends.cpu.get_cpu_capability()
    known |= _verbose()
    known["numpy BLAS"] = _numpy_blas(np)
    known["environment"] = {k: v for k, v in sorted(os.environ.items()) if _VARIABLES.match(k)}
    if device.startswith("hologram"):
        import hologram_torch

        known["hologram"] = getattr(hologram_torch, "__version__", "")
        known["execution"] = hologram_torch.execution.mode()
    return known


def _verbose() -> dict[str, str]:
    """Ask MKL and oneDNN themselves: what they use is not what the processor has."""
    variables = {**os.environ, **_TELL, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    command = (sys.executable, "-c", _MULTIPLY)
    return read_verbose(_output(*command, env=variables, preexec_fn=die_with_parent))


def read_verbose(text: str) -> dict[str, str]:
    """Return what MKL and oneDNN say about themselves in their verbose output."""
    found = {}
    mkl = re.search(
        r"^MKL_VERBOSE (?:Intel\(R\) )?(?:one)?MKL (\S+).*?"
        r"architecture\s+(.*?)(?:, (?:Lnx|Win|OSX)| enabled|$)",
        text,
        re.MULTILINE,
    )
    if mkl:
        found["MKL"] = f"{mkl.group(1)}, {_plain(mkl.group(2))}"
        found["MKL uses AVX-512"] = "yes" if re.search(r"AVX-?512|AVX10", mkl.group(2)) else "no"
    dnn = re.search(r"^onednn_verbose,.*?info,oneDNN (v[\w.]+)", text, re.MULTILINE)
    isa = re.search(r"^onednn_verbose,.*?info,cpu,isa:(.*)$", text, re.MULTILINE)
    if isa:
        version = f"{dnn.group(1)}, " if dnn else ""
        found["oneDNN"] = version + _plain(isa.group(1))
    return found


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text.replace("(R)", "").replace("(TM)", "")).strip()


def _numpy_blas(np: Any) -> str:
    """Return NumPy's BLAS; by threadpoolctl, which asks the library, where that is installed."""
    try:
        import threadpoolctl
    except ImportError:
        built = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return f"{built.get('name', 'unknown')} {built.get('version', '')}".strip()
    own = f"{Path(np.__file__).parent.parent}/numpy"
    for found in threadpoolctl.threadpool_info():
        if found["user_api"] == "blas" and str(found["filepath"]).startswith(own):
            named = f"{found['internal_api']} {found.get('version', '')}"
            return f"{named}, {found.get('architecture', '')}"
    return "unknown"


def setting_facts(device: str) -> dict[str, Any]:
    """Describe this process: its cores and threads, and what the device picked in it."""
    import torch

    found: dict[str, Any] = {
        "affinity": affinities(),
        "torch_threads": torch.get_num_threads(),
        "numpy_threads": os.environ.get("OPENBLAS_NUM_THREADS", ""),
    }
    if device.startswith("hologram"):
        import hologram

        found["isa"] = hologram.cpu_info()["isa"]
        found["gemm"] = _gemm_provider()
        found["worker"] = "hologram-worker" in _of_threads(_thread_name)
    return found


def _gemm_provider() -> str:
    from bench import native
    from bench.core import Unavailable

    try:
        return native.gemm_provider()
    except Unavailable as error:
        return f"unknown: {error}"


def _of_threads(look: Callable[[int], Any]) -> list[Any]:
    """Look at every thread of this process."""
    found = []
    for task in os.listdir("/proc/self/task"):
        with suppress(OSError):  # the thread has ended
            found.append(look(int(task)))
    return found


def _thread_name(task: int) -> str:
    return Path(f"/proc/self/task/{task}/comm").read_text().strip()


def affinities() -> list[int]:
    """Return every core that some thread of this process may use."""
    return sorted(set().union(*_of_threads(os.sched_getaffinity)))
