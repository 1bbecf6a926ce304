// SPDX-License-Identifier: MIT
// The loops of a phase, whole vectors, then the tail; and which registers hold what meanwhile.
#if defined(__x86_64__)
#include <algorithm>

#include "src/cpu/jit/emitter.h"

namespace hologram::cpu::jit {

using Xbyak::Address;
using Xbyak::Reg64;
using Xbyak::Xmm;
using Xbyak::Ymm;

namespace {

// General registers that hold the pointers of arrays. rcx is the index, rdx its limit; rax and r15
// are free within an instruction's surroundings, but r15 is the index of packed arrays where there
// are such.
constexpr int kPointers[] = {3 /* rbx */, 6 /* rsi */, 7 /* rdi */, 8, 9, 10, 11, 12, 13, 14};

// Vectors a turn of the loop: enough to hide the cost of the turn, for code that fits the caches.
int unroll_for(size_t items) { return items <= 12 ? 4 : items <= 32 ? 2 : 1; }

// Bodies up to this long are written twice more, for the ends of rows.
constexpr size_t kHeldBody = 128;

}  // namespace

void Emitter::phase(const Phase& phase) {
  if (phase.items.empty()) return;
  find_uses(phase);
  load_pointers(phase);
  choose_pinned(phase);
  for (int id : schedule_.invariants) {
    if (value(id).pinned) load_pinned(id);
  }
  loops(phase);
  for (Residence& v : values_) {
    v.pinned = false;
    v.reg = -1;
  }
}

void Emitter::load_pointers(const Phase& phase) {
  std::vector<char> used(schedule_.arrays.size(), 0);
  for (int array : phase.source) {
    if (array >= 0) used[static_cast<size_t>(array)] = 1;
  }
  for (const Item& item : phase.items) {
    if (item.store >= 0) used[static_cast<size_t>(item.store)] = 1;
  }
  size_t next = 0;
  for (size_t a = 0; a < used.size(); ++a) {
    pointer_[a] = -1;
    if (!used[a]) continue;
    const int array = static_cast<int>(a);
    if (next < std::size(kPointers)) {
      pointer_[a] = kPointers[next++];
      array_base(Reg64(pointer_[a]), array);
    } else if (!graph_.by_rows) {
      array_base(rax, array);
      mov(ptr[rsp + kBases + 8 * array], rax);
    }
  }
}

// Uses rax where the pointer is in the frame.
Address Emitter::element(int array, int ahead) {
  const int size = static_cast<int>(itemsize(schedule_.arrays[static_cast<size_t>(array)].dtype));
  const int reg = pointer_[static_cast<size_t>(array)];
  if (reg < 0) mov(rax, ptr[rsp + kBases + 8 * array]);
  if (is_packed(array)) return ptr[(reg < 0 ? rax : Reg64(reg)) + r15 * size];
  return ptr[(reg < 0 ? rax : Reg64(reg)) + rcx * size + ahead * size];
}

void Emitter::loops(const Phase& phase) {
  simple_ ? xor_(ecx, ecx) : mov(rcx, ptr[rsp + kStart]);
  if (has_packed()) xor_(r15d, r15d);
  const int unroll = unroll_for(phase.items.size());
  if (holds_last()) hold_last(phase);
  if (unroll > 1) loop(phase, unroll);
  loop(phase, 1);
  Xbyak::Label done;
  mov(rdx, ptr[rsp + kEnd]);
  cmp(rcx, rdx);
  jge(done, T_NEAR);
  if (holds_last()) {
    Xbyak::Label short_row, few;
    cmp(rdx, lanes());
    jl(short_row, T_NEAR);
    store_last(phase);
    jmp(done, T_NEAR);
    L(short_row);
    cmp(rdx, lanes() / 2);
    jl(few, T_NEAR);
    lea(rcx, ptr[rdx - lanes() / 2]);
    run(phase, 0, Part::kHalves);
    jmp(done, T_NEAR);
    L(few);
  }
  tail(phase);
  L(done);
}

void Emitter::loop(const Phase& phase, int unroll) {
  Xbyak::Label next, done;
  mov(rdx, ptr[rsp + kEnd]);
  sub(rdx, unroll * lanes());
  cmp(rcx, rdx);
  jg(done, T_NEAR);
  if (unroll > 1) align(64);
  L(next);
  for (int u = 0; u < unroll; ++u) run(phase, u * lanes());
  add(rcx, unroll * lanes());
  cmp(rcx, rdx);
  jle(next, T_NEAR);
  L(done);
}

void Emitter::tail(const Phase& phase) {
  sub(rdx, rcx);
  if (!graph_.by_rows && !graph_.has_gaps) tail_masks();
  const auto each_narrow = [&](auto action) {
    for (size_t a = 0; a < schedule_.arrays.size(); ++a) {
      if (tail_buffer_[a] >= 0) action(static_cast<int>(a));
    }
  };
  each_narrow([&](int array) {
    const bool read =
        std::find(phase.source.begin(), phase.source.end(), array) != phase.source.end();
    if (read) copy_tail_bytes(array, true);
  });
  run(phase, 0, Part::kMasked);
  each_narrow([&](int array) {
    for (const Item& item : phase.items) {
      if (item.store == array) copy_tail_bytes(array, false);
    }
  });
}

// AVX2 stores a part of a vector some ten times as slowly as a whole one. The elements that are
// left at the end of a row are part of its last whole vector, which is computed before the row, for
// a result may lie where an operand does, and stored after it.
bool Emitter::holds_last() const {
  return !is_wide() && graph_.by_rows && graph_.folds.empty() &&
         schedule_.phases[0].items.size() <= kHeldBody;
}

void Emitter::hold_last(const Phase& phase) {
  Xbyak::Label none;
  mov(rcx, ptr[rsp + kEnd]);
  test(ecx, lanes() - 1);
  jz(none, T_NEAR);
  sub(rcx, lanes());
  jl(none, T_NEAR);
  run(phase, 0, Part::kHeld);
  L(none);
  xor_(ecx, ecx);
}

// Of a row of rdx elements.
void Emitter::store_last(const Phase& phase) {
  lea(rcx, ptr[rdx - lanes()]);
  for (const Item& item : phase.items) {
    if (item.store < 0) continue;
    const Array& array = schedule_.arrays[static_cast<size_t>(item.store)];
    const int bytes = lanes() * static_cast<int>(itemsize(array.dtype));
    const Xmm last = vector(free_vectors(), bytes);
    move(last, frame(held_[static_cast<size_t>(item.store)]), bytes);
    move(element(item.store, 0), last, bytes);
  }
}

// Of the first rdx lanes.
void Emitter::tail_masks() {
  if (is_wide()) {
    mov(rax, -1);
    bzhi(rax, rax, rdx);
    return kmovq(Xbyak::Opmask(kTailMask), rax);
  }
  if (lanes() == 32) return;
  has_tail_table_ = true;
  const Xmm four = vector(0, lanes() * 4);
  const auto unpinned = [&](const Xmm& reg) { return vector(free_vectors(), reg.getBit() / 8); };
  lea(rax, ptr[rip + tail_table_]);
  mov(r15, rdx);
  neg(r15);
  vmovups(unpinned(four), ptr[rax + r15 * 4 + 32]);
  vmovups(ptr[rsp + kTailMask4], unpinned(four));
  if (lanes() > 4) return;
  vmovups(unpinned(Ymm(0)), ptr[rax + r15 * 8 + 32]);
  vmovups(ptr[rsp + kTailMask8], unpinned(Ymm(0)));
}

bool Emitter::is_packed(int index) const {
  if (!graph_.has_gaps) return false;
  const Array& array = schedule_.arrays[static_cast<size_t>(index)];
  const auto& packed = array.kind == Array::kInput ? graph_.packed_inputs : graph_.packed_outputs;
  return array.kind != Array::kStrip && packed[static_cast<size_t>(array.index)] != 0;
}

// Of the elements from the index on that are stored, in a tail of those among the first rdx.
void Emitter::gap_mask() {
  mov(rax, rcx);
  shr(rax, 3);
  add(rax, ptr[rsp + kSteps]);
  const Address bits = ptr[rax + ahead_ / 8];
  const Xbyak::Opmask exist(kTailMask);
  if (part_ == Part::kMasked) {
    mov(rax, bits);
    bzhi(rax, rax, rdx);
    kmovq(exist, rax);
  } else if (lanes() == 8) {
    kmovb(exist, bits);
  } else if (lanes() == 16) {
    kmovw(exist, bits);
  } else {
    lanes() == 32 ? kmovd(exist, bits) : kmovq(exist, bits);
  }
  if (!has_packed()) return;
  kmovq(rax, exist);
  pext(rax, rax, rax);  // as many ones, from the lowest bit on
  kmovq(Xbyak::Opmask(kPackedMask), rax);
}

// AVX2 has no masked moves of bytes or words: the rdx elements go through a buffer in the frame.
void Emitter::copy_tail_bytes(int array, bool in) {
  const int size = static_cast<int>(itemsize(schedule_.arrays[static_cast<size_t>(array)].dtype));
  const int buffer = tail_buffer_[static_cast<size_t>(array)];
  Address first = element(array, 0);
  lea(rax, first);
  Xbyak::Label next;
  xor_(r15d, r15d);
  push(rbx);  // the frame is 8 bytes further away until the pop
  L(next);
  const Address outside = ptr[rax + r15 * size];
  const Address inside = ptr[rsp + r15 * size + buffer + 8];
  if (size == 1) {
    mov(bl, in ? outside : inside);
    mov(in ? inside : outside, bl);
  } else {
    mov(bx, in ? outside : inside);
    mov(in ? inside : outside, bx);
  }
  inc(r15);
  cmp(r15, rdx);
  jl(next);
  pop(rbx);
}

void Emitter::find_uses(const Phase& phase) {
  for (Residence& v : values_) v.uses.clear();
  for (size_t position = 0; position < phase.items.size(); ++position) {
    const Item& item = phase.items[position];
    if (item.store != kCompute) {
      value(item.node).uses.push_back(static_cast<int>(position));
      continue;
    }
    const LoopNode& n = node(item.node);
    for (int k = 0; k < n.arity; ++k) {
      std::vector<int>& uses = value(n.in[k]).uses;
      if (uses.empty() || uses.back() != static_cast<int>(position)) {
        uses.push_back(static_cast<int>(position));
      }
    }
  }
}

// The most values alive at once, invariants aside.
int Emitter::pressure(const Phase& phase, bool masks) const {
  std::vector<int> change(phase.items.size() + 1, 0);
  std::vector<int> defined(values_.size(), -1);
  for (size_t position = 0; position < phase.items.size(); ++position) {
    const Item& item = phase.items[position];
    if (item.store == kCompute)
      defined[static_cast<size_t>(item.node)] = static_cast<int>(position);
  }
  for (size_t i = 0; i < values_.size(); ++i) {
    const Residence& v = values_[i];
    if (v.uses.empty() || schedule_.is_invariant[i]) continue;
    if (in_mask_file(static_cast<int>(i)) != masks) continue;
    const int from = defined[i] >= 0 ? defined[i] : v.uses.front();
    ++change[static_cast<size_t>(from)];
    --change[static_cast<size_t>(v.uses.back()) + 1];
  }
  int alive = 0, most = 0;
  for (int c : change) most = std::max(most, alive += c);
  return most;
}

// Those used most, in the registers that are left over.
void Emitter::choose_pinned(const Phase& phase) {
  std::vector<int> candidates;
  for (int id : schedule_.invariants) {
    if (!value(id).uses.empty() && !in_mask_file(id)) candidates.push_back(id);
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](int a, int b) { return value(a).uses.size() > value(b).uses.size(); });
  constexpr int kSpare = 3;  // for the operands of one operation
  // Rows compute invariants in the first registers again and again.
  const int spare = graph_.by_rows ? kWorkRegisters : kSpare;
  int room = vector_end_ - std::max(pressure(phase, false), spare);
  if (room < static_cast<int>(candidates.size())) room -= kSpare;
  std::fill(owner_.begin(), owner_.end(), -1);
  int reg = vector_end_;
  for (int id : candidates) {
    if (room-- <= 0) break;
    Residence& v = value(id);
    v.reg = --reg;
    v.pinned = true;
    owner_[static_cast<size_t>(reg)] = id;
  }
}

