// SPDX-License-Identifier: MIT
// Rows whose elements lie far apart, whose kernels give a group many rows beside each other,
// against rows in one piece and against the order in which partial results come together.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "src/gpu/kernel_text.h"
#include "tests/cpp/cpu/plan_support.h"
#include "tests/cpp/opencl/plan_test.h"

namespace hologram::opencl {
namespace {

using namespace plans;
using circuit::RowOp;

// Where the elements of a domain of rows and columns lie.
enum class Layout {
  kRows,     // those of a row side by side
  kColumns,  // those of a column
  kApart,    // those of a column, with others between
  kSplit,    // those of a column, of rows of two dimensions
};

class RowsTest : public PlanTest {
 protected:
  static void run(Case& test) {
    const uint64_t before = gpu().host_kernels();
    test.slots = PlanTest::run(test);
    EXPECT_EQ(gpu().host_kernels(), before);
  }
};

std::vector<char> numbers(Dtype dtype, int64_t count) {
  Random random(static_cast<unsigned>(count) + 17u * static_cast<unsigned>(dtype));
  std::vector<char> bytes(static_cast<size_t>(count) * itemsize(dtype));
  std::normal_distribution<double> normal(0.25);
  for (int64_t i = 0; i < count; ++i) {
    const double value = is_floating(dtype) ? normal(random) : pick(random, 0, 100);
    convert(Dtype::kFloat64, &value, dtype, bytes.data() + static_cast<size_t>(i) * itemsize(dtype),
            1);
  }
  return bytes;
}

// A matrix in a layout, and how to move between that and rows in one piece.
struct Matrix {
  Matrix(Layout layout, int64_t rows, int64_t cols, Dtype dtype)
      : rows(rows), cols(cols), size(itemsize(dtype)) {
    shape = {rows, cols};
    strides = {1, rows};
    if (layout == Layout::kRows) strides = {cols, 1};
    if (layout == Layout::kApart) strides = {2, 2 * rows + 5};
    if (layout == Layout::kSplit && rows % 3 == 0) {
      shape = {3, rows / 3, cols};
      strides = {rows / 3 * cols, 1, rows / 3};
    }
  }
  size_t place(int64_t row, int64_t col) const {
    int64_t at = col * strides.back();
    if (strides.size() == 2) return static_cast<size_t>(at + row * strides[0]) * size;
    at += row / shape[1] * strides[0] + row % shape[1] * strides[1];
    return static_cast<size_t>(at) * size;
  }
  // Every byte that is not an element is this.
  static constexpr char kOther = 0x55;
  std::vector<char> from_rows(const std::vector<char>& values) const {
    std::vector<char> bytes(place(rows - 1, cols - 1) + size + 64, kOther);
    for (int64_t i = 0; i < rows * cols; ++i) {
      std::memcpy(bytes.data() + place(i / cols, i % cols),
                  values.data() + static_cast<size_t>(i) * size, size);
    }
    return bytes;
  }
  std::vector<char> to_rows(const std::vector<char>& bytes) const {
    std::vector<char> values(static_cast<size_t>(rows * cols) * size);
    for (int64_t i = 0; i < rows * cols; ++i) {
      std::memcpy(values.data() + static_cast<size_t>(i) * size,
                  bytes.data() + place(i / cols, i % cols), size);
    }
    EXPECT_EQ(from_rows(values), bytes) << "something was written between elements";
    return values;
  }

