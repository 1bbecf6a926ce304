// SPDX-License-Identifier: MIT
// The calls of the catalogue on tensors: norms, convolutions, attention, embeddings, recurrent
// layers, random numbers, optimizer steps. call_ops.h describes each.
//
// Operands are checked against the call's row: dtypes that agree, shapes that fit. Results are made
// (memory of their own, row-major) and the work is recorded; it runs when a result is read.
// Operands may have any strides; those that are not contiguous are copied first. On floating
// tensors a call computes in float64 where they are float64, else in float32, and rounds once.
//
// Errors: kInvalidArgument for names, shapes and parameters that do not fit, kTypeMismatch for
// dtypes, kIndex for positions out of range, kOutOfMemory. A call that throws has changed nothing.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "hologram/api.h"
#include "hologram/call_ops.h"
#include "hologram/tensor.h"

namespace hologram {

// What a call takes for one of its inputs: a tensor, nothing, or the tensors of a list.
class CallInput {
 public:
  CallInput() = default;
  CallInput(const Tensor& tensor) : tensors_{tensor} {}  // NOLINT
  CallInput(const Tensor* tensor) {                      // NOLINT
    if (tensor != nullptr) tensors_.push_back(*tensor);
  }
  CallInput(std::vector<Tensor> list) : tensors_(std::move(list)), is_list_(true) {}  // NOLINT

  bool is_list() const { return is_list_; }
  bool is_given() const { return !tensors_.empty(); }
  const Tensor& tensor() const { return tensors_.front(); }
  const std::vector<Tensor>& tensors() const { return tensors_; }

 private:
  std::vector<Tensor> tensors_;
  bool is_list_ = false;
};

// A parameter by name. Integers are exact to 2^53 where they are given as a double.
struct CallArgument {
  std::string_view name;
  double number = 0;
  int64_t integer = 0;
  std::vector<int64_t> integers = {};  // of a parameter of several, where is_list
  bool is_list = false;

  CallArgument(std::string_view n, double value)
      : name(n), number(value), integer(static_cast<int64_t>(value)) {}
  CallArgument(std::string_view n, int64_t value)
      : name(n), number(static_cast<double>(value)), integer(value) {}
  CallArgument(std::string_view n, int value) : CallArgument(n, static_cast<int64_t>(value)) {}
  CallArgument(std::string_view n, bool value) : CallArgument(n, static_cast<int64_t>(value)) {}
  CallArgument(std::string_view n, std::vector<int64_t> values)
      : name(n), integers(std::move(values)), is_list(true) {}
};

// The inputs in the order of the row (those left out at the end are absent), the parameters in any
// order. Returns all results, saved ones last; absent optional results are tensors without memory.
HOLOGRAM_API std::vector<Tensor> call(std::string_view name, std::span<const CallInput> inputs,
                                      std::span<const CallArgument> arguments = {});
// Into the first results; those beyond are made and dropped. They have the shapes and dtypes that
// call() would give and may overlap inputs.
HOLOGRAM_API void call_into(std::string_view name, std::span<const CallInput> inputs,
                            std::span<const CallArgument> arguments,
                            std::span<const Tensor> results);

inline std::vector<Tensor> call(std::string_view name, std::initializer_list<CallInput> inputs,
                                std::initializer_list<CallArgument> arguments = {}) {
  return call(name, std::span<const CallInput>(inputs.begin(), inputs.size()),
              std::span<const CallArgument>(arguments.begin(), arguments.size()));
}

// --- By name
// -------------------------------------------------------------------------------------- Null
// operands are absent.

// Over the last `axes` dimensions, whose shape weight and bias have.
inline Tensor layer_norm(const Tensor& input, const Tensor* weight = nullptr,
                         const Tensor* bias = nullptr, int axes = 1, double eps = 1e-5) {
  return call("layer_norm", {input, weight, bias}, {{"axes", axes}, {"eps", eps}})[0];
}
// input [N, C, ...]. In training the running statistics, where given, are updated.
inline Tensor batch_norm(const Tensor& input, const Tensor* weight, const Tensor* bias,
                         const Tensor* running_mean, const Tensor* running_var,
                         bool training = false, double momentum = 0.1, double eps = 1e-5) {
  return call("batch_norm", {input, weight, bias, running_mean, running_var},
              {{"training", training}, {"momentum", momentum}, {"eps", eps}})[0];
}
// One to three dimensions: input [N, C, ...], weight [O, C / groups, ...]. A single stride, padding
// or dilation counts for all dimensions.
inline Tensor convolution(const Tensor& input, const Tensor& weight, const Tensor* bias = nullptr,
                          std::vector<int64_t> stride = {1}, std::vector<int64_t> padding = {0},
                          std::vector<int64_t> dilation = {1}, int64_t groups = 1) {
  return call("convolution", {input, weight, bias},
              {{"stride", std::move(stride)},
               {"padding", std::move(padding)},
               {"dilation", std::move(dilation)},
               {"groups", groups}})[0];
}
inline Tensor max_pool(const Tensor& input, std::vector<int64_t> kernel_size,
                       std::vector<int64_t> stride = {}, std::vector<int64_t> padding = {0}) {
  if (stride.empty()) stride = kernel_size;
  return call("max_pool", {input},
              {{"kernel_size", std::move(kernel_size)},
               {"stride", std::move(stride)},
               {"padding", std::move(padding)}})[0];
}
// query [N, heads, L, E], key [N, kv_heads, S, E], value [N, kv_heads, S, V]; mask broadcasts to
// [N, heads, L, S] and is added to the scaled scores. scale: 1 / sqrt(E) where it is NaN.
inline Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value,
                        const Tensor* mask = nullptr, bool is_causal = false,
                        double scale = std::numeric_limits<double>::quiet_NaN()) {
  return call("attention", {query, key, value, mask},
              {{"is_causal", is_causal}, {"scale", scale}})[0];
}
// Rows of weight [V, ...] by positions, int32 or int64.
inline Tensor embedding(const Tensor& weight, const Tensor& indices) {
  return call("take", {weight, indices})[0];
}
// One layer, one direction, batch second: x [L, N, I], h0 and c0 [N, H], weight_ih [4 H, I],
// weight_hh [4 H, H], biases [4 H] or null. Gates lie as input, forget, cell, output.
struct LstmResult {
  Tensor output, h_n, c_n;  // [L, N, H], [N, H], [N, H]
};
HOLOGRAM_API LstmResult lstm(const Tensor& x, const Tensor& h0, const Tensor& c0,
                             const Tensor& weight_ih, const Tensor& weight_hh,
                             const Tensor* bias_ih = nullptr, const Tensor* bias_hh = nullptr,
                             bool reverse = false);

}  // namespace hologram
