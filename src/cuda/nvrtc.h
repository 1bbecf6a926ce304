// SPDX-License-Identifier: MIT
// NVRTC, the compiler of CUDA C++ as a library, found at run time. It needs no GPU and no toolkit:
// PyTorch's wheels bring it.
#pragma once

#include <span>
#include <string>

namespace hologram::cuda {

// Whether the compiler is there: HOLOGRAM_NVRTC_LIBRARY by its path or by a name that the loader
// finds, else libnvrtc.so of a known version as the loader finds it, or as a wheel has brought it
// beside this library or PyTorch. Loaded at the first call and never unloaded. Where it is not,
// `why` says so.
bool has_nvrtc();
const std::string& why_no_nvrtc();
// 13 * 1000 + 2 for version 13.2.
int nvrtc_version();

// "sm_90" may be compiled for.
bool supports(int architecture);

struct Image {
  std::string bytes;  // a cubin
  std::string log;    // what the compiler and the assembler said: registers, spills
};

// The machine code of a text behind the prologue, for one architecture (90 for sm_90). No product
// is contracted with a sum; quotients, roots and denormal numbers are as IEEE 754 has them. `more`
// are options of NVRTC beside these. Error(kInternal) with the log and the text where the compiler
// refuses it. Thread-safe.
Image compile(const std::string& text, int architecture, std::span<const char* const> more = {});

}  // namespace hologram::cuda
