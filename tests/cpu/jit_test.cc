// SPDX-License-Identifier: MIT
// Generated loops against the kernels they stand for: the same bits, and no byte outside the
// arrays.
#include "src/cpu/jit.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "hologram/elementwise.h"
#include "hologram/op.h"

namespace hologram::cpu {
namespace {

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

uint64_t special_bits(Dtype dtype, std::mt19937_64& rng) {
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

uint64_t random_bits(Dtype dtype, std::mt19937_64& rng) {
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

void fill_random(Dtype dtype, char* to, int64_t n, std::mt19937_64& rng) {
  const size_t size = itemsize(dtype);
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t bits = random_bits(dtype, rng);
    std::memcpy(to + static_cast<size_t>(i) * size, &bits, size);
  }
}

bool is_nan_at(Dtype dtype, const char* p) {
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

// A segment's arrays, and what its steps one by one make of them.
struct Case {
  Segment segment;
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
    for (Dtype dtype : segment.inputs) {
      char* data = array(dtype);
      fill_random(dtype, data, n, rng);
      inputs.push_back(data);
    }
    number_bits.resize(segment.numbers.size());
    for (size_t i = 0; i < number_bits.size(); ++i) {
      number_bits[i] = random_bits(segment.numbers[i], rng);
      numbers.push_back(&number_bits[i]);
    }
    for (Dtype dtype : segment.outputs) {
      char* data = array(dtype);
      std::memset(data, 0xa5, static_cast<size_t>(n) * itemsize(dtype));
      outputs.push_back(data);
    }
  }

  // Results of every step.
  std::vector<std::vector<char>> expected() const {
    std::vector<std::vector<char>> values;
    for (const SegmentStep& step : segment.steps) {
      const size_t in_size = itemsize(step.compute);
      std::vector<std::vector<char>> operands;
      const void* in[4];
      for (int k = 0; k < step.arity; ++k) {
        const SegmentRef ref = step.in[k];
        if (ref.kind == SegmentRef::kInput) {
          in[k] = inputs[ref.index];
        } else if (ref.kind == SegmentRef::kStep) {
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
        if (step.in[k].kind == SegmentRef::kNumber) in[k] = operands[repeated++].data();
      }
      std::vector<char> out(static_cast<size_t>(n) * itemsize(step.result) + 8);
      if (step.convert) {
        convert(step.compute, in[0], step.result, out.data(), n);
      } else {
        elementwise_kernel(step.op, step.compute)(in, out.data(), n);
      }
      values.push_back(std::move(out));
    }
    return values;
  }
};

std::string describe(const Segment& segment) {
  std::string text;
  for (const SegmentStep& step : segment.steps) {
    text += step.convert ? "convert" : op_info(step.op).name;
    text.append(".").append(dtype_name(step.compute)).append(">").append(dtype_name(step.result));
    text.append("(");
    for (int k = 0; k < step.arity; ++k) {
      text += "iNs"[step.in[k].kind == SegmentRef::kInput    ? 0
                    : step.in[k].kind == SegmentRef::kNumber ? 1
                                                             : 2];
      text.append(std::to_string(step.in[k].index)).append(" ");
    }
    text.append(")");
    if (step.output >= 0) text.append("->").append(std::to_string(step.output));
    text.append("; ");
  }
  return text;
}

// Bytes equal; where both are NaN any NaN will do unless exact_nan, for the compiler may swap the
// operands of an addition.
void expect_same(const Case& c, const std::vector<std::vector<char>>& values, bool exact_nan) {
  for (const SegmentStep& step : c.segment.steps) {
    if (step.output < 0) continue;
    const size_t index = static_cast<size_t>(&step - c.segment.steps.data());
    const char* got = static_cast<const char*>(c.outputs[static_cast<size_t>(step.output)]);
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
      FAIL() << describe(c.segment) << "n=" << c.n << " element " << i << " of output "
             << step.output << std::hex << ": got " << got_bits << ", want " << want_bits;
    }
  }
}

constexpr Dtype kDtypes[] = {Dtype::kBool, Dtype::kInt32, Dtype::kInt64, Dtype::kFloat32,
                             Dtype::kFloat64};

class Jit : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!isa_available(GetParam())) GTEST_SKIP() << "not on this machine";
    before_ = current_isa();
    force_isa(GetParam());
  }
  void TearDown() override {
    if (isa_available(GetParam())) force_isa(before_);
  }
  Isa before_ = Isa::kBaseline;
};

