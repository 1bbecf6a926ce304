// SPDX-License-Identifier: MIT
// The math functions of math-inl.h written down as operations, the same that Highway does.
#pragma once

#include "src/cpu/jit/loop_graph.h"

namespace hologram::cpu::jit {

// Words of the vocabulary that math-inl.h defines, with their number of operands.
#define HOLOGRAM_JIT_MATH_WORDS(WORD) \
  WORD(Exp, 1)                        \
  WORD(Exp2, 1)                       \
  WORD(Expm1, 1)                      \
  WORD(Log, 1)                        \
  WORD(Log2, 1)                       \
  WORD(Log10, 1)                      \
  WORD(Log1p, 1)                      \
  WORD(Tanh, 1)                       \
  WORD(Erf, 1)                        \
  WORD(Erfc, 1)                       \
  WORD(Asin, 1)                       \
  WORD(Acos, 1)                       \
  WORD(Atan, 1)                       \
  WORD(Sinh, 1)                       \
  WORD(Cosh, 1)                       \
  WORD(Asinh, 1)                      \
  WORD(Acosh, 1)                      \
  WORD(Atanh, 1)                      \
  WORD(LogSigmoid, 1)                 \
  WORD(Mish, 1)                       \
  WORD(Sigmoid, 1)                    \
  WORD(Silu, 1)                       \
  WORD(GeluErf, 1)                    \
  WORD(GeluTanh, 1)                   \
  WORD(Pow, 2)                        \
  WORD(Atan2, 2)                      \
  WORD(Hypot, 2)                      \
  WORD(MishBackward, 2)               \
  WORD(SiluBackward, 2)               \
  WORD(GeluErfBackward, 2)            \
  WORD(GeluTanhBackward, 2)           \
  WORD(Softplus, 3)

enum class MathWord : int {
#define HOLOGRAM_WORD(Name, arity) k##Name,
  HOLOGRAM_JIT_MATH_WORDS(HOLOGRAM_WORD)
#undef HOLOGRAM_WORD
      kCount
};

// The node of word(operands...) in the graph, for float32 or float64 operands. Sets graph.opaque
// where the function does more than straight-line operations.
int write_math_avx2(LoopGraph& graph, MathWord word, const int* operands, bool is_double);
int write_math_avx512(LoopGraph& graph, MathWord word, const int* operands, bool is_double);

}  // namespace hologram::cpu::jit
