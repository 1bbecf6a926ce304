// SPDX-License-Identifier: MIT
// A recipe writes a call as records on a tape of its own. They are planned as any circuit is, so
// that few kernels are left and most of what lies between them gets no memory; see recipes.cc.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "hologram/call_structs.h"
#include "hologram/reduction.h"
#include "src/circuit/plan.h"
#include "src/circuit/tape.h"
#include "src/gpu/dialect.h"

namespace hologram::gpu {

inline constexpr int kMostDims = circuit::kTapeDims;

// The 8 bytes of an immediate that is a number of a dtype that ops compute in.
uint64_t bits_of(Dtype dtype, double value);

// Elements in a slot of the recipe: an operand of the call, or what lies between its records.
struct Array {
  bool is_given = false;  // it is in memory
  uint32_t slot = 0;
  int64_t offset = 0;  // bytes from the slot's begin to the first element
  Dtype dtype = Dtype::kFloat32;
  int ndim = 0;
  std::array<int64_t, kMostDims> shape{};
  std::array<int64_t, kMostDims> strides{};  // in elements

  int64_t numel() const;
  Array transposed(int a, int b) const;  // the two dimensions swapped
  // Repeated along a new last dimension of this size.
  Array along_rows(int64_t size) const;
  // Every element behind the one before, in the order of the dimensions.
  bool is_row_major() const;
  // The dimensions [begin, end) as one, which must be possible.
  bool can_merge(int begin, int end) const;
  Array merged(int begin, int end) const;
  // The dimensions of `mask` behind the others, in order.
  Array with_last(uint64_t mask) const;
  // Element `index` of a dimension, which is gone; `size` elements of it from `begin` on.
  Array select(int dim, int64_t index) const;
  Array narrow(int dim, int64_t begin, int64_t size) const;

  // As an operand of a call that a recipe records.
  template <Access>
  static Array of(const Array& array) {
    return array;
  }
};

// A number, computed on the host when the recipe runs from those of the call.
using Number = std::function<double(const double* numbers)>;

// What a record reads: elements or a number.
struct Term {
  bool is_array = false;
  Array array;
  Number number;  // where it is set, else:
  double constant = 0;

  Term(const Array& array) : is_array(true), array(array) {}  // NOLINT
  Term(double constant) : constant(constant) {}               // NOLINT
  Term(Number number) : number(std::move(number)) {}          // NOLINT
};

// The words and operands of a call between arrays of a recipe. Its numbers are floating ones.
class RecipeCall : public CallEncoder<RecipeCall, std::vector<uint64_t>, std::vector<uint64_t>> {
 public:
  // updates_results: what the call writes depends on what was there, although its row does not say
  // so.
  explicit RecipeCall(bool updates_results) : updates_results_(updates_results) {}

  using CallEncoder::operator();
  void operator()(uint64_t number) = delete;
  template <Access kAccess>
  void operand(const calls::Operand<Array, kAccess>& array) {
    put_view(array);
    memory(array);
  }
  template <Access kAccess>
  void memory(const calls::Operand<Array, kAccess>& array) {
    put_slot(array, kAccess);
  }
  std::span<const circuit::CallSlot> slots() const { return slots_; }
  std::span<const uint64_t> words() const { return words_; }
  std::span<const uint64_t> numbers() const { return numbers_; }

 private:
  void put_view(const Array& array);
  void put_slot(const Array& array, Access access);

  const bool updates_results_;
  std::vector<circuit::CallSlot> slots_;
};

class Recipe {
 public:
  Recipe(const circuit::KernelCall& call, const Traits& traits);

  // A parameter of the call that is a floating number: a struct read by RecipeFrame names it.
  static Number number(double field) {
    const auto index = std::bit_cast<uint64_t>(field);
    return [index](const double* numbers) { return numbers[index]; };
  }
  // A parameter that may lie in memory.
  static Term term(const calls::Scalar<Array>& scalar) {
    if (scalar.stored == Stored::number) return number(scalar.value);
    return static_cast<const Array&>(scalar.memory);
  }

  // Memory for elements between records.
  Array temporary(Dtype dtype, int ndim, const int64_t* shape);

  // An op over operands that broadcast to each other, computed in `compute`: into new memory of
  // that dtype (bool of comparisons), or into `out`, whose shape it has.
  Array op(OpId id, Dtype compute, std::initializer_list<Term> operands);
  void op_into(const Array& out, OpId id, Dtype compute, std::span<const Term> operands);
  void op_into(const Array& out, OpId id, Dtype compute, std::initializer_list<Term> operands) {
    op_into(out, id, compute, std::span<const Term>(operands.begin(), operands.size()));
  }
  void copy_into(const Array& out, const Array& from);
  void fill_into(const Array& out, double value);
  // Of the last dimension; the result has the others.
  Array fold(Reduction kind, const Array& x, Dtype dtype);
  void fold_into(const Array& out, Reduction kind, const Array& x);
  // A function of rows, the last dimension.
  void rows_into(const Array& out, circuit::RowOp kind, std::initializer_list<Array> operands);

