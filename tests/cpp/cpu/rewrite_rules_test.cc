// SPDX-License-Identifier: MIT
// Runs both sides of every exact law through the kernels of every instruction set.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <random>
#include <vector>

#include "hologram/elementwise.h"
#include "src/circuit/rewrite_rules.h"
#include "src/cpu/device/kernel_table.h"

namespace hologram::cpu {
namespace {

using circuit::Law;
using circuit::LawKind;
using circuit::LawTag;
using circuit::NumberClass;

template <class T>
T number_of(NumberClass number) {
  switch (number) {
    case NumberClass::kNegativeZero:
      return static_cast<T>(-0.0);
    case NumberClass::kOne:
      return T(1);
    case NumberClass::kMinusOne:
      return static_cast<T>(-1);
    case NumberClass::kTwo:
      return T(2);
    default:
      return T(0);
  }
}

// Random bits, which hold every kind of NaN, and the usual suspects.
template <class T>
std::vector<T> arguments(bool quiet) {
  std::mt19937_64 random(7);
  std::vector<T> x(4096);
  for (T& v : x) {
    const uint64_t bits = random();
    std::memcpy(&v, &bits, sizeof(T));
  }
  if constexpr (std::is_floating_point_v<T>) {
    using Limits = std::numeric_limits<T>;
    const T some[] = {T(0),
                      -T(0),
                      Limits::infinity(),
                      -Limits::infinity(),
                      T(1),
                      Limits::min(),
                      Limits::max(),
                      Limits::denorm_min(),
                      T(.5),
                      T(-2.5),
                      T(3.5),
                      Limits::quiet_NaN()};
    std::copy(std::begin(some), std::end(some), x.begin());
    if (quiet) {
      // What arithmetic can give: no signalling NaN.
      for (T& v : x) {
        if (v != v) v = v + T(1);
      }
    }
  }
  return x;
}

template <class T>
std::vector<T> run(Isa isa, OpId op, Dtype dtype, const std::vector<T>& x,
                   const std::vector<T>& y) {
  const ElementwiseKernel kernel =
      kernel_table(isa).kernels[static_cast<int>(op)][static_cast<int>(dtype)][0];
  EXPECT_NE(kernel, nullptr) << op_info(op).name;
  std::vector<T> out(x.size());
  const void* in[4] = {x.data(), y.data(), nullptr, nullptr};
  kernel(in, out.data(), static_cast<int64_t>(x.size()));
  return out;
}

template <class T>
void check(Isa isa, const Law& law, Dtype dtype) {
  const std::vector<T> x = arguments<T>(law.tag == LawTag::kQuiet);
  std::vector<T> left, right = x;
  switch (law.kind) {
    case LawKind::kNeutral: {
      const std::vector<T> number(x.size(), number_of<T>(law.number));
      left = law.operand == 0 ? run(isa, law.op, dtype, number, x)
                              : run(isa, law.op, dtype, x, number);
      break;
    }
    case LawKind::kSame:
      left = run(isa, law.op, dtype, x, x);
      break;
    case LawKind::kProjection:
      right = run(isa, law.op, dtype, x, x);
      left = run(isa, law.op, dtype, right, right);
      break;
    case LawKind::kInvolution: {
      const std::vector<T> once = run(isa, law.op, dtype, x, x);
      left = run(isa, law.op, dtype, once, once);
      break;
    }
    case LawKind::kAbsorbs: {
      const std::vector<T> inner = run(isa, law.inner, dtype, x, x);
      left = run(isa, law.op, dtype, inner, inner);
      right = run(isa, law.op, dtype, x, x);
      break;
    }
  }
  for (size_t i = 0; i < x.size(); ++i) {
    uint64_t a = 0, b = 0, c = 0;
    std::memcpy(&a, &left[i], sizeof(T));
    std::memcpy(&b, &right[i], sizeof(T));
    std::memcpy(&c, &x[i], sizeof(T));
    ASSERT_EQ(a, b) << op_info(law.op).name << " of bits " << std::hex << c << " on "
                    << isa_name(isa) << ", " << dtype_name(dtype);
  }
}

TEST(Laws, BothSidesAgreeBitForBit) {
  int checked = 0;
  for (int i = 0; i < kIsaCount; ++i) {
    const Isa isa = static_cast<Isa>(i);
    if (!isa_available(isa)) continue;
    for (const Law& law : circuit::laws()) {
      const auto takes = [&](Dtype d) {
        return law.covers(d) && op_info(law.op).supports(d) &&
               (law.kind != LawKind::kAbsorbs || op_info(law.inner).supports(d));
      };
      if (takes(Dtype::kFloat32)) check<float>(isa, law, Dtype::kFloat32), ++checked;
      if (takes(Dtype::kFloat64)) check<double>(isa, law, Dtype::kFloat64), ++checked;
      if (takes(Dtype::kInt32)) check<int32_t>(isa, law, Dtype::kInt32), ++checked;
      if (takes(Dtype::kInt64)) check<int64_t>(isa, law, Dtype::kInt64), ++checked;
      if (takes(Dtype::kUInt8)) check<uint8_t>(isa, law, Dtype::kUInt8), ++checked;
    }
  }
  EXPECT_GE(checked, 60);
}

}  // namespace
}  // namespace hologram::cpu
