// SPDX-License-Identifier: MIT
// Loops with arrays for the tests of generated code, and what their instructions one by one make of
// them.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "hologram/cpu_info.h"
#include "hologram/elementwise.h"
#include "hologram/op.h"
#include "src/cpu/jit/jit.h"
#include "src/cpu/jit/loop_graph.h"
#include "tests/cpp/cpu/isa_test.h"

namespace hologram::cpu {

using circuit::Instr;
using circuit::Ref;

// What a generated loop computes, instruction by instruction. A kAccess among the operands is an
// input array, a kImmediate a number, a kTemp the result of an earlier instruction. The result goes
// to the output array that `out` names, if it does.
struct Loop {
  struct Sum {
    Fold fold;
    Ref of;
  };
  std::vector<Dtype> inputs, numbers, outputs;
  std::vector<Instr> instrs;
  std::vector<Sum> folds;
  bool by_rows = false;
  uint64_t streams = 0;
  int fetched = -1;
};

inline JitLoop compiled(Isa isa, const Loop& loop) {
  jit::LoopGraph graph(isa);
  std::vector<jit::Symbol> inputs, numbers, made;
  for (Dtype dtype : loop.inputs) inputs.push_back(graph.input(graph.inputs, dtype));
  for (Dtype dtype : loop.numbers) numbers.push_back(graph.number(graph.numbers, dtype));
  const auto symbol = [&](const Ref& ref) {
    return (ref.kind == Ref::kAccess ? inputs : ref.kind == Ref::kTemp ? made : numbers)[ref.index];
  };
  graph.outputs.resize(loop.outputs.size());
  for (const Instr& instr : loop.instrs) {
    jit::Symbol in[4];
    for (int k = 0; k < instr.arity; ++k) in[k] = symbol(instr.in[k]);
    made.push_back(graph.compute(instr, in));
    if (instr.out.kind == Ref::kAccess) graph.outputs[instr.out.index] = made.back().id;
  }
  for (const Loop::Sum& sum : loop.folds) graph.fold(sum.fold, symbol(sum.of));
  graph.by_rows = loop.by_rows;
  graph.streams = loop.streams;
  graph.fetched = loop.fetched;
  return jit_compile(graph);
}

// Memory that ends (or begins, one page early) where the process may not read.
class Guarded {
 public:
  explicit Guarded(size_t bytes) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    inner_ = (bytes + page - 1) / page * page + page;
    total_ = inner_ + 2 * page;
    base_ = static_cast<char*>(
        mmap(nullptr, total_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_, page, PROT_NONE);
    mprotect(base_ + page + inner_, page, PROT_NONE);
    page_ = page;
  }
  ~Guarded() { munmap(base_, total_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  // The last `bytes` bytes before the guard.
  char* last(size_t bytes) const { return base_ + page_ + inner_ - bytes; }
  char* first() const { return base_ + page_; }

 private:
  char* base_;
  size_t inner_, total_, page_;
};

inline uint64_t special_bits(Dtype dtype, std::mt19937_64& rng) {
  switch (dtype) {
    case Dtype::kFloat32: {
      constexpr uint32_t kBits[] = {0,          0x80000000, 0x7f800000, 0xff800000, 0x7fc00000,
                                    0xffc00001, 0x7fc12345, 0x7f812345, 1,          0x80000001,
                                    0x007fffff, 0x00800000, 0x3f800000, 0xbf800000, 0x7f7fffff,
                                    0xff7fffff, 0x3f000000, 0x4b000001, 0xcb000000, 0x3effffff};
      return kBits[rng() % std::size(kBits)];
    }
    case Dtype::kFloat64: {
      constexpr uint64_t kBits[] = {0,
                                    1ull << 63,
                                    0x7ff0000000000000,
                                    0xfff0000000000000,
                                    0x7ff8000000000000,
                                    0xfff8000000012345,
                                    0x7ff0000000012345,
                                    1,
                                    0x8000000000000001,
                                    0x000fffffffffffff,
                                    0x3ff0000000000000,
                                    0xbff0000000000000,
                                    0x7fefffffffffffff,
                                    0x3fe0000000000000,
                                    0x36a0000000000000};
      return kBits[rng() % std::size(kBits)];
    }
    case Dtype::kInt32: {
      constexpr uint32_t kBits[] = {0, 1, 0xffffffff, 0x80000000, 0x7fffffff, 2, 0x80000001};
      return kBits[rng() % std::size(kBits)];
    }
    case Dtype::kInt64: {
      constexpr uint64_t kBits[] = {0, 1, ~0ull, 1ull << 63, ~0ull >> 1, 0xffffffff, 1ull << 32};
      return kBits[rng() % std::size(kBits)];
    }
    case Dtype::kUInt8:
    case Dtype::kInt8:
    case Dtype::kInt16:
      return rng();
    default: {
      constexpr uint16_t kBits[] = {0,      0x8000, 0x7c00, 0xfc00, 0x7e00, 0x7c01, 1,      0x3ff,
                                    0x0400, 0x7bff, 0x7f80, 0xff80, 0x7fc0, 0x7f81, 0xffff, 0x3f80};
      return kBits[rng() % std::size(kBits)];
    }
  }
}

inline uint64_t random_bits(Dtype dtype, std::mt19937_64& rng) {
  if (dtype == Dtype::kBool) return rng() & 1;
  const auto style = rng() % 8;
  if (style == 0) return special_bits(dtype, rng);
  if (style == 1) return rng();  // any exponent
  if (style == 2 && !is_floating(dtype)) return rng();
  std::normal_distribution<double> normal(0, 2);
  const double value = normal(rng);
  switch (dtype) {
    case Dtype::kFloat32:
      return std::bit_cast<uint32_t>(static_cast<float>(value));
    case Dtype::kFloat64:
      return std::bit_cast<uint64_t>(value);
    case Dtype::kBFloat16:
      return std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16;
    case Dtype::kFloat16: {
      uint16_t half = 0;
      const float single = static_cast<float>(value);
      convert(Dtype::kFloat32, &single, Dtype::kFloat16, &half, 1);
      return half;
    }
    default:
      return static_cast<uint64_t>(static_cast<int64_t>(value * 3));
  }
}

inline void fill_random(Dtype dtype, char* to, int64_t n, std::mt19937_64& rng) {
  const size_t size = itemsize(dtype);
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t bits = random_bits(dtype, rng);
    std::memcpy(to + static_cast<size_t>(i) * size, &bits, size);
  }
}

inline bool is_nan_at(Dtype dtype, const char* p) {
  uint64_t bits = 0;
  std::memcpy(&bits, p, itemsize(dtype));
  switch (dtype) {
    case Dtype::kFloat16:
      return (bits & 0x7fff) > 0x7c00;
    case Dtype::kBFloat16:
      return (bits & 0x7fff) > 0x7f80;
    case Dtype::kFloat32:
      return (bits & 0x7fffffff) > 0x7f800000;
    case Dtype::kFloat64:
      return (bits & ~(1ull << 63)) > 0x7ff0000000000000;
    default:
      return false;
  }
}

// A loop's arrays, and what its steps one by one make of them.
struct Case {
  Loop loop;
  int64_t n = 0;
  size_t misalign = 0;
  std::vector<std::unique_ptr<Guarded>> memory;
  std::vector<const void*> inputs, numbers;
  std::vector<void*> outputs;
  std::vector<uint64_t> number_bits;

