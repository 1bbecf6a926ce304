// SPDX-License-Identifier: MIT
// Reads the structs of calls from the words of a tape, and what kernels take beside them: how many
// threads there are.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "hologram/call.h"
#include "hologram/call_fields.h"
#include "hologram/view.h"

namespace hologram {

// How many threads a kernel may take.
class CallThreads {
 public:
  // Work on so few elements stays on one thread.
  static constexpr int64_t kSmall = 16384;

  explicit CallThreads(int most) : most_(most) {}
  int most() const { return most_; }
  // For work on n elements, as the library's functions count them.
  int operator()(int64_t n) const { return n <= kSmall ? 1 : most_; }

 private:
  int most_;
};

// What a kernel's struct is read from, and where its sizes, strides and lists live while it runs.
class CallFrame {
 public:
  explicit CallFrame(const CallArguments& arguments)
      : operands_(arguments.operands),
        words_(arguments.attributes),
        numbers_(arguments.numbers),
        max_threads_(arguments.max_threads) {}
  CallFrame(const CallFrame&) = delete;
  CallFrame& operator=(const CallFrame&) = delete;

  // The next operand, which was given as a view. data is null where it is absent. Sizes and strides
  // live as long as the call runs.
  calls::CallView view() {
    const uint64_t head = *words_++;
    const int ndim = view_ndim(head);
    const Dtype dtype = view_dtype(head);
    const auto* shape = reinterpret_cast<const int64_t*>(words_);
    words_ += view_words(head);
    char* data = memory();
    const int64_t* strides = shape + ndim;
    if (view_is_row_major(head)) {
      strides = row_major_strides(ndim, shape);
    } else if (data != nullptr) {
      data += first_of(ndim, shape, strides) * static_cast<int64_t>(itemsize(dtype));
    }
    calls::CallView view;
    static_cast<View&>(view) = {data, dtype, ndim, shape, strides};
    view.is_given = head != 0;
    return view;
  }
  // The first byte of the next operand, or null.
  char* memory() { return operands_ == nullptr ? nullptr : *operands_++; }
  template <class T = double>
  T number() {
    static_assert(sizeof(T) == 8);
    return numbers_ == nullptr ? T{} : std::bit_cast<T>(*numbers_++);
  }
  // A number that is given, or lies in memory: see Stored.
  double scalar() {
    const auto stored = static_cast<Stored>(*words_++);
    if (stored == Stored::number) return number();
    const char* const at = memory();
    if (at == nullptr) return 0;
    return stored == Stored::float32 ? *reinterpret_cast<const float*>(at)
                                     : *reinterpret_cast<const double*>(at);
  }

  // The struct of a call; what it borrows lives as long as this.
  template <class Call>
  Call call() {
    Call call{};
    Call::each(call, *this);
    return call;
  }
  template <Access kAccess>
  void operator()(calls::Operand<calls::CallView, kAccess>& operand) {
    static_cast<calls::CallView&>(operand) = view();
  }
  template <Access kAccess>
  void operator()(calls::List<calls::CallView, kAccess>& list) {
    list = read_list<calls::Operand<calls::CallView, kAccess>>();
  }
  void operator()(calls::ScalarList<calls::CallView>& list) {
    list = read_list<calls::Scalar<calls::CallView>>();
  }
  void operator()(calls::Scalar<calls::CallView>& scalar) { scalar.value = this->scalar(); }
  void operator()(int64_t& value) { value = static_cast<int64_t>(*words_++); }
  void operator()(bool& value) { value = *words_++ != 0; }
  void operator()(double& value) { value = number(); }
  void operator()(uint64_t& value) { value = number<uint64_t>(); }
  void operator()(calls::Ints& values) {
    const uint64_t count = *words_++;
    values = {reinterpret_cast<const int64_t*>(words_), count};
    words_ += count;
  }

  // Threads that work on n elements may take, as the library's functions count them.
  CallThreads threads() const { return CallThreads(max_threads_); }

 private:
  // Where the first element lies behind the lowest one: not 0 where strides are negative.
  static int64_t first_of(int ndim, const int64_t* shape, const int64_t* strides) {
    int64_t first = 0;
    for (int d = 0; d < ndim; ++d) {
      if (strides[d] < 0) first -= (shape[d] - 1) * strides[d];
    }
    return first;
  }

  const int64_t* row_major_strides(int ndim, const int64_t* shape) {
    if (ndim > left_) {
      left_ = std::max(kRoom, ndim);
      more_.push_back(std::make_unique_for_overwrite<int64_t[]>(static_cast<size_t>(left_)));
      room_ = more_.back().get();
    }
    int64_t* const strides = room_;
    room_ += ndim, left_ -= ndim;
    int64_t step = 1;
    for (int d = ndim - 1; d >= 0; --d) {
      strides[d] = step;
      if (shape[d] > 1) step *= shape[d];
    }
    return strides;
  }

  template <class T>
  std::span<const T> read_list() {
    const auto count = static_cast<size_t>(*words_++);
    auto list = std::make_shared<T[]>(count);
    for (size_t i = 0; i < count; ++i) (*this)(list[i]);
    const std::span<const T> span(list.get(), count);
    lists_.push_back(std::move(list));
    return span;
  }

  char* const* operands_;
  const uint64_t* words_;
  const uint64_t* numbers_;
  int max_threads_;

  // Strides of row-major views.
  static constexpr int kFirstRoom = 48, kRoom = 512;
  int left_ = kFirstRoom;
  int64_t first_room_[kFirstRoom];
  int64_t* room_ = first_room_;
  std::vector<std::unique_ptr<int64_t[]>> more_;
  std::vector<std::shared_ptr<void>> lists_;
};

// Values as the last of N, `fill` before them.
template <size_t N>
std::array<int64_t, N> last_of(calls::Ints values, int64_t fill) {
  std::array<int64_t, N> result;
  result.fill(fill);
  std::copy(values.begin(), values.end(), result.end() - static_cast<int64_t>(values.size()));
  return result;
}

}  // namespace hologram
