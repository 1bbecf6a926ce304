// SPDX-License-Identifier: MIT
// Kernels of plans as text.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/circuit/plan.h"
#include "src/gpu/vocabulary.h"

namespace hologram::gpu {

using circuit::Instr;
using circuit::Kernel;
using circuit::MemoryAccess;
using circuit::Rank;
using circuit::Ref;

// Work items of a group, and of the larger groups that every device takes.
inline constexpr size_t kGroupItems = 64, kMostGroupItems = 256;
// Kernels whose items are independent have the larger groups from this number of items on.
inline constexpr size_t kManyItems = size_t{1} << 16;

// The slot that stands for the device's fault word (fault_word.h), and that for memory which the
// launches of one kernel share while it runs.
inline constexpr uint32_t kFaultSlot = UINT32_MAX, kScratchSlot = UINT32_MAX - 1;

inline constexpr char kKernelName[] = "hologram_kernel";

// A kernel as text, and what it takes. The text knows types, ranks and which operands lie one
// element after another, but no size, stride, slot or number, so that equal programs over other
// shapes and memory share it. Parameters are a pointer for each slot, to the block that the slot is
// in, and then the words: a struct of 64-bit integers by value, or a pointer to them where that
// would be more than parameters may take.
struct KernelText {
  std::string functions;  // that the body calls
  std::string body;
  std::vector<uint32_t> slots;
  std::vector<int64_t> words;
  bool words_in_memory = false;
  // A word to which is added where a slot begins in its block.
  struct Offset {
    uint32_t word;
    uint32_t position;  // in `slots`
  };
  std::vector<Offset> offsets;
  // A word that is an immediate, whose 8 bytes hold a number of a dtype; of calls they hold a
  // float64, which is converted to it.
  struct Number {
    uint32_t word;
    uint32_t index;
    Dtype dtype;
    bool is_of_call = false;
  };
  std::vector<Number> numbers;
  size_t scratch_bytes = 0;  // of kScratchSlot
  size_t groups = 0;         // that are launched
  size_t group_items = kGroupItems;
  // How many equal kernels it is in one launch. Each has as many slots and words of its own, in
  // order; behind the words of all is where the groups of each end.
  size_t members = 1;
};

// What a driver compiles, without its prologue.
std::string source_of(const KernelText& text);
// Whether the two are one kernel over other memory and sizes, so that they can be joined.
bool is_equal(const KernelText& a, const KernelText& b);
// How many such kernels one launch takes: a power of two, 1 at least.
size_t most_members(const KernelText& text, const Traits& traits);
// Kernels that are equal and do not depend on each other as one, most_members() of them at most.
KernelText joined(std::span<const KernelText> texts, const Traits& traits);

// The launches of a kernel, in order: one, but for long rows. Nothing where the device cannot run
// the kernel: calls, ops, reductions and dtypes that it lacks, and what reads and writes one place
// in more than one way. `native` is native_ops(traits). Plans for a device with that as
// PlanLimits::native have kernels of what it runs, and kernels of nothing that it runs.
std::vector<KernelText> kernel_texts(const circuit::Kernel& kernel, const Traits& traits,
                                     const circuit::NativeOps& native);

// The most slots of a kernel on a device of these traits.
int max_arguments(const Traits& traits);

}  // namespace hologram::gpu