  int64_t rows, cols;
  size_t size;
  std::vector<int64_t> shape;
  Strides strides;
};

struct Program {
  std::string name;
  // Of an element and its row, from what memory holds; what it stores in rows and in elements.
  std::vector<Reduction> folds;
  bool softmax = false, in_place = false, softmax_backward = false;
};

// What a program stores: of each fold the values of rows, then elements, as rows in one piece.
std::vector<std::vector<char>> results(const Program& program, Layout layout, int64_t rows,
                                       int64_t cols, Dtype dtype, void (*run)(Case&)) {
  const Matrix matrix(layout, rows, cols, dtype);
  Case test;
  Builder builder(matrix.shape, true);
  const auto slot = [&](std::vector<char> bytes, Dtype of) {
    test.slots.push_back(std::move(bytes));
    test.dtypes.push_back(of);
    return static_cast<uint32_t>(test.slots.size() - 1);
  };
  const std::vector<char> values = numbers(dtype, rows * cols);
  const uint32_t in = slot(matrix.from_rows(values), dtype);
  const Ref x = builder.access(in, dtype, matrix.strides);
  const Dtype compute = compute_dtype(dtype);
  std::vector<uint32_t> stored;
  for (const Reduction op : program.folds) {
    const bool is_bool = reduction_info(op).result == ReductionInfo::kBool;
    const Dtype out = is_bool ? Dtype::kBool : dtype;
    stored.push_back(slot(std::vector<char>(static_cast<size_t>(rows) * itemsize(out)), out));
    builder.fold(op, x, builder.access(stored.back(), out, builder.rows(), Rank::kRow), 1);
  }
  uint32_t elements = in;
  if (program.softmax || program.softmax_backward) {
    std::vector<Ref> inputs = {dtype == compute ? x : builder.convert_temp(x, compute)};
    if (program.softmax_backward) {
      const std::vector<char> others = numbers(dtype, rows * cols + 1);
      const uint32_t other = slot(matrix.from_rows(others), dtype);
      const Ref y = builder.access(other, dtype, matrix.strides);
      inputs.push_back(dtype == compute ? y : builder.convert_temp(y, compute));
    }
    if (!program.in_place) elements = slot(matrix.from_rows(values), dtype);
    const RowOp op = program.softmax ? RowOp::kSoftmax : RowOp::kSoftmaxBackward;
    const Ref out = program.in_place ? x : builder.access(elements, dtype, matrix.strides);
    if (dtype == compute) {
      builder.rows(op, compute, inputs, out);
    } else {
      const Ref wide = builder.temp(compute);
      builder.rows(op, compute, inputs, wide);
      builder.convert(wide, compute, out);
    }
  }
  test.add(builder);
  run(test);
  std::vector<std::vector<char>> found;
  for (const uint32_t s : stored) found.push_back(test.slots[s]);
  found.push_back(matrix.to_rows(test.slots[elements]));
  return found;
}

const std::vector<Program>& programs() {
  static const std::vector<Program> list = {
      {"sum", {Reduction::sum}},
      {"mean and amax", {Reduction::mean, Reduction::amax}},
      {"var", {Reduction::var}},
      {"logsumexp", {Reduction::logsumexp}},
      {"softmax", {}, true},
      {"softmax in place", {}, true, true},
      {"backward of softmax in place", {}, false, true, true},
      {"many",
       {Reduction::sum, Reduction::var, Reduction::logsumexp, Reduction::amin, Reduction::amax},
       true},
  };
  return list;
}

// Lengths on both sides of those where rows have other partial results, other elements an item, or
// other pieces.
const std::vector<int64_t> kLengths = {1,   2,    16,   17,   63,   128,  129,  500,
                                       513, 2048, 2049, 4096, 4097, 8192, 8193, 20000};

TEST_F(RowsTest, ColumnsHaveTheBitsOfRows) {
  const auto expect_equal = [](size_t number, Layout layout, int64_t rows, int64_t cols) {
    const Program& program = programs()[number];
    ASSERT_EQ(results(program, layout, rows, cols, Dtype::kFloat32, run),
              results(program, Layout::kRows, rows, cols, Dtype::kFloat32, run))
        << program.name << " of " << rows << " rows of " << cols;
  };
  // A driver takes a while for each text. The last program has all that the others have.
  for (const int64_t cols : kLengths) {
    expect_equal(0, Layout::kColumns, 31, cols);
    expect_equal(5, Layout::kApart, 3, cols);
  }
  for (const int64_t cols : {16, 128, 500, 2049, 9000}) {
    for (size_t p = 0; p < programs().size(); ++p) {
      expect_equal(p, p % 2 == 0 ? Layout::kSplit : Layout::kColumns, 33, cols);
    }
    expect_equal(0, Layout::kColumns, 100, cols);
    expect_equal(5, Layout::kColumns, 1, cols);
  }
  // Large devices have groups of many rows where there are many.
  for (const int64_t cols : {100, 513, 2100}) {
    for (const size_t p : {1, 3, 5, 6}) expect_equal(p, Layout::kColumns, 2100, cols);
  }
}

// Nothing is stored while a row is still read, whether its elements stay in registers or not.
TEST_F(RowsTest, InPlaceHasTheBitsOfElsewhere) {
  Program elsewhere = programs()[6];
  elsewhere.in_place = false;
  for (const int64_t cols : {5, 100, 300, 2100, 9000}) {
    for (const Layout layout : {Layout::kRows, Layout::kColumns}) {
      const auto both = [&](const Program& a, const Program& b) {
        ASSERT_EQ(results(a, layout, 9, cols, Dtype::kFloat32, run),
                  results(b, layout, 9, cols, Dtype::kFloat32, run))
            << b.name << " of rows of " << cols;
      };
      both(programs()[4], programs()[5]);
      both(elsewhere, programs()[6]);
    }
  }
}

TEST_F(RowsTest, ColumnsOfEveryDtypeHaveTheBitsOfRows) {
  for (const Dtype dtype :
       {Dtype::kUInt8, Dtype::kInt64, Dtype::kFloat16, Dtype::kBFloat16, Dtype::kFloat64}) {
    std::vector<Program> list = {{"sum", {Reduction::sum}}, {"amax", {Reduction::amax}}};
    if (is_floating(dtype)) list.push_back({"softmax in place", {Reduction::var}, true, true});
    if (!is_floating(dtype)) list.push_back({"any", {Reduction::any, Reduction::amin}});
    for (const int64_t cols : {16, 129, 9000}) {
      for (const Program& program : list) {
        ASSERT_EQ(results(program, Layout::kColumns, 70, cols, dtype, run),
                  results(program, Layout::kRows, 70, cols, dtype, run))
            << program.name << " of rows of " << cols << " " << dtype_name(dtype);
      }
    }
  }
}

// The order of additions in src/gpu/rows/rows.h, as a loop: partial result l has every lanes-th
// element from l on; then l and l + half are added, for half of lanes / 2, lanes / 4 and so on
// to 1.
float sum_in_order(const float* x, int64_t n, int64_t lanes) {
  std::vector<float> parts(static_cast<size_t>(lanes), 0.0f);
  for (int64_t i = 0; i < n; ++i) parts[static_cast<size_t>(i % lanes)] += x[i];
  for (size_t half = parts.size() / 2; half > 0; half /= 2) {
    for (size_t k = 0; k < half; ++k) parts[k] += parts[k + half];
  }
  return parts[0];
}

// A long row: the sums of its pieces are added in the same order.
float sum_of_row(const float* x, int64_t n) {
  if (n <= 8192) return sum_in_order(x, n, n <= 16 ? 1 : n <= 128 ? 8 : n <= 2048 ? 64 : 256);
  constexpr int64_t kPiece = 4096;
  std::vector<float> pieces;
  for (int64_t i = 0; i < n; i += kPiece) {
    pieces.push_back(sum_in_order(x + i, std::min(kPiece, n - i), 256));
  }
  return sum_in_order(pieces.data(), static_cast<int64_t>(pieces.size()), 256);
}

TEST_F(RowsTest, PartialResultsComeTogetherInOneOrder) {
  size_t unlike = 0;  // an order from the first to the last
  for (const int64_t cols : kLengths) {
    for (const int64_t rows : {1, 40}) {
      const std::vector<char> bytes = numbers(Dtype::kFloat32, rows * cols);
      const auto* const x = reinterpret_cast<const float*>(bytes.data());
      for (const Layout layout : {Layout::kRows, Layout::kColumns}) {
        const auto found = results(programs()[0], layout, rows, cols, Dtype::kFloat32, run).front();
        for (int64_t row = 0; row < rows; ++row) {
          float sum;
          std::memcpy(&sum, found.data() + row * 4, 4);
          ASSERT_EQ(sum, sum_of_row(x + row * cols, cols)) << rows << " rows of " << cols;
          unlike += sum != sum_in_order(x + row * cols, cols, 1);
        }
      }
    }
  }
  EXPECT_GT(unlike, 500u);
}

// A device whose groups may have fewer items has the same bits: its groups have fewer rows.
TEST_F(RowsTest, SmallerGroupsAreLaidOutOtherwise) {
  const auto items = [](size_t most, int64_t rows, int64_t cols, Dtype dtype) {
    const Matrix matrix(Layout::kColumns, rows, cols, dtype);
    Builder builder(matrix.shape, true);
    const Ref x = builder.access(0, dtype, matrix.strides);
    builder.fold(Reduction::sum, x, builder.access(1, dtype, builder.rows(), Rank::kRow));
    const gpu::Traits traits = {.has_double = true, .group_items = most};
    const auto texts = gpu::kernel_texts(builder.kernel, traits, gpu::native_ops(traits));
    return std::pair(texts.at(0).group_items, texts.at(0).groups);
  };
  using Pair = std::pair<size_t, size_t>;
  EXPECT_EQ(items(1024, 4096, 4096, Dtype::kFloat32), Pair(512, 256));
  EXPECT_EQ(items(256, 4096, 4096, Dtype::kFloat32), Pair(256, 512));
  EXPECT_EQ(items(1024, 4096, 4096, Dtype::kBFloat16), Pair(512, 256));
  EXPECT_EQ(items(1024, 4096, 1000, Dtype::kFloat32), Pair(256, 256));
  EXPECT_EQ(items(1024, 64, 20000, Dtype::kFloat32), Pair(512, 8 * 5));
  // No more rows than there are.
  EXPECT_EQ(items(1024, 3, 100, Dtype::kFloat32), Pair(32, 1));
}

}  // namespace
}  // namespace hologram::opencl