  char* array(Dtype dtype) {
    const size_t bytes = static_cast<size_t>(n) * itemsize(dtype);
    memory.push_back(std::make_unique<Guarded>(bytes + misalign));
    return misalign == 0 ? memory.back()->last(bytes) : memory.back()->last(bytes + misalign);
  }

  void make(std::mt19937_64& rng) {
    for (Dtype dtype : loop.inputs) {
      char* data = array(dtype);
      fill_random(dtype, data, n, rng);
      inputs.push_back(data);
    }
    number_bits.resize(loop.numbers.size());
    for (size_t i = 0; i < number_bits.size(); ++i) {
      number_bits[i] = random_bits(loop.numbers[i], rng);
      numbers.push_back(&number_bits[i]);
    }
    for (Dtype dtype : loop.outputs) {
      char* data = array(dtype);
      std::memset(data, 0xa5, static_cast<size_t>(n) * itemsize(dtype));
      outputs.push_back(data);
    }
  }

  // Results of every step.
  std::vector<std::vector<char>> expected() const {
    std::vector<std::vector<char>> values;
    for (const Instr& step : loop.instrs) {
      const size_t in_size = itemsize(step.compute);
      std::vector<std::vector<char>> operands;
      const void* in[4];
      for (int k = 0; k < step.arity; ++k) {
        const Ref ref = step.in[k];
        if (ref.kind == Ref::kAccess) {
          in[k] = inputs[ref.index];
        } else if (ref.kind == Ref::kTemp) {
          in[k] = values[ref.index].data();
        } else {
          std::vector<char>& repeated = operands.emplace_back(static_cast<size_t>(n) * in_size + 8);
          for (int64_t i = 0; i < n; ++i) {
            std::memcpy(&repeated[static_cast<size_t>(i) * in_size], numbers[ref.index], in_size);
          }
        }
      }
      int repeated = 0;
      for (int k = 0; k < step.arity; ++k) {
        if (step.in[k].kind == Ref::kImmediate) in[k] = operands[repeated++].data();
      }
      std::vector<char> out(static_cast<size_t>(n) * itemsize(step.result) + 8);
      if (!step.is_op()) {
        convert(step.compute, in[0], step.result, out.data(), n);
      } else {
        elementwise_kernel(step.op(), step.compute)(in, out.data(), n);
      }
      values.push_back(std::move(out));
    }
    return values;
  }
};

inline std::string describe(const Loop& loop) {
  std::string text;
  for (const Instr& step : loop.instrs) {
    text += !step.is_op() ? "convert" : op_info(step.op()).name;
    text.append(".").append(dtype_name(step.compute)).append(">").append(dtype_name(step.result));
    text.append("(");
    for (int k = 0; k < step.arity; ++k) {
      text += "iNs"[step.in[k].kind == Ref::kAccess      ? 0
                    : step.in[k].kind == Ref::kImmediate ? 1
                                                         : 2];
      text.append(std::to_string(step.in[k].index)).append(" ");
    }
    text.append(")");
    if (step.out.kind != Ref::kNone) text.append("->").append(std::to_string(step.out.index));
    text.append("; ");
  }
  return text;
}

// Bytes equal; where both are NaN any NaN will do unless exact_nan, for the compiler may swap the
// operands of an addition.
inline void expect_same(const Case& c, const std::vector<std::vector<char>>& values,
                        bool exact_nan) {
  for (const Instr& step : c.loop.instrs) {
    if (step.out.kind == Ref::kNone) continue;
    const size_t index = static_cast<size_t>(&step - c.loop.instrs.data());
    const char* got = static_cast<const char*>(c.outputs[static_cast<size_t>(step.out.index)]);
    const char* want = values[index].data();
    const size_t size = itemsize(step.result);
    for (int64_t i = 0; i < c.n; ++i) {
      const size_t at = static_cast<size_t>(i) * size;
      if (std::memcmp(got + at, want + at, size) == 0) continue;
      if (!exact_nan && is_nan_at(step.result, got + at) && is_nan_at(step.result, want + at)) {
        continue;
      }
      uint64_t got_bits = 0, want_bits = 0;
      std::memcpy(&got_bits, got + at, size);
      std::memcpy(&want_bits, want + at, size);
      FAIL() << describe(c.loop) << "n=" << c.n << " element " << i << " of output "
             << step.out.index << std::hex << ": got " << got_bits << ", want " << want_bits;
    }
  }
}

inline constexpr Dtype kDtypes[] = {Dtype::kBool, Dtype::kInt32, Dtype::kInt64, Dtype::kFloat32,
                                    Dtype::kFloat64};

inline Instr row_instr(const OpInfo& row, Dtype compute) {
  Instr step;
  step.code = static_cast<uint16_t>(row.id);
  step.compute = compute;
  step.result = row.result_is_bool ? Dtype::kBool : compute;
  step.arity = row.arity;
  return step;
}

// Every form: bit k of `numbers` makes operand k a number.
inline Loop row_loop(const OpInfo& row, Dtype compute, unsigned numbers) {
  Loop loop;
  Instr step = row_instr(row, compute);
  for (int k = 0; k < row.arity; ++k) {
    std::vector<Dtype>& list = numbers >> k & 1 ? loop.numbers : loop.inputs;
    step.in[k] = {numbers >> k & 1 ? Ref::kImmediate : Ref::kAccess,
                  static_cast<uint32_t>(list.size())};
    list.push_back(compute);
  }
  step.out = {Ref::kAccess, 0};
  loop.instrs.push_back(step);
  loop.outputs.push_back(step.result);
  return loop;
}

inline void check(const Loop& loop, int64_t n, size_t misalign, std::mt19937_64& rng,
                  bool exact_nan = false) {
  const JitLoop kernel = compiled(current_isa(), loop);
  ASSERT_FALSE(kernel == nullptr) << describe(loop);
  Case c;
  c.loop = loop;
  c.n = n;
  c.misalign = 8 * misalign;  // off any vector's alignment, not off that of an element
  c.make(rng);
  const auto values = c.expected();
  kernel.get()(c.inputs.data(), c.numbers.data(), c.outputs.data(), n, 1, nullptr);
  expect_same(c, values, exact_nan);
}

// HOLOGRAM_JIT=0: nothing is generated, whatever the machine.
inline bool is_jit_off() {
  const char* setting = std::getenv("HOLOGRAM_JIT");
  return setting != nullptr && std::strcmp(setting, "0") == 0;
}

// Runs on the instruction set that is the parameter.
class JitTest : public IsaTest {
 protected:
  void SetUp() override {
    if (is_jit_off()) GTEST_SKIP() << "HOLOGRAM_JIT=0: no loops are generated";
    IsaTest::SetUp();
  }
};

}  // namespace hologram::cpu
