// SPDX-License-Identifier: MIT
// Ops on tensors: what NumPy and PyTorch call functions of arrays, deferred and fused.
//
// Every function checks its operands at the call, makes its result (memory of its own, row-major,
// unless it says otherwise) and records the work; it runs when its results are read: bytes
// are valid after read() or materialize(tensor). With set_deferring(false) it runs before the
// function returns. All work on a device is in the order of the calls, whatever thread they come
// from. Operands may have any strides, may overlap each other and may be without elements.
//
// Errors are those of PyTorch in kind: kInvalidArgument for shapes, kIndex for dimensions and
// positions, kTypeMismatch for dtypes that the op does not take, kOutOfMemory. A call that throws
// has changed nothing.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "hologram/api.h"
#include "hologram/device.h"
#include "hologram/loss.h"
#include "hologram/op.h"
#include "hologram/recorder.h"
#include "hologram/reduction.h"
#include "hologram/tensor.h"

namespace hologram {

// Which rules settle the dtype of a result.
//
// Of both: a number has no width of its own. Beside tensors it counts only where its kind (bool,
// integer, floating) is above theirs.
enum class Rules : uint8_t {
  // promote(); integers beside a floating number, or in a function of floats, are float32.
  torch = 0,
  // numpy.result_type(): int32 with float32 gives float64; a function of floats makes float16 of
  // 8-bit integers and bool, float32 of int16, float64 of the others, and div float64 of all.
  // bfloat16, which NumPy does not have, stays what it is beside integers.
  numpy = 1,
};

// What an op takes: a tensor (borrowed until the call returns) or a number.
class Operand {
 public:
  Operand(const Tensor& tensor) : tensor_(&tensor), number_(0.0) {}  // NOLINT
  Operand(double value) : number_(value) {}                          // NOLINT
  Operand(float value) : number_(static_cast<double>(value)) {}      // NOLINT
  Operand(int64_t value) : number_(value) {}                         // NOLINT
  Operand(int value) : number_(value) {}                             // NOLINT
  Operand(bool value) : number_(value) {}                            // NOLINT
  explicit Operand(const Scalar& number) : number_(number) {}

  bool is_tensor() const { return tensor_ != nullptr; }
  const Tensor& tensor() const { return *tensor_; }
  const Scalar& number() const { return number_; }

