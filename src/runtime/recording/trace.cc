// SPDX-License-Identifier: MIT
// Runs circuits launch by launch for traces and profilers, and keeps their times and causes.
#include "hologram/trace.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "hologram/error.h"
#include "src/runtime/recording/capture.h"
#include "src/runtime/recording/recorder.h"
#include "src/runtime/recording/trace_hooks.h"

namespace hologram {
namespace internal {

constinit std::atomic<uint32_t> g_traces{0};
constinit std::atomic<uint32_t> g_watchers{0};
constinit std::atomic<uint32_t> g_noting{0};

namespace {

constinit std::atomic<const LaunchObserver*> g_observer{nullptr};
constinit std::atomic<bool> g_marking{false};
constinit thread_local const char* t_cause = nullptr;

using TracePtr = std::shared_ptr<const CircuitTrace>;

// Ops that ran at their calls, equal ones counted.
class CallNotes {
 public:
  void add(std::string_view op, AtCall why, uint64_t buffer, uint64_t circuit) {
    // Programs call ops of a kind in a row.
    if (last_ < notes_.size() && is(notes_[last_], op, why, buffer, circuit)) {
      ++notes_[last_].count;
      return;
    }
    // Of more kinds than anyone reads only names and reasons are told apart.
    if (notes_.size() >= kMostKinds) buffer = circuit = 0;
    std::string key(op);
    for (const uint64_t part : {static_cast<uint64_t>(why), buffer, circuit}) {
      key.append(reinterpret_cast<const char*>(&part), sizeof part);
    }
    const auto [at, fresh] = places_.emplace(std::move(key), notes_.size());
    if (fresh) notes_.push_back({std::string(op), why, buffer, circuit, 0});
    last_ = at->second;
    ++notes_[last_].count;
  }
  const std::vector<CallNote>& all() const { return notes_; }

 private:
  static constexpr size_t kMostKinds = 1 << 16;

  static bool is(const CallNote& note, std::string_view op, AtCall why, uint64_t buffer,
                 uint64_t circuit) {
    return note.circuit == circuit && note.buffer == buffer && note.why == why && note.op == op;
  }

  std::vector<CallNote> notes_;
  std::unordered_map<std::string, size_t> places_;
  size_t last_ = 0;
};

// Open traces, and the shapes of the plans that ran while they were open.
class Traces {
 public:
  static Traces& get() {
    static Traces* instance = new Traces;  // leaked: circuits may run until the very end
    return *instance;
  }

  uint64_t open(const Device& device, bool at_call) {
    std::lock_guard lock(mutex_);
    open_.push_back({++last_number_, &device, at_call, {}, {}});
    count(at_call, 1);
    return last_number_;
  }

  std::vector<TracePtr> close(uint64_t number) {
    decltype(shapes_) forgotten;
    CallNotes notes;
    std::lock_guard lock(mutex_);
    const auto at = find("stop_tracing", number);
    std::vector<TracePtr> circuits = std::move(at->circuits);
    notes = std::move(at->notes);
    count(at->at_call, -1);
    open_.erase(at);
    if (open_.empty()) forgotten.swap(shapes_);
    return circuits;
  }

  std::vector<CallNote> notes_of(uint64_t number) {
    std::lock_guard lock(mutex_);
    return find("call_notes", number)->notes.all();
  }

  void note(const Device& device, std::string_view op, AtCall why, const Buffer* shared,
            uint64_t circuit) {
    std::lock_guard lock(mutex_);
    for (Open& open : open_) {
      if (open.device != &device || !open.at_call) continue;
      open.notes.add(op, why, reinterpret_cast<uintptr_t>(shared), circuit);
    }
  }

  bool wants(const Device& device) {
    if (g_traces.load(std::memory_order_relaxed) == 0) return false;
    std::lock_guard lock(mutex_);
    for (const Open& open : open_) {
      if (open.device == &device) return true;
    }
    return false;
  }

  void add(const Device& device, const TracePtr& circuit) {
    std::lock_guard lock(mutex_);
    for (Open& open : open_) {
      if (open.device == &device) open.circuits.push_back(circuit);
    }
  }

