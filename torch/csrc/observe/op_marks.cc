// SPDX-License-Identifier: MIT
// Numbers the ops that are recorded while a profile or a history of memory is on.
#include "observe/op_marks.h"

#include <torch/csrc/profiler/combined_traceback.h>

#include <atomic>
#include <mutex>
#include <new>
#include <utility>

#include "hologram/trace.h"
#include "observe/kineto.h"
#include "observe/memory_history.h"

namespace hologram_torch {
namespace {

struct Marks {
  std::atomic<uint8_t> uses{0};
  std::mutex mutex;
  uint64_t last = 0;

  static Marks& get() {
    static Marks* instance = new Marks;  // leaked: ops are recorded until the very end
    return *instance;
  }
};

std::vector<std::string>& library_folders() {
  static auto* folders = new std::vector<std::string>;  // leaked, as the marks
  return *folders;
}

}  // namespace

void set_library_folders(std::vector<std::string> folders) {
  library_folders() = std::move(folders);
}

bool is_library_file(std::string_view file) {
  for (const std::string& folder : library_folders()) {
    if (file.starts_with(folder)) return true;
  }
  return false;
}

void use_marks(MarkUse use, bool on) {
  Marks& marks = Marks::get();
  const auto bit = static_cast<uint8_t>(use);
  if (on) {
    marks.uses.fetch_or(bit);
  } else {
    marks.uses.fetch_and(static_cast<uint8_t>(~bit));
  }
  hologram::set_marking(marks.uses.load() != 0);
}

std::shared_ptr<c10::GatheredContext> gather_lines() {
  return torch::CapturedTraceback::gather(/*python=*/true, /*script=*/false, /*cpp=*/false);
}

uint64_t mark_op() {
  Marks& marks = Marks::get();
  const uint8_t uses = marks.uses.load(std::memory_order_relaxed);
  const bool timeline = (uses & static_cast<uint8_t>(MarkUse::kTimeline)) != 0;
  const bool history = (uses & static_cast<uint8_t>(MarkUse::kMemoryHistory)) != 0;
  try {
    std::shared_ptr<c10::GatheredContext> lines;
    if ((history && wants_lines_of_results()) || (timeline && wants_lines_on_timeline())) {
      lines = gather_lines();
    }
    const std::lock_guard lock(marks.mutex);
    const uint64_t mark = ++marks.last;
    if (history) remember_result(mark, lines);
    if (timeline) mark_on_timeline(mark, std::move(lines));
    return mark;
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

}  // namespace hologram_torch
