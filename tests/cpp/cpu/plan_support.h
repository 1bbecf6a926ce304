// SPDX-License-Identifier: MIT
// Builds plans by hand and runs them twice: through the tile machine and instruction by instruction
// through the public functions.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "hologram/cpu_info.h"
#include "hologram/device.h"
#include "hologram/elementwise.h"
#include "hologram/op.h"
#include "hologram/parallel.h"
#include "hologram/reduction.h"
#include "hologram/softmax.h"
#include "src/circuit/plan.h"
#include "src/cpu/executor/run.h"

namespace hologram::plans {

using circuit::Instr;
using circuit::Kernel;
using circuit::MemoryAccess;
using circuit::Rank;
using circuit::Ref;
using Strides = std::vector<int64_t>;

using Random = std::mt19937;
inline int pick(Random& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}
template <class T>
const T& pick_of(Random& random, const std::vector<T>& list) {
  return list[static_cast<size_t>(pick(random, 0, static_cast<int>(list.size()) - 1))];
}

// Numbers of every kind that a dtype has: small, special, any bits. NaN comes in one form, since
// which of two payloads survives is not part of an op's meaning.
inline void fill_random(Random& random, Dtype dtype, char* data, int64_t n) {
  const auto put = [&](int64_t i, auto value) {
    std::memcpy(data + i * static_cast<int64_t>(sizeof value), &value, sizeof value);
  };
  const float kSpecial[] = {
      0.0f,      -0.0f,  1.0f,    -1.0f,   INFINITY,
      -INFINITY, 1e-40f, -3e-42f, 3.4e38f, std::numeric_limits<float>::quiet_NaN()};
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < n; ++i) {
    const bool special = pick(random, 0, 60) == 0;
    const double x = special ? static_cast<double>(kSpecial[pick(random, 0, 9)]) : normal(random);
    const float f = static_cast<float>(x);
    switch (dtype) {
      case Dtype::kBool:
        put(i, static_cast<uint8_t>(pick(random, 0, 1)));
        break;
      case Dtype::kUInt8:
      case Dtype::kInt8:
        put(i, static_cast<int8_t>(pick(random, -128, 127)));
        break;
      case Dtype::kInt16:
        put(i, static_cast<int16_t>(pick(random, -32768, 32767)));
        break;
      case Dtype::kInt32:
        put(i, static_cast<int32_t>(random()));
        break;
      case Dtype::kInt64:
        put(i, static_cast<int64_t>(random()) << pick(random, 0, 20));
        break;
      case Dtype::kFloat16:
      case Dtype::kBFloat16: {
        uint16_t half;
        convert(Dtype::kFloat32, &f, dtype, &half, 1);
        put(i, half);
        break;
      }
      case Dtype::kFloat32:
        put(i, f);
        break;
      default:
        put(i, x);
    }
  }
}

inline uint64_t number(Dtype compute, double value) {
  if (compute == Dtype::kFloat32) return std::bit_cast<uint32_t>(static_cast<float>(value));
  if (compute == Dtype::kFloat64) return std::bit_cast<uint64_t>(value);
  return static_cast<uint64_t>(static_cast<int64_t>(value));
}

// One kernel under construction.
struct Builder {
  Kernel kernel;

  explicit Builder(std::vector<int64_t> shape, bool whole_rows = false) {
    kernel.ndim = static_cast<int>(shape.size());
    std::copy(shape.begin(), shape.end(), kernel.shape.begin());
    kernel.whole_rows = whole_rows;
  }
  Strides contiguous() const {
    Strides strides(static_cast<size_t>(kernel.ndim));
    int64_t step = 1;
    for (int d = kernel.ndim - 1; d >= 0; --d) {
      strides[static_cast<size_t>(d)] = step;
      step *= kernel.shape[d];
    }
    return strides;
  }
  // One element a row, one after the other.
  Strides rows() const {
    Strides strides(static_cast<size_t>(kernel.ndim), 0);
    int64_t step = 1;
    for (int d = kernel.ndim - 2; d >= 0; --d) {
      strides[static_cast<size_t>(d)] = step;
      step *= kernel.shape[d];
    }
    return strides;
  }
  Ref access(uint32_t slot, Dtype dtype, const Strides& strides, Rank rank = Rank::kFull,
             int64_t offset = 0) {
    MemoryAccess made;
    made.slot = slot;
    made.offset = offset;
    made.dtype = dtype;
    made.rank = rank;
    std::copy(strides.begin(), strides.end(), made.strides.begin());
    kernel.accesses.push_back(made);
    return {Ref::kAccess, static_cast<uint32_t>(kernel.accesses.size() - 1)};
  }
  Ref dense(uint32_t slot, Dtype dtype) { return access(slot, dtype, contiguous()); }
  Ref temp(Dtype dtype, Rank rank = Rank::kFull) {
    kernel.temps.push_back({dtype, rank});
    return {Ref::kTemp, static_cast<uint32_t>(kernel.temps.size() - 1)};
  }
  static Ref immediate(uint32_t index) { return {Ref::kImmediate, index}; }

