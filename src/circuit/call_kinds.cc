// SPDX-License-Identifier: MIT
// Registers kinds of calls; readers take no lock.
#include "src/circuit/call_kinds.h"

#include <atomic>
#include <cstring>
#include <mutex>

#include "hologram/call_ops.h"
#include "hologram/error.h"

namespace hologram {
namespace {

// A kind is a row of the catalogue or a function in a program's source, so there are never many.
constexpr int kMaxKinds = 4096;
static_assert(kMaxKinds <= circuit::kPlannedCall);

struct Known {
  const char* name;
  std::atomic<const CallKind*> functions[kBackendCount] = {};
};

struct Kinds {
  std::mutex mutex;
  std::atomic<Known*> known[kMaxKinds] = {};
  int count = 0;

  // The calls of the catalogue are known before any backend has functions for them.
  Kinds() {
    for (const CallOp& op : call_ops()) add(op.name);
  }
  Known* add(const char* name) {
    auto* made = new Known{name};  // for the life of the process
    known[count++].store(made, std::memory_order_release);
    return made;
  }
  static Kinds& get() {
    static Kinds* instance = new Kinds;  // leaked: circuits may run until the very end
    return *instance;
  }
};

const Known& known_kind(uint16_t id) {
  static Kinds& kinds = Kinds::get();
  static const Known kPlanned{"planned_circuit"};
  if (id == circuit::kPlannedCall) return kPlanned;
  const Known* known = id < kMaxKinds ? kinds.known[id].load(std::memory_order_acquire) : nullptr;
  if (known == nullptr) {
    fail(ErrorKind::kInvalidArgument, "there is no kind of call ", id,
         "; give a number that register_call returned in this process");
  }
  return *known;
}

}  // namespace

uint16_t register_call(const CallKind& kind, BackendType backend) {
  if (kind.name == nullptr || kind.name[0] == '\0' || kind.run == nullptr) {
    fail(ErrorKind::kInvalidArgument, "register_call: a kind of call needs a name and a function");
  }
  Kinds& kinds = Kinds::get();
  std::lock_guard lock(kinds.mutex);
  int id = 0;
  Known* known = nullptr;
  for (; id < kinds.count && known == nullptr; ++id) {
    Known* other = kinds.known[id].load(std::memory_order_relaxed);
    if (std::strcmp(other->name, kind.name) == 0) known = other;
  }
  if (known != nullptr) {
    --id;
  } else if (kinds.count == kMaxKinds) {
    fail(ErrorKind::kState, "register_call: there are ", kMaxKinds,
         " kinds of calls already; register a kind once, not for every call");
  } else {
    char* name = new char[std::strlen(kind.name) + 1];
    known = kinds.add(std::strcpy(name, kind.name));
  }
  std::atomic<const CallKind*>& place = known->functions[static_cast<int>(backend)];
  if (const CallKind* before = place.load(std::memory_order_relaxed)) {
    if (before->run == kind.run) return static_cast<uint16_t>(id);
    fail(ErrorKind::kInvalidArgument, "register_call: \"", kind.name,
         "\" is the name of another kind of call; choose one of its own");
  }
  auto* made = new CallKind(kind);
  made->name = known->name;
  place.store(made, std::memory_order_release);
  return static_cast<uint16_t>(id);
}

void run_call(uint16_t kind, const CallArguments& arguments, BackendType backend) {
  circuit::call_kind(kind, backend).run(arguments);
}

namespace circuit {

const char* call_name(uint16_t id) { return known_kind(id).name; }

const CallKind* find_kernel(uint16_t id, BackendType backend) {
  return known_kind(id).functions[static_cast<int>(backend)].load(std::memory_order_acquire);
}

const CallKind& call_kind(uint16_t id, BackendType backend) {
  const CallKind* kind = find_kernel(id, backend);
  if (kind == nullptr) {
    fail(ErrorKind::kNotSupported, call_name(id),
         ": this backend has no kernel for the call; it registers one with register_call()");
  }
  return *kind;
}

}  // namespace circuit
}  // namespace hologram
