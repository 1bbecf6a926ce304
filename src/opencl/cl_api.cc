// SPDX-License-Identifier: MIT
// Finds the OpenCL driver of the machine.
#include "src/opencl/cl_api.h"

#include <dlfcn.h>

#include <cstdlib>
#include <memory>
#include <string>

namespace hologram::opencl {
namespace {

struct Loaded {
  const Api* api = nullptr;  // for the life of the process, like the library
  std::string why;           // there is none
};

Loaded load() {
  const std::string named = named_library();
  const std::string what = named.empty() ? "libOpenCL.so.1" : "HOLOGRAM_OPENCL_LIBRARY=" + named;
  void* library = dlopen(named.empty() ? "libOpenCL.so.1" : named.c_str(), RTLD_NOW | RTLD_LOCAL);
  const char* error = library == nullptr ? dlerror() : nullptr;
  if (library == nullptr && named.empty()) library = dlopen("libOpenCL.so", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return {nullptr, what + " cannot be loaded: " + (error != nullptr ? error : "no reason given")};
  }
  auto api = std::make_unique<Api>();
#define HOLOGRAM_CL_LOAD(name, result, parameters)                                       \
  api->name = reinterpret_cast<result(*) parameters>(dlsym(library, "cl" #name));        \
  if (api->name == nullptr) {                                                            \
    return {nullptr, what + " is no driver of OpenCL 1.2: it has no function cl" #name}; \
  }
  HOLOGRAM_CL_FUNCTIONS(HOLOGRAM_CL_LOAD)
#undef HOLOGRAM_CL_LOAD
  return {api.release(), {}};
}

const Loaded& loaded() {
  static const Loaded& found = *new Loaded(load());  // errors name its text to the end
  return found;
}

const char* code_name(Int code) {
  switch (code) {
    case -2:
      return "CL_DEVICE_NOT_AVAILABLE";
    case kMemObjectAllocationFailure:
      return "CL_MEM_OBJECT_ALLOCATION_FAILURE";
    case kOutOfResources:
      return "CL_OUT_OF_RESOURCES";
    case kOutOfHostMemory:
      return "CL_OUT_OF_HOST_MEMORY";
    case -11:
      return "CL_BUILD_PROGRAM_FAILURE";
    case -14:
      return "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST";
    case -30:
      return "CL_INVALID_VALUE";
    case -36:
      return "CL_INVALID_COMMAND_QUEUE";
    case -38:
      return "CL_INVALID_MEM_OBJECT";
    case -51:
      return "CL_INVALID_ARG_SIZE";
    case -52:
      return "CL_INVALID_KERNEL_ARGS";
    case -54:
      return "CL_INVALID_WORK_GROUP_SIZE";
    case -61:
      return "CL_INVALID_BUFFER_SIZE";
    default:
      return "an error of the driver";
  }
}

}  // namespace

const char* named_library() {
  const char* const name = std::getenv("HOLOGRAM_OPENCL_LIBRARY");
  return name != nullptr ? name : "";
}

const Api* api() { return loaded().api; }
const char* why_no_api() { return loaded().why.c_str(); }

void check(Int code, const char* call) {
  if (code == kSuccess) return;
  const bool memory =
      code == kMemObjectAllocationFailure || code == kOutOfHostMemory || code == kOutOfResources;
  fail(memory ? ErrorKind::kOutOfMemory : ErrorKind::kInternal, "opencl: ", call, " returned ",
       code, " (", code_name(code), ")");
}

std::string device_text(DeviceId device, Uint property) {
  size_t bytes = 0;
  check(api()->GetDeviceInfo(device, property, 0, nullptr, &bytes), "clGetDeviceInfo");
  std::string text(bytes, '\0');
  check(api()->GetDeviceInfo(device, property, bytes, text.data(), nullptr), "clGetDeviceInfo");
  while (!text.empty() && (text.back() == '\0' || text.back() == ' ')) text.pop_back();
  return text;
}

}  // namespace hologram::opencl
