// SPDX-License-Identifier: MIT
// See call_check.h.
#include "src/runtime/recording/call_check.h"

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hologram/call_fields.h"
#include "hologram/call_ops.h"
#include "hologram/error.h"
#include "hologram/shape.h"
#include "src/base/text.h"
#include "src/ops/call_schema.h"

namespace hologram::internal {
namespace {

using Kind = CallParameterInfo::Kind;

class CallCheck {
 public:
  CallCheck(const CallOp& op, std::span<const uint64_t> words) : op_(op), words_(words) {
    read();
    check_dtypes();
    check_shapes();
    check_lists();
  }

 private:
  struct Operand {
    const CallOperandInfo* info;
    size_t position;  // in its list
    Dtype dtype;
    Shape shape;
  };

  uint64_t next() {
    if (at_ == words_.size()) refuse("has too few words");
    return words_[at_++];
  }

  // The operands that are given, and the parameters that a schema may name.
  void read() {
    for (const CallOperandInfo& info : op_.operands) {
      const size_t count = info.is_list ? next() : 1;
      for (size_t i = 0; i < count; ++i) read_operand(info, i);
    }
    for (const CallParameterInfo& info : op_.parameters) {
      if (!info.only_shapes) read_parameter(info);
    }
    if (at_ != words_.size()) refuse("has ", words_.size() - at_, " words too many");
  }

  void read_operand(const CallOperandInfo& info, size_t position) {
    const uint64_t head = next();
    if (head == 0) return;
    const auto words = static_cast<size_t>(view_words(head));
    if (words_.size() - at_ < words) refuse("has too few words for ", info.name);
    const auto* sizes = reinterpret_cast<const int64_t*>(words_.data() + at_);
    given_.push_back({&info, position, view_dtype(head), Shape(sizes, sizes + view_ndim(head))});
    at_ += words;
  }

  void read_parameter(const CallParameterInfo& info) {
    size_t count = 1;
    switch (info.kind) {
      case Kind::integer:
      case Kind::boolean:
        parameters_[info.name] = static_cast<int64_t>(next());
        return;
      case Kind::integers:
        for (count = next(); count > 0; --count) next();
        return;
      case Kind::number:
      case Kind::word:
        return;  // among the numbers
      case Kind::scalar:
        if (info.is_list) count = next();
        for (; count > 0; --count) next();
        return;
    }
  }

  void check_dtypes() {
    std::map<CallDtype, Dtype> dtypes;
    for (const Operand& operand : given_) {
      const CallDtype letter = operand.info->dtype;
      const Dtype first = dtypes.emplace(letter, operand.dtype).first->second;
      const auto floating = dtypes.find(CallDtype::floating);
      const bool agree = letter != CallDtype::each && letter != CallDtype::index;
      if (!takes(letter, operand.dtype,
                 floating == dtypes.end() ? std::nullopt : std::optional(floating->second))) {
        refuse(operand, " is ", dtype_name(operand.dtype));
      }
      if (agree && first != operand.dtype) {
        refuse(operand, " is ", dtype_name(operand.dtype), " where another of its letter is ",
               dtype_name(first));
      }
    }
  }

  void check_shapes() {
    CallSizes sizes([this](std::string_view name) {
      const auto found = parameters_.find(name);
      return found == parameters_.end() ? std::nullopt : std::optional(found->second);
    });
    std::vector<const Operand*> waiting, rest;
    for (const Operand& operand : given_) {
      const CallOperandInfo& info = *operand.info;
      if (!info.is_list && !info.free_shape) (info.broadcasts ? rest : waiting).push_back(&operand);
    }
    // Sizes of one operand may be settled by another that comes later.
    for (size_t known = SIZE_MAX; known != sizes.count() && !waiting.empty();) {
      known = sizes.count();
      std::erase_if(waiting, [&](const Operand* operand) {
        switch (sizes.match(*operand->info, operand->shape)) {
          case CallSizes::Match::differs:
            refuse_shape(*operand, sizes);
          case CallSizes::Match::other_rank:
            rest.push_back(operand);
            return true;
          case CallSizes::Match::settles:
            return true;
          case CallSizes::Match::open:
            return false;
        }
        return false;
      });
    }
    for (const Operand* operand : rest) {
      const std::optional<Shape> shape = sizes.shape_of(*operand->info);
      if (!shape.has_value()) continue;
      const int64_t own = numel_of(operand->shape), whole = numel_of(*shape);
      const bool repeats = operand->info->broadcasts && own > 0 && whole % own == 0;
      if (own != whole && !repeats) refuse_shape(*operand, sizes);
    }
  }

  // Tensors at one place of all lists have as many elements.
  void check_lists() {
    std::map<size_t, const Operand*> first;
    for (const Operand& operand : given_) {
      if (!operand.info->is_list || operand.info->free_shape) continue;
      const Operand& other = *first.emplace(operand.position, &operand).first->second;
      if (numel_of(other.shape) == numel_of(operand.shape)) continue;
      refuse(operand, " has shape ", shape_text(operand.shape), " where that of ", other.info->name,
             " has ", shape_text(other.shape));
    }
  }

  static int64_t numel_of(const Shape& shape) {
    int64_t n = 1;
    for (const int64_t size : shape) n *= size;
    return n;
  }

  [[noreturn]] void refuse_shape(const Operand& operand, const CallSizes& sizes) const {
    const std::string known = sizes.known_of(*operand.info);
    refuse(operand, " has shape ", shape_text(operand.shape), known.empty() ? "" : " where ",
           known);
  }
  template <class... Parts>
  [[noreturn]] void refuse(const Operand& operand, const Parts&... parts) const {
    const std::string which =
        operand.info->is_list ? " " + std::to_string(operand.position) : std::string();
    refuse(operand.info->name, which, parts...);
  }
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(ErrorKind::kInternal, "recorder check: ", op_.name, ": ", parts...,
         "; its schema: ", op_.schema);
  }

  const CallOp& op_;
  std::span<const uint64_t> words_;
  size_t at_ = 0;
  std::vector<Operand> given_;
  std::map<std::string, int64_t, std::less<>> parameters_;
};

}  // namespace

void check_call(uint16_t kind, std::span<const uint64_t> words) {
  const std::span<const CallOp> ops = call_ops();
  if (kind < ops.size()) CallCheck check(ops[kind], words);
}

}  // namespace hologram::internal
