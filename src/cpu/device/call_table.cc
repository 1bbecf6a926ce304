// SPDX-License-Identifier: MIT
// The CPU's kernels of the calls: one function for each row of src/ops/calls.def.
#include "src/cpu/device/call_table.h"

#include "hologram/call_frame.h"

namespace hologram::cpu {

// Defined beside the kernels of each family. A row without one does not link.
#define HOLOGRAM_CALL(name, ...) void run_##name(CallFrame& call);
#include "src/ops/calls.def"

void register_calls() {
#define HOLOGRAM_CALL(name, ...)                             \
  register_call({#name, [](const CallArguments& arguments) { \
                   CallFrame frame(arguments);               \
                   run_##name(frame);                        \
                 }});
#include "src/ops/calls.def"
}

}  // namespace hologram::cpu
