// SPDX-License-Identifier: MIT
// embedding and its dense gradient: rows copied, rows added.
#include <cstring>

#include "hologram/parallel.h"
#include "native_reduce.h"

namespace hologram_torch {
namespace {

using at::Tensor;

constexpr int64_t kChunkBytes = 64 << 10;

template <class Index>
bool all_within(const Index* index, int64_t n, int64_t rows) {
  bool within = true;
  for (int64_t i = 0; i < n; ++i) {
    within = within &&
             static_cast<uint64_t>(static_cast<int64_t>(index[i])) < static_cast<uint64_t>(rows);
  }
  return within;
}

template <class Index>
bool gather_rows(const Tensor& weight, const Tensor& indices, const Tensor& out) {
  const auto* index = reinterpret_cast<const Index*>(read_pointer(indices));
  const int64_t n = indices.numel();
  if (!all_within(index, n, weight.size(0))) return false;
  const char* from = read_pointer(weight);
  char* to = write_pointer(out);
  const auto row = static_cast<int64_t>(weight.itemsize()) * weight.size(1);
  const int64_t per_chunk = std::max<int64_t>(1, kChunkBytes / std::max<int64_t>(row, 1));
  hologram::parallel_for((n + per_chunk - 1) / per_chunk, threads_for(out.numel()),
                         [&](int64_t begin, int64_t end, int) {
                           const int64_t last = std::min(n, end * per_chunk);
                           for (int64_t i = begin * per_chunk; i < last; ++i) {
                             std::memcpy(to + i * row, from + static_cast<int64_t>(index[i]) * row,
                                         static_cast<size_t>(row));
                           }
                         });
  return true;
}

bool is_index(const Tensor& t) {
  return is_plain(t) && (t.scalar_type() == at::kLong || t.scalar_type() == at::kInt) &&
         t.is_contiguous();
}

Tensor embedding(const Tensor& weight, const Tensor& indices, int64_t padding_idx,
                 bool scale_grad_by_freq, bool sparse) {
  if (C10_LIKELY(is_plain(weight) && weight.dim() == 2 && weight.is_contiguous() &&
                 weight.numel() > 0 && is_index(indices))) {
    c10::SmallVector<int64_t, 5> sizes(indices.sizes().begin(), indices.sizes().end());
    sizes.push_back(weight.size(1));
    Tensor out = make_tensor(sizes, weight.scalar_type());
    if (indices.scalar_type() == at::kLong ? gather_rows<int64_t>(weight, indices, out)
                                           : gather_rows<int32_t>(weight, indices, out)) {
      return out;
    }
  }
  return call_fallback<"embedding">(weight, indices, padding_idx, scale_grad_by_freq, sparse)
      .back()
      .toTensor();
}

// Adds in the order of the indices, whatever the threads: each takes some of the columns.
template <class T, class Index>
void add_rows(const T* grad, const Index* index, int64_t n, int64_t cols, int64_t padding, T* out) {
  constexpr int64_t kColumns = 64;
  hologram::parallel_for((cols + kColumns - 1) / kColumns, threads_for(n * cols),
                         [&](int64_t begin, int64_t end, int) {
                           const int64_t first = begin * kColumns,
                                         width = std::min(cols, end * kColumns) - first;
                           for (int64_t i = 0; i < n; ++i) {
                             const auto row = static_cast<int64_t>(index[i]);
                             if (row == padding) continue;
                             T* to = out + row * cols + first;
                             const T* from = grad + i * cols + first;
                             for (int64_t j = 0; j < width; ++j) to[j] += from[j];
                           }
                         });
}

template <class T>
bool embedding_gradient(const Tensor& grad, const Tensor& indices, int64_t rows, int64_t padding,
                        const Tensor& out) {
  const auto* from = reinterpret_cast<const T*>(read_pointer(grad));
  auto* to = reinterpret_cast<T*>(write_pointer(out));
  const int64_t n = indices.numel(), cols = grad.size(-1);
  const char* index = read_pointer(indices);
  if (indices.scalar_type() == at::kLong) {
    const auto* wide = reinterpret_cast<const int64_t*>(index);
    if (!all_within(wide, n, rows)) return false;
    std::memset(to, 0, out.nbytes());
    add_rows(from, wide, n, cols, padding, to);
  } else {
    const auto* narrow = reinterpret_cast<const int32_t*>(index);
    if (!all_within(narrow, n, rows)) return false;
    std::memset(to, 0, out.nbytes());
    add_rows(from, narrow, n, cols, padding, to);
  }
  return true;
}

Tensor embedding_dense_backward(const Tensor& grad, const Tensor& indices, int64_t rows,
                                int64_t padding_idx, bool scale_grad_by_freq) {
  const at::ScalarType type = grad.scalar_type();
  if (C10_LIKELY((type == at::kFloat || type == at::kDouble) && is_plain(grad) &&
                 grad.is_contiguous() && is_index(indices) && !scale_grad_by_freq &&
                 grad.dim() == indices.dim() + 1 && grad.numel() > 0 &&
                 grad.numel() == indices.numel() * grad.size(-1) && rows > 0)) {
    Tensor out = make_tensor({rows, grad.size(-1)}, type);
    if (type == at::kFloat ? embedding_gradient<float>(grad, indices, rows, padding_idx, out)
                           : embedding_gradient<double>(grad, indices, rows, padding_idx, out)) {
      return out;
    }
  }
  return call_fallback<"embedding_dense_backward">(grad, indices, rows, padding_idx,
                                                   scale_grad_by_freq)
      .back()
      .toTensor();
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  register_native<&embedding>(m, "embedding");
  register_native<&embedding_dense_backward>(m, "embedding_dense_backward");
}
