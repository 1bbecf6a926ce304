// SPDX-License-Identifier: MIT
// The _foreach_ ops that optimizers and gradient clipping are made of.
#include "ops/optim/foreach.h"

#include <ATen/ops/copy.h>
#include <ATen/ops/zero.h>

#include "ops/shape/host_copy.h"

namespace hologram_torch {

using at::ArrayRef;
using at::Scalar;
using at::Tensor;
using at::TensorList;
using hologram::OpId;

void expect_list(TensorList lead) {
  if (lead.empty() || !is_ours(lead[0])) return;
  try {
    hologram::expect_list(memory_device(lead[0].device().index()), lead.size());
  } catch (const std::exception& error) {
    rethrow_as_torch(error, 0);
  }
}

bool worth_batching(TensorList lead) {
  if (lead.size() < 2) return false;
  int64_t elements = 0;
  for (const Tensor& t : lead) elements += t.numel();
  return threads_for(elements) > 1;
}

// --- Batches ---------------------------------------------------------------------------------

namespace {

constexpr int64_t kForeachChunk = 16384;  // elements a thread claims at a time

void run_range(const Batch::Item& item, int64_t begin, int64_t end) {
  const int64_t in_size = static_cast<int64_t>(hologram::itemsize(item.dtype));
  const int64_t out_size = item.bool_result ? 1 : in_size;
  const void* in[4];
  for (int k = 0; k < item.arity; ++k) {
    in[k] = (item.numbers >> k & 1u) != 0 ? item.slots[k]
                                          : static_cast<const char*>(item.in[k]) + begin * in_size;
  }
  char* out = static_cast<char*>(item.out) + begin * out_size;
  if (is_half(item.dtype)) {
    run_half(item.op, item.dtype, in, item.numbers, item.arity, out, item.bool_result, end - begin);
  } else {
    item.kernel(in, out, end - begin);
  }
}

}  // namespace

// No item writes what another reads or writes.
bool Batch::independent() const {
  struct Range {
    const char* begin;
    const char* end;
    size_t item;
    bool written;
  };
  std::vector<Range> ranges;
  ranges.reserve(items_.size() * 3);
  for (size_t i = 0; i < items_.size(); ++i) {
    const Item& item = items_[i];
    const int64_t in_size = static_cast<int64_t>(hologram::itemsize(item.dtype));
    const char* out = static_cast<const char*>(item.out);
    ranges.push_back({out, out + item.n * (item.bool_result ? 1 : in_size), i, true});
    for (int k = 0; k < item.arity; ++k) {
      if ((item.numbers >> k & 1u) != 0) continue;
      const char* in = static_cast<const char*>(item.in[k]);
      ranges.push_back({in, in + item.n * in_size, i, false});
    }
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  for (size_t i = 0; i < ranges.size(); ++i) {
    for (size_t k = i + 1; k < ranges.size() && ranges[k].begin < ranges[i].end; ++k) {
      if (ranges[i].item != ranges[k].item && (ranges[i].written || ranges[k].written)) {
        return false;
      }
    }
  }
  return true;
}

void Batch::run() {
  if (items_.empty()) return;
  // The first chunk of each item; the last entry is the number of chunks.
  std::vector<int64_t> first(items_.size() + 1, 0);
  for (size_t i = 0; i < items_.size(); ++i) {
    first[i + 1] = first[i] + (items_[i].n + kForeachChunk - 1) / kForeachChunk;
  }
  const int threads = independent() ? threads_for(first.back() * kForeachChunk) : 1;
  hologram::parallel_for(first.back(), threads, [&](int64_t begin, int64_t end, int) {
    size_t i = static_cast<size_t>(std::upper_bound(first.begin(), first.end(), begin) -
                                   first.begin() - 1);
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      while (chunk >= first[i + 1]) ++i;
      const int64_t from = (chunk - first[i]) * kForeachChunk;
      run_range(items_[i], from, std::min(items_[i].n, from + kForeachChunk));
    }
  });
  items_.clear();
}

// --- The ops ---------------------------------------------------------------------------------

namespace {

bool add_one(Target& target, const Tensor& x, const Scalar& y) {
  return run_row<OpId::add>(target, x, Num{y});
}
bool sub_one(Target& target, const Tensor& x, const Scalar& y) {
  return !y.isBoolean() && !is_bool(x) && run_row<OpId::sub>(target, x, Num{y});
}

template <Name kName, OpId kOp, int kTraits = kPlainTraits>
void each_unary(torch::Library& m) {
  Foreach<&unary<kOp, kTraits>, kName, kName + Name("_")>::template add<kName>(m);
}

// name.Scalar and name.ScalarList from the op kOne of a tensor and a number.
template <Name kName, auto* kRule, Name kOne, Name kOneInPlace>
void each_number(torch::Library& m) {
  Foreach<kRule, kOne, kOneInPlace, const Scalar&>::template add<kName, "Scalar">(m);
  Foreach<kRule, kOne, kOneInPlace, ArrayRef<Scalar>>::template add<kName, "ScalarList">(m);
}

template <Name kName, auto* kNumberRule, auto* kTensorRule, Name kOne>
void each_bound(torch::Library& m) {
  each_number<kName, kNumberRule, kOne, kOne + Name("_")>(m);
  Foreach<kTensorRule, kOne + Name(".Tensor"), kOne + Name("_.Tensor"),
          TensorList>::template add<kName, "List">(m);
}

template <Name kName, auto* kRule>
void each_blend(torch::Library& m) {
  Foreach<kRule, kName, kName + Name("_"), TensorList, TensorList,
          const Scalar&>::template add<kName, "Scalar">(m);
  Foreach<kRule, kName, kName + Name("_"), TensorList, TensorList,
          ArrayRef<Scalar>>::template add<kName, "ScalarList">(m);
}

std::vector<Tensor> pow_scalar_and_tensor(const Scalar& base, TensorList exponents) {
  at::native::check_foreach_api_restrictions(exponents);
  expect_list(exponents);
  std::vector<Tensor> results;
  results.reserve(exponents.size());
  for (const Tensor& exponent : exponents) {
    results.push_back(Face<"pow.Scalar", &number_tensor<OpId::pow, kContiguousResult>>::functional(
        base, exponent));
  }
  return results;
}

void zero_all(TensorList self) {
  at::native::check_foreach_api_restrictions(self);
  expect_list(self);
  for (const Tensor& t : self) {
    if (!native_zero(t)) call_fallback<"zero_">(t);
    bump_version(t);
  }
}

void copy_all(TensorList self, TensorList source, bool non_blocking) {
  at::native::check_foreach_api_restrictions(self, source);
  expect_list(self);
  for (size_t i = 0; i < self.size(); ++i) {
    if (native_copy(self[i], source[i])) {
      bump_version(self[i]);
    } else {
      self[i].copy_(source[i], non_blocking);
    }
  }
}

void register_foreach(torch::Library& m) {
  each_unary<"abs", OpId::abs>(m);
  each_unary<"neg", OpId::neg>(m);
  each_unary<"sign", OpId::sign>(m);
  each_unary<"floor", OpId::floor>(m);
  each_unary<"ceil", OpId::ceil>(m);
  each_unary<"round", OpId::round>(m);
  each_unary<"trunc", OpId::trunc>(m);
  each_unary<"reciprocal", OpId::reciprocal, kIntToFloat>(m);
  each_unary<"sqrt", OpId::sqrt, kIntToFloat>(m);
  each_unary<"rsqrt", OpId::rsqrt, kIntToFloat>(m);
  each_unary<"exp", OpId::exp, kIntToFloat>(m);
  each_unary<"expm1", OpId::expm1, kIntToFloat>(m);
  each_unary<"log", OpId::log, kIntToFloat>(m);
  each_unary<"log2", OpId::log2, kIntToFloat>(m);
  each_unary<"log10", OpId::log10, kIntToFloat>(m);
  each_unary<"log1p", OpId::log1p, kIntToFloat>(m);
  each_unary<"sin", OpId::sin, kIntToFloat>(m);
  each_unary<"cos", OpId::cos, kIntToFloat>(m);
  each_unary<"tan", OpId::tan, kIntToFloat>(m);
  each_unary<"tanh", OpId::tanh, kIntToFloat>(m);
  each_unary<"sigmoid", OpId::sigmoid, kIntToFloat>(m);
  each_unary<"erf", OpId::erf, kIntToFloat>(m);

  each_number<"add", &add_one, "add.Scalar", "add_.Scalar">(m);
  each_number<"sub", &sub_one, "sub.Scalar", "sub_.Scalar">(m);
  each_number<"mul", &tensor_number<OpId::mul>, "mul.Scalar", "mul_.Scalar">(m);
  each_number<"div", &tensor_number<OpId::div, kIntToFloat>, "div.Scalar", "div_.Scalar">(m);
  each_number<"pow", &pow_number, "pow.Tensor_Scalar", "pow_.Scalar">(m);

  Foreach<&add_tensor, "add.Tensor", "add_.Tensor", TensorList, const Scalar&>::add<"add", "List">(
      m);
  Foreach<&add_tensor, "add.Tensor", "add_.Tensor", const Tensor&, const Scalar&>::add<"add",
                                                                                       "Tensor">(m);
  Foreach<&sub_tensor, "sub.Tensor", "sub_.Tensor", TensorList, const Scalar&>::add<"sub", "List">(
      m);
  Foreach<&mul_tensor, "mul.Tensor", "mul_.Tensor", TensorList>::add<"mul", "List">(m);
  Foreach<&mul_tensor, "mul.Tensor", "mul_.Tensor", const Tensor&>::add<"mul", "Tensor">(m);
  Foreach<&tensors<OpId::div, kIntToFloat>, "div.Tensor", "div_.Tensor",
          TensorList>::add<"div", "List">(m);
  Foreach<&tensors<OpId::div, kIntToFloat>, "div.Tensor", "div_.Tensor",
          const Tensor&>::add<"div", "Tensor">(m);
  Foreach<&tensors<OpId::pow>, "pow.Tensor_Tensor", "pow_.Tensor", TensorList>::add<"pow", "List">(
      m);

  // PyTorch's maximum and minimum of lists are its clamps.
  each_bound<"maximum", &bound_number<OpId::maximum>, &bound_tensor<OpId::maximum>, "clamp_min">(m);
  each_bound<"clamp_min", &bound_number<OpId::maximum>, &bound_tensor<OpId::maximum>, "clamp_min">(
      m);
  each_bound<"minimum", &bound_number<OpId::minimum>, &bound_tensor<OpId::minimum>, "clamp_max">(m);
  each_bound<"clamp_max", &bound_number<OpId::minimum>, &bound_tensor<OpId::minimum>, "clamp_max">(
      m);

  Foreach<&lerp_tensor, "lerp.Tensor", "lerp_.Tensor", TensorList, TensorList>::add<"lerp", "List">(
      m);
  Foreach<&lerp_number, "lerp.Scalar", "lerp_.Scalar", TensorList, const Scalar&>::add<"lerp",
                                                                                       "Scalar">(m);
  Foreach<&lerp_number, "lerp.Scalar", "lerp_.Scalar", TensorList,
          ArrayRef<Scalar>>::add<"lerp", "ScalarList">(m);
  each_blend<"addcmul", &addcmul>(m);
  each_blend<"addcdiv", &addcdiv>(m);

  register_native<&pow_scalar_and_tensor>(m, "_foreach_pow.ScalarAndTensor");
  register_native<&zero_all>(m, "_foreach_zero_");
  register_native<&copy_all>(m, "_foreach_copy_");
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { hologram_torch::register_foreach(m); }
