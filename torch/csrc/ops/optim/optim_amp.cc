// SPDX-License-Identifier: MIT
// The two kernels of torch.amp.GradScaler: unscale with a look for infinities, and the scale's
// update.
#include <atomic>
#include <bit>
#include <cmath>

#include "dispatch/alias.h"
#include "hologram/elementwise.h"
#include "hologram/parallel.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"

namespace hologram_torch {
namespace {

using at::Tensor;
using at::TensorList;

constexpr int64_t kChunk = 32768;
constexpr int64_t kTile = 1024;

// x *= factor; returns whether an element was infinite or NaN before.
bool scale_floats(float* x, int64_t n, float factor) {
  uint32_t bad = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(x[i]);
    bad |= static_cast<uint32_t>((bits & 0x7f800000u) == 0x7f800000u);
    x[i] *= factor;
  }
  return bad != 0;
}

bool scale_doubles(double* x, int64_t n, double factor) {
  uint64_t bad = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t bits = std::bit_cast<uint64_t>(x[i]);
    bad |= static_cast<uint64_t>((bits & 0x7ff0000000000000u) == 0x7ff0000000000000u);
    x[i] *= factor;
  }
  return bad != 0;
}

bool scale_halves(hologram::Dtype dtype, char* x, int64_t n, float factor) {
  alignas(64) float tile[kTile];
  bool bad = false;
  for (int64_t i = 0; i < n; i += kTile) {
    const int64_t count = std::min(kTile, n - i);
    hologram::convert(dtype, x + 2 * i, hologram::Dtype::kFloat32, tile, count);
    bad = scale_floats(tile, count, factor) || bad;
    hologram::convert(hologram::Dtype::kFloat32, tile, dtype, x + 2 * i, count);
  }
  return bad;
}

bool scale_run(hologram::Dtype dtype, char* x, int64_t n, float factor) {
  switch (dtype) {
    case hologram::Dtype::kFloat32:
      return scale_floats(reinterpret_cast<float*>(x), n, factor);
    case hologram::Dtype::kFloat64:
      return scale_doubles(reinterpret_cast<double*>(x), n, factor);
    default:
      return scale_halves(dtype, x, n, factor);
  }
}

bool unscale(const Tensor& t, float factor) {
  Tensor rows = t;
  if (!t.is_non_overlapping_and_dense()) {
    rows = make_tensor(t.sizes(), t.scalar_type());
    copy_into(rows, t);
  }
  const int64_t n = t.numel();
  const auto dtype = static_cast<hologram::Dtype>(dtype_code(t.scalar_type()));
  char* data = write_pointer(rows);
  std::atomic<bool> bad{false};
  hologram::parallel_for((n + kChunk - 1) / kChunk, threads_for(n),
                         [&](int64_t begin, int64_t end, int) {
                           const int64_t first = begin * kChunk, last = std::min(n, end * kChunk);
                           if (scale_run(dtype, data + first * static_cast<int64_t>(t.itemsize()),
                                         last - first, factor)) {
                             bad.store(true, std::memory_order_relaxed);
                           }
                         });
  if (!rows.is_same(t)) copy_into(t, rows);
  return bad.load(std::memory_order_relaxed);
}

bool is_float_number(const Tensor& t) {
  return is_plain(t) && t.numel() == 1 && t.scalar_type() == at::kFloat;
}

void check_and_unscale(TensorList self, Tensor& found_inf, const Tensor& inv_scale) {
  bool native = is_float_number(found_inf) && is_float_number(inv_scale);
  for (const Tensor& t : self) native = native && is_float_plain(t);
  if (C10_UNLIKELY(!native)) {
    call_fallback<"_amp_foreach_non_finite_check_and_unscale_">(self, found_inf, inv_scale);
    return;
  }
  const float factor = *reinterpret_cast<const float*>(read_pointer(inv_scale));
  bool bad = false;
  for (const Tensor& t : self) bad = unscale(t, factor) || bad;
  if (bad) *reinterpret_cast<float*>(write_pointer(found_inf)) = 1.0f;
}

Tensor& update_scale(Tensor& self, Tensor& growth_tracker, const Tensor& found_inf, double growth,
                     double backoff, int64_t interval) {
  if (C10_UNLIKELY(!is_float_number(self) || !is_float_number(found_inf) ||
                   !is_plain(growth_tracker) || growth_tracker.numel() != 1 ||
                   growth_tracker.scalar_type() != at::kInt)) {
    call_fallback<"_amp_update_scale_">(self, growth_tracker, found_inf, growth, backoff, interval);
    return self;
  }
  auto* scale = reinterpret_cast<float*>(write_pointer(self));
  auto* steps = reinterpret_cast<int32_t*>(write_pointer(growth_tracker));
  if (*reinterpret_cast<const float*>(read_pointer(found_inf)) != 0) {
    *scale = static_cast<float>(*scale * backoff);
    *steps = 0;
  } else if (*steps + 1 == interval) {
    const auto grown = static_cast<float>(*scale * growth);
    if (std::isfinite(grown)) *scale = grown;
    *steps = 0;
  } else {
    ++*steps;
  }
  return self;
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  register_native<&check_and_unscale>(m, "_amp_foreach_non_finite_check_and_unscale_");
  register_native<&update_scale>(m, "_amp_update_scale_");
}
