// SPDX-License-Identifier: MIT
// From tensors to records: ops that may wait are handed to libhologram's recorder.
//
// Every function returns false, with nothing recorded, where execution is eager or the case is not
// one to record; the caller then runs the op at once. What the op refuses must be refused before.
// Errors of work that had to run first are PyTorch's.
#pragma once

#include <c10/util/DimVector.h>

#include <initializer_list>

#include "recording/native_common.h"

namespace hologram_torch {

// The buffer of a tensor whose ops may wait, or null: memory of others, addresses handed out.
inline hologram::Buffer* recordable_buffer(const c10::TensorImpl* t) {
  const c10::StorageImpl& storage = *t->unsafe_storage().unsafeGetStorageImpl();
  if (C10_LIKELY(is_watched(storage))) return buffer_of(storage);
  // Memory whose address was handed out may be part of a graph: the program says when it is
  // written, by a replay.
  if (hologram::is_capturing_graph()) return buffer_of(storage);
  // Whoever has an address that the host cannot use does nothing with it behind our back.
  return is_on_host(t) ? nullptr : buffer_of(storage);
}

// The same for a tensor that the op writes: its address is hidden where the op may wait.
inline hologram::Buffer* recordable_result(const c10::TensorImpl* t) {
  const c10::StorageImpl& storage = *t->unsafe_storage().unsafeGetStorageImpl();
  if (C10_UNLIKELY(!is_watched(storage))) return recordable_buffer(t);
  hologram::Buffer* buffer = buffer_of(storage);
  if (C10_UNLIKELY(!is_nowhere(data_ptr_of(storage).get())) && buffer != nullptr &&
      is_deferring()) {
    notice_foreign_operators();
    hide_address(storage);
  }
  return buffer;
}

// What an op of the table reads: a tensor, or, where that is null, a number: one element of the
// type that the op computes in.
struct Source {
  const c10::TensorImpl* tensor = nullptr;
  alignas(8) char number[8] = {};
};

// out = op(in...) element by element; all tensors have out's layout and the dtypes are `dtype`'s
// and `out_dtype`.
bool record_same_layout(hologram::OpId op, hologram::Dtype dtype, const Source* in, int arity,
                        const c10::TensorImpl* out, hologram::Dtype out_dtype);

// The same for tensors that broadcast to out's shape, of any dtypes that have codes.
bool record_broadcast(hologram::OpId op, hologram::Dtype compute, const Source* in, int arity,
                      const c10::TensorImpl* out);

// to = from, converted and broadcast; the types have codes.
bool record_copy_of(const c10::TensorImpl* from, const c10::TensorImpl* to);
// Elements of a tensor in an order of their own: counted from its first, and by how many each
// dimension steps, also backward.
struct Walk {
  int64_t first;
  c10::DimVector strides;
};
// The elements of `to` on one walk = those of `from` on another of these sizes. `to` is as long as
// its walk is; the types have codes and are equal.
bool record_walk(const c10::TensorImpl* from, const Walk& from_walk, const c10::TensorImpl* to,
                 const Walk& to_walk, c10::IntArrayRef sizes);
// Every element of `to` becomes the number: an element of the type that `to`'s computes in.
bool record_fill(const char* number, const c10::TensorImpl* to);

// A reduction of the last `reduced` dimensions of `in` (all of them: in.dim()).
bool record_reduction(hologram::Reduction op, const c10::TensorImpl* in, int reduced,
                      const c10::TensorImpl* out, double parameter);

// A function of the rows along `dim`, the result first; which: circuit::RowOp's number.
bool record_row_function(int which, int64_t dim,
                         std::initializer_list<const c10::TensorImpl*> list);

}  // namespace hologram_torch
