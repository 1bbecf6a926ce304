# SPDX-License-Identifier: MIT
"""Random calls of all that hologram has, with wrong dtypes, shapes, axes and strings.

    python tests/fuzz/random_calls.py [--calls N] [--seed S] [--first I] [--log FILE]

Call I of seed S is the same everywhere. Nothing may crash, and what is raised is what a user's
error is: TypeError, ValueError, IndexError and the like, or what NumPy raises for the same call on
arrays. Prints one line for each fault, and `N calls, F faults`. A crash is named by FILE, which
holds the call that runs.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import mmap
import os
import random
import resource
import signal
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from arguments import Arguments, build, foreign, has_tensor, largest, show

import hologram as hg

# Of LinAlgError, AxisError, UnicodeError, ... these are the bases.
USERS_ERRORS = (TypeError, ValueError, IndexError, OverflowError, NotImplementedError)
MEMORY_LIMIT = 4 << 30
SECONDS_A_CALL = 10
SECONDS_OF_MANY = 120

# They read and write files, change settings, or (show_config) print.
NO_CALL = {
    "save", "savez", "savez_compressed", "savetxt", "load", "loadtxt", "genfromtxt", "fromfile",
    "fromregex",
    "tofile", "dump", "memmap", "show_config", "show_runtime", "set_printoptions", "setbufsize",
    "seterr",
    "cpu_info", "version", "get_include", "get_cmake_dir", "test", "info", "may_share_memory",
    # Their time is as large as the numbers that they are given, or larger.
    "shares_memory", "resize", "polyfit",
}  # fmt: skip


# NumPy itself ends the process on some of these calls, so it is not asked what it does.
NO_ORACLE = {
    "np.cumprod", "np.cumsum", "np.cumulative_prod", "np.cumulative_sum", "np.nancumprod",
    "np.nancumsum",
    "np.repeat", "np.tile", "Tensor.cumprod", "Tensor.cumsum", "Tensor.repeat",
}  # fmt: skip


@dataclass(frozen=True)
class Target:
    """Something to call, on tensors and, where NumPy has it, on arrays."""

    name: str
    call: Callable[..., Any]
    numpys: Callable[..., Any] | None = None
    is_method: bool = False


def _method(name: str) -> Callable[..., Any]:
    return lambda self, *args, **options: getattr(self, name)(*args, **options)


def _get(name: str) -> Callable[..., Any]:
    return lambda self, *_, **__: getattr(self, name)


def _set(name: str) -> Callable[..., Any]:
    return lambda self, value: setattr(self, name, value)


def targets() -> list[Target]:
    """Return all that is called, by name."""
    found: list[Target] = []
    for module in (hg, hg.linalg, hg.fft):
        short = module.__name__.replace("hologram", "hg")
        for name in module.__all__:
            function = getattr(module, name)
            if callable(function) and name not in NO_CALL and name not in ("Buffer", "Executor"):
                found.append(Target(f"{short}.{name}", function))
    skipped = {"__class__", "__init_subclass__", "__subclasshook__", "__new__", "__init__",
    "__dir__",
               "__getattribute__", "__setattr__", "__delattr__", "__reduce_ex__", "__doc__",
               "__sizeof__",
               "__getstate__", "__array_ufunc__", "__array_function__",
               # They import libraries that may be missing.
               "__arrow_array__", "__dask_tokenize__", "__jax_array__"}  # fmt: skip
    for name in dir(hg.Tensor):
        if (name.startswith("_") and not name.startswith("__")) or name in skipped | NO_CALL:
            continue
        same = _method(name) if hasattr(np.ndarray, name) else None
        if callable(getattr(hg.Tensor, name)):
            found.append(Target(f"Tensor.{name}", _method(name), same, True))
        else:
            found.append(Target(f"Tensor.{name}", _get(name), None, True))
    found += [
        Target(f"Tensor.{name}=", _set(name), _set(name), True)
        for name in ("real", "imag", "flat", "shape", "dtype", "T", "nothing")
    ]
    for module, short in ((np, "np"), (np.linalg, "np.linalg"), (np.fft, "np.fft")):
        for name in dir(module):
            function = getattr(module, name)
            if name.startswith("_") or name in NO_CALL:
                continue
            if isinstance(function, np.ufunc):
                found.append(Target(f"{short}.{name}", function, function))
                for part in ("reduce", "accumulate", "outer", "reduceat", "at"):
                    method = getattr(function, part)
                    found.append(Target(f"{short}.{name}.{part}", method, method))
            elif hasattr(function, "_implementation"):
                found.append(Target(f"{short}.{name}", function, function))
    return sorted(found, key=lambda target: target.name)


def groups(names: str | None) -> list[list[Target]]:
    """Return the targets in groups that are called equally often, or only those named."""
    every = targets()
    if names is not None:
        return [[target for target in every if target.name in names.split(",")]]
    found: dict[str, list[Target]] = {}
    for target in every:
        kind = target.name.split(".")[0]
        if isinstance(target.call, np.ufunc):
            kind = "ufuncs"
        elif isinstance(getattr(target.call, "__self__", None), np.ufunc):
            kind = "methods of ufuncs"
        found.setdefault(kind, []).append(target)
    return list(found.values())


class TimeOut(BaseException):
    """Raised where a call takes too long."""


_armed = False


def _late(*_: Any) -> None:
    if _armed:
        raise TimeOut


def run(call: Callable[..., Any], args: Any, options: Any) -> BaseException | None:
    """Call, look at the result, and return what is raised."""
    global _armed
    _armed = True
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS_A_CALL)
    try:
        found = call(*args, **options)
        look(found)
        if found is NotImplemented:
            return AssertionError("NotImplemented came back")
    except (Exception, TimeOut) as error:
        return error
    finally:
        _armed = False
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return None


def look(found: Any) -> None:
    """Compute what waits in a result."""
    if isinstance(found, hg.Tensor):
        if found.size < 1_000_000:
            found._peek()
    elif isinstance(found, (tuple, list)):
        for part in found[:20]:
            look(part)


def is_fault(error: BaseException, target: Target, args: Any, options: Any) -> bool:
    """Return whether a user must not see `error`."""
    if isinstance(error, USERS_ERRORS) and not target.name.startswith("np."):
        return False
    if isinstance(error, AttributeError) and target.name.endswith("="):
        return False  # Python's own of what cannot be set
    if isinstance(error, MemoryError) and largest((args, options)) > 100_000:
        return False
    if isinstance(error, TimeOut) and target.numpys and largest((args, options)) > 1e8:
        return False  # NumPy's own work on gigabytes
    if isinstance(error, BufferError) and ("dlpack" in target.name or target.name == "Tensor.data"):
        return False  # by the protocol, and of dtypes that it has no format for
    if target.name.startswith("Tensor.__") and str(error) == "NotImplemented came back":
        return False  # by Python's protocol
    unsure = target.name in NO_ORACLE or target.name.endswith(".accumulate")
    if target.numpys is None or (unsure and isinstance(error, USERS_ERRORS)):
        return not isinstance(error, USERS_ERRORS)
    # What NumPy raises for arrays, or a kind of it; of two faults it may name the other.
    theirs = run(target.numpys, build(args, np), build(options, np))
    if isinstance(error, USERS_ERRORS):
        return theirs is None and not foreign(args) and not foreign(options)
    return not isinstance(theirs, type(error))


def repeat(seed: int, first: int, calls: int, names: str | None, log: mmap.mmap | None) -> int:
    """Run calls, print the faults, and return their number."""
    every = groups(names)
    faults = 0
    for number in range(first, first + calls):
        if number % 500 == 0:
            # A call that no signal interrupts.
            faulthandler.dump_traceback_later(SECONDS_OF_MANY, exit=True)
        rng = random.Random(seed * 1_000_003 + number)
        target = rng.choice(rng.choice(every))
        args, options = Arguments(rng).of(target.name, target.call, target.is_method)
        if target.name.startswith("np.") and not has_tensor((args, options)):
            continue  # none of hologram's business
        if log is not None:
            line = f"call {number} of seed {seed}: {target.name}{show(args, options)}"
            log[:] = line.encode("utf8", "replace")[: len(log)].ljust(len(log))
        try:
            given = build(args, hg), build(options, hg)
        except MemoryError:
            continue
        error = run(target.call, *given)
        del given
        if error is not None and is_fault(error, target, args, options):
            faults += 1
            told = f"{type(error).__name__}: {str(error)[:200]}".replace("\n", " ")
            print(f"fault: call {number}: {target.name}{show(args, options)}: {told}", flush=True)
    return faults


def prime_numpys_loops() -> None:
    """Let every ufunc find the loops of arrays and small ints first.

    NumPy 2.4 keeps what a failed call with an int beyond int64 and an `out` of bfloat16 found, and
    then takes ints that do not fit: the oracle would depend on the calls before.
    """
    for name in dir(np):
        ufunc = getattr(np, name)
        if not isinstance(ufunc, np.ufunc) or ufunc.nin != 2 or ufunc.signature is not None:
            continue
        for code in "?bBhHiIlLefdFD":
            for operands in ((np.ones(1, code), 1), (1, np.ones(1, code))):
                with contextlib.suppress(TypeError):
                    ufunc(*operands)


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--names", help="only these targets, with commas between")
    parser.add_argument("--log", help="a file for the call that runs")
    given = parser.parse_args()
    faulthandler.enable()
    signal.signal(signal.SIGVTALRM, _late)
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    prime_numpys_loops()
    # OpenBLAS takes its memory at its first call, and ends the process where there is none.
    np.linalg.inv(np.eye(100) @ np.eye(100))
    hg.matmul(hg.ones((100, 100)), hg.ones((100, 100))).tolist()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    log = None
    if given.log:
        file = os.open(given.log, os.O_RDWR | os.O_CREAT)
        os.ftruncate(file, 4096)
        log = mmap.mmap(file, 4096)
    faults = repeat(given.seed, given.first, given.calls, given.names, log)
    print(f"{given.calls} calls, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
