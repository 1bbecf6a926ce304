// SPDX-License-Identifier: MIT
// Operands of products whose right one has narrower elements.
#pragma once

#include <atomic>
#include <random>
#include <vector>

#include "hologram/dtype.h"
#include "hologram/elementwise.h"
#include "hologram/gemm.h"

namespace hologram {

using Random = std::mt19937;
using Bytes = std::vector<char>;

inline Bytes converted(const Bytes& from, Dtype type, Dtype to, int64_t n) {
  Bytes bytes(static_cast<size_t>(n) * itemsize(to) + 8);
  convert(type, from.data(), to, bytes.data(), n);
  return bytes;
}

inline Bytes random_bytes(Random& random, Dtype dtype, int64_t n) {
  std::normal_distribution<double> normal;
  std::uniform_int_distribution<int> whole(-128, 127);
  std::vector<double> values(static_cast<size_t>(n) + 1);
  for (double& value : values) value = is_floating(dtype) ? normal(random) : whole(random);
  Bytes bytes(static_cast<size_t>(n) * itemsize(dtype) + 8);
  convert(Dtype::kFloat64, values.data(), dtype, bytes.data(), n);
  return bytes;
}

// For as long as it lives, products of half types into float32 are computed by loops.
class HalfToFloatByLoops {
 public:
  HalfToFloatByLoops() {
    calls = 0;
    register_gemm_provider(
        {.name = "half to float by loops",
         .priority = 90,
         .supports = [](Dtype dtype) { return itemsize(dtype) == 2 && is_floating(dtype); },
         .gemm = [](const GemmArgs&) { throw 0; },
         .gemm_to_float = &product,
         .one_thread = true});
  }
  ~HalfToFloatByLoops() { unregister_gemm_provider("half to float by loops"); }
  HalfToFloatByLoops(const HalfToFloatByLoops&) = delete;
  HalfToFloatByLoops& operator=(const HalfToFloatByLoops&) = delete;

  static inline std::atomic<int> calls = 0;

 private:
  static void product(const GemmArgs& g) {
    ++calls;
    const auto at = [&](const void* from, int64_t i) {
      float value = 0;
      convert(g.dtype, static_cast<const uint16_t*>(from) + i, Dtype::kFloat32, &value, 1);
      return static_cast<double>(value);
    };
    for (int64_t i = 0; i < g.m; ++i) {
      for (int64_t j = 0; j < g.n; ++j) {
        double sum = 0;
        for (int64_t p = 0; p < g.k; ++p) {
          sum += at(g.a, g.trans_a ? p * g.lda + i : i * g.lda + p) *
                 at(g.b, g.trans_b ? j * g.ldb + p : p * g.ldb + j);
        }
        float& c = static_cast<float*>(g.c)[i * g.ldc + j];
        c = static_cast<float>(g.alpha * sum + (g.beta == 0 ? 0 : g.beta * static_cast<double>(c)));
      }
    }
  }
};

struct NarrowTypes {
  Dtype dtype, narrow;
};
inline constexpr NarrowTypes kNarrowTypes[] = {{Dtype::kFloat32, Dtype::kInt8},
                                               {Dtype::kFloat32, Dtype::kFloat16},
                                               {Dtype::kFloat32, Dtype::kBFloat16},
                                               {Dtype::kBFloat16, Dtype::kInt8},
                                               {Dtype::kFloat16, Dtype::kInt8}};

}  // namespace hologram
