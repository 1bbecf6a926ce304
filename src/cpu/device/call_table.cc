// SPDX-License-Identifier: MIT
// The CPU's table of kernels.
#include "src/cpu/device/call_table.h"

namespace hologram::cpu {
namespace {

template <class Call>
CallKind kind_of(const char* name) {
  CallKind kind;
  kind.name = name;
  kind.run = [](const CallArguments& arguments) {
    CallFrame frame(arguments);
    run(frame.call<Call>(), frame.threads());
  };
  if constexpr (requires(const Call& call, CallResult& result) { result_of(call, result); }) {
    kind.result = [](const uint64_t* attributes, CallResult& result) {
      CallFrame frame({nullptr, attributes, nullptr, 1});
      return result_of(frame.call<Call>(), result);
    };
    kind.run_blocks = [](const CallArguments& arguments, const CallEpilogue& epilogue) {
      CallFrame frame(arguments);
      return run_blocks(frame.call<Call>(), frame.threads(), epilogue);
    };
  }
  if constexpr (requires(const Call& call, CallNarrowing& narrowing) {
                  narrowing_of(call, narrowing);
                }) {
    kind.narrowing = [](const uint64_t* attributes, CallNarrowing& narrowing) {
      CallFrame frame({nullptr, attributes, nullptr, 1});
      return narrowing_of(frame.call<Call>(), narrowing);
    };
  }
  return kind;
}

}  // namespace

void register_calls() {
#define HOLOGRAM_REGISTER(name, Struct) register_call(kind_of<calls::Struct<>>(#name));
  HOLOGRAM_EACH_CALL(HOLOGRAM_REGISTER)
#undef HOLOGRAM_REGISTER
}

}  // namespace hologram::cpu