bool Emitter::streams(const Array& array) const {
  const int bytes = lanes() * static_cast<int>(itemsize(array.dtype));
  return array.kind == Array::kOutput && array.index < 64 && itemsize(array.dtype) >= 4 &&
         bytes == vector_bytes() && (graph_.streams >> array.index & 1) != 0;
}

void Emitter::run(const Phase& phase, int ahead, Part part) {
  ahead_ = ahead;
  part_ = part;
  std::fill(mask_owner_.begin(), mask_owner_.end(), -1);
  for (int& id : owner_) {
    if (id >= 0 && !value(id).pinned) id = -1;
  }
  for (size_t i = 0; i < values_.size(); ++i) {
    Residence& v = values_[i];
    v.next = 0;
    v.locked = false;
    if (!v.pinned) v.reg = -1;
    if (!schedule_.is_invariant[i]) v.home = kNoHome;
  }
  if (graph_.fetched >= 0 && part == Part::kWhole) fetch_ahead(ahead);
  if (graph_.has_gaps) gap_mask();
  for (size_t position = 0; position < phase.items.size(); ++position) {
    const Item& item = phase.items[position];
    if (item.store == kCompute) {
      compute(phase, item.node, position);
      continue;
    }
    if (item.is_fold()) {
      take_in(phase, item);
      value(item.node).locked = false;
      release(item.node, position);
      continue;
    }
    const int reg = fetch(phase, item.node);
    if (item.store >= 0) store(place_of(item.store, true), reg);
    value(item.node).locked = false;
    release(item.node, position);
  }
  if (!has_packed()) return;
  kmovq(rax, Xbyak::Opmask(kTailMask));
  popcnt(rax, rax);
  add(r15, rax);
}

