// SPDX-License-Identifier: MIT
// One operation of the graph as instructions of AVX2 or AVX-512.
#pragma once

#include <xbyak/xbyak.h>

#include <optional>

#include "src/cpu/jit/loop_graph.h"

namespace hologram::cpu::jit {

inline bool is_double(Dtype d) { return d == Dtype::kFloat64; }

// A vector has `lanes` elements of any dtype; narrow dtypes fill only the low part of a register.
// Masks are mask registers with AVX-512. With AVX2 they are vector registers in which each lane is
// as wide as the widest dtype, all ones or zeros.
class Assembler : public Xbyak::CodeGenerator {
 public:
  Assembler(Isa isa, void* buffer, size_t capacity);

  // Where an element of an array is.
  struct Place {
    Dtype dtype;
    Xbyak::Address address;
    bool partial = false;  // only some lanes exist: the tail masks say which
    bool packed = false;   // and they are side by side. AVX-512 only, 4 and 8 bytes
    bool streams = false;  // whole vectors go past the caches
    // The upper half of the lanes is here, elements that the lower half may have, too. AVX2 only.
    std::optional<Xbyak::Address> upper{};
  };

 protected:
  static constexpr int kTailMask = 1;     // mask register of the lanes that exist in a tail
  static constexpr int kScratchMask = 2;  // free within one operation
  static constexpr int kPackedMask = 3;   // of as many lanes, the first, where operands are packed

  void set_lanes(int lanes);
  bool is_wide() const { return wide_; }
  void set_packed() { has_packed_ = true; }
  bool has_packed() const { return has_packed_; }
  // Mask registers from here on are free for values.
  int first_mask() const { return has_packed_ ? kPackedMask + 1 : kPackedMask; }
  int vector_bytes() const { return wide_ ? 64 : 32; }
  int lanes() const { return lanes_; }
  // Vector registers below this one are free for values.
  int free_vectors() const { return wide_ ? 30 : 14; }

  Xbyak::Xmm vector(int reg, int bytes) const;
  Xbyak::Xmm whole(int reg) const { return vector(reg, vector_bytes()); }
  Xbyak::Xmm typed(int reg, Dtype dtype) const;

  // node into register `to` from registers `from`; `memory`, where given, replaces the last
  // operand (see takes_memory). `to` may be one of `from`.
  void operation(const LoopNode& node, int to, const int* from, const Xbyak::Address* memory);
  bool takes_memory(const LoopNode& node) const;

  void load(int to, const Place& place);
  void store(const Place& place, int from);
  // So many bytes of a register: a power of two from 4 on.
  void move(const Xbyak::Xmm& to, const Xbyak::Address& from, int bytes);
  void move(const Xbyak::Address& to, const Xbyak::Xmm& from, int bytes);
  // So many bytes and as many more, above them in the register.
  void move_halves(const Xbyak::Xmm& to, const Place& from, int bytes);
  void move_halves(const Place& to, const Xbyak::Xmm& from, int bytes);
  // Whole registers to and from memory of the frame.
  void spill(const Xbyak::Address& home, int from, bool is_mask);
  void reload(int to, const Xbyak::Address& home, bool is_mask);
  // Tail masks of AVX2, as vectors in the frame: for 4 and for 8 bytes a lane.
  Xbyak::Address tail_mask(Dtype dtype) const;
  static constexpr int kTailMask4 = 128, kTailMask8 = 160;  // offsets in the frame

 private:
  Xbyak::Xmm scratch(int which, int bytes) const { return vector(free_vectors() + which, bytes); }
  Xbyak::Xmm scratch(int which, Dtype dtype) const { return typed(free_vectors() + which, dtype); }

  void arithmetic(const LoopNode& node, const Xbyak::Xmm& d, const Xbyak::Xmm& a,
                  const Xbyak::Operand& b);
  void multiply_int64(const Xbyak::Xmm& d, const Xbyak::Xmm& a, const Xbyak::Xmm& b);
  void extreme_or_nan(const LoopNode& node, const Xbyak::Xmm& d, const Xbyak::Xmm& x,
                      const Xbyak::Operand& y);
  void fused(const LoopNode& node, int to, const int* from, const Xbyak::Address* memory);
  void fix(const LoopNode& node, int to, const int* from);
  void compare(const LoopNode& node, int to, const Xbyak::Xmm& a, const Xbyak::Operand& b);
  void compare_narrow(const LoopNode& node, const Xbyak::Xmm& d, const Xbyak::Xmm& a,
                      const Xbyak::Operand& b);
  void select(const LoopNode& node, int to, const int* from);
  void mask_logic(Op op, int to, int a, int b);
  void convert(const LoopNode& node, int to, int from);
  void load_packed(const Xbyak::Xmm& to, const Place& place);
  void store_packed(const Place& place, const Xbyak::Xmm& from);
  void load_mask(int to, const Place& place);
  void store_mask(const Place& place, int from);

  bool wide_;
  bool has_packed_ = false;
  int lanes_ = 0;
};

}  // namespace hologram::cpu::jit
