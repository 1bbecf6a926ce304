// SPDX-License-Identifier: MIT
// Runs tapes record by record, and plans block by block, with scalar arithmetic of its own: what
// the planner is held against.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "hologram/reduction.h"
#include "src/circuit/call_kinds.h"
#include "src/circuit/plan.h"

namespace hologram::circuit::testing {

// The bytes of each slot.
using Memory = std::vector<std::vector<char>>;

inline double read(const char* at, Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32: {
      float v;
      std::memcpy(&v, at, 4);
      return v;
    }
    case Dtype::kFloat64: {
      double v;
      std::memcpy(&v, at, 8);
      return v;
    }
    default:
      return *reinterpret_cast<const uint8_t*>(at);
  }
}
inline double rounded(double v, Dtype dtype) {
  if (dtype == Dtype::kFloat32) return static_cast<float>(v);
  if (dtype == Dtype::kFloat64) return v;
  return v != 0 ? 1 : 0;
}
inline void write(char* at, Dtype dtype, double v) {
  if (dtype == Dtype::kFloat32) {
    const float f = static_cast<float>(v);
    std::memcpy(at, &f, 4);
  } else if (dtype == Dtype::kFloat64) {
    std::memcpy(at, &v, 8);
  } else {
    *reinterpret_cast<uint8_t*>(at) = v != 0 ? 1 : 0;
  }
}

inline double number(uint64_t bits, Dtype dtype) {
  if (dtype == Dtype::kFloat32 || dtype == Dtype::kFloat64) {
    return read(reinterpret_cast<const char*>(&bits), dtype);
  }
  return static_cast<double>(static_cast<int64_t>(bits));
}

// One op on numbers, rounded to `compute`.
inline double apply(OpId op, const double* in, Dtype compute) {
  const auto fix = [&](double v) { return rounded(v, compute); };
  switch (op) {
    case OpId::add:
      return fix(in[0] + in[1]);
    case OpId::sub:
      return fix(in[0] - in[1]);
    case OpId::mul:
      return fix(in[0] * in[1]);
    case OpId::div:
      return fix(in[0] / in[1]);
    case OpId::neg:
      return -in[0];
    case OpId::abs:
      return std::fabs(in[0]);
    case OpId::relu:
      return in[0] > 0 || std::isnan(in[0]) ? in[0] : 0;
    case OpId::maximum:
      return std::isnan(in[0]) || std::isnan(in[1]) ? NAN : std::max(in[0], in[1]);
    case OpId::minimum:
      return std::isnan(in[0]) || std::isnan(in[1]) ? NAN : std::min(in[0], in[1]);
    case OpId::lt:
      return in[0] < in[1];
    case OpId::where:
      return in[0] != 0 ? in[1] : in[2];
    case OpId::addcmul:
      return fix(in[0] + fix(fix(in[3] * in[1]) * in[2]));
    default:
      ADD_FAILURE() << "the interpreter does not know op " << static_cast<int>(op);
      return 0;
  }
}

inline double fold(Reduction op, const std::vector<double>& row, Dtype result) {
  double total = op == Reduction::amax ? row[0] : 0;
  for (const double v : row) {
    if (op == Reduction::amax) {
      total = std::max(total, v);
    } else if (!std::isnan(total)) {  // of two NaNs the compiler is free to add either to the other
      total += v;
    }
  }
  if (op == Reduction::mean) total /= static_cast<double>(row.size());
  return rounded(total, result);
}

inline std::vector<double> row_function(uint16_t which, const std::vector<double>& row) {
  // Any function of the whole row will do: each element less the last one, times `which` + 2.
  std::vector<double> out;
  for (const double v : row) out.push_back((v - row.back()) * (which + 2));
  return out;
}

// Calls are run as they are. result: where operand `which` is to be, if not in its slot.
inline void run_call(uint16_t kind, const std::vector<CallSlot>& operands,
                     std::span<const uint64_t> attributes, const uint64_t* numbers, Memory& memory,
                     int which = -1, char* result = nullptr) {
  std::vector<char*> at;
  for (const CallSlot& o : operands) {
    at.push_back(o.present ? memory[o.slot].data() + o.offset : nullptr);
  }
  if (result != nullptr) at[static_cast<size_t>(which)] = result;
  call_kind(kind).run({at.data(), attributes.data(), numbers, 1});
}

