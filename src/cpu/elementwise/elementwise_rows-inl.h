// SPDX-License-Identifier: MIT
// The whole of an elementwise_*.cc: compiles the part of the op table it selects, for every
// instruction set. The source defines, before including this as its last line:
// - HOLOGRAM_COMPILE_UNARY, HOLOGRAM_COMPILE_BINARY, HOLOGRAM_COMPILE_TERNARY: which rows, one or
//   more of these;
// - HOLOGRAM_ELEMENT_TYPES: for which element types;
// - HOLOGRAM_ADD_KERNELS: the name of the function that it defines.
// No include guard: foreach_target includes the source, and so this, again for each target.

// clang-format off
#include "src/cpu/simd/targets.h"
#include "src/cpu/simd/kernel-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace {

#ifdef HOLOGRAM_COMPILE_UNARY
#define HOLOGRAM_UNARY(name, id, dtypes, result, accuracy, doc, body) HOLOGRAM_BODY(name, body)
#endif
#ifdef HOLOGRAM_COMPILE_BINARY
#define HOLOGRAM_BINARY(name, id, params, dtypes, result, accuracy, doc, body) \
  HOLOGRAM_BODY(name, body)
#endif
#ifdef HOLOGRAM_COMPILE_TERNARY
#define HOLOGRAM_TERNARY(name, id, params, dtypes, result, accuracy, doc, body) \
  HOLOGRAM_BODY(name, body)
#define HOLOGRAM_QUATERNARY(name, id, params, dtypes, result, accuracy, doc, body) \
  HOLOGRAM_BODY(name, body)
#endif
#include "src/ops/elementwise.def"

template <class T>
void AddRows(cpu::KernelTable& table) {
  constexpr auto FLOATS = DtypeSet::kFloats;
  [[maybe_unused]] constexpr auto NUMBERS = DtypeSet::kNumbers;
  [[maybe_unused]] constexpr auto ALL = DtypeSet::kAll;
  [[maybe_unused]] constexpr auto BITS = DtypeSet::kBits;
  constexpr bool SAME = false;
  [[maybe_unused]] constexpr bool BOOL = true;
#define HOLOGRAM_ADD(name, arity, params, dtypes, result) \
  AddRow<name##_body, T, dtypes, arity, params, result>(OpId::name, table);
#ifdef HOLOGRAM_COMPILE_UNARY
#define HOLOGRAM_UNARY(name, id, dtypes, result, accuracy, doc, body) \
  HOLOGRAM_ADD(name, 1, 0, dtypes, result)
#endif
#ifdef HOLOGRAM_COMPILE_BINARY
#define HOLOGRAM_BINARY(name, id, params, dtypes, result, accuracy, doc, body) \
  HOLOGRAM_ADD(name, 2, params, dtypes, result)
#endif
#ifdef HOLOGRAM_COMPILE_TERNARY
#define HOLOGRAM_TERNARY(name, id, params, dtypes, result, accuracy, doc, body) \
  HOLOGRAM_ADD(name, 3, params, dtypes, result)
#define HOLOGRAM_QUATERNARY(name, id, params, dtypes, result, accuracy, doc, body) \
  HOLOGRAM_ADD(name, 4, params, dtypes, result)
#endif
#include "src/ops/elementwise.def"
#undef HOLOGRAM_ADD
}

template <class... T>
void AddEach(cpu::KernelTable& table) {
  (AddRows<T>(table), ...);
}

}  // namespace

void HOLOGRAM_ADD_KERNELS(cpu::KernelTable& table) { AddEach<HOLOGRAM_ELEMENT_TYPES>(table); }

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hologram::cpu {
void HOLOGRAM_ADD_KERNELS(Isa isa, KernelTable& table) {
  HOLOGRAM_FOR_ISA(isa, HOLOGRAM_ADD_KERNELS)(table);
}
}  // namespace hologram::cpu
#endif
