// SPDX-License-Identifier: MIT
// The calls that pack sequences and pad them again: rows of each step side by side.
#include <cstring>
#include <vector>

#include "src/cpu/device/call_table.h"
#include "src/cpu/device/dense_view.h"
#include "src/cpu/movement/copy_bytes.h"
#include "src/cpu/recurrent/recurrence.h"

namespace hologram::cpu {
namespace {

// Bytes of a row behind the first `dims` dimensions, which is dense, and of a stride.
int64_t row_bytes(const View& view, int dims) {
  return elements_of(view, dims, view.ndim) * static_cast<int64_t>(itemsize(view.dtype));
}
int64_t stride_bytes(const View& view, int dim) {
  return view.strides[dim] * static_cast<int64_t>(itemsize(view.dtype));
}

// part(step) for all of them.
template <class Part>
void for_steps(const Steps& steps, int threads, Part&& part) {
  parallel_for(steps.count(), threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t step = begin; step < end; ++step) part(step, steps[step]);
  });
}

}  // namespace

void run(const calls::PackRows<>& call, CallThreads threads) {
  const View &in = call.input, &out = call.out;
  const int64_t bytes = row_bytes(out, 1);
  const Steps steps("pack_rows", out, call.batch_sizes, in.shape[1]);
  for_steps(steps, threads(out.numel()), [&](int64_t step, StepRows at) {
    copy_rows(static_cast<char*>(in.data) + step * stride_bytes(in, 0), stride_bytes(in, 1),
              static_cast<char*>(out.data) + at.first * bytes, bytes, at.count, bytes);
  });
}

void run(const calls::PadRows<>& call, CallThreads threads) {
  const View &in = call.input, &out = call.out;
  const int64_t bytes = row_bytes(in, 1), batch = out.shape[1];
  const Steps steps("pad_rows", in, call.batch_sizes, batch);
  std::vector<char> padding(static_cast<size_t>(bytes));
  for (size_t i = 0; i < padding.size(); i += itemsize(out.dtype)) {
    std::memcpy(&padding[i], &call.element, itemsize(out.dtype));
  }
  const auto pad = [&](int64_t step, int64_t first) {
    char* const to = static_cast<char*>(out.data) + step * stride_bytes(out, 0);
    copy_rows(padding.data(), 0, to + first * stride_bytes(out, 1), stride_bytes(out, 1),
              batch - first, bytes);
  };
  for_steps(steps, threads(out.numel()), [&](int64_t step, StepRows at) {
    copy_rows(static_cast<char*>(in.data) + at.first * bytes, bytes,
              static_cast<char*>(out.data) + step * stride_bytes(out, 0), stride_bytes(out, 1),
              at.count, bytes);
    pad(step, at.count);
  });
  for (int64_t step = steps.count(); step < out.shape[0]; ++step) pad(step, 0);
}

void run(const calls::RowsBefore<>& call, CallThreads threads) {
  const View &in = call.input, &first = call.first, &out = call.out;
  const int64_t bytes = row_bytes(out, 1);
  const Steps steps("rows_before", in, call.batch_sizes, first.shape[0], call.reverse);
  for_steps(steps, threads(out.numel()), [&](int64_t step, StepRows at) {
    const int64_t continued = steps.continued(step), row = stride_bytes(in, 0);
    char* const to = static_cast<char*>(out.data) + at.first * bytes;
    if (continued > 0) {
      copy_rows(static_cast<char*>(in.data) + steps[step - 1].first * row, row, to, bytes,
                continued, bytes);
    }
    copy_rows(static_cast<char*>(first.data) + continued * bytes, bytes, to + continued * bytes,
              bytes, at.count - continued, bytes);
  });
}

}  // namespace hologram::cpu
