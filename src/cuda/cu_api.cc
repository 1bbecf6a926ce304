// SPDX-License-Identifier: MIT
// Finds the CUDA driver of the machine.
#include "src/cuda/cu_api.h"

#include <dlfcn.h>

#include <cstdlib>
#include <memory>
#include <string>

namespace hologram::cuda {
namespace {

struct Driver {
  const Api* api = nullptr;  // for the life of the process, like the library
  std::string why;           // there is none
};

Driver load_driver() {
  const std::string named = named_library();
  const std::string what = named.empty() ? "libcuda.so.1" : "HOLOGRAM_CUDA_LIBRARY=" + named;
  void* library = dlopen(named.empty() ? "libcuda.so.1" : named.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const error = dlerror();
    return {nullptr, what + " cannot be loaded: " + (error != nullptr ? error : "no reason given")};
  }
  auto api = std::make_unique<Api>();
#define HOLOGRAM_CU_LOAD(name, symbol, parameters)                                            \
  api->name = reinterpret_cast<Result(*) parameters>(dlsym(library, symbol));                 \
  if (api->name == nullptr) {                                                                 \
    return {nullptr, what + " is no driver of CUDA 11 or later: it has no function " symbol}; \
  }
  HOLOGRAM_CU_FUNCTIONS(HOLOGRAM_CU_LOAD)
#undef HOLOGRAM_CU_LOAD
  return {api.release(), {}};
}

const Driver& driver() {
  static const Driver& found = *new Driver(load_driver());  // errors name its text to the end
  return found;
}

}  // namespace

const char* named_library() {
  const char* const name = std::getenv("HOLOGRAM_CUDA_LIBRARY");
  return name != nullptr ? name : "";
}

const Api* api() { return driver().api; }
const char* why_no_api() { return driver().why.c_str(); }

const char* code_name(Result code) {
  const char* name = nullptr;
  const bool known = api()->GetErrorName(code, &name) == kSuccess && name != nullptr;
  return known ? name : "an error of the driver";
}

bool is_sticky(Result code) {
  switch (code) {
    case kEccUncorrectable:
    case kContained:
    case kIllegalAddress:
    case kLaunchTimeout:
    case kAssert:
    case kHardwareStackError:
    case kIllegalInstruction:
    case kMisalignedAddress:
    case kInvalidAddressSpace:
    case kInvalidPc:
    case kLaunchFailed:
      return true;
    default:
      return false;
  }
}

}  // namespace hologram::cuda
