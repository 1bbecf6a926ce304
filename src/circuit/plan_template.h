// SPDX-License-Identifier: MIT
// Plans for other sizes. Two tapes have the same structure where they differ in numbers of elements
// and bytes only, and the same of these are equal in both. A PlanTemplate is a plan of one of them
// with the formulas of its sizes: for another one of whose sizes planning would have been told the
// same, the plan is this one with its sizes computed again.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "src/circuit/plan.h"
#include "src/circuit/size.h"

namespace hologram::circuit {

// What a tape is without its sizes, and these.
class Structure {
 public:
  // Keeps its memory from one tape to the next. Refers to the words.
  void read(std::span<const uint64_t> words);

  // Equal for tapes of the same structure: sizes are numbered as they come up, but for 0 and 1.
  std::span<const uint64_t> words() const { return words_; }
  // What the numbers stand for: each once.
  std::span<const int64_t> symbols() const { return symbols_; }
  uint64_t hash() const { return hash_words(words_); }

  struct CallWords {
    std::span<const uint64_t> operands, attributes;
  };
  // In the order of the tape, and which of its records they are.
  std::span<const CallWords> calls() const { return calls_; }

 private:
  uint64_t number_of(int64_t size);
  void grow();

  struct Known {
    int64_t size;
    uint32_t number;
    uint32_t reading;  // of this one; else the place is free
  };
  std::vector<uint64_t> words_;
  std::vector<int64_t> symbols_;
  std::vector<CallWords> calls_;
  std::vector<Known> known_;  // by hash
  uint32_t reading_ = 0;
};

class PlanTemplate {
 public:
  // Plans the tape, whose structure that is, and sets `plan`. Throws as make_plan().
  PlanTemplate(const Structure& structure, std::span<const uint64_t> words,
               std::span<const uint8_t> states, const PlanOptions& options,
               std::unique_ptr<Plan>& plan);

  // Whether it serves the sizes of a tape of its structure; `values` is for give().
  bool serves(const Structure& structure, std::vector<int64_t>& values) const {
    return formulas_.evaluate(structure.symbols(), values);
  }
  // A plan of this template, which does not run, becomes the one of that tape.
  static void give(Plan& plan, const Structure& structure, std::span<const int64_t> values);
  // A plan like another one of the template, without what has run of it.
  static std::unique_ptr<Plan> copy(const Plan& plan);
  size_t bytes() const { return sizeof(PlanTemplate) + formulas_.bytes(); }

 private:
  SizeFormulas formulas_;
};

}  // namespace hologram::circuit
