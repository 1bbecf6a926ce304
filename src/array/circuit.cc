// SPDX-License-Identifier: MIT
// Circuits that a program records by hand and runs on tensors.
#include "hologram/circuit.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "hologram/error.h"
#include "hologram/recorder.h"
#include "src/array/array.h"
#include "src/circuit/plan.h"
#include "src/circuit/plan_cache.h"
#include "src/runtime/memory/buffer_access.h"
#include "src/runtime/memory/tensor_access.h"
#include "src/runtime/recording/capture.h"
#include "src/runtime/recording/recorder.h"

namespace hologram {

using internal::Capture;
using internal::TensorAccess;

struct Circuit::State {
  explicit State(Device& device) : capture(device) {}

  Capture capture;
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  bool recording = false;
  bool canonical = false;
  std::vector<uint64_t> states;         // as RecordedCircuit has them
  std::shared_ptr<circuit::Plan> plan;  // once canonical
  bool compiled = false;

  bool is_output(const Buffer* buffer) const {
    return std::any_of(outputs.begin(), outputs.end(),
                       [&](const Tensor& t) { return t.buffer().get() == buffer; });
  }
  void check_recorded(const char* what) const;
  void settle();
  std::span<const uint8_t> state_bytes() const {
    return {reinterpret_cast<const uint8_t*>(states.data()), capture.slots().size()};
  }
  circuit::PlanOptions options() const { return {.limits = *capture.device().plan_limits()}; }
  circuit::PlanCache::Key key() const {
    return {&capture.device(), capture.tape().words(), states, options(), capture.slots().size()};
  }
};

void Circuit::State::check_recorded(const char* what) const {
  if (recording) {
    fail(ErrorKind::kState, what,
         ": the circuit is still being recorded; end() the recording first");
  }
  const auto& slots = capture.slots();
  const bool visible = std::any_of(slots.begin(), slots.end(), [this](const Capture::Slot& slot) {
    const auto at = static_cast<size_t>(&slot - capture.slots().data());
    return slot.written && (!slot.value || at < inputs.size() || is_output(slot.buffer.get()));
  });
  if (outputs.empty() && !visible) {
    fail(ErrorKind::kState, what,
         ": nothing that the circuit computes would be seen; declare what run() shall return with "
         "output()");
  }
}

void Circuit::State::settle() {
  const auto& slots = capture.slots();
  states.assign((slots.size() + 7) / 8, 0);
  auto* bytes = reinterpret_cast<uint8_t*>(states.data());
  for (size_t s = 0; s < slots.size(); ++s) {
    const bool given = s < inputs.size() || !slots[s].value;
    const bool live = given || is_output(slots[s].buffer.get());
    bytes[s] =
        static_cast<uint8_t>((live ? circuit::kSlotLive : 0) | (given ? 0 : circuit::kSlotFresh));
  }
}

namespace {

// Buffers that are bound to slots.
class Taken {
 public:
  void add(const Buffer& buffer) {
    if (!all_.insert(&buffer).second) return;
    if (buffer.pool() == PoolKind::kForeign) foreign_.push_back(&buffer);
  }
  // Whether one of them may have memory in common with a buffer, or is it.
  bool meets(const Buffer& buffer) const {
    if (all_.count(&buffer) != 0) return true;
    const auto shares = [&](const Buffer* other) {
      return may_share_bytes(all_bytes(buffer), all_bytes(*other));
    };
    if (buffer.pool() == PoolKind::kForeign) return std::any_of(all_.begin(), all_.end(), shares);
    return std::any_of(foreign_.begin(), foreign_.end(), shares);
  }

