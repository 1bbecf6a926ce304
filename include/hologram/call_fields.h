// SPDX-License-Identifier: MIT
// What the structs of calls (call_structs.h) are made of, and the walks between them and the words
// of a tape. A front end fills a struct with its own tensors and a CallEncoder writes its words; a
// kernel gets the struct with views, which a CallFrame (call_frame.h) reads from the words.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "hologram/call.h"
#include "hologram/loss.h"
#include "hologram/view.h"

namespace hologram {

// What a call does to the memory of an operand.
enum class Access : uint8_t {
  reads,
  writes,   // every element, whatever it was
  updates,  // what is written depends on what was there, or not all of it is written
};

// Where a scalar parameter is: among the numbers, or in memory of one element.
enum class Stored : uint8_t { number, float32, float64 };

namespace calls {

// A kernel's operand, made of a view or, where there is none, null. Without data it was not given,
// or has no elements.
struct CallView : View {
  bool is_given = false;

  template <Access>
  static CallView of(const View& view) {
    return {view, true};
  }
  template <Access>
  static CallView of(const View* view) {
    return view != nullptr ? CallView{*view, true} : CallView{};
  }

  bool has_data() const { return data != nullptr; }
  int64_t count() const { return is_given ? numel() : 0; }
  int64_t extent(int dim) const { return is_given && dim < ndim ? shape[dim] : 1; }
  int dims() const { return is_given ? ndim : 0; }
  size_t item() const { return itemsize(dtype); }
};

// An operand of a struct. T is CallView, or a front end's tensor: T::of<kAccess>(x) makes one of
// what the front end names, and refuses to compile where a result is to be an input's x.
template <class T, Access kAccess>
struct Operand : T {
  Operand() = default;
  template <class X>
  requires requires(X&& x) { T::template of<kAccess>(static_cast<X&&>(x)); }
  Operand(X&& x) : T(T::template of<kAccess>(static_cast<X&&>(x))) {}  // NOLINT
};
template <class T>
using In = Operand<T, Access::reads>;
template <class T>
using Out = Operand<T, Access::writes>;
template <class T>
using InOut = Operand<T, Access::updates>;

template <class T, Access kAccess>
using List = std::span<const Operand<T, kAccess>>;
template <class T>
using InList = List<T, Access::reads>;
template <class T>
using InOutList = List<T, Access::updates>;

using Ints = std::span<const int64_t>;

// A number that is given, or lies in memory: then a kernel gets what is there as it runs.
template <class T>
struct Scalar {
  double value = 0;
  Stored stored = Stored::number;
  In<T> memory = {};

  Scalar() = default;
  Scalar(double number) : value(number) {}  // NOLINT
  Scalar(Stored where, const In<T>& tensor) : stored(where), memory(tensor) {}
};
template <class T>
using ScalarList = std::span<const Scalar<T>>;

// First in every struct, so that its fields can be given by name only.
struct ByName {
  explicit constexpr ByName() = default;
};

// --- For the costs of calls ---------------------------------------------------------------------

template <class T>
double numel(const T& operand) {
  return static_cast<double>(operand.count());
}
template <class T, Access kAccess>
double numel(List<T, kAccess> list) {
  double n = 0;
  for (const auto& operand : list) n += numel(operand);
  return n;
}
template <class T>
double nbytes(const T& operand) {
  return numel(operand) * static_cast<double>(operand.item());
}
// 1 where there is no such dimension; negative ones count from the end.
template <class T>
double size(const T& operand, int dim) {
  const int d = dim < 0 ? dim + operand.dims() : dim;
  return d < 0 ? 1.0 : static_cast<double>(operand.extent(d));
}
inline double product_of(Ints values) {
  double product = 1;
  for (const int64_t value : values) product *= static_cast<double>(value);
  return product;
}
inline bool is_logarithmic(int64_t loss) {
  const auto which = static_cast<PointLoss>(loss);
  return which == PointLoss::bce || which == PointLoss::bce_with_logits;
}

}  // namespace calls

// --- Views as words -----------------------------------------------------------------------------

// The words of a view: the head below, its sizes, and its strides unless it is row-major. 0: no
// operand.
constexpr uint64_t view_head(Dtype dtype, size_t ndim, bool row_major) {
  return static_cast<uint64_t>(dtype) | uint64_t{row_major} << 8 | static_cast<uint64_t>(ndim) << 9;
}
constexpr Dtype view_dtype(uint64_t head) { return static_cast<Dtype>(head & 0xff); }
constexpr bool view_is_row_major(uint64_t head) { return (head >> 8 & 1) != 0; }
constexpr int view_ndim(uint64_t head) { return static_cast<int>(head >> 9); }
// Behind the head.
constexpr int view_words(uint64_t head) {
  return view_is_row_major(head) ? view_ndim(head) : 2 * view_ndim(head);
}

// Writes a call's fields in the order of its struct's each(): Derived's operand(tensor) adds the
// words of a view and an operand, memory(tensor) an operand alone.
template <class Derived, class Words, class Numbers>
class CallEncoder {
 public:
  template <class T, Access kAccess>
  void operator()(const calls::Operand<T, kAccess>& operand) {
    self().operand(operand);
  }
  template <class T, Access kAccess>
  void operator()(std::span<const calls::Operand<T, kAccess>> list) {
    word(list.size());
    for (const auto& operand : list) self().operand(operand);
  }
  void operator()(int64_t value) { word(static_cast<uint64_t>(value)); }
  void operator()(bool value) { word(value ? 1 : 0); }
  void operator()(calls::Ints values) {
    word(values.size());
    for (const int64_t value : values) word(static_cast<uint64_t>(value));
  }
  void operator()(double value) { numbers_.push_back(std::bit_cast<uint64_t>(value)); }
  void operator()(uint64_t value) { numbers_.push_back(value); }
  template <class T>
  void operator()(const calls::Scalar<T>& scalar) {
    word(static_cast<uint64_t>(scalar.stored));
    if (scalar.stored == Stored::number) {
      (*this)(scalar.value);
    } else {
      self().memory(scalar.memory);
    }
  }
  template <class T>
  void operator()(std::span<const calls::Scalar<T>> list) {
    word(list.size());
    for (const auto& scalar : list) (*this)(scalar);
  }

 protected:
  void word(uint64_t word) { words_.push_back(word); }

  Words words_;
  Numbers numbers_;

 private:
  Derived& self() { return static_cast<Derived&>(*this); }
};

}  // namespace hologram
