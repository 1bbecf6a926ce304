// SPDX-License-Identifier: MIT
// Checks the dimensions of a reduction and lays out its loops.
#include "src/cpu/reduce/reduce_plan.h"
#include "src/base/text.h"

#include <cstdlib>
#include <string>
#include <utility>

#include "hologram/error.h"

namespace hologram::cpu {
namespace {

// Step of out for each dimension of in; 0 for the folded ones.
void align_output(const char* what, const View& in, const bool (&folded)[kMaxNest], const View& out,
                  int64_t (&stride)[kMaxNest]) {
  int kept = 0;
  for (int i = 0; i < in.ndim; ++i) kept += !folded[i];
  bool fits = out.ndim == in.ndim || out.ndim == kept;
  int at = 0;
  for (int i = 0; i < in.ndim && fits; ++i) {
    stride[i] = 0;
    if (folded[i] && out.ndim != in.ndim) continue;
    fits = out.shape[at] == (folded[i] ? 1 : in.shape[i]);
    if (!folded[i]) stride[i] = out.strides[at];
    ++at;
  }
  if (fits) return;
  std::string dims;
  for (int i = 0; i < in.ndim; ++i) {
    if (folded[i]) dims += (dims.empty() ? "" : ", ") + std::to_string(i);
  }
  fail(ErrorKind::kInvalidArgument, what, ": an output of shape ", shape_text(out),
       " does not hold the result for an input of shape ", shape_text(in), " over dimensions (",
       dims, "); give the kept dimensions, with or without ones in place of the others");
}

}  // namespace

void Nest::sort() {
  for (int i = 1; i < ndim; ++i) {
    for (int j = i; j > 0 && std::abs(stride[0][j - 1]) < std::abs(stride[0][j]); --j) {
      std::swap(size[j - 1], size[j]);
      for (auto& s : stride) std::swap(s[j - 1], s[j]);
    }
  }
}

void Nest::merge() {
  int to = 0;
  for (int i = 1; i < ndim; ++i) {
    bool one_run = true;
    for (const auto& s : stride) one_run &= s[to] == s[i] * size[i];
    if (!one_run) ++to;
    size[to] = one_run ? size[to] * size[i] : size[i];
    for (auto& s : stride) s[to] = s[i];
  }
  if (ndim > 0) ndim = to + 1;
}

int wrap_dim(const char* what, int dim, int ndim) {
  const int range = ndim == 0 ? 1 : ndim;
  if (dim < -range || dim >= range) {
    fail(ErrorKind::kIndex, what, ": dimension ", dim, " is out of range for ", ndim,
         " dimensions; use ", -range, " to ", range - 1);
  }
  return dim < 0 ? dim + range : dim;
}

void mark_dims(const char* what, std::span<const int> dims, int ndim, bool (&folded)[kMaxNest]) {
  if (ndim > kMaxNest) {
    fail(ErrorKind::kInvalidArgument, what, ": ", ndim, " dimensions; at most ", kMaxNest,
         " are supported");
  }
  for (int i = 0; i < ndim; ++i) folded[i] = dims.empty();
  for (const int dim : dims) {
    const int at = wrap_dim(what, dim, ndim);
    if (ndim == 0) continue;
    if (folded[at]) {
      fail(ErrorKind::kInvalidArgument, what, ": dimension ", at, " is given twice");
    }
    folded[at] = true;
  }
}

ReducePlan plan_reduction(const char* what, const View& in, const bool (&folded)[kMaxNest],
                          const View& out, const View* second, bool keep_order) {
  int64_t out_stride[kMaxNest], second_stride[kMaxNest];
  align_output(what, in, folded, out, out_stride);
  if (second != nullptr) align_output(what, in, folded, *second, second_stride);
  ReducePlan plan;
  for (int i = 0; i < in.ndim; ++i) {
    if (in.shape[i] == 1) continue;
    if (folded[i]) {
      plan.folded.push(in.shape[i], in.strides[i]);
    } else {
      plan.kept.push(in.shape[i], in.strides[i], out_stride[i],
                     second != nullptr ? second_stride[i] : 0);
    }
  }
  plan.kept.sort();
  plan.kept.merge();
  if (!keep_order) plan.folded.sort();
  plan.folded.merge();
  return plan;
}

}  // namespace hologram::cpu