  Dtype dtype_of(const Ref& ref) const {
    return ref.kind == Ref::kTemp ? kernel.temps[ref.index].dtype
                                  : kernel.accesses[ref.index].dtype;
  }
  Rank rank_of(const Ref& ref) const {
    if (ref.kind == Ref::kImmediate) return Rank::kOne;
    return ref.kind == Ref::kTemp ? kernel.temps[ref.index].rank : kernel.accesses[ref.index].rank;
  }

  Instr& add(uint16_t code, Dtype compute, std::vector<Ref> in, Ref out) {
    Instr instr;
    instr.code = code;
    instr.compute = compute;
    instr.arity = static_cast<uint8_t>(in.size());
    std::copy(in.begin(), in.end(), instr.in);
    for (const Ref& ref : in) {
      if (ref.kind == Ref::kAccess && !kernel.accesses[ref.index].stored) {
        kernel.accesses[ref.index].loaded = true;
      }
    }
    if (out.kind == Ref::kAccess) kernel.accesses[out.index].stored = true;
    instr.out = out;
    instr.result = dtype_of(out);
    instr.rank = rank_of(out);
    kernel.instrs.push_back(instr);
    return kernel.instrs.back();
  }
  void op(OpId id, Dtype compute, std::vector<Ref> in, Ref out) {
    add(static_cast<uint16_t>(id), compute, std::move(in), out);
    kernel.heavy |= op_info(id).is_heavy();
  }
  Ref op_temp(OpId id, Dtype compute, std::vector<Ref> in, Rank rank = Rank::kFull) {
    const Ref out = temp(op_info(id).result_is_bool ? Dtype::kBool : compute, rank);
    op(id, compute, std::move(in), out);
    return out;
  }
  void convert(Ref in, Dtype from, Ref out) { add(circuit::kCodeConvert, from, {in}, out); }
  Ref convert_temp(Ref in, Dtype to) {
    const Ref out = temp(to, rank_of(in));
    convert(in, dtype_of(in), out);
    return out;
  }
  void fold(Reduction op, Ref in, Ref out, double parameter = 0) {
    Instr& instr = add(circuit::kCodeReduction, dtype_of(in), {in}, out);
    instr.attr = static_cast<uint16_t>(op);
    instr.parameter = parameter;
  }
  Ref fold_temp(Reduction op, Ref in, Dtype to, double parameter = 0) {
    const Ref out = temp(to, Rank::kRow);
    fold(op, in, out, parameter);
    return out;
  }
  void rows(circuit::RowOp op, Dtype compute, std::vector<Ref> in, Ref out) {
    add(circuit::kCodeRow, compute, std::move(in), out).attr = static_cast<uint16_t>(op);
    kernel.heavy = true;
  }
};

// A plan and the memory it works on.
struct Case {
  circuit::Plan plan;
  std::vector<std::vector<char>> slots;
  std::vector<Dtype> dtypes;  // of the slots
  std::vector<uint64_t> immediates;

