// SPDX-License-Identifier: MIT
// See row_values.h.
#include "src/gpu/rows/row_values.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "src/gpu/squares.h"

namespace hologram::gpu {
namespace {

using circuit::RowOp;

// The dtype that a reduction is computed in.
Dtype fold_dtype(Dtype compute) {
  return is_floating(compute) ? compute_dtype(compute) : Dtype::kInt64;
}

constexpr std::string_view kLastPosition = "(i64)(((u64)1 << 63) - 1)";

std::string largest(Dtype dtype) {
  return dtype == Dtype::kFloat64 ? "0x1.fffffffffffffp+1023" : "0x1.fffffep+127f";
}

}  // namespace

int RowValues::add(Value value) {
  for (const int operand : value.operands) {
    const Value& known = values_[static_cast<size_t>(operand)];
    value.is_full |= known.is_full;
    value.walk = std::max(value.walk, known.walk);
  }
  values_.push_back(std::move(value));
  return static_cast<int>(values_.size()) - 1;
}

int RowValues::make(Dtype dtype, std::string text, std::vector<int> operands) {
  Value value;
  value.dtype = dtype;
  value.text = std::move(text);
  value.operands = std::move(operands);
  return add(std::move(value));
}

int RowValues::op(OpId id, Dtype compute, const std::vector<int>& operands) {
  std::string names[circuit::kMaxArity];
  for (size_t k = 0; k < operands.size(); ++k) names[k] = name(operands[k]);
  const Dtype result = op_info(id).result_is_bool ? Dtype::kBool : compute;
  const int value =
      make(result, functions_.row(id, compute, names, static_cast<int>(operands.size())), operands);
  if (op_info(id).is_heavy()) values_.back().cost = compute == Dtype::kFloat64 ? 64 : 8;
  return value;
}

int RowValues::converted(int value, Dtype to) {
  if (dtype_of(value) == to) return value;
  return make(to, functions_.converted(name(value), dtype_of(value), to), {value});
}

int RowValues::fold(Merge merge, int input) {
  for (const Fold& known : folds_) {
    if (known.merge == merge && known.input == input) return known.result;
  }
  Value result;
  result.dtype = dtype_of(input);
  result.fold = static_cast<int>(folds_.size());
  result.walk = values_[static_cast<size_t>(input)].walk + 1;
  values_.push_back(result);
  const int at = static_cast<int>(values_.size()) - 1;
  folds_.push_back({merge, input, result.walk - 1, result.dtype, at});
  return at;
}

int RowValues::read(const Ref& ref, Dtype compute) {
  if (ref.kind == Ref::kImmediate) return make(compute, immediate(ref.index, compute));
  if (ref.kind == Ref::kTemp) return temps_[ref.index];
  int& known = loaded_[ref.index];
  if (known >= 0) return known;
  const MemoryAccess& access = kernel_.accesses[ref.index];
  Value value;
  value.dtype = access.dtype;
  value.is_full = access.rank == Rank::kFull;
  if (value.is_full) {
    value.access = static_cast<int>(ref.index);
  } else {
    value.text = load(cat("a", ref.index), access.dtype);
  }
  return known = add(value);
}

void RowValues::add_instr(const Instr& instr) {
  temps_.resize(kernel_.temps.size(), -1);
  loaded_.resize(kernel_.accesses.size(), -1);
  int value;
  if (instr.code == circuit::kCodeReduction) {
    value = reduction(static_cast<Reduction>(instr.attr), read(instr.in[0], instr.compute), instr);
  } else if (instr.code == circuit::kCodeRow) {
    value = row_function(instr);
  } else {
    std::vector<int> in;
    in.reserve(instr.arity);
    for (int k = 0; k < instr.arity; ++k) {
      in.push_back(converted(read(instr.in[k], instr.compute), instr.compute));
    }
    value = instr.is_op() ? op(instr.op(), instr.compute, in) : in[0];
  }
  const bool is_temp = instr.out.kind == Ref::kTemp;
  const Dtype target =
      is_temp ? kernel_.temps[instr.out.index].dtype : kernel_.accesses[instr.out.index].dtype;
  value = converted(converted(value, instr.result), target);
  if (is_temp) {
    temps_[instr.out.index] = value;
  } else {
    stores_.push_back({instr.out.index, value});
    loaded_[instr.out.index] = value;  // what later instructions read there
  }
}

int RowValues::mean_of(int input) {
  const Dtype dtype = dtype_of(input);
  return op(OpId::div, dtype, {fold(Merge::kSum, input), count(dtype)});
}

int RowValues::power_for_squares(int x) {
  const int magnitude = fold(Merge::kMaximum, op(OpId::abs, Dtype::kFloat32, {x}));
  const std::string most = name(magnitude);
  const auto number = [](double value) {
    return cat("as_f32((u32)", std::bit_cast<uint32_t>(static_cast<float>(value)), ")");
  };
  return make(Dtype::kFloat32,
              cat(most, " > ", number(kHugeToSquare), " ? ", number(1 / kPowerForSquares), " : ",
                  most, " < ", number(kTinyToSquare), " ? ", number(kPowerForSquares), " : 1"),
              {magnitude});
}

int RowValues::parameter(Dtype dtype, double value) {
  if (dtype == Dtype::kFloat64) {
    return make(dtype, cat("as_f64(", add_word(std::bit_cast<int64_t>(value)), ")"));
  }
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  return make(dtype, cat("as_f32((u32)", add_word(bits), ")"));
}

int RowValues::reduction(Reduction kind, int stored, const Instr& instr) {
  if (kind == Reduction::any || kind == Reduction::all) {
    const int is = converted(stored, Dtype::kBool);
    return fold(kind == Reduction::any ? Merge::kAny : Merge::kAll, is);
  }
  const Dtype dtype = fold_dtype(instr.compute);
  const int x = converted(stored, dtype);
  switch (kind) {
    case Reduction::mean:
      return mean_of(x);
    case Reduction::prod:
      return fold(Merge::kProduct, x);
    case Reduction::amin:
      return fold(Merge::kMinimum, x);
    case Reduction::amax:
      return fold(Merge::kMaximum, x);
    case Reduction::argmin:
    case Reduction::argmax: {
      // The first of those that are the most; of NaN, which is more than all, the first.
      const int most = fold(kind == Reduction::argmin ? Merge::kMinimum : Merge::kMaximum, x);
      const std::string is_most =
          cat(name(x), " == ", name(most), " || ", name(x), " != ", name(x));
      return fold(
          Merge::kMinimum,
          make(Dtype::kInt64, cat(is_most, " ? (i64)position : ", kLastPosition), {x, most}));
    }
    case Reduction::nansum:
      if (!is_floating(dtype)) return fold(Merge::kSum, x);
      return fold(Merge::kSum, make(dtype, cat(name(x), " != ", name(x), " ? 0 : ", name(x)), {x}));
    case Reduction::logsumexp: {
      const int most = fold(Merge::kMaximum, x);
      // Of an infinite one nothing is taken away: the sum is infinite, or 0.
      const std::string m = name(most);
      const std::string is_taken = cat("fabs(", m, ") <= ", largest(dtype), " || ", m, " != ", m);
      const int taken = make(dtype, cat(is_taken, " ? ", m, " : 0"), {most});
      const int sum = fold(Merge::kSum, op(OpId::exp, dtype, {op(OpId::sub, dtype, {x, taken})}));
      return op(OpId::add, dtype, {op(OpId::log, dtype, {sum}), taken});
    }
    case Reduction::norm:
      return norm(x, instr.parameter);
    case Reduction::var:
    case Reduction::std: {
      const bool has_power = dtype == Dtype::kFloat32;
      const int power = has_power ? power_for_squares(x) : -1;
      int away = op(OpId::sub, dtype, {x, mean_of(x)});
      if (has_power) away = op(OpId::mul, dtype, {away, power});
      const int sum = fold(Merge::kSum, op(OpId::mul, dtype, {away, away}));
      const double left = std::max(0.0, static_cast<double>(cols_) - instr.parameter);
      int result = op(OpId::div, dtype, {sum, parameter(dtype, left)});
      if (kind == Reduction::std) result = op(OpId::sqrt, dtype, {result});
      if (has_power && kind == Reduction::var) result = op(OpId::div, dtype, {result, power});
      return has_power ? op(OpId::div, dtype, {result, power}) : result;
    }
    default:
      return fold(Merge::kSum, x);
  }
}

int RowValues::norm(int x, double p) {
  const Dtype dtype = dtype_of(x);
  const int size = op(OpId::abs, dtype, {x});
  if (std::isinf(p)) return fold(p > 0 ? Merge::kMaximum : Merge::kMinimum, size);
  if (p == 0) return fold(Merge::kSum, make(dtype, cat(name(x), " != 0 ? 1 : 0"), {x}));
  if (p == 1) return fold(Merge::kSum, size);
  if (p == 2) {
    return op(OpId::sqrt, dtype, {fold(Merge::kSum, op(OpId::mul, dtype, {x, x}))});
  }
  const int power = parameter(dtype, p);
  const int sum = fold(Merge::kSum, op(OpId::pow, dtype, {size, power}));
  return op(OpId::pow, dtype, {sum, op(OpId::reciprocal, dtype, {power})});
}

int RowValues::row_function(const Instr& instr) {
  const Dtype dtype = instr.compute;
  std::vector<int> in;
  in.reserve(instr.arity);
  for (int k = 0; k < instr.arity; ++k) {
    in.push_back(converted(read(instr.in[k], dtype), dtype));
  }
  switch (static_cast<RowOp>(instr.attr)) {
    case RowOp::kSoftmax:
    case RowOp::kLogSoftmax: {
      const int away = op(OpId::sub, dtype, {in[0], fold(Merge::kMaximum, in[0])});
      const int exp = op(OpId::exp, dtype, {away});
      const int sum = fold(Merge::kSum, exp);
      if (static_cast<RowOp>(instr.attr) == RowOp::kSoftmax) {
        return op(OpId::div, dtype, {exp, sum});
      }
      return op(OpId::sub, dtype, {away, op(OpId::log, dtype, {sum})});
    }
    case RowOp::kSoftmaxBackward: {
      const int sum = fold(Merge::kSum, op(OpId::mul, dtype, in));
      return op(OpId::mul, dtype, {in[1], op(OpId::sub, dtype, {in[0], sum})});
    }
    case RowOp::kLogSoftmaxBackward: {
      const int sum = fold(Merge::kSum, in[0]);
      const int exp = op(OpId::exp, dtype, {in[1]});
      return op(OpId::sub, dtype, {in[0], op(OpId::mul, dtype, {exp, sum})});
    }
  }
  return in[0];
}

bool RowValues::row_steps_less() const {
  if (row_dims_ == 0) return false;
  int64_t row = 0, col = 0;
  for (const MemoryAccess& access : kernel_.accesses) {
    if (access.rank != Rank::kFull) continue;
    row += std::abs(access.strides[static_cast<size_t>(row_dims_ - 1)]);
    col += std::abs(access.strides[static_cast<size_t>(row_dims_)]);
  }
  return row < col;
}

size_t RowValues::narrowest() const {
  size_t least = 8;
  for (const MemoryAccess& access : kernel_.accesses) {
    if (access.rank == Rank::kFull) least = std::min(least, itemsize(access.dtype));
  }
  return least;
}

void RowValues::write_begin(const MemoryAccess& access, std::string& body) {
  const auto index = static_cast<size_t>(&access - kernel_.accesses.data());
  put(body, "  GLOBAL u8* const a", index, " = ", begin_of(access));
  const auto size = static_cast<int64_t>(itemsize(access.dtype));
  for (int d = 0; d < row_dims_ && access.rank != Rank::kOne; ++d) {
    const int64_t stride = access.strides[static_cast<size_t>(d)];
    if (stride == 0) continue;
    put(body, " + (i64)p", d, " * ", add_word(stride * size));
  }
  body += ";\n";
  std::string step;
  if (access.rank == Rank::kFull) {
    const int64_t stride = access.strides[static_cast<size_t>(row_dims_)];
    // Of neighbours it is in the text, which then has addresses that differ by constants.
    step = stride == 1 ? std::to_string(size) : add_word(stride * size);
  }
  steps_.push_back(std::move(step));
}

std::string RowValues::begin_walk(uint32_t access) const {
  return cat("GLOBAL u8* const b", access, " = a", access, " + (i64)c0 * ", steps_[access], ";\n");
}

std::string RowValues::place(uint32_t access, const std::string& at) const {
  return cat("b", access, " + (i64)(", at, ") * (apart * ", steps_[access], ")");
}

}  // namespace hologram::gpu
