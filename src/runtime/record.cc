// SPDX-License-Identifier: MIT
// Appends ops to the open circuit of a device: loops brought into one form, buffers named by slot.
#include <algorithm>
#include <cstdlib>
#include <new>
#include <string_view>
#include <utility>

#include "hologram/error.h"
#include "hologram/memory.h"
#include "src/base/loops.h"
#include "src/circuit/call_kinds.h"
#include "src/runtime/capture.h"
#include "src/runtime/recorder.h"

namespace hologram {
namespace internal {
namespace {

using Access = BufferAccess;
using circuit::kMaxArity;
using circuit::kTapeDims;
using circuit::OperandKind;
using circuit::Record;

// Dimensions a call may have before merging.
constexpr int kMaxDims = 64;

// Whether a call is to begin another circuit.
bool ends_before_call(const OpenCircuit& circuit) {
  return circuit.call_cost > CircuitBounds::kHandOverCost ||
         (circuit.attention & OpenCircuit::kFull) != 0;
}

int64_t numel_of(int ndim, const int64_t* shape) {
  int64_t n = 1;
  for (int d = 0; d < ndim; ++d) n *= shape[d];
  return n;
}

// On devices whose memory the host cannot touch there is no other way to run an op than to record
// it: where execution is eager it runs before the call returns.
template <class F>
[[gnu::noinline, gnu::cold]] bool record_at_once(Device& device, F& f) {
  if (device.is_host_memory() || !device.runs_plans() || !f(Recorder::of(device))) return false;
  flush(device);
  return true;
}

// Calls f(sink) for where this thread's records on the device go; false where they go nowhere.
template <class F>
[[gnu::always_inline]] inline bool with_sink(Device& device, F&& f) {
  if (Capture* capture = capturing(); capture != nullptr && capture->takes_from(device))
      [[unlikely]]
    return f(*capture);
  if (Recorder* recorder = Recorder::recording(device)) [[likely]]
    return f(*recorder);
  return record_at_once(device, f);
}

// Records code over the given loops; operand 0 is the result.
bool record_loops(uint16_t code, Dtype compute, const RecordOperand* operands, int arity, int ndim,
                  const int64_t* shape, const int64_t* const* strides) {
  if (operands[0].buffer == nullptr || ndim > kMaxDims || arity > kMaxArity) return false;
  Device& device = operands[0].buffer->device();
  if (!with_sink(device, [](auto&) { return true; })) return false;
  if (numel_of(ndim, shape) == 0) return true;

  // In the order in which the tile machine walks: by the result's strides, the inputs deciding
  // where the result does not.
  int64_t sizes[kMaxDims], all_steps[(kMaxArity + 1) * kMaxDims];
  Loops loops{0, arity + 1, sizes, all_steps, kMaxDims};
  for (int d = 0; d < ndim; ++d) {
    if (shape[d] == 1) continue;
    loops.shape[loops.ndim] = shape[d];
    for (int k = 0; k <= arity; ++k) {
      const bool repeated = operands[k].buffer == nullptr || operands[k].one;
      loops.stride(k, loops.ndim) = repeated ? 0 : strides[k][d];
    }
    ++loops.ndim;
  }
  order_and_merge(loops);
  if (loops.ndim > kTapeDims) return false;

  RecordOperand settled[kMaxArity + 1];
  bool flat = loops.ndim <= 1;
  for (int k = 0; k <= arity; ++k) {
    settled[k] = operands[k];
    if (operands[k].buffer == nullptr) continue;
    const int64_t* steps = &loops.stride(k, 0);
    const bool one = loops.ndim > 0 &&
                     std::all_of(steps, steps + loops.ndim, [](int64_t step) { return step == 0; });
    // A result that repeats one element, or writes one element twice, is not for us to order.
    if (k == 0 && std::find(steps, steps + loops.ndim, 0) != steps + loops.ndim) return false;
    settled[k].one = one;
    flat = flat && (one || loops.ndim == 0 || steps[0] == 1);
  }
  if (flat) {
    const int64_t n = loops.ndim == 0 ? 1 : loops.shape[0];
    return with_sink(
        device, [&](auto& sink) { return sink.append_flat(code, compute, settled, arity, n); });
  }
  Record record;
  record.code = code;
  record.compute = compute;
  record.arity = static_cast<uint8_t>(arity);
  record.ndim = loops.ndim;
  std::copy_n(loops.shape, loops.ndim, record.shape);
  for (int k = 0; k <= arity; ++k) {
    if (settled[k].buffer == nullptr || settled[k].one) continue;
    std::copy_n(&loops.stride(k, 0), loops.ndim, record.strides[k]);
  }
  return with_sink(device, [&](auto& sink) { return sink.append(record, settled); });
}

// Records a code over whole rows, each operand `cols` elements a row except those folded to one.
bool record_row_code(Record& record, const RecordOperand* operands, int64_t rows, int64_t cols,
                     bool folds) {
  if (operands[0].buffer == nullptr || record.arity > kMaxArity) return false;
  Device& device = operands[0].buffer->device();
  if (!device.runs_plans()) return false;
  size_t item = std::max<size_t>(4, itemsize(record.compute));
  for (int k = 0; k <= record.arity; ++k) {
    // Rows of numbers or of one repeated element are left to the immediate functions.
    if (operands[k].buffer == nullptr || operands[k].one) return false;
    item = std::max(item, itemsize(operands[k].dtype));
  }
  if (cols > device.plan_limits()->row_bytes / static_cast<int64_t>(item)) return false;
  if (rows == 0 || cols == 0) {
    // A fold of nothing has a value, or an error, of its own.
    return (rows == 0 || !folds) && with_sink(device, [](auto&) { return true; });
  }
  record.ndim = 2;
  record.shape[0] = rows;
  record.shape[1] = cols;
  for (int k = 0; k <= record.arity; ++k) {
    const bool folded = folds && k == 0;
    record.strides[k][0] = folded ? 1 : cols;
    record.strides[k][1] = folded ? 0 : 1;
  }
  return with_sink(device, [&](auto& sink) { return sink.append(record, operands); });
}

enum Deferring : int { kUnread = -1, kOff = 0, kOn = 1 };
constinit std::atomic<int> g_deferring{kUnread};

[[gnu::noinline]] int read_deferring() {
  const char* text = std::getenv("HOLOGRAM_EXECUTION");
  const int wish = text != nullptr && std::string_view(text) == "eager" ? kOff : kOn;
  int unread = kUnread;
  return g_deferring.compare_exchange_strong(unread, wish) ? wish : unread;
}

}  // namespace

// With the record lock held, before the first op of a circuit.
void Recorder::begin_circuit() {
  const size_t limit = memory_limit();
  open_->kept_limit = std::max(CircuitBounds::kKeptFloor, limit / CircuitBounds::kKeptShare);
  open_->unbacked_limit = limit / CircuitBounds::kUnbackedShare;
}

// With the record lock held: whether memory that only the open circuit holds passes its bound.
bool Recorder::keeps_too_much() const {
  size_t kept = 0;
  for (const OpenCircuit::Slot& slot : open_->slots) {
    if (slot.buffer->use_count() == 1 && !slot.fresh) kept += slot.buffer->nbytes();
  }
  return kept > open_->kept_limit;
}

// With the record lock held. Names the buffer, which the circuit holds from its first naming on.
[[gnu::always_inline]] inline uint32_t Recorder::slot_of(Buffer* buffer, bool writes) {
  std::atomic<uint64_t>& recorded = Access::recorded(buffer);
  const uint64_t word = recorded.load(std::memory_order_relaxed);
  constexpr uint64_t kWrites = kWritten | Buffer::kWrittenByRecorded;
  if (word >> Buffer::kRecordedEpochShift == open_->epoch) {
    if (writes && (word & kWrites) != kWrites)
      recorded.store(word | kWrites, std::memory_order_relaxed);
    return static_cast<uint32_t>(word >> kSlotShift & kSlotMask);
  }
  OpenCircuit& circuit = *open_;
  const auto slot = static_cast<uint32_t>(circuit.slots.size());
  // What earlier circuits write has memory by the time that this one runs. Code that writes it
  // without recording gives it memory first.
  const bool backed = (word & kWritten) != 0 || buffer->data() != nullptr;
  const bool fresh = !backed && Access::pool(buffer) == PoolKind::kDeferred;
  circuit.slots.push_back({buffer, fresh});
  // The recorder holds one reference, which passes to the last circuit that names the buffer.
  if (word >> Buffer::kRecordedEpochShift == 0) buffer->retain();
  (backed ? circuit.backed_bytes : circuit.unbacked_bytes) += buffer->nbytes();
  const bool waits = word >> Buffer::kRecordedEpochShift > device_.done_epoch();
  const uint64_t kept = waits ? kFlagsMask : kFlagsMask & ~Buffer::kWrittenByRecorded;
  recorded.store(circuit.epoch << Buffer::kRecordedEpochShift | uint64_t{slot} << kSlotShift |
                     (word & kept) | (writes ? kWrites : 0),
                 std::memory_order_relaxed);
  return slot;
}

// With the record lock held: as slot_of(), for a buffer whose only record was in the circuit before
// and moves to this one. At no moment is there none that writes it.
uint32_t Recorder::rename(Buffer* buffer) {
  std::atomic<uint64_t>& recorded = Access::recorded(buffer);
  const auto slot = static_cast<uint32_t>(open_->slots.size());
  open_->slots.push_back({buffer, /*fresh=*/true});
  open_->unbacked_bytes += buffer->nbytes();
  const uint64_t flags = recorded.load(std::memory_order_relaxed) & kFlagsMask;
  recorded.store(open_->epoch << Buffer::kRecordedEpochShift | uint64_t{slot} << kSlotShift | flags,
                 std::memory_order_relaxed);
  return slot;
}

// With the record lock held. Whether the operands are for recording; then there is room for their
// slots.
[[gnu::always_inline]] inline bool Recorder::may_record(const RecordOperand* operands, int count) {
  for (int k = 0; k < count; ++k) {
    Buffer* buffer = operands[k].buffer;
    if (is_complex(operands[k].dtype)) return false;
    if (buffer == nullptr) continue;
    const uint64_t word = Access::recorded(buffer).load(std::memory_order_relaxed);
    if ((word & kExported) != 0 || &buffer->device() != &device_) return false;
  }
  return has_slots(static_cast<size_t>(count));
}

// With the record lock held. False where the circuit cannot name `count` buffers more.
[[gnu::always_inline]] inline bool Recorder::has_slots(size_t count) {
  std::vector<OpenCircuit::Slot>& slots = open_->slots;
  if (slots.capacity() - slots.size() < count) [[unlikely]] {
    slots.reserve(std::max(2 * slots.capacity(), slots.size() + count));
  }
  return slots.size() + count <= kSlotMask;
}

// With the record lock held. False, and nothing changed, where an operand is not for recording.
[[gnu::always_inline]] inline bool Recorder::settle_operands(const RecordOperand* operands,
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

// With the record lock held, which may be let go in between: from now on the open circuit takes an
// op of this thread, whose float mode is returned. Before the lock the read would cost more: taking
// the lock waits for it.
[[gnu::always_inline]] inline uint32_t Recorder::make_ready(std::unique_lock<SpinLock>& lock) {
  const uint32_t mode = float_mode();
  if (open_->attention != 0 || open_->float_mode != mode) [[unlikely]]
    make_room(lock, mode);
  return mode;
}

// With the record lock held.
[[gnu::always_inline]] inline void Recorder::after_append() {
  OpenCircuit& circuit = *open_;
  ++ops_recorded_;
  const int records = circuit.tape.records();
  if (records == 1) pending_.store(true, std::memory_order_relaxed);
  if (records >= CircuitBounds::kMaxOps || circuit.unbacked_bytes > circuit.unbacked_limit ||
      (records % CircuitBounds::kLookEvery == 0 && circuit.backed_bytes > circuit.kept_limit &&
       keeps_too_much())) [[unlikely]] {
    circuit.attention |= OpenCircuit::kFull;
  }
}

bool Recorder::append_flat(uint16_t code, Dtype compute, const RecordOperand* operands, int arity,
                           int64_t n) {
  std::unique_lock lock(record_lock_);
  make_ready(lock);
  OpenCircuit& circuit = *open_;
  if (circuit.tape.empty()) begin_circuit();
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
  after_append();
  return true;
}

bool Recorder::append(Record& record, const RecordOperand* operands) {
  uint64_t bits[kMaxArity + 1];
  std::unique_lock lock(record_lock_);
  make_ready(lock);
  if (open_->tape.empty()) begin_circuit();
  if (!settle_operands(operands, record.arity + 1, record.operands, bits)) return false;
  open_->tape.append(record, bits);
  after_append();
  return true;
}

// A conversion of contiguous memory at the end of the tape.
struct Recorder::Conversion {
  Dtype compute;
  RecordOperand out, in;
  int64_t n;
};

// With the record lock held: the conversions at the end of the open circuit which nothing but the
// call will have read, of memory that the circuit does not write. How many of `found` are set.
int Recorder::find_conversions(std::span<const CallOperand> operands, std::span<Conversion> found) {
  const OpenCircuit& circuit = *open_;
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

// With the record lock held, which is let go in between: the open circuit is complete but for the
// conversions that the call reads. They begin the next one, so that the call can read what they
// convert.
void Recorder::end_before_call(std::unique_lock<SpinLock>& lock,
                               std::span<const CallOperand> operands) {
  Sealing sealing;
  begin_sealing(lock, sealing);
  if (!ends_before_call(*open_)) {  // another thread was faster
    lock.unlock();
    sealing.drop();
    lock.lock();
    return;
  }
  // The lock is held from here until they are recorded again, which cannot fail.
  Conversion conversions[4];
  const int count = find_conversions(operands, conversions);
  sealing.next->tape.reserve_conversions(static_cast<size_t>(count));
  sealing.next->slots.reserve(2 * static_cast<size_t>(count));
  open_->states.reserve(open_->slots.size() / 8 + 1);
  open_->tape.remove_conversions(count);
  end_sealing(sealing, Why::kCall);
  if (count != 0) begin_circuit();
  for (int k = 0; k < count; ++k) {
    const Conversion& c = conversions[k];
    uint64_t* word = open_->tape.begin_flat(circuit::kCodeConvert, c.compute, 1, c.n);
    const uint32_t out = rename(c.out.buffer), in = slot_of(c.in.buffer, false);
    word = circuit::Tape::put_memory(word, false, c.out.dtype, out, c.out.offset);
    word = circuit::Tape::put_memory(word, false, c.in.dtype, in, c.in.offset);
    open_->tape.end_record(word);
  }
  run_sealed(lock, Why::kCall);
}

bool Recorder::append_call(uint16_t kind, std::span<const CallOperand> operands,
                           std::span<const uint64_t> attributes, std::span<const uint64_t> numbers,
                           double cost) {
  std::unique_lock lock(record_lock_);
  if (ends_before_call(*open_)) end_before_call(lock, operands);
  make_ready(lock);
  if (open_->tape.empty()) begin_circuit();
  for (const CallOperand& operand : operands) {
    if (!is_present(operand)) continue;
    const uint64_t word = Access::recorded(operand.buffer).load(std::memory_order_relaxed);
    if ((word & kExported) != 0 || &operand.buffer->device() != &device_) return false;
  }
  if (!has_slots(operands.size())) return false;
  circuit::Tape& tape = open_->tape;
  uint64_t* word = tape.begin_call(kind, operands.size(), attributes.size(), numbers.size());
  for (const CallOperand& operand : operands) {
    circuit::CallSlot slot;
    if (is_present(operand)) {
      slot = call_slot(operand, slot_of(operand.buffer, operand.writes));
    }
    word = circuit::Tape::put_call_operand(word, slot);
  }
  tape.end_call(word, attributes, numbers);
  open_->call_cost += cost;
  after_append();
  return true;
}

void Recorder::append_tape(const circuit::Tape& tape, std::vector<BufferRef> buffers,
                           std::span<const uint8_t> written, double cost) {
  std::unique_lock lock(record_lock_);
  const uint32_t mode = make_ready(lock);
  // Others may record while the lock is let go.
  while (!open_->tape.empty()) end_circuit(lock, Why::kCall);
  open_->float_mode = mode;
  if (!has_slots(buffers.size())) {
    fail(ErrorKind::kInvalidArgument, "Circuit: has ", buffers.size(),
         " buffers, more than one circuit can name");
  }
  circuit::Tape copy = tape;
  begin_circuit();
  open_->tape = std::move(copy);
  for (size_t s = 0; s < buffers.size(); ++s) slot_of(buffers[s].get(), written[s] != 0);
  buffers.clear();
  open_->call_cost += cost;
  ops_recorded_ += static_cast<uint64_t>(tape.records());
  pending_.store(true, std::memory_order_relaxed);
  end_circuit(lock, Why::kCall);
}

bool Recorder::append_planned(const std::shared_ptr<PlannedCircuit>& planned,
                              std::span<Buffer* const> given, std::span<const uint64_t> numbers) {
  const auto outside = [&](uint32_t slot) { return planned->capture.slots()[slot].buffer.get(); };
  Sealing sealing;  // outlives the lock
  std::unique_lock lock(record_lock_);
  const uint32_t mode = make_ready(lock);
  begin_sealing(lock, sealing);
  // Others may record while the lock is let go.
  while (!open_->tape.empty()) end_circuit(lock, Why::kCall);
  // From here on the lock is held until the circuit is sealed: what another thread appended to it
  // would never run.
  const auto may_use = [&](const Buffer* buffer) {
    const uint64_t word = Access::recorded(const_cast<Buffer*>(buffer)).load();
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
  open_->float_mode = mode;
  begin_circuit();
  open_->tape.append_call(0, {}, {}, numbers);
  open_->planned = planned;
  for (const PlannedCircuit::Use& use : planned->uses) slot_of(given[use.given], use.written);
  for (const uint32_t slot : planned->outside) {
    slot_of(outside(slot), planned->capture.slots()[slot].written);
  }
  open_->call_cost += planned->capture.cost();
  ops_recorded_ += static_cast<uint64_t>(planned->capture.tape().records());
  pending_.store(true, std::memory_order_relaxed);
  end_sealing(sealing, Why::kCall);
  run_sealed(lock, Why::kCall);
  return true;
}

}  // namespace internal

bool is_deferring() {
  if (internal::capturing() != nullptr) [[unlikely]]
    return true;
  const int now = internal::g_deferring.load(std::memory_order_relaxed);
  return (now != internal::kUnread ? now : internal::read_deferring()) == internal::kOn;
}

void set_deferring(bool deferring) {
  internal::g_deferring.store(deferring ? internal::kOn : internal::kOff);
  if (!deferring) internal::Recorder::flush_all();
}

using circuit::Record;

bool record_flat(OpId op, Dtype compute, const RecordOperand* operands, int arity, int64_t n) {
  if (operands[0].buffer == nullptr || is_complex(compute)) [[unlikely]]
    return false;
  if (arity > circuit::kMaxArity) [[unlikely]]
    return false;
  return internal::with_sink(operands[0].buffer->device(), [&](auto& sink) {
    return n <= 0 || sink.append_flat(static_cast<uint16_t>(op), compute, operands, arity, n);
  });
}

bool record_strided(OpId op, Dtype compute, const RecordOperand* operands, int arity, int ndim,
                    const int64_t* shape, const int64_t* const* strides) {
  if (is_complex(compute)) return false;
  return internal::record_loops(static_cast<uint16_t>(op), compute, operands, arity, ndim, shape,
                                strides);
}

bool record_copy(const RecordOperand& out, const RecordOperand& in, int ndim, const int64_t* shape,
                 const int64_t* out_strides, const int64_t* in_strides) {
  const RecordOperand operands[] = {out, in};
  const int64_t* const strides[] = {out_strides, in_strides};
  return internal::record_loops(circuit::kCodeConvert, in.dtype, operands, 1, ndim, shape, strides);
}

bool record_flat_copy(const RecordOperand& out, const RecordOperand& in, int64_t n) {
  if (out.buffer == nullptr) return false;
  const RecordOperand operands[] = {out, in};
  return internal::with_sink(out.buffer->device(), [&](auto& sink) {
    return n <= 0 || sink.append_flat(circuit::kCodeConvert, in.dtype, operands, 1, n);
  });
}

bool record_reduction(Reduction op, const RecordOperand& out, const RecordOperand& in, int64_t rows,
                      int64_t cols, double parameter) {
  Record record;
  record.code = circuit::kCodeReduction;
  record.attr = static_cast<uint16_t>(op);
  record.arity = 1;
  record.parameter = parameter;
  const auto result = reduction_info(op).result;
  const bool as_out = result == ReductionInfo::kOut || result == ReductionInfo::kFloat;
  record.compute = as_out ? compute_dtype(out.dtype) : in.dtype;
  const RecordOperand operands[] = {out, in};
  return internal::record_row_code(record, operands, rows, cols, /*folds=*/true);
}

bool record_rows(int which, const RecordOperand* operands, int arity, int64_t rows, int64_t cols) {
  Record record;
  record.code = circuit::kCodeRow;
  record.attr = static_cast<uint16_t>(which);
  record.arity = static_cast<uint8_t>(arity);
  record.compute = compute_dtype(operands[0].dtype);
  // softmax() computes in float64 as soon as one operand is: such a mixture is left to it.
  for (int k = 0; k <= arity; ++k) {
    if (compute_dtype(operands[k].dtype) != record.compute) return false;
  }
  return internal::record_row_code(record, operands, rows, cols, /*folds=*/false);
}

bool record_call(uint16_t kind, std::span<const CallOperand> operands,
                 std::span<const uint64_t> attributes, std::span<const uint64_t> numbers,
                 double cost) {
  const char* name = circuit::call_name(kind);
  Device* device = nullptr;
  for (size_t k = 0; k < operands.size(); ++k) {
    const CallOperand& operand = operands[k];
    if (!internal::is_present(operand)) continue;
    if (device == nullptr) device = &operand.buffer->device();
    if (operand.offset < 0 ||
        static_cast<uint64_t>(operand.offset) + static_cast<uint64_t>(operand.bytes) >
            operand.buffer->nbytes()) {
      fail(ErrorKind::kInvalidArgument, "record_call: operand ", k, " of ", name, " is bytes ",
           operand.offset, " to ", operand.offset + operand.bytes, " of a buffer of ",
           operand.buffer->nbytes(), "; name the bytes that the call touches");
    }
  }
  return device != nullptr && internal::with_sink(*device, [&](auto& sink) {
           return sink.append_call(kind, operands, attributes, numbers, cost);
         });
}

}  // namespace hologram