  // A slot of n random elements, and some beyond them that must not be written.
  uint32_t slot(Random& random, Dtype dtype, int64_t n) {
    std::vector<char> bytes(static_cast<size_t>(n) * itemsize(dtype) + 64);
    fill_random(random, dtype, bytes.data(), n);
    slots.push_back(std::move(bytes));
    dtypes.push_back(dtype);
    return static_cast<uint32_t>(slots.size() - 1);
  }
  uint32_t immediate(Dtype compute, double value) {
    immediates.push_back(number(compute, value));
    return static_cast<uint32_t>(immediates.size() - 1);
  }
  void add(const Builder& builder, int stage = 0, int launch = 0) {
    plan.kernels.push_back(builder.kernel);
    plan.kernels.back().stage = stage;
    plan.kernels.back().launch = launch;
    plan.slots = static_cast<int>(slots.size());
  }
  static circuit::Bindings bind(std::vector<std::vector<char>>& memory, std::vector<char*>& at,
                                const std::vector<uint64_t>& numbers) {
    at.clear();
    for (auto& bytes : memory) at.push_back(bytes.data());
    return {at.data(), numbers.data()};
  }
};

// The same instruction by instruction, each over the whole domain, through the public functions.
class Unfused {
 public:
  Unfused(const Kernel& kernel, const circuit::Bindings& bindings)
      : kernel_(kernel), bindings_(bindings), temps_(kernel.temps.size()) {}

  void run() {
    if (kernel_.numel() == 0) return;
    for (size_t t = 0; t < temps_.size(); ++t) {
      const auto& temp = kernel_.temps[t];
      int64_t n = kernel_.numel();
      if (temp.rank == Rank::kRow) n = kernel_.rows();
      if (temp.rank == Rank::kOne) n = 1;
      temps_[t].resize(static_cast<size_t>(n) * itemsize(temp.dtype));
    }
    for (const Instr& instr : kernel_.instrs) run_one(instr);
  }

 private:
  struct Shaped {
    View view;
    std::array<int64_t, 8> shape, strides;
  };
  // The operand over the domain, its last dimension 1 where rank is kRow, all of them where kOne.
  void shape_view(const Ref& ref, Rank rank, Dtype number_dtype, Shaped& out) {
    const int ndim = kernel_.ndim;
    std::array<int64_t, 8> own{};
    Dtype dtype = number_dtype;
    void* data = nullptr;
    if (ref.kind == Ref::kImmediate) {
      data = const_cast<uint64_t*>(bindings_.immediates + ref.index);
    } else if (ref.kind == Ref::kAccess) {
      const MemoryAccess& access = kernel_.accesses[ref.index];
      data = bindings_.slots[access.slot] + access.offset;
      dtype = access.dtype;
      own = access.strides;
    } else {
      const auto& temp = kernel_.temps[ref.index];
      data = temps_[ref.index].data();
      dtype = temp.dtype;
      Builder domain(std::vector<int64_t>(kernel_.shape.begin(), kernel_.shape.begin() + ndim));
      if (temp.rank != Rank::kOne) {
        const Strides s = temp.rank == Rank::kRow ? domain.rows() : domain.contiguous();
        std::copy(s.begin(), s.end(), own.begin());
      }
    }
    out.strides = own;
    out.shape = kernel_.shape;
    if (rank == Rank::kRow) out.shape[static_cast<size_t>(ndim - 1)] = 1;
    if (rank == Rank::kOne) out.shape.fill(1);
    out.view = {data, dtype, ndim, out.shape.data(), out.strides.data()};
  }

  // The operand's elements in order.
  std::vector<char> packed(const Ref& ref, Rank rank, Dtype number_dtype, Dtype& dtype) {
    Shaped from;
    shape_view(ref, rank, number_dtype, from);
    dtype = from.view.dtype;
    std::vector<char> bytes(static_cast<size_t>(from.view.numel()) * itemsize(dtype));
    copy(from.view, dense(bytes, dtype), 1);
    return bytes;
  }
  View dense(std::vector<char>& bytes, Dtype dtype) {
    Builder domain(
        std::vector<int64_t>(kernel_.shape.begin(), kernel_.shape.begin() + kernel_.ndim));
    dense_strides_.push_back(domain.contiguous());
    return {bytes.data(), dtype, kernel_.ndim, kernel_.shape.data(), dense_strides_.back().data()};
  }

