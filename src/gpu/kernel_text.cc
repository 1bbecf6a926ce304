// SPDX-License-Identifier: MIT
// See kernel_text.h.
#include "src/gpu/kernel_text.h"

#include <algorithm>

#include "src/gpu/elementwise.h"
#include "src/gpu/rows/rows.h"

namespace hologram::gpu {
namespace {

bool is_elementwise(const Instr& instr) {
  return instr.is_op() || instr.code == circuit::kCodeConvert;
}

bool can_compute(const Instr& instr, const circuit::NativeOps& native) {
  if (instr.is_op() && !native.has(instr.op(), instr.compute)) return false;
  if (instr.code == circuit::kCodeReduction && (native.folds >> instr.attr & 1) == 0) return false;
  if (instr.code == circuit::kCodeRow && !native.row_functions) return false;
  for (int k = 0; k < instr.arity; ++k) {
    // Numbers come in the types that ops compute in.
    if (instr.in[k].kind == Ref::kImmediate && compute_dtype(instr.compute) != instr.compute) {
      return false;
    }
  }
  return native.has(instr.compute) && native.has(instr.result);
}

// Whether an access is read that may have the bytes of a value of rows, or of one in all, which
// another access stores: items then must not do either in any order.
bool shares_row_values(const Kernel& kernel) {
  for (const MemoryAccess& stored : kernel.accesses) {
    if (!stored.stored || stored.rank == Rank::kFull) continue;
    for (const MemoryAccess& read : kernel.accesses) {
      if (read.loaded && read.slot == stored.slot) return true;
    }
  }
  return false;
}

// Whether something is read by another access than the one by which it was stored before.
bool reads_what_it_stored(const Kernel& kernel) {
  std::vector<bool> is_stored(kernel.accesses.size(), false);
  for (const Instr& instr : kernel.instrs) {
    for (int k = 0; k < instr.arity; ++k) {
      if (instr.in[k].kind != Ref::kAccess) continue;
      for (size_t a = 0; a < is_stored.size(); ++a) {
        if (is_stored[a] && a != instr.in[k].index &&
            kernel.accesses[a].slot == kernel.accesses[instr.in[k].index].slot) {
          return true;
        }
      }
    }
    if (instr.out.kind == Ref::kAccess) is_stored[instr.out.index] = true;
  }
  return false;
}

}  // namespace

std::vector<KernelText> kernel_texts(const Kernel& kernel, const Traits& traits,
                                     const circuit::NativeOps& native) {
  if (kernel.call != nullptr) return {};
  for (const MemoryAccess& access : kernel.accesses) {
    if (access.product || !native.has(access.dtype)) return {};
  }
  for (const circuit::Temp& temp : kernel.temps) {
    if (!native.has(temp.dtype)) return {};
  }
  for (const Instr& instr : kernel.instrs) {
    if (!can_compute(instr, native)) return {};
  }
  const bool is_shared = shares_row_values(kernel);
  if (!is_shared && std::all_of(kernel.instrs.begin(), kernel.instrs.end(), is_elementwise)) {
    return {elementwise_text(kernel, traits)};
  }
  const bool stores_one = std::any_of(
      kernel.accesses.begin(), kernel.accesses.end(),
      [](const MemoryAccess& access) { return access.stored && access.rank == Rank::kOne; });
  if (is_shared && stores_one && kernel.rows() > 1) return {};
  if (reads_what_it_stored(kernel)) return {};
  return rows_texts(kernel, traits);
}

int max_arguments(const Traits& traits) {
  // All are pointers, beside one for the words.
  return std::max(circuit::kMaxArity + 1, static_cast<int>(traits.parameter_bytes / 8) - 1);
}

}  // namespace hologram::gpu
