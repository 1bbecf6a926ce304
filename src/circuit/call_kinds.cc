// SPDX-License-Identifier: MIT
// Registers kinds of calls; readers take no lock.
#include "src/circuit/call_kinds.h"

#include <atomic>
#include <cstring>
#include <mutex>

#include "hologram/error.h"

namespace hologram {
namespace {

// A kind is a function in somebody's source, so there are never many.
constexpr int kMaxKinds = 4096;

struct Kinds {
  std::mutex mutex;
  std::atomic<const CallKind*> known[kMaxKinds] = {};
  int count = 0;

  static Kinds& get() {
    static Kinds* instance = new Kinds;  // leaked: circuits may run until the very end
    return *instance;
  }
};

}  // namespace

uint16_t register_call(const CallKind& kind) {
  if (kind.name == nullptr || kind.name[0] == '\0' || kind.run == nullptr) {
    fail(ErrorKind::kInvalidArgument, "register_call: a kind of call needs a name and a function");
  }
  Kinds& kinds = Kinds::get();
  std::lock_guard lock(kinds.mutex);
  for (int id = 0; id < kinds.count; ++id) {
    const CallKind* known = kinds.known[id].load(std::memory_order_relaxed);
    if (std::strcmp(known->name, kind.name) != 0) continue;
    if (known->run != kind.run) {
      fail(ErrorKind::kInvalidArgument, "register_call: \"", kind.name,
           "\" is the name of another kind of call; choose one of its own");
    }
    return static_cast<uint16_t>(id);
  }
  if (kinds.count == kMaxKinds) {
    fail(ErrorKind::kState, "register_call: there are ", kMaxKinds,
         " kinds of calls already; register a kind once, not for every call");
  }
  auto* made = new CallKind(kind);  // for the life of the process, as the name's copy
  char* name = new char[std::strlen(kind.name) + 1];
  made->name = std::strcpy(name, kind.name);
  kinds.known[kinds.count].store(made, std::memory_order_release);
  return static_cast<uint16_t>(kinds.count++);
}

namespace circuit {

const CallKind& call_kind(uint16_t id) {
  static Kinds& kinds = Kinds::get();
  const CallKind* kind = id < kMaxKinds ? kinds.known[id].load(std::memory_order_acquire) : nullptr;
  if (kind == nullptr) {
    fail(ErrorKind::kInvalidArgument, "there is no kind of call ", id,
         "; give a number that register_call returned in this process");
  }
  return *kind;
}

}  // namespace circuit
}  // namespace hologram