  // A call, which becomes a kernel or again a recipe; its numbers are constants. See RecipeCall for
  // updates_results.
  template <class Call>
  void call(const Call& call, bool updates_results = false) {
    RecipeCall made(updates_results);
    Call::each(call, made);
    append_call(Call::kNumber, made);
  }
  // out = a b of matrices, or out += a b; b may be given as its transpose.
  enum class Factor : uint8_t { kPlain, kTransposed };
  enum class Sum : uint8_t { kNew, kAdded };
  void product_into(const Array& out, const Array& a, const Array& b, Factor form, Sum sum);

  // The widest dtype that the device computes numbers in.
  Dtype widest() const { return widest_; }
  // False where a record was to read or write an operand that the call does not have.
  bool is_whole() const { return is_whole_; }

  // What was recorded, as a plan; its slots are the call's, then temporaries.
  std::unique_ptr<circuit::Plan> plan(const circuit::PlanOptions& options) const;
  const std::vector<uint32_t>& call_slots() const { return call_slots_; }  // of the call's plan
  const std::vector<size_t>& temporary_bytes() const { return temporary_bytes_; }
  // The plan's numbers.
  struct Immediate {
    Dtype dtype;
    Number number;
  };
  std::vector<Immediate> take_immediates() { return std::move(immediates_); }

 private:
  void record(circuit::Record& record, std::span<const Term> operands, int ndim,
              const int64_t* shape, int fixed);
  void append_call(CallNumber number, const RecipeCall& call);

  const Dtype widest_;
  bool is_whole_ = true;
  circuit::Tape tape_;
  std::vector<uint32_t> call_slots_;
  std::vector<size_t> temporary_bytes_;
  std::vector<Immediate> immediates_;
};

// Reads the fields of a call's struct, with arrays for operands, from its words. What the struct
// borrows lives as long as this.
class RecipeFrame {
 public:
  RecipeFrame(Recipe& recipe, const circuit::KernelCall& call)
      : recipe_(recipe), call_(call), words_(call.attributes.data()) {}

  template <Access kAccess>
  void operator()(calls::Operand<Array, kAccess>& operand) {
    static_cast<Array&>(operand) = view();
  }
  template <Access kAccess>
  void operator()(calls::List<Array, kAccess>& list) {
    list = read_list<calls::Operand<Array, kAccess>>();
  }
  void operator()(calls::ScalarList<Array>& list) { list = read_list<calls::Scalar<Array>>(); }
  void operator()(calls::Scalar<Array>& scalar);
  void operator()(int64_t& value) { value = static_cast<int64_t>(*words_++); }
  void operator()(bool& value) { value = *words_++ != 0; }
  void operator()(double& value) { value = std::bit_cast<double>(number_++); }
  void operator()(uint64_t& value) { value = number_++; }
  void operator()(calls::Ints& values) {
    const uint64_t count = *words_++;
    values = {reinterpret_cast<const int64_t*>(words_), count};
    words_ += count;
  }
  // False where an operand had too many dimensions.
  bool is_read() const { return is_read_; }

 private:
  Array view();
  Array memory(Dtype dtype);
  template <class T>
  std::span<const T> read_list() {
    const auto count = static_cast<size_t>(*words_++);
    auto list = std::make_shared<T[]>(count);
    for (size_t i = 0; i < count; ++i) (*this)(list[i]);
    lists_.push_back(list);
    return {list.get(), count};
  }

  Recipe& recipe_;
  const circuit::KernelCall& call_;
  const uint64_t* words_;
  size_t operand_ = 0;
  uint64_t number_ = 0;
  bool is_read_ = true;
  std::vector<std::shared_ptr<void>> lists_;
};

// f(std::type_identity<calls::Gemm<Array>>()) for the struct of a kind; what f gives of nothing for
// a kind that is no call of the catalogue.
template <class F>
auto for_call(CallNumber kind, F&& f) {
  switch (kind) {
#define HOLOGRAM_CALL_CASE(name, Struct) \
  case CallNumber::name:                 \
    return f(std::type_identity<calls::Struct<Array>>());
    HOLOGRAM_EACH_CALL(HOLOGRAM_CALL_CASE)
#undef HOLOGRAM_CALL_CASE
  }
  return decltype(f(std::type_identity<calls::Gemm<Array>>())){};
}

}  // namespace hologram::gpu
