// SPDX-License-Identifier: MIT
// Finds the OpenCL driver of the machine.
#include "src/opencl/cl_api.h"

#include <dlfcn.h>

#include <memory>

namespace hologram::opencl {
namespace {

const Api* load() {
  void* library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) library = dlopen("libOpenCL.so", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  auto api = std::make_unique<Api>();
#define HOLOGRAM_CL_LOAD(name, result, parameters)                                \
  api->name = reinterpret_cast<result(*) parameters>(dlsym(library, "cl" #name)); \
  if (api->name == nullptr) return nullptr;
  HOLOGRAM_CL_FUNCTIONS(HOLOGRAM_CL_LOAD)
#undef HOLOGRAM_CL_LOAD
  return api.release();  // for the life of the process, like the library
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

const Api* api() {
  static const Api* const loaded = load();
  return loaded;
}

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