  // The shape of a plan, made at the first look.
  std::shared_ptr<const CircuitShape> shape_of(const std::shared_ptr<circuit::Plan>& plan,
                                               std::span<const uint64_t> words,
                                               std::span<const uint8_t> states) {
    std::lock_guard lock(mutex_);
    Known& known = shapes_[plan.get()];
    if (known.shape == nullptr) {
      known.plan = plan;
      known.shape = make_shape(*plan, words, states);
    }
    return known.shape;
  }

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  struct Open {
    uint64_t number;
    const Device* device;
    bool at_call;  // ops run at their calls as ever, and are noted
    std::vector<TracePtr> circuits;
    CallNotes notes;
  };
  // The plan is held, so that no other gets its address meanwhile.
  struct Known {
    std::shared_ptr<circuit::Plan> plan;
    std::shared_ptr<const CircuitShape> shape;
  };

  std::vector<Open>::iterator find(const char* function, uint64_t number) {
    const auto at = std::find_if(open_.begin(), open_.end(),
                                 [&](const Open& open) { return open.number == number; });
    if (at == open_.end()) {
      fail(ErrorKind::kInvalidArgument, function, ": there is no open trace ", number,
           "; give the number that start_tracing returned, before it is stopped");
    }
    return at;
  }

  // One trace more or, with a step of -1, one less.
  static void count(bool at_call, int step) {
    const auto more = static_cast<uint32_t>(step);
    g_traces.fetch_add(more, std::memory_order_relaxed);
    g_watchers.fetch_add(more, std::memory_order_relaxed);
    if (at_call) {
      g_noting.fetch_add(more, std::memory_order_relaxed);
    } else {
      see_all(step > 0);
    }
  }

  std::shared_ptr<const CircuitShape> make_shape(const circuit::Plan& plan,
                                                 std::span<const uint64_t> words,
                                                 std::span<const uint8_t> states) {
    auto shape = std::make_shared<CircuitShape>();
    shape->ops_json = circuit::tape_json(words);
    shape->plan_json = circuit::plan_json(plan);
    shape->ops_text = circuit::print_tape(words);
    shape->plan_text = circuit::print_plan(plan);
    circuit::Tape::decode(words, [&](const circuit::Record& record, int) {
      if (record.code == circuit::kCodeCall) {
        // Bits whose meaning only the kind of call knows.
        shape->number_dtypes.insert(shape->number_dtypes.end(), record.call.numbers, Dtype::kInt64);
        return;
      }
      for (int k = 1; k <= record.arity; ++k) {
        const circuit::TapeOperand& operand = record.operands[k];
        if (operand.kind == circuit::OperandKind::kImmediate) {
          shape->number_dtypes.push_back(operand.dtype);
        }
      }
    });
    shape->slot_states.assign(states.begin(), states.end());
    for (const circuit::PlanPart& part : plan.parts) {
      shape->launches.push_back({part.name, part.plan->kernels[0].launch,
                                 static_cast<int>(part.plan->kernels.size()), part.bytes});
    }
    shape->id = ++last_shape_;
    return shape;
  }

