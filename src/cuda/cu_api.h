// SPDX-License-Identifier: MIT
// The part of CUDA's driver API that the device uses, declared here because the driver is found at
// run time: types, the numbers of its documentation, and its functions as a table of pointers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hologram/error.h"

namespace hologram::cuda {

using Result = int;
using DeviceId = int;
using Address = uint64_t;
using Context = struct ContextObject*;
using Module = struct ModuleObject*;
using Function = struct FunctionObject*;
using Stream = struct StreamObject*;
using Mark = struct EventObject*;

enum : Result {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kDeinitialized = 4,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kEccUncorrectable = 214,
  kInvalidPtx = 218,
  kContained = 226,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kLaunchOutOfResources = 701,
  kLaunchTimeout = 702,
  kAssert = 710,
  kHardwareStackError = 714,
  kIllegalInstruction = 715,
  kMisalignedAddress = 716,
  kInvalidAddressSpace = 717,
  kInvalidPc = 718,
  kLaunchFailed = 719,
};
// Of a device.
enum : int {
  kMultiprocessorCount = 16,
  kL2CacheSize = 38,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
};
// What launches take in place of a pointer for each parameter: all of them in one piece of memory.
inline void* const kParametersEnd = nullptr;
inline void* const kParametersAt = reinterpret_cast<void*>(1);
inline void* const kParametersSize = reinterpret_cast<void*>(2);

// F(name, symbol, parameters) for every function, named as in the documentation without the "cu".
// Symbols without "_ptsz" or "_ptds" are those of the legacy default stream.
#define HOLOGRAM_CU_FUNCTIONS(F)                                                             \
  F(Init, "cuInit", (unsigned))                                                              \
  F(DriverGetVersion, "cuDriverGetVersion", (int*))                                          \
  F(GetErrorName, "cuGetErrorName", (Result, const char**))                                  \
  F(DeviceGetCount, "cuDeviceGetCount", (int*))                                              \
  F(DeviceGet, "cuDeviceGet", (DeviceId*, int))                                              \
  F(DeviceGetName, "cuDeviceGetName", (char*, int, DeviceId))                                \
  F(DeviceTotalMem, "cuDeviceTotalMem_v2", (size_t*, DeviceId))                              \
  F(DeviceGetAttribute, "cuDeviceGetAttribute", (int*, int, DeviceId))                       \
  F(DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (Context*, DeviceId))                \
  F(DevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (DeviceId))                     \
  F(CtxGetCurrent, "cuCtxGetCurrent", (Context*))                                            \
  F(CtxSetCurrent, "cuCtxSetCurrent", (Context))                                             \
  F(MemAlloc, "cuMemAlloc_v2", (Address*, size_t))                                           \
  F(MemFree, "cuMemFree_v2", (Address))                                                      \
  F(MemAllocHost, "cuMemAllocHost_v2", (void**, size_t))                                     \
  F(MemFreeHost, "cuMemFreeHost", (void*))                                                   \
  F(MemcpyHtoD, "cuMemcpyHtoD_v2", (Address, const void*, size_t))                           \
  F(MemcpyDtoH, "cuMemcpyDtoH_v2", (void*, Address, size_t))                                 \
  F(MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", (Address, const void*, size_t, Stream))         \
  F(MemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", (Address, Address, size_t, Stream))             \
  F(StreamSynchronize, "cuStreamSynchronize", (Stream))                                      \
  F(EventCreate, "cuEventCreate", (Mark*, unsigned))                                         \
  F(EventDestroy, "cuEventDestroy_v2", (Mark))                                               \
  F(EventRecord, "cuEventRecord", (Mark, Stream))                                            \
  F(EventQuery, "cuEventQuery", (Mark))                                                      \
  F(EventSynchronize, "cuEventSynchronize", (Mark))                                          \
  F(EventElapsedTime, "cuEventElapsedTime", (float*, Mark, Mark))                            \
  F(ModuleLoadData, "cuModuleLoadData", (Module*, const void*))                              \
  F(ModuleUnload, "cuModuleUnload", (Module))                                                \
  F(ModuleGetFunction, "cuModuleGetFunction", (Function*, Module, const char*))              \
  F(LaunchKernel, "cuLaunchKernel",                                                          \
    (Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream, \
     void**, void**))

struct Api {
#define HOLOGRAM_CU_POINTER(name, symbol, parameters) Result(*name) parameters = nullptr;
  HOLOGRAM_CU_FUNCTIONS(HOLOGRAM_CU_POINTER)
#undef HOLOGRAM_CU_POINTER
};

// HOLOGRAM_CUDA_LIBRARY: the driver's library by its path, or by a name that the loader finds;
// empty where it is not set.
const char* named_library();
// The functions of that library, else of the machine's libcuda.so.1, loaded at the first call and
// never unloaded; null where there is none, or one without all of them, and then why.
const Api* api();
const char* why_no_api();

// "CUDA_ERROR_ILLEGAL_ADDRESS".
const char* code_name(Result code);
// Whether every later call of the process fails with it, whatever it asks.
bool is_sticky(Result code);

// Throws what a failed call means: kOutOfMemory where it is memory that was refused. `asked` is
// text: check(code, "cuMemcpyDtoH", " of ", n, " bytes").
template <class... Parts>
void check(Result code, const char* call, const Parts&... asked) {
  if (code == kSuccess) [[likely]]
    return;
  fail(code == kOutOfMemory ? ErrorKind::kOutOfMemory : ErrorKind::kInternal, "cuda: ", call,
       asked..., " returned ", code, " (", code_name(code), ")",
       code == kDeinitialized ? ": the driver has shut down, as it does when a process ends" : "");
}

}  // namespace hologram::cuda
