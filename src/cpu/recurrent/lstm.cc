// SPDX-License-Identifier: MIT
// The recurrence of an LSTM: a product and the cells, step by step.
//
// The weight is packed once. Threads divide the units, so that each reads its part of the weight
// from its own cache at every step, and meet after each, as h of all units is what the next needs.
#include "hologram/lstm.h"

#include <algorithm>
#include <cstring>

#include "hologram/error.h"
#include "hologram/parallel.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/gemm/block_product.h"
#include "src/cpu/recurrent/lstm_kernels.h"

namespace hologram {
namespace cpu {
namespace {

constexpr int kGates = 4;
// So few rows in all read the weight where it lies: each of its elements is used too rarely to pay
// for packing it.
constexpr int64_t kFewRows = 4;
// Multiply-adds of a step from which threads share them.
constexpr int64_t kWorthThreads = int64_t{1} << 19;
// The widest panel of any instruction set: units are divided at its multiples.
constexpr int64_t kUnitBlock = 64;

constexpr int64_t padded(int64_t hidden) { return ceil_div(hidden, kUnitBlock) * kUnitBlock; }

template <class T>
struct Recurrence {
  const LstmArgs& args;
  const GemmKernel<T>& product;
  const LstmKernel<T> cells;

  explicit Recurrence(const LstmArgs& a)
      : args(a), product(gemm_kernel(current_isa(), T())), cells(lstm_kernel(current_isa(), T())) {}

  // Units [begin, end) of a chunk.
  struct Units {
    int64_t begin, end;
  };
  static Units units_of(int64_t hidden, int64_t chunk, int64_t chunks) {
    const int64_t blocks = ceil_div(hidden, kUnitBlock);
    return {std::min(hidden, blocks * chunk / chunks * kUnitBlock),
            std::min(hidden, blocks * (chunk + 1) / chunks * kUnitBlock)};
  }

  void run() const {
    const int64_t hidden = args.hidden, batch = args.batch;
    const int64_t work = batch * kGates * hidden * hidden;
    const int64_t wish = threads_of(args.max_threads);
    const int64_t chunks = work < kWorthThreads ? 1 : std::min(wish, ceil_div(hidden, kUnitBlock));
    const auto shared = [&](auto&& part) {
      parallel_for(chunks, static_cast<int>(chunks), [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) part(units_of(hidden, i, chunks));
      });
    };
    const bool packs = args.steps * batch > kFewRows;
    if (packs) shared([&](Units u) { pack(u); });

    const T* h = static_cast<const T*>(args.h0);
    int64_t h_row = hidden;
    const T* c = static_cast<const T*>(args.c0);
    for (int64_t step = 0; step < args.steps; ++step) {
      const int64_t t = args.reverse ? args.steps - 1 - step : step;
      T* const next = static_cast<T*>(args.output) + t * batch * args.output_row;
      shared([&](Units u) {
        multiply_gates(t, h, h_row, u, packs);
        compute_cells(t, c, next, u);
      });
      h = next, h_row = args.output_row;
      c = static_cast<const T*>(args.c_n);
    }
    copy_rows(h, h_row, static_cast<T*>(args.h_n));
    copy_rows(c, hidden, static_cast<T*>(args.c_n));
  }

  // The packed weight of a gate's units from `begin` on: those of a gate lie together.
  T* packed(int gate, int64_t begin) const {
    return static_cast<T*>(args.workspace) + (gate * padded(args.hidden) + begin) * args.hidden;
  }
  const T* weight(int gate, int64_t begin) const {
    return static_cast<const T*>(args.weight) + (gate * args.hidden + begin) * args.hidden;
  }
  T* gates(int64_t t) const {
    return static_cast<T*>(args.gates) + t * args.batch * kGates * args.hidden;
  }

  void pack(Units u) const {
    for (int gate = 0; gate < kGates; ++gate) {
      pack_transposed(product, weight(gate, u.begin), args.hidden, args.hidden, u.end - u.begin,
                      packed(gate, u.begin));
    }
  }

  // gates[t] += h weight^T
  void multiply_gates(int64_t t, const T* h, int64_t h_row, Units u, bool is_packed) const {
    const int64_t hidden = args.hidden, count = u.end - u.begin;
    for (int gate = 0; gate < kGates; ++gate) {
      T* const to = gates(t) + gate * hidden + u.begin;
      if (is_packed) {
        const RightOperand<T> right{packed(gate, u.begin), product.cols * hidden, product.cols,
                                    nullptr};
        multiply(product, args.batch, count, hidden, h, h_row, int64_t{1}, right, to,
                 kGates * hidden, T(1), T(1));
        continue;
      }
      for (int64_t r = 0; r < args.batch; ++r) {
        product.dot_rows(weight(gate, u.begin), hidden, h + r * h_row, count, hidden, T(1), T(1),
                         to + r * kGates * hidden, 1);
      }
    }
  }

  void compute_cells(int64_t t, const T* c, T* next, Units u) const {
    LstmCells<T> s;
    s.rows = args.batch, s.units = u.end - u.begin, s.gate = args.hidden;
    s.gates = gates(t) + u.begin, s.gates_row = kGates * args.hidden;
    s.bias = args.bias != nullptr ? static_cast<const T*>(args.bias) + u.begin : nullptr;
    s.c = c + u.begin, s.c_next = static_cast<T*>(args.c_n) + u.begin, s.c_row = args.hidden;
    s.h = next + u.begin, s.h_row = args.output_row;
    cells(s);
  }

  void copy_rows(const T* from, int64_t row, T* to) const {
    if (from == to) return;
    for (int64_t r = 0; r < args.batch; ++r) {
      std::copy_n(from + r * row, args.hidden, to + r * args.hidden);
    }
  }
};

void check(const LstmArgs& a) {
  if (a.dtype != Dtype::kFloat32 && a.dtype != Dtype::kFloat64) {
    fail(ErrorKind::kNotSupported, "lstm is for float32 and float64, not ", dtype_name(a.dtype));
  }
  if (std::min({a.steps, a.batch, a.hidden}) < 0) {
    fail(ErrorKind::kInvalidArgument, "lstm: a size is negative: steps ", a.steps, ", batch ",
         a.batch, ", hidden ", a.hidden);
  }
  if (a.output_row < a.hidden) {
    fail(ErrorKind::kInvalidArgument, "lstm: rows of the output are ", a.output_row,
         " elements apart but ", a.hidden, " wide");
  }
  if (a.batch == 0 || a.hidden == 0) return;
  const bool has_states =
      a.h0 != nullptr && a.c0 != nullptr && a.h_n != nullptr && a.c_n != nullptr;
  const bool has_steps = a.gates != nullptr && a.weight != nullptr && a.output != nullptr &&
                         (a.workspace != nullptr || a.steps * a.batch <= kFewRows);
  if (!has_states || (a.steps > 0 && !has_steps)) {
    fail(ErrorKind::kInvalidArgument, "lstm: an operand that has elements is null");
  }
}

}  // namespace
}  // namespace cpu

void lstm(const LstmArgs& args) {
  cpu::check(args);
  if (args.batch == 0 || args.hidden == 0) return;
  if (args.dtype == Dtype::kFloat32) {
    cpu::Recurrence<float>(args).run();
  } else {
    cpu::Recurrence<double>(args).run();
  }
}

int64_t lstm_workspace(int64_t steps, int64_t batch, int64_t hidden) {
  if (steps * batch <= cpu::kFewRows) return 0;
  return cpu::kGates * cpu::padded(hidden) * hidden;
}

}  // namespace hologram
