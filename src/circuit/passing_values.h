// SPDX-License-Identifier: MIT
// Values that only the kernels of a plan see, and which of them may share memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "src/circuit/plan.h"

namespace hologram::circuit {

// Sets plan.attach and plan.passing, by its kernels. states: as for make_plan().
void find_memory_wanted(Plan& plan, std::span<const uint8_t> states);

// Which passing values share memory. Keeps its own storage from one plan to the next.
class MemorySharing {
 public:
  // bytes[k]: of the memory that passing[k] wants. Time is n log n but for moves in a short list.
  void find(std::span<const PassingValue> passing, std::span<const size_t> bytes);

  // By position in `passing`: the value whose memory it has, which has at least its bytes; its own
  // position where that is its own. An owner comes before those who use its memory later.
  const std::vector<uint32_t>& owners() const { return owners_; }
  // Of the owners.
  size_t bytes() const { return bytes_; }

 private:
  using Free = std::pair<size_t, uint32_t>;  // bytes, owner

  std::vector<uint32_t> owners_;
  std::vector<Free> free_;                      // by bytes
  std::vector<std::pair<int, uint32_t>> busy_;  // a heap: the last stage of who uses it, owner
  size_t bytes_ = 0;
};

}  // namespace hologram::circuit
