// SPDX-License-Identifier: MIT
// The cache of generated loops.
#include "src/cpu/jit.h"

#include <cstdlib>
#include <cstring>
#include <string_view>

#if defined(__x86_64__) && defined(__unix__)
#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>

#include "hologram/op.h"
#include "src/cpu/jit_emitter.h"
#include "src/cpu/jit_ir.h"
#include "src/cpu/jit_memory.h"
#include "src/cpu/jit_schedule.h"
#include "src/cpu/kernel_table.h"

namespace hologram::cpu {
namespace {

// Any segment worth a loop of its own is far below.
constexpr size_t kMaxSteps = 255;
constexpr size_t kMaxArrays = 254;
// Room to write a segment's code in: enough for nearly all, and for any that is let through.
constexpr size_t kUsualCode = size_t{64} << 10;
constexpr size_t kLongestCode = size_t{1} << 20;
constexpr size_t kAlignment = 64;

bool is_enabled() {
  static const bool enabled = [] {
    const char* setting = std::getenv("HOLOGRAM_JIT");
    return setting == nullptr || std::string_view(setting) != "0";
  }();
  return enabled;
}

// Asked once: in a virtual machine each question to the processor costs microseconds.
bool is_target(Isa isa) {
  static const bool avx2 = isa_available(Isa::kAvx2), avx512 = isa_available(Isa::kAvx512);
  return isa == Isa::kAvx512 ? avx512 : isa == Isa::kAvx2 && avx2;
}

struct Cache {
  std::mutex mutex;
  std::unordered_map<std::string, SegmentKernel> kernels;
  JitStats stats;
  bool full = false;  // the room for code is used up
};

// Never destroyed: other threads may run to the very end.
Cache& cache() {
  static Cache* instance = new Cache;
  return *instance;
}

// A child process must not inherit a lock that is held by a thread it does not have. Registered as
// the library is loaded, before the recorders': what they still run before a fork makes loops.
[[maybe_unused]] const int kHandled = pthread_atfork(
    [] { cache().mutex.lock(); }, [] { cache().mutex.unlock(); }, [] { cache().mutex.unlock(); });

// Small enough for its key: counts, indices and ops fit in a byte each.
bool is_sound(const Segment& segment) {
  if (segment.steps.size() > kMaxSteps || segment.inputs.size() > kMaxArrays ||
      segment.outputs.size() > kMaxArrays || segment.numbers.size() > kMaxArrays ||
      segment.folds.size() > kMaxArrays) {
    return false;
  }
  if (segment.outputs.empty() && segment.folds.empty()) return false;
  if (!segment.folds.empty() && !segment.by_rows) return false;
  for (const SegmentStep& step : segment.steps) {
    if (step.output >= static_cast<int>(segment.outputs.size())) return false;
    if (!step.convert && static_cast<int>(step.op) >= kOpIdEnd) return false;
  }
  return true;
}

std::string key_of(Isa isa, const Segment& segment) {
  std::string key;
  key.reserve(16 + segment.steps.size() * 16);
  const auto byte = [&](auto value) { key.push_back(static_cast<char>(value)); };
  const auto dtypes = [&](const std::vector<Dtype>& list) {
    byte(list.size());
    for (Dtype dtype : list) byte(dtype);
  };
  byte(isa);
  dtypes(segment.inputs);
  dtypes(segment.numbers);
  dtypes(segment.outputs);
  byte(segment.by_rows);
  for (int bits = 0; bits < 64; bits += 8) byte(segment.streams >> bits & 0xff);
  byte(segment.fetched);
  byte(segment.folds.size());
  for (const SegmentFold& fold : segment.folds) {
    byte(fold.fold);
    byte(fold.of.kind);
    byte(fold.of.index);
  }
  for (const SegmentStep& step : segment.steps) {
    byte(step.convert ? 0xff : static_cast<int>(step.op));
    byte(step.compute);
    byte(step.result);
    byte(step.arity);
    byte(step.output < 0 ? 0xff : step.output);
    for (int k = 0; k < step.arity && k < 4; ++k) {
      byte(step.in[k].kind);
      byte(step.in[k].index);
    }
  }
  return key;
}

// One line a kernel for profilers that look up generated code.
void note_for_profilers(const void* code, size_t bytes, int64_t serial, const Segment& segment) {
  static const bool wanted = [] {
    const char* setting = std::getenv("HOLOGRAM_JIT_PERF");
    return setting != nullptr && std::string_view(setting) == "1";
  }();
  if (!wanted) return;
  const std::string path = "/tmp/perf-" + std::to_string(getpid()) + ".map";
  std::FILE* file = std::fopen(path.c_str(), "a");
  if (file == nullptr) return;
  std::fprintf(file, "%llx %zx hologram_jit_%lld",
               static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(code)), bytes,
               static_cast<long long>(serial));
  for (const SegmentStep& step : segment.steps) {
    const std::string name(step.convert ? "convert" : op_info(step.op).name);
    std::fprintf(file, "_%s", name.c_str());
  }
  if (!segment.folds.empty()) std::fputs("_fold", file);
  std::fputc('\n', file);
  std::fclose(file);
}

// The code of a segment in the calling thread's buffer, or none.
std::span<const uint8_t> generate(Isa isa, const Segment& segment) {
  jit::Graph graph(isa);
  if (!jit::build_graph(segment, graph)) return {};
  graph.by_rows = segment.by_rows;
  graph.streams = segment.streams;
  graph.fetched = segment.fetched;
  const jit::Schedule schedule = jit::make_schedule(graph, isa, isa == Isa::kAvx512 ? 64 : 32);
  thread_local std::vector<uint8_t> buffer;
  for (size_t capacity : {kUsualCode, kLongestCode}) {
    if (buffer.size() < capacity + kAlignment) buffer.resize(capacity + kAlignment);
    // Aligned here as it will be there, for loops begin at aligned addresses.
    const uintptr_t address = reinterpret_cast<uintptr_t>(buffer.data());
    uint8_t* const begin = buffer.data() + (kAlignment - address % kAlignment);
    try {
      jit::Emitter emitter(isa, graph, schedule, begin, capacity);
      emitter.emit();
      return {begin, emitter.getSize()};
    } catch (const Xbyak::Error& error) {
      if (static_cast<int>(error) != Xbyak::ERR_CODE_IS_TOO_BIG) return {};
    }
  }
  return {};
}

}  // namespace

