// SPDX-License-Identifier: MIT
// Operators of other libraries: what they are given is computed before they run.
//
// A kernel that another library registers for this device, or for all devices, may take addresses
// by const_data_ptr(), of which PyTorch does not tell. So whatever its operators are given is
// computed first. Operators of PyTorch itself need no such care: they compute through kernels of
// the device, never on addresses of their own.
#pragma once

#include <atomic>

namespace hologram_torch {

// Whether operators were defined that are not guarded yet. The dispatcher tells of them at a
// moment at which nothing can be registered.
extern std::atomic<bool> g_operators_defined;

// Has their arguments computed before they run. Called before an op is recorded, and where Python
// looks for an operator (_operators.py).
[[gnu::cold]] void guard_foreign_operators();

inline void notice_foreign_operators() {
  if (__builtin_expect(g_operators_defined.load(std::memory_order_relaxed), 0)) {
    guard_foreign_operators();
  }
}

}  // namespace hologram_torch
