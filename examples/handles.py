# SPDX-License-Identifier: MIT
"""Handles from Python: vectors, a loss and a product, JSON, and memory shared with NumPy.

The same calls as in C (examples/c/vector_add.c), under the same names.
"""

from __future__ import annotations

import json
import time

import hologram_ffi as ffi
import numpy as np

N = 4096


def main() -> None:
    """Run each part and print what came out."""
    ex = ffi.new_executor_auto()
    print(f"hologram {ffi.get_version()} on {ffi.executor_backend(ex)}")

    a, b, c = (ffi.executor_allocate_buffer(ex, N) for _ in range(3))
    x, y = np.arange(N, dtype=np.float32), np.full(N, 0.5, np.float32)
    ffi.buffer_copy_from_bytes(ex, a, x)
    ffi.buffer_copy_from_bytes(ex, b, y)
    ffi.vector_add_f32(ex, a, b, c, N)
    ffi.scalar_mul_f32(ex, c, c, N, 2.0)
    z = np.frombuffer(ffi.buffer_to_bytes(ex, c), np.float32)
    print(f"2 (x + y) as NumPy has it: {np.array_equal(z, 2 * (x + y))}")

    loss = ffi.executor_allocate_buffer(ex, 3)
    value = ffi.mse_loss_f32(ex, c, a, loss, N)
    print(f"mean squared distance from x: {value:.6g}, as {ffi.buffer_to_vec(ex, loss)}")

    # JSON, for those who have nothing else; every bit of a float32 survives.
    matrix, vector, product = (ffi.executor_allocate_buffer(ex, n) for n in (6, 3, 2))
    ffi.buffer_copy_from_slice(ex, matrix, json.dumps([1, 2, 3, 4, 5, 6]))
    ffi.buffer_copy_from_slice(ex, vector, "[1, 0, -1]")
    ffi.matvec_f32(ex, matrix, vector, product, 2, 3)
    print(f"a matrix of 2 x 3 times a vector of 3: {ffi.buffer_to_vec(ex, product)}")

    # No copy at all: NumPy looks at the buffer's own memory.
    view = np.from_dlpack(ffi.HologramTensor.from_buffer(c, (64, 64)))
    ffi.buffer_fill(ex, c, 7.0)
    print(f"NumPy sees what is written: {bool((view == 7).all())}")

    try:
        ffi.vector_add_f32(ex, a, b, c, N + 1)
    except ValueError as error:
        print(f"refused: {error}")

    p, q, r = (ffi.executor_allocate_buffer(ex, 16) for _ in range(3))
    for handle in (p, q):
        ffi.buffer_fill(ex, handle, 1.0)
    calls, seconds = 10_000, []
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(calls):
            ffi.vector_add_f32(ex, p, q, r, 16)
        ffi.executor_synchronize(ex)
        seconds.append((time.perf_counter() - start) / calls)
    print(f"an op on 16 elements: {min(seconds) * 1e9:.0f} ns")
    ffi.clear_all_registries()


if __name__ == "__main__":
    main()
