// SPDX-License-Identifier: MIT
// Memory that was lent out and taken back is seen to be the same: by addresses, whatever owns it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "hologram/circuit.h"
#include "hologram/error.h"
#include "hologram/executor.h"
#include "hologram/functions.h"
#include "hologram/memory.h"
#include "src/array/array.h"
#include "tests/cpp/runtime/support.h"

namespace hologram {
namespace {

using Floats = std::vector<float>;

// 0, 1, 2, ... in memory of a pool, and a foreign buffer over a part of that.
struct Lent {
  explicit Lent(int64_t n, int64_t from = 0) : own(full({n}, 0.0, Dtype::kFloat32, cpu())) {
    init(from);
  }
  Lent(BufferRef buffer, int64_t n, int64_t from)
      : own(std::move(buffer), Shape{n}, Dtype::kFloat32) {
    init(from);
  }

  void init(int64_t from) {
    mark = ExportMark(own.buffer());
    materialize(own);
    const int64_t n = own.numel();
    for (int64_t i = 0; i < n; ++i) static_cast<float*>(own.data())[i] = static_cast<float>(i);
    BufferRef buffer = BufferRef::adopt(wrap_buffer(cpu(), static_cast<float*>(own.data()) + from,
                                                    static_cast<size_t>(n - from) * sizeof(float),
                                                    nullptr, nullptr));
    mark_exported(*buffer);
    back = Tensor(std::move(buffer), Shape{n - from}, Dtype::kFloat32);
  }
  Floats values() const {
    const auto* data = static_cast<const float*>(own.data());
    return {data, data + own.numel()};
  }

  Tensor own;
  Tensor back;
  ExportMark mark;
};

Floats counted(int64_t n) {
  Floats values;
  for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<float>(i));
  return values;
}

TEST(Overlap, IsDecidedByAddresses) {
  const Lent a(100, 40), b(100);
  const Tensor other = full({100}, 1.0, Dtype::kFloat32, cpu());
  EXPECT_TRUE(array::may_overlap(a.own, a.back));
  EXPECT_TRUE(array::may_overlap(a.back, a.own));
  EXPECT_FALSE(array::may_overlap(a.own.narrow(0, 0, 40), a.back));
  EXPECT_TRUE(array::may_overlap(a.own.narrow(0, 0, 41), a.back));
  EXPECT_FALSE(array::may_overlap(a.own, b.back));
  EXPECT_FALSE(array::may_overlap(a.own, b.own));
  EXPECT_FALSE(array::may_overlap(other, a.back)) << "it has no memory yet";
  materialize(other);
  EXPECT_FALSE(array::may_overlap(other, a.back));
  EXPECT_FALSE(array::may_overlap(a.back.narrow(0, 3, 0), a.own));
  const Tensor same = a.own.narrow(0, 40, 60);
  EXPECT_FALSE(array::clashes(same, a.back)) << "element for element the same";
  EXPECT_TRUE(array::clashes(a.own.narrow(0, 0, 60), a.back));
}

TEST(Overlap, ElementwiseCopiesAndFills) {
  for (const int64_t n : {int64_t{37}, int64_t{100'000}}) {
    for (const bool forward : {true, false}) {
      const Lent t(n);
      const Tensor& from = forward ? t.own : t.back;
      const Tensor& to = forward ? t.back : t.own;
      Floats want = counted(n);
      apply_into(OpId::add, {from.narrow(0, 0, n - 1), 1.0}, to.narrow(0, 1, n - 1));
      for (int64_t i = n - 1; i > 0; --i) want[i] = want[i - 1] + 1;
      EXPECT_EQ(t.values(), want);
      copy_into(from.narrow(0, 0, n - 2), to.narrow(0, 2, n - 2));
      for (int64_t i = n - 1; i > 1; --i) want[i] = want[i - 2];
      EXPECT_EQ(t.values(), want);
      fill_into(3.0, from.narrow(0, 1, 2));
      apply_into(OpId::mul, {to, from}, to);
      want[1] = want[2] = 3;
      for (float& x : want) x *= x;
      EXPECT_EQ(t.values(), want);
    }
  }
}

TEST(Overlap, ProductsReductionsAndRows) {
  constexpr size_t n = 96;
  constexpr auto kSide = static_cast<int64_t>(n);
  const Lent t(kSide * kSide);
  const Tensor a = t.own.reshape({kSide, kSide}), b = t.back.reshape({kSide, kSide});
  Floats want(n * n);
  // Small integers, so that sums are exact in any order.
  for (size_t i = 0; i < n * n; ++i) want[i] = static_cast<float>(i * i % 7) - 3;
  std::copy(want.begin(), want.end(), static_cast<float*>(t.own.data()));

  Floats product(n * n, 0);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      for (size_t k = 0; k < n; ++k) product[n * i + j] += want[n * i + k] * want[n * k + j];
    }
  }
  matmul_into(a, a, b);
  EXPECT_EQ(t.values(), product);

  reduce_into(Reduction::sum, a, b.select(0, 0), {.dims = std::vector{1}});
  for (size_t i = 0; i < n; ++i) {
    want[i] = 0;
    for (size_t k = 0; k < n; ++k) want[i] += product[n * i + k];
  }
  std::copy(want.begin(), want.begin() + n, product.begin());
  EXPECT_EQ(t.values(), product);

  apply_into(OpId::mul, {a.transpose(0, 1), 0.0078125}, b);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) want[n * i + j] = product[n * j + i] / 128;
  }
  EXPECT_EQ(t.values(), want);
  softmax_into(a.transpose(0, 1), 0, b);
  const Floats found = t.values();
  for (size_t j = 0; j < n; ++j) {
    double top = -1e30, sum = 0;
    for (size_t k = 0; k < n; ++k) top = std::fmax(top, want[n * j + k]);
    for (size_t k = 0; k < n; ++k) sum += std::exp(want[n * j + k] - top);
    for (size_t i = 0; i < n; ++i) {
      ASSERT_NEAR(found[n * i + j], std::exp(want[n * j + i] - top) / sum, 1e-6) << i << ' ' << j;
    }
  }
}