  std::mutex mutex_;
  std::vector<Open> open_;
  std::unordered_map<const circuit::Plan*, Known> shapes_;
  uint64_t last_number_ = 0;
  uint64_t last_shape_ = 0;
};

// One plan for each group of a plan's kernels. Stages come in order, so what one needs has run.
void split(circuit::Plan& plan) {
  std::vector<circuit::PlanPart> parts;
  for (const circuit::Kernel& kernel : plan.kernels) {
    if (parts.empty() || parts.back().plan->kernels[0].launch != kernel.launch) {
      circuit::PlanPart& part = parts.emplace_back();
      part.name = circuit::kernel_name(kernel);
      part.plan = std::make_unique<circuit::Plan>();
      part.plan->slots = plan.slots;
      part.plan->stats.groups = 1;
    }
    ++parts.back().plan->stats.kernels;
    parts.back().plan->kernels.push_back(kernel);
    parts.back().bytes += circuit::kernel_bytes(kernel);
    if (!kernel.instrs.empty()) parts.back().elements += kernel.numel();
    std::vector<int>& records = parts.back().records;
    if (kernel.call != nullptr) records.push_back(kernel.call->record);
    for (const circuit::Instr& instr : kernel.instrs) records.push_back(instr.record);
  }
  for (circuit::PlanPart& part : parts) {
    part.operands = circuit::operands_json(part.plan->kernels[0]);
    std::sort(part.records.begin(), part.records.end());
    part.records.erase(std::unique(part.records.begin(), part.records.end()), part.records.end());
    if (!part.records.empty() && part.records[0] < 0) part.records.erase(part.records.begin());
  }
  plan.parts = std::move(parts);
}

// Whole numbers of floating types with a point, as Python has it.
template <class T>
std::string floating_text(T value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char text[40];
  const std::to_chars_result end = std::to_chars(text, text + sizeof text, value);
  std::string out(text, end.ptr);
  return out.find_first_of(".e") == std::string::npos ? out + ".0" : out;
}

const char* why_text(Why why) {
  switch (why) {
    case Why::kAsked:
      return "flush";
    case Why::kPassing:
      return "stream";
    case Why::kBounds:
      return "size";
    case Why::kMemory:
      return "memory";
    case Why::kCall:
      return "call";
    case Why::kMode:
      return "float mode";
    case Why::kAge:
      return "age";
  }
  return "unknown";
}

}  // namespace

bool is_wanted() {
  if (is_traced()) return true;
  const LaunchObserver* observer = g_observer.load(std::memory_order_acquire);
  return observer != nullptr && observer->wanted();
}

const char* exchange_cause(const char* cause) { return std::exchange(t_cause, cause); }

void note_at_call(Device& device, std::string_view op, AtCall why, const Buffer* shared) {
  try {
    Traces::get().note(device, op, why, shared, Recorder::of(device).open_epoch());
  } catch (const std::bad_alloc&) {
    // The op runs, even if no trace has room to tell of it.
  }
}

const char* watch_cause() { return t_cause; }

void* share_observation() {
  const LaunchObserver* observer = g_observer.load(std::memory_order_acquire);
  if (observer == nullptr || observer->share == nullptr || !observer->wanted()) return nullptr;
  return observer->share();
}

bool is_marking() { return g_marking.load(std::memory_order_relaxed); }

uint64_t ask_for_mark() {
  if (!is_marking()) return 0;
  const LaunchObserver* observer = g_observer.load(std::memory_order_acquire);
  return observer != nullptr && observer->mark != nullptr ? observer->mark() : 0;
}

// What the sealing thread shared, in effect for a scope; given back at its end.
class Observation {
 public:
  Observation(const LaunchObserver* observer, void* shared)
      : observer_(shared != nullptr ? observer : nullptr), shared_(shared) {
    if (observer_ != nullptr) observer_->enter(shared_);
  }
  ~Observation() {
    if (observer_ != nullptr) observer_->leave(shared_);
  }
  Observation(const Observation&) = delete;
  Observation& operator=(const Observation&) = delete;

