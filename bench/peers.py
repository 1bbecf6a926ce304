# SPDX-License-Identifier: MIT
"""Others that do the same work on the same inputs: torch.compile, NumPy, JAX."""

from __future__ import annotations

import atexit
import functools
import importlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bench.core import Side, Unavailable, Work, tensors_of
from bench.inputs import expression_work
from bench.native import compiler

COMPILE, NUMPY, JAX = "torch.compile", "NumPy", "JAX"
HAND, LIMIT = "hand-fused", "memory limit"


@functools.cache
def prepare_compile() -> None:
    """Make torch.compile start from nothing, so that its first calls are what a new user sees."""
    compiler()
    folder = tempfile.mkdtemp(prefix="bench-inductor-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
    # Compiler processes that wait for work would take part in the measurement.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)


def compile_function(function: Callable[..., Any], fullgraph: bool = True) -> Callable[..., Any]:
    """Return the function compiled for the shapes it is called with.

    What was compiled earlier is forgotten: a function that has been compiled for many shapes falls
    back to eager without a word.
    """
    prepare_compile()
    torch._dynamo.reset()
    compiled: Callable[..., Any] = torch.compile(function, dynamic=False, fullgraph=fullgraph)
    return compiled


def compile_work(
    function: Callable[..., Any],
    names: Sequence[str],
    sets: Sequence[Sequence[Any]],
    side: Side,
    result_bytes: int,
) -> Work:
    """Return work that calls the compiled function once for each set."""
    compiled = compile_function(function)
    work = expression_work(
        f"f({', '.join(names)})", names, sets, side, result_bytes, {"f": compiled}
    )
    compute = work.outputs
    assert compute is not None

    def outputs() -> Any:
        try:
            return compute()
        except Exception as error:  # the function itself has run: this is the compiler's failure
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise Unavailable(f"torch.compile failed: {lines[0]}"[:300]) from error

    work.outputs = outputs
    return work


def erf(name: str) -> Callable[[Any], Any]:
    """Return the error function for arrays, which NumPy itself lacks."""
    module = "scipy.special" if name == NUMPY else "jax.scipy.special"
    try:
        found: Callable[[Any], Any] = importlib.import_module(module).erf
    except ImportError as error:
        raise Unavailable(f"{module}, which has erf, is not installed") from error
    return found


def numpy_work(
    function: Callable[..., Any],
    names: Sequence[str],
    sets: Sequence[Sequence[Tensor]],
    side: Side,
    result_bytes: int,
) -> Work:
    """Return work on NumPy arrays that share the tensors' memory."""
    arrays = [[t.numpy() for t in tensors] for tensors in sets]
    work = expression_work(
        f"f({', '.join(names)})", names, arrays, side, result_bytes, {"f": function}
    )
    return _with_tensors(work)


def jax_work(
    function: Callable[..., Any],
    names: Sequence[str],
    sets: Sequence[Sequence[Tensor]],
    side: Side,
    result_bytes: int,
) -> Work:
    """Return work by a jitted function on JAX's own arrays."""
    try:
        jax = importlib.import_module("jax")
    except ImportError as error:
        raise Unavailable("jax is not installed") from error
    cpu = jax.devices("cpu")[0]
    arrays = [[jax.device_put(t.numpy(), cpu) for t in tensors] for tensors in sets]
    compiled = jax.jit(function)

    def waiting(*operands: Any) -> Any:
        return jax.block_until_ready(compiled(*operands))

    # Small results are waited for together, as on every other side; large ones one by one.
    work = expression_work(
        f"f({', '.join(names)})",
        names,
        arrays,
        side,
        result_bytes,
        {"f": compiled if result_bytes * len(sets) <= 256 * 1024 else waiting},
    )
    run = work.run
    return _with_tensors(Work(lambda: jax.block_until_ready(run()), work.ops, work.outputs))


def _with_tensors(work: Work) -> Work:
    """Make what is compared tensors."""
    compute = work.outputs
    assert compute is not None

    def outputs() -> list[Tensor]:
        results = compute()
        arrays = results if isinstance(results, tuple | list) else [results]
        return tensors_of([torch.from_numpy(np.array(a)) for a in arrays])

    return Work(work.run, work.ops, outputs)