bool jit_takes(Isa isa, const SegmentStep& step) {
  if (!is_enabled() || !is_target(isa)) return false;
  if (step.convert) return step.arity == 1 && jit::can_convert(isa, step.compute, step.result);
  if (static_cast<int>(step.op) >= kOpIdEnd) return false;
  switch (step.compute) {
    case Dtype::kBool:
    case Dtype::kInt32:
    case Dtype::kInt64:
    case Dtype::kFloat32:
    case Dtype::kFloat64:
      break;
    default:
      return false;
  }
  if (kernel_table(isa).kernels[static_cast<int>(step.op)][static_cast<int>(step.compute)][0] ==
      nullptr) {
    return false;
  }
  const OpInfo& row = op_info(step.op);
  const Dtype result = row.result_is_bool ? Dtype::kBool : step.compute;
  return row.arity == step.arity && result == step.result;
}

bool jit_takes_fold(Isa isa, Fold fold, Dtype dtype, int64_t cols) {
  if (!is_enabled() || !is_target(isa)) return false;
  if (fold != Fold::kSum && fold != Fold::kSumSquare && fold != Fold::kSumAbs) return false;
  if (dtype != Dtype::kFloat32 && dtype != Dtype::kFloat64) return false;
  const int64_t lanes = (isa == Isa::kAvx512 ? 64 : 32) / static_cast<int64_t>(itemsize(dtype));
  return cols > 1 && cols <= kFoldVectors * lanes;
}

SegmentKernel jit_compile(Isa isa, const Segment& segment) {
  if (!is_enabled() || !is_target(isa)) return nullptr;
  if (!is_sound(segment)) return nullptr;
  Cache& all = cache();
  std::string key = key_of(isa, segment);
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    const auto found = all.kernels.find(key);
    if (found != all.kernels.end()) {
      ++all.stats.hits;
      return found->second;
    }
    if (all.full) return nullptr;
  }
  const auto begin = std::chrono::steady_clock::now();
  const std::span<const uint8_t> code = generate(isa, segment);
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (all.full) return nullptr;
  const auto [entry, inserted] = all.kernels.try_emplace(std::move(key), nullptr);
  if (!inserted) return entry->second;  // another thread was quicker
  if (code.empty()) return nullptr;
  const void* place = jit::install_code(code.data(), code.size());
  if (place == nullptr) {
    all.full = true;
    return nullptr;
  }
  entry->second = reinterpret_cast<SegmentKernel>(reinterpret_cast<uintptr_t>(place));
  const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - begin;
  all.stats.compile_us += spent.count();
  all.stats.code_bytes += static_cast<int64_t>(code.size());
  note_for_profilers(place, code.size(), ++all.stats.kernels, segment);
  return entry->second;
}

JitStats jit_stats() {
  Cache& all = cache();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return all.stats;
}

}  // namespace hologram::cpu

#else

namespace hologram::cpu {

bool jit_takes(Isa, const SegmentStep&) { return false; }
bool jit_takes_fold(Isa, Fold, Dtype, int64_t) { return false; }
SegmentKernel jit_compile(Isa, const Segment&) { return nullptr; }
JitStats jit_stats() { return {}; }

}  // namespace hologram::cpu
#endif
