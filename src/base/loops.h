// SPDX-License-Identifier: MIT
// Loop nests over strided operands, and the form in which all folders write them: no device and no
// operand types here.
#pragma once

#include <cstdint>

namespace hologram {

// A loop nest and the steps of any number of operands in it, in arrays of the owner, which leave
// room for two dimensions at least. The last dimension is the innermost.
struct Loops {
  int ndim;
  int count;
  int64_t* shape;
  int64_t* strides;  // in elements; those of operand k start at k * pitch
  int64_t pitch;

  int64_t& stride(int operand, int dim) const { return strides[operand * pitch + dim]; }
};

// Sorts dimensions so that operand 0 is walked forwards (operand 1 decides where it does not, and
// so on) and merges those that are one run for every operand. The last `fixed` ones stay as they
// are.
void order_and_merge(Loops& loops, int fixed = 0);

}  // namespace hologram
