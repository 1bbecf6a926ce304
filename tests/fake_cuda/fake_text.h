// SPDX-License-Identifier: MIT
// A kernel's text for CUDA as one for OpenCL.
#pragma once

#include <string>
#include <vector>

namespace hologram::fake_cuda {

struct Text {
  // Without prologue. A pointer, which may be to anywhere in a block, is the block and a word that
  // says where in it; such words come behind those of the struct.
  std::string source;
  size_t group_items = 0;
  size_t pointers = 0;
  size_t words = 0;  // of the struct that is passed by value; 0 where there is none
  // Passed by a pointer: OpenCL has less room for parameters than CUDA.
  bool words_in_memory = false;

  size_t parameter_bytes() const { return 8 * (pointers + words); }
};

// `source` is what NVRTC was given. Error(kInternal) for a text that is not of src/gpu/dialect.h.
Text for_opencl(const std::string& source, size_t parameter_bytes);

}  // namespace hologram::fake_cuda
