# SPDX-License-Identifier: MIT
"""Others that do the same work on the same inputs: torch.compile, NumPy, JAX."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bench.core import Unavailable, Work, library
from bench.inputs import Op, is_small
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


def compile_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function compiled for the shapes it is called with.

    What was compiled earlier is forgotten: a function that has been compiled for many shapes falls
    back to eager without a word.
    """
    prepare_compile()
    torch._dynamo.reset()
    compiled: Callable[..., Any] = torch.compile(function, dynamic=False, fullgraph=True)
    return compiled


def compile_work(function: Callable[..., Any], op: Op, context: Any, size: int) -> Work:
    """Return work that calls the compiled function once for each set of an op's operands."""
    work = op.work(context, context.cpu, size, f=compile_function(function))
    compute = work.outputs or work.run

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
    found: Callable[[Any], Any] = library(module, ", which has erf,").erf
    return found


def numpy_work(arrays: Callable[..., Any], op: Op, context: Any, size: int) -> Work:
    """Return work on NumPy arrays that share the tensors' memory."""
    by_numpy = functools.partial(arrays, np)
    work = op.work(context, context.cpu, size, each=Tensor.numpy, f=by_numpy)
    return _with_tensors(work)


def jax_work(arrays: Callable[..., Any], op: Op, context: Any, size: int) -> Work:
    """Return work by a jitted function on JAX's own arrays."""
    jax = library("jax")
    compiled = jax.jit(functools.partial(arrays, library("jax.numpy")))
    cpu = jax.devices("cpu")[0]

    def waiting(*operands: Any) -> Any:
        return jax.block_until_ready(compiled(*operands))

    def there(tensor: Tensor) -> Any:
        return jax.device_put(tensor.numpy(), cpu)

    # Small results are waited for together, as on every other side; large ones one by one.
    call = compiled if is_small(op.result_bytes(size), op.count(size)) else waiting
    work = op.work(context, context.cpu, size, each=there, f=call)
    run = work.run
    return _with_tensors(Work(lambda: jax.block_until_ready(run()), work.ops, work.outputs))


def _with_tensors(work: Work) -> Work:
    """Make what is compared tensors."""
    compute = work.outputs or work.run

    def outputs() -> list[Tensor]:
        results = compute()
        arrays = results if isinstance(results, tuple | list) else [results]
        return [torch.from_numpy(np.array(a)) for a in arrays]

    return Work(work.run, work.ops, outputs)
