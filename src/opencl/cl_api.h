// SPDX-License-Identifier: MIT
// The part of OpenCL 1.2 that the device uses, declared here because the driver is found at run
// time: types, the numbers of the specification, and its functions as a table of pointers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "hologram/error.h"

namespace hologram::opencl {

using Int = int32_t;
using Uint = uint32_t;
using Ulong = uint64_t;
using Platform = struct PlatformObject*;
using DeviceId = struct DeviceObject*;
using Context = struct ContextRecord*;
using Queue = struct QueueObject*;
using Memory = struct MemoryObject*;
using Program = struct ProgramObject*;
using KernelObject = struct KernelRecord*;
using Mark = struct EventRecord*;

// Names and values are those of the specification.
enum : Int {
  kSuccess = 0,
  kMemObjectAllocationFailure = -4,
  kOutOfResources = -5,
  kOutOfHostMemory = -6,
  kComplete = 0,  // of a command
};
enum : Uint {
  kTrue = 1,
  kPlatformName = 0x0902,
  kDeviceType = 0x1000,
  kDeviceMaxComputeUnits = 0x1002,
  kDeviceMaxWorkGroupSize = 0x1004,
  kDeviceMaxMemAllocSize = 0x1010,
  kDeviceMaxParameterSize = 0x1017,
  kDeviceSingleFpConfig = 0x101B,
  kDeviceGlobalMemSize = 0x101F,
  kDeviceAvailable = 0x1027,
  kDeviceCompilerAvailable = 0x1028,
  kDeviceName = 0x102B,
  kDeviceVersion = 0x102F,
  kDeviceDoubleFpConfig = 0x1032,
  kProgramBuildLog = 0x1183,
  kEventCommandExecutionStatus = 0x11D3,
  kProfilingCommandEnd = 0x1283,
};
inline constexpr Ulong kDeviceTypeCpu = 1 << 1;
inline constexpr Ulong kDeviceTypeAll = 0xFFFFFFFF;
inline constexpr Ulong kMemReadWrite = 1 << 0;
inline constexpr Ulong kMemReadOnly = 1 << 2;
inline constexpr Ulong kMemCopyHostPointer = 1 << 5;
inline constexpr Ulong kQueueProfiling = 1 << 1;
inline constexpr Ulong kFpDenorm = 1 << 0;
inline constexpr Ulong kFpRoundToNearest = 1 << 2;
inline constexpr Ulong kFpCorrectlyRoundedDivideSqrt = 1 << 7;

using Notify = void (*)(const char*, const void*, size_t, void*);
using ProgramNotify = void (*)(Program, void*);

// F(name, result, parameters) for every function, named as in libOpenCL without the "cl".
#define HOLOGRAM_CL_FUNCTIONS(F)                                                                \
  F(GetPlatformIDs, Int, (Uint, Platform*, Uint*))                                              \
  F(GetPlatformInfo, Int, (Platform, Uint, size_t, void*, size_t*))                             \
  F(GetDeviceIDs, Int, (Platform, Ulong, Uint, DeviceId*, Uint*))                               \
  F(GetDeviceInfo, Int, (DeviceId, Uint, size_t, void*, size_t*))                               \
  F(CreateContext, Context, (const intptr_t*, Uint, const DeviceId*, Notify, void*, Int*))      \
  F(ReleaseContext, Int, (Context))                                                             \
  F(CreateCommandQueue, Queue, (Context, DeviceId, Ulong, Int*))                                \
  F(CreateBuffer, Memory, (Context, Ulong, size_t, void*, Int*))                                \
  F(ReleaseMemObject, Int, (Memory))                                                            \
  F(CreateProgramWithSource, Program, (Context, Uint, const char**, const size_t*, Int*))       \
  F(BuildProgram, Int, (Program, Uint, const DeviceId*, const char*, ProgramNotify, void*))     \
  F(GetProgramBuildInfo, Int, (Program, DeviceId, Uint, size_t, void*, size_t*))                \
  F(ReleaseProgram, Int, (Program))                                                             \
  F(CreateKernel, KernelObject, (Program, const char*, Int*))                                   \
  F(ReleaseKernel, Int, (KernelObject))                                                         \
  F(SetKernelArg, Int, (KernelObject, Uint, size_t, const void*))                               \
  F(EnqueueNDRangeKernel, Int,                                                                  \
    (Queue, KernelObject, Uint, const size_t*, const size_t*, const size_t*, Uint, const Mark*, \
     Mark*))                                                                                    \
  F(EnqueueReadBuffer, Int,                                                                     \
    (Queue, Memory, Uint, size_t, size_t, void*, Uint, const Mark*, Mark*))                     \
  F(EnqueueWriteBuffer, Int,                                                                    \
    (Queue, Memory, Uint, size_t, size_t, const void*, Uint, const Mark*, Mark*))               \
  F(EnqueueCopyBuffer, Int,                                                                     \
    (Queue, Memory, Memory, size_t, size_t, size_t, Uint, const Mark*, Mark*))                  \
  F(EnqueueMarkerWithWaitList, Int, (Queue, Uint, const Mark*, Mark*))                          \
  F(Flush, Int, (Queue))                                                                        \
  F(Finish, Int, (Queue))                                                                       \
  F(WaitForEvents, Int, (Uint, const Mark*))                                                    \
  F(GetEventInfo, Int, (Mark, Uint, size_t, void*, size_t*))                                    \
  F(GetEventProfilingInfo, Int, (Mark, Uint, size_t, void*, size_t*))                           \
  F(ReleaseEvent, Int, (Mark))

struct Api {
#define HOLOGRAM_CL_POINTER(name, result, parameters) result(*name) parameters = nullptr;
  HOLOGRAM_CL_FUNCTIONS(HOLOGRAM_CL_POINTER)
#undef HOLOGRAM_CL_POINTER
};

// HOLOGRAM_OPENCL_LIBRARY: the driver's library by its path, or by a name that the loader finds;
// empty where it is not set.
const char* named_library();
// The functions of that library, else of the machine's libOpenCL.so.1, loaded at the first call and
// never unloaded; null where there is none, or one without all of them, and then why.
const Api* api();
const char* why_no_api();

// Throws what a failed call means: kOutOfMemory where it is memory that was refused.
void check(Int code, const char* call);

// A property of a device that is a plain value, and one that is text.
template <class T>
T device_info(DeviceId device, Uint property) {
  T value{};
  check(api()->GetDeviceInfo(device, property, sizeof value, &value, nullptr), "clGetDeviceInfo");
  return value;
}
std::string device_text(DeviceId device, Uint property);

}  // namespace hologram::opencl
