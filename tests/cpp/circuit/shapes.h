// SPDX-License-Identifier: MIT
// Circuits of n ops in which every way to plan them naively takes more than linear time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "src/circuit/plan.h"

namespace hologram::circuit::testing {

// A tape over buffers of float32, written view by view.
class Sketch {
 public:
  struct View {
    uint32_t slot = 0;
    int64_t first = 0;  // elements
    int64_t rows = 1, cols = 1;
    int64_t row_step = 0, col_step = 1;
  };

  // A buffer of that many elements; live: the outside sees it.
  uint32_t buffer(int64_t elements, bool live) {
    states_.push_back(live ? kSlotLive : kSlotFresh);
    elements_.push_back(elements);
    return static_cast<uint32_t>(states_.size() - 1);
  }
  static View run(uint32_t slot, int64_t n, int64_t first = 0) { return {slot, first, 1, n, n, 1}; }

  // out = op(in...); a number for what is missing of two operands.
  void op(OpId id, const View& out, std::vector<View> in, int arity) {
    Record record;
    record.code = static_cast<uint16_t>(id);
    record.arity = static_cast<uint8_t>(arity);
    record.ndim = 2;
    record.shape[0] = out.rows, record.shape[1] = out.cols;
    uint64_t bits[kMaxArity + 1] = {};
    in.insert(in.begin(), out);
    for (size_t k = 0; k <= static_cast<size_t>(arity); ++k) {
      TapeOperand& operand = record.operands[k];
      if (k >= in.size()) {
        operand.kind = OperandKind::kImmediate;
        bits[k] = 0x40400000;  // 3
        operand.number = classify_number(operand.dtype, bits[k]);
        continue;
      }
      operand.slot = in[k].slot;
      operand.offset = 4 * in[k].first;
      record.strides[k][0] = in[k].row_step, record.strides[k][1] = in[k].col_step;
    }
    tape_.append(record, bits);
  }
  void add(const View& out, const View& in) { op(OpId::add, out, {in}, 2); }
  void add(const View& out, const View& a, const View& b) { op(OpId::add, out, {a, b}, 2); }
  void fill(const View& out) {
    Record record = conversion(out);
    record.operands[1].kind = OperandKind::kImmediate;
    const uint64_t bits[2] = {0, 0x40a00000};  // 5
    tape_.append(record, bits);
  }
  void copy(const View& out, const View& in) {
    Record record = conversion(out);
    record.operands[1].slot = in.slot;
    record.operands[1].offset = 4 * in.first;
    record.strides[1][0] = in.row_step, record.strides[1][1] = in.col_step;
    tape_.append(record, nullptr);
  }
  // A new buffer of n elements with the sum.
  uint32_t sum_of(const View& a, bool live, int64_t n) {
    const uint32_t out = buffer(n, live);
    add(run(out, n), a);
    return out;
  }

  const Tape& tape() const { return tape_; }
  const std::vector<uint8_t>& states() const { return states_; }
  const std::vector<int64_t>& elements() const { return elements_; }

 private:
  static Record conversion(const View& out) {
    Record record;
    record.code = kCodeConvert;
    record.arity = 1;
    record.ndim = 2;
    record.shape[0] = out.rows, record.shape[1] = out.cols;
    record.operands[0].slot = out.slot;
    record.operands[0].offset = 4 * out.first;
    record.strides[0][0] = out.row_step, record.strides[0][1] = out.col_step;
    return record;
  }

