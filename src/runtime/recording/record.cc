// SPDX-License-Identifier: MIT
// Ops on their way to a recorder or a circuit made by hand: loops brought into one form.
#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "hologram/error.h"
#include "src/base/dtype_check.h"
#include "src/base/loops.h"
#include "src/circuit/call_kinds.h"
#include "src/runtime/recording/call_check.h"
#include "src/runtime/recording/capture.h"
#include "src/runtime/recording/circuit_check.h"
#include "src/runtime/recording/recorder.h"

namespace hologram {
namespace internal {
namespace {

using circuit::kMaxArity;
using circuit::kTapeDims;
using circuit::Record;

// Dimensions a call may have before merging.
constexpr int kMaxDims = 64;

int64_t numel_of(int ndim, const int64_t* shape) {
  int64_t n = 1;
  for (int d = 0; d < ndim; ++d) n *= shape[d];
  return n;
}

// On devices whose memory the host cannot touch there is no other way to run an op than to record
// it: where execution is eager it runs before the call returns.
template <class F>
[[gnu::noinline, gnu::cold]] bool record_at_once(Device& device, F& f) {
  if (device.is_host_memory() || !device.runs_plans() || !f(Recorder::of(device))) return false;
  flush(device);
  return true;
}

// Calls f(sink) for where this thread's records on the device go; false where they go nowhere.
template <class F>
[[gnu::always_inline]] inline bool with_sink(Device& device, F&& f) {
  if (Capture* capture = capturing(); capture != nullptr && capture->takes_from(device))
      [[unlikely]]
    return f(*capture);
  if (Recorder* recorder = Recorder::recording(device)) [[likely]]
    return f(*recorder);
  return record_at_once(device, f);
}

void check_operands(const RecordOperand* operands, int arity, Dtype compute) {
  check_has_kernels("record", compute);
  for (int k = 0; k <= arity; ++k) check_has_kernels("record", operands[k].dtype);
}

// Records code over the given loops; operand 0 is the result.
bool record_loops(uint16_t code, Dtype compute, const RecordOperand* operands, int arity, int ndim,
                  const int64_t* shape, const int64_t* const* strides) {
  if (operands[0].buffer == nullptr || ndim > kMaxDims || arity > kMaxArity) return false;
  check_operands(operands, arity, compute);
  Device& device = operands[0].buffer->device();
  if (!with_sink(device, [](auto&) { return true; })) return false;
  if (numel_of(ndim, shape) == 0) return true;

  // In the order in which the tile machine walks: by the result's strides, the inputs deciding
  // where the result does not.
  int64_t sizes[kMaxDims], all_steps[(kMaxArity + 1) * kMaxDims];
  Loops loops{0, arity + 1, sizes, all_steps, kMaxDims};
  for (int d = 0; d < ndim; ++d) {
    if (shape[d] == 1) continue;
    loops.shape[loops.ndim] = shape[d];
    for (int k = 0; k <= arity; ++k) {
      const bool repeated = operands[k].buffer == nullptr || operands[k].one;
      loops.stride(k, loops.ndim) = repeated ? 0 : strides[k][d];
    }
    ++loops.ndim;
  }
  order_and_merge(loops);
  if (loops.ndim > kTapeDims) return false;

  RecordOperand settled[kMaxArity + 1];
  bool flat = loops.ndim <= 1;
  for (int k = 0; k <= arity; ++k) {
    settled[k] = operands[k];
    if (operands[k].buffer == nullptr) continue;
    const int64_t* steps = &loops.stride(k, 0);
    const bool one = loops.ndim > 0 &&
                     std::all_of(steps, steps + loops.ndim, [](int64_t step) { return step == 0; });
    // A result that repeats one element, or writes one element twice, is not for us to order.
    if (k == 0 && std::find(steps, steps + loops.ndim, 0) != steps + loops.ndim) return false;
    settled[k].one = one;
    flat = flat && (one || loops.ndim == 0 || steps[0] == 1);
  }
  if (flat) {
    const int64_t n = loops.ndim == 0 ? 1 : loops.shape[0];
    return with_sink(
        device, [&](auto& sink) { return sink.append_flat(code, compute, settled, arity, n); });
  }
  Record record;
  record.code = code;
  record.compute = compute;
  record.arity = static_cast<uint8_t>(arity);
  record.ndim = loops.ndim;
  std::copy_n(loops.shape, loops.ndim, record.shape);
  for (int k = 0; k <= arity; ++k) {
    if (settled[k].buffer == nullptr || settled[k].one) continue;
    std::copy_n(&loops.stride(k, 0), loops.ndim, record.strides[k]);
  }
  return with_sink(device, [&](auto& sink) { return sink.append(record, settled); });
}

// Records a code over whole rows, each operand `cols` elements a row except those folded to one.
bool record_row_code(Record& record, const RecordOperand* operands, int64_t rows, int64_t cols,
                     bool folds) {
  if (operands[0].buffer == nullptr || record.arity > kMaxArity) return false;
  check_operands(operands, record.arity, record.compute);
  Device& device = operands[0].buffer->device();
  if (!device.runs_plans()) return false;
  size_t item = std::max<size_t>(4, itemsize(record.compute));
  for (int k = 0; k <= record.arity; ++k) {
    // Rows of numbers or of one repeated element are left to the immediate functions.
    if (operands[k].buffer == nullptr || operands[k].one) return false;
    item = std::max(item, itemsize(operands[k].dtype));
  }
  const circuit::PlanLimits& limits = *device.plan_limits();
  const bool is_native = limits.native == nullptr || limits.native->has(record.compute);
  if (cols > limits.longest_row(is_native) / static_cast<int64_t>(item)) return false;
  if (rows == 0 || cols == 0) {
    // A fold of nothing has a value, or an error, of its own.
    return (rows == 0 || !folds) && with_sink(device, [](auto&) { return true; });
  }
  record.ndim = 2;
  record.shape[0] = rows;
  record.shape[1] = cols;
  for (int k = 0; k <= record.arity; ++k) {
    const bool folded = folds && k == 0;
    record.strides[k][0] = folded ? 1 : cols;
    record.strides[k][1] = folded ? 0 : 1;
  }
  return with_sink(device, [&](auto& sink) { return sink.append(record, operands); });
}

enum Deferring : int { kUnread = -1, kOff = 0, kOn = 1 };
constinit std::atomic<int> g_deferring{kUnread};

[[gnu::noinline]] int read_deferring() {
  const char* text = std::getenv("HOLOGRAM_EXECUTION");
  const int wish = text != nullptr && std::string_view(text) == "eager" ? kOff : kOn;
  int unread = kUnread;
  return g_deferring.compare_exchange_strong(unread, wish) ? wish : unread;
}

}  // namespace

}  // namespace internal

bool is_deferring() {
  if (internal::capturing() != nullptr) [[unlikely]]
    return true;
  const int now = internal::g_deferring.load(std::memory_order_relaxed);
  return (now != internal::kUnread ? now : internal::read_deferring()) == internal::kOn;
}

void set_deferring(bool deferring) {
  internal::g_deferring.store(deferring ? internal::kOn : internal::kOff);
  if (!deferring) internal::Recorder::flush_all();
}

using circuit::Record;

bool record_flat(OpId op, Dtype compute, const RecordOperand* operands, int arity, int64_t n) {
  if (operands[0].buffer == nullptr || is_complex(compute)) [[unlikely]]
    return false;
  if (arity > circuit::kMaxArity) [[unlikely]]
    return false;
  internal::check_operands(operands, arity, compute);
  return internal::with_sink(operands[0].buffer->device(), [&](auto& sink) {
    return n <= 0 || sink.append_flat(static_cast<uint16_t>(op), compute, operands, arity, n);
  });
}

bool record_strided(OpId op, Dtype compute, const RecordOperand* operands, int arity, int ndim,
                    const int64_t* shape, const int64_t* const* strides) {
  if (is_complex(compute)) return false;
  return internal::record_loops(static_cast<uint16_t>(op), compute, operands, arity, ndim, shape,
                                strides);
}

bool record_copy(const RecordOperand& out, const RecordOperand& in, int ndim, const int64_t* shape,
                 const int64_t* out_strides, const int64_t* in_strides) {
  const RecordOperand operands[] = {out, in};
  const int64_t* const strides[] = {out_strides, in_strides};
  return internal::record_loops(circuit::kCodeConvert, in.dtype, operands, 1, ndim, shape, strides);
}

bool record_flat_copy(const RecordOperand& out, const RecordOperand& in, int64_t n) {
  if (out.buffer == nullptr) return false;
  const RecordOperand operands[] = {out, in};
  internal::check_operands(operands, 1, in.dtype);
  return internal::with_sink(out.buffer->device(), [&](auto& sink) {
    return n <= 0 || sink.append_flat(circuit::kCodeConvert, in.dtype, operands, 1, n);
  });
}

bool record_reduction(Reduction op, const RecordOperand& out, const RecordOperand& in, int64_t rows,
                      int64_t cols, double parameter) {
  Record record;
  record.code = circuit::kCodeReduction;
  record.attr = static_cast<uint16_t>(op);
  record.arity = 1;
  record.parameter = parameter;
  const auto result = reduction_info(op).result;
  const bool as_out = result == ReductionInfo::kOut || result == ReductionInfo::kFloat;
  record.compute = as_out ? compute_dtype(out.dtype) : in.dtype;
  const RecordOperand operands[] = {out, in};
  return internal::record_row_code(record, operands, rows, cols, /*folds=*/true);
}

bool record_rows(int which, const RecordOperand* operands, int arity, int64_t rows, int64_t cols) {
  Record record;
  record.code = circuit::kCodeRow;
  record.attr = static_cast<uint16_t>(which);
  record.arity = static_cast<uint8_t>(arity);
  record.compute = compute_dtype(operands[0].dtype);
  // softmax() computes in float64 as soon as one operand is: such a mixture is left to it.
  for (int k = 0; k <= arity; ++k) {
    if (compute_dtype(operands[k].dtype) != record.compute) return false;
  }
  return internal::record_row_code(record, operands, rows, cols, /*folds=*/false);
}

void expect_list(Device& device, size_t count) {
  if (count < 2 || internal::capturing() != nullptr) return;
  if (internal::Recorder* recorder = internal::Recorder::recording(device)) {
    recorder->expect_list(count);
  }
}

bool record_call(uint16_t kind, std::span<const CallOperand> operands,
                 std::span<const uint64_t> attributes, std::span<const uint64_t> numbers,
                 double cost) {
  if (internal::checks_circuits()) internal::check_call(kind, attributes);
  const char* name = circuit::call_name(kind);
  Device* device = nullptr;
  for (size_t k = 0; k < operands.size(); ++k) {
    const CallOperand& operand = operands[k];
    if (!internal::is_present(operand)) continue;
    if (device == nullptr) device = &operand.buffer->device();
    if (operand.offset < 0 ||
        static_cast<uint64_t>(operand.offset) + static_cast<uint64_t>(operand.bytes) >
            operand.buffer->nbytes()) {
      fail(ErrorKind::kInvalidArgument, "record_call: operand ", k, " of ", name, " is bytes ",
           operand.offset, " to ", operand.offset + operand.bytes, " of a buffer of ",
           operand.buffer->nbytes(), "; name the bytes that the call touches");
    }
  }
  return device != nullptr && internal::with_sink(*device, [&](auto& sink) {
           return sink.append_call(kind, operands, attributes, numbers, cost);
         });
}

}  // namespace hologram
