// SPDX-License-Identifier: MIT
// A Kineto activity profiler for the device. Compiled by itself: Kineto's headers want definitions.
#include "observe/kineto.h"

#if __has_include(<torch/csrc/profiler/standalone/privateuse1_profiler.h>)

#include <c10/util/ApproximateClock.h>
#include <libkineto.h>
#include <output_base.h>
#include <torch/csrc/profiler/combined_traceback.h>
#include <torch/csrc/profiler/orchestration/observer.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "device/memory_profile.h"
#include "hologram/device.h"
#include "observe/op_marks.h"

namespace hologram_torch {
namespace {

using libkineto::ActivityType;
using libkineto::GenericTraceActivity;
using libkineto::ITraceActivity;

// An op when it was recorded.
struct MarkedOp {
  uint64_t mark = 0;
  uint64_t operator_id = 0;  // Kineto's correlation id of the operator that it is in; 0: none
  c10::approx_time_t time = 0;
  std::shared_ptr<c10::GatheredContext> lines;  // null: not asked for
};

struct KernelEvent {
  std::string name, operands, cause;
  int kernels = 0, device = 0;
  int64_t bytes = 0, elements = 0;
  uint64_t circuit = 0;
  int32_t thread = 0;
  std::vector<uint64_t> marks;
  c10::approx_time_t begin = 0, end = 0;
};

// What is collected between the start and the end of one profile. Tokens hold it, so that a launch
// may outlast it.
class Collection {
 public:
  void add(MarkedOp op) {
    const std::lock_guard lock(mutex_);
    marks_.push_back(std::move(op));
  }
  void add(KernelEvent event) {
    const std::lock_guard lock(mutex_);
    kernels_.push_back(std::move(event));
  }
  // Where a mark is among marks(); -1: it was made before.
  int64_t find(uint64_t mark) const {
    const auto at =
        std::lower_bound(marks_.begin(), marks_.end(), mark,
                         [](const MarkedOp& op, uint64_t wanted) { return op.mark < wanted; });
    return at != marks_.end() && at->mark == mark ? at - marks_.begin() : -1;
  }
  const std::vector<KernelEvent>& kernels() const { return kernels_; }
  const std::vector<MarkedOp>& marks() const { return marks_; }

  void push_operator(uint64_t id) {
    const std::lock_guard lock(mutex_);
    operators_[pthread_self()].push_back(id);
  }
  void pop_operator() {
    const std::lock_guard lock(mutex_);
    const auto at = operators_.find(pthread_self());
    // What began before the collection ends in it.
    if (at != operators_.end() && !at->second.empty()) at->second.pop_back();
  }
  uint64_t innermost_operator() {
    const std::lock_guard lock(mutex_);
    const auto at = operators_.find(pthread_self());
    return at == operators_.end() || at->second.empty() ? 0 : at->second.back();
  }

  // Whether the profiler wants lines of Python. Known where one of its threads asks.
  bool wants_stacks() {
    int known = stacks_.load(std::memory_order_relaxed);
    if (known == kUnknown && torch::profiler::impl::profilerEnabled()) {
      known = torch::profiler::impl::getProfilerConfig().with_stack;
      stacks_.store(known, std::memory_order_relaxed);
    }
    return known == 1;
  }

 private:
  static constexpr int kUnknown = -1;
  std::mutex mutex_;
  std::vector<MarkedOp> marks_;  // ascending
  std::vector<KernelEvent> kernels_;
  std::unordered_map<pthread_t, std::vector<uint64_t>> operators_;
  std::atomic<int> stacks_{kUnknown};
};

// The collection that is on. One at a time, as Kineto has it.
struct Current {
  std::atomic<bool> on{false};
  std::mutex mutex;
  std::shared_ptr<Collection> collection;

  static Current& get() {
    static Current* instance = new Current;  // leaked: workers may ask until the very end
    return *instance;
  }
  std::shared_ptr<Collection> look() {
    if (!on.load(std::memory_order_acquire)) return nullptr;
    const std::lock_guard lock(mutex);
    return collection;
  }
  std::shared_ptr<Collection> begin() {
    auto made = std::make_shared<Collection>();
    {
      const std::lock_guard lock(mutex);
      collection = made;
      on.store(true, std::memory_order_release);
    }
    use_marks(MarkUse::kTimeline, true);
    return made;
  }
  // Does nothing where another collection has begun since: Kineto drops a profile for a new one.
  void end(const std::shared_ptr<Collection>& ended) {
    {
      const std::lock_guard lock(mutex);
      if (collection != ended) return;
      on.store(false, std::memory_order_release);
      collection = nullptr;
    }
    use_marks(MarkUse::kTimeline, false);
  }
};

struct Token {
  std::shared_ptr<Collection> collection;
  KernelEvent event;
};

std::string json_text(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      (out += '\\') += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      ((out += "\\u00") += kHex[c >> 4]) += kHex[c & 15];
    } else {
      out += c;
    }
  }
  return out += '"';
}

