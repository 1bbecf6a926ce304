// SPDX-License-Identifier: MIT
// Generated loops of one row or conversion against the kernels: the same bits, and no byte outside
// the arrays.
#include "tests/cpp/cpu/jit_cases.h"

namespace hologram::cpu {
namespace {

class JitRows : public JitTest {};

TEST_P(JitRows, RowsGiveTheBitsOfTheirKernels) {
  std::mt19937_64 rng(1);
  int taken = 0;
  for (const OpInfo& row : ops()) {
    for (Dtype dtype : kDtypes) {
      if (!row.supports(dtype)) continue;
      ASSERT_TRUE(jit_takes(GetParam(), row_instr(row, dtype))) << row.name;
      ++taken;
      for (unsigned numbers = 0; numbers < 1u << row.arity; ++numbers) {
        const Loop loop = row_loop(row, dtype, numbers);
        for (int64_t n : {0, 1, 3, 7, 8, 15, 16, 17, 31, 33, 64, 70, 257, 1000}) {
          check(loop, n, rng() % 2, rng);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
  EXPECT_GT(taken, 150);
}

// Rows of one operation apart from calls: no compiler chose the order of their operands, and x86
// gives the first operand that is a NaN.
TEST_P(JitRows, NanPayloadsAreThoseOfTheKernels) {
  std::mt19937_64 rng(2);
  for (const char* name : {"neg", "abs", "sqrt", "reciprocal", "rsqrt", "relu", "floor", "sub",
                           "div", "minimum", "maximum", "clamp", "where", "threshold", "sign",
                           "threshold_backward", "leaky_relu", "hardtanh_backward"}) {
    const OpInfo& row = op_info(*find_op(name));
    for (Dtype dtype : {Dtype::kFloat32, Dtype::kFloat64}) {
      for (unsigned numbers = 0; numbers < 1u << row.arity; ++numbers) {
        check(row_loop(row, dtype, numbers), 1000, 0, rng, true);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(JitRows, ConversionsGiveTheBitsOfConvert) {
  std::mt19937_64 rng(3);
  constexpr Dtype kAll[] = {Dtype::kBool,     Dtype::kInt32,   Dtype::kInt64,   Dtype::kFloat16,
                            Dtype::kBFloat16, Dtype::kFloat32, Dtype::kFloat64, Dtype::kUInt8,
                            Dtype::kInt8,     Dtype::kInt16};
  int taken = 0;
  for (Dtype from : kAll) {
    for (Dtype to : kAll) {
      Instr step;
      step.code = circuit::kCodeConvert;
      step.compute = from;
      step.result = to;
      step.arity = 1;
      step.out = {Ref::kAccess, 0};
      if (!jit_takes(GetParam(), step)) continue;
      ++taken;
      for (bool number : {false, true}) {
        Loop loop;
        step.in[0].kind = number ? Ref::kImmediate : Ref::kAccess;
        (number ? loop.numbers : loop.inputs).push_back(from);
        loop.instrs = {step};
        loop.outputs = {to};
        for (int64_t n : {1, 2, 3, 4, 5, 8, 11, 16, 31, 32, 33, 70, 4000}) {
          check(loop, n, rng() % 2, rng, true);
          if (HasFatalFailure()) return;
        }
      }
      // Beside a copy of another dtype, which may change how many lanes there are.
      for (Dtype beside : {Dtype::kBool, Dtype::kBFloat16, Dtype::kFloat64}) {
        Loop loop;
        step.in[0] = {Ref::kAccess, 0};
        Instr copied = step;
        copied.compute = copied.result = beside;
        copied.in[0] = {Ref::kAccess, 1};
        copied.out = {Ref::kAccess, 1};
        loop.inputs = {from, beside};
        loop.outputs = {to, beside};
        loop.instrs = {step, copied};
        for (int64_t n : {3, 33, 70}) {
          check(loop, n, rng() % 2, rng, true);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
  EXPECT_GE(taken, GetParam() == Isa::kAvx512 ? 49 + 21 : 41 + 21);
}

// Every half and bfloat16 there is, and floats around each of their boundaries.
TEST_P(JitRows, HalfTypesRoundAsConvertDoes) {
  for (Dtype half : {Dtype::kFloat16, Dtype::kBFloat16}) {
    Instr widen, narrow;
    widen.code = narrow.code = circuit::kCodeConvert;
    widen.arity = narrow.arity = 1;
    widen.compute = narrow.result = half;
    widen.result = narrow.compute = Dtype::kFloat32;
    widen.in[0] = narrow.in[0] = widen.out = narrow.out = {Ref::kAccess, 0};
    Loop up, down;
    up.inputs = {half};
    up.outputs = {Dtype::kFloat32};
    up.instrs = {widen};
    down.inputs = {Dtype::kFloat32};
    down.outputs = {half};
    down.instrs = {narrow};
    std::vector<uint16_t> halves(65536);
    for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
    std::vector<float> wide(halves.size()), want(halves.size());
    const void* in = halves.data();
    void* out = wide.data();
    compiled(GetParam(), up).get()(&in, nullptr, &out, 65536, 1, nullptr);
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
    compiled(GetParam(), down)
        .get()(&in, nullptr, &out, static_cast<int64_t>(floats.size()), 1, nullptr);
    convert(Dtype::kFloat32, floats.data(), half, reference.data(),
            static_cast<int64_t>(floats.size()));
    ASSERT_EQ(std::memcmp(got.data(), reference.data(), 2 * got.size()), 0);
  }
}

// Every exponent and sign, with mantissas at and around the ends, through every unary row.
TEST_P(JitRows, MathFunctionsGiveTheBitsOfTheirKernelsEverywhere) {
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
      const Loop loop = row_loop(row, dtype, 0);
      const void* inputs[] = {in.data()};
      void* outputs[] = {out.data()};
      const JitLoop kernel = compiled(GetParam(), loop);
      ASSERT_FALSE(kernel == nullptr);
      kernel.get()(inputs, nullptr, outputs, 65536, 1, nullptr);
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

INSTANTIATE_TEST_SUITE_P(Isas, JitRows, ::testing::Values(Isa::kAvx2, Isa::kAvx512), isa_of);

}  // namespace
}  // namespace hologram::cpu
