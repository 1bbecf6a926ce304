// SPDX-License-Identifier: MIT
// The life of recorders: made at first use, brought over a fork, stopped at exit. And what programs
// ask of one and tell it: counts, exports, lines.
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "hologram/error.h"
#include "hologram/memory.h"
#include "hologram/parallel.h"
#include "src/circuit/plan_cache.h"
#include "src/runtime/memory/buffer_access.h"
#include "src/runtime/memory/idle_trim.h"
#include "src/runtime/recording/circuit_check.h"
#include "src/runtime/recording/recorder.h"
#include "src/runtime/recording/trace_hooks.h"
#include "src/runtime/threads/worker_scope.h"

namespace hologram {
namespace internal {

// All recorders, for fork and for what concerns every device.
struct RecorderRegistry {
  std::mutex mutex;
  std::vector<Recorder*> all;

  static RecorderRegistry& get() {
    static RecorderRegistry* instance = [] {
      // Handlers run last registered first: the pools and the workers must still be usable when
      // ours runs circuits, so theirs have to be registered before.
      memory_stats();
      parallel_stats();
      auto* registry = new RecorderRegistry;  // leaked: forks may come until the very end
      pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
      return registry;
    }();
    return *instance;
  }

  // The child finds every recorder between two circuits. Whatever could not be run, or was recorded
  // by other threads in the meantime, is recorded there too.
  static void before_fork() {
    RecorderRegistry& registry = get();
    registry.mutex.lock();
    for (Recorder* recorder : registry.all) {
      try {
        recorder->flush(Why::kPassing);
      } catch (...) {
      }
    }
    for (Recorder* recorder : registry.all) {
      if (!recorder->runs_here()) recorder->runner_.lock();
    }
    for (Recorder* recorder : registry.all) recorder->record_lock_.lock();
    circuit::plan_cache().lock();
    lock_traces();
  }
  static void after_fork_in_parent() { after_fork(/*in_child=*/false); }
  static void after_fork_in_child() { after_fork(/*in_child=*/true); }
  static void after_fork(bool in_child) {
    RecorderRegistry& registry = get();
    unlock_traces();
    circuit::plan_cache().unlock();
    for (Recorder* recorder : registry.all) {
      if (in_child) {
        recorder->worker_.forget_thread();
        recorder->open_->attention |= RecordedCircuit::kWake;
      }
      recorder->record_lock_.unlock();
    }
    for (Recorder* recorder : registry.all) {
      if (!recorder->runs_here()) recorder->runner_.unlock();
    }
    if (!in_child) {
      beside_bell().ring();
      for (Recorder* recorder : registry.all) recorder->call_worker();
    }
    registry.mutex.unlock();
  }

