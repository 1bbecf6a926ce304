// SPDX-License-Identifier: MIT
// What the fallback has to know of an operator, worked out once from its schema.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

namespace hologram_torch {

enum class ArgKind : uint8_t { kTensor, kTensorList, kDevice, kGenerator, kDtype };

struct ArgInfo {
  uint16_t index;
  ArgKind kind;
  bool written;   // "(a!)" in the schema
  bool cpu_fine;  // PyTorch's own devices accept a CPU tensor here
};

// A return value is either an argument handed back or something new (perhaps a view).
struct OpInfo {
  std::string name;
  std::vector<ArgInfo> args;     // those that need a look, in order
  std::vector<int16_t> returns;  // index of the argument handed back, or -1
  uint16_t arity = 0;
  int16_t generator = -1;  // position of the Generator argument
  bool seeded = false;     // draws random numbers
  uint8_t lacking = 0;     // dtypes that the CPU's kernel lacks, see wider_dtypes.h
  std::atomic<int64_t> calls{0};
  std::atomic<bool> served[5] = {};  // a CPU kernel is known to exist, per kind of tensor
};

// The entry of an operator; made at the first call. Lock-free afterwards.
OpInfo& op_info(const c10::OperatorHandle& op);

std::vector<std::pair<std::string, int64_t>> fallback_counts();
void reset_fallback_counts();

}  // namespace hologram_torch