std::string json_list(const std::vector<std::string>& items) {
  std::string out = "[";
  for (const std::string& item : items) {
    if (out.size() > 1) out += ", ";
    out += item;
  }
  return out += ']';
}

// An op of a kernel: which operator recorded it, and when.
struct Origin {
  const ITraceActivity* op = nullptr;
  uint32_t flow = 0;
  int64_t time = 0;
};

// A launch on the device's track. What it adds to a file that is saved: the arrows from the
// operators, each between two marks without duration, and the operators' shapes, which PyTorch
// knows only then.
class KernelActivity final : public GenericTraceActivity {
 public:
  using GenericTraceActivity::GenericTraceActivity;
  std::vector<Origin> origins;

  void log(libkineto::ActivityLogger& logger) const override {
    std::vector<std::string> dims;
    bool known = false;
    for (const Origin& origin : origins) {
      std::string text = origin.op->getMetadataValue("Input Dims");
      known = known || !text.empty();
      dims.push_back(text.empty() ? "[]" : std::move(text));
    }
    // The object is not const; the interface has no other moment for this.
    if (known) const_cast<KernelActivity*>(this)->addMetadata("Input Dims", json_list(dims));
    GenericTraceActivity::log(logger);
    for (const Origin& origin : origins) {
      if (origin.flow != flow.id) log_mark(logger, *this, startTime, origin, false);
      log_mark(logger, *origin.op, origin.time, origin, true);
    }
  }

 private:
  void log_mark(libkineto::ActivityLogger& logger, const ITraceActivity& where, int64_t time,
                const Origin& origin, bool starts) const {
    GenericTraceActivity mark(*traceSpan(), ActivityType::PRIVATEUSE1_RUNTIME,
                              starts ? "hologram::record" : origin.op->name());
    mark.startTime = mark.endTime = time;
    mark.device = static_cast<int32_t>(where.deviceId());
    mark.resource = where.resourceId();
    mark.threadId = where.getThreadId();
    mark.flow.id = origin.flow;
    mark.flow.type = libkineto::kLinkAsyncCpuGpu;
    mark.flow.start = starts;
    logger.handleGenericActivity(mark);
  }
};

// "model.py:12 in forward": the innermost line of the program, or of PyTorch where it has none.
std::string own_line(const torch::SymbolizedTracebacks& symbols, size_t trace) {
  const torch::unwind::Frame* best = nullptr;
  for (const uint64_t at : symbols.tracebacks[trace]) {
    const torch::unwind::Frame& frame = symbols.all_frames[at];
    const bool is_theirs = is_library_file(frame.filename);
    if (best == nullptr || !is_theirs) best = &frame;
    if (!is_theirs) break;
  }
  if (best == nullptr) return {};
  return best->filename + ":" + std::to_string(best->lineno) + " in " + best->funcname;
}

// Counts a profile among those that may ask for memory while it collects.
class CountedProfile {
 public:
  ~CountedProfile() { stop(); }
  void start() {
    if (!std::exchange(on_, true)) begin_memory_profile();
  }
  void stop() {
    if (std::exchange(on_, false)) end_memory_profile();
  }

 private:
  bool on_ = false;
};

// Of a profile that wants no device events.
class QuietSession final : public libkineto::IActivityProfilerSession {
 public:
  void start() override { counted_.start(); }
  void stop() override { counted_.stop(); }
  std::vector<std::string> errors() override { return {}; }
  void processTrace(libkineto::ActivityLogger&) override {}
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override { return nullptr; }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override { return {}; }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return nullptr; }

 private:
  CountedProfile counted_;
};

class Session final : public libkineto::IActivityProfilerSession {
 public:
  ~Session() override {
    if (collecting_) Current::get().end(collection_);
  }

