// SPDX-License-Identifier: MIT
// Finds or makes the plan of a circuit, gives its results memory, and runs it.
#include "src/runtime/recording/circuit_runner.h"

#include <algorithm>
#include <new>
#include <utility>

#include "hologram/error.h"
#include "hologram/memory.h"
#include "src/circuit/plan_cache.h"
#include "src/runtime/memory/buffer_access.h"
#include "src/runtime/memory/memory_watch.h"
#include "src/runtime/recording/capture.h"
#include "src/runtime/recording/circuit_check.h"
#include "src/runtime/recording/trace_hooks.h"
#include "src/runtime/threads/float_mode.h"

namespace hologram::internal {

namespace {

// Whether more memory may make the difference.
bool is_out_of_memory(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return e.kind() == ErrorKind::kOutOfMemory;
  } catch (const std::bad_alloc&) {
    return true;
  } catch (...) {
    return false;
  }
}

// An address that is this thread's alone.
const void* this_thread() {
  static constinit thread_local char t_here = 0;
  return &t_here;
}

}  // namespace

CircuitRunner::Scope::Scope(CircuitRunner& runner) : runner_(runner) {
  runner.thread_.store(this_thread(), std::memory_order_relaxed);
}

CircuitRunner::Scope::~Scope() {
  runner_.thread_.store(nullptr, std::memory_order_relaxed);
  runner_.unlock();
}

bool CircuitRunner::runs_here() const {
  return thread_.load(std::memory_order_relaxed) == this_thread();
}

CircuitRunner::Outcome CircuitRunner::run(RecordedCircuit& circuit, std::exception_ptr& error) {
  running_ = &circuit;
  Outcome outcome = Outcome::kRan;
  try {
    const FloatModeScope mode(circuit.float_mode);
    prepare();
    if (checks_circuits()) [[unlikely]] {
      run_checked();
    } else {
      run_prepared();
    }
  } catch (...) {
    // Preparing changes nothing that could not be done again; an op that ran cannot be repeated.
    error = std::current_exception();
    outcome = plan_ == nullptr && is_out_of_memory(error) ? Outcome::kStuck : Outcome::kFailed;
    error = explained(std::move(error));
  }
  plan_ = nullptr;
  attaching_ = kNoSlot;
  return outcome;
}

// Everything that can fail for lack of memory. Sets plan_ at its end.
void CircuitRunner::prepare() {
  if (running_->planned != nullptr) return prepare_planned();
  const RecordedCircuit& circuit = *running_;
  circuit::PlanOptions options{.limits = *device_.plan_limits(),
                               .float_laws = circuit.float_mode == kDefaultFloatMode};
  std::shared_ptr<circuit::Plan> plan = find_plan(options);
  find_sharing(*plan);
  // Kernels want more dead values at once than the bound allows, ops one by one may not: plan again
  // in segments, each of which makes about half the bound's bytes of them.
  if (sharing_.bytes() > circuit.unbacked_limit) [[unlikely]] {
    const double pieces =
        2.0 * static_cast<double>(circuit.dead_bytes) / static_cast<double>(circuit.unbacked_limit);
    options.segment = std::max(1, static_cast<int>(circuit.tape.records() / pieces));
    plan = find_plan(options);
    find_sharing(*plan);
  }
  const std::vector<uint64_t> marks = marks_by_slot();
  const auto give_memory = [&](uint32_t slot) {
    attaching_ = slot;
    attach(circuit.slots[slot].buffer, marks.empty() ? 0 : marks[slot]);
  };
  for (const uint32_t slot : plan->attach) give_memory(slot);
  const std::vector<uint32_t>& owners = sharing_.owners();
  for (uint32_t k = 0; k < owners.size(); ++k) {
    if (owners[k] == k) give_memory(plan->passing[k].slot);
  }
  attaching_ = kNoSlot;
  const size_t count = circuit.slots.size();
  bound_.resize(count);
  for (size_t s = 0; s < count; ++s) {
    bound_[s] = static_cast<char*>(circuit.slots[s].buffer->data());
  }
  for (uint32_t k = 0; k < owners.size(); ++k) {
    bound_[plan->passing[k].slot] = bound_[plan->passing[owners[k]].slot];
  }
  plan_ = std::move(plan);
}

