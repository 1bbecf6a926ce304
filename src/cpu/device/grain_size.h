// SPDX-License-Identifier: MIT
// How much work a chunk, another thread and a streaming store are worth.
#pragma once

#include <algorithm>
#include <cstdint>

#include "hologram/parallel.h"

namespace hologram::cpu {

// The threads that a call may use: what it asks for, or as many as there are.
inline int threads_of(int max_threads) { return max_threads > 0 ? max_threads : num_threads(); }

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Results of at least this many bytes are written past the caches: they would only push out the
// inputs.
inline constexpr int64_t kStreamBytes = int64_t{8} << 20;

// Elements a thread claims at a time: some ten microseconds of work, so that claiming costs nothing
// and a preempted thread holds little.
constexpr int64_t grain(bool heavy) { return heavy ? 8192 : 32768; }

// Chunks begin at multiples of this: the largest group in which random numbers are made, which must
// not be cut in two, or the values would depend on the number of threads.
inline constexpr int64_t kWhole = 64;

// Runs f(begin, end) over [0, n), about `chunk` at a time; on the caller alone when there are fewer
// than two chunks. A few chunks are made equal and as many as the threads share evenly, or one
// thread would do twice its part.
template <class F>
void for_chunks(int64_t n, int64_t chunk, int max_threads, F&& f) {
  int64_t chunks = ceil_div(n, chunk);
  if (chunks < 2 || max_threads <= 1) {
    f(int64_t{0}, n);
    return;
  }
  if (chunks < 8 * int64_t{max_threads} && n >= 64 * int64_t{max_threads}) {
    chunks = (chunks + max_threads - 1) / max_threads * max_threads;
    chunk = ((n + chunks - 1) / chunks + kWhole - 1) / kWhole * kWhole;
    chunks = (n + chunk - 1) / chunk;
  }
  parallel_for(chunks, max_threads, [&](int64_t begin, int64_t end, int) {
    f(begin * chunk, std::min(n, end * chunk));
  });
}

}  // namespace hologram::cpu