inline void run_tape(std::span<const uint64_t> words, const std::vector<uint64_t>& immediates,
                     Memory& memory) {
  Tape::decode(words, [&](const Record& r, int) {
    if (r.code == kCodeCall) {
      std::vector<CallSlot> operands;
      for (size_t k = 0; k < r.call.operands(); ++k) operands.push_back(r.call.operand(k));
      run_call(r.attr, operands, r.call.attributes, immediates.data() + r.call.first_number,
               memory);
      return;
    }
    const int64_t n = r.numel();
    const auto place = [&](int k, int64_t i) {
      const TapeOperand& o = r.operands[k];
      int64_t at = 0;
      if (o.kind == OperandKind::kMemory) {
        for (int d = r.ndim - 1; d >= 0; --d) {
          at += i % r.shape[d] * r.strides[k][d];
          i /= r.shape[d];
        }
      }
      return memory[o.slot].data() + o.offset + at * static_cast<int64_t>(itemsize(o.dtype));
    };
    const auto value = [&](int k, int64_t i) {
      const TapeOperand& o = r.operands[k];
      if (o.kind == OperandKind::kImmediate) return number(immediates[o.immediate], o.dtype);
      return read(place(k, i), o.dtype);
    };
    const Dtype target = r.operands[0].dtype;
    if (r.code >= kCodeReduction) {
      const int64_t cols = r.shape[r.ndim - 1];
      for (int64_t row = 0; row < n / cols; ++row) {
        std::vector<double> in;
        for (int64_t c = 0; c < cols; ++c) in.push_back(value(1, row * cols + c));
        if (r.code == kCodeReduction) {
          write(place(0, row * cols), target, fold(static_cast<Reduction>(r.attr), in, target));
        } else {
          const std::vector<double> out = row_function(r.attr, in);
          for (int64_t c = 0; c < cols; ++c) {
            write(place(0, row * cols + c), target,
                  rounded(out[static_cast<size_t>(c)], r.compute));
          }
        }
      }
      return;
    }
    std::vector<double> results;
    for (int64_t i = 0; i < n; ++i) {
      double in[kMaxArity] = {};
      for (int k = 0; k < r.arity; ++k) in[k] = rounded(value(k + 1, i), r.compute);
      results.push_back(r.code == kCodeConvert ? value(1, i)
                                               : apply(static_cast<OpId>(r.code), in, r.compute));
    }
    for (int64_t i = 0; i < n; ++i) {
      write(place(0, i), target, results[static_cast<size_t>(i)]);
    }
  });
}

