// SPDX-License-Identifier: MIT
// uniform_, normal_, bernoulli_, random_ and dropout from the device's own Philox stream.
#include "hologram/random.h"

#include <cmath>
#include <limits>

#include "device/generator.h"
#include "ops/elementwise/elementwise_forms.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "recording/record_call.h"

namespace hologram_torch {
namespace {

using at::Generator;
using at::ScalarType;
using at::Tensor;
using OptionalGenerator = std::optional<Generator>;

hologram::PhiloxStream take(const OptionalGenerator& generator, int64_t n, int bits) {
  const auto r = reserve_random(generator, hologram::philox_blocks(n, bits));
  return {r.seed, r.offset};
}

// fill(rows): the elements of self in row-major order.
template <class Fill>
Tensor& fill_rows(Tensor& self, Fill&& fill) {
  if (self.numel() == 0) return self;
  const bool direct = self.is_contiguous();
  Tensor rows = direct ? self : new_empty(self, self.sizes());
  fill(rows);
  if (!direct) copy_into(self, rows);
  return self;
}

Tensor& uniform_(Tensor& self, double from, double to, OptionalGenerator generator) {
  if (C10_LIKELY(is_dense_float(self) && from <= to &&
                 std::abs(from) <= largest_of(self.scalar_type()) &&
                 std::abs(to) <= largest_of(self.scalar_type()) &&
                 to - from <= largest_of(self.scalar_type()) &&
                 !may_overlap_itself(self.unsafeGetTensorImpl()))) {
    const int64_t n = self.numel();
    const auto stream = take(generator, n, hologram::float_random_bits(dtype_of(self)));
    return fill_rows(self, [&](Tensor& rows) {
      record(calls::Uniform<Arg>{
          .self = rows, .seed = stream.seed, .offset = stream.offset, .low = from, .high = to});
    });
  }
  call_fallback<"uniform_">(self, from, to, generator);
  return self;
}

Tensor& normal_(Tensor& self, double mean, double std, OptionalGenerator generator) {
  if (C10_LIKELY(is_dense_float(self) && std >= 0 &&
                 !may_overlap_itself(self.unsafeGetTensorImpl()))) {
    const int64_t n = self.numel();
    const auto stream = take(generator, n, hologram::float_random_bits(dtype_of(self)));
    return fill_rows(self, [&](Tensor& rows) {
      record(calls::Normal<Arg>{
          .self = rows, .seed = stream.seed, .offset = stream.offset, .mean = mean, .std = std});
    });
  }
  call_fallback<"normal_">(self, mean, std, generator);
  return self;
}

Tensor& bernoulli_(Tensor& self, double p, OptionalGenerator generator) {
  if (C10_LIKELY(is_dense_real(self) && p >= 0 && p <= 1 &&
                 !may_overlap_itself(self.unsafeGetTensorImpl()))) {
    const int64_t n = self.numel();
    const auto stream = take(generator, n, 32);
    return fill_rows(self, [&](Tensor& rows) {
      record(calls::Bernoulli<Arg>{
          .self = rows, .seed = stream.seed, .offset = stream.offset, .p = p});
    });
  }
  call_fallback<"bernoulli_.float">(self, p, generator);
  return self;
}

// --- random_ ------------------------------------------------------------------------------------

// The largest integer such that all up to it are elements of the type.
int64_t whole_limit(ScalarType type) {
  switch (type) {
    case at::kBool:
      return 1;
    case at::kByte:
      return std::numeric_limits<uint8_t>::max();
    case at::kChar:
      return std::numeric_limits<int8_t>::max();
    case at::kShort:
      return std::numeric_limits<int16_t>::max();
    case at::kInt:
      return std::numeric_limits<int32_t>::max();
    case at::kLong:
      return std::numeric_limits<int64_t>::max();
    case at::kBFloat16:
      return 1 << 8;
    case at::kHalf:
      return 1 << 11;
    case at::kFloat:
      return 1 << 24;
    default:
      return int64_t{1} << 53;
  }
}

int64_t whole_minimum(ScalarType type) {
  switch (type) {
    case at::kBool:
    case at::kByte:
      return 0;
    case at::kChar:
      return std::numeric_limits<int8_t>::min();
    case at::kShort:
      return std::numeric_limits<int16_t>::min();
    case at::kInt:
      return std::numeric_limits<int32_t>::min();
    case at::kLong:
      return std::numeric_limits<int64_t>::min();
    default:
      return -whole_limit(type);
  }
}

void fill_range(Tensor& self, int64_t base, uint64_t range, const OptionalGenerator& generator) {
  const int64_t n = self.numel();
  const auto stream = take(generator, n, hologram::integer_random_bits(range));
  fill_rows(self, [&](Tensor& rows) {
    record(calls::Integers<Arg>{.self = rows,
                                .seed = stream.seed,
                                .offset = stream.offset,
                                .low = static_cast<uint64_t>(base),
                                .count = range});
  });
}

bool takes_integers(const Tensor& self) {
  return is_dense_real(self) && !may_overlap_itself(self.unsafeGetTensorImpl());
}

Tensor& random_(Tensor& self, OptionalGenerator generator) {
  if (C10_LIKELY(takes_integers(self))) {
    fill_range(self, 0, static_cast<uint64_t>(whole_limit(self.scalar_type())) + 1, generator);
    return self;
  }
  call_fallback<"random_">(self, generator);
  return self;
}

Tensor& random_from(Tensor& self, int64_t from, std::optional<int64_t> to,
                    OptionalGenerator generator) {
  if (C10_LIKELY(takes_integers(self))) {
    const int64_t low = whole_minimum(self.scalar_type()), high = whole_limit(self.scalar_type());
    const int64_t last = to.has_value() ? *to - (*to > std::numeric_limits<int64_t>::min()) : high;
    if (from >= low && last <= high && from <= last && (!to.has_value() || from < *to)) {
      fill_range(self, from, static_cast<uint64_t>(last) - static_cast<uint64_t>(from) + 1,
                 generator);
      return self;
    }
  }
  call_fallback<"random_.from">(self, from, to, generator);
  return self;
}

Tensor& random_to(Tensor& self, int64_t to, OptionalGenerator generator) {
  if (C10_LIKELY(takes_integers(self) && to > 0 && to - 1 <= whole_limit(self.scalar_type()))) {
    fill_range(self, 0, static_cast<uint64_t>(to), generator);
    return self;
  }
  call_fallback<"random_.to">(self, to, generator);
  return self;
}

// --- dropout ------------------------------------------------------------------------------------

std::tuple<Tensor, Tensor> native_dropout(const Tensor& input, double p,
                                          std::optional<bool> train) {
  if (C10_LIKELY(is_dense_float(input) && p >= 0 && p < 1 && train.value_or(true) &&
                 input.numel() > 0)) {
    const int64_t n = input.numel();
    Tensor out = make_like(input), mask = make_like(input, at::kBool);
    Tensor dense = input;
    if (!input.is_non_overlapping_and_dense()) {
      dense = make_like(input);
      copy_into(dense, input);
    }
    const auto stream = take(std::nullopt, n, 32);
    record(calls::Dropout<Arg>{.input = dense,
                               .seed = stream.seed,
                               .offset = stream.offset,
                               .p = p,
                               .out = out,
                               .mask = mask});
    return {std::move(out), std::move(mask)};
  }
  auto stack = call_fallback<"native_dropout">(input, p, train);
  return {stack[0].toTensor(), stack[1].toTensor()};
}

Tensor native_dropout_backward(const Tensor& grad, const Tensor& mask, double scale) {
  if (C10_LIKELY(is_dense_float(grad) && is_dense(mask) && mask.scalar_type() == at::kBool &&
                 mask.sizes() == grad.sizes() && mask.is_non_overlapping_and_dense())) {
    const int64_t n = grad.numel();
    Tensor dense = grad;
    if (!same_layout(grad.unsafeGetTensorImpl(), mask.unsafeGetTensorImpl())) {
      dense = make_like(mask, grad.scalar_type());
      copy_into(dense, grad);
    }
    Tensor out = make_like(dense);
    if (n == 0) return out;
    record(calls::DropoutBackward<Arg>{
        .grad = dense, .mask = mask, .scale = scale, .grad_input = out});
    return out;
  }
  return call_fallback<"native_dropout_backward">(grad, mask, scale).back().toTensor();
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  register_native<&uniform_>(m, "uniform_");
  register_native<&normal_>(m, "normal_");
  register_native<&bernoulli_>(m, "bernoulli_.float");
  register_native<&random_>(m, "random_");
  register_native<&random_from>(m, "random_.from");
  register_native<&random_to>(m, "random_.to");
  register_native<&native_dropout>(m, "native_dropout");
  register_native<&native_dropout_backward>(m, "native_dropout_backward");
}
