// SPDX-License-Identifier: MIT
// Chooses who computes a product.
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>

#include "src/cpu/gemm/bfloat16_dots.h"
#include "src/cpu/gemm/gemm_builtin.h"
#include "src/cpu/gemm/gemm_provider.h"
#include "src/cpu/gemm/gemm_tiles.h"
#include "src/cpu/gemm/vector_product.h"

namespace hologram::cpu {
namespace {

// Up to so many multiplications the built-in GEMM is chosen: it begins sooner, and what reads the
// product joins its blocks. Some fifty microseconds.
constexpr int64_t kSmall = int64_t{1} << 22;
// With at most this many rows times a weight, whose rows lie along k, the built-in GEMM is at least
// as fast as a BLAS: it reads the weight in place, where a BLAS packs it.
constexpr int64_t kRowsOfWeight = 128;
// For fewer rows than kFewRows (see is_sum_of_dots()) a fast BLAS takes down to 0.7 of the time,
// unless the other operand has fewer than kManyElements, or at least kMostElements and comes from
// memory.
constexpr int64_t kFewRows = 16;
constexpr int64_t kManyElements = int64_t{1} << 15, kMostElements = int64_t{1} << 20;
// The provider computes large products where it takes less than this share of the built-in GEMM's
// time. Else the built-in GEMM's products are worth more: they begin sooner, and what reads them
// joins their blocks. On an Intel processor with AVX-512 whole models were faster with the built-in
// GEMM (1.40 and 1.73 times PyTorch in inference and training, 1.14 and 1.25 with the BLAS). A BLAS
// that uses the same vectors took 0.86 to 1.1 of the time on the machines measured, 2 where it
// leaves some unused, and less than 0.2 where it has AMX for half types: the bound lies in a gap,
// because a process whose neighbours made it choose otherwise would have other bits than the one
// before.
constexpr double kFasterShare = 0.75;
constexpr int64_t kTried = 384;
// The fastest of 4 is off by up to a tenth, that of 16 by a hundredth (ten processes on a busy
// machine). More than 4 are tried where the share could be on either side.
constexpr int kRounds = 16, kFewRounds = 4;
constexpr double kClearlyFaster = 0.65, kClearlySlower = 0.9;

// The built-in GEMM converts the half types to float32, B as it reads it, and back, an element in
// the time of some ten multiplications. A BLAS begins some fifteen microseconds later.
constexpr int64_t kSmallHalf = int64_t{1} << 20, kPerConversion = 10;

bool suits_builtin(const GemmArgs& g, int64_t batch) {
  if (is_vector_product(g) || is_bfloat16_dots(g, g.dtype)) return true;
  if (itemsize(g.dtype) == 2) {
    const int64_t converted = g.m * g.k + g.k * g.n + g.m * g.n;
    return batch * (g.m * g.n * g.k + kPerConversion * converted) < kSmallHalf;
  }
  const int64_t narrow = std::min(g.m, g.n), wide = std::max(g.m, g.n);
  if (g.trans_b && narrow < kFewRows) {
    const int64_t elements = wide * g.k;
    return elements < kManyElements || elements >= kMostElements;
  }
  if (g.trans_b && !g.trans_a && g.m <= kRowsOfWeight) return true;
  return effective_work(g.m, g.n, g.k) < kSmall;
}

using GemmFunction = void (*)(const GemmArgs& args);

// The processor time of this thread: a clock on the wall counts what other processes do meanwhile.
// A provider that does not keep to one thread looks faster than it is by either.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds(GemmFunction product, const GemmArgs& g) {
  const double begin = thread_seconds();
  product(g);
  return thread_seconds() - begin;
}

// Whether `theirs` takes clearly less time for operands of `dtype` than the built-in GEMM for those
// of `ours`. On one thread, in turn, the fastest of a few: what other processes do changes the
// answer little.
bool measure_faster(GemmFunction theirs, Dtype dtype, Dtype ours) {
  const size_t bytes = static_cast<size_t>(kTried * kTried) * sizeof(double);
  const auto memory = std::make_unique<char[]>(3 * bytes);
  GemmArgs g;
  g.dtype = dtype;
  g.m = g.n = g.k = g.lda = g.ldb = g.ldc = kTried;
  g.a = memory.get(), g.b = memory.get() + bytes, g.c = memory.get() + 2 * bytes;
  g.max_threads = 1;
  GemmArgs builtin = g;
  builtin.dtype = ours;
  double their_time = std::numeric_limits<double>::infinity(), our_time = their_time;
  for (int i = 0; i < kRounds; ++i) {
    their_time = std::min(their_time, seconds(theirs, g));
    our_time = std::min(our_time, seconds(builtin_gemm().gemm, builtin));
    const bool is_clear =
        their_time < kClearlyFaster * our_time || their_time > kClearlySlower * our_time;
    if (i + 1 >= kFewRounds && is_clear) break;
  }
  return their_time < kFasterShare * our_time;
}

// What was measured last for a dtype: the address of the provider, which is its own for the life of
// the process, and in the lowest bit whether it is fast. The first of several threads settles it; a
// lock would stay taken in the child of a fork.
using Known = std::atomic<uintptr_t>[kDtypeCount];

bool is_faster(Known& known, const GemmProvider& provider, GemmFunction product, Dtype dtype,
               Dtype ours) {
  static_assert(alignof(GemmProvider) > 1);
  const auto address = reinterpret_cast<uintptr_t>(&provider);
  std::atomic<uintptr_t>& word = known[static_cast<int>(dtype)];
  uintptr_t found = word.load(std::memory_order_relaxed);
  if ((found | 1) != (address | 1)) {
    const uintptr_t measured = address | (measure_faster(product, dtype, ours) ? 1 : 0);
    if (word.compare_exchange_strong(found, measured)) found = measured;
    if ((found | 1) != (address | 1)) return (measured & 1) != 0;
  }
  return (found & 1) != 0;
}

}  // namespace

