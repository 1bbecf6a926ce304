// SPDX-License-Identifier: MIT
// The chains of the suite, each fused by hand into one loop over memory that is already there.
//
// This is what a perfect fuser would run: no call overhead, no allocation, no intermediate in
// memory. bench/native.py compiles it for the machine at hand when the suite runs. The constants
// are those of bench/areas/chains.py; results are compared before anything is timed.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <thread>
#include <vector>

#if defined(__SSE__)
#include <immintrin.h>
#endif

namespace {

using Operands = float* const*;  // the inputs, then the outputs
// Computes rows [begin, end) of `columns` elements each.
using Kernel = void (*)(Operands o, int64_t columns, int64_t begin, int64_t end);

void five_op(Operands o, int64_t columns, int64_t begin, int64_t end) {
  const float* __restrict a = o[0];
  const float* __restrict b = o[1];
  float* __restrict out = o[2];
  for (int64_t i = begin * columns; i < end * columns; ++i) {
    const float sum = a[i] * b[i] + a[i];
    out[i] = (sum > 0.0f ? sum : 0.0f) * 2.0f + b[i];
  }
}

void layer_norm(Operands o, int64_t columns, int64_t begin, int64_t end) {
  const float* __restrict scale = o[1];
  const float* __restrict shift = o[2];
  for (int64_t row = begin; row < end; ++row) {
    const float* __restrict x = o[0] + row * columns;
    float* __restrict out = o[3] + row * columns;
    float sum = 0.0f;
    for (int64_t i = 0; i < columns; ++i) sum += x[i];
    const float mean = sum / static_cast<float>(columns);
    float squares = 0.0f;
    for (int64_t i = 0; i < columns; ++i) squares += (x[i] - mean) * (x[i] - mean);
    const float factor = 1.0f / std::sqrt(squares / static_cast<float>(columns) + 1e-5f);
    for (int64_t i = 0; i < columns; ++i) out[i] = (x[i] - mean) * factor * scale[i] + shift[i];
  }
}

void rms_norm(Operands o, int64_t columns, int64_t begin, int64_t end) {
  const float* __restrict scale = o[1];
  for (int64_t row = begin; row < end; ++row) {
    const float* __restrict x = o[0] + row * columns;
    float* __restrict out = o[2] + row * columns;
    float squares = 0.0f;
    for (int64_t i = 0; i < columns; ++i) squares += x[i] * x[i];
    const float factor = 1.0f / std::sqrt(squares / static_cast<float>(columns) + 1e-6f);
    for (int64_t i = 0; i < columns; ++i) out[i] = x[i] * factor * scale[i];
  }
}

void swiglu(Operands o, int64_t columns, int64_t begin, int64_t end) {
  const float* __restrict gate = o[0];
  const float* __restrict up = o[1];
  float* __restrict out = o[2];
  for (int64_t i = begin * columns; i < end * columns; ++i) {
    out[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
  }
}

void black_scholes(Operands o, int64_t columns, int64_t begin, int64_t end) {
  constexpr float kRate = 0.02f;
  constexpr float kVolatility = 0.3f;
  constexpr float kRootHalf = 0.70710678f;
  const float* __restrict spot = o[0];
  const float* __restrict strike = o[1];
  const float* __restrict years = o[2];
  float* __restrict call = o[3];
  float* __restrict put = o[4];
  for (int64_t i = begin * columns; i < end * columns; ++i) {
    const float deviation = kVolatility * std::sqrt(years[i]);
    const float d1 =
        (std::log(spot[i] / strike[i]) + years[i] * (kRate + 0.5f * kVolatility * kVolatility)) /
        deviation;
    const float d2 = d1 - deviation;
    const float discounted = strike[i] * std::exp(years[i] * -kRate);
    const float p1 = 0.5f * (1.0f + std::erf(d1 * kRootHalf));
    const float p2 = 0.5f * (1.0f + std::erf(d2 * kRootHalf));
    const float value = spot[i] * p1 - discounted * p2;
    call[i] = value;
    put[i] = value - spot[i] + discounted;
  }
}

void adam(Operands o, int64_t columns, int64_t begin, int64_t end) {
  constexpr float kBeta1 = 0.9f;
  constexpr float kBeta2 = 0.999f;
  constexpr float kEpsilon = 1e-8f;
  // The tenth step at a learning rate of 0.001.
  const float correction = static_cast<float>(std::sqrt(1.0 - std::pow(0.999, 10)));
  const float step = static_cast<float>(0.001 / (1.0 - std::pow(0.9, 10)));
  float* __restrict parameter = o[0];
  const float* __restrict gradient = o[1];
  float* __restrict first = o[2];
  float* __restrict second = o[3];
  for (int64_t i = begin * columns; i < end * columns; ++i) {
    first[i] = kBeta1 * first[i] + (1.0f - kBeta1) * gradient[i];
    second[i] = kBeta2 * second[i] + (1.0f - kBeta2) * gradient[i] * gradient[i];
    parameter[i] -= step * first[i] / (std::sqrt(second[i]) / correction + kEpsilon);
  }
}

#if defined(__AVX512F__)
using Vector = __m512;
inline void store_past_cache(float* at, Vector value) { _mm512_stream_ps(at, value); }
#elif defined(__AVX__)
using Vector = __m256;
inline void store_past_cache(float* at, Vector value) { _mm256_stream_ps(at, value); }
#elif defined(__SSE__)
using Vector = __m128;
inline void store_past_cache(float* at, Vector value) { _mm_stream_ps(at, value); }
#else
using Vector __attribute__((vector_size(16))) = float;
inline void store_past_cache(float* at, Vector value) { *reinterpret_cast<Vector*>(at) = value; }
#endif
constexpr int64_t kLanes = sizeof(Vector) / sizeof(float);

// The memory limit: reads each of `Ins` arrays once and writes each of `Outs` once. Arrays are
// aligned to 64 bytes and whole vectors long.
template <int Ins, int Outs, bool PastCache>
void move(Operands o, int64_t columns, int64_t begin, int64_t end) {
  for (int64_t i = begin * columns; i < end * columns; i += kLanes) {
    Vector sum = *reinterpret_cast<const Vector*>(o[0] + i);
    for (int k = 1; k < Ins; ++k) sum += *reinterpret_cast<const Vector*>(o[k] + i);
    for (int k = 0; k < Outs; ++k) {
      if (PastCache) {
        store_past_cache(o[Ins + k] + i, sum);
      } else {
        *reinterpret_cast<Vector*>(o[Ins + k] + i) = sum;
      }
    }
  }
}

// bench/native.py names them in this order.
constexpr Kernel kKernels[] = {
    five_op,           layer_norm,
    rms_norm,          swiglu,
    black_scholes,     adam,
    move<1, 1, false>, move<1, 1, true>,
    move<2, 1, false>, move<2, 1, true>,
    move<3, 2, false>, move<3, 2, true>,
    move<4, 3, false>, move<4, 3, true>,
};

void relax() {
#if defined(__SSE__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

// Threads that take part in every run; between runs they spin briefly, then sleep.
class Pool {
 public:
  explicit Pool(int helpers) {
    for (int i = 0; i < helpers; ++i) threads_.emplace_back([this, i] { work(i + 1); });
  }
  ~Pool() {
    stop_ = true;
    announce();
    for (std::thread& thread : threads_) thread.join();
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  void run(Kernel kernel, Operands operands, int64_t columns, int64_t rows, int64_t unit) {
    kernel_ = kernel;
    operands_ = operands;
    columns_ = columns;
    rows_ = rows;
    unit_ = unit;
    left_.store(static_cast<int>(threads_.size()), std::memory_order_relaxed);
    announce();
    part(0);
    while (left_.load(std::memory_order_acquire) != 0) relax();
  }

 private:
  static constexpr int kSpins = 2000;

  void announce() {
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
  }

  void part(int index) {
    const int64_t units = (rows_ + unit_ - 1) / unit_;
    const int64_t parts = static_cast<int64_t>(threads_.size()) + 1;
    const int64_t begin = units * index / parts * unit_;
    const int64_t end = std::min(rows_, units * (index + 1) / parts * unit_);
    kernel_(operands_, columns_, begin, end);
  }

  void work(int index) {
    uint32_t seen = 0;
    for (;;) {
      for (int i = 0; i < kSpins && round_.load(std::memory_order_acquire) == seen; ++i) relax();
      round_.wait(seen, std::memory_order_acquire);
      ++seen;
      if (stop_) return;
      part(index);
      left_.fetch_sub(1, std::memory_order_release);
    }
  }

  Kernel kernel_ = nullptr;
  Operands operands_ = nullptr;
  int64_t columns_ = 0;
  int64_t rows_ = 0;
  int64_t unit_ = 1;
  std::atomic<bool> stop_ = false;
  std::atomic<uint32_t> round_ = 0;
  std::atomic<int> left_ = 0;
  std::vector<std::thread> threads_;  // last: threads use all of the above
};

// Fewer elements than this are not worth a second thread.
constexpr int64_t kLeastShared = 1 << 15;

}  // namespace

// Runs a kernel `passes` times over `sets` sets of `operands` arrays each; returns 0, or 1 for a
// kernel that there is not. Elementwise kernels take their elements as rows of one column.
extern "C" int hologram_bench_run(int kernel, float* const* arrays, int operands, int sets,
                                  int passes, int64_t rows, int64_t columns, int threads) {
  if (kernel < 0 || kernel >= static_cast<int>(std::size(kKernels))) return 1;
  const Kernel function = kKernels[kernel];
  static Pool* pool = nullptr;  // the caller is one thread; the last pool lives as long as we do
  static int pool_threads = 0;
  const bool shared = threads > 1 && rows * columns >= kLeastShared;
  if (shared && pool_threads != threads) {
    delete pool;
    pool = new Pool(threads - 1);
    pool_threads = threads;
  }
  // Threads never write to the same cache line, nor split a vector.
  const int64_t unit = columns == 1 ? 64 : 1;
  for (int pass = 0; pass < passes; ++pass) {
    for (int set = 0; set < sets; ++set) {
      Operands here = arrays + static_cast<int64_t>(set) * operands;
      if (shared) {
        pool->run(function, here, columns, rows, unit);
      } else {
        function(here, columns, 0, rows);
      }
    }
  }
  return 0;
}
