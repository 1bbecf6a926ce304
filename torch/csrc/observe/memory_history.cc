// SPDX-License-Identifier: MIT
// The history of allocations, in the form that torch.cuda.memory gives it.
#include "observe/memory_history.h"

#include <pybind11/stl.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device/tensor.h"
#include "hologram/device.h"
#include "hologram/memory.h"
#include "hologram/parallel.h"
#include "observe/op_marks.h"

namespace hologram_torch {
namespace {

namespace py = pybind11;
using Lines = std::shared_ptr<c10::GatheredContext>;

// Which events get lines: of live blocks, of allocations in the past, of their ends too.
enum class LinesFor : int { kNone, kState, kAlloc, kAll };

struct HistoryEvent {
  const char* action;
  uintptr_t address;
  size_t bytes;
  int device;
  int64_t time_us;
  Lines lines;
  size_t available = 0;  // of an "oom"
};

// Results get memory when their circuit runs, a bounded number of ops after they were recorded:
// what one thread records and what waits to run are fewer than this.
constexpr size_t kMarksKept = size_t{1} << 16;

struct History {
  std::atomic<bool> on{false};
  std::atomic<LinesFor> lines_for{LinesFor::kNone};

  std::mutex mutex;  // everything below
  bool keeps_events = false;
  size_t max_events = 0;
  std::set<std::string> skipped;
  std::deque<HistoryEvent> events;
  std::unordered_map<uintptr_t, Lines> live;
  std::vector<std::pair<uint64_t, Lines>> marked;  // by mark modulo kMarksKept

  static History& get() {
    static History* instance = new History;  // leaked: memory is freed until the very end
    return *instance;
  }

  void add(const char* action, const hologram::MemoryEvent& event, Lines lines,
           size_t available = 0) {
    if (!keeps_events || max_events == 0 || skipped.contains(action)) return;
    if (events.size() == max_events) events.pop_front();
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    events.push_back({action, event.address, event.bytes, event.device,
                      std::chrono::duration_cast<std::chrono::microseconds>(now).count(),
                      std::move(lines), available});
  }
};

// The lines of this thread, where it runs Python and may wait for the GIL: a thread that is running
// a circuit may not, for one that has the GIL may wait for that circuit.
Lines lines_here() {
  if (!Py_IsInitialized()) return nullptr;
  const bool may_wait =
      PyGILState_GetThisThreadState() != nullptr && !hologram::is_running_circuit();
  return PyGILState_Check() || may_wait ? gather_lines() : nullptr;
}

Lines lines_of(History& history, uint64_t mark) {
  if (history.marked.empty()) return nullptr;
  const auto& [known, lines] = history.marked[mark % kMarksKept];
  return known == mark ? lines : nullptr;
}

void note(const hologram::MemoryEvent& event) {
  using Kind = hologram::MemoryEvent::Kind;
  History& history = History::get();
  if (!history.on.load(std::memory_order_acquire)) return;
  try {
    const LinesFor wanted = history.lines_for.load(std::memory_order_relaxed);
    const bool ends = event.kind == Kind::kFree || event.kind == Kind::kUnreserve;
    Lines lines;
    if (event.mark == 0 && wanted >= (ends ? LinesFor::kAll : LinesFor::kState)) {
      lines = lines_here();
    }
    size_t available = 0;
    if (event.kind == Kind::kOutOfMemory) {
      available = hologram::device(event.device).memory_info().available;
    }
    const std::lock_guard lock(history.mutex);
    if (event.mark != 0) lines = lines_of(history, event.mark);
    const Lines past = wanted >= LinesFor::kAlloc ? lines : nullptr;
    switch (event.kind) {
      case Kind::kAllocate:
        history.live[event.address] = lines;
        history.add("alloc", event, past);
        break;
      case Kind::kFree:
        history.live.erase(event.address);
        history.add("free_requested", event, past);
        history.add("free_completed", event, past);
        break;
      case Kind::kReserve:
        history.add("segment_alloc", event, past);
        break;
      case Kind::kUnreserve:
        history.add("segment_free", event, past);
        break;
      case Kind::kOutOfMemory:
        history.add("oom", event, past, available);
        break;
    }
  } catch (const std::bad_alloc&) {  // memory matters more than its history
  }
}

void record_memory_history(bool on, bool keeps_events, int lines_for, size_t max_events, bool clear,
                           std::set<std::string> skipped) {
  History& history = History::get();
  std::deque<HistoryEvent> forgotten;
  {
    const std::lock_guard lock(history.mutex);
    if (!on || clear) {
      forgotten.swap(history.events);
      history.live.clear();
      history.marked.clear();
    }
    history.keeps_events = keeps_events;
    history.max_events = max_events;
    history.skipped = std::move(skipped);
    while (history.events.size() > max_events) history.events.pop_front();
    if (on) history.marked.resize(kMarksKept);
  }
  history.lines_for.store(static_cast<LinesFor>(lines_for));
  history.on.store(on, std::memory_order_release);
  hologram::set_memory_observer(on ? &note : nullptr);
  use_marks(MarkUse::kMemoryHistory, on);
}

// Frames as lists of dicts, each list made once.
class Frames {
 public:
  explicit Frames(const std::vector<Lines>& all) {
    std::vector<torch::CapturedTraceback*> stacks;
    for (const Lines& lines : all) {
      if (lines == nullptr || !places_.emplace(lines.get(), stacks.size()).second) continue;
      stacks.push_back(torch::getCapturedTracebackFromContext(lines));
    }
    if (stacks.empty()) return;
    const torch::SymbolizedTracebacks symbols = torch::symbolize(stacks);
    std::vector<py::dict> frames;
    for (const torch::unwind::Frame& frame : symbols.all_frames) {
      py::dict d;
      d["name"] = frame.funcname;
      d["filename"] = frame.filename;
      d["line"] = frame.lineno;
      frames.push_back(std::move(d));
    }
    for (const auto& trace : symbols.tracebacks) {
      py::list list;
      for (const uint64_t at : trace) list.append(frames[at]);
      lists_.push_back(std::move(list));
    }
  }
  py::list of(const Lines& lines) const {
    const auto at = places_.find(lines.get());
    return at == places_.end() ? py::list() : lists_[at->second];
  }

