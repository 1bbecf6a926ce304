// SPDX-License-Identifier: MIT
// Graphs: what was captured as one plan, and the memory of its values.
#include <vector>

#include "hologram/error.h"
#include "hologram/memory.h"
#include "src/circuit/passing_values.h"
#include "src/circuit/plan.h"
#include "src/runtime/recording/capture.h"
#include "src/runtime/recording/recorder.h"
#include "src/runtime/threads/float_mode.h"

namespace hologram {

internal::PlanMemory internal::find_memory(const Capture& capture, const circuit::Plan& plan) {
  const auto& slots = capture.slots();
  PlanMemory found;
  for (const Capture::Slot& slot : slots) {
    found.bound.push_back(static_cast<char*>(slot.buffer->data()));
  }
  std::vector<size_t> bytes;
  for (const circuit::PassingValue& value : plan.passing) {
    bytes.push_back(slots[value.slot].buffer->nbytes());
    found.bytes_wanted += static_cast<int64_t>(bytes.back());
  }
  circuit::MemorySharing sharing;
  sharing.find(plan.passing, bytes);
  found.bytes_kept = static_cast<int64_t>(sharing.bytes());
  for (uint32_t k = 0; k < bytes.size(); ++k) {
    if (bytes[k] == 0) continue;
    const uint32_t owner = sharing.owners()[k];
    if (owner == k)
      found.kept.push_back(BufferRef::adopt(allocate_buffer(capture.device(), bytes[k])));
    char*& data = found.bound[plan.passing[k].slot];
    data = owner == k ? static_cast<char*>(found.kept.back()->data())
                      : found.bound[plan.passing[owner].slot];
  }
  return found;
}

struct DeviceGraph::State {
  explicit State(Device& device) : device(device) {}

  Device& device;
  enum { kEmpty, kCapturing, kCaptured, kPrepared } phase = kEmpty;
  std::unique_ptr<internal::Capture> capture;
  uint32_t float_mode = 0;
  std::vector<uint64_t> numbers;
  std::shared_ptr<circuit::Plan> plan;
  std::vector<uint8_t> slot_states;
  std::vector<Buffer*> buffers;  // by slot
  internal::PlanMemory memory;
  Stats stats;
};

DeviceGraph::DeviceGraph(Device& device) : state_(std::make_unique<State>(device)) {}
DeviceGraph::~DeviceGraph() { reset(); }

bool DeviceGraph::is_capturing() const { return state_->phase == State::kCapturing; }
bool DeviceGraph::is_captured() const { return state_->phase >= State::kCaptured; }
std::vector<uint64_t>& DeviceGraph::numbers() { return state_->numbers; }

void DeviceGraph::begin() {
  State& s = *state_;
  if (!s.device.runs_plans()) {
    fail(ErrorKind::kState, "DeviceGraph::begin: device ", s.device.name(), ":", s.device.index(),
         " runs no plans, so nothing is recorded on it");
  }
  if (s.phase != State::kEmpty) {
    fail(ErrorKind::kState,
         "DeviceGraph::begin: the graph holds what it captured before; reset() it, or use another");
  }
  flush(s.device);
  auto capture = std::make_unique<internal::Capture>(s.device);
  capture->of_graph = true;
  internal::begin_graph(*capture);
  s.capture = std::move(capture);
  s.float_mode = internal::float_mode();
  s.phase = State::kCapturing;
}

void DeviceGraph::end() {
  State& s = *state_;
  if (s.phase != State::kCapturing) {
    fail(ErrorKind::kState, "DeviceGraph::end: the graph is not being captured; begin() it first");
  }
  internal::end_graph(*s.capture);
  s.phase = State::kCaptured;
  s.capture->release_values();
  s.capture->complete();
  s.numbers = s.capture->tape().immediates();
  s.stats.ops = s.capture->tape().records();
}

void DeviceGraph::prepare() {
  State& s = *state_;
  if (s.phase < State::kCaptured) {
    fail(ErrorKind::kState,
         "DeviceGraph::prepare: nothing was captured; call begin(), record, and end()");
  }
  if (s.phase == State::kPrepared) return;
  internal::check_apart(*s.capture, "DeviceGraph::prepare");
  const auto& slots = s.capture->slots();
  std::vector<uint8_t> states;
  std::vector<Buffer*> buffers;
  for (const internal::Capture::Slot& slot : slots) {
    const bool seen = !slot.value || slot.buffer->use_count() > 1;
    states.push_back(seen ? circuit::kSlotLive : circuit::kSlotFresh);
    buffers.push_back(slot.buffer.get());
  }
  const circuit::PlanOptions options{.limits = *s.device.plan_limits(),
                                     .float_laws = s.float_mode == internal::kDefaultFloatMode};
  auto plan = circuit::make_plan(s.capture->tape().words(), states, options);
  internal::Recorder& recorder = internal::Recorder::of(s.device);
  for (size_t k = 0; k < slots.size(); ++k) {
    if ((states[k] & circuit::kSlotLive) != 0) recorder.attach(slots[k].buffer.get());
  }
  s.stats = {.ops = plan->stats.ops,
             .kernels = plan->stats.kernels,
             .bytes_moved = plan->stats.bytes_moved};
  s.memory = internal::find_memory(*s.capture, *plan);
  s.stats.bytes_wanted = s.memory.bytes_wanted;
  s.stats.bytes_kept = s.memory.bytes_kept;
  s.slot_states = std::move(states), s.buffers = std::move(buffers);
  s.plan = std::move(plan);
  s.phase = State::kPrepared;
}

void DeviceGraph::replay() {
  State& s = *state_;
  if (is_capturing_graph()) {
    fail(ErrorKind::kState,
         "DeviceGraph::replay: a graph is being captured, and a replay cannot be part of it; end "
         "the capture first");
  }
  if (s.phase != State::kPrepared) prepare();
  internal::PlanRun run{s.plan,
                        {s.memory.bound.data(), s.numbers.data()},
                        s.capture->tape(),
                        s.slot_states,
                        s.buffers,
                        s.numbers};
  run.cause = "replay";
  internal::Recorder::of(s.device).run_beside_circuits(run, s.float_mode);
}

void DeviceGraph::reset() noexcept {
  State& s = *state_;
  if (s.phase == State::kCapturing) {
    internal::end_graph(*s.capture);
    s.capture->release_values();
  }
  s.phase = State::kEmpty;
  s.plan.reset();
  s.slot_states.clear();
  s.buffers.clear();
  s.capture.reset();
  s.numbers.clear();
  s.memory = {};
  s.stats = {};
}

bool is_captured(const Buffer& buffer) { return internal::Capture::any_has(buffer); }

DeviceGraph::Stats DeviceGraph::stats() const { return state_->stats; }

std::string DeviceGraph::print() const {
  const State& s = *state_;
  if (s.phase < State::kCaptured) return {};
  std::string text = circuit::print_tape(s.capture->tape().words());
  if (s.plan != nullptr) text.append("\n").append(circuit::print_plan(*s.plan));
  return text;
}

}  // namespace hologram