 private:
  const Tensor* tensor_ = nullptr;
  Scalar number_;
};

// --- Elementwise -------------------------------------------------------------------------------

struct ElementwiseTypes {
  Dtype compute;  // what the row computes in; the half types stand for float32 here
  Dtype result;
};
// The condition of `where` does not take part. bool is logical in add (or) and mul (and); integers
// have powers of their own. A number that an integer dtype does not hold: compared in int64, else
// wrapped by torch's rules and refused by NumPy's. kTypeMismatch where the row has no meaning: sub
// and neg of bool, bits of floats.
HOLOGRAM_API ElementwiseTypes elementwise_types(OpId op, std::span<const Operand> operands,
                                                Rules rules = Rules::torch);

// A row of the op table on operands that broadcast by NumPy's rule; at least one is a tensor, all
// tensors are on one device.
HOLOGRAM_API Tensor apply(OpId op, std::span<const Operand> operands, Rules rules = Rules::torch);
// Into `out`, which has the broadcast shape (or is larger, as NumPy allows), any strides without
// overlap, and a dtype that the result converts to without changing kind (kTypeMismatch).
// Operands that overlap out without being the very same elements are copied first.
HOLOGRAM_API void apply_into(OpId op, std::span<const Operand> operands, const Tensor& out,
                             Rules rules = Rules::torch);
inline Tensor apply(OpId op, std::initializer_list<Operand> operands) {
  return apply(op, std::span<const Operand>(operands.begin(), operands.size()));
}
inline void apply_into(OpId op, std::initializer_list<Operand> operands, const Tensor& out) {
  apply_into(op, std::span<const Operand>(operands.begin(), operands.size()), out);
}

// add(x, y), exp(x), clamp(x, low, high), ...: one function for every row, as ops() describes it.
#define HOLOGRAM_TAKES_1 const Operand& x
#define HOLOGRAM_TAKES_2 HOLOGRAM_TAKES_1, const Operand& y
#define HOLOGRAM_TAKES_3 HOLOGRAM_TAKES_2, const Operand& z
#define HOLOGRAM_TAKES_4 HOLOGRAM_TAKES_3, const Operand& w
#define HOLOGRAM_GIVES_1 x
#define HOLOGRAM_GIVES_2 x, y
#define HOLOGRAM_GIVES_3 x, y, z
#define HOLOGRAM_GIVES_4 x, y, z, w
#define HOLOGRAM_OP(name, id, arity, ...) \
  inline Tensor name(HOLOGRAM_TAKES_##arity) { return apply(OpId::name, {HOLOGRAM_GIVES_##arity}); }
#include "hologram/elementwise.def"
#undef HOLOGRAM_TAKES_1
#undef HOLOGRAM_TAKES_2
#undef HOLOGRAM_TAKES_3
#undef HOLOGRAM_TAKES_4
#undef HOLOGRAM_GIVES_1
#undef HOLOGRAM_GIVES_2
#undef HOLOGRAM_GIVES_3
#undef HOLOGRAM_GIVES_4

// The complex conjugate; a real tensor itself.
HOLOGRAM_API Tensor conj(const Tensor& x);

// out = op(x, y) of one element each, all of one dtype, at this call and with the kernel that the
// op runs on tensors; y is null where the op has one operand. `out` has 16 bytes. The result's
// dtype, or empty, with nothing computed, where an op on tensors would convert or promote, do more
// than one row, or be recorded whatever its size (immediate_bytes()).
HOLOGRAM_API std::optional<Dtype> apply_to_elements(OpId op, Dtype dtype, const void* x,
                                                    const void* y, void* out,
                                                    Rules rules = Rules::torch);
// The same for integers; of powers those with an exponent that is not negative.
HOLOGRAM_API bool apply_to_elements(IntegerOp op, Dtype dtype, const void* x, const void* y,
                                    void* out);

// Of integers and bool, which wrap; the table's rows of these names compute floats. floor_divide
// rounds down and remainder has the divisor's sign, as Python's // and % (by zero: 0).
HOLOGRAM_API Tensor integer_arithmetic(IntegerOp op, const Operand& x, const Operand& y,
                                       Rules rules = Rules::torch);

// Whether the integer dtype holds the value. A number is signed; what only uint64 holds is a tensor
// of one element or, where it is not compared, a negative number of the same bits.
HOLOGRAM_API bool fits(int64_t value, Dtype dtype);

// --- Making, copying and reading ----------------------------------------------------------------

// Contents undefined; no memory before something is written.
HOLOGRAM_API Tensor empty(Shape shape, Dtype dtype, Device& device);
HOLOGRAM_API Tensor full(Shape shape, const Scalar& value, Dtype dtype, Device& device);
// A copy of host memory, which may be reused when the call returns.
HOLOGRAM_API Tensor from_host(const View& host, Device& device);

// dst = src, broadcast and converted; they may overlap. Complex converts to complex only.
HOLOGRAM_API void copy_into(const Tensor& src, const Tensor& dst);
HOLOGRAM_API void fill_into(const Scalar& value, const Tensor& dst);
// Itself where it is row-major, respectively of that dtype already; else a row-major copy.
HOLOGRAM_API Tensor contiguous(const Tensor& tensor);
HOLOGRAM_API Tensor cast(const Tensor& tensor, Dtype dtype);
// A view where there is one, else a copy.
HOLOGRAM_API Tensor reshaped(const Tensor& tensor, Shape shape);

// Waits until the tensor's bytes are valid and nothing recorded touches them.
HOLOGRAM_API void materialize(const Tensor& tensor);
// Waits for what writes the tensor, then copies it to host memory of its shape; any dtype but
// complex to real.
HOLOGRAM_API void read(const Tensor& tensor, const View& host);
// The value of a tensor of one element, as float64 / int64 / bool; of uint64 its bits.
HOLOGRAM_API Scalar item(const Tensor& tensor);

// Joins along an existing dimension; the dtypes are promoted, other sizes equal.
HOLOGRAM_API Tensor cat(std::span<const Tensor> tensors, int dim, Rules rules = Rules::torch);

// --- Indexing -----------------------------------------------------------------------------------

// A tensor in the key of x[...]. Integers of any dtype are positions in dimension `dim` of x,
// negative ones from the end. bool is a mask of the dimensions from `dim` on, as many as it has and
// of their sizes: it stands for the positions of its true elements.
struct DimIndex {
  int dim;
  Tensor index;
  int axis = -1;  // what errors call the dimension, where that is not its number

  DimIndex(int dim, Tensor index, int axis = -1) : dim(dim), index(std::move(index)), axis(axis) {}
};
// A copy of what NumPy's x[...] names. The indices are in the order of their dimensions and
// broadcast together; the dimensions of their common shape come before dimension `place` of those
// that no index covers. Indices are read at the call, as bounds (kIndex) and counts depend on them.
HOLOGRAM_API Tensor index(const Tensor& x, std::span<const DimIndex> indices, int place);
// x[...] = value, which broadcasts and is converted as in copy_into(). The last of several values
// for one place stays. Nothing is written where a position is out of bounds.
HOLOGRAM_API void index_put(const Tensor& x, std::span<const DimIndex> indices, int place,
                            const Operand& value);
// The positions of the elements that are not 0, for each dimension; int64, in host memory.
HOLOGRAM_API std::vector<Tensor> nonzero(const Tensor& x);

// --- Reductions ---------------------------------------------------------------------------------

struct ReduceSpec {
  std::span<const int> dims = {};  // empty: all
  bool keepdim = false;            // leave reduced dimensions with size 1
  // Of the result. By default: int64 for sum and prod of integers and bool, uint64 for those of
  // uint16, uint32, uint64 and, by NumPy's rules, uint8; the input's else;
  // mean, var, ... of integers: kTypeMismatch by torch's rules, float64 by NumPy's.
  std::optional<Dtype> dtype = std::nullopt;
  double p = 2;           // norm
  double correction = 1;  // var, std: n - correction divides
  Rules rules = Rules::torch;
};
HOLOGRAM_API Tensor reduce(Reduction op, const Tensor& in, const ReduceSpec& spec = {});
// `out` has the shape that reduce() would give; its dtype is the result's (spec.dtype is not read).
HOLOGRAM_API void reduce_into(Reduction op, const Tensor& in, const Tensor& out,
                              const ReduceSpec& spec = {});
// Integers and bool add up as in sum.
HOLOGRAM_API Tensor cumsum(const Tensor& in, int dim, Rules rules = Rules::torch);

// --- Rows ---------------------------------------------------------------------------------------

HOLOGRAM_API Tensor softmax(const Tensor& in, int dim);
HOLOGRAM_API Tensor log_softmax(const Tensor& in, int dim);
HOLOGRAM_API void softmax_into(const Tensor& in, int dim, const Tensor& out);
HOLOGRAM_API void log_softmax_into(const Tensor& in, int dim, const Tensor& out);

// --- Products -----------------------------------------------------------------------------------

// NumPy's and PyTorch's matmul; dtypes are promoted. Complex numbers: a product for each part of a,
// in which the rows of b are pairs of real numbers.
HOLOGRAM_API Tensor matmul(const Tensor& a, const Tensor& b, Rules rules = Rules::torch);
// The same product of two vectors of one real dtype, into one element of that dtype. False, with
// nothing written, where they are too large for that (immediate_bytes()), their values are not
// there, or it is another case.
HOLOGRAM_API bool dot_at_call(const Tensor& a, const Tensor& b, void* product);
// Of one dtype, any strides; out does not overlap a and b.
HOLOGRAM_API void matmul_into(const Tensor& a, const Tensor& b, const Tensor& out);
// x w^T + bias: x [..., in], w [out, in], bias [out] or null.
HOLOGRAM_API Tensor linear(const Tensor& x, const Tensor& weight, const Tensor* bias = nullptr);

// --- Losses -------------------------------------------------------------------------------------

// Of one shape.
HOLOGRAM_API Tensor point_loss(PointLoss loss, const Tensor& input, const Tensor& target,
                               const PointLossOptions& options = {});
// logits [n, classes, ...] or [classes]; target: class indices [n, ...], int64. kNotSupported for
// options.weight.
HOLOGRAM_API Tensor cross_entropy(const Tensor& logits, const Tensor& target,
                                  const ClassLossOptions& options = {});

}  // namespace hologram
