// SPDX-License-Identifier: MIT
// The C interface: rows of the op table on buffers.
#include <bit>
#include <cmath>
#include <iterator>
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
      used.on(device).is(Dtype::kFloat32, "float32").holds(n);
      operands[k + 1] = {.buffer = &used.buffer(), .offset = used.byte_offset()};
    }
    const BufferUse out(out_handle, out_argument);
    out.on(device).is(Dtype::kFloat32, "float32").holds(n).writable();
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

int row(const char* function, int op, uint64_t ex, std::initializer_list<uint64_t> inputs,
        uint64_t out, int64_t n) {
  return on_any(function, op, ex, std::data(inputs), nullptr, static_cast<int>(inputs.size()), out,
                n, kNamed);
}

}  // namespace
}  // namespace hologram::capi

using namespace hologram;        // NOLINT: definitions of C functions stand outside
using namespace hologram::capi;  // NOLINT

#define HOLOGRAM_BINARY(name, op)                                                   \
  int hologram_##name(uint64_t ex, uint64_t a, uint64_t b, uint64_t c, int64_t n) { \
    return on_floats<2>(#name, OpId::op, ex, {{a, "a"}, {b, "b"}}, c, "c", n);      \
  }
HOLOGRAM_BINARY(vector_add_f32, add)
HOLOGRAM_BINARY(vector_sub_f32, sub)
HOLOGRAM_BINARY(vector_mul_f32, mul)
HOLOGRAM_BINARY(vector_div_f32, div)
HOLOGRAM_BINARY(vector_min_f32, minimum)
HOLOGRAM_BINARY(vector_max_f32, maximum)
#undef HOLOGRAM_BINARY

#define HOLOGRAM_UNARY(name, op)                                        \
  int hologram_##name(uint64_t ex, uint64_t x, uint64_t y, int64_t n) { \
    return on_floats<1>(#name, OpId::op, ex, {{x, "x"}}, y, "y", n);    \
  }
HOLOGRAM_UNARY(vector_abs_f32, abs)
HOLOGRAM_UNARY(vector_neg_f32, neg)
HOLOGRAM_UNARY(vector_relu_f32, relu)
HOLOGRAM_UNARY(sigmoid_f32, sigmoid)
HOLOGRAM_UNARY(tanh_f32, tanh)
HOLOGRAM_UNARY(gelu_f32, gelu)
#undef HOLOGRAM_UNARY

int hologram_vector_clip_f32(uint64_t ex, uint64_t x, uint64_t y, int64_t n, float low,
                             float high) {
  return on_floats<3>("vector_clip_f32", OpId::clamp, ex, {{x, "x"}, low, high}, y, "y", n);
}
int hologram_scalar_add_f32(uint64_t ex, uint64_t x, uint64_t y, int64_t n, float scalar) {
  return on_floats<2>("scalar_add_f32", OpId::add, ex, {{x, "x"}, scalar}, y, "y", n);
}
int hologram_scalar_mul_f32(uint64_t ex, uint64_t x, uint64_t y, int64_t n, float scalar) {
  return on_floats<2>("scalar_mul_f32", OpId::mul, ex, {{x, "x"}, scalar}, y, "y", n);
}

int hologram_elementwise(uint64_t ex, int op, const uint64_t* inputs, const double* numbers,
                         int arity, uint64_t out, int64_t n) {
  return on_any("elementwise", op, ex, inputs, numbers, arity, out, n, kListed);
}

#define HOLOGRAM_TAKES_1 uint64_t x
#define HOLOGRAM_TAKES_2 HOLOGRAM_TAKES_1, uint64_t y
#define HOLOGRAM_TAKES_3 HOLOGRAM_TAKES_2, uint64_t z
#define HOLOGRAM_TAKES_4 HOLOGRAM_TAKES_3, uint64_t w
#define HOLOGRAM_GIVES_1 x
#define HOLOGRAM_GIVES_2 x, y
#define HOLOGRAM_GIVES_3 x, y, z
#define HOLOGRAM_GIVES_4 x, y, z, w
#define HOLOGRAM_OP(name, id, arity, ...)                                             \
  int hologram_##name(uint64_t ex, HOLOGRAM_TAKES_##arity, uint64_t out, int64_t n) { \
    return row(#name, id, ex, {HOLOGRAM_GIVES_##arity}, out, n);                      \
  }
#include "hologram/elementwise.def"
