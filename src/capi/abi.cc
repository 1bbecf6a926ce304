// SPDX-License-Identifier: MIT
// Holds the numbers of the C interface to those of the C++ one.
#include "hologram/dtype.h"
#include "hologram/error.h"
#include "hologram/hologram.h"
#include "hologram/reduction.h"

namespace hologram {
namespace {

constexpr bool same(int c, ErrorKind kind) { return c == static_cast<int>(kind) + 1; }
constexpr bool same(int c, Dtype dtype) { return c == static_cast<int>(dtype); }

static_assert(same(HOLOGRAM_INVALID_ARGUMENT, ErrorKind::kInvalidArgument));
static_assert(same(HOLOGRAM_TYPE_MISMATCH, ErrorKind::kTypeMismatch));
static_assert(same(HOLOGRAM_INDEX, ErrorKind::kIndex));
static_assert(same(HOLOGRAM_OUT_OF_MEMORY, ErrorKind::kOutOfMemory));
static_assert(same(HOLOGRAM_NOT_SUPPORTED, ErrorKind::kNotSupported));
static_assert(same(HOLOGRAM_STATE, ErrorKind::kState));
static_assert(same(HOLOGRAM_INTERNAL, ErrorKind::kInternal));

static_assert(same(HOLOGRAM_BOOL, Dtype::kBool));
static_assert(same(HOLOGRAM_UINT8, Dtype::kUInt8));
static_assert(same(HOLOGRAM_INT8, Dtype::kInt8));
static_assert(same(HOLOGRAM_INT16, Dtype::kInt16));
static_assert(same(HOLOGRAM_INT32, Dtype::kInt32));
static_assert(same(HOLOGRAM_INT64, Dtype::kInt64));
static_assert(same(HOLOGRAM_FLOAT16, Dtype::kFloat16));
static_assert(same(HOLOGRAM_BFLOAT16, Dtype::kBFloat16));
static_assert(same(HOLOGRAM_FLOAT32, Dtype::kFloat32));
static_assert(same(HOLOGRAM_FLOAT64, Dtype::kFloat64));
static_assert(same(HOLOGRAM_COMPLEX64, Dtype::kComplex64));
static_assert(same(HOLOGRAM_COMPLEX128, Dtype::kComplex128));
static_assert(same(HOLOGRAM_UINT16, Dtype::kUInt16));
static_assert(same(HOLOGRAM_UINT32, Dtype::kUInt32));
static_assert(same(HOLOGRAM_UINT64, Dtype::kUInt64));
static_assert(HOLOGRAM_UINT64 + 1 == kStoredDtypeCount, "a new dtype has a number here too");

#define HOLOGRAM_REDUCTION(name, id, c, ...) \
  static_assert(HOLOGRAM_REDUCE_##c == static_cast<int>(Reduction::name));
#include "hologram/reductions.def"

}  // namespace
}  // namespace hologram
