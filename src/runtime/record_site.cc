// SPDX-License-Identifier: MIT
// Where the program was when it recorded an op, for errors that show only when circuits run.
#include <atomic>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "hologram/error.h"
#include "src/runtime/recorder.h"

namespace hologram {
namespace internal {
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
  Recorder::call_attention(OpenCircuit::kSites, remembers);
}

// With the record lock held, which is let go in between: of the op that is about to be appended.
void Recorder::remember_site(std::unique_lock<SpinLock>& lock) {
  std::string (*const site)() = g_site.load(std::memory_order_acquire);
  if (site == nullptr) return;
  lock.unlock();
  std::string text = site();
  lock.lock();
  open_->sites.resize(static_cast<size_t>(open_->tape.records()));
  open_->sites.push_back(std::move(text));
}

// With the run lock held: the error of running running_, with what ran and where it was recorded.
std::exception_ptr Recorder::explained(std::exception_ptr error) const {
  if (plan_ == nullptr) return error;
  const auto index = static_cast<size_t>(plan_->running);
  if (index >= plan_->kernels.size()) return error;  // all of them ran
  const circuit::Kernel& kernel = plan_->kernels[index];
  std::string context = " (in " + circuit::kernel_name(kernel) + ", which was deferred";
  const int record = kernel.call != nullptr  ? kernel.call->record
                     : kernel.instrs.empty() ? -1
                                             : kernel.instrs[0].record;
  const std::vector<std::string>& sites = running_->sites;
  const bool known = record >= 0 && static_cast<size_t>(record) < sites.size() &&
                     !sites[static_cast<size_t>(record)].empty();
  if (known) context += ", recorded at " + sites[static_cast<size_t>(record)];
  context += ")";
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return std::make_exception_ptr(Error(e.kind(), e.what() + context));
  } catch (const std::exception& e) {
    // Others' exceptions keep their type where there is no line to tell.
    if (known) return std::make_exception_ptr(Error(ErrorKind::kInternal, e.what() + context));
  } catch (...) {
  }
  return error;
}

}  // namespace internal

void set_record_site(std::string (*site)()) { internal::g_site.store(site); }

}  // namespace hologram
