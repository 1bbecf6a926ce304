// SPDX-License-Identifier: MIT
// Finds libraries of CUDA that PyTorch's wheels bring.
#pragma once

#include <initializer_list>
#include <string>

namespace hologram::cuda {

struct FoundLibrary {
  void* library = nullptr;  // of dlopen()
  std::string what;         // as messages name it
  std::string why;          // it is not there
};

enum class WheelsCome : bool { kLast, kFirst };

// The library that the environment names, by its path or by a name that the loader finds; else the
// first of `names` that the loader finds, or a wheel has brought beside this library or PyTorch
// (nvidia/cu13/lib/libnvrtc.so.13, nvidia/cuda_nvrtc/lib/libnvrtc.so.12). Never unloaded.
FoundLibrary find_library(const char* variable, std::initializer_list<const char*> names,
                          WheelsCome wheels);

}  // namespace hologram::cuda
