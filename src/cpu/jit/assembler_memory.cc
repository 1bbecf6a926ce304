// SPDX-License-Identifier: MIT
// Loads and stores of values: whole vectors, tails, bools as bytes.
#if defined(__x86_64__)
#include "src/cpu/jit/assembler.h"

namespace hologram::cpu::jit {

using Xbyak::Address;
using Xbyak::Opmask;
using Xbyak::Xmm;
using Xbyak::Ymm;

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

Address Assembler::tail_mask(Dtype dtype) const {
  return ptr[rsp + (itemsize(dtype) == 8 ? kTailMask8 : kTailMask4)];
}

void Assembler::load(int to, const Place& place) {
  if (place.dtype == Dtype::kBool) return load_mask(to, place);
  const int size = static_cast<int>(itemsize(place.dtype));
  const Xmm d = typed(to, place.dtype);
  if (!place.partial) return move(d, place.address, lanes_ * size);
  if (wide_) {
    const Opmask k(kTailMask);
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
  if (!place.partial && place.streams) return vmovntps(place.address, s);
  if (!place.partial) return move(place.address, s, lanes_ * size);
  if (wide_) {
    const Opmask k(kTailMask);
    if (size == 8) return vmovupd(place.address | k, s);
    if (size == 4) return vmovups(place.address | k, s);
    return vmovdqu16(place.address | k, s);
  }
  const Xmm mask = scratch(0, place.dtype);
  vmovups(mask, tail_mask(place.dtype));
  size == 8 ? vmaskmovpd(place.address, mask, s) : vmaskmovps(place.address, mask, s);
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
  vpxor(zero, zero, zero);
  switch (lanes_) {
    case 4:
      vpmovzxbq(d, place.address);
      return vpcmpgtq(d, d, zero);
    case 8:
      vpmovzxbd(d, place.address);
      return vpcmpgtd(d, d, zero);
    default:
      vmovups(d, place.address);
      return vpcmpgtb(d, d, zero);
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
    return vmovups(place.address, bytes);
  }
  const Xmm bytes = scratch(0, 16);
  vextracti128(bytes, Ymm(from), 1);
  vpackssdw(bytes, Xmm(from), bytes);
  if (lanes_ == 4) vpackssdw(bytes, bytes, bytes);
  vpacksswb(bytes, bytes, bytes);
  vpabsb(bytes, bytes);
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