  // Before what a running circuit may use is destroyed. Whatever is recorded then runs where it is
  // asked for.
  static void at_exit() {
    std::vector<Recorder*> all;
    {
      std::lock_guard lock(get().mutex);
      all = get().all;
    }
    for (Recorder* recorder : all) recorder->worker_.stop(/*join=*/false);
    const int64_t until = now_ns() + kExitPatience;
    for (Recorder* recorder : all) {
      while (!recorder->runs_here() && now_ns() < until) {
        if (recorder->runner_.try_lock()) {
          recorder->runner_.unlock();
          break;
        }
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    }
    beside_bell().ring();
  }
  // A thread that ends the process while it holds what a circuit waits for is not waited for.
  static constexpr int64_t kExitPatience = 5'000'000'000;
};

void Recorder::stop_workers_at_exit() {
  static const bool registered = std::atexit(RecorderRegistry::at_exit) == 0;
  (void)registered;
}

void Recorder::call_attention(uint8_t bit, bool set) {
  RecorderRegistry& registry = RecorderRegistry::get();
  std::lock_guard lock(registry.mutex);
  for (Recorder* recorder : registry.all) {
    std::lock_guard record_lock(recorder->record_lock_);
    uint8_t& attention = recorder->open_->attention;
    attention = static_cast<uint8_t>(set ? attention | bit : attention & ~bit);
  }
}

Recorder::Recorder(Device& device) : device_(device), open_(device), runner_(device, record_lock_) {
  open_->attention = RecordedCircuit::kWake;
  if (remembers_sites() || is_marking()) open_->attention |= RecordedCircuit::kSites;
}

Recorder::~Recorder() {
  RecorderRegistry& registry = RecorderRegistry::get();
  {
    std::lock_guard lock(registry.mutex);
    std::erase(registry.all, this);
  }
  worker_.stop(/*join=*/true);
  while (!queue_.empty()) drop_references(*queue_.pop());
  drop_references(*open_);
  for (Buffer* buffer : parted_) buffer->release();
  circuit::plan_cache().forget(&device_);
}

Recorder& Recorder::of(Device& device) {
  if (Recorder* recorder = find(device)) return *recorder;
  RecorderRegistry& registry = RecorderRegistry::get();
  std::lock_guard lock(registry.mutex);
  if (Recorder* recorder = find(device)) return *recorder;
  auto* made = new Recorder(device);
  registry.all.push_back(made);
  device.recorder_.store(made, std::memory_order_release);
  return *made;
}

void Recorder::flush_all() {
  std::vector<Recorder*> all;
  {
    RecorderRegistry& registry = RecorderRegistry::get();
    std::lock_guard lock(registry.mutex);
    all = registry.all;
  }
  std::exception_ptr error;
  for (Recorder* recorder : all) {
    try {
      recorder->flush(Why::kAsked);
    } catch (...) {
      if (error == nullptr) error = std::current_exception();
    }
  }
  if (error != nullptr) std::rethrow_exception(error);
}

// ---- what callers ask of a recorder ----

uint64_t Recorder::open_epoch() {
  const Lock lock(record_lock_);
  return open_->epoch;
}

void Recorder::mark_exported(Buffer* buffer) {
  std::lock_guard lock(record_lock_);
  const uint64_t before =
      BufferAccess::recorded(buffer).fetch_or(kExported, std::memory_order_relaxed);
  uint32_t& exports = BufferAccess::exports(buffer);
  if ((before & kExported) == 0) {
    exports = 1;
  } else if (exports != kForever) {
    ++exports;
  }
}

void Recorder::unmark_exported(Buffer* buffer) noexcept {
  std::lock_guard lock(record_lock_);
  const uint64_t word = BufferAccess::recorded(buffer).load(std::memory_order_relaxed);
  uint32_t& exports = BufferAccess::exports(buffer);
  if ((word & (kExported | kPlaceholder)) != kExported || exports == kForever || --exports != 0) {
    return;
  }
  BufferAccess::recorded(buffer).fetch_and(~kExported, std::memory_order_relaxed);
}

RecorderStats Recorder::stats() {
  RecorderStats s = runner_.stats();
  {
    std::lock_guard lock(record_lock_);
    s.ops_recorded += open_.ops_recorded();
    s.host_kernels = device_.host_kernels() - host_kernels_before_;
    s.host_bytes = device_.host_bytes() - host_bytes_before_;
  }
  s.plans = circuit::plan_cache().stats().plans;
  return s;
}

void Recorder::reset_stats() {
  {
    std::lock_guard lock(record_lock_);
    open_.reset_ops_recorded();
    lone_ = {};
    host_kernels_before_ = device_.host_kernels();
    host_bytes_before_ = device_.host_bytes();
  }
  runner_.reset_stats();
}

bool release_recorded(Device& device) noexcept {
  Recorder* recorder = Recorder::find(device);
  try {
    return recorder != nullptr && recorder->flush(Why::kMemory);
  } catch (...) {
    return false;  // it stays recorded
  }
}

// ---- ops at their call ----

namespace {

// One more pass over operands of this size, in the first-level cache, takes as long as recording an
// op of a chain and its share of finding and binding the plan.
constexpr int64_t kImmediateBytes = 4096;
constexpr int64_t kMostImmediateBytes = int64_t{1} << 40;

// What HOLOGRAM_IMMEDIATE_BYTES gives. Text that is no number is ignored.
int64_t first_immediate_bytes() {
  const char* text = std::getenv("HOLOGRAM_IMMEDIATE_BYTES");
  char* end = nullptr;
  const int64_t wish = text != nullptr ? std::strtoll(text, &end, 10) : kImmediateBytes;
  const bool is_number = end != text && wish >= 0;
  return std::min(is_number ? wish : kImmediateBytes, kMostImmediateBytes) -
         (checks_circuits() ? kSeesAll : 0);
}

}  // namespace

std::atomic<int64_t> g_immediate_bytes{first_immediate_bytes()};

void see_all(bool sees) {
  g_immediate_bytes.fetch_add(sees ? -kSeesAll : kSeesAll, std::memory_order_relaxed);
}

// ---- where ops were recorded ----

namespace {

constinit std::atomic<std::string (*)()> g_site{nullptr};

std::atomic<bool>& wish() {
  static std::atomic<bool> remembers{[] {
    const char* text = std::getenv("HOLOGRAM_RECORD_LINES");
    return text != nullptr && std::string_view(text) == "1";
  }()};
  return remembers;
}

}  // namespace

bool remembers_sites() { return wish().load(std::memory_order_relaxed); }
void set_remembers_sites(bool remembers) {
  wish().store(remembers);
  tell_what_is_remembered();
}

bool find_site(std::string& text) {
  std::string (*const site)() = g_site.load(std::memory_order_acquire);
  if (site == nullptr || !remembers_sites()) return false;
  text = site();
  return true;
}

void tell_what_is_remembered() {
  Recorder::call_attention(RecordedCircuit::kSites, remembers_sites() || is_marking());
}

void materialize_slowly(Buffer& buffer) {
  if ((BufferAccess::recorded(&buffer).load(std::memory_order_relaxed) & kPlaceholder) != 0) {
    fail(ErrorKind::kState, "materialize: this tensor of ", buffer.nbytes(),
         is_capturing_graph()
             ? " bytes is computed by the graph that is being captured, so it has no value yet; "
               "look at it after replay()"
             : " bytes stands for a value of a Circuit, which is known only when the circuit runs; "
               "make it an output and look at what run() returns");
  }
  Recorder& recorder = Recorder::of(buffer.device());
  const uint64_t epoch = buffer.recorded_epoch();
  if (epoch > buffer.device().done_epoch()) {
    if (recorder.runs_here()) {
      fail(ErrorKind::kState,
           "materialize: called by work that the device is running, on a buffer of ",
           buffer.nbytes(), " bytes that waits for this work or for later work; ",
           "materialize what the work needs before it is submitted");
    }
    recorder.flush_buffer(buffer);
  } else {
    recorder.observe(epoch);
  }
  if (buffer.data() == nullptr) recorder.attach(&buffer);
}

}  // namespace internal

int64_t immediate_bytes() {
  const int64_t bytes = internal::g_immediate_bytes.load(std::memory_order_relaxed);
  return (bytes % internal::kSeesAll + internal::kSeesAll) % internal::kSeesAll;
}

void set_immediate_bytes(int64_t bytes) {
  if (bytes < 0) {
    fail(ErrorKind::kInvalidArgument,
         "set_immediate_bytes: takes a number of bytes, 0 or more, got ", bytes);
  }
  bytes = std::min(bytes, internal::kMostImmediateBytes);
  internal::g_immediate_bytes.fetch_add(bytes - immediate_bytes(), std::memory_order_relaxed);
}

void flush(Device& device) {
  internal::trim_if_idle();
  if (internal::Recorder* recorder = internal::Recorder::find(device)) {
    recorder->flush(internal::Why::kAsked);
  }
}

void mark_exported(Buffer& buffer) {
  // Who has an address that the host cannot use looks at nothing behind the device's back.
  if (!buffer.device().is_host_memory()) return;
  internal::Recorder::of(buffer.device()).mark_exported(&buffer);
}

void unmark_exported(Buffer& buffer) noexcept {
  if (!buffer.device().is_host_memory()) return;
  if (internal::Recorder* recorder = internal::Recorder::find(buffer.device())) {
    recorder->unmark_exported(&buffer);
  }
}

bool is_running_circuit() {
  if (in_parallel_region()) return true;
  for (int i = 0; i < device_count(); ++i) {
    const internal::Recorder* recorder = internal::Recorder::find(device(i));
    if (recorder != nullptr && recorder->runs_here()) return true;
  }
  return false;
}

RecorderStats recorder_stats(Device& device) { return internal::Recorder::of(device).stats(); }
void reset_recorder_stats(Device& device) { internal::Recorder::of(device).reset_stats(); }

void Device::run_plan(circuit::Plan&, const circuit::Bindings&, int) {
  fail(ErrorKind::kNotSupported, "run_plan: device ", name(), ":", index_,
       " runs no plans; record no ops on its buffers (see Device::runs_plans)");
}

bool Device::settle() const {
  internal::Recorder* recorder = internal::Recorder::find(*this);
  if (recorder == nullptr || recorder->is_idle()) return true;
  try {
    recorder->flush(internal::Why::kPassing);
  } catch (...) {
    return false;
  }
  return true;
}

void set_record_site(std::string (*site)()) { internal::g_site.store(site); }

}  // namespace hologram