  void run_one(const Instr& instr) {
    Shaped out;
    shape_view(instr.out, instr.rank, instr.result, out);
    if (instr.is_op() || instr.code == circuit::kCodeConvert) {
      std::array<Shaped, 4> in;
      std::array<View, 4> views;
      for (int k = 0; k < instr.arity; ++k) {
        shape_view(instr.in[k], instr.rank, instr.compute, in[static_cast<size_t>(k)]);
        views[static_cast<size_t>(k)] = in[static_cast<size_t>(k)].view;
      }
      if (instr.is_op()) {
        elementwise(instr.op(), instr.compute, views.data(), instr.arity, out.view, 1);
      } else {
        copy(views[0], out.view, 1);
      }
      return;
    }
    Dtype dtype{}, second{};
    std::vector<char> a = packed(instr.in[0], Rank::kFull, instr.compute, dtype);
    const int64_t rows = kernel_.rows(), cols = kernel_.cols();
    const int64_t shape[2] = {rows, cols}, strides[2] = {cols, 1}, one = 1;
    const View x{a.data(), dtype, 2, shape, strides};
    if (instr.code == circuit::kCodeReduction) {
      std::vector<char> result(static_cast<size_t>(rows) * itemsize(instr.result));
      const int dims[1] = {1};
      ReduceOptions options;
      options.p = options.correction = instr.parameter;
      options.max_threads = 1;
      reduce(static_cast<Reduction>(instr.attr), x, dims,
             {result.data(), instr.result, 1, &rows, &one}, options);
      Builder domain(
          std::vector<int64_t>(kernel_.shape.begin(), kernel_.shape.begin() + kernel_.ndim));
      const Strides steps = domain.rows();
      copy({result.data(), instr.result, kernel_.ndim, out.shape.data(), steps.data()}, out.view,
           1);
      return;
    }
    std::vector<char> b, y(static_cast<size_t>(rows * cols) * itemsize(instr.result));
    if (instr.arity == 2) b = packed(instr.in[1], Rank::kFull, instr.compute, second);
    const View other{b.data(), second, 2, shape, strides};
    const View to{y.data(), instr.result, 2, shape, strides};
    switch (static_cast<circuit::RowOp>(instr.attr)) {
      case circuit::RowOp::kSoftmax:
        softmax(x, 1, to, 1);
        break;
      case circuit::RowOp::kLogSoftmax:
        log_softmax(x, 1, to, 1);
        break;
      case circuit::RowOp::kSoftmaxBackward:
        softmax_backward(x, other, 1, to, 1);
        break;
      case circuit::RowOp::kLogSoftmaxBackward:
        log_softmax_backward(x, other, 1, to, 1);
        break;
    }
    copy(dense(y, instr.result), out.view, 1);
  }

  const Kernel& kernel_;
  circuit::Bindings bindings_;
  std::vector<std::vector<char>> temps_;
  std::vector<Strides> dense_strides_;
};

inline bool is_nan_at(Dtype dtype, const char* p) {
  if (!is_floating(dtype)) return false;
  double value;
  convert(dtype, p, Dtype::kFloat64, &value, 1);
  return value != value;
}

// The first element that differs, or -1. Of two NaN operands the compiler may pass on either, for
// it may swap them, differently in each form of a kernel: a NaN equals any other.
inline int64_t first_difference(Dtype dtype, const std::vector<char>& a,
                                const std::vector<char>& b) {
  if (a == b) return -1;
  const size_t size = itemsize(dtype);
  for (size_t i = 0; i + size <= a.size(); i += size) {
    if (std::memcmp(&a[i], &b[i], size) == 0) continue;
    if (!is_nan_at(dtype, &a[i]) || !is_nan_at(dtype, &b[i])) return static_cast<int64_t>(i / size);
  }
  return -1;
}

// Runs the plan several times over, each on fresh memory, and compares every element of every slot.
inline void expect_unfused_bits(Case& test, const std::string& what, int runs = 3) {
  std::vector<char*> at;
  auto want = test.slots;
  const circuit::Bindings unfused = Case::bind(want, at, test.immediates);
  for (const Kernel& kernel : test.plan.kernels) Unfused(kernel, unfused).run();
  for (const int threads : {1, 4}) {
    for (int run = 0; run < runs; ++run) {
      auto got = test.slots;
      cpu::run_plan(test.plan, Case::bind(got, at, test.immediates), threads);
      for (size_t s = 0; s < got.size(); ++s) {
        const int64_t i = first_difference(test.dtypes[s], got[s], want[s]);
        if (i < 0) continue;
        ADD_FAILURE() << what << ": slot " << s << " differs at element " << i << ", threads "
                      << threads << ", run " << run << "\n"
                      << circuit::print_plan(test.plan);
        return;
      }
    }
  }
}

}  // namespace hologram::plans