 private:
  std::unordered_set<const Buffer*> all_;
  std::vector<const Buffer*> foreign_;
};

}  // namespace

Circuit::Circuit(Device& device) : state_(std::make_unique<State>(device)) {
  if (!device.runs_plans()) {
    fail(ErrorKind::kNotSupported, "Circuit: ", device.name(), " does not run circuits");
  }
}
Circuit::~Circuit() {
  if (state_ != nullptr) end();
}
Circuit::Circuit(Circuit&&) noexcept = default;
Circuit& Circuit::operator=(Circuit&&) noexcept = default;

Tensor Circuit::input(Shape shape, Dtype dtype) {
  State& s = *state_;
  if (s.capture.slots().size() != s.inputs.size() || s.canonical) {
    fail(ErrorKind::kState,
         "Circuit::input: ops are recorded already; declare all inputs before the first op");
  }
  Tensor t = array::fresh(std::move(shape), dtype, s.capture.device());
  if (t.buffer()->nbytes() == 0) {
    fail(ErrorKind::kInvalidArgument, "Circuit::input: shape ", shape_text(t.shape()),
         " has no elements; leave the input out");
  }
  s.capture.slot_of(t.buffer().get(), false);
  s.inputs.push_back(t);
  return t;
}

void Circuit::output(const Tensor& value) {
  State& s = *state_;
  array::check_defined("Circuit::output", value);
  const int64_t slot = s.capture.find(value.buffer().get());
  const bool known = slot >= 0 && (s.capture.slots()[static_cast<size_t>(slot)].written ||
                                   static_cast<size_t>(slot) < s.inputs.size());
  if (!known) {
    fail(ErrorKind::kInvalidArgument,
         "Circuit::output: the circuit neither takes nor computes this "
         "tensor of shape ",
         shape_text(value.shape()), "; give a tensor that was made while recording");
  }
  if (s.canonical) {
    fail(ErrorKind::kState,
         "Circuit::output: the circuit is canonical already; declare outputs "
         "before canonicalize(), compile() or run()");
  }
  s.outputs.push_back(value);
}

void Circuit::begin() {
  State& s = *state_;
  if (s.canonical) {
    fail(ErrorKind::kState, "Circuit::begin: the circuit is canonical already; record another one");
  }
  internal::begin_capture(s.capture);
  s.recording = true;
}

void Circuit::end() noexcept {
  if (!state_->recording) return;
  internal::end_capture(state_->capture);
  state_->recording = false;
}

void Circuit::canonicalize() {
  State& s = *state_;
  s.check_recorded("Circuit::canonicalize");
  if (s.canonical) return;
  // Circuits order what they do by buffer: memory in common would be two to them.
  internal::check_apart(s.capture, "Circuit::canonicalize");
  s.settle();
  s.plan = circuit::make_plan(s.capture.tape().words(), s.state_bytes(), s.options());
  s.canonical = true;
}

void Circuit::compile() {
  canonicalize();
  State& s = *state_;
  if (s.compiled) return;
  s.plan = circuit::plan_cache().get(s.key()).plan;
  s.compiled = true;
}

std::vector<Tensor> Circuit::run(std::span<const Tensor> arguments) {
  compile();
  State& s = *state_;
  Device& device = s.capture.device();
  if (internal::capturing() != nullptr) {
    fail(ErrorKind::kState, "Circuit::run: this thread is recording a circuit; end() that first");
  }
  if (arguments.size() != s.inputs.size()) {
    fail(ErrorKind::kInvalidArgument, "Circuit::run: the circuit has ", s.inputs.size(),
         " inputs, got ", arguments.size(), " tensors");
  }
  const auto& slots = s.capture.slots();
  std::vector<BufferRef> buffers(slots.size());
  Taken taken;
  for (size_t k = s.inputs.size(); k < slots.size(); ++k) {
    if (!slots[k].value) taken.add(*slots[k].buffer);
  }
  std::vector<Tensor> given(arguments.begin(), arguments.end());
  for (size_t k = 0; k < given.size(); ++k) {
    const Tensor& want = s.inputs[k];
    array::check_defined("Circuit::run", given[k]);
    if (given[k].shape() != want.shape() || given[k].dtype() != want.dtype()) {
      fail(ErrorKind::kInvalidArgument, "Circuit::run: input ", k, " is ", dtype_name(want.dtype()),
           shape_text(want.shape()), ", got ", dtype_name(given[k].dtype()),
           shape_text(given[k].shape()));
    }
    if (&array::device_of(given[k]) != &device) {
      fail(ErrorKind::kInvalidArgument, "Circuit::run: input ", k, " is on ",
           array::device_of(given[k]).name(), ", the circuit on ", device.name());
    }
    const bool direct =
        given[k].offset() == 0 && given[k].is_contiguous() && !taken.meets(*given[k].buffer());
    if (!direct && slots[k].written) {
      fail(ErrorKind::kInvalidArgument, "Circuit::run: input ", k,
           " is written by the circuit, so it has to be row-major from its buffer's start and no "
           "other input; copy it first");
    }
    if (!direct) given[k] = array::copy_of(given[k], given[k].dtype());
    taken.add(*given[k].buffer());
    buffers[k] = given[k].buffer();
  }
  for (size_t k = given.size(); k < slots.size(); ++k) {
    const Capture::Slot& slot = slots[k];
    buffers[k] = slot.value ? BufferRef::adopt(allocate_deferred(device, slot.buffer->nbytes()))
                            : slot.buffer;
    if (slot.value) buffers[k]->set_dtype(slot.buffer->dtype());
  }
  std::vector<Tensor> results;
  for (const Tensor& output : s.outputs) {
    const auto slot = static_cast<size_t>(s.capture.find(output.buffer().get()));
    const Tensor whole(buffers[slot]);
    results.push_back(TensorAccess::describe(whole, output.shape(), output.strides(),
                                             output.dtype(), output.offset()));
  }
  std::vector<uint8_t> written(slots.size());
  bool exported = false;
  for (size_t k = 0; k < slots.size(); ++k) {
    written[k] = slots[k].written ? 1 : 0;
    exported = exported || (internal::BufferAccess::recorded(buffers[k].get()).load() &
                            internal::kExported) != 0;
  }
  internal::Recorder::of(device).append_tape(s.capture.tape(), std::move(buffers), written,
                                             s.capture.cost());
  // Foreign code that has an address expects ops to have run when they return.
  if (exported || !is_deferring()) flush(device);
  return results;
}

std::string Circuit::print() const {
  const State& s = *state_;
  std::string text = circuit::print_tape(s.capture.tape().words());
  if (s.plan != nullptr) text.append("\n").append(circuit::print_plan(*s.plan));
  return text;
}

std::string Circuit::json() const {
  const State& s = *state_;
  std::string text = "{\"records\": ";
  text.append(circuit::tape_json(s.capture.tape().words())).append(", \"plan\": ");
  text.append(s.plan != nullptr ? circuit::plan_json(*s.plan) : "null").append("}");
  return text;
}

CircuitStats Circuit::stats() const {
  const State& s = *state_;
  CircuitStats stats;
  stats.ops = s.capture.tape().records();
  if (s.plan == nullptr) return stats;
  const circuit::PlanStats& plan = s.plan->stats;
  return {plan.ops,
          plan.dead,
          plan.kernels,
          plan.live_values,
          plan.bytes_moved,
          plan.bytes_unfused,
          circuit::canonical_hash(*s.plan)};
}

}  // namespace hologram
