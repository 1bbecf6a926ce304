// SPDX-License-Identifier: MIT
// The C interface: ops, reductions and losses.
#include <bit>
#include <cmath>
#include <concepts>
#include <optional>

#include "hologram/functions.h"
#include "hologram/recorder.h"
#include "src/capi/call.h"

namespace hologram::capi {
namespace {

constexpr int kMostOperands = 4;

// One operand of an op on float32: a buffer, or a number.
struct Float {
  Float(uint64_t handle, const char* argument) : handle(handle), argument(argument) {}
  Float(float number) : number(number) {}  // NOLINT
  uint64_t handle = 0;
  const char* argument = nullptr;  // null: a number
  float number = 0.0f;
};

// For ops that cannot be recorded, because other code knows an address or execution is
// immediate.
[[gnu::noinline]] void run_at_once(OpId op, const std::optional<BufferUse>* inputs,
                                   const double* numbers, int arity, const BufferUse& out,
                                   int64_t n) {
  std::optional<Tensor> tensors[kMostOperands];
  std::optional<Operand> operands[kMostOperands];
  bool integers = true;
  for (int k = 0; k < arity; ++k) {
    integers = integers && (!inputs[k] || !is_floating(inputs[k]->dtype()));
  }
  for (int k = 0; k < arity; ++k) {
    if (!inputs[k]) {
      const double number = numbers[k];
      const bool whole = integers && std::trunc(number) == number && std::fabs(number) < 0x1p53;
      operands[k] = whole ? Operand(static_cast<int64_t>(number)) : Operand(number);
      continue;
    }
    tensors[k] = inputs[k]->tensor(Shape{n});
    operands[k] = Operand(*tensors[k]);
  }
  Operand list[kMostOperands] = {0, 0, 0, 0};
  for (int k = 0; k < arity; ++k) list[k] = *operands[k];
  const auto at = [&](int k) { return k < arity && inputs[k] ? &*inputs[k] : nullptr; };
  naming({at(0), at(1), at(2), at(3), &out}, [&] {
    apply_into(op, std::span<const Operand>(list, static_cast<size_t>(arity)),
               out.tensor(Shape{n}));
  });
}

template <int kArity>
int on_floats(const char* function, OpId op, uint64_t ex, const Float (&inputs)[kArity],
              uint64_t out_handle, const char* out_argument, int64_t n) {
  return guarded(function, [&] {
    const Device& device = executor_device(ex);
    std::optional<BufferUse> uses[kArity];
    RecordOperand operands[kArity + 1];
    bool apart = true;  // no buffer is read and written in places that overlap in part
    for (int k = 0; k < kArity; ++k) {
      const Float& in = inputs[k];
      if (in.argument == nullptr) {
        operands[k + 1] = {.bits = std::bit_cast<uint32_t>(in.number)};
        continue;
      }
      const BufferUse& used = uses[k].emplace(in.handle, in.argument);
      used.on(device).is(Dtype::kFloat32).holds(n);
      operands[k + 1] = {.buffer = &used.buffer(), .offset = used.byte_offset()};
    }
    const BufferUse out(out_handle, out_argument);
    out.on(device).is(Dtype::kFloat32).holds(n).writable();
    operands[0] = {.buffer = &out.buffer(), .offset = out.byte_offset()};
    for (int k = 1; k <= kArity; ++k) {
      apart = apart && (operands[k].buffer != operands[0].buffer ||
                        operands[k].offset == operands[0].offset);
    }
    if (apart && record_flat(op, Dtype::kFloat32, operands, kArity, n)) [[likely]]
      return;
    double numbers[kArity];
    for (int k = 0; k < kArity; ++k) numbers[k] = inputs[k].number;
    run_at_once(op, uses, numbers, kArity, out, n);
  });
}

int on_any(const char* function, int op, uint64_t ex, const uint64_t* inputs, const double* numbers,
           int arity, uint64_t out_handle, int64_t n, const char* const* arguments) {
  return guarded(function, [&] {
    const Device& device = executor_device(ex);
    const OpInfo* info = nullptr;
    for (const OpInfo& row : ops()) {
      if (static_cast<int>(row.id) == op) info = &row;
    }
    if (info == nullptr) {
      fail(ErrorKind::kInvalidArgument, "op is ", op,
           ", which is no row of hologram/elementwise.def");
    }
    if (arity != info->arity) {
      fail(ErrorKind::kInvalidArgument, "arity is ", arity, " but ", info->name, " takes ",
           int{info->arity});
    }
    not_null(inputs, "inputs", "that many handles");
    std::optional<BufferUse> uses[kMostOperands];
    bool any = false;
    for (int k = 0; k < arity; ++k) {
      if (inputs[k] == 0 && numbers != nullptr) continue;
      any = true;
      const BufferUse& used = uses[k].emplace(inputs[k], arguments[k]);
      used.on(device).holds(n);
      if (is_complex(used.dtype())) {
        refuse_dtype(arguments[k], used.dtype(), "real numbers");
      }
    }
    if (!any) fail(ErrorKind::kInvalidArgument, "inputs: all are numbers; pass a buffer");
    const BufferUse out(out_handle, "out");
    out.on(device).holds(n).writable();
    run_at_once(info->id, uses, numbers, arity, out, n);
  });
}

constexpr const char* kListed[] = {"inputs[0]", "inputs[1]", "inputs[2]", "inputs[3]"};
constexpr const char* kNamed[] = {"x", "y", "z", "w"};

int reduce_all(const char* function, Reduction op, uint64_t ex, uint64_t x_handle,
               uint64_t y_handle, const char* y_argument, int64_t n, std::optional<Dtype> dtype) {
  return guarded(function, [&] {
    const Device& device = executor_device(ex);
    const BufferUse x(x_handle, "x");
    const BufferUse y(y_handle, y_argument);
    x.on(device).holds(n).is(dtype);
    y.on(device).writable().is(dtype);
    if (y.length() < 1) {
      fail(ErrorKind::kInvalidArgument, y_argument, ": the buffer has 0 elements; the result is 1");
    }
    const bool needs_elements = reduction_info(op).empty == ReductionInfo::kError;
    if (n == 0 && needs_elements) {
      fail(ErrorKind::kInvalidArgument, "n is 0; none of no elements is the ", reduction_name(op));
    }
    naming({&x, &y},
           [&] { reduce_into(op, x.tensor(Shape{n}), y.tensor(Shape{1}), {.keepdim = true}); });
  });
}

// The sum over n elements of the terms of a loss, as a tensor of one element.
using LossSum = Tensor (*)(const Tensor& pred, const Tensor& target);

Tensor mse_sum(const Tensor& pred, const Tensor& target) {
  return reduce(Reduction::sum, squared_difference(pred, target), {.keepdim = true});
}
Tensor cross_entropy_sum(const Tensor& pred, const Tensor& target) {
  // A logarithm of 0 counts as -100, as in the binary one: 0 log(0) is 0 then.
  const Tensor terms = mul(target, maximum(log(pred), -100.0));
  return neg(reduce(Reduction::sum, terms, {.keepdim = true}));
}
Tensor binary_cross_entropy_sum(const Tensor& pred, const Tensor& target) {
  const Tensor yes = mul(target, maximum(log(pred), -100.0));
  const Tensor no = mul(sub(1.0, target), maximum(log1p(neg(pred)), -100.0));
  return neg(reduce(Reduction::sum, add(yes, no), {.keepdim = true}));
}

// What a function of hologram.h does whose name stands in a table, by the type of its row.

// An op on buffers of any dtype: its operands, `out`, and `n` at last.
template <class... A>
int run(const char* function, int op, uint64_t ex, A... given) {
  constexpr int kArity = sizeof...(A) - 2;
  const uint64_t all[] = {static_cast<uint64_t>(given)...};
  return on_any(function, op, ex, all, nullptr, kArity, all[kArity],
                static_cast<int64_t>(all[kArity + 1]), kNamed);
}
int run(const char* function, OpId op, uint64_t ex, uint64_t a, uint64_t b, uint64_t c, int64_t n) {
  return on_floats<2>(function, op, ex, {{a, "a"}, {b, "b"}}, c, "c", n);
}
template <std::same_as<float>... Numbers>
int run(const char* function, OpId op, uint64_t ex, uint64_t x, uint64_t y, int64_t n,
        Numbers... numbers) {
  return on_floats<1 + sizeof...(numbers)>(function, op, ex, {{x, "x"}, numbers...}, y, "y", n);
}
int run(const char* function, Reduction op, uint64_t ex, uint64_t x, uint64_t y, int64_t n) {
  return reduce_all(function, op, ex, x, y, "y", n, Dtype::kFloat32);
}
int run(const char* function, LossSum sum_of, uint64_t ex, uint64_t pred_handle,
        uint64_t target_handle, uint64_t loss_handle, int64_t n, float* value) {
  return guarded(function, [&] {
    const Device& device = executor_device(ex);
    const BufferUse pred(pred_handle, "pred");
    const BufferUse target(target_handle, "target");
    const BufferUse loss(loss_handle, "loss");
    pred.on(device).holds(n).is(Dtype::kFloat32);
    target.on(device).holds(n).is(Dtype::kFloat32);
    loss.on(device).writable().is(Dtype::kFloat32);
    if (loss.length() < 3) {
      fail(ErrorKind::kInvalidArgument, "loss: the buffer has ", loss.length(),
           " elements; pass one of at least 3, for the loss, the sum and the count");
    }
    const Tensor sum = sum_of(pred.tensor(Shape{n}), target.tensor(Shape{n}));
    const Tensor mean = loss.tensor(Shape{1});
    apply_into(OpId::div, {sum, static_cast<double>(n)}, mean);
    copy_into(sum, loss.tensor(Shape{1}, 1));
    fill_into(Scalar(static_cast<double>(n)), loss.tensor(Shape{1}, 2));
    if (value != nullptr) *value = static_cast<float>(item(mean).f64);
  });
}

}  // namespace
}  // namespace hologram::capi