std::shared_ptr<circuit::Plan> CircuitRunner::find_plan(const circuit::PlanOptions& options) {
  const RecordedCircuit& circuit = *running_;
  return find_plan(circuit::PlanCache::Key{&device_, circuit.tape.words(), circuit.states, options,
                                           circuit.slots.size()});
}

std::shared_ptr<circuit::Plan> CircuitRunner::find_plan(const circuit::PlanCache::Key& key) {
  auto [plan, made] = circuit::plan_cache().get(key);
  plan_hit_ = !made;
  (made ? counts_.misses : counts_.hits).fetch_add(1, std::memory_order_relaxed);
  return plan;
}

// Of the plan's passing values.
void CircuitRunner::find_sharing(const circuit::Plan& plan) {
  passing_bytes_.clear();
  for (const circuit::PassingValue& value : plan.passing) {
    passing_bytes_.push_back(running_->slots[value.slot].buffer->nbytes());
  }
  sharing_.find(plan.passing, passing_bytes_);
}

// As prepare(), for a circuit that has its plan.
void CircuitRunner::prepare_planned() {
  const RecordedCircuit& circuit = *running_;
  const PlannedCircuit& planned = *circuit.planned;
  for (const RecordedCircuit::Slot& slot : circuit.slots) attach(slot.buffer);
  bound_ = planned.memory.bound;
  size_t next = 0;
  const auto bind = [&](uint32_t slot) {
    bound_[slot] = static_cast<char*>(circuit.slots[next++].buffer->data());
  };
  for (const PlannedCircuit::Use& use : planned.uses) bind(use.slot);
  for (const uint32_t slot : planned.outside) bind(slot);
  plan_hit_ = true;
  counts_.hits.fetch_add(1, std::memory_order_relaxed);
  plan_ = planned.plan;
}

void CircuitRunner::attach(Buffer* buffer, uint64_t mark) {
  if (buffer->data() != nullptr || buffer->nbytes() == 0) return;
  Buffer* donor = allocate_for(device_, buffer->nbytes(), mark);
  {
    std::lock_guard lock(record_lock_);
    if (buffer->data() == nullptr) adopt_memory(buffer, std::exchange(donor, nullptr));
  }
  if (donor != nullptr) donor->release();
}

void CircuitRunner::run_prepared() {
  count(*plan_);
  if (running_->sealed_ns != 0 && run_watched()) [[unlikely]]
    return;
  if (plan_->kernels.empty()) return;
  device_.run_plan(*plan_, {bound_.data(), running_->tape.immediates().data()}, 0);
}

void CircuitRunner::run_checked() {
  if (!device_.is_host_memory()) return run_prepared();
  const RecordedCircuit& circuit = *running_;
  const PlannedCircuit* planned = circuit.planned.get();
  std::vector<size_t> sizes;
  if (planned != nullptr) {
    for (const Capture::Slot& slot : planned->capture.slots()) {
      sizes.push_back(slot.buffer->nbytes());
    }
  } else {
    for (const RecordedCircuit::Slot& slot : circuit.slots) sizes.push_back(slot.buffer->nbytes());
  }
  const CircuitCheck check(
      device_, planned != nullptr ? planned->capture.tape().words() : circuit.tape.words(),
      planned != nullptr ? std::span<const uint8_t>(planned->states) : state_bytes(circuit),
      std::move(sizes), bound_, circuit.tape.immediates().data());
  run_prepared();
  check.compare(*plan_, bound_);
}

void CircuitRunner::run_plan(PlanRun run, uint32_t float_mode) {
  const FloatModeScope mode(float_mode);
  count(*run.plan);
  if (is_watched()) [[unlikely]] {
    run.sealed_ns = now_ns();
    run.observed = share_observation();
    const uint64_t mark = ask_for_mark();
    run.marks = {&mark, 1};
    if (run_watched(run)) return;
  }
  device_.run_plan(*run.plan, run.bindings, 0);
}