// Of the part at hand.
Emitter::Place Emitter::place_of(int array, bool stored) {
  const Array& of = schedule_.arrays[static_cast<size_t>(array)];
  const int buffer = tail_buffer_[static_cast<size_t>(array)];
  if (part_ == Part::kHeld && stored) {
    return {of.dtype, frame(held_[static_cast<size_t>(array)])};
  }
  if (part_ == Part::kMasked && buffer >= 0) return {of.dtype, frame(buffer)};
  Place place{of.dtype, element(array, ahead_)};
  if (part_ == Part::kHalves) {
    place.upper = place.address;
    const int reg = pointer_[static_cast<size_t>(array)];
    place.address = ptr[reg < 0 ? rax : Reg64(reg)];
  }
  place.packed = is_packed(array);
  const bool has_gaps = place.packed || (stored && graph_.has_gaps);
  place.partial = (part_ == Part::kMasked || has_gaps) && of.kind != Array::kStrip;
  place.streams = stored && part_ == Part::kWhole && streams(of);
  return place;
}

void Emitter::compute(const Phase& phase, int id, size_t position) {
  const LoopNode& n = node(id);
  int from[4] = {0, 0, 0, 0};
  Address memory = ptr[rsp];
  bool use_memory = false;
  const bool reads_whole = part_ == Part::kWhole || part_ == Part::kHeld;
  for (int k = 0; k < n.arity; ++k) {
    const int in = n.in[k];
    const Residence& v = value(in);
    const int source = phase.source[static_cast<size_t>(in)];
    const bool last = k == n.arity - 1 && k > 0 && takes_memory(n) && v.reg < 0;
    bool repeated = false;
    for (int j = 0; j < k; ++j) repeated = repeated || n.in[j] == in;
    if (last && !repeated && v.home != kNoHome) {
      memory = frame(v.home);
      use_memory = true;
    } else if (last && !repeated && source >= 0 && reads_whole && v.uses.size() == 1 &&
               !is_packed(source)) {
      memory = element(source, ahead_);
      use_memory = true;
    } else {
      from[k] = fetch(phase, in);
    }
  }
  for (int k = 0; k < n.arity; ++k) value(n.in[k]).locked = false;
  // Registers of what ends here may take the result. Memory that the operation reads is not given
  // back before it has: making room for the result may write a value there.
  const int registers = use_memory ? n.arity - 1 : n.arity;
  for (int k = 0; k < registers; ++k) release(n.in[k], position);
  const int to = in_place(n, from, registers);
  Residence& v = value(id);
  v.reg = to;
  (in_mask_file(id) ? mask_owner_ : owner_)[static_cast<size_t>(to)] = id;
  operation(n, to, from, use_memory ? &memory : nullptr);
  if (use_memory) release(n.in[registers], position);
}

