// SPDX-License-Identifier: MIT
// The instructions of each operation, loads and stores: whole vectors, tails, bools as bytes.
#if defined(__x86_64__)
#include "src/cpu/jit/assembler.h"

namespace hologram::cpu::jit {

using Xbyak::Address;
using Xbyak::Operand;
using Xbyak::Opmask;
using Xbyak::Xmm;
using Xbyak::Ymm;

namespace {

// Predicates of vcmpps: none raises a signal for quiet NaN.
constexpr uint8_t kFloatPredicate[] = {0x00, 0x11, 0x12, 0x04, 0x16, 0x03};
// Predicates of vpcmpd, as far as integers use them.
constexpr uint8_t kIntPredicate[] = {0, 1, 2, 4};

}  // namespace

Assembler::Assembler(Isa isa, void* buffer, size_t capacity)
    : Xbyak::CodeGenerator(capacity, buffer), wide_(isa == Isa::kAvx512) {}

void Assembler::set_lanes(int lanes) { lanes_ = lanes; }

Xmm Assembler::vector(int reg, int bytes) const {
  // The encoder would quietly take AVX-512 for these.
  if (!wide_ && (reg > 15 || bytes > 32)) throw Xbyak::Error(Xbyak::ERR_INTERNAL);
  return Xmm(bytes > 32 ? Operand::ZMM : bytes > 16 ? Operand::YMM : Operand::XMM, reg);
}

Xmm Assembler::typed(int reg, Dtype dtype) const {
  return vector(reg, lanes_ * static_cast<int>(itemsize(dtype)));
}

bool Assembler::takes_memory(const LoopNode& node) const {
  if (node.is_mask() && node.op != Op::kCompare) return false;
  switch (node.op) {
    case Op::kAdd:
    case Op::kSub:
    case Op::kDiv:
    case Op::kMax:
    case Op::kMin:
    case Op::kMaxOrNan:
    case Op::kMinOrNan:
    case Op::kAnd:
    case Op::kOr:
    case Op::kXor:
    case Op::kFma:
    case Op::kFnma:
    case Op::kFms:
      return true;
    case Op::kScale:
      return node.arity == 2;
    case Op::kMul:
      return wide_ || node.dtype != Dtype::kInt64;
    case Op::kCompare:
      return wide_ || is_floating(node.from) || node.index == kEqual || node.index == kUnequal;
    default:
      return false;
  }
}

void Assembler::operation(const LoopNode& node, int to, const int* from, const Address* memory) {
  if (node.is_mask() && node.op != Op::kCompare) {
    mask_logic(node.op, to, from[0], from[1]);
    return;
  }
  const Xmm d = typed(to, node.dtype), x = typed(from[0], node.dtype);
  const bool wide_lanes = itemsize(node.dtype) == 8;
  const auto number = static_cast<uint8_t>(node.index);
  switch (node.op) {
    case Op::kFma:
    case Op::kFnma:
    case Op::kFms:
      return fused(node, to, from, memory);
    case Op::kSelect:
      return select(node, to, from);
    case Op::kConvert:
      return convert(node, to, from[0]);
    case Op::kSqrt:
      return wide_lanes ? vsqrtpd(d, x) : vsqrtps(d, x);
    case Op::kRound:
      if (wide_) return wide_lanes ? vrndscalepd(d, x, number) : vrndscaleps(d, x, number);
      return wide_lanes ? vroundpd(d, x, number) : vroundps(d, x, number);
    case Op::kAbs:
      return wide_lanes ? vpabsq(d, x) : vpabsd(d, x);
    case Op::kShiftLeft:
      return wide_lanes ? vpsllq(d, x, number) : vpslld(d, x, number);
    case Op::kShiftRight:
      return wide_lanes ? vpsrlq(d, x, number) : vpsrld(d, x, number);
    case Op::kMantissa: {
      // In [1, 2); NaN for negative numbers, yet 1 rather than -1 for -0.
      constexpr uint8_t kNormal = 3 << 2;
      return wide_lanes ? vgetmantpd(d, x, kNormal) : vgetmantps(d, x, kNormal);
    }
    case Op::kExponent:
      return wide_lanes ? vgetexppd(d, x) : vgetexpps(d, x);
    case Op::kFix:
      return fix(node, to, from);
    case Op::kScale: {
      if (node.arity == 2) break;
      const Xmm y = typed(from[1], node.dtype);
      const Opmask k(from[2]);
      return wide_lanes ? vscalefpd(d | k | T_z, x, y) : vscalefps(d | k | T_z, x, y);
    }
    default:
      break;
  }
  const Xmm a = typed(from[0], node.from);
  const Xmm b_register = typed(memory == nullptr ? from[1] : 0, node.from);
  const Operand& b = memory == nullptr ? static_cast<const Operand&>(b_register) : *memory;
  if (node.op == Op::kCompare) return compare(node, to, a, b);
  if (node.op == Op::kMaxOrNan || node.op == Op::kMinOrNan) return extreme_or_nan(node, d, a, b);
  if (node.op == Op::kMul && node.dtype == Dtype::kInt64 && !wide_) {
    return multiply_int64(d, a, b_register);
  }
  arithmetic(node, d, a, b);
}

void Assembler::arithmetic(const LoopNode& node, const Xmm& d, const Xmm& a, const Operand& b) {
  // Columns: float32, float64, int32, int64.
#define HOLOGRAM_BY_DTYPE(f32, f64, i32, i64)           \
  return node.dtype == Dtype::kFloat32   ? f32(d, a, b) \
         : node.dtype == Dtype::kFloat64 ? f64(d, a, b) \
         : node.dtype == Dtype::kInt32   ? i32(d, a, b) \
                                         : i64(d, a, b)
  switch (node.op) {
    case Op::kAdd:
      HOLOGRAM_BY_DTYPE(vaddps, vaddpd, vpaddd, vpaddq);
    case Op::kSub:
      HOLOGRAM_BY_DTYPE(vsubps, vsubpd, vpsubd, vpsubq);
    case Op::kMul:
      HOLOGRAM_BY_DTYPE(vmulps, vmulpd, vpmulld, vpmullq);
    case Op::kMax:
      HOLOGRAM_BY_DTYPE(vmaxps, vmaxpd, vpmaxsd, vpmaxsq);
    case Op::kMin:
      HOLOGRAM_BY_DTYPE(vminps, vminpd, vpminsd, vpminsq);
    case Op::kDiv:
      return is_double(node.dtype) ? vdivpd(d, a, b) : vdivps(d, a, b);
    case Op::kScale:
      return is_double(node.dtype) ? vscalefpd(d, a, b) : vscalefps(d, a, b);
    case Op::kAnd:
      return vandps(d, a, b);
    case Op::kOr:
      return vorps(d, a, b);
    case Op::kXor:
      return vxorps(d, a, b);
    default:
      throw Xbyak::Error(Xbyak::ERR_INTERNAL);
  }
#undef HOLOGRAM_BY_DTYPE
}

// Low halves multiplied, and the two cross products above them.
void Assembler::multiply_int64(const Xmm& d, const Xmm& a, const Xmm& b) {
  const Xmm s0 = scratch(0, Dtype::kInt64), s1 = scratch(1, Dtype::kInt64);
  vpsrlq(s0, a, 32);
  vpmuludq(s0, s0, b);
  vpsrlq(s1, b, 32);
  vpmuludq(s1, s1, a);
  vpaddq(s0, s0, s1);
  vpsllq(s0, s0, 32);
  vpmuludq(d, a, b);
  vpaddq(d, d, s0);
}

void Assembler::extreme_or_nan(const LoopNode& node, const Xmm& d, const Xmm& x, const Operand& y) {
  const bool max = node.op == Op::kMaxOrNan, f64 = is_double(node.dtype);
  const Xmm s0 = scratch(0, node.dtype), s1 = scratch(1, node.dtype);
  if (max) {
    f64 ? vmaxpd(s0, x, y) : vmaxps(s0, x, y);
  } else {
    f64 ? vminpd(s0, x, y) : vminps(s0, x, y);
  }
  if (wide_) {
    const Opmask k(kScratchMask);
    if (f64) {
      vcmppd(k, x, x, kFloatPredicate[kUnordered]);
      vblendmpd(d | k, s0, x);
    } else {
      vcmpps(k, x, x, kFloatPredicate[kUnordered]);
      vblendmps(d | k, s0, x);
    }
  } else if (f64) {
    vcmppd(s1, x, x, kFloatPredicate[kUnordered]);
    vblendvpd(d, s0, x, s1);
  } else {
    vcmpps(s1, x, x, kFloatPredicate[kUnordered]);
    vblendvps(d, s0, x, s1);
  }
}

// The instruction's result replaces the addend (231) or the first factor (213).
void Assembler::fused(const LoopNode& node, int to, const int* from, const Address* memory) {
  const bool f64 = is_double(node.dtype);
  Xmm a = typed(from[0], node.dtype), b = typed(from[1], node.dtype);
  const bool factor_there = from[0] == to || from[1] == to;
  const bool addend_there = memory == nullptr && from[2] == to;
  const Xmm addend = typed(memory == nullptr ? from[2] : 0, node.dtype);
  if (addend_there && !factor_there) {
    if (node.op == Op::kFma) return f64 ? vfmadd231pd(addend, a, b) : vfmadd231ps(addend, a, b);
    if (node.op == Op::kFms) return f64 ? vfmsub231pd(addend, a, b) : vfmsub231ps(addend, a, b);
    return f64 ? vfnmadd231pd(addend, a, b) : vfnmadd231ps(addend, a, b);
  }
  const Xmm d = typed(to, node.dtype);
  const Xmm result = addend_there ? scratch(0, node.dtype) : d;
  if (from[0] != to && from[1] == to) std::swap(a, b);
  if (a.getIdx() != result.getIdx()) vmovaps(result, a);
  const Operand& c = memory == nullptr ? static_cast<const Operand&>(addend) : *memory;
  if (node.op == Op::kFma) {
    f64 ? vfmadd213pd(result, b, c) : vfmadd213ps(result, b, c);
  } else if (node.op == Op::kFms) {
    f64 ? vfmsub213pd(result, b, c) : vfmsub213ps(result, b, c);
  } else {
    f64 ? vfnmadd213pd(result, b, c) : vfnmadd213ps(result, b, c);
  }
  if (addend_there) vmovaps(d, result);
}

void Assembler::fix(const LoopNode& node, int to, const int* from) {
  const Xmm x = typed(from[0], node.dtype), table = typed(from[2], node.dtype);
  const Xmm result = scratch(0, node.dtype), d = typed(to, node.dtype);
  const bool in_place = to == from[1];
  const Xmm& changed = in_place ? d : result;
  if (!in_place) vmovaps(result, typed(from[1], node.dtype));
  is_double(node.dtype) ? vfixupimmpd(changed, x, table, 0) : vfixupimmps(changed, x, table, 0);
  if (!in_place) vmovaps(d, result);
}

void Assembler::compare(const LoopNode& node, int to, const Xmm& a, const Operand& b) {
  const bool f64 = is_double(node.from);
  if (wide_) {
    const Opmask k(to);
    if (is_floating(node.from)) {
      const uint8_t predicate = kFloatPredicate[node.index];
      return f64 ? vcmppd(k, a, b, predicate) : vcmpps(k, a, b, predicate);
    }
    const uint8_t predicate = kIntPredicate[node.index];
    return node.from == Dtype::kInt64 ? vpcmpq(k, a, b, predicate) : vpcmpd(k, a, b, predicate);
  }
  compare_narrow(node, typed(to, node.from), a, b);
  if (vector_bytes() / lanes_ > static_cast<int>(itemsize(node.from))) {
    vpmovsxdq(Ymm(to), Xmm(to));
  }
}

void Assembler::compare_narrow(const LoopNode& node, const Xmm& d, const Xmm& a, const Operand& b) {
  if (is_floating(node.from)) {
    const uint8_t predicate = kFloatPredicate[node.index];
    return is_double(node.from) ? vcmppd(d, a, b, predicate) : vcmpps(d, a, b, predicate);
  }
  const bool i64 = node.from == Dtype::kInt64;
  if (node.index == kEqual || node.index == kUnequal) {
    i64 ? vpcmpeqq(d, a, b) : vpcmpeqd(d, a, b);
  } else if (node.index == kLess) {
    const Xmm& y = static_cast<const Xmm&>(b);
    i64 ? vpcmpgtq(d, y, a) : vpcmpgtd(d, y, a);
  } else {
    i64 ? vpcmpgtq(d, a, b) : vpcmpgtd(d, a, b);
  }
  if (node.index == kEqual || node.index == kLess) return;
  const Xmm ones = scratch(0, node.from);
  vpcmpeqd(ones, ones, ones);
  vpxor(d, d, ones);
}

void Assembler::select(const LoopNode& node, int to, const int* from) {
  const bool eight = itemsize(node.dtype) == 8;
  const Xmm d = typed(to, node.dtype), yes = typed(from[1], node.dtype);
  if (wide_) {
    const Opmask k(from[0]);
    if (node.arity == 2) return eight ? vmovapd(d | k | T_z, yes) : vmovaps(d | k | T_z, yes);
    const Xmm no = typed(from[2], node.dtype);
    return eight ? vblendmpd(d | k, no, yes) : vblendmps(d | k, no, yes);
  }
  Xmm mask = typed(from[0], node.dtype);
  if (vector_bytes() / lanes_ > static_cast<int>(itemsize(node.dtype))) {
    const Xmm narrow = scratch(0, 16);
    vextracti128(narrow, Ymm(from[0]), 1);
    vshufps(narrow, Xmm(from[0]), narrow, 0x88);
    mask = narrow;
  }
  if (node.arity == 2) return vandps(d, mask, yes);
  const Xmm no = typed(from[2], node.dtype);
  eight ? vblendvpd(d, no, yes, mask) : vblendvps(d, no, yes, mask);
}

void Assembler::mask_logic(Op op, int to, int a, int b) {
  if (wide_) {
    const Opmask d(to), x(a), y(op == Op::kNot ? 0 : b);
    switch (op) {
      case Op::kAnd:
        return kandq(d, x, y);
      case Op::kOr:
        return korq(d, x, y);
      case Op::kXor:
        return kxorq(d, x, y);
      case Op::kAndNot:
        return kandnq(d, x, y);
      default:
        return knotq(d, x);
    }
  }
  const Ymm d(to), x(a), ones(free_vectors()), y(op == Op::kNot ? free_vectors() : b);
  switch (op) {
    case Op::kAnd:
      return vandps(d, x, y);
    case Op::kOr:
      return vorps(d, x, y);
    case Op::kXor:
      return vxorps(d, x, y);
    case Op::kAndNot:
      return vandnps(d, x, y);
    default:
      vpcmpeqd(ones, ones, ones);
      return vxorps(d, x, ones);
  }
}

void Assembler::convert(const LoopNode& node, int to, int from) {
  const Xmm d = typed(to, node.dtype), x = typed(from, node.from);
  const auto is = [&](Dtype source, Dtype target) {
    return node.from == source && node.dtype == target;
  };
  using enum Dtype;
  if (is(kFloat32, kFloat64)) return vcvtps2pd(d, x);
  if (is(kFloat64, kFloat32)) return vcvtpd2ps(d, x);
  if (is(kInt32, kFloat32)) return vcvtdq2ps(d, x);
  if (is(kInt32, kFloat64)) return vcvtdq2pd(d, x);
  if (is(kFloat32, kInt32)) return vcvttps2dq(d, x);
  if (is(kFloat64, kInt32)) return vcvttpd2dq(d, x);
  if (is(kInt64, kFloat64)) return vcvtqq2pd(d, x);
  if (is(kInt64, kFloat32)) return vcvtqq2ps(d, x);
  if (is(kFloat32, kInt64)) return vcvttps2qq(d, x);
  if (is(kFloat64, kInt64)) return vcvttpd2qq(d, x);
  if (is(kInt32, kInt64)) return vpmovsxdq(d, x);
  if (is(kFloat16, kFloat32)) return vcvtph2ps(d, x);
  if (is(kFloat32, kFloat16)) return vcvtps2ph(d, x, 0);
  if (is(kBFloat16, kInt32)) return vpmovzxwd(d, x);
  if (is(kUInt8, kInt32)) return vpmovzxbd(d, x);
  if (is(kInt8, kInt32)) return vpmovsxbd(d, x);
  if (is(kInt16, kInt32)) return vpmovsxwd(d, x);
  const Xmm s0 = scratch(0, 16);
  if (is(kInt64, kInt32)) {
    if (wide_) return vpmovqd(d, x);
    vextracti128(s0, Ymm(from), 1);
    return vshufps(d, Xmm(from), s0, 0x88);
  }
  if (is(kInt32, kBFloat16)) {
    if (wide_) return vpmovdw(d, x);
    if (x.isXMM()) return vpackusdw(d, x, x);
    vextracti128(s0, Ymm(from), 1);
    return vpackusdw(Xmm(to), Xmm(from), s0);
  }
  throw Xbyak::Error(Xbyak::ERR_INTERNAL);
}

// ---- loads and stores ----

void Assembler::move(const Xmm& to, const Address& from, int bytes) {
  if (bytes == 4) return vmovd(Xmm(to.getIdx()), from);
  if (bytes == 8) return vmovq(Xmm(to.getIdx()), from);
  vmovups(to, from);
}

void Assembler::move(const Address& to, const Xmm& from, int bytes) {
  if (bytes == 4) return vmovd(to, Xmm(from.getIdx()));
  if (bytes == 8) return vmovq(to, Xmm(from.getIdx()));
  vmovups(to, from);
}

void Assembler::move_halves(const Xmm& to, const Place& from, int bytes) {
  const Xmm low(to.getIdx());
  switch (bytes) {
    case 16:
      vmovups(low, from.address);
      return vinsertf128(Ymm(to.getIdx()), Ymm(to.getIdx()), *from.upper, 1);
    case 8:
      vmovq(low, from.address);
      return vmovhps(low, low, *from.upper);
    case 4:
      vmovd(low, from.address);
      return vpinsrd(low, low, *from.upper, 1);
    case 2:
      vpxor(low, low, low);
      vpinsrw(low, low, from.address, 0);
      return vpinsrw(low, low, *from.upper, 1);
    default:
      throw Xbyak::Error(Xbyak::ERR_INTERNAL);
  }
}

void Assembler::move_halves(const Place& to, const Xmm& from, int bytes) {
  const Xmm low(from.getIdx());
  switch (bytes) {
    case 16:
      vmovups(to.address, low);
      return vextractf128(*to.upper, Ymm(from.getIdx()), 1);
    case 8:
      vmovq(to.address, low);
      return vmovhps(*to.upper, low);
    case 4:
      vmovd(to.address, low);
      return vpextrd(*to.upper, low, 1);
    case 2:
      vpextrw(to.address, low, 0);
      return vpextrw(*to.upper, low, 1);
    default:
      throw Xbyak::Error(Xbyak::ERR_INTERNAL);
  }
}

Address Assembler::tail_mask(Dtype dtype) const {
  return ptr[rsp + (itemsize(dtype) == 8 ? kTailMask8 : kTailMask4)];
}

void Assembler::load(int to, const Place& place) {
  if (place.dtype == Dtype::kBool) return load_mask(to, place);
  const int size = static_cast<int>(itemsize(place.dtype));
  const Xmm d = typed(to, place.dtype);
  if (place.upper) return move_halves(d, place, lanes_ / 2 * size);
  if (!place.partial) return move(d, place.address, lanes_ * size);
  if (wide_) {
    const Opmask k(kTailMask);
    if (place.packed) return load_packed(d, place);
    if (size == 8) return vmovupd(d | k | T_z, place.address);
    if (size == 4) return vmovups(d | k | T_z, place.address);
    if (size == 2) return vmovdqu16(d | k | T_z, place.address);
    return vmovdqu8(d | k | T_z, place.address);
  }
  vmovups(d, tail_mask(place.dtype));
  size == 8 ? vmaskmovpd(d, d, place.address) : vmaskmovps(d, d, place.address);
}

void Assembler::store(const Place& place, int from) {
  if (place.dtype == Dtype::kBool) return store_mask(place, from);
  const int size = static_cast<int>(itemsize(place.dtype));
  const Xmm s = typed(from, place.dtype);
  if (place.upper) return move_halves(place, s, lanes_ / 2 * size);
  if (!place.partial && place.streams) return vmovntps(place.address, s);
  if (!place.partial) return move(place.address, s, lanes_ * size);
  if (wide_) {
    if (place.packed) return store_packed(place, s);
    const Opmask k(kTailMask);
    if (size == 8) return vmovupd(place.address | k, s);
    if (size == 4) return vmovups(place.address | k, s);
    return vmovdqu16(place.address | k, s);
  }
  const Xmm mask = scratch(0, place.dtype);
  vmovups(mask, tail_mask(place.dtype));
  size == 8 ? vmaskmovpd(place.address, mask, s) : vmaskmovps(place.address, mask, s);
}

// Elements change places in registers: the instructions that do it in memory are slow.
void Assembler::load_packed(const Xmm& to, const Place& place) {
  const Xmm lanes = to | Opmask(kTailMask) | T_z, first = to | Opmask(kPackedMask) | T_z;
  if (itemsize(place.dtype) == 8) {
    vmovupd(first, place.address);
    return vexpandpd(lanes, to);
  }
  vmovups(first, place.address);
  vexpandps(lanes, to);
}

void Assembler::store_packed(const Place& place, const Xmm& from) {
  const Opmask first(kPackedMask);
  const Xmm packed = scratch(0, place.dtype), to = packed | Opmask(kTailMask) | T_z;
  if (itemsize(place.dtype) == 8) {
    vcompresspd(to, from);
    return vmovupd(place.address | first, packed);
  }
  vcompressps(to, from);
  vmovups(place.address | first, packed);
}

// Bytes to a mask: true where not 0.
void Assembler::load_mask(int to, const Place& place) {
  if (wide_) {
    const Xmm bytes = scratch(0, lanes_);
    if (place.partial) {
      vmovdqu8(bytes | Opmask(kTailMask) | T_z, place.address);
    } else {
      move(bytes, place.address, lanes_);
    }
    return vptestmb(Opmask(to), bytes, bytes);
  }
  const Ymm d(to), zero(free_vectors());
  const Xmm bytes(to);
  if (place.upper) move_halves(d, place, lanes_ / 2);
  const Operand& from = place.upper ? static_cast<const Operand&>(bytes) : place.address;
  vpxor(zero, zero, zero);
  switch (lanes_) {
    case 4:
      vpmovzxbq(d, from);
      return vpcmpgtq(d, d, zero);
    case 8:
      vpmovzxbd(d, from);
      return vpcmpgtd(d, d, zero);
    default:
      if (!place.upper) vmovups(d, place.address);
      // Bytes from 128 on are negative to a comparison with 0.
      vpcmpeqb(zero, d, zero);
      vpcmpeqb(d, d, d);
      return vpandn(d, zero, d);
  }
}

// A mask to bytes, 0 or 1.
void Assembler::store_mask(const Place& place, int from) {
  if (wide_) {
    const Xmm bytes = scratch(0, lanes_);
    vpmovm2b(bytes, Opmask(from));
    vpabsb(bytes, bytes);
    if (place.partial) return vmovdqu8(place.address | Opmask(kTailMask), bytes);
    return move(place.address, bytes, lanes_);
  }
  if (lanes_ == 32) {
    const Ymm bytes(free_vectors());
    vpabsb(bytes, Ymm(from));
    if (place.upper) return move_halves(place, bytes, lanes_ / 2);
    return vmovups(place.address, bytes);
  }
  const Xmm bytes = scratch(0, 16);
  vextracti128(bytes, Ymm(from), 1);
  vpackssdw(bytes, Xmm(from), bytes);
  if (lanes_ == 4) vpackssdw(bytes, bytes, bytes);
  vpacksswb(bytes, bytes, bytes);
  vpabsb(bytes, bytes);
  if (place.upper) return move_halves(place, bytes, lanes_ / 2);
  move(place.address, bytes, lanes_);
}

void Assembler::spill(const Address& home, int from, bool is_mask) {
  if (is_mask && wide_) return kmovq(home, Opmask(from));
  vmovups(home, whole(from));
}

void Assembler::reload(int to, const Address& home, bool is_mask) {
  if (is_mask && wide_) return kmovq(Opmask(to), home);
  vmovups(whole(to), home);
}

}  // namespace hologram::cpu::jit

#endif  // defined(__x86_64__)