SegmentStep row_step(const OpInfo& row, Dtype compute) {
  SegmentStep step;
  step.op = row.id;
  step.compute = compute;
  step.result = row.result_is_bool ? Dtype::kBool : compute;
  step.arity = row.arity;
  return step;
}

// Every form: bit k of `numbers` makes operand k a number.
Segment row_segment(const OpInfo& row, Dtype compute, unsigned numbers) {
  Segment segment;
  SegmentStep step = row_step(row, compute);
  for (int k = 0; k < row.arity; ++k) {
    std::vector<Dtype>& list = numbers >> k & 1 ? segment.numbers : segment.inputs;
    step.in[k] = {numbers >> k & 1 ? SegmentRef::kNumber : SegmentRef::kInput,
                  static_cast<uint8_t>(list.size())};
    list.push_back(compute);
  }
  step.output = 0;
  segment.steps.push_back(step);
  segment.outputs.push_back(step.result);
  return segment;
}

void check(const Segment& segment, int64_t n, size_t misalign, std::mt19937_64& rng,
           bool exact_nan = false) {
  const SegmentKernel kernel = jit_compile(current_isa(), segment);
  ASSERT_NE(kernel, nullptr) << describe(segment);
  Case c;
  c.segment = segment;
  c.n = n;
  c.misalign = misalign;
  c.make(rng);
  const auto values = c.expected();
  kernel(c.inputs.data(), c.numbers.data(), c.outputs.data(), n);
  expect_same(c, values, exact_nan);
}