 private:
  std::unordered_map<const c10::GatheredContext*, size_t> places_;
  std::vector<py::list> lists_;
};

py::list event_dicts(const std::deque<HistoryEvent>& events, int device, const Frames& frames) {
  py::list list;
  for (const HistoryEvent& event : events) {
    if (event.device != device) continue;
    py::dict d;
    d["action"] = event.action;
    d[event.action == std::string("oom") ? "device_free" : "addr"] =
        event.action == std::string("oom") ? event.available : event.address;
    d["size"] = event.bytes;
    d["stream"] = 0;
    d["time_us"] = event.time_us;
    d["frames"] = frames.of(event.lines);
    d["compile_context"] = "N/A";
    d["user_metadata"] = "";
    d["pool_id"] = py::make_tuple(0, 0);
    list.append(std::move(d));
  }
  return list;
}

py::dict segment_dict(const hologram::MemorySegment& segment, int device, const Frames& frames,
                      const std::unordered_map<uintptr_t, Lines>& live) {
  size_t active = 0, requested = 0;
  py::list blocks;
  for (const hologram::MemoryBlock& block : segment.blocks) {
    active += block.active ? block.bytes : 0;
    requested += block.requested;
    const auto at = live.find(block.address);
    py::dict d;
    d["address"] = block.address;
    d["size"] = block.bytes;
    d["requested_size"] = block.requested;
    d["state"] = block.active ? "active_allocated" : "inactive";
    d["frames"] = block.active && at != live.end() ? frames.of(at->second) : py::list();
    blocks.append(std::move(d));
  }
  py::dict d;
  d["device"] = device;
  d["address"] = segment.address;
  d["total_size"] = segment.bytes;
  d["allocated_size"] = active;
  d["active_size"] = active;
  d["requested_size"] = requested;
  d["stream"] = 0;
  d["segment_type"] = segment.large ? "large" : "small";
  d["segment_pool_id"] = py::make_tuple(0, 0);
  d["is_expandable"] = false;
  d["frames"] = py::list();
  d["blocks"] = std::move(blocks);
  return d;
}

py::dict memory_snapshot() {
  History& history = History::get();
  std::vector<std::vector<hologram::MemorySegment>> memory;
  std::deque<HistoryEvent> events;
  std::unordered_map<uintptr_t, Lines> live;
  {
    const py::gil_scoped_release free;
    flush_recorded();
    bool host_listed = false;
    for (c10::DeviceIndex i = 0; i < device_count(); ++i) {
      const bool shared = is_host_device(i) && std::exchange(host_listed, true);
      memory.push_back(shared ? std::vector<hologram::MemorySegment>()
                              : hologram::list_memory(memory_device(i)));
    }
    const std::lock_guard lock(history.mutex);
    if (history.on.load()) history.add("snapshot", {}, nullptr);
    events = history.events;
    live = history.live;
  }
  std::vector<Lines> lines;
  lines.reserve(events.size() + live.size());
  for (const HistoryEvent& event : events) lines.push_back(event.lines);
  for (const auto& [address, of_block] : live) lines.push_back(of_block);
  const Frames frames(lines);
  py::list segments, traces;
  for (size_t i = 0; i < memory.size(); ++i) {
    for (const hologram::MemorySegment& segment : memory[i]) {
      segments.append(segment_dict(segment, static_cast<int>(i), frames, live));
    }
    traces.append(event_dicts(events, static_cast<int>(i), frames));
  }
  py::dict settings;
  settings["memory_limit"] = hologram::memory_limit();
  settings["max_cached_bytes"] = hologram::max_cached_bytes();
  py::dict result;
  result["segments"] = std::move(segments);
  result["device_traces"] = std::move(traces);
  result["allocator_settings"] = std::move(settings);
  result["external_annotations"] = py::list();
  return result;
}

py::object allocation_lines(uintptr_t address) {
  Lines lines;
  {
    History& history = History::get();
    const std::lock_guard lock(history.mutex);
    const auto at = history.live.find(address);
    if (at != history.live.end()) lines = at->second;
  }
  if (lines == nullptr) return py::none();
  return Frames({lines}).of(lines);
}

}  // namespace

bool wants_lines_of_results() {
  const History& history = History::get();
  return history.on.load(std::memory_order_relaxed) &&
         history.lines_for.load(std::memory_order_relaxed) != LinesFor::kNone;
}

void remember_result(uint64_t mark, Lines lines) {
  History& history = History::get();
  const std::lock_guard lock(history.mutex);
  if (history.marked.empty()) return;
  history.marked[mark % kMarksKept] = {mark, std::move(lines)};
}

void bind_memory_history(py::module_& m) {
  m.def("record_memory_history", &record_memory_history, py::arg("on"), py::arg("keeps_events"),
        py::arg("lines_for"), py::arg("max_events"), py::arg("clear"), py::arg("skipped"),
        py::call_guard<py::gil_scoped_release>());
  m.def("memory_snapshot", &memory_snapshot);
  m.def("allocation_lines", &allocation_lines, py::arg("address"));
}

}  // namespace hologram_torch