  void start() override {
    counted_.start();
    clock_ = std::make_unique<c10::ApproximateClockToUnixTimeConverter>();
    collection_ = Current::get().begin();
    collecting_ = true;
    status_ = libkineto::TraceStatus::RECORDING;
  }
  void stop() override {
    counted_.stop();
    if (!std::exchange(collecting_, false)) return;
    Current::get().end(collection_);
    status_ = libkineto::TraceStatus::PROCESSING;
  }
  std::vector<std::string> errors() override { return {}; }

  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(
        logger, [](int32_t) { return nullptr; }, 0, 0);
  }
  void processTrace(libkineto::ActivityLogger& logger,
                    libkineto::getLinkedActivityCallback linked_activity, int64_t,
                    int64_t) override {
    if (collection_ == nullptr) return;
    const auto unix_time = clock_->makeConverter();
    const std::vector<std::string> lines = symbolize();
    buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
    buffer_->span.name = "hologram";
    buffer_->gpuOpCount = static_cast<int>(collection_->kernels().size());
    int32_t id = 0;
    for (const KernelEvent& event : collection_->kernels()) {
      auto activity = std::make_unique<KernelActivity>(buffer_->span,
                                                       ActivityType::CONCURRENT_KERNEL, event.name);
      activity->startTime = unix_time(event.begin);
      activity->endTime = std::max(unix_time(event.end), activity->startTime);
      activity->device = event.device;
      activity->threadId = event.thread;
      activity->id = ++id;
      describe(*activity, event, lines);
      link(*activity, event, linked_activity, unix_time);
      devices_.insert(event.device);
      logger.handleActivity(*activity);
      buffer_->activities.push_back(std::move(activity));
    }
    for (const int device : devices_) {
      if (device != 0) logger.handleDeviceInfo(info_of(device), 0);
    }
  }

  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    return std::make_unique<libkineto::DeviceInfo>(info_of(0));
  }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    std::vector<libkineto::ResourceInfo> rows;
    for (const int device : devices_) rows.push_back({0, 0, device, "kernels"});
    return rows;
  }
  std::string getDeviceProperties() override {
    std::vector<std::string> all;
    for (int i = 0; i < hologram::device_count(); ++i) {
      const hologram::DeviceProperties p = hologram::device(i).properties();
      all.push_back("{\"id\": " + std::to_string(i) + ", \"name\": " + json_text(p.name) +
                    ", \"totalGlobalMem\": " + std::to_string(p.total_memory) +
                    ", \"numSms\": " + std::to_string(p.processors) + "}");
    }
    const std::string text = json_list(all);
    return text.substr(1, text.size() - 2);
  }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override {
    return std::move(buffer_);
  }

  void pushCorrelationId(uint64_t id) override {
    if (const auto now = Current::get().look()) now->push_operator(id);
  }
  void popCorrelationId() override {
    if (const auto now = Current::get().look()) now->pop_operator();
  }
  void pushUserCorrelationId(uint64_t id) override { pushCorrelationId(id); }
  void popUserCorrelationId() override { popCorrelationId(); }

 private:
  static libkineto::DeviceInfo info_of(int device) {
    const std::string name = "hologram:" + std::to_string(device);
    return {device, libkineto::kExceedMaxPid + device,
            name + " (" + hologram::device(device).properties().name + ")", name};
  }

  // The lines of the marks, empty where they are not known.
  std::vector<std::string> symbolize() const {
    std::vector<torch::CapturedTraceback*> stacks;
    std::vector<size_t> of;
    const std::vector<MarkedOp>& marks = collection_->marks();
    for (size_t i = 0; i < marks.size(); ++i) {
      if (marks[i].lines == nullptr) continue;
      stacks.push_back(torch::getCapturedTracebackFromContext(marks[i].lines));
      of.push_back(i);
    }
    std::vector<std::string> lines(marks.size());
    if (stacks.empty()) return lines;
    const torch::SymbolizedTracebacks symbols = torch::symbolize(stacks);
    for (size_t i = 0; i < of.size(); ++i) lines[of[i]] = own_line(symbols, i);
    return lines;
  }

  void describe(KernelActivity& activity, const KernelEvent& event,
                const std::vector<std::string>& lines) const {
    activity.addMetadata("device", event.device);
    activity.addMetadata("stream", 0);
    activity.addMetadata("correlation", activity.id);
    activity.addMetadata("circuit", event.circuit);
    activity.addMetadataQuoted("cause", event.cause);
    activity.addMetadata("kernels", event.kernels);
    activity.addMetadata("bytes", event.bytes);
    activity.addMetadata("elements", event.elements);
    activity.addMetadata("operands", event.operands);
    activity.addMetadata("thread", event.thread);
    std::vector<std::string> recorded_at;
    bool known = false;
    for (const uint64_t mark : event.marks) {
      const int64_t at = collection_->find(mark);
      if (at < 0) continue;
      const std::string& line = lines[static_cast<size_t>(at)];
      known = known || !line.empty();
      recorded_at.push_back(json_text(line));
    }
    if (known) activity.addMetadata("recorded at", json_list(recorded_at));
  }

  // PyTorch adds the time of a kernel to one operator: that which recorded the last of its ops.
  template <class Time>
  void link(KernelActivity& activity, const KernelEvent& event,
            const libkineto::getLinkedActivityCallback& linked_activity, Time&& unix_time) const {
    std::vector<std::string> names;
    for (const uint64_t mark : event.marks) {
      const int64_t at = collection_->find(mark);
      if (at < 0) continue;
      const MarkedOp& marked = collection_->marks()[static_cast<size_t>(at)];
      if (marked.operator_id == 0) continue;
      const ITraceActivity* op = linked_activity(static_cast<int32_t>(marked.operator_id));
      if (op == nullptr) continue;
      names.push_back(json_text(op->name()));
      // The clocks of both are measured apart, so the op's own times are kept to.
      const int64_t time = std::clamp(unix_time(marked.time), op->timestamp(),
                                      op->timestamp() + std::max<int64_t>(op->duration(), 0));
      activity.origins.push_back({op, static_cast<uint32_t>(at + 1), time});
    }
    if (names.empty()) return;
    activity.addMetadata("operators", json_list(names));
    activity.linked = activity.origins.back().op;
    activity.flow.id = activity.origins.back().flow;
    activity.flow.type = libkineto::kLinkAsyncCpuGpu;
    activity.flow.start = false;
  }

  bool collecting_ = false;
  CountedProfile counted_;
  std::shared_ptr<Collection> collection_;
  std::unique_ptr<c10::ApproximateClockToUnixTimeConverter> clock_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
  std::unordered_set<int> devices_;
};

class HologramActivityProfiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override {
    static const std::string text = "hologram";
    return text;
  }
  const std::set<ActivityType>& availableActivities() const override {
    static const std::set<ActivityType> types{ActivityType::CONCURRENT_KERNEL};
    return types;
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      const std::set<ActivityType>& types, const libkineto::Config&) override {
    if (!types.contains(ActivityType::CONCURRENT_KERNEL)) return std::make_unique<QuietSession>();
    return std::make_unique<Session>();
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      int64_t, int64_t, const std::set<ActivityType>& types,
      const libkineto::Config& config) override {
    return configure(types, config);
  }
};

REGISTER_PRIVATEUSE1_PROFILER(HologramActivityProfiler);

}  // namespace

bool is_timeline_on() { return Current::get().on.load(std::memory_order_acquire); }

void* begin_on_timeline(const hologram::Launch& launch) {
  try {
    auto collection = Current::get().look();
    if (collection == nullptr) return nullptr;
    auto token = std::make_unique<Token>();
    token->collection = std::move(collection);
    KernelEvent& event = token->event;
    event.name = std::string("hologram::") + launch.name;
    event.operands = launch.operands;
    event.cause = launch.cause;
    event.kernels = launch.kernels;
    event.device = launch.device;
    event.bytes = launch.bytes;
    event.elements = launch.elements;
    event.circuit = launch.circuit;
    event.thread = static_cast<int32_t>(::syscall(SYS_gettid));
    event.marks.assign(launch.marks.begin(), launch.marks.end());
    event.begin = c10::getApproximateTime();
    return token.release();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void end_on_timeline(void* token) {
  const auto end = c10::getApproximateTime();
  const std::unique_ptr<Token> own(static_cast<Token*>(token));
  own->event.end = end;
  try {
    own->collection->add(std::move(own->event));
  } catch (const std::bad_alloc&) {
  }
}

bool wants_lines_on_timeline() {
  const auto collection = Current::get().look();
  return collection != nullptr && collection->wants_stacks();
}

void mark_on_timeline(uint64_t mark, std::shared_ptr<c10::GatheredContext> lines) {
  const auto collection = Current::get().look();
  if (collection == nullptr) return;
  const uint64_t operator_id = collection->innermost_operator();
  collection->add({mark, operator_id, c10::getApproximateTime(), std::move(lines)});
}

}  // namespace hologram_torch

#else

namespace hologram_torch {

bool is_timeline_on() { return false; }
void* begin_on_timeline(const hologram::Launch&) { return nullptr; }
void end_on_timeline(void*) {}
bool wants_lines_on_timeline() { return false; }
void mark_on_timeline(uint64_t, std::shared_ptr<c10::GatheredContext>) {}

}  // namespace hologram_torch

#endif