TEST_P(Jit, RowsGiveTheBitsOfTheirKernels) {
  std::mt19937_64 rng(1);
  int taken = 0;
  for (const OpInfo& row : ops()) {
    for (Dtype dtype : kDtypes) {
      if (!row.supports(dtype)) continue;
      ASSERT_TRUE(jit_takes(GetParam(), row_step(row, dtype))) << row.name;
      ++taken;
      for (unsigned numbers = 0; numbers < 1u << row.arity; ++numbers) {
        const Segment segment = row_segment(row, dtype, numbers);
        for (int64_t n : {0, 1, 3, 7, 8, 15, 16, 17, 31, 33, 64, 70, 257, 1000}) {
          check(segment, n, rng() % 2, rng);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
  EXPECT_GT(taken, 150);
}

// Rows of one operation apart from calls: no compiler chose the order of their operands, and x86
// gives the first operand that is a NaN.
TEST_P(Jit, NanPayloadsAreThoseOfTheKernels) {
  std::mt19937_64 rng(2);
  for (const char* name : {"neg", "abs", "sqrt", "reciprocal", "rsqrt", "relu", "floor", "sub",
                           "div", "minimum", "maximum", "clamp", "where", "threshold", "sign",
                           "threshold_backward", "leaky_relu", "hardtanh_backward"}) {
    const OpInfo& row = op_info(*find_op(name));
    for (Dtype dtype : {Dtype::kFloat32, Dtype::kFloat64}) {
      for (unsigned numbers = 0; numbers < 1u << row.arity; ++numbers) {
        check(row_segment(row, dtype, numbers), 1000, 0, rng, true);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(Jit, ConversionsGiveTheBitsOfConvert) {
  std::mt19937_64 rng(3);
  constexpr Dtype kAll[] = {Dtype::kBool,     Dtype::kInt32,   Dtype::kInt64,   Dtype::kFloat16,
                            Dtype::kBFloat16, Dtype::kFloat32, Dtype::kFloat64, Dtype::kUInt8,
                            Dtype::kInt8,     Dtype::kInt16};
  int taken = 0;
  for (Dtype from : kAll) {
    for (Dtype to : kAll) {
      SegmentStep step;
      step.convert = true;
      step.compute = from;
      step.result = to;
      step.arity = 1;
      step.output = 0;
      if (!jit_takes(GetParam(), step)) continue;
      ++taken;
      for (bool number : {false, true}) {
        Segment segment;
        step.in[0].kind = number ? SegmentRef::kNumber : SegmentRef::kInput;
        (number ? segment.numbers : segment.inputs).push_back(from);
        segment.steps = {step};
        segment.outputs = {to};
        for (int64_t n : {1, 2, 3, 4, 5, 8, 11, 16, 31, 32, 33, 70, 4000}) {
          check(segment, n, rng() % 2, rng, true);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
  EXPECT_GE(taken, GetParam() == Isa::kAvx512 ? 49 + 21 : 41 + 21);
}

// Every half and bfloat16 there is, and floats around each of their boundaries.
TEST_P(Jit, HalfTypesRoundAsConvertDoes) {
  for (Dtype half : {Dtype::kFloat16, Dtype::kBFloat16}) {
    SegmentStep widen, narrow;
    widen.convert = narrow.convert = true;
    widen.arity = narrow.arity = 1;
    widen.compute = narrow.result = half;
    widen.result = narrow.compute = Dtype::kFloat32;
    widen.output = narrow.output = 0;
    Segment up, down;
    up.inputs = {half};
    up.outputs = {Dtype::kFloat32};
    up.steps = {widen};
    down.inputs = {Dtype::kFloat32};
    down.outputs = {half};
    down.steps = {narrow};
    std::vector<uint16_t> halves(65536);
    for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
    std::vector<float> wide(halves.size()), want(halves.size());
    const void* in = halves.data();
    void* out = wide.data();
    jit_compile(GetParam(), up)(&in, nullptr, &out, 65536);
    convert(half, halves.data(), Dtype::kFloat32, want.data(), 65536);
    ASSERT_EQ(std::memcmp(wide.data(), want.data(), 4 * wide.size()), 0);
    std::vector<uint32_t> floats;
    for (uint32_t high = 0; high < 65536; ++high) {
      for (uint32_t low : {0u, 1u, 0xfffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
        floats.push_back(high << 16 | low);
      }
    }
    std::vector<uint16_t> got(floats.size()), reference(floats.size());
    in = floats.data();
    out = got.data();
    jit_compile(GetParam(), down)(&in, nullptr, &out, static_cast<int64_t>(floats.size()));
    convert(Dtype::kFloat32, floats.data(), half, reference.data(),
            static_cast<int64_t>(floats.size()));
    ASSERT_EQ(std::memcmp(got.data(), reference.data(), 2 * got.size()), 0);
  }
}

// A random segment: values of any dtype, conversions where a row wants another one.
Segment random_segment(std::mt19937_64& rng, Isa isa, size_t steps, bool calls) {
  Segment segment;
  constexpr Dtype kStored[] = {Dtype::kBool,     Dtype::kInt32,   Dtype::kInt64,   Dtype::kFloat16,
                               Dtype::kBFloat16, Dtype::kFloat32, Dtype::kFloat32, Dtype::kFloat64};
  const size_t inputs = 1 + rng() % 5, numbers = rng() % 4;
  const bool uniform = rng() % 2 == 0;  // floats of one dtype, the usual case
  for (size_t i = 0; i < inputs; ++i) {
    segment.inputs.push_back(uniform ? Dtype::kFloat32 : kStored[rng() % std::size(kStored)]);
  }
  for (size_t i = 0; i < numbers; ++i) {
    segment.numbers.push_back(uniform ? Dtype::kFloat32 : kStored[rng() % std::size(kStored)]);
  }
  const auto dtype_of = [&](SegmentRef ref) {
    return ref.kind == SegmentRef::kInput    ? segment.inputs[ref.index]
           : ref.kind == SegmentRef::kNumber ? segment.numbers[ref.index]
                                             : segment.steps[ref.index].result;
  };
  const auto any = [&]() -> SegmentRef {
    const size_t made = segment.steps.size();
    const size_t chosen = rng() % (inputs + numbers + 2 * made);
    if (chosen < inputs) return {SegmentRef::kInput, static_cast<uint8_t>(chosen)};
    if (chosen < inputs + numbers) {
      return {SegmentRef::kNumber, static_cast<uint8_t>(chosen - inputs)};
    }
    return {SegmentRef::kStep, static_cast<uint8_t>((chosen - inputs - numbers) % made)};
  };
  const auto converted = [&](SegmentRef ref, Dtype to, bool& possible) -> SegmentRef {
    const Dtype from = dtype_of(ref);
    if (from == to) return ref;
    SegmentStep step;
    step.convert = true;
    step.compute = from;
    step.result = to;
    step.arity = 1;
    step.in[0] = ref;
    if (!jit_takes(isa, step)) {
      possible = false;
      return ref;
    }
    segment.steps.push_back(step);
    return {SegmentRef::kStep, static_cast<uint8_t>(segment.steps.size() - 1)};
  };
  while (segment.steps.size() < steps) {
    const OpInfo& row = ops()[rng() % ops().size()];
    if (row.is_heavy() && !calls) continue;
    const Dtype compute = uniform ? Dtype::kFloat32 : kDtypes[rng() % std::size(kDtypes)];
    if (!row.supports(compute)) continue;
    SegmentStep step = row_step(row, compute);
    bool possible = true;
    for (int k = 0; k < row.arity; ++k) step.in[k] = converted(any(), compute, possible);
    if (possible) segment.steps.push_back(step);
  }
  for (size_t i = 0; i < segment.steps.size(); ++i) {
    if (i + 1 < segment.steps.size() && rng() % 4 != 0) continue;
    segment.steps[i].output = static_cast<int>(segment.outputs.size());
    segment.outputs.push_back(segment.steps[i].result);
  }
  return segment;
}

TEST_P(Jit, RandomSegmentsGiveTheBitsOfTheirSteps) {
  std::mt19937_64 rng(4);
  for (int round = 0; round < 300; ++round) {
    const Segment segment = random_segment(rng, GetParam(), 2 + rng() % 23, round % 3 == 0);
    for (int64_t n : {static_cast<int64_t>(rng() % 70), int64_t{1000}}) {
      check(segment, n, rng() % 2, rng);
      if (HasFatalFailure()) return;
    }
  }
}

// Results may replace the inputs they come from, whatever else reads those.
TEST_P(Jit, OutputsMayReplaceInputs) {
  std::mt19937_64 rng(5);
  for (int round = 0; round < 300; ++round) {
    const Segment segment = random_segment(rng, GetParam(), 2 + rng() % 10, round % 2 == 0);
    Case c;
    c.segment = segment;
    c.n = static_cast<int64_t>(1 + rng() % 2500);
    c.make(rng);
    std::vector<char> taken(segment.inputs.size(), 0);
    for (size_t o = 0; o < segment.outputs.size(); ++o) {
      for (size_t i = 0; i < segment.inputs.size(); ++i) {
        if (taken[i] || itemsize(segment.inputs[i]) != itemsize(segment.outputs[o])) continue;
        taken[i] = 1;
        c.outputs[o] = const_cast<void*>(c.inputs[i]);
        break;
      }
    }
    const auto values = c.expected();
    const SegmentKernel kernel = jit_compile(GetParam(), segment);
    ASSERT_NE(kernel, nullptr);
    kernel(c.inputs.data(), c.numbers.data(), c.outputs.data(), c.n);
    expect_same(c, values, false);
    if (HasFatalFailure()) return;
  }
}

// More values alive than there are registers, of vectors and of masks.
TEST_P(Jit, ValuesBeyondTheRegistersAreKept) {
  std::mt19937_64 rng(6);
  for (const char* name : {"add", "lt"}) {
    Segment segment;
    const OpInfo& row = op_info(*find_op(name));
    constexpr int kWide = 48;
    for (int i = 0; i < kWide; ++i) segment.inputs.push_back(Dtype::kFloat32);
    for (int i = 0; i < kWide; ++i) {
      SegmentStep step = row_step(row, Dtype::kFloat32);
      step.in[0] = {SegmentRef::kInput, static_cast<uint8_t>(i)};
      step.in[1] = {SegmentRef::kInput, static_cast<uint8_t>((i + 7) % kWide)};
      segment.steps.push_back(step);
    }
    const OpInfo& join = op_info(*find_op(row.result_is_bool ? "logical_xor" : "mul"));
    for (int i = 0; i < kWide; ++i) {
      SegmentStep step = row_step(join, segment.steps[0].result);
      step.in[0] = {SegmentRef::kStep, static_cast<uint8_t>(kWide - 1 - i)};
      step.in[1] = {SegmentRef::kStep, static_cast<uint8_t>(i == 0 ? 0 : kWide + i - 1)};
      segment.steps.push_back(step);
    }
    segment.steps.back().output = 0;
    segment.outputs = {segment.steps[0].result};
    for (int64_t n : {5, 100, 1000}) check(segment, n, 1, rng);
  }
}

// Every exponent and sign, with mantissas at and around the ends, through every unary row.
TEST_P(Jit, MathFunctionsGiveTheBitsOfTheirKernelsEverywhere) {
  std::mt19937_64 rng(8);
  for (Dtype dtype : {Dtype::kFloat32, Dtype::kFloat64}) {
    const int size = static_cast<int>(itemsize(dtype)), low_bits = 8 * size - 16;
    std::vector<char> in, out, want;
    for (uint64_t high = 0; high < 65536; ++high) {
      const uint64_t below = (uint64_t{1} << low_bits) - 1;
      const uint64_t bits = high << low_bits | (rng() & (rng() % 2 == 0 ? below : 1));
      const char* bytes = reinterpret_cast<const char*>(&bits);
      in.insert(in.end(), bytes, bytes + size);
    }
    out.resize(in.size());
    want.resize(in.size());
    for (const OpInfo& row : ops()) {
      if (row.arity != 1 || !row.supports(dtype)) continue;
      const Segment segment = row_segment(row, dtype, 0);
      const void* inputs[] = {in.data()};
      void* outputs[] = {out.data()};
      const SegmentKernel kernel = jit_compile(GetParam(), segment);
      ASSERT_NE(kernel, nullptr);
      kernel(inputs, nullptr, outputs, 65536);
      elementwise_kernel(row.id, dtype)(inputs, want.data(), 65536);
      const int step = row.result_is_bool ? 1 : size;
      for (int i = 0; i < 65536; ++i) {
        const char* got = out.data() + i * step;
        if (std::memcmp(got, want.data() + i * step, static_cast<size_t>(step)) == 0) continue;
        uint64_t bits = 0;
        std::memcpy(&bits, in.data() + i * size, static_cast<size_t>(size));
        FAIL() << row.name << " " << dtype_name(dtype) << " of bits " << std::hex << bits;
      }
    }
  }
}

Segment numbered_segment(int number) {
  Segment segment;
  segment.inputs = {Dtype::kFloat32, Dtype::kFloat32};
  segment.outputs = {Dtype::kFloat32};
  for (int bit = 0; bit < 16; ++bit) {
    SegmentStep step =
        row_step(op_info(number >> bit & 1 ? OpId::add : OpId::sub), Dtype::kFloat32);
    if (bit > 0) step.in[0] = {SegmentRef::kStep, static_cast<uint8_t>(bit - 1)};
    step.in[1] = {SegmentRef::kInput, 1};
    segment.steps.push_back(step);
  }
  segment.steps.back().output = 0;
  return segment;
}

// What number & 1 for each bit adds or subtracts, of exact small integers.
bool gives_sum(SegmentKernel kernel, int number) {
  const float x[3] = {5, 6, 7}, y[3] = {1, 2, 3};
  float out[3] = {};
  const void* inputs[] = {x, y};
  void* outputs[] = {out};
  kernel(inputs, nullptr, outputs, 3);
  const int count = 2 * std::popcount(static_cast<unsigned>(number) & 0xffff) - 16;
  for (int i = 0; i < 3; ++i) {
    if (out[i] != x[i] + static_cast<float>(count) * y[i]) return false;
  }
  return true;
}

// A child process has the code of its parent and makes its own, up to the bound on code.
TEST_P(Jit, WorksAfterForkAndStopsAtItsBound) {
  const SegmentKernel before = jit_compile(GetParam(), numbered_segment(1));
  ASSERT_NE(before, nullptr);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    bool right = gives_sum(before, 1);
    int made = 2;
    for (; made < 65536; ++made) {
      const SegmentKernel kernel = jit_compile(GetParam(), numbered_segment(made));
      if (kernel == nullptr) break;
      right = right && gives_sum(kernel, made);
    }
    right = right && made > 1000 && made < 65536 && gives_sum(before, 1);
    right = right && jit_compile(GetParam(), numbered_segment(1)) == before;
    right = right && jit_compile(GetParam(), numbered_segment(0)) == nullptr;
    _exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  const SegmentKernel after = jit_compile(GetParam(), numbered_segment(2));
  ASSERT_NE(after, nullptr);
  EXPECT_TRUE(gives_sum(after, 2));
}

// Settings are read once, so each is tried in a process of its own.
TEST_P(Jit, ObeysItsSettings) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("HOLOGRAM_JIT", "0", 1);
        const Segment segment = numbered_segment(3);
        const bool refused =
            !jit_takes(GetParam(), segment.steps[0]) && jit_compile(GetParam(), segment) == nullptr;
        _exit(refused ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        setenv("HOLOGRAM_JIT_PERF", "1", 1);
        const std::string path = "/tmp/perf-" + std::to_string(getpid()) + ".map";
        const auto kernel = jit_compile(GetParam(), numbered_segment(3));
        std::ifstream file(path);
        uintptr_t address = 0;
        size_t bytes = 0;
        std::string name;
        file >> std::hex >> address >> bytes >> name;
        unlink(path.c_str());
        const bool noted = address == reinterpret_cast<uintptr_t>(kernel) && bytes > 0 &&
                           name.starts_with("hologram_jit_1_add_add_sub");
        _exit(noted ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_P(Jit, RefusesWhatItCannotDo) {
  Segment segment = row_segment(op_info(OpId::add), Dtype::kFloat32, 0);
  segment.steps[0].in[1] = {SegmentRef::kStep, 0};  // its own result
  EXPECT_EQ(jit_compile(GetParam(), segment), nullptr);
  segment = row_segment(op_info(OpId::add), Dtype::kFloat32, 0);
  segment.inputs[1] = Dtype::kFloat64;
  EXPECT_EQ(jit_compile(GetParam(), segment), nullptr);
  segment = row_segment(op_info(OpId::add), Dtype::kFloat32, 0);
  segment.outputs[0] = Dtype::kInt32;
  EXPECT_EQ(jit_compile(GetParam(), segment), nullptr);
  segment = row_segment(op_info(OpId::add), Dtype::kInt8, 0);
  EXPECT_EQ(jit_compile(GetParam(), segment), nullptr);
  segment = row_segment(op_info(OpId::add), Dtype::kFloat32, 0);
  EXPECT_EQ(jit_compile(Isa::kBaseline, segment), nullptr);
  segment.steps[0].op = static_cast<OpId>(31);  // no row
  EXPECT_EQ(jit_compile(GetParam(), segment), nullptr);
}

TEST_P(Jit, ManyThreadsGetOneKernelForOneSegment) {
  std::vector<std::vector<SegmentKernel>> kernels(8);
  std::vector<std::thread> threads;
  for (auto& mine : kernels) {
    threads.emplace_back([&mine, isa = GetParam()] {
      std::mt19937_64 rng(7);
      for (int i = 0; i < 60; ++i) {
        const Segment segment = random_segment(rng, isa, 2 + rng() % 8, true);
        mine.push_back(jit_compile(isa, segment));
        Case c;
        c.segment = segment;
        c.n = 100;
        c.make(rng);
        const auto values = c.expected();
        mine.back()(c.inputs.data(), c.numbers.data(), c.outputs.data(), c.n);
        expect_same(c, values, false);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& mine : kernels) EXPECT_EQ(mine, kernels[0]);
}

TEST_P(Jit, CountsWhatItDoes) {
  Segment segment = row_segment(op_info(OpId::squared_difference), Dtype::kFloat32, 0);
  segment.steps.push_back(segment.steps[0]);
  segment.steps[1].in[0] = {SegmentRef::kStep, 0};
  segment.steps[0].output = -1;
  const JitStats before = jit_stats();
  const SegmentKernel kernel = jit_compile(GetParam(), segment);
  const JitStats between = jit_stats();
  EXPECT_EQ(jit_compile(GetParam(), segment), kernel);
  const JitStats after = jit_stats();
  EXPECT_EQ(between.kernels, before.kernels + 1);
  EXPECT_GT(between.code_bytes, before.code_bytes);
  EXPECT_GT(between.compile_us, before.compile_us);
  EXPECT_EQ(after.kernels, between.kernels);
  EXPECT_EQ(after.hits, between.hits + 1);
}

INSTANTIATE_TEST_SUITE_P(Isas, Jit, ::testing::Values(Isa::kAvx2, Isa::kAvx512),
                         [](const auto& info) { return std::string(isa_name(info.param)); });

}  // namespace
}  // namespace hologram::cpu
