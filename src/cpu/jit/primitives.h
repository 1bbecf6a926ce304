// SPDX-License-Identifier: MIT
// The words that bodies of the op table are written in, for Symbols: each writes down the
// operations that the word stands for in primitives-inl.h.
#pragma once

#include "src/cpu/jit/ir.h"
#include "src/cpu/jit/math.h"

namespace hologram::cpu::jit {

Symbol C(Symbol x, double value);  // a constant of x's dtype
Symbol Add(Symbol x, Symbol y);
Symbol Sub(Symbol x, Symbol y);
Symbol Mul(Symbol x, Symbol y);
Symbol Div(Symbol x, Symbol y);
Symbol MulAdd(Symbol x, Symbol y, Symbol z);
Symbol Square(Symbol x);
Symbol Sqrt(Symbol x);
Symbol Abs(Symbol x);
Symbol Neg(Symbol x);
Symbol Floor(Symbol x);
Symbol Ceil(Symbol x);
Symbol Trunc(Symbol x);
Symbol Round(Symbol x);
Symbol Sign(Symbol x);
Symbol Maximum(Symbol x, Symbol y);
Symbol Minimum(Symbol x, Symbol y);
Symbol Eq(Symbol x, Symbol y);
Symbol Unequal(Symbol x, Symbol y);
Symbol Lt(Symbol x, Symbol y);
Symbol Le(Symbol x, Symbol y);
Symbol MaskAnd(Symbol x, Symbol y);
Symbol MaskOr(Symbol x, Symbol y);
Symbol MaskXor(Symbol x, Symbol y);
Symbol BitAnd(Symbol x, Symbol y);
Symbol BitOr(Symbol x, Symbol y);
Symbol BitXor(Symbol x, Symbol y);
Symbol BitNot(Symbol x);
Symbol Select(Symbol mask, Symbol yes, Symbol no);
Symbol Lerp(Symbol x, Symbol y, Symbol weight);

// Words of math-inl.h.
Symbol write_math(MathWord word, std::initializer_list<Symbol> operands);
#define HOLOGRAM_WORD(Name, arity)                      \
  template <class... Rest>                              \
  Symbol Name(Symbol x, Rest... rest) {                 \
    static_assert(sizeof...(rest) == arity - 1);        \
    return write_math(MathWord::k##Name, {x, rest...}); \
  }
HOLOGRAM_JIT_MATH_WORDS(HOLOGRAM_WORD)
#undef HOLOGRAM_WORD

// Words that are not straight-line code: the row is called instead.
#define HOLOGRAM_OPAQUE(Name)      \
  template <class... Rest>         \
  Symbol Name(Symbol x, Rest...) { \
    x.graph->opaque = true;        \
    return x;                      \
  }
HOLOGRAM_OPAQUE(Sin)
HOLOGRAM_OPAQUE(Cos)
HOLOGRAM_OPAQUE(Tan)
HOLOGRAM_OPAQUE(Remainder)
HOLOGRAM_OPAQUE(FloorDivide)
HOLOGRAM_OPAQUE(Erfinv)
HOLOGRAM_OPAQUE(Digamma)
#undef HOLOGRAM_OPAQUE

}  // namespace hologram::cpu::jit
