/* SPDX-License-Identifier: MIT
 * DLPack: the structs by which array libraries lend each other memory, and how tensors become and
 * come from them.
 *
 * The first part is C99 and has the names, numbers and layout of DLPack 1.x; it is left out where
 * the official dlpack/dlpack.h (1.0 or later) was included before. */
#ifndef HOLOGRAM_DLPACK_H
#define HOLOGRAM_DLPACK_H

/* clang-format off */
#ifndef DLPACK_DLPACK_H_

#include <stdint.h>

#define DLPACK_MAJOR_VERSION 1
#define DLPACK_MINOR_VERSION 3

#define DLPACK_FLAG_BITMASK_READ_ONLY (1UL << 0UL)
#define DLPACK_FLAG_BITMASK_IS_COPIED (1UL << 1UL)
#define DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED (1UL << 2UL)

/* NOLINTBEGIN(modernize-use-using): this is C, too */

#ifdef __cplusplus
extern "C" {
/* Any number may come from others, so the type must hold any. */
#define HOLOGRAM_DLPACK_INT32 : int32_t
#else
#define HOLOGRAM_DLPACK_INT32
#endif

typedef enum HOLOGRAM_DLPACK_INT32 {
  kDLCPU = 1,
  kDLCUDA = 2,
  kDLCUDAHost = 3, /* pinned, the processor reads and writes it */
  kDLOpenCL = 4,
  kDLVulkan = 7,
  kDLMetal = 8,
  kDLVPI = 9,
  kDLROCM = 10,
  kDLROCMHost = 11, /* pinned */
  kDLExtDev = 12,
  kDLCUDAManaged = 13, /* reached by both */
  kDLOneAPI = 14,
  kDLWebGPU = 15,
  kDLHexagon = 16,
  kDLMAIA = 17,
  kDLTrn = 18
} DLDeviceType;
#undef HOLOGRAM_DLPACK_INT32

typedef enum {
  kDLInt = 0U,
  kDLUInt = 1U,
  kDLFloat = 2U,
  kDLOpaqueHandle = 3U,
  kDLBfloat = 4U,
  kDLComplex = 5U, /* bits count both parts */
  kDLBool = 6U
} DLDataTypeCode;

typedef struct {
  uint32_t major; /* of the layout; another one must not be read beyond this struct */
  uint32_t minor;
} DLPackVersion;

typedef struct {
  DLDeviceType device_type;
  int32_t device_id;
} DLDevice;

typedef struct {
  uint8_t code; /* DLDataTypeCode */
  uint8_t bits;
  uint16_t lanes;
} DLDataType;

typedef struct {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides; /* in elements; NULL: row-major */
  uint64_t byte_offset;
} DLTensor;

/* The unversioned form, which older libraries pass. */
typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensor* self); /* may be NULL; called once, from any thread */
} DLManagedTensor;

typedef struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned* self); /* as above */
  uint64_t flags; /* DLPACK_FLAG_BITMASK_... */
  DLTensor dl_tensor;
} DLManagedTensorVersioned;

#ifdef __cplusplus
} /* extern "C" */
#endif
/* NOLINTEND(modernize-use-using) */
#endif /* DLPACK_DLPACK_H_ */
/* clang-format on */

#ifdef __cplusplus

#include "hologram/api.h"
#include "hologram/device.h"
#include "hologram/dtype.h"
#include "hologram/tensor.h"

namespace hologram {

// A device's name in DLPack: host memory is kDLCPU 0, whatever device computes on it.
HOLOGRAM_API DLDevice dlpack_device(const Device& device);
HOLOGRAM_API DLDataType dlpack_dtype(Dtype dtype);
// Error(kTypeMismatch), saying what there is, for a type that no Dtype stands for.
HOLOGRAM_API Dtype dtype_from_dlpack(DLDataType type);

// Lends the tensor's memory. The descriptor holds a reference to the buffer until its deleter is
// called, which may happen on any thread and waits for no work. Waits itself for what is recorded
// on the buffer, which is exported for as long (see mark_exported()). Strides and shape are always
// there, byte_offset is 0. Error(kOutOfMemory); and whatever running the recorded work throws.
HOLOGRAM_API DLManagedTensorVersioned* to_dlpack(const Tensor& tensor, uint64_t flags = 0);
HOLOGRAM_API DLManagedTensor* to_dlpack_unversioned(const Tensor& tensor);

// Borrows memory of others: no copy, any strides. The tensor's buffer owns the descriptor, whose
// deleter is called when the last reference to the buffer goes, on whatever thread that is. Ops on
// the buffer run at their calls, for its lender may look or write at any time.
//
// `read_only` receives whether the lender forbids writing; where it is null such memory is refused.
//
// A call that throws has not taken the descriptor. Everything in it is checked before memory is
// touched: kInvalidArgument (null or misaligned pointers, sizes, strides and offsets whose bytes no
// address can name, more than 64 dimensions, read-only memory), kTypeMismatch (dtype, lanes),
// kNotSupported (device, layout version). Messages name the field.
HOLOGRAM_API Tensor from_dlpack(DLManagedTensorVersioned* managed, bool* read_only = nullptr);
HOLOGRAM_API Tensor from_dlpack(DLManagedTensor* managed);

}  // namespace hologram

#endif /* __cplusplus */
#endif /* HOLOGRAM_DLPACK_H */