 private:
  const LaunchObserver* const observer_;
  void* const shared_;
};

void drop_observation(void* shared) {
  const Observation unused(g_observer.load(std::memory_order_acquire), shared);
}

void lock_traces() { Traces::get().lock(); }
void unlock_traces() { Traces::get().unlock(); }

bool CircuitRunner::run_watched() {
  const PlannedCircuit* planned = running_->planned.get();
  std::vector<Buffer*> buffers;
  try {
    if (planned == nullptr) {
      for (const RecordedCircuit::Slot& slot : running_->slots) buffers.push_back(slot.buffer);
    } else {
      for (const Capture::Slot& slot : planned->capture.slots()) {
        buffers.push_back(slot.buffer.get());
      }
      size_t next = 0;
      for (const PlannedCircuit::Use& use : planned->uses) {
        buffers[use.slot] = running_->slots[next++].buffer;
      }
    }
  } catch (const std::bad_alloc&) {
    drop_observation(std::exchange(running_->observed, nullptr));
    return false;  // what can run does, even if its trace has no memory
  }
  const std::vector<uint64_t>& numbers = running_->tape.immediates();
  return run_watched({plan_,
                      {bound_.data(), numbers.data()},
                      planned != nullptr ? planned->capture.tape() : running_->tape,
                      planned != nullptr ? planned->states : state_bytes(*running_),
                      buffers,
                      numbers,
                      plan_hit_,
                      running_->cause != nullptr ? running_->cause : why_text(running_->why),
                      running_->sealed_ns,
                      std::exchange(running_->observed, nullptr),
                      running_->epoch,
                      running_->marks});
}

bool CircuitRunner::run_watched(const PlanRun& run) {
  const LaunchObserver* observer = g_observer.load(std::memory_order_acquire);
  const Observation observation(observer, run.observed);
  if (observer != nullptr && !observer->wanted()) observer = nullptr;
  Traces& traces = Traces::get();
  const bool traced = traces.wants(device_);
  if (observer == nullptr && !traced) return false;

  std::shared_ptr<CircuitTrace> trace;
  try {
    if (run.plan->parts.empty()) split(*run.plan);
    if (traced) {
      trace = std::make_shared<CircuitTrace>();
      trace->cause = run.cause;
      trace->plan_hit = run.plan_hit;
      trace->circuit = run.circuit;
      trace->thread = static_cast<uint64_t>(::syscall(SYS_gettid));
      for (const Buffer* buffer : run.buffers) {
        trace->buffers.push_back(reinterpret_cast<uintptr_t>(buffer));
        trace->buffer_bytes.push_back(buffer->nbytes());
      }
      trace->numbers = run.numbers;
      trace->times.reserve(run.plan->parts.size());
    }
  } catch (const std::bad_alloc&) {
    return false;
  }

  const auto finish = [&](bool failed) {
    if (trace == nullptr) return;
    trace->end_ns = now_ns();
    trace->failed = failed;
    try {
      trace->shape = traces.shape_of(run.plan, run.tape.words(), run.states);
      traces.add(device_, trace);
    } catch (const std::bad_alloc&) {
    }
  };
  const int64_t begin_ns = now_ns();
  if (trace != nullptr) {
    trace->begin_ns = begin_ns;
    trace->sealed_ns = run.sealed_ns;
  }
  int kernels = 0;
  std::vector<uint64_t> marks;
  const auto begin_launch = [&](const circuit::PlanPart& part) -> void* {
    if (observer == nullptr) return nullptr;
    try {
      if (run.circuit == 0) {
        marks.assign(run.marks.begin(), run.marks.end());
      } else {
        marks.clear();
        for (const int record : part.records) {
          const auto at = static_cast<size_t>(record);
          if (at < run.marks.size()) marks.push_back(run.marks[at]);
        }
      }
      std::erase(marks, uint64_t{0});
    } catch (const std::bad_alloc&) {
      marks.clear();
    }
    return observer->begin({part.name.c_str(), static_cast<int>(part.plan->kernels.size()),
                            part.bytes, part.elements, part.operands.c_str(), device_.index(),
                            run.circuit, run.cause, marks});
  };
  for (const circuit::PlanPart& part : run.plan->parts) {
    const bool first = part.plan->runs++ == 0;
    void* token = begin_launch(part);
    const int64_t begin = now_ns();
    try {
      device_.run_plan(*part.plan, run.bindings, 0);
    } catch (...) {
      if (observer != nullptr) observer->end(token);
      run.plan->running = kernels + part.plan->running;
      finish(true);
      throw;
    }
    const int64_t end = now_ns();
    kernels += static_cast<int>(part.plan->kernels.size());
    if (observer != nullptr) observer->end(token);
    if (trace != nullptr) trace->times.push_back({begin, end, first});
  }
  finish(false);
  return true;
}

}  // namespace internal

uint64_t start_tracing(Device& device, bool at_call) {
  if (!device.runs_plans()) {
    fail(ErrorKind::kNotSupported, "start_tracing: device ", device.name(), ":", device.index(),
         " runs no plans, so there are no circuits to trace");
  }
  return internal::Traces::get().open(device, at_call);
}

std::vector<CallNote> call_notes(uint64_t trace) { return internal::Traces::get().notes_of(trace); }

std::vector<std::shared_ptr<const CircuitTrace>> stop_tracing(uint64_t trace) {
  return internal::Traces::get().close(trace);
}

std::string number_text(Dtype dtype, uint64_t bits) {
  if (dtype == Dtype::kFloat64) return internal::floating_text(std::bit_cast<double>(bits));
  if (is_floating(dtype)) {
    return internal::floating_text(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  if (dtype == Dtype::kBool) return bits != 0 ? "True" : "False";
  return std::to_string(static_cast<int64_t>(bits));
}

void set_launch_observer(const LaunchObserver* observer) {
  const LaunchObserver* before = internal::g_observer.exchange(observer, std::memory_order_acq_rel);
  internal::g_watchers.fetch_add(uint32_t{observer != nullptr} - uint32_t{before != nullptr},
                                 std::memory_order_relaxed);
}

void set_marking(bool marking) {
  internal::g_marking.store(marking, std::memory_order_relaxed);
  internal::tell_what_is_remembered();
}

}  // namespace hologram
