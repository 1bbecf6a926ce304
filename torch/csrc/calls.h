// SPDX-License-Identifier: MIT
// Calls: ops that run as one piece of code over whole tensors, at once or when their circuit runs.
//
// An op tells a Call what it touches and what decides its work, piece by piece; its function takes
// the pieces from a CallFrame in the same order. There is one function for both ways: recorded, it
// runs when the circuit does, on addresses bound then; where recording is not possible (execution
// is eager, memory of others, addresses handed out) it runs before run() returns.
//
// The function depends on nothing but its frame. It runs on any thread and without the GIL, so what
// it could refuse has to be refused before.
#pragma once

#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "hologram/error.h"
#include "native_common.h"
#include "record.h"

namespace hologram_torch {

// What a call does to the memory of an operand.
enum class Access : uint8_t {
  reads,
  writes,   // every element, whatever it was
  updates,  // what is written depends on what was there, or not all of it is written
};

// Words that say how a T's bytes are; a T without padding, so that equal values have equal words.
template <class T>
inline constexpr size_t kWordsOf = (sizeof(T) + 7) / 8;
template <class T>
inline constexpr bool kIsWordy =
    std::is_trivially_copyable_v<T>&& std::has_unique_object_representations_v<T>;

// What a call's function sees.
class CallFrame {
 public:
  explicit CallFrame(const hologram::CallArguments& arguments)
      : operands_(arguments.operands),
        words_(arguments.attributes),
        numbers_(arguments.numbers),
        max_threads_(arguments.max_threads) {}

  // The next operand, which was given as a view. data is null where it is absent. Sizes and strides
  // live as long as the call runs.
  hologram::View view() {
    const uint64_t head = *words_++;
    const auto ndim = static_cast<int>(head >> 8);
    const auto* shape = reinterpret_cast<const int64_t*>(words_);
    words_ += 2 * ndim;
    return {*operands_++, static_cast<hologram::Dtype>(head & 0xff), ndim, shape, shape + ndim};
  }
  // The next operand, which was given as memory: its first element, or null.
  template <class T = char>
  T* memory() {
    return reinterpret_cast<T*>(*operands_++);
  }
  template <class T>
  T value() {
    static_assert(kIsWordy<T>);
    T result;
    std::memcpy(static_cast<void*>(&result), words_, sizeof(T));
    words_ += kWordsOf<T>;
    return result;
  }
  template <class T = double>
  T number() {
    static_assert(sizeof(T) == 8);
    return std::bit_cast<T>(*numbers_++);
  }
  // Threads that work on n elements may take, as the library's functions count them.
  int threads(int64_t n) const { return n <= kSmall ? 1 : max_threads_; }

 private:
  char* const* operands_;
  const uint64_t* words_;
  const uint64_t* numbers_;
  int max_threads_;
};

// For the library's optional operands.
inline const hologram::View* if_given(const hologram::View& view) {
  return view.data != nullptr ? &view : nullptr;
}

// One call being made. Tensors are borrowed until run() returns.
class Call {
 public:
  Call() : deferring_(is_deferring()) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // An operand with its dtype (which has a code), sizes and strides; undefined: absent.
  void view(const at::Tensor& t, Access access) {
    if (!t.defined()) return absent_view();
    const c10::IntArrayRef sizes = t.sizes(), strides = t.strides();
    words_.push_back(static_cast<uint64_t>(dtype_code(t.scalar_type())) | sizes.size() << 8);
    words_.append(sizes.begin(), sizes.end());
    words_.append(strides.begin(), strides.end());
    memory(t, access);
  }
  void view(const std::optional<at::Tensor>& t, Access access) {
    t.has_value() ? view(*t, access) : absent_view();
  }

  // An operand of which the function knows what it needs to from values; undefined: absent.
  void memory(const at::Tensor& t, Access access) {
    const c10::TensorImpl* impl = t.defined() ? t.unsafeGetTensorImpl() : nullptr;
    operands_.push_back({const_cast<c10::TensorImpl*>(impl), access});
    if (deferring_ && impl != nullptr && impl->numel() != 0 && recordable_buffer(impl) == nullptr) {
      deferring_ = false;
    }
  }
  void memory(const std::optional<at::Tensor>& t, Access access) {
    t.has_value() ? memory(*t, access) : operands_.push_back({nullptr, access});
  }

  // What decides which work is done: equal values, operands of equal layout, one plan.
  template <class T>
  void value(const T& value) {
    static_assert(kIsWordy<T>);
    std::array<uint64_t, kWordsOf<T>> words{};
    std::memcpy(words.data(), &value, sizeof(T));
    words_.append(words.begin(), words.end());
  }
  // What may differ from one call to the next: a learning rate, a place in a random stream.
  template <class T>
  void number(T value) {
    static_assert(sizeof(T) == 8);
    numbers_.push_back(std::bit_cast<uint64_t>(value));
  }

  // Whether run() is going to record. What the function refuses by an error must then be refused
  // before; see also run_or_refuse().
  bool records() const { return deferring_; }

  // cost: rough nanoseconds on one thread.
  template <Name kName, auto* kFunction>
  void run(double cost) {
    static const uint16_t kind = hologram::register_call({kName.text, [](const auto& arguments) {
                                                            CallFrame frame(arguments);
                                                            kFunction(frame);
                                                          }});
    if (deferring_ && record(kind, cost)) return;
    run_now(kFunction);
  }

  // For functions that may find an index out of range (ErrorKind::kIndex): false then. A call that
  // is recorded asks `valid` at once.
  template <Name kName, auto* kFunction, class Valid>
  bool run_or_refuse(double cost, Valid&& valid) {
    if (records()) {
      if (!valid()) return false;
      run<kName, kFunction>(cost);
      return true;
    }
    try {
      run_now(kFunction);
      return true;
    } catch (const hologram::Error& error) {
      if (error.kind() != hologram::ErrorKind::kIndex) throw;
      return false;
    }
  }

 private:
  struct Operand {
    c10::TensorImpl* tensor;  // null: absent
    Access access;
  };

  void absent_view() {
    words_.push_back(0);
    operands_.push_back({nullptr, Access::reads});
  }
  bool record(uint16_t kind, double cost);
  void run_now(void (*function)(CallFrame&));

  bool deferring_;  // and every operand so far may wait
  c10::SmallVector<Operand, 12> operands_;
  c10::SmallVector<uint64_t, 64> words_;
  c10::SmallVector<uint64_t, 12> numbers_;
};

}  // namespace hologram_torch