bool CircuitRunner::run_op(uint16_t code, Dtype compute, const RecordOperand* operands, int arity,
                           int64_t n, uint32_t float_mode) {
  Buffer* buffers[circuit::kMaxArity + 1];
  char* bound[circuit::kMaxArity + 1];
  uint64_t states = 0;
  size_t count = 0;
  Buffer* const result = operands[0].buffer;
  if (result->data() != nullptr || result->pool() != PoolKind::kDeferred) return false;
  try {
    op_.clear();
    uint64_t* word = op_.begin_flat(code, compute, arity, n);
    for (int k = 0; k <= arity; ++k) {
      const RecordOperand& operand = operands[k];
      if (is_complex(operand.dtype)) return false;
      if (operand.buffer == nullptr) {
        word = op_.put_number(word, operand.dtype, operand.bits);
        continue;
      }
      const size_t slot = std::find(buffers, buffers + count, operand.buffer) - buffers;
      if (slot == count) {
        if (!may_be_recorded(*operand.buffer, device_)) return false;
        if (k > 0 && operand.buffer->data() == nullptr) return false;
        buffers[count++] = operand.buffer;
        states |= uint64_t{circuit::kSlotLive} << 8 * slot;
      } else if (slot == 0) {
        return false;
      }
      word = circuit::Tape::put_memory(word, operand.one, operand.dtype,
                                       static_cast<uint32_t>(slot), operand.offset);
    }
    op_.end_record(word);
    states |= circuit::kSlotFresh;
    const FloatModeScope mode(float_mode);
    const bool float_laws = float_mode == kDefaultFloatMode;
    if (op_plan_ == nullptr || op_states_ != states || op_laws_ != float_laws ||
        !std::ranges::equal(op_words_, op_.words())) {
      op_plan_ = nullptr;
      op_words_.assign(op_.words().begin(), op_.words().end());
      op_states_ = states, op_laws_ = float_laws;
      op_plan_ = find_plan({&device_,
                            op_words_,
                            {&states, 1},
                            {.limits = *device_.plan_limits(), .float_laws = float_laws},
                            count});
    } else {
      counts_.hits.fetch_add(1, std::memory_order_relaxed);
    }
    attach(result);
    for (size_t s = 0; s < count; ++s) bound[s] = static_cast<char*>(buffers[s]->data());
    if (!op_plan_->kernels.empty()) {
      device_.run_plan(*op_plan_, {bound, op_.immediates().data()}, 0);
    }
    // What failed is recorded, and counted when it runs again.
    this->count(*op_plan_);
    counts_.ops.fetch_add(1, std::memory_order_relaxed);
    return true;
  } catch (...) {
    return false;
  }
}

void CircuitRunner::count(circuit::Plan& plan) {
  const circuit::PlanStats& stats = plan.stats;
  counts_.circuits.fetch_add(1, std::memory_order_relaxed);
  counts_.kernels.fetch_add(static_cast<uint64_t>(stats.kernels), std::memory_order_relaxed);
  counts_.moved.fetch_add(static_cast<uint64_t>(stats.bytes_moved), std::memory_order_relaxed);
  counts_.unfused.fetch_add(static_cast<uint64_t>(stats.bytes_unfused), std::memory_order_relaxed);
  ++plan.runs;
}

RecorderStats CircuitRunner::stats() const {
  RecorderStats s;
  s.ops_recorded = counts_.ops.load(std::memory_order_relaxed);
  s.circuits = counts_.circuits.load(std::memory_order_relaxed);
  s.kernels = counts_.kernels.load(std::memory_order_relaxed);
  s.plan_hits = counts_.hits.load(std::memory_order_relaxed);
  s.plan_misses = counts_.misses.load(std::memory_order_relaxed);
  s.bytes_moved = counts_.moved.load(std::memory_order_relaxed);
  s.bytes_unfused = counts_.unfused.load(std::memory_order_relaxed);
  return s;
}

