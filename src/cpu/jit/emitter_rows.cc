// SPDX-License-Identifier: MIT
// A generated function that walks rows: pointers and numbers that move on from row to row, and sums
// along each.
#if defined(__x86_64__)
#include <algorithm>

#include "src/cpu/jit/emitter.h"

namespace hologram::cpu::jit {

using Xbyak::Address;
using Xbyak::Opmask;
using Xbyak::Xmm;
using Xbyak::Ymm;
using Xbyak::Zmm;

namespace {

// Bodies up to this long are written once for each accumulator.
constexpr size_t kShortBody = 14;

}  // namespace

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
    if (pointer_[a] >= 0) continue;
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
  load_pointers(phase);
  copy_bases();
  distance_ahead();
  strip_end();
  mov(rdx, ptr[rsp + kEnd]);
  and_(edx, lanes() - 1);
  tail_masks();
  Xbyak::Label next;
  for (const bool varying : {false, true}) {
    if (varying) L(next);
    compute_invariants(varying);
    for (int id : schedule_.invariants) {
      if (value(id).pinned && varies(id) == varying) load_pinned(id);
    }
  }
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
    const int step =
        (array.kind == Array::kInput ? 0 : graph_.inputs + graph_.numbers) + array.index;
    if (pointer_[a] >= 0) {
      add(Xbyak::Reg64(pointer_[a]), ptr[rax + 8 * step]);
    } else {
      advance(step, kBases + 8 * static_cast<int>(a));
    }
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
  if (part_ == Part::kMasked && !is_wide()) {
    vandps(masked, term, tail_mask(dtype));
    term = masked;
  }
  const auto add_term = [&](const Xmm& acc) {
    const Xmm to = part_ == Part::kMasked && is_wide() ? acc | Opmask(kTailMask) : acc;
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
        run(phase, fold_lane_ * lanes());
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
    run(phase, 0);
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
