// SPDX-License-Identifier: MIT
// Tensor views: which elements each view shows, checked against index arithmetic done one by one.
#include "hologram/tensor.h"

#include <functional>
#include <random>
#include <vector>

#include "tests/cpp/runtime/support.h"

namespace hologram {
namespace {

// A tensor of int64 whose elements are 0, 1, 2, ... in row-major order.
Tensor iota(Shape shape) {
  const int64_t n = shape_numel(shape);
  BufferRef b = allocate(static_cast<size_t>(n) * 8);
  for (int64_t i = 0; i < n; ++i) b->data_as<int64_t>()[i] = i;
  return Tensor(b, std::move(shape), Dtype::kInt64);
}

// All elements in row-major order of the view, through view() as kernels see it.
std::vector<int64_t> elements(const Tensor& t) {
  const View v = t.view();
  std::vector<int64_t> result;
  std::vector<int64_t> index(v.ndim, 0);
  for (int64_t n = v.numel(); n > 0; --n) {
    int64_t at = 0;
    for (int d = 0; d < v.ndim; ++d) at += index[d] * v.strides[d];
    result.push_back(static_cast<const int64_t*>(v.data)[at]);
    for (int d = v.ndim - 1; d >= 0 && ++index[d] == v.shape[d]; --d) index[d] = 0;
  }
  return result;
}

using Values = std::vector<int64_t>;

TEST(Shape, CountsElementsAndRefusesNonsense) {
  EXPECT_EQ(shape_numel(Shape{}), 1);
  EXPECT_EQ(shape_numel(Shape{2, 3, 4}), 24);
  EXPECT_EQ(shape_numel(Shape{INT64_MAX, 0, INT64_MAX}), 0);
  EXPECT_ERROR(shape_numel(Shape{2, -1}), ErrorKind::kInvalidArgument,
               "negative dimension -1 in shape [2, -1]");
  EXPECT_ERROR(shape_numel(Shape{INT64_MAX, 2}), ErrorKind::kInvalidArgument, "2^63 - 1");
  EXPECT_EQ(contiguous_strides(Shape{2, 3, 4}), (Shape{12, 4, 1}));
  EXPECT_EQ(contiguous_strides(Shape{2, 0, 4}), (Shape{4, 4, 1}));
}

TEST(Tensor, StandsOnABufferItKeepsAlive) {
  Tensor t = iota({2, 3});
  EXPECT_EQ(t.ndim(), 2);
  EXPECT_EQ(t.numel(), 6);
  EXPECT_EQ(t.nbytes(), 48u);
  EXPECT_EQ(t.size(-1), 3);
  EXPECT_EQ(t.stride(0), 3);
  EXPECT_TRUE(t.is_contiguous());
  EXPECT_EQ(t.buffer()->use_count(), 1u);
  const Tensor u = t.select(0, 1);
  t = Tensor();
  EXPECT_EQ(elements(u), (Values{3, 4, 5}));
  EXPECT_EQ(t.numel(), 0);
  EXPECT_EQ(t.data(), nullptr);
  BufferRef b = allocate(12);
  b->set_dtype(Dtype::kFloat32);
  EXPECT_EQ(Tensor(b).shape(), Shape{3});
}

TEST(Tensor, EveryElementMustLieInTheBuffer) {
  const BufferRef b = allocate(10 * 4);
  const auto make = [&](Shape shape, Shape strides, int64_t offset) {
    return Tensor(b, std::move(shape), std::move(strides), Dtype::kFloat32, offset);
  };
  EXPECT_EQ(make({10}, {1}, 0).numel(), 10);
  EXPECT_EQ(make({10}, {-1}, 9).numel(), 10);
  EXPECT_EQ(make({1000, 10}, {0, 1}, 0).numel(), 10000);
  EXPECT_EQ(make({0, 5}, {1, 1}, 10).numel(), 0);
  EXPECT_EQ(make({}, {}, 9).numel(), 1);
  EXPECT_ERROR(
      make({11}, {1}, 0), ErrorKind::kInvalidArgument,
      "shape [11] with strides [1] and offset 0 reaches outside a buffer of 10 elements of "
      "float32");
  EXPECT_ERROR(make({10}, {1}, 1), ErrorKind::kInvalidArgument, "reaches outside");
  EXPECT_ERROR(make({2}, {-1}, 0), ErrorKind::kInvalidArgument, "reaches outside");
  EXPECT_ERROR(make({}, {}, 10), ErrorKind::kInvalidArgument, "reaches outside");
  EXPECT_ERROR(make({}, {}, -1), ErrorKind::kInvalidArgument, "offset -1");
  EXPECT_ERROR(make({0}, {1}, 11), ErrorKind::kInvalidArgument, "offset 11");
  EXPECT_ERROR(make({3, 3}, {INT64_MAX, INT64_MAX}, 0), ErrorKind::kInvalidArgument, "outside");
  EXPECT_ERROR(make({2, 2}, {1}, 0), ErrorKind::kInvalidArgument, "mismatch in length of strides");
  EXPECT_ERROR(Tensor(b, {6}, Dtype::kFloat64), ErrorKind::kInvalidArgument,
               "5 elements of float64");
  EXPECT_ERROR(Tensor(BufferRef(), {0}, Dtype::kFloat32), ErrorKind::kInvalidArgument, "null");
}

TEST(Tensor, ViewsShowTheRightElements) {
  const Tensor t = iota({2, 3, 4});
  EXPECT_EQ(elements(t.transpose(0, -1)).at(1), 12);
  EXPECT_EQ(t.permute({2, 0, 1}).shape(), (Shape{4, 2, 3}));
  EXPECT_EQ(t.permute({2, 0, 1}).strides(), (Shape{1, 12, 4}));
  EXPECT_EQ(elements(t.select(1, -1)), (Values{8, 9, 10, 11, 20, 21, 22, 23}));
  EXPECT_EQ(elements(t.narrow(2, 1, 2).select(0, 0)), (Values{1, 2, 5, 6, 9, 10}));
  EXPECT_EQ(elements(t.narrow(2, -1, 1).select(0, 0)), (Values{3, 7, 11}));
  EXPECT_EQ(elements(t.slice(2, 0, 4, 3).select(0, 0)), (Values{0, 3, 4, 7, 8, 11}));
  EXPECT_EQ(elements(t.slice(2, -3, -1).select(0, 0).select(0, 0)), (Values{1, 2}));
  EXPECT_EQ(t.slice(1, 2, 1).shape(), (Shape{2, 0, 4}));
  EXPECT_EQ(t.slice(1, -100, INT64_MAX).shape(), t.shape());
  EXPECT_EQ(t.slice(0, 0, 2, INT64_MAX).shape(), (Shape{1, 3, 4}));
  EXPECT_EQ(t.unsqueeze(-1).shape(), (Shape{2, 3, 4, 1}));
  EXPECT_EQ(t.unsqueeze(0).squeeze(0).shape(), t.shape());
  EXPECT_EQ(t.squeeze(1).shape(), t.shape());
  EXPECT_EQ(elements(iota({3, 1}).expand(Shape{2, -1, 2})),
            (Values{0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2}));
  EXPECT_TRUE(iota({3, 1}).expand(Shape{3, 2}).may_overlap_itself());
  EXPECT_FALSE(t.permute({1, 2, 0}).may_overlap_itself());
  EXPECT_FALSE(t.slice(2, 0, 4, 2).may_overlap_itself());
  EXPECT_FALSE(t.transpose(0, 1).is_contiguous());
  EXPECT_TRUE(t.narrow(0, 1, 1).is_contiguous());
  EXPECT_EQ(Tensor(t.buffer(), Shape{}, Dtype::kInt64).transpose(0, -1).ndim(), 0);
}

TEST(Tensor, ReshapeKeepsTheOrderOrSaysThatItCannot) {
  const Tensor t = iota({2, 3, 4});
  EXPECT_EQ(t.reshape({-1}).shape(), Shape{24});
  EXPECT_EQ(t.reshape({4, -1, 1}).shape(), (Shape{4, 6, 1}));
  EXPECT_EQ(t.transpose(0, 1).reshape({3, 2, 2, 2}).strides(), (Shape{4, 12, 2, 1}));
  EXPECT_FALSE(t.transpose(0, 1).try_reshape({24}).has_value());
  EXPECT_EQ(iota({0, 3}).reshape({3, 0, 7}).numel(), 0);
  EXPECT_EQ(iota({1}).reshape({}).ndim(), 0);
  EXPECT_ERROR(t.reshape({5, 5}), ErrorKind::kInvalidArgument,
               "shape '[5, 5]' is invalid for input of size 24");
  EXPECT_ERROR(t.reshape({5, -1}), ErrorKind::kInvalidArgument, "invalid for input of size 24");
  EXPECT_ERROR(t.reshape({-1, -1}), ErrorKind::kInvalidArgument, "only one dimension");
  EXPECT_ERROR(t.reshape({-2, 12}), ErrorKind::kInvalidArgument, "invalid shape dimension -2");
  EXPECT_ERROR(iota({0}).reshape({-1, 0}), ErrorKind::kInvalidArgument, "can be any value");
  EXPECT_ERROR(t.reshape({INT64_MAX, INT64_MAX}), ErrorKind::kInvalidArgument, "invalid for input");
  EXPECT_ERROR(t.transpose(0, 1).reshape({24}), ErrorKind::kInvalidArgument, "copy it first");
}

TEST(Tensor, RandomViewsReshapeToTheSameElements) {
  std::mt19937 random(3);
  int reshaped = 0;
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    Tensor t = iota({2, 3, 4, 2});
    for (int step = 0; step < 3; ++step) {
      const int d = static_cast<int>(random() % t.ndim());
      switch (random() % 4) {
        case 0:
          t = t.transpose(d, static_cast<int>(random() % t.ndim()));
          break;
        case 1:
          t = t.slice(d, random() % 2, INT64_MAX, 1 + random() % 2);
          break;
        case 2:
          t = t.unsqueeze(d);
          break;
        default:
          if (t.size(d) == 1) t = t.squeeze(d);
      }
    }
    // Factors of the count in random order make a shape.
    Shape shape;
    int64_t left = t.numel();
    if (left == 0) continue;
    for (int64_t f = 2; left > 1;) {
      if (left % f == 0 && random() % 2) {
        shape.push_back(f);
        left /= f;
      } else {
        f = f >= left ? 2 : f + 1;
      }
      if (random() % 8 == 0) shape.push_back(1);
    }
    const auto before = elements(t);
    const std::optional<Tensor> r = t.try_reshape(shape);
    if (r) {
      ++reshaped;
      ASSERT_EQ(r->shape(), shape);
      ASSERT_EQ(elements(*r), before);
    } else {
      ++refused;
      ASSERT_FALSE(t.is_contiguous());
    }
  }
  EXPECT_GT(reshaped, 500);
  EXPECT_GT(refused, 100);
}

TEST(Tensor, BadViewsSayWhatWasGiven) {
  const Tensor t = iota({2, 3});
  const Tensor scalar = iota({});
  EXPECT_ERROR(t.transpose(0, 2), ErrorKind::kIndex,
               "dimension out of range (expected to be in range of [-2, 1], but got 2)");
  EXPECT_ERROR(t.size(-3), ErrorKind::kIndex, "but got -3");
  EXPECT_ERROR(t.select(0, 2), ErrorKind::kIndex,
               "index 2 is out of range for dimension 0 with size 2");
  EXPECT_ERROR(scalar.select(0, 0), ErrorKind::kIndex, "0-dim");
  EXPECT_ERROR(t.narrow(1, 2, 2), ErrorKind::kInvalidArgument,
               "start (2) + length (2) exceeds dimension size (3)");
  EXPECT_ERROR(t.narrow(1, 4, 0), ErrorKind::kIndex, "start out of range");
  EXPECT_ERROR(t.narrow(1, 0, -1), ErrorKind::kInvalidArgument, "must be non-negative");
  EXPECT_ERROR(t.narrow(1, 1, INT64_MAX), ErrorKind::kInvalidArgument, "exceeds dimension size");
  EXPECT_ERROR(t.slice(0, 0, 1, 0), ErrorKind::kInvalidArgument, "step must be positive");
  EXPECT_ERROR(t.permute({0}), ErrorKind::kInvalidArgument, "does not match the length");
  EXPECT_ERROR(t.permute({0, 0}), ErrorKind::kInvalidArgument, "dimension 0 is given twice");
  EXPECT_ERROR(t.expand(Shape{2, 4}), ErrorKind::kInvalidArgument,
               "the expanded size (4) must match the existing size (3) at dimension 1");
  EXPECT_ERROR(t.expand(Shape{6}), ErrorKind::kInvalidArgument, "number of sizes");
  EXPECT_ERROR(t.expand(Shape{-1, 2, 3}), ErrorKind::kInvalidArgument, "leading");
  EXPECT_ERROR(t.unsqueeze(4), ErrorKind::kIndex, "[-3, 2], but got 4");
  EXPECT_ERROR(scalar.size(0), ErrorKind::kIndex, "no dimensions");
}

}  // namespace
}  // namespace hologram
