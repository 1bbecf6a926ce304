// SPDX-License-Identifier: MIT
// A family of kernels in float32 and float64, for every instruction set this machine has.
#pragma once

#include "hologram/cpu_info.h"
#include "hologram/dtype.h"

namespace hologram::cpu {

// make(isa, dtype) gives the kernels of one instruction set and type. Meant to be a static of the
// function that looks them up.
template <class Kernel>
class FloatKernels {
 public:
  template <class Make>
  explicit FloatKernels(Make&& make) {
    for (int i = 0; i < kIsaCount; ++i) {
      const Isa isa = static_cast<Isa>(i);
      if (!isa_available(isa)) continue;
      kernels_[i][0] = make(isa, Dtype::kFloat32);
      kernels_[i][1] = make(isa, Dtype::kFloat64);
    }
  }
  const Kernel& get(Isa isa, Dtype dtype) const {
    return kernels_[static_cast<int>(isa)][dtype == Dtype::kFloat64];
  }

 private:
  Kernel kernels_[kIsaCount][2] = {};
};

}  // namespace hologram::cpu
