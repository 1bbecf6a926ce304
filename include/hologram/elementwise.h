// SPDX-License-Identifier: MIT
// Runs rows of the op table, casts and fills on strided host memory, at once and on the calling
// thread's behalf.
#pragma once

#include <cstdint>

#include "hologram/api.h"
#include "hologram/op.h"
#include "hologram/view.h"

namespace hologram {

// out[i] = op(in0[i], in1[i], ...) for i in [0, n), all contiguous and of the kernel's own dtype
// (bool is one byte, 0 or 1). out may be one of the inputs; otherwise they must not overlap. n >=
// 0.
using ElementwiseKernel = void (*)(const void* const* in, void* out, int64_t n);

// Which operands of a kernel are one element instead of n.
enum class Form : uint8_t {
  kVectors = 0,         // none
  kFirstScalar = 1,     // the first (binary rows)
  kTrailingScalars = 2  // the row's `params`, or the second operand of a binary row without any
};

// The kernel of the instruction set in use (see cpu_info.h), or null where the row does not compute
// in this dtype or has no such form. Lookup is two loads; the pointer stays valid.
HOLOGRAM_API ElementwiseKernel elementwise_kernel(OpId op, Dtype compute,
                                                  Form form = Form::kVectors);

// out = op(inputs...), in dtype `compute`: inputs of other dtypes are converted to it first, the
// result to out's dtype last (float to integer truncates, anything to bool is "!= 0"). inputs[k]
// broadcasts to out's shape by NumPy's rule; inputs.size() == arity of the row. Any strides, any
// sizes. out must not have two elements at one address; out may coincide exactly with an input,
// otherwise out and inputs must not overlap (callers check, as PyTorch does; in-place use through
// another view is theirs to copy). max_threads 0 means num_threads(). Throws Error for a dtype the
// row does not have or shapes that do not broadcast; out is then untouched.
HOLOGRAM_API void elementwise(OpId op, Dtype compute, const View* inputs, int arity,
                              const View& out, int max_threads = 0);

// dst = src converted to dst's dtype, src broadcast to dst's shape. Complex converts to complex
// only (or real to complex). Regions must not overlap unless they coincide exactly with one dtype.
HOLOGRAM_API void copy(const View& src, const View& dst, int max_threads = 0);

// Every element of dst becomes value, converted as copy() does.
HOLOGRAM_API void fill(const Scalar& value, const View& dst, int max_threads = 0);

// n contiguous elements from one dtype to another; src and dst must not overlap.
HOLOGRAM_API void convert(Dtype src_dtype, const void* src, Dtype dst_dtype, void* dst, int64_t n);

}  // namespace hologram