const GemmProvider& provider_of_large(Dtype dtype) {
  static Known known;
  const GemmProvider& provider = provider_for(dtype);
  return provider.only_where_faster && !is_faster(known, provider, provider.gemm, dtype, dtype)
             ? builtin_gemm()
             : provider;
}

const GemmProvider* provider_to_float(Dtype dtype) {
  static Known known;
  const GemmProvider& provider = provider_for(dtype);
  const GemmFunction product = provider.gemm_to_float;
  const bool is_used =
      product != nullptr &&
      (!provider.only_where_faster || is_faster(known, provider, product, dtype, Dtype::kFloat32));
  return is_used ? &provider : nullptr;
}

const GemmProvider& provider_for(const GemmArgs& g, int64_t batch) {
  const GemmProvider& provider = provider_for(g.dtype);
  if (provider.only_where_faster && suits_builtin(g, batch)) return builtin_gemm();
  return provider_of_large(g.dtype);
}

void run_products(const GemmProvider& provider, const GemmArgs& args, int64_t batch,
                  BatchStrides strides) {
  if (provider.one_thread) {
    run_tiles(provider, args, batch, strides);
  } else if (batch > 1 && provider.gemm_batched != nullptr) {
    provider.gemm_batched(args, batch, strides.a, strides.b, strides.c);
  } else {
    const int64_t size = static_cast<int64_t>(itemsize(args.dtype));
    GemmArgs g = args;
    for (int64_t i = 0; i < batch; ++i) {
      g.a = static_cast<const char*>(args.a) + i * strides.a * size;
      g.b = static_cast<const char*>(args.b) + i * strides.b * size;
      g.c = static_cast<char*>(args.c) + i * strides.c * size;
      provider.gemm(g);
    }
  }
}

}  // namespace hologram::cpu
