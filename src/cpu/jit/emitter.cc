// SPDX-License-Identifier: MIT
// A generated function: its frame, entry, invariants, phases over strips, calls, exit; and, where
// it walks rows, pointers and numbers that move on from row to row, and sums along them.
#if defined(__x86_64__)
#include "src/cpu/jit/emitter.h"

#include <algorithm>

#include "src/cpu/device/kernel_table.h"

namespace hologram::cpu::jit {

using Xbyak::Address;
using Xbyak::Opmask;
using Xbyak::Reg64;
using Xbyak::Xmm;
using Xbyak::Ymm;
using Xbyak::Zmm;

namespace {

constexpr int kHomeBytes = 64;
// Bodies up to this long are written once for each accumulator.
constexpr size_t kShortBody = 14;
// Registers that invariants are computed in.
constexpr int kWorkRegisters = 5;

int aligned(int64_t bytes) { return static_cast<int>((bytes + 63) / 64 * 64); }

}  // namespace

Emitter::Emitter(const LoopGraph& graph, const Schedule& schedule, void* buffer, size_t capacity)
    : Assembler(graph.isa, buffer, capacity), graph_(graph), schedule_(schedule) {
  set_lanes(schedule.lanes);
  simple_ = schedule.phases.size() == 1 && schedule.phases[0].calls.empty();
  values_.resize(graph.nodes.size());
  row_varies_.assign(graph.nodes.size(), 0);
  vector_end_ = free_vectors();
  owner_.assign(32, -1);
  mask_owner_.assign(8, -1);
}

void Emitter::emit() {
  lay_out_frame();
  enter();
  Xbyak::Label exit;
  cmp(rcx, 0);
  jle(exit, T_NEAR);
  if (graph_.by_rows) {
    rows(schedule_.phases[0]);
  } else {
    all_in_one();
  }
  L(exit);
  leave();
  if (!has_tail_table_) return;
  align(32);
  L(tail_table_);
  for (int i = 0; i < 8; ++i) dd(0xffffffff);
  for (int i = 0; i < 8; ++i) dd(0);
}

// All n elements, a strip at a time.
void Emitter::all_in_one() {
  Xbyak::Label next_strip;
  if (simple_) {
    find_uses(schedule_.phases[0]);
    choose_pinned(schedule_.phases[0]);
  }
  compute_invariants(false);
  fill_strips();
  if (!simple_) mov(qword[rsp + kStart], 0);
  L(next_strip);
  strip_end();
  for (const Phase& each : schedule_.phases) {
    phase(each);
    calls(each);
  }
  if (schedule_.strip > 0) {
    mov(rax, ptr[rsp + kEnd]);
    mov(ptr[rsp + kStart], rax);
    cmp(rax, ptr[rsp + kCount]);
    jl(next_strip, T_NEAR);
  }
}

void Emitter::lay_out_frame() {
  const size_t arrays = schedule_.arrays.size();
  pointer_.assign(arrays, -1);
  tail_buffer_.assign(arrays, -1);
  int64_t at = aligned(base_of_fold(static_cast<int>(graph_.folds.size())));
  for (size_t a = 0; a < arrays; ++a) {
    if (is_wide() || !is_narrow(static_cast<int>(a))) continue;
    tail_buffer_[a] = static_cast<int>(at);
    at += kHomeBytes;
  }
  for (int id : schedule_.invariants) {
    value(id).home = static_cast<int>(at);
    at += kHomeBytes;
  }
  strips_ = static_cast<int>(at);
  at += schedule_.strip_bytes;
  frame_bytes_ = aligned(at);
}

int Emitter::new_home() {
  if (!free_homes_.empty()) {
    const int home = free_homes_.back();
    free_homes_.pop_back();
    return home;
  }
  const int home = frame_bytes_;
  frame_bytes_ += kHomeBytes;
  return home;
}

void Emitter::enter() {
  endbr64();
  push(rbp);
  mov(rbp, rsp);
  push(rbx);
  push(r12);
  push(r13);
  push(r14);
  push(r15);
  sub(rsp, 0x7fffffff);
  frame_size_at_ = getSize() - 4;
  and_(rsp, -64);
  mov(ptr[rsp + kInputs], rdi);
  if (simple_) mov(r15, rdi);
  mov(ptr[rsp + kNumbers], rsi);
  mov(ptr[rsp + kOutputs], rdx);
  mov(ptr[rsp + kCount], rcx);
  if (!graph_.by_rows) return;
  mov(ptr[rsp + kRows], r8);
  mov(ptr[rsp + kSteps], r9);
}

void Emitter::leave() {
  if (graph_.streams != 0) sfence();
  rewrite(frame_size_at_, static_cast<uint64_t>(frame_bytes_) + 64, 4);
  lea(rsp, ptr[rbp - 40]);
  pop(r15);
  pop(r14);
  pop(r13);
  pop(r12);
  pop(rbx);
  pop(rbp);
  vzeroupper();
  ret();
}

void Emitter::compute_invariants(bool varying) {
  std::vector<char> read(values_.size(), 0);  // by another invariant
  for (int id : schedule_.invariants) {
    for (int k = 0; k < node(id).arity; ++k) read[static_cast<size_t>(node(id).in[k])] = 1;
  }
  for (int id : schedule_.invariants) {
    if (varies(id) != varying) continue;
    if (read[static_cast<size_t>(id)] || !loads_where_pinned(id)) compute_invariant(id);
  }
}

// A number or constant that needs no place in the frame, for its register is loaded at once.
bool Emitter::loads_where_pinned(int id) const {
  return simple_ && value(id).pinned && node(id).arity == 0;
}

void Emitter::load_pinned(int id) {
  const Value& v = value(id);
  if (!loads_where_pinned(id)) return reload(v.reg, frame(v.home), false);
  node(id).op == Op::kNumber ? load_number(v.reg, node(id)) : load_constant(v.reg, node(id));
}

void Emitter::compute_invariant(int id) {
  const LoopNode& n = node(id);
  constexpr int kResult = 4;
  if (n.op == Op::kNumber) {
    load_number(kResult, n);
  } else if (n.op == Op::kConst) {
    load_constant(kResult, n);
  } else {
    int from[4] = {0, 1, 2, 3};
    for (int k = 0; k < n.arity; ++k) {
      const int in = n.in[k];
      if (in_mask_file(in)) from[k] += kFirstMask;
      reload(from[k], frame(value(in).home), node(in).is_mask());
    }
    operation(n, kResult, from, nullptr);
  }
  spill(frame(value(id).home), kResult, n.is_mask());
}

void Emitter::load_number(int to, const LoopNode& n) {
  if (graph_.by_rows) {
    mov(rax, ptr[rsp + base_of_number(n.index)]);
  } else {
    mov(rax, ptr[rsp + kNumbers]);
    mov(rax, ptr[rax + 8 * n.index]);
  }
  const Xmm all = whole(to);
  switch (itemsize(n.dtype)) {
    case 8:
      return vpbroadcastq(all, ptr[rax]);
    case 4:
      return vbroadcastss(all, ptr[rax]);
    case 2:
      return vpbroadcastw(all, ptr[rax]);
    default:
      break;
  }
  if (n.dtype != Dtype::kBool) return vpbroadcastb(all, ptr[rax]);
  movzx(eax, byte[rax]);
  neg(rax);
  sbb(rax, rax);
  if (is_wide()) return kmovq(Xbyak::Opmask(to), rax);
  vmovq(Xmm(to), rax);
  vpbroadcastq(all, Xmm(to));
}

void Emitter::load_constant(int to, const LoopNode& n) {
  const Xmm all = whole(to);
  if (n.bits == 0) return vxorps(all, all, all);
  mov(rax, n.bits);
  vmovq(Xmm(to), rax);
  itemsize(n.dtype) == 8 ? vpbroadcastq(all, Xmm(to)) : vpbroadcastd(all, Xmm(to));
}

void Emitter::fill_strips() {
  for (const Schedule::Fill& fill : schedule_.fills) {
    const Array& array = schedule_.arrays[static_cast<size_t>(fill.array)];
    const int64_t bytes = schedule_.strip * static_cast<int64_t>(itemsize(array.dtype));
    reload(0, frame(value(fill.node).home), false);
    lea(rax, frame(strips_ + static_cast<int>(array.offset)));
    lea(rdx, ptr[rax + static_cast<int>(bytes)]);
    Xbyak::Label next;
    L(next);
    vmovups(ptr[rax], typed(0, array.dtype));
    add(rax, lanes() * static_cast<int>(itemsize(array.dtype)));
    cmp(rax, rdx);
    jb(next);
  }
}

// end = min(start + strip, count)
void Emitter::strip_end() {
  mov(rax, ptr[rsp + kCount]);
  if (schedule_.strip > 0) {
    mov(rdx, ptr[rsp + kStart]);
    add(rdx, static_cast<uint32_t>(schedule_.strip));
    cmp(rax, rdx);
    cmovg(rax, rdx);
  }
  mov(ptr[rsp + kEnd], rax);
}

void Emitter::calls(const Phase& phase) {
  if (phase.calls.empty()) return;
  for (const Call& call : phase.calls) {
    const LoopNode& n = node(call.node);
    for (int k = 0; k < n.arity; ++k) {
      argument_address(rax, call.in[k]);
      mov(ptr[rsp + kCallIn + 8 * k], rax);
    }
    CallArgument out;
    out.array = call.out;
    argument_address(rsi, out);
    lea(rdi, ptr[rsp + kCallIn]);
    mov(rdx, ptr[rsp + kEnd]);
    sub(rdx, ptr[rsp + kStart]);
    const KernelTable& table = kernel_table(is_wide() ? Isa::kAvx512 : Isa::kAvx2);
    const ElementwiseKernel kernel = table.kernels[n.index][static_cast<int>(n.from)][call.form];
    mov(rax, reinterpret_cast<uint64_t>(kernel));
    Assembler::call(rax);
  }
}

// Where the elements of the strip at hand begin.
void Emitter::argument_address(const Reg64& to, const CallArgument& argument) {
  if (argument.array < 0) {
    lea(to, frame(value(argument.single).home));
    return;
  }
  const Array& array = schedule_.arrays[static_cast<size_t>(argument.array)];
  if (array.kind == Array::kStrip) {
    lea(to, frame(strips_ + static_cast<int>(array.offset)));
    return;
  }
  const int size = static_cast<int>(itemsize(array.dtype));
  mov(to, ptr[rsp + (array.kind == Array::kInput ? kInputs : kOutputs)]);
  mov(to, ptr[to + 8 * array.index]);
  mov(rcx, ptr[rsp + kStart]);
  lea(to, ptr[to + rcx * size]);
}

// The address of the element that the strip's index 0 would have.
void Emitter::array_base(const Reg64& to, int index) {
  const Array& array = schedule_.arrays[static_cast<size_t>(index)];
  if (array.kind == Array::kStrip) {
    const int size = static_cast<int>(itemsize(array.dtype));
    imul(to, ptr[rsp + kStart], -size);
    lea(to, ptr[rsp + to + strips_ + static_cast<int>(array.offset)]);
    return;
  }
  if (graph_.by_rows) return mov(to, ptr[rsp + kBases + 8 * index]);
  if (simple_) {
    // The tables are still where the entry had them.
    mov(to, ptr[(array.kind == Array::kInput ? r15 : rdx) + 8 * array.index]);
    return;
  }
  mov(to, ptr[rsp + (array.kind == Array::kInput ? kInputs : kOutputs)]);
  mov(to, ptr[to + 8 * array.index]);
}

bool Emitter::is_narrow(int index) const {
  const Array& array = schedule_.arrays[static_cast<size_t>(index)];
  return array.kind != Array::kStrip && itemsize(array.dtype) < 4;
}

// ---- rows and reductions ----

// What loops over rows cannot do; the caller then has another way.
void Emitter::check_rows() const {
  if (!simple_) throw Xbyak::Error(Xbyak::ERR_INTERNAL);
  for (int id : graph_.folds) {
    const int bytes = lanes() * static_cast<int>(itemsize(node(id).dtype));
    if (bytes != vector_bytes() || schedule_.is_invariant[static_cast<size_t>(id)]) {
      throw Xbyak::Error(Xbyak::ERR_INTERNAL);
    }
  }
}

int Emitter::base_of_number(int index) const {
  return kBases + 8 * (static_cast<int>(schedule_.arrays.size()) + index);
}

int Emitter::base_of_fold(int index) const { return base_of_number(graph_.numbers + index); }

void Emitter::find_varying() {
  row_varies_.assign(values_.size(), 0);
  for (int id : schedule_.invariants) {
    const LoopNode& n = node(id);
    bool varying = n.op == Op::kNumber;
    for (int k = 0; k < n.arity; ++k) varying = varying || varies(n.in[k]);
    row_varies_[static_cast<size_t>(id)] = varying;
  }
}

void Emitter::copy_bases() {
  const auto copy = [&](int table, int index, int to) {
    mov(rax, ptr[rsp + table]);
    mov(rax, ptr[rax + 8 * index]);
    mov(ptr[rsp + to], rax);
  };
  for (size_t a = 0; a < schedule_.arrays.size(); ++a) {
    const Array& array = schedule_.arrays[a];
    copy(array.kind == Array::kInput ? kInputs : kOutputs, array.index,
         kBases + 8 * static_cast<int>(a));
  }
  for (int i = 0; i < graph_.numbers; ++i) copy(kNumbers, i, base_of_number(i));
  const int outputs = static_cast<int>(graph_.outputs.size());
  for (size_t k = 0; k < folds_.size(); ++k) {
    const int index = static_cast<int>(k);
    copy(kOutputs, outputs + index, base_of_fold(index));
  }
}

void Emitter::rows(const Phase& phase) {
  check_rows();
  find_uses(phase);
  place_folds(phase);
  choose_pinned(phase);
  find_varying();
  copy_bases();
  distance_ahead();
  strip_end();
  Xbyak::Label next;
  for (const bool varying : {false, true}) {
    if (varying) L(next);
    compute_invariants(varying);
    for (int id : schedule_.invariants) {
      if (value(id).pinned && varies(id) == varying) load_pinned(id);
    }
  }
  load_pointers(phase);
  if (folds_.empty()) {
    loops(phase);
  } else {
    clear_folds();
    fold_loops(phase);
    finish_folds();
  }
  next_row();
  dec(qword[rsp + kRows]);
  jg(next, T_NEAR);
}

// Bytes from a row of the input that is fetched to the one that this call does not reach.
void Emitter::distance_ahead() {
  if (graph_.fetched < 0) return;
  mov(rax, ptr[rsp + kSteps]);
  mov(rdx, ptr[rax + 8 * graph_.fetched]);
  imul(rdx, ptr[rsp + kRows]);
  mov(ptr[rsp + kAhead], rdx);
}

void Emitter::fetch_ahead(int ahead) {
  for (size_t a = 0; a < schedule_.arrays.size(); ++a) {
    const Array& array = schedule_.arrays[a];
    if (array.kind != Array::kInput || array.index != graph_.fetched || pointer_[a] < 0) continue;
    const int size = static_cast<int>(itemsize(array.dtype));
    mov(rax, ptr[rsp + kAhead]);
    add(rax, Xbyak::Reg64(pointer_[a]));
    prefetcht0(ptr[rax + rcx * size + ahead * size]);
  }
}

void Emitter::next_row() {
  mov(rax, ptr[rsp + kSteps]);
  const auto advance = [&](int step, int base) {
    mov(rdx, ptr[rax + 8 * step]);
    add(ptr[rsp + base], rdx);
  };
  for (size_t a = 0; a < schedule_.arrays.size(); ++a) {
    const Array& array = schedule_.arrays[a];
    const int before = array.kind == Array::kInput ? 0 : graph_.inputs + graph_.numbers;
    advance(before + array.index, kBases + 8 * static_cast<int>(a));
  }
  for (int i = 0; i < graph_.numbers; ++i) advance(graph_.inputs + i, base_of_number(i));
}

// ---- folds ----

// Accumulators are registers where the body is short enough to be written once for each.
void Emitter::place_folds(const Phase& phase) {
  folds_.assign(graph_.folds.size(), Fold());
  const int registers = kAccumulators * static_cast<int>(folds_.size());
  const int needed = std::max(pressure(phase, false), kWorkRegisters);
  if (phase.items.size() <= kShortBody && registers + needed <= free_vectors()) {
    for (Fold& fold : folds_) fold.reg = vector_end_ -= kAccumulators;
    return;
  }
  for (Fold& fold : folds_) {
    fold.home = frame_bytes_;
    frame_bytes_ += kAccumulators * vector_bytes();
  }
}

// Uses rax where the accumulator goes by the index.
Address Emitter::accumulator(const Fold& fold, int index) {
  if (index != kByIndex) return frame(fold.home + index * vector_bytes());
  lea(rax, ptr[rcx * (vector_bytes() / lanes())]);
  and_(eax, kAccumulators * vector_bytes() - 1);
  return ptr[rsp + rax + fold.home];
}

void Emitter::clear_folds() {
  const Xmm zero = whole(free_vectors());
  for (const Fold& fold : folds_) {
    if (fold.reg < 0) vxorps(zero, zero, zero);
    for (int i = 0; i < kAccumulators; ++i) {
      const Xmm acc = whole(std::max(fold.reg, 0) + i);
      fold.reg >= 0 ? vxorps(acc, acc, acc) : vmovups(accumulator(fold, i), zero);
    }
  }
}

// Adds the item's vector to the accumulator at hand; in a tail the lanes that exist.
void Emitter::take_in(const Phase& phase, const Item& item) {
  const Fold& fold = folds_[static_cast<size_t>(kFirstFold - item.store)];
  const Dtype dtype = node(item.node).dtype;
  const Xmm masked = whole(free_vectors()), loaded = whole(free_vectors() + 1);
  Xmm term = whole(fetch(phase, item.node));
  if (partial_ && !is_wide()) {
    vandps(masked, term, tail_mask(dtype));
    term = masked;
  }
  const auto add_term = [&](const Xmm& acc) {
    const Xmm to = partial_ && is_wide() ? acc | Opmask(kTailMask) : acc;
    is_double(dtype) ? vaddpd(to, acc, term) : vaddps(to, acc, term);
  };
  if (fold.reg >= 0) return add_term(whole(fold.reg + fold_lane_));
  const Address place = accumulator(fold, fold_lane_);
  vmovups(loaded, place);
  add_term(loaded);
  vmovups(place, loaded);
}

// Accumulators [from, from + count) are added to those from `to` on.
void Emitter::join_folds(int from, int to, int count) {
  const Xmm sum = whole(free_vectors());
  for (size_t k = 0; k < folds_.size(); ++k) {
    const Fold& fold = folds_[k];
    const bool f64 = is_double(node(graph_.folds[k]).dtype);
    for (int i = 0; i < count; ++i) {
      if (fold.reg >= 0) {
        const Xmm a = whole(fold.reg + to + i), b = whole(fold.reg + from + i);
        f64 ? vaddpd(a, a, b) : vaddps(a, a, b);
        continue;
      }
      const Address b = accumulator(fold, from + i);
      vmovups(sum, accumulator(fold, to + i));
      f64 ? vaddpd(sum, sum, b) : vaddps(sum, sum, b);
      vmovups(accumulator(fold, to + i), sum);
    }
  }
}

// The order that kFoldVectors describes. Accumulators that nothing was added to are zeros, which
// change no sum.
void Emitter::fold_loops(const Phase& phase) {
  Xbyak::Label few, done;
  xor_(ecx, ecx);
  if (folds_[0].reg >= 0) {
    for (const int turn : {kAccumulators, kAccumulators / 2}) {
      Xbyak::Label next, over;
      mov(rdx, ptr[rsp + kEnd]);
      sub(rdx, turn * lanes());
      cmp(rcx, rdx);
      jg(over, T_NEAR);
      if (turn == kAccumulators) align(64);
      L(next);
      for (fold_lane_ = 0; fold_lane_ < turn; ++fold_lane_) {
        run(phase, fold_lane_ * lanes(), false);
      }
      add(rcx, turn * lanes());
      if (turn == kAccumulators) {
        cmp(rcx, rdx);
        jle(next, T_NEAR);
      }
      L(over);
    }
  } else {
    Xbyak::Label next, over;
    mov(rdx, ptr[rsp + kEnd]);
    and_(rdx, -(kAccumulators / 2) * lanes());
    jz(over, T_NEAR);
    L(next);
    fold_lane_ = kByIndex;
    run(phase, 0, false);
    add(rcx, lanes());
    cmp(rcx, rdx);
    jl(next, T_NEAR);
    L(over);
  }
  join_folds(4, 0, 4);
  join_folds(1, 0, 1);
  join_folds(3, 2, 1);
  join_folds(2, 0, 1);
  fold_lane_ = 0;
  loop(phase, 1);
  mov(rdx, ptr[rsp + kEnd]);
  cmp(rcx, rdx);
  jge(done, T_NEAR);
  tail(phase);
  L(done);
}

// Upper halves are added to lower ones.
void Emitter::finish_folds() {
  const int s = free_vectors(), t = s + 1;
  for (size_t k = 0; k < folds_.size(); ++k) {
    const Fold& fold = folds_[k];
    const bool f64 = is_double(node(graph_.folds[k]).dtype);
    const auto add_upper = [&](int bytes) {
      const Xmm sum = vector(s, bytes), upper = vector(t, bytes);
      f64 ? vaddpd(sum, sum, upper) : vaddps(sum, sum, upper);
    };
    fold.reg >= 0 ? vmovaps(whole(s), whole(fold.reg)) : vmovups(whole(s), accumulator(fold, 0));
    if (is_wide()) {
      vextractf64x4(Ymm(t), Zmm(s), 1);
      add_upper(32);
      vextractf32x4(Xmm(t), Ymm(s), 1);
    } else {
      vextractf128(Xmm(t), Ymm(s), 1);
    }
    add_upper(16);
    vmovhlps(Xmm(t), Xmm(s), Xmm(s));
    add_upper(16);
    const int base = base_of_fold(static_cast<int>(k));
    mov(rax, ptr[rsp + base]);
    if (f64) {
      vmovsd(ptr[rax], Xmm(s));
    } else {
      vmovshdup(Xmm(t), Xmm(s));
      add_upper(16);
      vmovss(ptr[rax], Xmm(s));
    }
    add(qword[rsp + base], f64 ? 8 : 4);
  }
}

}  // namespace hologram::cpu::jit

#endif  // defined(__x86_64__)