// Blocks of random sizes in random order.
inline void run_plan(const Plan& plan, const std::vector<uint64_t>& immediates, Memory& memory,
                     std::mt19937& random) {
  for (const Kernel& kernel : plan.kernels) {
    // What the kernel's call gives, and what was in its place.
    std::vector<char> result, before;
    const auto make_result = [&] {
      const KernelCall& call = *kernel.call;
      result = before;
      run_call(call.kind, call.operands, call.attributes, immediates.data() + call.first_number,
               memory, call.result, result.empty() ? nullptr : result.data());
    };
    if (kernel.call != nullptr) {
      if (kernel.instrs.empty()) {
        make_result();
        continue;
      }
      const MemoryAccess& access = kernel.accesses[static_cast<size_t>(product_access(kernel))];
      const char* from = memory[access.slot].data() + access.offset;
      before.assign(from, from + kernel.numel() * static_cast<int64_t>(itemsize(access.dtype)));
    }
    const int64_t n = kernel.numel(), cols = kernel.cols(), rows = kernel.rows();
    const int64_t unit = kernel.whole_rows || kernel.call != nullptr ? cols : 1;
    struct Range {
      int64_t begin, end;
    };
    std::vector<Range> blocks;
    for (int64_t at = 0; at < n;) {
      const int64_t length = unit * static_cast<int64_t>(1 + random() % 7);
      blocks.push_back({at, std::min(n, at + length)});
      at += length;
    }
    std::shuffle(blocks.begin(), blocks.end(), random);
    const auto place = [&](const MemoryAccess& access, int64_t i) {
      int64_t at = 0;
      for (int d = kernel.ndim - 1; d >= 0; --d) {
        at += i % kernel.shape[static_cast<size_t>(d)] * access.strides[static_cast<size_t>(d)];
        i /= kernel.shape[static_cast<size_t>(d)];
      }
      return (access.product ? result.data() : memory[access.slot].data() + access.offset) +
             at * static_cast<int64_t>(itemsize(access.dtype));
    };
    // Operands of one element are read once: a device may take them to be the same all through.
    std::vector<double> ones(kernel.accesses.size(), std::nan(""));
    std::vector<bool> is_one(kernel.accesses.size(), false);
    for (size_t k = 0; k < kernel.accesses.size(); ++k) {
      const MemoryAccess& access = kernel.accesses[k];
      is_one[k] = access.rank == Rank::kOne || (access.rank == Rank::kRow && rows == 1);
      if (is_one[k]) ones[k] = read(place(access, 0), access.dtype);
    }
    for (const Range& block : blocks) {
      if (kernel.call != nullptr) {
        // Anew for each block: what the blocks before have written must not have changed anything.
        make_result();
        const CallSlot& slot = kernel.call->operands[static_cast<size_t>(kernel.call->result)];
        const int64_t size = static_cast<int64_t>(result.size()) / n;
        if (slot.present) {
          std::copy(result.begin() + block.begin * size, result.begin() + block.end * size,
                    memory[slot.slot].begin() + slot.offset + block.begin * size);
        }
      }
      std::vector<std::vector<double>> temps(
          kernel.temps.size(),
          std::vector<double>(static_cast<size_t>(block.end - block.begin), -12345.0));
      const auto cell = [&](uint32_t temp, int64_t i) -> double& {
        const Rank rank = kernel.temps[temp].rank;
        const int64_t at = rank == Rank::kFull  ? i - block.begin
                           : rank == Rank::kRow ? i / cols - block.begin / cols
                                                : 0;
        return temps[temp][static_cast<size_t>(at)];
      };
      for (const Instr& instr : kernel.instrs) {
        const auto value = [&](const Ref& ref, int64_t i) {
          if (ref.kind == Ref::kImmediate) return number(immediates[ref.index], instr.compute);
          if (ref.kind == Ref::kTemp) return cell(ref.index, i);
          const MemoryAccess& access = kernel.accesses[ref.index];
          EXPECT_TRUE(access.loaded || access.stored);
          if (is_one[ref.index]) return ones[ref.index];
          return read(place(access, i), access.dtype);
        };
        const auto put = [&](int64_t i, double v) {
          if (instr.out.kind == Ref::kTemp) {
            cell(instr.out.index, i) = v;
          } else {
            EXPECT_TRUE(kernel.accesses[instr.out.index].stored);
            write(place(kernel.accesses[instr.out.index], i),
                  kernel.accesses[instr.out.index].dtype, v);
          }
        };
        const bool per_row = instr.rank == Rank::kRow;
        const int64_t step = per_row ? cols : 1;
        const int64_t first = per_row ? block.begin / cols * cols : block.begin;
        if (instr.code >= kCodeReduction) {
          EXPECT_TRUE(kernel.whole_rows);
          for (int64_t i = block.begin; i < block.end; i += cols) {
            std::vector<double> in;
            for (int64_t c = 0; c < cols; ++c) in.push_back(value(instr.in[0], i + c));
            if (instr.code == kCodeReduction) {
              put(i, fold(static_cast<Reduction>(instr.attr), in, instr.result));
            } else {
              const std::vector<double> out = row_function(instr.attr, in);
              for (int64_t c = 0; c < cols; ++c) {
                put(i + c, rounded(out[static_cast<size_t>(c)], instr.compute));
              }
            }
          }
          continue;
        }
        for (int64_t i = first; i < block.end; i += step) {
          double in[kMaxArity] = {};
          for (int k = 0; k < instr.arity; ++k) in[k] = value(instr.in[k], i);
          put(i, instr.code == kCodeConvert ? rounded(in[0], instr.result)
                                            : apply(instr.op(), in, instr.compute));
        }
      }
    }
  }
}

}  // namespace hologram::circuit::testing