void CircuitRunner::reset_stats() {
  for (auto* count : {&counts_.ops, &counts_.circuits, &counts_.kernels, &counts_.hits,
                      &counts_.misses, &counts_.moved, &counts_.unfused}) {
    count->store(0, std::memory_order_relaxed);
  }
}

// ---- errors and marks ----

// For each slot of running_ the mark of the first op that writes it, else
// of the first that reads it. Empty where there are no marks, or no one watches memory.
std::vector<uint64_t> CircuitRunner::marks_by_slot() const {
  const std::vector<uint64_t>& marks = running_->marks;
  if (marks.empty() || !is_memory_watched()) return {};
  std::vector<uint64_t> found(running_->slots.size()), readers(found.size());
  circuit::Tape::decode(running_->tape.words(), [&](const circuit::Record& record, int index) {
    const auto at = static_cast<size_t>(index);
    const uint64_t mark = at < marks.size() ? marks[at] : 0;
    const auto touches = [&](uint32_t slot, bool writes) {
      std::vector<uint64_t>& marks_of = writes ? found : readers;
      if (marks_of[slot] == 0) marks_of[slot] = mark;
    };
    if (record.code != circuit::kCodeCall) {
      for (int k = 0; k <= record.arity; ++k) {
        const circuit::TapeOperand& operand = record.operands[k];
        if (operand.kind != circuit::OperandKind::kImmediate) touches(operand.slot, k == 0);
      }
      return;
    }
    for (size_t k = 0; k < record.call.operands(); ++k) {
      const circuit::CallSlot operand = record.call.operand(k);
      if (operand.present) touches(operand.slot, operand.writes);
    }
  });
  for (size_t s = 0; s < found.size(); ++s) {
    if (found[s] == 0) found[s] = readers[s];
  }
  return found;
}

// Which record of running_ the error is about, -1 if that is not known, and
// what is to be said of it.
int CircuitRunner::failing_record(std::string& context) const {
  int found = -1;
  if (plan_ == nullptr) {
    if (attaching_ == kNoSlot) return -1;
    context = "for a result that was deferred";
    circuit::Tape::decode(running_->tape.words(), [&](const circuit::Record& record, int index) {
      if (found >= 0) return;
      bool writes = record.code != circuit::kCodeCall && record.operands[0].slot == attaching_;
      if (record.code == circuit::kCodeCall) {
        for (size_t k = 0; k < record.call.operands(); ++k) {
          const circuit::CallSlot operand = record.call.operand(k);
          writes |= operand.present && operand.writes && operand.slot == attaching_;
        }
      }
      if (writes) found = index;
    });
    return found;
  }
  const auto index = static_cast<size_t>(plan_->running);
  if (index >= plan_->kernels.size()) return -1;  // all of them ran
  const circuit::Kernel& kernel = plan_->kernels[index];
  context = "in " + circuit::kernel_name(kernel) + ", which was deferred";
  if (kernel.call != nullptr) return kernel.call->record;
  return kernel.instrs.empty() ? -1 : kernel.instrs[0].record;
}

// The error of running_, with what it is about and where that was recorded.
std::exception_ptr CircuitRunner::explained(std::exception_ptr error) const {
  std::string context;
  int record = failing_record(context);
  if (running_->planned != nullptr) record = 0;  // the line of the call
  if (context.empty()) return error;
  const std::vector<std::string>& sites = running_->sites;
  const bool known = record >= 0 && static_cast<size_t>(record) < sites.size() &&
                     !sites[static_cast<size_t>(record)].empty();
  if (known) context += ", recorded at " + sites[static_cast<size_t>(record)];
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return std::make_exception_ptr(Error(e.kind(), e.what() + (" (" + context + ")")));
  } catch (const std::exception& e) {
    // Others' exceptions keep their type where there is no line to tell.
    if (known) {
      return std::make_exception_ptr(
          Error(plan_ == nullptr ? ErrorKind::kOutOfMemory : ErrorKind::kInternal,
                e.what() + (" (" + context + ")")));
    }
  } catch (...) {
  }
  return error;
}

}  // namespace hologram::internal