using namespace hologram;        // NOLINT: definitions of C functions stand outside
using namespace hologram::capi;  // NOLINT

int hologram_elementwise(uint64_t ex, int op, const uint64_t* inputs, const double* numbers,
                         int arity, uint64_t out, int64_t n) {
  return on_any("elementwise", op, ex, inputs, numbers, arity, out, n, kListed);
}

int hologram_reduce(uint64_t ex, int reduction, uint64_t x, uint64_t out, int64_t n) {
  if (reduction < 0 || reduction >= kReductionCount) {
    return guarded("reduce", [&] {
      fail(ErrorKind::kInvalidArgument, "reduction is ", reduction,
           "; pass a hologram_reduction, 0 to ", kReductionCount - 1);
    });
  }
  return reduce_all("reduce", static_cast<Reduction>(reduction), ex, x, out, "out", n, {});
}

#define HOLOGRAM_DEFINE(name, form, what, doc)                \
  int hologram_##name(uint64_t ex, HOLOGRAM_C_TAKES_##form) { \
    return run(#name, what, ex, HOLOGRAM_C_GIVES_##form);     \
  }
#define HOLOGRAM_DEFINE_LOSS(name, terms, doc)                            \
  int hologram_##name(uint64_t ex, HOLOGRAM_C_TAKES_LOSS, float* value) { \
    return run(#name, terms, ex, HOLOGRAM_C_GIVES_LOSS, value);           \
  }
HOLOGRAM_C_FLOAT_FUNCTIONS(HOLOGRAM_DEFINE, HOLOGRAM_DEFINE_LOSS)

#define HOLOGRAM_OP(name, id, arity, ...)                                               \
  int hologram_##name(uint64_t ex, HOLOGRAM_C_TAKES_##arity, uint64_t out, int64_t n) { \
    return run(#name, id, ex, HOLOGRAM_C_GIVES_##arity, out, n);                        \
  }
#include "hologram/elementwise.def"
