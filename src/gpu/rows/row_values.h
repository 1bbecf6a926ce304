// SPDX-License-Identifier: MIT
// The instructions of a kernel of whole rows as values, each with the walk of the row in which it
// is known: 0 for what memory holds, and one more than the walk that reduces for a reduction's
// result.
#pragma once

#include <string>
#include <vector>

#include "hologram/reduction.h"
#include "src/gpu/writer.h"

namespace hologram::gpu {

// How two parts of a row come together.
enum class Merge { kSum, kProduct, kMaximum, kMinimum, kAny, kAll };

class RowValues : public Writer {
 protected:
  RowValues(const Kernel& kernel, const Traits& traits)
      : Writer(kernel, traits), row_dims_(kernel.ndim - 1), cols_(kernel.cols()) {}

  struct Value {
    Dtype dtype = Dtype::kFloat32;
    bool is_full = false;  // an element, not the same for a row
    int walk = 0;          // in which it is known: of rows, before it
    std::string text;      // an expression of other values' names and the element's "position"
    std::vector<int> operands;
    int fold = -1;    // of folds_, which it is the result of
    int access = -1;  // whose element it is; it has no text
    int cost = 1;     // in instructions, roughly
  };
  struct Fold {
    Merge merge;
    int input;
    int walk;
    Dtype dtype;
    int result;
  };
  struct Store {
    uint32_t access;
    int value;
  };

  static std::string name(int value) { return cat("v", value); }
  // Begins an access: its first byte in the row that the item has.
  void write_begin(const MemoryAccess& access, std::string& body);
  // After all accesses have begun. W(1) is the length of a row.
  void add_instr(const Instr& instr);
  // An element of an access: that number behind c0, if those that an item has are counted, which
  // are `apart` elements from each other.
  std::string place(uint32_t access, const std::string& at) const;
  // Puts an access to the element c0: "GLOBAL u8* const b3 = ...;".
  std::string begin_walk(uint32_t access) const;
  // Whether elements of one column lie closer together than those of a row.
  bool row_steps_less() const;
  // Bytes of an element, of the accesses with the narrowest.
  size_t narrowest() const;

  const int row_dims_;  // dimensions of rows; the last is that of their elements
  const int64_t cols_;
  std::vector<Value> values_;
  std::vector<Fold> folds_;
  std::vector<Store> stores_;

 private:
  int add(Value value);
  int make(Dtype dtype, std::string text, std::vector<int> operands = {});
  Dtype dtype_of(int value) const { return values_[static_cast<size_t>(value)].dtype; }
  int op(OpId id, Dtype compute, const std::vector<int>& operands);
  int converted(int value, Dtype to);
  int fold(Merge merge, int input);
  int read(const Ref& ref, Dtype compute);
  int mean_of(int input);
  int count(Dtype dtype) { return make(dtype, cat("(", storage_type(dtype), ")W(1)")); }
  // A number that plans differ in, as a word.
  int parameter(Dtype dtype, double value);
  // A value for each row by which float32 x is multiplied before it is squared: see squares.h.
  int power_for_squares(int x);
  int reduction(Reduction kind, int stored, const Instr& instr);
  int norm(int x, double p);
  int row_function(const Instr& instr);

  std::vector<int> temps_, loaded_;
  std::vector<std::string> steps_;  // of each access along a row, in bytes; empty where none
};

}  // namespace hologram::gpu
