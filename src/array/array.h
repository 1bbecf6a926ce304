// SPDX-License-Identifier: MIT
// What the functions on tensors share: new results, operands as records see them, overlap.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "hologram/functions.h"
#include "hologram/recorder.h"
#include "src/base/text.h"

namespace hologram::array {

// A tensor that owns its memory, which it gets when it is first written.
Tensor fresh(Shape shape, Dtype dtype, Device& device);
// The same with memory, whose contents are undefined: for what runs now. numel: that of the shape.
Tensor with_memory(Shape shape, int64_t numel, Dtype dtype, Device& device);

// The device of the operands; kInvalidArgument where they are on several or none is a tensor.
Device& device_of(const char* function, std::span<const Operand> operands);
Device& device_of(const char* function, const Tensor& a, const Tensor& b);

inline Device& device_of(const Tensor& t) { return t.buffer()->device(); }
// kInvalidArgument for a tensor that was never given memory.
void check_defined(const char* function, const Tensor& t);

// How many small operands in a row this thread found waiting for what is recorded; see
// is_at_hand(). A large one ends the row.
extern constinit thread_local int t_small_waits __attribute__((tls_model("initial-exec")));
// Notes another one. At the end of patience what the buffer waits for is run, and the caller looks
// again: true.
bool end_of_patience(Buffer& buffer);

inline bool is_small(const Tensor& t) {
  const bool small = is_immediate(static_cast<int64_t>(t.nbytes()));
  if (!small) t_small_waits = 0;
  return small;
}
// An op may run at its call instead of being recorded if every operand that it reads is at hand and
// every one that it writes is free. See immediate_bytes().
//
// Where a large op that was recorded has made memory wait, small ops on it would all be recorded,
// each at more than it takes to compute, as loops over the rows of a matrix are. After some of them
// in a row, the large op is run instead.
inline bool is_at_hand(const Tensor& t) {
  return is_small(t) && (is_readable_at_call(*t.buffer()) ||
                         (end_of_patience(*t.buffer()) && is_readable_at_call(*t.buffer())));
}
inline bool is_free(const Tensor& t) {
  return is_small(t) && (is_writable_at_call(*t.buffer()) ||
                         (end_of_patience(*t.buffer()) && is_writable_at_call(*t.buffer())));
}

// True for the sizes, in bytes, of an op that may run at its call. An op that makes one element of
// all that it reads may read more: up to larger sizes it runs faster than it is recorded, and most
// programs look at the element next.
inline bool is_quick(int64_t read, int64_t written) {
  constexpr int64_t kElement = 8, kTimes = 8;
  return is_immediate(written) && is_immediate(written <= kElement ? read / kTimes : read);
}

// As is_at_hand(), of an op that writes so many bytes.
inline bool is_at_hand_for(const Tensor& t, int64_t written) {
  return is_at_hand(t) ||
         (is_quick(static_cast<int64_t>(t.nbytes()), written) && is_readable_at_call(*t.buffer()));
}

RecordOperand record_operand(const Tensor& t);
// A number as one element of `dtype`, converted as copy() does.
RecordOperand record_number(const Scalar& number, Dtype dtype);

// NumPy's rule; false where the shapes do not fit.
bool broadcast_to(std::span<const int64_t> shape, Shape& result);
// Of all tensors among the operands; kInvalidArgument where there is none.
Shape broadcast_shape(std::string_view name, std::span<const Operand> operands);
// Complex numbers as pairs of real ones, in a dimension behind the others.
Tensor as_pairs(const Tensor& t);

// The strides with which t walks the dimensions of `shape`: 0 where it is repeated.
Shape strides_over(const Tensor& t, std::span<const int64_t> shape);
// t described as of this shape, to which it broadcasts.
Tensor broadcast(const Tensor& t, const Shape& shape);

// Lowest byte touched, from the start of the buffer, and how many from there to behind the highest.
struct Extent {
  int64_t offset = 0;
  int64_t bytes = 0;
};
Extent extent_of(const Tensor& t);
// Whether some byte may be part of both, whatever owns the memory, as may_share_bytes().
bool may_overlap(const Tensor& x, const Tensor& y);
// Whether memory may be touched by both in a way that is not element for element the same.
bool clashes(const Tensor& written, const Tensor& read);
// Results go to places of their own.
void check_result(const char* function, const Tensor& out);

// Whether the number's kind (bool, integer, floating) is above the dtype's.
bool is_number_kind_above(const Scalar& number, Dtype dtype);

// A row that is what it says, of dtypes with kernels, into `out`: its operands broadcast to out's
// shape and do not clash with it.
void run_row(OpId op, Dtype type, std::span<const Operand> operands, const Tensor& out);

// The elements of a tensor in host memory, row-major; for devices whose memory the host cannot
// read.
Tensor host_copy(const Tensor& t);
// A row-major copy.
Tensor copy_of(const Tensor& t, Dtype dtype);

}  // namespace hologram::array