  Tape tape_;
  std::vector<uint8_t> states_;
  std::vector<int64_t> elements_;
};

struct Shape {
  std::string name;
  std::function<Sketch(int)> make;  // of about that many ops
};

inline const std::vector<Shape>& shapes() {
  using View = Sketch::View;
  constexpr int64_t n = 8;  // elements of what is not the matter
  const auto column = [](uint32_t slot, int64_t i, int64_t cols) {
    return View{slot, i, 4, 1, cols, cols};
  };
  static const auto* all = new std::vector<Shape>{
      {"a chain",
       [](int ops) {
         Sketch s;
         uint32_t x = s.buffer(n, true);
         for (int i = 0; i < ops; ++i) x = s.sum_of(Sketch::run(x, n), i + 1 == ops, n);
         return s;
       }},
      {"columns written twice, then read",
       [=](int ops) {
         Sketch s;
         const int64_t cols = ops / 2;
         const uint32_t x = s.buffer(4 * cols, true);
         for (int twice = 0; twice < 2; ++twice) {
           for (int64_t i = 0; i < cols; ++i) s.fill(column(x, i, cols));
         }
         s.sum_of(Sketch::run(x, 4 * cols), true, 4 * cols);
         return s;
       }},
      {"columns written from columns",
       [=](int ops) {
         Sketch s;
         const uint32_t x = s.buffer(int64_t{4} * ops, true);
         for (int64_t i = 0; i < ops; ++i) {
           s.add(column(x, i, ops), column(x, (i + 1) % ops, ops));
         }
         return s;
       }},
      {"a window that slides",
       [](int ops) {
         Sketch s;
         const uint32_t x = s.buffer(ops + n, true), y = s.buffer(n, true);
         for (int64_t i = 0; i < ops; ++i) s.add(Sketch::run(x, n, i), Sketch::run(y, n));
         return s;
       }},
      {"a window that shrinks",
       [](int ops) {
         Sketch s;
         const uint32_t x = s.buffer(ops, true);
         for (int64_t i = 0; i < ops; ++i) s.fill(Sketch::run(x, ops - i));
         return s;
       }},
      {"writes nobody sees, read in part",
       [](int ops) {
         Sketch s;
         const uint32_t x = s.buffer(64, true);
         for (int i = 0; i < ops; i += 2) {
           s.fill(Sketch::run(x, 64));
           s.sum_of(Sketch::run(x, 5), i % 8 == 0, 5);
         }
         return s;
       }},
      {"in place where nobody sees it",
       [](int ops) {
         Sketch s;
         const uint32_t x = s.buffer(64, false), y = s.buffer(64, true);
         for (int i = 0; i < ops; ++i) s.add(Sketch::run(x, 32, i % 33), Sketch::run(y, 32));
         return s;
       }},
      {"one value read by all, then written over",
       [](int ops) {
         Sketch s;
         const uint32_t x = s.buffer(n, true);
         for (int i = 1; i < ops; ++i) s.sum_of(Sketch::run(x, n), true, n);
         s.fill(Sketch::run(x, n));
         return s;
       }},
      {"different work on one input",
       [](int ops) {
         Sketch s;
         const uint32_t x = s.buffer(n, true);
         for (int i = 0; i < ops; ++i) {
           const uint32_t y = s.buffer(n, true);
           s.add(Sketch::run(y, n), Sketch::run(x, n), Sketch::run(y, n));
         }
         return s;
       }},
      {"pieces read by one",
       [](int ops) {
         Sketch s;
         const uint32_t x = s.buffer(n * ops, true), y = s.buffer(n, true);
         for (int64_t i = 1; i < ops; ++i) s.add(Sketch::run(x, n, n * i), Sketch::run(y, n));
         s.sum_of(Sketch::run(x, n * ops), true, n * ops);
         return s;
       }},
      {"pieces written, all read often, pieces written",
       [](int ops) {
         Sketch s;
         const int64_t third = ops / 3;
         const uint32_t x = s.buffer(third, true), y = s.buffer(1, true);
         for (int64_t i = 0; i < third; ++i) s.add(Sketch::run(x, 1, i), Sketch::run(y, 1));
         for (int64_t i = 0; i < third; ++i) {
           const uint32_t z = s.buffer(third, true);
           s.add(Sketch::run(z, third), Sketch::run(x, third), Sketch::run(z, third));
         }
         for (int64_t i = 0; i < third; ++i) s.add(Sketch::run(x, 1, i), Sketch::run(y, 1));
         return s;
       }},
      {"views in place in turns",
       [](int ops) {
         Sketch s;
         const uint32_t x = s.buffer(64, true);
         const View views[] = {
             {x, 0, 1, 32, 0, 2}, {x, 1, 1, 32, 0, 2}, Sketch::run(x, 32), Sketch::run(x, 64)};
         for (int i = 0; i < ops; ++i) s.add(views[i % 4], views[i % 4]);
         return s;
       }},
      {"columns from those before them, now and then all",
       [=](int ops) {
         Sketch s;
         constexpr int64_t cols = 24;
         const uint32_t x = s.buffer(4 * cols, true);
         for (int64_t i = 0; i < ops; ++i) {
           const int64_t c = i % (cols + 1);
           const View whole = Sketch::run(x, 4 * cols), to = column(x, c % cols, cols);
           c == cols ? s.add(whole, whole) : s.add(to, column(x, (c + cols - 1) % cols, cols), to);
         }
         return s;
       }},
      {"a matrix and its columns in turns",
       [=](int ops) {
         Sketch s;
         constexpr int64_t cols = 60;
         const uint32_t x = s.buffer(4 * cols, true), y = s.buffer(4 * cols, true);
         for (int64_t i = 0; i < ops; ++i) {
           const View whole = Sketch::run(x, 4 * cols), to = column(x, i * 7 % cols, cols);
           i % 2 == 0 ? s.add(whole, Sketch::run(y, 4 * cols))
                      : s.add(to, column(y, i % cols, cols));
         }
         return s;
       }},
      {"buffers of their own",
       [](int ops) {
         Sketch s;
         for (int i = 0; i < ops; ++i) {
           const uint32_t x = s.buffer(n + i, true), y = s.buffer(n + i, true);
           s.add(Sketch::run(y, n + i), Sketch::run(x, n + i));
         }
         return s;
       }},
      {"steps of a stencil that all read one value",
       [](int ops) {
         Sketch s;
         uint32_t u = s.buffer(n + 2, true);
         const uint32_t x = s.buffer(n, true), rate = s.buffer(n, false);
         s.add(Sketch::run(rate, n), Sketch::run(x, n));
         for (int i = 1; i < ops; i += 5) {
           const bool last = i + 5 >= ops;
           const uint32_t near = s.buffer(n, false), own = s.buffer(n, false);
           const uint32_t sum = s.buffer(n, false), next = s.buffer(n + 2, last);
           s.add(Sketch::run(near, n), Sketch::run(u, n), Sketch::run(u, n, 2));
           s.add(Sketch::run(own, n), Sketch::run(u, n, 1), Sketch::run(rate, n));
           s.add(Sketch::run(sum, n), Sketch::run(near, n), Sketch::run(own, n));
           s.fill(Sketch::run(next, n + 2));
           s.copy(Sketch::run(next, n, 1), Sketch::run(sum, n));
           u = next;
         }
         return s;
       }},
      {"a value for each of many, written over again and again",
       [](int ops) {
         Sketch s;
         const uint32_t x = s.buffer(n, true), y = s.buffer(n, false);
         for (int i = 0; i < ops; i += 2) {
           s.add(Sketch::run(y, n), Sketch::run(x, n));
           s.add(Sketch::run(x, n), Sketch::run(y, n));
         }
         return s;
       }},
  };
  return *all;
}

}  // namespace hologram::circuit::testing
