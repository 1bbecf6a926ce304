// SPDX-License-Identifier: MIT
// A generated function: its frame, entry, invariants, phases over strips, calls, exit.
#if defined(__x86_64__)
#include "src/cpu/jit/emitter.h"

#include <algorithm>

#include "src/cpu/device/kernel_table.h"

namespace hologram::cpu::jit {

using Xbyak::Reg64;
using Xbyak::Xmm;

namespace {

constexpr int kHomeBytes = 64;

int aligned(int64_t bytes) { return static_cast<int>((bytes + 63) / 64 * 64); }

}  // namespace

Emitter::Emitter(const LoopGraph& graph, const Schedule& schedule, void* buffer, size_t capacity)
    : Assembler(graph.isa, buffer, capacity), graph_(graph), schedule_(schedule) {
  set_lanes(schedule.lanes);
  simple_ = schedule.phases.size() == 1 && schedule.phases[0].calls.empty();
  for (size_t a = 0; a < schedule.arrays.size(); ++a) {
    if (is_packed(static_cast<int>(a))) set_packed();
  }
  values_.resize(graph.nodes.size());
  row_varies_.assign(graph.nodes.size(), 0);
  vector_end_ = free_vectors();
  owner_.assign(32, -1);
  mask_owner_.assign(8, -1);
}

void Emitter::emit() {
  if (graph_.has_gaps && !simple_) throw Xbyak::Error(Xbyak::ERR_INTERNAL);
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
  held_.assign(arrays, -1);
  for (size_t a = 0; a < arrays && holds_last(); ++a) {
    if (schedule_.arrays[a].kind != Array::kOutput) continue;
    held_[a] = static_cast<int>(at);
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
  if (graph_.by_rows) mov(ptr[rsp + kRows], r8);
  if (graph_.by_rows || graph_.has_gaps) mov(ptr[rsp + kSteps], r9);
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
  const Residence& v = value(id);
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
      if (in_mask_file(in)) from[k] += first_mask();
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
  for (const StripCall& call : phase.calls) {
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
  if (simple_ && !graph_.by_rows) {
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

}  // namespace hologram::cpu::jit

#endif  // defined(__x86_64__)
