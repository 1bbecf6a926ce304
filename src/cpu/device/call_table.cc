// SPDX-License-Identifier: MIT
// The CPU's kernels of the calls: one function for each row of src/ops/calls.def.
#include "src/cpu/device/call_table.h"

#include <string_view>

#include "hologram/call_frame.h"

namespace hologram::cpu {

// Defined beside the kernels of each family. A row without one does not link.
#define HOLOGRAM_CALL(name, ...) void run_##name(CallFrame& call);
#include "src/ops/calls.def"

bool convolution_result(const uint64_t* attributes, CallResult& result);
bool run_convolution_blocks(const CallArguments& arguments, const CallEpilogue& epilogue);
bool linear_int8_result(const uint64_t* attributes, CallResult& result);
bool run_linear_int8_blocks(const CallArguments& arguments, const CallEpilogue& epilogue);

namespace {

// The functions of a call, with those of a result that ops read block by block.
CallKind with_blocks(CallKind kind) {
  if (std::string_view(kind.name) == "convolution") {
    kind.result = &convolution_result;
    kind.run_blocks = &run_convolution_blocks;
  }
  if (std::string_view(kind.name) == "linear_int8") {
    kind.result = &linear_int8_result;
    kind.run_blocks = &run_linear_int8_blocks;
  }
  return kind;
}

}  // namespace

void register_calls() {
#define HOLOGRAM_CALL(name, ...)                                         \
  register_call(with_blocks({#name, [](const CallArguments& arguments) { \
                               CallFrame frame(arguments);               \
                               run_##name(frame);                        \
                             }}));
#include "src/ops/calls.def"
}

}  // namespace hologram::cpu