// A register for the result: one of its operands' where the instruction writes to an operand.
int Emitter::in_place(const LoopNode& n, const int* from, int registers) {
  const bool fused = n.op == Op::kFma || n.op == Op::kFnma || n.op == Op::kFms;
  for (int k = 0; fused && k < registers; ++k) {
    if (owner_[static_cast<size_t>(from[k])] < 0) return from[k];
  }
  return allocate(is_wide() && n.is_mask());
}

int Emitter::fetch(const Phase& phase, int id) {
  Residence& v = value(id);
  if (v.reg < 0) {
    const bool mask = in_mask_file(id);
    const int reg = allocate(mask);
    if (v.home != kNoHome) {
      reload(reg, frame(v.home), node(id).is_mask());
    } else {
      load(reg, place_of(phase.source[static_cast<size_t>(id)], false));
    }
    v.reg = reg;
    (mask ? mask_owner_ : owner_)[static_cast<size_t>(reg)] = id;
  }
  v.locked = true;
  return v.reg;
}

int Emitter::allocate(bool mask) {
  std::vector<int>& owners = mask ? mask_owner_ : owner_;
  const int first = mask ? first_mask() : 0, end = mask ? 8 : vector_end_;
  for (int reg = first; reg < end; ++reg) {
    if (owners[static_cast<size_t>(reg)] < 0) return reg;
  }
  return evict(mask);
}

