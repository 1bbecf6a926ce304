// SPDX-License-Identifier: MIT
// See recipe.h.
#include "src/gpu/recipes/recipe.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "hologram/op.h"
#include "src/base/loops.h"

namespace hologram::gpu {
namespace {

// Some number that no law of rewriting knows, in the place of one that is known when it runs.
constexpr double kUnknown = 3.140625;

}  // namespace

uint64_t bits_of(Dtype dtype, double value) {
  if (dtype == Dtype::kFloat32) return std::bit_cast<uint32_t>(static_cast<float>(value));
  if (dtype == Dtype::kFloat64) return std::bit_cast<uint64_t>(value);
  return static_cast<uint64_t>(static_cast<int64_t>(value));
}

int64_t Array::numel() const {
  int64_t n = 1;
  for (int d = 0; d < ndim; ++d) n *= shape[static_cast<size_t>(d)];
  return n;
}

bool Array::is_row_major() const {
  int64_t step = 1;
  for (int d = ndim; d-- > 0;) {
    const auto at = static_cast<size_t>(d);
    if (shape[at] != 1 && strides[at] != step) return false;
    step *= shape[at];
  }
  return true;
}

Array Array::transposed(int a, int b) const {
  Array array = *this;
  std::swap(array.shape[static_cast<size_t>(a)], array.shape[static_cast<size_t>(b)]);
  std::swap(array.strides[static_cast<size_t>(a)], array.strides[static_cast<size_t>(b)]);
  return array;
}

Array Array::along_rows(int64_t size) const {
  Array array = *this;
  array.shape[static_cast<size_t>(ndim)] = size;
  array.strides[static_cast<size_t>(ndim)] = 0;
  ++array.ndim;
  return array;
}

bool Array::can_merge(int begin, int end) const {
  int64_t size = 1, step = 0;  // of the dimensions behind, those of one element left out
  for (int d = end; d-- > begin;) {
    const auto at = static_cast<size_t>(d);
    if (shape[at] == 1) continue;
    if (size != 1 && strides[at] != step * size) return false;
    if (size == 1) step = strides[at];
    size *= shape[at];
  }
  return true;
}

Array Array::merged(int begin, int end) const {
  Array array = *this;
  int64_t size = 1, stride = 1;
  for (int d = end; d-- > begin;) {
    const auto at = static_cast<size_t>(d);
    if (size == 1) stride = strides[at];
    size *= shape[at];
  }
  array.ndim = ndim - (end - begin) + 1;
  array.shape[static_cast<size_t>(begin)] = size;
  array.strides[static_cast<size_t>(begin)] = stride;
  for (int d = end; d < ndim; ++d) {
    const auto to = static_cast<size_t>(begin + 1 + d - end), from = static_cast<size_t>(d);
    array.shape[to] = shape[from];
    array.strides[to] = strides[from];
  }
  return array;
}

Array Array::with_last(uint64_t mask) const {
  Array array = *this;
  int to = 0;
  for (const bool last : {false, true}) {
    for (int d = 0; d < ndim; ++d) {
      if (((mask >> d & 1) != 0) != last) continue;
      array.shape[static_cast<size_t>(to)] = shape[static_cast<size_t>(d)];
      array.strides[static_cast<size_t>(to)] = strides[static_cast<size_t>(d)];
      ++to;
    }
  }
  return array;
}

Array Array::select(int dim, int64_t index) const {
  Array array = narrow(dim, index, 1);
  for (int d = dim + 1; d < ndim; ++d) {
    array.shape[static_cast<size_t>(d - 1)] = shape[static_cast<size_t>(d)];
    array.strides[static_cast<size_t>(d - 1)] = strides[static_cast<size_t>(d)];
  }
  --array.ndim;
  return array;
}

Array Array::narrow(int dim, int64_t begin, int64_t size) const {
  Array array = *this;
  const auto at = static_cast<size_t>(dim);
  array.shape[at] = size;
  array.offset += begin * strides[at] * static_cast<int64_t>(itemsize(dtype));
  return array;
}

// ---- calls ----

void RecipeCall::put_view(const Array& array) {
  if (!array.is_given) return word(0);
  const bool row_major = array.is_row_major();
  const auto ndim = static_cast<size_t>(array.ndim);
  word(view_head(array.dtype, ndim, row_major));
  for (size_t d = 0; d < ndim; ++d) word(static_cast<uint64_t>(array.shape[d]));
  for (size_t d = 0; d < ndim && !row_major; ++d) word(static_cast<uint64_t>(array.strides[d]));
}

void RecipeCall::put_slot(const Array& array, Access access) {
  circuit::CallSlot& slot = slots_.emplace_back();
  const int64_t count = array.numel();
  if (!array.is_given || count == 0) return;
  const auto item = static_cast<int64_t>(itemsize(array.dtype));
  int64_t first = 0, last = 0;  // elements from that of `offset`
  for (size_t d = 0; d < static_cast<size_t>(array.ndim); ++d) {
    const int64_t end = (array.shape[d] - 1) * array.strides[d];
    (end < 0 ? first : last) += end;
  }
  slot.present = true;
  slot.slot = array.slot;
  slot.offset = array.offset + first * item;
  slot.bytes = (last - first + 1) * item;
  slot.writes = access != Access::reads;
  slot.reads = access != Access::writes || updates_results_;
  // Results do not overlap themselves, so that as many elements are all of them.
  slot.covers = access == Access::writes && last - first + 1 == count;
}

void Recipe::append_call(CallNumber number, const RecipeCall& call) {
  tape_.append_call(static_cast<uint16_t>(number), call.slots(), call.words(), call.numbers());
  for (const uint64_t bits : call.numbers()) {
    const auto constant = std::bit_cast<double>(bits);
    immediates_.push_back({Dtype::kFloat64, [constant](const double*) { return constant; }});
  }
}

void Recipe::product_into(const Array& out, const Array& a, const Array& b, Factor form, Sum sum) {
  if (out.numel() == 0) return;
  const auto batch_of_one = [](const Array& matrix) {
    Array batch = matrix;
    batch.ndim = 3;
    batch.shape = {1, matrix.shape[0], matrix.shape[1]};
    batch.strides = {0, matrix.strides[0], matrix.strides[1]};
    return batch;
  };
  const bool adds = sum == Sum::kAdded;
  call(calls::Gemm<Array>{.a = batch_of_one(a),
                          .b = batch_of_one(b),
                          .trans_b = form == Factor::kTransposed,
                          .scales = adds,
                          .alpha = 1,
                          .beta = adds ? 1.0 : 0.0,
                          .c = batch_of_one(out)},
       adds);
}

// ---- records ----

Recipe::Recipe(const circuit::KernelCall& call, const Traits& traits)
    : widest_(traits.has_double ? Dtype::kFloat64 : Dtype::kFloat32) {
  for (const circuit::CallSlot& operand : call.operands) {
    if (!operand.present) continue;
    if (std::find(call_slots_.begin(), call_slots_.end(), operand.slot) == call_slots_.end()) {
      call_slots_.push_back(operand.slot);
    }
  }
}

Array Recipe::temporary(Dtype dtype, int ndim, const int64_t* shape) {
  Array array;
  array.is_given = true;
  array.slot = static_cast<uint32_t>(call_slots_.size() + temporary_bytes_.size());
  array.dtype = dtype;
  array.ndim = ndim;
  int64_t step = 1;
  for (int d = ndim; d-- > 0;) {
    array.shape[static_cast<size_t>(d)] = shape[d];
    array.strides[static_cast<size_t>(d)] = step;
    step *= shape[d];
  }
  temporary_bytes_.push_back(static_cast<size_t>(step) * itemsize(dtype));
  return array;
}

void Recipe::record(circuit::Record& record, std::span<const Term> operands, int ndim,
                    const int64_t* shape, int fixed) {
  constexpr int kRoom = kMostDims + 2;
  int64_t sizes[kRoom], steps[(circuit::kMaxArity + 1) * kRoom];
  const int count = static_cast<int>(operands.size());
  Loops loops{0, count, sizes, steps, kRoom};
  for (int d = 0; d < ndim; ++d) {
    if (shape[d] == 1 && d < ndim - fixed) continue;
    loops.shape[loops.ndim] = shape[d];
    for (int k = 0; k < count; ++k) {
      // Shapes agree from the right.
      const Array& array = operands[static_cast<size_t>(k)].array;
      const int own = d - (ndim - array.ndim);
      const bool repeats =
          !array.is_given || own < 0 || array.shape[static_cast<size_t>(own)] != shape[d];
      loops.stride(k, loops.ndim) = repeats ? 0 : array.strides[static_cast<size_t>(own)];
    }
    ++loops.ndim;
  }
  if (fixed != 0 && loops.ndim == 1) {
    // Rows come as two dimensions, though there be one row.
    loops.shape[1] = loops.shape[0];
    loops.shape[0] = 1;
    for (int k = 0; k < count; ++k) {
      loops.stride(k, 1) = loops.stride(k, 0);
      loops.stride(k, 0) = 1;
    }
    loops.ndim = 2;
  }
  order_and_merge(loops, fixed);
  uint64_t bits[circuit::kMaxArity + 1] = {};
  bool flat = loops.ndim <= 1 && fixed == 0;
  record.arity = static_cast<uint8_t>(count - 1);
  record.ndim = loops.ndim;
  std::copy_n(loops.shape, loops.ndim, record.shape);
  for (int k = 0; k < count; ++k) {
    const Term& term = operands[static_cast<size_t>(k)];
    circuit::TapeOperand& operand = record.operands[k];
    operand = {};
    is_whole_ = is_whole_ && (!term.is_array || term.array.is_given);
    if (!term.is_array) {
      operand.kind = circuit::OperandKind::kImmediate;
      operand.dtype = record.compute;
      bits[k] = bits_of(record.compute, term.number ? kUnknown : term.constant);
      const double constant = term.constant;
      immediates_.push_back({record.compute, term.number ? term.number : [constant](const double*) {
                               return constant;
                             }});
      continue;
    }
    const int64_t* own = &loops.stride(k, 0);
    const bool one = loops.ndim > 0 && fixed == 0 &&
                     std::all_of(own, own + loops.ndim, [](int64_t step) { return step == 0; });
    operand.kind = one ? circuit::OperandKind::kOne : circuit::OperandKind::kMemory;
    operand.dtype = term.array.dtype;
    operand.slot = term.array.slot;
    operand.offset = term.array.offset;
    std::copy_n(own, loops.ndim, record.strides[k]);
    flat = flat && (one || loops.ndim == 0 || own[0] == 1);
  }
  if (flat) {
    tape_.append_flat(record.code, record.compute, record.arity, record.operands, bits,
                      loops.ndim == 0 ? 1 : loops.shape[0]);
  } else {
    tape_.append(record, bits);
  }
}

void Recipe::op_into(const Array& out, OpId id, Dtype compute, std::span<const Term> operands) {
  if (out.numel() == 0) return;
  std::vector<Term> all = {out};
  all.insert(all.end(), operands.begin(), operands.end());
  circuit::Record made;
  made.code = static_cast<uint16_t>(id);
  made.compute = compute;
  record(made, all, out.ndim, out.shape.data(), 0);
}

Array Recipe::op(OpId id, Dtype compute, std::initializer_list<Term> operands) {
  int64_t shape[kMostDims];
  int ndim = 0;
  std::fill_n(shape, kMostDims, 1);
  for (const Term& term : operands) ndim = std::max(ndim, term.array.ndim);
  for (const Term& term : operands) {
    for (int d = 0; d < term.array.ndim; ++d) {
      int64_t& size = shape[ndim - term.array.ndim + d];
      const int64_t own = term.array.shape[static_cast<size_t>(d)];
      if (own != 1) size = own;
    }
  }
  const Array out = temporary(op_info(id).result_is_bool ? Dtype::kBool : compute, ndim, shape);
  op_into(out, id, compute, operands);
  return out;
}

void Recipe::copy_into(const Array& out, const Array& from) {
  if (out.numel() == 0) return;
  circuit::Record made;
  made.code = circuit::kCodeConvert;
  made.compute = from.dtype;
  const Term both[] = {out, from};
  record(made, both, out.ndim, out.shape.data(), 0);
}

void Recipe::fill_into(const Array& out, double value) {
  if (out.numel() == 0) return;
  circuit::Record made;
  made.code = circuit::kCodeConvert;
  made.compute = compute_dtype(out.dtype);
  const Term both[] = {out, value};
  record(made, both, out.ndim, out.shape.data(), 0);
}

void Recipe::fold_into(const Array& out, Reduction kind, const Array& x) {
  if (x.numel() == 0) return;
  circuit::Record made;
  made.code = circuit::kCodeReduction;
  made.attr = static_cast<uint16_t>(kind);
  const auto result = reduction_info(kind).result;
  const bool as_out = result == ReductionInfo::kOut || result == ReductionInfo::kFloat;
  made.compute = as_out ? compute_dtype(out.dtype) : x.dtype;
  const Term both[] = {out.along_rows(x.shape[static_cast<size_t>(x.ndim - 1)]), x};
  record(made, both, x.ndim, x.shape.data(), 1);
}

Array Recipe::fold(Reduction kind, const Array& x, Dtype dtype) {
  const Array out = temporary(dtype, x.ndim - 1, x.shape.data());
  fold_into(out, kind, x);
  return out;
}

void Recipe::rows_into(const Array& out, circuit::RowOp kind,
                       std::initializer_list<Array> operands) {
  if (out.numel() == 0) return;
  std::vector<Term> all = {out};
  all.insert(all.end(), operands.begin(), operands.end());
  circuit::Record made;
  made.code = circuit::kCodeRow;
  made.attr = static_cast<uint16_t>(kind);
  made.compute = compute_dtype(out.dtype);
  record(made, all, out.ndim, out.shape.data(), 1);
}

std::unique_ptr<circuit::Plan> Recipe::plan(const circuit::PlanOptions& options) const {
  std::vector<uint8_t> states(call_slots_.size(), circuit::kSlotLive);
  states.resize(call_slots_.size() + temporary_bytes_.size(), circuit::kSlotFresh);
  return make_plan(tape_.words(), states, options);
}

// ---- from words ----

Array RecipeFrame::memory(Dtype dtype) {
  const circuit::CallSlot& operand = call_.operands[operand_++];
  Array array;
  array.dtype = dtype;
  if (!operand.present) return array;
  array.is_given = true;
  const std::vector<uint32_t>& slots = recipe_.call_slots();
  array.slot =
      static_cast<uint32_t>(std::find(slots.begin(), slots.end(), operand.slot) - slots.begin());
  array.offset = operand.offset;
  return array;
}

Array RecipeFrame::view() {
  const uint64_t head = *words_++;
  const int ndim = view_ndim(head);
  const auto* shape = reinterpret_cast<const int64_t*>(words_);
  words_ += view_words(head);
  Array array = memory(view_dtype(head));
  if (ndim >= kMostDims) {  // one dimension may be added
    is_read_ = false;
    return array;
  }
  array.ndim = ndim;
  int64_t step = 1;
  for (int d = ndim; d-- > 0;) {
    const auto at = static_cast<size_t>(d);
    array.shape[at] = shape[d];
    array.strides[at] = view_is_row_major(head) ? step : shape[ndim + d];
    step *= shape[d];
    if (array.strides[at] < 0) {
      array.offset -=
          (shape[d] - 1) * array.strides[at] * static_cast<int64_t>(itemsize(array.dtype));
    }
  }
  return array;
}

void RecipeFrame::operator()(calls::Scalar<Array>& scalar) {
  scalar.stored = static_cast<Stored>(*words_++);
  if (scalar.stored == Stored::number) return (*this)(scalar.value);
  static_cast<Array&>(scalar.memory) =
      memory(scalar.stored == Stored::float32 ? Dtype::kFloat32 : Dtype::kFloat64);
}

}  // namespace hologram::gpu
