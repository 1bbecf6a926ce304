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

// Rows that this source does not compile expand to nothing.
#ifdef HOLOGRAM_COMPILE_UNARY
#define HOLOGRAM_IF_1(...) __VA_ARGS__
#else
#define HOLOGRAM_IF_1(...)
#endif
#ifdef HOLOGRAM_COMPILE_BINARY
#define HOLOGRAM_IF_2(...) __VA_ARGS__
#else
#define HOLOGRAM_IF_2(...)
#endif
#ifdef HOLOGRAM_COMPILE_TERNARY
#define HOLOGRAM_IF_3(...) __VA_ARGS__
#else
#define HOLOGRAM_IF_3(...)
#endif
#define HOLOGRAM_IF_4 HOLOGRAM_IF_3

#define HOLOGRAM_OP(name, id, arity, params, dtypes, others, accuracy, traits, aten, doc, body) \
  HOLOGRAM_IF_##arity(HOLOGRAM_BODY(name, body))
#include "hologram/elementwise.def"

template <class T>
void AddRows(cpu::KernelTable& table) {
  using namespace op_columns;  // NOLINT: the words of the table
#define HOLOGRAM_OP(name, id, arity, params, dtypes, others, accuracy, traits, ...) \
  HOLOGRAM_IF_##arity(                                                              \
      AddRow<name##_body, T, dtypes, arity, params, ((traits)&TRUTH) != 0>(OpId::name, table);)
#include "hologram/elementwise.def"
}
#undef HOLOGRAM_IF_1
#undef HOLOGRAM_IF_2
#undef HOLOGRAM_IF_3
#undef HOLOGRAM_IF_4

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