// Makes room by the value that is needed last.
int Emitter::evict(bool mask) {
  std::vector<int>& owners = mask ? mask_owner_ : owner_;
  const int first = mask ? first_mask() : 0, end = mask ? 8 : vector_end_;
  int chosen = -1, furthest = -1;
  for (int reg = first; reg < end; ++reg) {
    const Residence& v = value(owners[static_cast<size_t>(reg)]);
    if (v.pinned || v.locked) continue;
    const int use = v.next < v.uses.size() ? v.uses[v.next] : 1 << 30;
    if (use > furthest) {
      furthest = use;
      chosen = reg;
    }
  }
  if (chosen < 0) throw Xbyak::Error(Xbyak::ERR_INTERNAL);
  const int id = owners[static_cast<size_t>(chosen)];
  Residence& v = value(id);
  if (v.home == kNoHome) {
    v.home = new_home();
    spill(frame(v.home), chosen, node(id).is_mask());
  }
  v.reg = -1;
  owners[static_cast<size_t>(chosen)] = -1;
  return chosen;
}

// Gives back what a value holds once its last use is behind.
void Emitter::release(int id, size_t position) {
  Residence& v = value(id);
  while (v.next < v.uses.size() && v.uses[v.next] <= static_cast<int>(position)) ++v.next;
  if (v.next < v.uses.size()) return;
  if (v.reg >= 0 && !v.pinned) {
    (in_mask_file(id) ? mask_owner_ : owner_)[static_cast<size_t>(v.reg)] = -1;
    v.reg = -1;
  }
  if (v.home != kNoHome && !schedule_.is_invariant[static_cast<size_t>(id)]) {
    free_homes_.push_back(v.home);
    v.home = kNoHome;
  }
}

}  // namespace hologram::cpu::jit

#endif  // defined(__x86_64__)
