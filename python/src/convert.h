// SPDX-License-Identifier: MIT
// Tensors from Python objects and Python objects from tensors.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <span>

#include "hologram/functions.h"
#include "objects.h"

namespace hologram::python {

// The device of tensors that are made without another tensor.
Device& default_device();

// When a tensor shares the memory of an array. Ops on shared memory run at their calls, unless the
// memory is constant.
enum class Sharing : uint8_t {
  kOperand,   // for as long as a call takes: a small array is copied, which costs less
  kView,      // where that can be, as a view of NumPy's would
  kReadOnly,  // where the array is read-only
  kAlways,    // or ValueError
  kNever,
  kTakeOver,  // the array is a temporary, whose memory becomes the tensor's own
};
// A Tensor of what NumPy would make an array of: tensors, buffers, numbers, nested lists of
// numbers, what has the buffer protocol, DLPack or __array__.
TensorObject make_tensor(nb::handle object, std::optional<Dtype> dtype = std::nullopt,
                         Sharing sharing = Sharing::kOperand);
// The same, but returns false for objects that are no arrays and hold none.
bool try_make_tensor(nb::handle object, TensorObject& result);

// True for objects that say they are arrays.
bool is_like_array(PyObject* object);

// A copy with memory of its own, row-major.
Tensor copy_of(const Tensor& tensor);
// The value of an integer tensor without dimensions, where it is known without running anything and
// int64 holds it.
std::optional<int64_t> integer_at_hand(const Tensor& tensor);
std::optional<int64_t> integer_at_hand(const TensorObject& object);
// tensor.item(): ValueError unless it has one element. what: what Python asked, for traces of what
// runs for it.
nb::object item_object(const Tensor& tensor, const char* what = "item()");
nb::object item_object(const TensorObject& object, const char* what = "item()");
// Reads an integer of this dtype; of uint64 it returns the bits.
int64_t integer_of(Dtype dtype, const void* bytes);
// Python's number for an element.
nb::object item_object(Dtype dtype, const void* bytes);
nb::object to_list(const Tensor& tensor);
// Row-major bytes.
nb::bytes to_byte_string(const Tensor& tensor);

// A Python number, which has a kind but no width: NumPy's weak scalars. False for other objects;
// np.float64, though a float, is one of those.
struct WeakNumber {
  Scalar value{0.0};
  bool is_big = false;     // an int beyond int64, of which value is the nearest float
  bool is_uint64 = false;  // one of those that uint64 holds
  int64_t bits = 0;        // its bits

  // NumPy's for the number by itself.
  Dtype natural_dtype() const { return is_uint64 ? Dtype::kUInt64 : value.dtype; }
  // What fills a tensor of that dtype.
  Scalar value_in(Dtype dtype) const {
    return is_uint64 && dtype == Dtype::kUInt64 ? Scalar(bits) : value;
  }
};
bool parse_weak(PyObject* object, WeakNumber& number);
void check_fits(const WeakNumber& number, Dtype dtype);

// One operand of an op, made of whatever Python passes.
class Argument {
 public:
  Argument() = default;
  Argument(const Argument&) = delete;
  Argument& operator=(const Argument&) = delete;

  // False for objects that arithmetic leaves to the other operand.
  bool parse(PyObject* object) {
    if (const TensorObject* held = tensor_of(object)) {
      tensor_ = &held->tensor();
      return true;
    }
    if (parse_weak(object, weak_)) return true;
    return parse_slowly(object);
  }
  // Does what parse() does, but makes a number of a scalar, ours or NumPy's, whose width makes no
  // difference beside the other operand, a tensor.
  bool parse_beside(PyObject* object, PyObject* other);
  // TypeError for those.
  void require(PyObject* object, const char* function);

  bool is_tensor() const { return tensor_ != nullptr; }
  const Tensor& tensor() const { return *tensor_; }
  const WeakNumber& number() const { return weak_; }
  bool is_int() const { return !is_tensor() && weak_.value.dtype == Dtype::kInt64; }
  bool is_big() const { return !is_tensor() && weak_.is_big; }
  // A number becomes a tensor of no dimensions, of the dtype that NumPy gives it.
  void make_strong();
  // Makes a number what it counts as beside a tensor of `dtype`, as NumPy does: rounded to the half
  // types, complex64 where that suffices. Ints out of range are an OverflowError in arithmetic of
  // integers, and infinite in comparisons, where the exact number would say no more.
  enum class Use : uint8_t { kArithmetic, kComparison, kFunctionOfFloats };
  void adapt_to(Dtype dtype, Use use);
  static Use use_of(OpId op);
  // Whether adapt_to() may have something to do.
  bool adapts() const { return tensor_ == nullptr || is_weak_complex_; }

  Operand operand() const {
    if (tensor_ != nullptr) return Operand(*tensor_);
    switch (weak_.value.dtype) {
      case Dtype::kBool:
        return Operand(weak_.value.b != 0);
      case Dtype::kInt64:
        return Operand(weak_.value.i64);
      default:
        return Operand(weak_.value.f64);
    }
  }

 private:
  bool parse_slowly(PyObject* object);

  const Tensor* tensor_ = nullptr;
  WeakNumber weak_;
  bool is_weak_complex_ = false;  // a Python complex, in owned_
  std::optional<Tensor> owned_;
};

// Whether a result does not go into a tensor that is there, as its kind would become a lower one:
// of bool, unsigned, signed, floating, complex.
bool changes_kind(Dtype result, Dtype out);
// TypeError in terms of `name` where it does not.
void check_same_kind(Dtype result, Dtype out, const char* name);

// Lets other threads run during ops that may take long.
inline bool is_long(const Tensor& tensor) { return tensor.numel() >= kUnlockElements; }

}  // namespace hologram::python