TEST(Overlap, OfSmallBuffersOfAnExecutor) {
  const auto executor = Executor::with_backend(BackendType::kCpu);
  BufferRef buffer = executor->allocate(50, Dtype::kFloat32);
  ASSERT_EQ(buffer->pool(), PoolKind::kBoundary);
  const Lent t(std::move(buffer), 50, 1);
  apply_into(OpId::neg, {t.own.narrow(0, 0, 49)}, t.back);
  Floats want(50, 0);
  for (size_t i = 1; i < 50; ++i) want[i] = -static_cast<float>(i - 1);
  EXPECT_EQ(t.values(), want);
}

TEST(Overlap, ReadingIntoTheTensorsOwnMemory) {
  const Lent t(10);
  const int64_t shape[] = {9}, strides[] = {1};
  read(t.own.narrow(0, 0, 9),
       {static_cast<float*>(t.own.data()) + 1, Dtype::kFloat32, 1, shape, strides});
  EXPECT_EQ(t.values(), (Floats{0, 0, 1, 2, 3, 4, 5, 6, 7, 8}));
  const int64_t back[] = {-1};
  read(t.own.narrow(0, 0, 9),
       {static_cast<float*>(t.own.data()) + 8, Dtype::kFloat32, 1, shape, back});
  EXPECT_EQ(t.values(), (Floats{7, 6, 5, 4, 3, 2, 1, 0, 0, 8}));
}

TEST(Overlap, CircuitsCopyArgumentsThatShareMemory) {
  Circuit circuit(cpu());
  const Tensor x = circuit.input({8}, Dtype::kFloat32), y = circuit.input({8}, Dtype::kFloat32);
  circuit.record([&] {
    apply_into(OpId::add, {x, 10.0}, x);
    circuit.output(mul(y, 2.0));  // reads what y was
  });
  const Lent t(8);
  const Tensor doubled = circuit.run({t.own, t.back})[0];
  EXPECT_EQ(t.values(), (Floats{10, 11, 12, 13, 14, 15, 16, 17}));
  materialize(doubled);
  EXPECT_EQ(static_cast<const float*>(doubled.data())[7], 14.0f);

  Circuit second(cpu());
  const Tensor u = second.input({8}, Dtype::kFloat32), v = second.input({8}, Dtype::kFloat32);
  second.record([&] {
    second.output(mul(u, 2.0));
    apply_into(OpId::add, {v, 10.0}, v);
  });
  try {
    second.run({t.own, t.back});
    ADD_FAILURE() << "it writes what another argument reads";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("input 1 is written"), std::string::npos);
  }
}

TEST(Overlap, CircuitsRefuseOneMemoryOnTwoBuffersFromOutside) {
  const Lent t(8);
  Circuit circuit(cpu());
  const Tensor x = circuit.input({8}, Dtype::kFloat32);
  circuit.record([&] {
    apply_into(OpId::add, {x, 1.0}, t.own);
    circuit.output(mul(t.back, 2.0));
  });
  try {
    circuit.compile();
    ADD_FAILURE() << "nothing orders the two";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("lent out and taken back"), std::string::npos);
  }
  // Where neither is written, there is nothing to order.
  Circuit reads(cpu());
  const Tensor y = reads.input({8}, Dtype::kFloat32);
  reads.record([&] { reads.output(add(add(t.own, t.back), y)); });
  const Tensor sum = reads.run({t.back})[0];
  materialize(sum);
  EXPECT_EQ(static_cast<const float*>(sum.data())[7], 21.0f);
}

}  // namespace
}  // namespace hologram
