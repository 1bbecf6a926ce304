// SPDX-License-Identifier: MIT
// Appends ops to the open circuit of a device, buffers named by slot, and seals it.
#include "src/runtime/recording/open_circuit.h"

#include <algorithm>
#include <iterator>
#include <new>

#include "hologram/error.h"
#include "hologram/memory.h"
#include "hologram/parallel.h"
#include "src/circuit/call_kinds.h"
#include "src/runtime/memory/buffer_access.h"
#include "src/runtime/recording/capture.h"
#include "src/runtime/recording/trace_hooks.h"

namespace hologram::internal {

using circuit::kMaxArity;
using circuit::OperandKind;
using circuit::Record;

namespace {

// What is beyond the first `records` entries goes to the next circuit.
template <class T>
void carry_over(std::vector<T>& from, std::vector<T>& to, size_t records) {
  if (from.size() <= records) return;
  const auto rest = from.begin() + static_cast<ptrdiff_t>(records);
  to.assign(std::move_iterator(rest), std::move_iterator(from.end()));
  from.erase(rest, from.end());
}

}  // namespace

OpenCircuit::OpenCircuit(Device& device)
    : device_(device), now_(std::make_unique<RecordedCircuit>()) {
  now_->epoch = next_epoch_++;
}

void drop_references(RecordedCircuit& circuit) {
  for (const RecordedCircuit::Slot& slot : circuit.slots) slot.buffer->release();
  circuit.slots.clear();
}

// ---- appending ----

// Before the first op.
void OpenCircuit::begin() {
  const size_t limit = memory_limit();
  now_->next_look = CircuitBounds::kLookEvery;
  now_->kept_limit = std::max(CircuitBounds::kKeptFloor, limit / CircuitBounds::kKeptShare);
  now_->unbacked_limit = now_->next_count = limit / CircuitBounds::kUnbackedShare;
}

// Whether memory that only this circuit holds passes its bound.
bool OpenCircuit::keeps_too_much() {
  const auto slots = static_cast<int>(now_->slots.size());
  now_->next_look =
      now_->tape.records() + std::max(CircuitBounds::kLookEvery, slots / CircuitBounds::kLookShare);
  size_t kept = 0;
  for (const RecordedCircuit::Slot& slot : now_->slots) {
    if (slot.buffer->use_count() == 1 && !slot.fresh) kept += slot.buffer->nbytes();
  }
  return kept > now_->kept_limit;
}

// Whether results that programs still hold pass their bound.
bool OpenCircuit::wants_too_much() {
  size_t dead = 0;
  for (const RecordedCircuit::Slot& slot : now_->slots) {
    if (slot.fresh && slot.buffer->use_count() == 1) dead += slot.buffer->nbytes();
  }
  const size_t limit = now_->unbacked_limit;
  const size_t live = now_->unbacked_bytes - dead;
  if (live > limit) return true;
  now_->next_count =
      now_->unbacked_bytes + std::max(limit - live, limit / CircuitBounds::kCountShare);
  return false;
}

// Names the buffer, which the circuit holds from its first naming on.
[[gnu::always_inline]] inline uint32_t OpenCircuit::slot_of(Buffer* buffer, bool writes) {
  std::atomic<uint64_t>& recorded = BufferAccess::recorded(buffer);
  const uint64_t word = recorded.load(std::memory_order_relaxed);
  constexpr uint64_t kWrites = kWritten | Buffer::kWrittenByRecorded;
  if (word >> Buffer::kRecordedEpochShift == now_->epoch) {
    if (writes && (word & kWrites) != kWrites)
      recorded.store(word | kWrites, std::memory_order_relaxed);
    return static_cast<uint32_t>(word >> kSlotShift & kSlotMask);
  }
  RecordedCircuit& circuit = *now_;
  const auto slot = static_cast<uint32_t>(circuit.slots.size());
  // What earlier circuits write has memory by the time that this one runs. Code that writes it
  // without recording gives it memory first.
  const bool backed = (word & kWritten) != 0 || buffer->data() != nullptr;
  const bool fresh = !backed && BufferAccess::pool(buffer) == PoolKind::kDeferred;
  circuit.slots.push_back({buffer, fresh});
  // The recorder holds one reference, which passes to the last circuit that names the buffer.
  if (!is_named(word)) buffer->retain();
  (backed ? circuit.backed_bytes : circuit.unbacked_bytes) += buffer->nbytes();
  const bool waits = word >> Buffer::kRecordedEpochShift > device_.observed_epoch();
  const uint64_t kept = waits ? kFlagsMask : kFlagsMask & ~Buffer::kWrittenByRecorded;
  recorded.store(circuit.epoch << Buffer::kRecordedEpochShift | uint64_t{slot} << kSlotShift |
                     (word & kept) | (writes ? kWrites : 0),
                 std::memory_order_relaxed);
  return slot;
}

// As slot_of(), for a buffer whose only record was in the circuit before and moves to this one. At
// no moment is there none that writes it.
uint32_t OpenCircuit::rename(Buffer* buffer) {
  std::atomic<uint64_t>& recorded = BufferAccess::recorded(buffer);
  const auto slot = static_cast<uint32_t>(now_->slots.size());
  now_->slots.push_back({buffer, /*fresh=*/true});
  now_->unbacked_bytes += buffer->nbytes();
  const uint64_t flags = recorded.load(std::memory_order_relaxed) & kFlagsMask;
  recorded.store(now_->epoch << Buffer::kRecordedEpochShift | uint64_t{slot} << kSlotShift | flags,
                 std::memory_order_relaxed);
  return slot;
}

// Whether the operands are for recording; then there is room for their slots.
[[gnu::always_inline]] inline bool OpenCircuit::may_record(const RecordOperand* operands,
                                                           int count) {
  for (int k = 0; k < count; ++k) {
    Buffer* buffer = operands[k].buffer;
    if (is_complex(operands[k].dtype)) return false;
    if (buffer == nullptr) continue;
    if (!may_be_recorded(*buffer, device_)) return false;
  }
  return has_slots(static_cast<size_t>(count));
}

// False where the circuit cannot name `count` buffers more.
[[gnu::always_inline]] inline bool OpenCircuit::has_slots(size_t count) {
  std::vector<RecordedCircuit::Slot>& slots = now_->slots;
  if (slots.capacity() - slots.size() < count) [[unlikely]] {
    slots.reserve(std::max(2 * slots.capacity(), slots.size() + count));
  }
  return slots.size() + count <= kSlotMask;
}

// False, and nothing changed, where an operand is not for recording.
[[gnu::always_inline]] inline bool OpenCircuit::settle_operands(const RecordOperand* operands,
                                                                int count,
                                                                circuit::TapeOperand* settled,
                                                                uint64_t* bits) {
  if (!may_record(operands, count)) return false;
  for (int k = 0; k < count; ++k) {
    const RecordOperand& given = operands[k];
    if (given.buffer == nullptr) {
      new (&settled[k])
          circuit::TapeOperand{.kind = OperandKind::kImmediate,
                               .dtype = given.dtype,
                               .number = circuit::classify_number(given.dtype, given.bits)};
      bits[k] = given.bits;
      continue;
    }
    new (&settled[k])
        circuit::TapeOperand{.kind = given.one ? OperandKind::kOne : OperandKind::kMemory,
                             .dtype = given.dtype,
                             .slot = slot_of(given.buffer, k == 0),
                             .offset = given.offset};
  }
  return true;
}

[[gnu::always_inline]] inline void OpenCircuit::end_append(int weight) {
  RecordedCircuit& circuit = *now_;
  ++ops_recorded_;
  if (circuit.weightless > 0) [[unlikely]] {
    --circuit.weightless;
  } else {
    circuit.weight += weight;
  }
  const int records = circuit.tape.records();
  if (circuit.weight >= CircuitBounds::kMaxWeight ||
      (circuit.unbacked_bytes > circuit.next_count && wants_too_much()) ||
      (records >= circuit.next_look && circuit.backed_bytes > circuit.kept_limit &&
       keeps_too_much())) [[unlikely]] {
    circuit.attention |= RecordedCircuit::kFull;
  }
}

bool OpenCircuit::expect_list(size_t count) {
  const bool has_room =
      now_->slots.size() + 4 * count <= CircuitBounds::kSlotsOfLists &&
      static_cast<size_t>(now_->tape.records()) + count <= CircuitBounds::kMaxOpsOfLists;
  if (has_room && count > 1) now_->weightless += static_cast<int>(count) - 1;
  return has_room;
}

bool OpenCircuit::append_flat(uint16_t code, Dtype compute, const RecordOperand* operands,
                              int arity, int64_t n) {
  RecordedCircuit& circuit = *now_;
  if (circuit.tape.empty()) begin();
  if (!may_record(operands, arity + 1)) return false;
  // As settle_operands() and Tape::append() do, without operands in between.
  uint64_t* word = circuit.tape.begin_flat(code, compute, arity, n);
  for (int k = 0; k <= arity; ++k) {
    const RecordOperand& given = operands[k];
    word = given.buffer == nullptr
               ? circuit.tape.put_number(word, given.dtype, given.bits)
               : circuit::Tape::put_memory(word, given.one, given.dtype,
                                           slot_of(given.buffer, k == 0), given.offset);
  }
  circuit.tape.end_record(word);
  end_append(CircuitBounds::weight(n));
  return true;
}

bool OpenCircuit::append(Record& record, const RecordOperand* operands) {
  uint64_t bits[kMaxArity + 1];
  if (now_->tape.empty()) begin();
  if (!settle_operands(operands, record.arity + 1, record.operands, bits)) return false;
  now_->tape.append(record, bits);
  end_append(CircuitBounds::weight(record.numel()));
  return true;
}

bool OpenCircuit::append_call(uint16_t kind, std::span<const CallOperand> operands,
                              std::span<const uint64_t> attributes,
                              std::span<const uint64_t> numbers, double cost) {
  if (now_->tape.empty()) begin();
  for (const CallOperand& operand : operands) {
    if (is_present(operand) && !may_be_recorded(*operand.buffer, device_)) return false;
  }
  if (!has_slots(operands.size())) return false;
  circuit::Tape& tape = now_->tape;
  uint64_t* word = tape.begin_call(kind, operands.size(), attributes.size(), numbers.size());
  for (const CallOperand& operand : operands) {
    circuit::CallSlot slot;
    if (is_present(operand)) {
      slot = call_slot(operand, slot_of(operand.buffer, operand.writes));
    }
    word = circuit::Tape::put_call_operand(word, slot);
  }
  tape.end_call(word, attributes, numbers);
  now_->call_cost += cost;
  end_append(cost > CircuitBounds::kHandOverCost ? 1 : CircuitBounds::kSmallWeight);
  return true;
}

void OpenCircuit::take_tape(const circuit::Tape& tape, std::vector<BufferRef> buffers,
                            std::span<const uint8_t> written, double cost) {
  if (!has_slots(buffers.size())) {
    fail(ErrorKind::kInvalidArgument, "Circuit: has ", buffers.size(),
         " buffers, more than one circuit can name");
  }
  circuit::Tape copy = tape;
  begin();
  now_->tape = std::move(copy);
  for (size_t s = 0; s < buffers.size(); ++s) slot_of(buffers[s].get(), written[s] != 0);
  buffers.clear();
  now_->call_cost += cost;
  ops_recorded_ += static_cast<uint64_t>(tape.records());
}

bool OpenCircuit::take_planned(const std::shared_ptr<PlannedCircuit>& planned,
                               std::span<Buffer* const> given, std::span<const uint64_t> numbers) {
  const auto outside = [&](uint32_t slot) { return planned->capture.slots()[slot].buffer.get(); };
  const auto may_use = [&](const Buffer* buffer) {
    const uint64_t word = BufferAccess::recorded(const_cast<Buffer*>(buffer)).load();
    return (word & kExported) == 0 && &buffer->device() == &device_ &&
           buffer->pool() != PoolKind::kForeign;
  };
  for (const PlannedCircuit::Use& use : planned->uses) {
    if (!may_use(given[use.given])) return false;
  }
  for (const uint32_t slot : planned->outside) {
    const bool shared = std::find(given.begin(), given.end(), outside(slot)) != given.end();
    if (shared || !may_use(outside(slot))) return false;
  }
  if (!has_slots(planned->uses.size() + planned->outside.size())) return false;
  begin();
  now_->tape.append_call(circuit::kPlannedCall, {}, {}, numbers);
  now_->planned = planned;
  for (const PlannedCircuit::Use& use : planned->uses) slot_of(given[use.given], use.written);
  for (const uint32_t slot : planned->outside) {
    slot_of(outside(slot), planned->capture.slots()[slot].written);
  }
  now_->call_cost += planned->capture.cost();
  ops_recorded_ += static_cast<uint64_t>(planned->capture.tape().records());
  return true;
}

void OpenCircuit::remember(bool has_site, std::string site, uint64_t mark) {
  const auto record = static_cast<size_t>(now_->tape.records());
  if (has_site) {
    now_->sites.resize(record);
    now_->sites.push_back(std::move(site));
  }
  if (mark != 0) {
    now_->marks.resize(record);
    now_->marks.push_back(mark);
  }
}

// ---- sealing ----

void OpenCircuit::Sealing::prepare() {
  if (next == nullptr) next = std::make_unique<RecordedCircuit>();
  threads = num_threads();
  if (is_watched()) {
    sealed_ns = now_ns();
    cause = watch_cause();
    observed = share_observation();
  }
}

void OpenCircuit::Sealing::drop() {
  if (void* unused = std::exchange(observed, nullptr)) drop_observation(unused);
}

std::unique_ptr<RecordedCircuit> OpenCircuit::seal(Sealing& sealing, Why why) {
  RecordedCircuit& circuit = *now_;
  const size_t count = circuit.slots.size();
  circuit.states.assign((count + 7) / 8, 0);
  auto* states = reinterpret_cast<uint8_t*>(circuit.states.data());
  for (size_t s = 0; s < count; ++s) {
    const RecordedCircuit::Slot& slot = circuit.slots[s];
    const bool live = slot.buffer->use_count() > 1;
    states[s] = static_cast<uint8_t>((live ? circuit::kSlotLive : 0) |
                                     (slot.fresh ? circuit::kSlotFresh : 0));
    if (!live) (slot.fresh ? circuit.dead_bytes : circuit.kept_bytes) += slot.buffer->nbytes();
  }
  circuit.unbacked_bytes -= circuit.dead_bytes;
  circuit.why = why;
  circuit.threads = sealing.threads;
  circuit.sealed_ns = sealing.sealed_ns;
  circuit.cause = sealing.cause;
  circuit.observed = std::exchange(sealing.observed, nullptr);
  RecordedCircuit& next = *sealing.next;
  next.epoch = next_epoch_++;
  next.float_mode = circuit.float_mode;
  next.attention = circuit.attention & static_cast<uint8_t>(~RecordedCircuit::kFull);
  // That of an op which comes after the cut.
  const auto records = static_cast<size_t>(circuit.tape.records());
  carry_over(circuit.sites, next.sites, records);
  carry_over(circuit.marks, next.marks, records);
  return std::exchange(now_, std::move(sealing.next));
}

// A conversion of contiguous memory at the end of the tape.
struct OpenCircuit::Conversion {
  Dtype compute;
  RecordOperand out, in;
  int64_t n;
};

// The conversions at the end which nothing but the call will have read, of memory that the circuit
// does not write. How many of `found` are set.
int OpenCircuit::find_conversions(std::span<const CallOperand> operands,
                                  std::span<Conversion> found) const {
  const RecordedCircuit& circuit = *now_;
  if (!circuit.tape.may_end_in_conversion()) return 0;
  enum : uint8_t { kNamed = 1, kWrites = 2 };
  std::vector<uint8_t> seen(circuit.slots.size());
  const auto is_read_by_call = [&](const Buffer* buffer) {
    bool reads = false, writes = false;
    for (const CallOperand& operand : operands) {
      if (operand.buffer != buffer || !is_present(operand)) continue;
      reads |= operand.reads;
      writes |= operand.writes;
    }
    return reads && !writes;
  };
  size_t count = 0;
  circuit::Tape::decode(circuit.tape.words(), [&](const Record& record, int) {
    const circuit::TapeOperand &out = record.operands[0], &in = record.operands[1];
    const bool converts = record.code == circuit::kCodeConvert && record.flat &&
                          out.kind == OperandKind::kMemory && in.kind == OperandKind::kMemory;
    if (converts && count < found.size() && circuit.slots[out.slot].fresh && seen[out.slot] == 0 &&
        (seen[in.slot] & kWrites) == 0 && is_read_by_call(circuit.slots[out.slot].buffer)) {
      const auto operand = [&](const circuit::TapeOperand& o) {
        return RecordOperand{
            .buffer = circuit.slots[o.slot].buffer, .offset = o.offset, .dtype = o.dtype};
      };
      found[count++] = {record.compute, operand(out), operand(in), record.shape[0]};
    } else {
      count = 0;  // they are not the last
    }
    if (record.code != circuit::kCodeCall) {
      for (int k = 0; k <= record.arity; ++k) {
        const circuit::TapeOperand& o = record.operands[k];
        if (o.kind != OperandKind::kImmediate) seen[o.slot] |= k == 0 ? kNamed | kWrites : kNamed;
      }
      return;
    }
    for (size_t k = 0; k < record.call.operands(); ++k) {
      const circuit::CallSlot o = record.call.operand(k);
      if (o.present) seen[o.slot] |= o.writes ? kNamed | kWrites : kNamed;
    }
  });
  // A circuit of nothing is none.
  return static_cast<int>(count) < circuit.tape.records() ? static_cast<int>(count) : 0;
}

std::unique_ptr<RecordedCircuit> OpenCircuit::seal_before_call(
    Sealing& sealing, std::span<const CallOperand> operands) {
  Conversion conversions[4];
  const int count = find_conversions(operands, conversions);
  // From here on nothing fails.
  sealing.next->tape.reserve_conversions(static_cast<size_t>(count));
  sealing.next->slots.reserve(2 * static_cast<size_t>(count));
  now_->states.reserve(now_->slots.size() / 8 + 1);
  now_->tape.remove_conversions(count);
  std::unique_ptr<RecordedCircuit> sealed = seal(sealing, Why::kCall);
  if (count != 0) begin();
  for (int k = 0; k < count; ++k) {
    const Conversion& c = conversions[k];
    uint64_t* word = now_->tape.begin_flat(circuit::kCodeConvert, c.compute, 1, c.n);
    const uint32_t out = rename(c.out.buffer), in = slot_of(c.in.buffer, false);
    word = circuit::Tape::put_memory(word, false, c.out.dtype, out, c.out.offset);
    word = circuit::Tape::put_memory(word, false, c.in.dtype, in, c.in.offset);
    now_->tape.end_record(word);
  }
  return sealed;
}

}  // namespace hologram::internal
