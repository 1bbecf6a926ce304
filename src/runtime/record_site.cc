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

// With the record lock held, which is let go in between: of the op that is about to be appended, in
// a circuit of that mode.
void Recorder::remember_site(std::unique_lock<SpinLock>& lock, uint32_t mode) {
  std::string (*const site)() = g_site.load(std::memory_order_acquire);
  if (site == nullptr) return;
  lock.unlock();
  std::string text = site();
  lock.lock();
  take_mode(lock, mode);
  open_->sites.resize(static_cast<size_t>(open_->tape.records()));
  open_->sites.push_back(std::move(text));
}

// With the run lock held: which record of running_ the error is about, -1 if that is not known, and
// what is to be said of it.
int Recorder::failing_record(std::string& context) const {
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

// With the run lock held: the error of running_, with what it is about and where that was recorded.
std::exception_ptr Recorder::explained(std::exception_ptr error) const {
  std::string context;
  const int record = failing_record(context);
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

}  // namespace internal

void set_record_site(std::string (*site)()) { internal::g_site.store(site); }

}  // namespace hologram
