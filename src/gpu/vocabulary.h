// SPDX-License-Identifier: MIT
// The words that bodies of the op table are written in, as functions of the dialect.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "hologram/dtype.h"
#include "hologram/op.h"
#include "src/circuit/plan_limits.h"
#include "src/gpu/dialect.h"

namespace hologram::gpu {

// What a device of these traits computes itself.
circuit::NativeOps native_ops(const Traits& traits);

// Types of elements as texts name them: "bf16", and as they are in memory: "u16". The half types
// are bits in memory and float32 where they are computed with.
std::string_view suffix(Dtype dtype);
std::string_view storage_type(Dtype dtype);

// Collects the functions that an expression needs, each once and after those that it calls itself.
//
// Rows whose bodies need a word that this vocabulary lacks are left to the host; see native_ops().
class Words {
 public:
  explicit Words(const Traits& traits) : traits_(traits) {}

  // A call of row `op` at values of `compute`, one of its dtypes.
  std::string row(OpId op, Dtype compute, const std::string* operands, int arity);
  // `value` of one dtype as another, as convert() has it.
  std::string converted(const std::string& value, Dtype from, Dtype to);
  // Definitions of all that was used.
  const std::string& text() const { return text_; }

 private:
  void need(Dtype dtype, std::string_view word);
  // `body` with each word as the function of that type; the words become needed.
  std::string spelled(Dtype dtype, std::string_view body);
  void need_helper(std::string_view name);

  const Traits& traits_;
  std::set<std::string> known_;
  std::string text_;
};

}  // namespace hologram::gpu
