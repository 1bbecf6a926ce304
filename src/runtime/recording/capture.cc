// SPDX-License-Identifier: MIT
// Puts the records of a thread on the tape of a circuit made by hand.
#include "src/runtime/recording/capture.h"

#include <algorithm>

#include "hologram/error.h"
#include "src/runtime/memory/buffer_access.h"
#include "src/runtime/recording/recorder.h"

namespace hologram::internal {

namespace {
constinit thread_local Capture* t_capture = nullptr;
constinit std::atomic<Capture*> g_graph{nullptr};

struct Completed {
  std::mutex mutex;
  std::vector<const Capture*> all;
};
Completed& completed() {
  static auto* instance = new Completed;  // leaked: graphs may live until the very end
  return *instance;
}
}  // namespace

constinit std::atomic<int> g_graph_captures{0};

constinit std::atomic<int> g_captures{0};

Capture* thread_capture() {
  return t_capture != nullptr ? t_capture : g_graph.load(std::memory_order_acquire);
}

bool captures_graph_here() {
  const Capture* capture = thread_capture();
  return capture != nullptr && capture->of_graph;
}
bool captures_function_here() { return t_capture != nullptr && t_capture->of_graph; }

void begin_graph(Capture& capture) {
  Capture* none = nullptr;
  if (t_capture != nullptr || !g_graph.compare_exchange_strong(none, &capture)) {
    fail(ErrorKind::kState, "DeviceGraph::begin: a ", t_capture != nullptr ? "circuit" : "graph",
         " is being recorded already; end that first");
  }
  g_graph_captures.fetch_add(1, std::memory_order_relaxed);
  g_captures.fetch_add(1, std::memory_order_relaxed);
  see_all(true);
}

void end_graph(Capture& capture) noexcept {
  if (g_graph.load() != &capture) return;
  g_captures.fetch_sub(1, std::memory_order_relaxed);
  g_graph_captures.fetch_sub(1, std::memory_order_relaxed);
  see_all(false);
  g_graph.store(nullptr, std::memory_order_release);
}

void check_apart(const Capture& capture, const char* what) {
  const auto& slots = capture.slots();
  const bool lent = std::any_of(slots.begin(), slots.end(), [](const Capture::Slot& slot) {
    return slot.buffer->pool() == PoolKind::kForeign;
  });
  if (!lent) return;
  for (const Capture::Slot& written : slots) {
    if (written.value || !written.written) continue;
    for (const Capture::Slot& other : slots) {
      if (other.value || &other == &written ||
          !may_share_bytes(all_bytes(*written.buffer), all_bytes(*other.buffer))) {
        continue;
      }
      fail(ErrorKind::kInvalidArgument, what, ": writes a tensor from outside of ",
           written.buffer->nbytes(), " bytes that is in the memory of another one of ",
           other.buffer->nbytes(),
           " bytes, since that memory was lent out and taken back; record with views of one of "
           "the two");
    }
  }
}

Capture::~Capture() {
  std::lock_guard lock(completed().mutex);
  std::erase(completed().all, this);
}

bool Capture::any_has(const Buffer& buffer) {
  std::lock_guard lock(completed().mutex);
  return std::any_of(completed().all.begin(), completed().all.end(),
                     [&](const Capture* capture) { return capture->find(&buffer) >= 0; });
}

void Capture::complete() {
  std::lock_guard lock(completed().mutex);
  completed().all.push_back(this);
}

void Capture::release_values() {
  for (const Slot& slot : slots_) {
    if (!slot.value) continue;
    BufferAccess::recorded(slot.buffer.get())
        .fetch_and(~(kExported | kPlaceholder), std::memory_order_relaxed);
    if (slot.written) {
      BufferAccess::recorded(slot.buffer.get()).fetch_or(kWritten, std::memory_order_relaxed);
    }
  }
}

void begin_capture(Capture& capture) {
  if (t_capture != nullptr) {
    fail(ErrorKind::kState,
         "Circuit: this thread is recording a circuit already; end that recording first");
  }
  t_capture = &capture;
  g_captures.fetch_add(1, std::memory_order_relaxed);
  if (capture.of_graph) g_graph_captures.fetch_add(1, std::memory_order_relaxed);
  see_all(true);
}

void end_capture(Capture& capture) noexcept {
  if (t_capture != &capture) return;
  t_capture = nullptr;
  g_captures.fetch_sub(1, std::memory_order_relaxed);
  if (capture.of_graph) g_graph_captures.fetch_sub(1, std::memory_order_relaxed);
  see_all(false);
}

int64_t Capture::find(const Buffer* buffer) const {
  const auto at = known_.find(buffer);
  return at == known_.end() ? -1 : static_cast<int64_t>(at->second);
}

uint32_t Capture::slot_of(Buffer* buffer, bool writes) {
  const auto [at, fresh] = known_.try_emplace(buffer, static_cast<uint32_t>(slots_.size()));
  if (fresh) {
    const bool value = buffer->data() == nullptr && buffer->nbytes() != 0 &&
                       buffer->recorded_epoch() == 0 && buffer->pool() == PoolKind::kDeferred;
    slots_.push_back({BufferRef::share(buffer), false, value});
    // Work outside is refused, and so are reads of its bytes; see materialize_slowly().
    if (value) {
      BufferAccess::recorded(buffer).fetch_or(kExported | kPlaceholder, std::memory_order_relaxed);
    }
  }
  slots_[at->second].written |= writes;
  return at->second;
}

bool Capture::takes(const RecordOperand* operands, int count) const {
  for (int k = 0; k < count; ++k) {
    if (is_complex(operands[k].dtype)) return false;
    if (operands[k].buffer != nullptr && &operands[k].buffer->device() != &device_) return false;
  }
  return slots_.size() + static_cast<size_t>(count) <= kSlotMask;
}

circuit::TapeOperand Capture::settle(const RecordOperand& given, bool writes) {
  if (given.buffer == nullptr) {
    return {.kind = circuit::OperandKind::kImmediate,
            .dtype = given.dtype,
            .number = circuit::classify_number(given.dtype, given.bits)};
  }
  return {.kind = given.one ? circuit::OperandKind::kOne : circuit::OperandKind::kMemory,
          .dtype = given.dtype,
          .slot = slot_of(given.buffer, writes),
          .offset = given.offset};
}

bool Capture::append_flat(uint16_t code, Dtype compute, const RecordOperand* operands, int arity,
                          int64_t n) {
  std::lock_guard lock(mutex_);
  if (!takes(operands, arity + 1)) return false;
  circuit::TapeOperand settled[circuit::kMaxArity + 1];
  uint64_t bits[circuit::kMaxArity + 1];
  for (int k = 0; k <= arity; ++k) {
    settled[k] = settle(operands[k], k == 0);
    bits[k] = operands[k].bits;
  }
  tape_.append_flat(code, compute, arity, settled, bits, n);
  return true;
}

bool Capture::append(circuit::Record& record, const RecordOperand* operands) {
  std::lock_guard lock(mutex_);
  if (!takes(operands, record.arity + 1)) return false;
  uint64_t bits[circuit::kMaxArity + 1];
  for (int k = 0; k <= record.arity; ++k) {
    record.operands[k] = settle(operands[k], k == 0);
    bits[k] = operands[k].bits;
  }
  tape_.append(record, bits);
  return true;
}

bool Capture::append_call(uint16_t kind, std::span<const CallOperand> operands,
                          std::span<const uint64_t> attributes, std::span<const uint64_t> numbers,
                          double cost) {
  std::lock_guard lock(mutex_);
  std::vector<circuit::CallSlot> list;
  for (const CallOperand& operand : operands) {
    circuit::CallSlot& slot = list.emplace_back();
    if (!is_present(operand)) continue;
    if (&operand.buffer->device() != &device_ || slots_.size() >= kSlotMask) return false;
    slot = call_slot(operand, slot_of(operand.buffer, operand.writes));
  }
  tape_.append_call(kind, list, attributes, numbers);
  cost_ += cost;
  return true;
}

}  // namespace hologram::internal
