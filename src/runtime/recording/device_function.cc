// SPDX-License-Identifier: MIT
// Functions of buffers: what a thread recorded as one plan, with memory for what nobody else sees.
#include "hologram/circuit.h"

#include <atomic>
#include <utility>
#include <vector>

#include "hologram/error.h"
#include "src/circuit/plan.h"
#include "src/runtime/recording/capture.h"
#include "src/runtime/recording/recorder.h"
#include "src/runtime/threads/float_mode.h"

namespace hologram {

using internal::Capture;
using internal::PlannedCircuit;

namespace {
constinit std::atomic<const void*> g_function{nullptr};  // the one that is being captured
}  // namespace

struct DeviceFunction::State {
  explicit State(Device& device) : device(device) {}

  Device& device;
  bool capturing = false;
  size_t arguments = 0;
  size_t results = 0;
  std::shared_ptr<PlannedCircuit> circuit;

  void stop() {
    if (!capturing) return;
    internal::end_capture(circuit->capture);
    circuit->capture.release_values();
    capturing = false;
    g_function.store(nullptr, std::memory_order_release);
  }
};

DeviceFunction::DeviceFunction(Device& device) : state_(std::make_unique<State>(device)) {}
DeviceFunction::~DeviceFunction() { abandon(); }

bool DeviceFunction::begin(std::span<Buffer* const> arguments) {
  State& s = *state_;
  if (s.circuit != nullptr) {
    fail(ErrorKind::kState, "DeviceFunction::begin: it was captured before; make another one");
  }
  if (internal::capturing() != nullptr || internal::Recorder::recording(s.device) == nullptr ||
      internal::float_mode() != internal::kDefaultFloatMode) {
    return false;
  }
  const void* none = nullptr;
  if (!g_function.compare_exchange_strong(none, this)) return false;
  s.circuit = std::make_shared<PlannedCircuit>(s.device);
  s.circuit->capture.of_graph = true;
  internal::begin_capture(s.circuit->capture);
  s.capturing = true;
  s.arguments = arguments.size();
  for (Buffer* argument : arguments) s.circuit->capture.slot_of(argument, false);
  return true;
}

void DeviceFunction::end(std::span<Buffer* const> results) {
  State& s = *state_;
  if (!s.capturing || internal::capturing() != &s.circuit->capture) {
    fail(ErrorKind::kState, "DeviceFunction::end: this thread did not begin() it");
  }
  PlannedCircuit& circuit = *s.circuit;
  Capture& capture = circuit.capture;
  // A result that nothing computes is a slot as well.
  for (Buffer* result : results) capture.slot_of(result, false);
  s.results = results.size();
  s.stop();
  capture.complete();
  internal::check_apart(capture, "DeviceFunction::end");
  const auto& slots = capture.slots();
  for (size_t k = 0; k < slots.size(); ++k) {
    const bool given = k < s.arguments || !slots[k].value;
    circuit.states.push_back(given ? circuit::kSlotLive : circuit::kSlotFresh);
  }
  for (const Buffer* result : results) {
    circuit.states[static_cast<size_t>(capture.find(result))] |= circuit::kSlotLive;
  }
  circuit.plan = circuit::make_plan(capture.tape().words(), circuit.states,
                                    {.limits = *s.device.plan_limits()});
  circuit.memory = internal::find_memory(capture, *circuit.plan);
  // What no kernel touches, a call does not name.
  std::vector<bool> touched(slots.size());
  for (const circuit::Kernel& kernel : circuit.plan->kernels) {
    circuit::for_slots(kernel, [&](uint32_t slot) { touched[slot] = true; });
  }
  const auto use = [&](uint32_t slot, size_t given) {
    if (touched[slot]) {
      circuit.uses.push_back({slot, static_cast<uint32_t>(given), slots[slot].written});
    }
  };
  for (uint32_t k = 0; k < s.arguments; ++k) use(k, k);
  for (size_t k = 0; k < results.size(); ++k) {
    use(static_cast<uint32_t>(capture.find(results[k])), s.arguments + k);
  }
  for (uint32_t k = static_cast<uint32_t>(s.arguments); k < slots.size(); ++k) {
    if (touched[k] && !slots[k].value) circuit.outside.push_back(k);
  }
}

void DeviceFunction::abandon() noexcept {
  state_->stop();
  state_->circuit.reset();
}

bool DeviceFunction::call(std::span<Buffer* const> given, std::span<const uint64_t> numbers) {
  State& s = *state_;
  if (s.circuit == nullptr || s.circuit->plan == nullptr) {
    fail(ErrorKind::kState, "DeviceFunction::call: nothing was captured; begin() and end() it");
  }
  if (given.size() != s.arguments + s.results) {
    fail(ErrorKind::kInvalidArgument, "DeviceFunction::call: the function has ", s.arguments,
         " arguments and ", s.results, " results, got ", given.size(), " buffers");
  }
  return may_call() && internal::Recorder::of(s.device).append_planned(s.circuit, given, numbers);
}

bool DeviceFunction::may_call() const {
  return internal::capturing() == nullptr &&
         internal::float_mode() == internal::kDefaultFloatMode &&
         internal::Recorder::recording(state_->device) != nullptr;
}

bool DeviceFunction::writes(size_t argument) const {
  return state_->circuit->capture.slots()[argument].written;
}

const std::vector<uint64_t>& DeviceFunction::numbers() const {
  return state_->circuit->capture.tape().immediates();
}
int DeviceFunction::ops() const {
  return state_->circuit == nullptr ? 0 : state_->circuit->capture.tape().records();
}
int64_t DeviceFunction::bytes_kept() const {
  return state_->circuit == nullptr ? 0 : state_->circuit->memory.bytes_kept;
}

}  // namespace hologram
