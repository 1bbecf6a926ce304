// SPDX-License-Identifier: MIT
// arange, triangles and small things that a few native operators make up.
#include <ATen/ops/eq.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/sum.h>

#include <limits>

#include "hologram/indexing.h"
#include "hologram/parallel.h"
#include "ops/nn/norm.h"
#include "ops/shape/copy.h"
#include "recording/record_call.h"

namespace hologram_torch {
namespace {

using at::ScalarType;
using at::Tensor;
using c10::Scalar;

// --- arange -------------------------------------------------------------------------------------

HOLOGRAM_WIDE void count_up(int64_t* out, int64_t n, int64_t start, int64_t step) {
  for (int64_t i = 0; i < n; ++i) out[i] = start + i * step;
}
HOLOGRAM_WIDE void count_up(int32_t* out, int64_t n, int64_t start, int64_t step) {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<int32_t>(start + i * step);
}
HOLOGRAM_WIDE void count_up(double* out, int64_t n, double start, double step) {
  for (int64_t i = 0; i < n; ++i) out[i] = start + static_cast<double>(i) * step;
}
HOLOGRAM_WIDE void count_up(float* out, int64_t n, double start, double step) {
  for (int64_t i = 0; i < n; ++i) {
    out[i] = static_cast<float>(start + static_cast<double>(i) * step);
  }
}

// Runs at once: it depends on nothing, and what it makes are mostly positions, which the ops that
// take them want to see.
template <class T, class Number>
void fill_range(const Tensor& out, Number start, Number step) {
  constexpr int64_t kChunk = 16384;
  const int64_t n = out.numel();
  auto* to = reinterpret_cast<T*>(write_pointer(out));
  hologram::parallel_for((n + kChunk - 1) / kChunk, threads_for(n),
                         [&](int64_t begin, int64_t end, int) {
                           const int64_t from = begin * kChunk;
                           count_up(to + from, std::min(n, end * kChunk) - from,
                                    start + static_cast<Number>(from) * step, step);
                         });
}

// A range PyTorch would make without complaint, of a type and size that leave nothing to doubt.
struct Range {
  bool ok = false;
  int64_t n = 0;
};

Range plan_range(const Scalar& start, const Scalar& end, const Scalar& step, ScalarType type) {
  Range range;
  for (const Scalar* s : {&start, &end, &step}) {
    if (s->isSymbolic() || s->isComplex() || s->isBoolean()) return range;
    if (at::isIntegralType(type, true) && !s->isIntegral(false)) return range;
  }
  if (type != at::kLong && type != at::kInt && type != at::kFloat && type != at::kDouble) {
    return range;
  }
  const double from = start.toDouble(), by = step.toDouble();
  const double size = std::ceil((end.toDouble() - from) / by);
  // Numbers below 2^53 are exact in float64, which counts them.
  constexpr double kExact = 0x1p53;
  const bool exact =
      std::abs(from) < kExact && std::abs(by) < kExact && std::abs(end.toDouble()) < kExact;
  range.ok = exact && by != 0 && size >= 0 && size < 0x1p40 &&
             (type != at::kInt || (std::abs(from) < 0x1p31 && std::abs(end.toDouble()) < 0x1p31));
  if (range.ok) range.n = static_cast<int64_t>(size);
  return range;
}

void write_range_now(const Tensor& out, const Scalar& start, const Scalar& step) {
  switch (out.scalar_type()) {
    case at::kLong:
      return fill_range<int64_t>(out, start.toLong(), step.toLong());
    case at::kInt:
      return fill_range<int32_t>(out, start.toLong(), step.toLong());
    case at::kFloat:
      return fill_range<float>(out, start.toDouble(), step.toDouble());
    default:
      return fill_range<double>(out, start.toDouble(), step.toDouble());
  }
}

void write_range(const Tensor& out, const Scalar& start, const Scalar& step) {
  if (out.numel() == 0) return;
  if (!hologram::is_capturing_graph() && is_on_host(out)) return write_range_now(out, start, step);
  // The host makes the numbers now. A graph copies them at each replay: what follows may write
  // over them.
  const Tensor numbers = make_tensor(out.sizes(), out.scalar_type());
  {
    const CaptureExempt exempt;
    write_range_now(numbers, start, step);
  }
  copy_into(out, numbers);
}

ScalarType range_type(const Scalar& start, const Scalar& end, const Scalar& step,
                      std::optional<ScalarType> dtype) {
  if (dtype.has_value()) return *dtype;
  const bool whole = start.isIntegral(true) && end.isIntegral(true) && step.isIntegral(true);
  return whole ? at::kLong : c10::get_default_dtype_as_scalartype();
}

using Type = std::optional<ScalarType>;
using Layout = std::optional<at::Layout>;
using Device = std::optional<at::Device>;
using Pin = std::optional<bool>;

Tensor arange_step(const Scalar& start, const Scalar& end, const Scalar& step, Type dtype,
                   Layout layout, Device device, Pin pin) {
  const ScalarType type = range_type(start, end, step, dtype);
  const Range range = plan_range(start, end, step, type);
  if (C10_LIKELY(range.ok && layout.value_or(c10::kStrided) == c10::kStrided &&
                 !pin.value_or(false) && device.has_value() && device->type() == kDeviceType)) {
    Tensor out = make_tensor({range.n}, type, index_of(device));
    write_range(out, start, step);
    return out;
  }
  return call_fallback<"arange.start_step">(start, end, step, dtype, layout, device, pin)
      .back()
      .toTensor();
}
Tensor arange_start(const Scalar& start, const Scalar& end, Type dtype, Layout layout,
                    Device device, Pin pin) {
  return arange_step(start, end, 1, dtype, layout, device, pin);
}
Tensor arange(const Scalar& end, Type dtype, Layout layout, Device device, Pin pin) {
  return arange_step(0, end, 1, dtype, layout, device, pin);
}

Tensor& arange_out(const Scalar& start, const Scalar& end, const Scalar& step, Tensor& out) {
  if (is_dense(out) && out.is_contiguous()) {
    const Range range = plan_range(start, end, step, out.scalar_type());
    if (C10_LIKELY(range.ok && range.n == out.numel())) {
      write_range(out, start, step);
      return out;
    }
  }
  call_fallback<"arange.start_out">(start, end, step, out);
  return out;
}

// --- eye ----------------------------------------------------------------------------------------

Tensor& eye_of(int64_t n, int64_t m, Tensor& out) {
  if (C10_UNLIKELY(n < 0 || m < 0 || !is_dense(out))) {
    call_fallback<"eye.m_out">(n, m, out);
    return out;
  }
  out.resize_({n, m});
  out.zero_();
  out.diagonal().fill_(1);
  return out;
}
Tensor& eye(int64_t n, Tensor& out) { return eye_of(n, n, out); }

// --- tril, triu ---------------------------------------------------------------------------------

bool takes_triangle(const Tensor& self) {
  return is_dense(self) && dtype_code(self.scalar_type()) != kNoDtype && self.dim() >= 2 &&
         self.numel() > 0;
}

void write_triangle(const Tensor& in, int64_t diagonal, bool upper, const Tensor& out) {
  record(
      calls::Triangle<Arg>{.input = in, .diagonal = diagonal, .upper = upper, .out = written(out)});
}

template <bool kUpper, Name kName>
Tensor triangle(const Tensor& self, int64_t diagonal) {
  if (C10_LIKELY(takes_triangle(self))) {
    const Tensor dense = dense_rows(self);
    // What had to be copied may be worked on in place.
    Tensor out = dense.is_same(self) ? new_empty(self, self.sizes()) : dense;
    write_triangle(dense, diagonal, kUpper, out);
    return out;
  }
  return call_fallback<kName>(self, diagonal).back().toTensor();
}

template <bool kUpper, Name kName>
Tensor& triangle_(Tensor& self, int64_t diagonal) {
  if (C10_LIKELY(takes_triangle(self) && self.is_contiguous())) {
    write_triangle(self, diagonal, kUpper, self);
    return self;
  }
  call_fallback<kName>(self, diagonal);
  return self;
}

// --- Made of others -----------------------------------------------------------------------------

template <bool kNegative, Name kName>
Tensor is_infinity(const Tensor& self) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (C10_LIKELY(is_dense_float(self))) return at::eq(self, kNegative ? -kInfinity : kInfinity);
  return call_fallback<kName>(self).back().toTensor();
}

Tensor count_nonzero(const Tensor& self, at::IntArrayRef dim) {
  if (C10_LIKELY(is_dense_real(self))) return at::sum(at::ne(self, 0), dim);
  return call_fallback<"count_nonzero.dim_IntList">(self, dim).back().toTensor();
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  register_native<&arange>(m, "arange");
  register_native<&arange_start>(m, "arange.start");
  register_native<&arange_step>(m, "arange.start_step");
  register_native<&arange_out>(m, "arange.start_out");
  register_native<&eye>(m, "eye.out");
  register_native<&eye_of>(m, "eye.m_out");
  register_native<&triangle<false, "tril">>(m, "tril");
  register_native<&triangle<true, "triu">>(m, "triu");
  register_native<&triangle_<false, "tril_">>(m, "tril_");
  register_native<&triangle_<true, "triu_">>(m, "triu_");
  register_native<&is_infinity<true, "isneginf">>(m, "isneginf");
  register_native<&is_infinity<false, "isposinf">>(m, "isposinf");
  register_native<&count_nonzero>(m, "count_nonzero.dim_IntList");
}
