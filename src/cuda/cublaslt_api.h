// SPDX-License-Identifier: MIT
// The part of cuBLASLt that products need, declared here because the library is found at run time:
// types, the numbers of its documentation, and its functions as a table of pointers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "src/cuda/cu_api.h"

namespace hologram::cuda::lt {

using Status = int;
using Handle = struct HandleObject*;
using Operation = struct OperationObject*;
using Layout = struct LayoutObject*;
using Preference = struct PreferenceObject*;

enum : Status {
  kSuccess = 0,
  kNotInitialized = 1,
  kAllocFailed = 3,
  kInvalidValue = 7,
  kExecutionFailed = 13,
  kInternalError = 14,
  kNotSupported = 15,
};
// Types of elements, of alpha and beta.
enum : int { kFloat32 = 0, kFloat64 = 1, kFloat16 = 2, kBFloat16 = 14 };
// What is summed in: float32 without TF32.
enum : int { kComputeFloat32 = 68, kComputeFloat64 = 70 };
enum : int32_t { kPlain = 0, kTransposed = 1 };
// What is done to the product before it is rounded: nothing, or a bias is added, an element of the
// result's type for each of its rows.
enum : int32_t { kNoEpilogue = 1, kAddBias = 4 };
// Attributes of an operation, a layout, a preference.
enum : int { kTransposeA = 3, kTransposeB = 4, kEpilogue = 7, kBiasPointer = 8 };
enum : int { kBatchCount = 5, kBatchStep = 6 };
enum : int {
  kMaxWorkspaceBytes = 1,
  kReductionSchemes = 3,
  kMinAlignmentA = 5,
  kMinAlignmentB = 6,
  kMinAlignmentC = 7,
  kMinAlignmentD = 8,
};
// Parts of a sum are added up in the type that is summed in, or there are none.
inline constexpr uint32_t kReduceInComputeType = 2;

struct Algorithm {
  uint64_t data[8];
};
struct Choice {
  Algorithm algorithm;
  size_t workspace_bytes;
  Status state;
  float waves;
  int reserved[4];
};

// F(name, parameters) for every function, named as in the library without the "cublasLt".
#define HOLOGRAM_LT_FUNCTIONS(F)                                                            \
  F(Create, (Handle*))                                                                      \
  F(Destroy, (Handle))                                                                      \
  F(MatmulDescCreate, (Operation*, int, int))                                               \
  F(MatmulDescDestroy, (Operation))                                                         \
  F(MatmulDescSetAttribute, (Operation, int, const void*, size_t))                          \
  F(MatrixLayoutCreate, (Layout*, int, uint64_t, uint64_t, int64_t))                        \
  F(MatrixLayoutDestroy, (Layout))                                                          \
  F(MatrixLayoutSetAttribute, (Layout, int, const void*, size_t))                           \
  F(MatmulPreferenceCreate, (Preference*))                                                  \
  F(MatmulPreferenceDestroy, (Preference))                                                  \
  F(MatmulPreferenceSetAttribute, (Preference, int, const void*, size_t))                   \
  F(MatmulAlgoGetHeuristic,                                                                 \
    (Handle, Operation, Layout, Layout, Layout, Layout, Preference, int, Choice*, int*))    \
  F(Matmul,                                                                                 \
    (Handle, Operation, const void*, const void*, Layout, const void*, Layout, const void*, \
     const void*, Layout, void*, Layout, const Algorithm*, void*, size_t, Stream))

struct Api {
#define HOLOGRAM_LT_POINTER(name, parameters) Status(*name) parameters = nullptr;
  HOLOGRAM_LT_FUNCTIONS(HOLOGRAM_LT_POINTER)
#undef HOLOGRAM_LT_POINTER
  const char* (*GetStatusName)(Status) = nullptr;
};

// The functions of the library that HOLOGRAM_CUBLASLT_LIBRARY names ("none": of none), else of
// libcublasLt.so as PyTorch's wheels or the machine have it, loaded at the first call and never
// unloaded; null where there is none, or one without all of them, and then why.
const Api* api();
const std::string& why_no_api();

}  // namespace hologram::cuda::lt
