// SPDX-License-Identifier: MIT
// The C interface: calls of the catalogue by name.
#include "hologram/calls.h"

#include <string>
#include <vector>

#include "src/capi/call.h"

namespace hologram::capi {
namespace {

// The tensors of one input of the schema, from `*next` on.
CallInput call_input(const CallOp& op, int k, const uint64_t* inputs, int count, int* next) {
  const bool in_row = k < static_cast<int>(op.operands.size());
  const CallOperandInfo* info = in_row ? &op.operands[static_cast<size_t>(k)] : nullptr;
  std::vector<Tensor> list;
  for (int i = 0; i < count; ++i) {
    const uint64_t handle = inputs[(*next)++];
    if (handle == 0) continue;
    AnyTensor any = any_tensor(handle, in_row ? info->name.c_str() : "inputs");
    if (any.read_only && in_row && info->is_updated) refuse_read_only(info->name.c_str());
    list.push_back(std::move(any.tensor));
  }
  if (in_row && info->is_list && !list.empty()) return {std::move(list)};
  if (list.size() > 1) {
    fail(ErrorKind::kInvalidArgument, "counts[", k, "] is ", count, ", and input ", k, " of ",
         op.name, " is one tensor");
  }
  return list.empty() ? CallInput() : CallInput(list[0]);
}

std::vector<CallArgument> call_arguments(const hologram_argument* arguments, int count) {
  std::vector<CallArgument> list;
  for (int i = 0; i < count; ++i) {
    const hologram_argument& given = arguments[i];
    const char* name = not_null(given.name, "arguments[].name", "the name of a parameter");
    if (given.integers == nullptr) {
      list.emplace_back(name, given.number);
    } else if (given.count == 1) {
      list.emplace_back(name, given.integers[0]);
    } else if (given.count < 0) {
      fail(ErrorKind::kInvalidArgument, name, ": count is ", given.count, "; pass 0 or more");
    } else {
      list.emplace_back(name, std::vector<int64_t>(given.integers, given.integers + given.count));
    }
  }
  return list;
}

}  // namespace
}  // namespace hologram::capi

using namespace hologram;        // NOLINT: definitions of C functions stand outside
using namespace hologram::capi;  // NOLINT

int hologram_call_count(int* count) {
  return guarded("call_count", [&] {
    *not_null(count, "count", "an int") = static_cast<int>(call_ops().size());
  });
}

int hologram_call_info(int index, const char** name, const char** schema, const char** doc) {
  return guarded("call_info", [&] {
    const auto rows = call_ops();
    if (index < 0 || index >= static_cast<int>(rows.size())) {
      fail(ErrorKind::kIndex, "index is ", index, "; there are ", rows.size(), " calls");
    }
    const CallOp& op = rows[static_cast<size_t>(index)];
    if (name != nullptr) *name = op.name;
    if (schema != nullptr) *schema = op.schema;
    if (doc != nullptr) *doc = op.doc;
  });
}

int hologram_call(const char* name, const uint64_t* inputs, const int* counts, int n_inputs,
                  const hologram_argument* arguments, int n_arguments, uint64_t* results,
                  int capacity, int* count) {
  return guarded("call", [&] {
    const CallOp& op = call_op(not_null(name, "name", "the name of a call"));
    check_count("n_inputs", n_inputs);
    if (n_inputs > 0) not_null(inputs, "inputs", "n_inputs handles");
    check_count("n_arguments", n_arguments);
    if (n_arguments > 0) not_null(arguments, "arguments", "n_arguments parameters");
    std::vector<CallInput> operands;
    for (int k = 0, next = 0; k < n_inputs; ++k) {
      const int own = counts == nullptr ? 1 : counts[k];
      if (own < 0)
        fail(ErrorKind::kInvalidArgument, "counts[", k, "] is ", own, "; pass 0 or more");
      operands.push_back(call_input(op, k, inputs, own, &next));
    }
    int made = 0;
    for (const CallOperandInfo& info : op.operands) made += info.is_result ? 1 : 0;
    if (made > capacity) {
      fail(ErrorKind::kInvalidArgument, "capacity is ", capacity, " but ", op.name, " has ", made,
           " results");
    }
    if (made > 0) not_null(results, "results", "that many uint64_t");
    const std::vector<CallArgument> given = call_arguments(arguments, n_arguments);
    std::vector<Tensor> tensors = call(name, operands, given);
    std::vector<uint64_t> handles;
    try {
      for (Tensor& tensor : tensors) {
        handles.push_back(tensor.buffer() ? add_tensor(std::move(tensor), false) : 0);
      }
    } catch (...) {
      for (const uint64_t handle : handles) Registry::get().remove(handle, Kind::kTensor);
      throw;
    }
    for (size_t k = 0; k < handles.size(); ++k) results[k] = handles[k];
    if (count != nullptr) *count = made;
  });
}
