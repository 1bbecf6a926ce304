// SPDX-License-Identifier: MIT
// A debugging aid: runs every circuit a second time, record by record, and compares the bits.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "hologram/device.h"
#include "src/circuit/plan.h"

namespace hologram::internal {

// HOLOGRAM_RECORDER_CHECK=1, until set otherwise.
bool checks_circuits();
void set_checks_circuits(bool check);

// Made before a circuit runs: runs each record of the tape by itself, dead ones too, on copies of
// the slots' bytes. Nothing of the planner has a part in it, only the device's kernels. Host memory
// only.
class CircuitCheck {
 public:
  // sizes[s] and bound[s]: the bytes of slot s, null where it has no memory.
  CircuitCheck(Device& device, std::span<const uint64_t> words, std::span<const uint8_t> states,
               std::vector<size_t> sizes, std::span<char* const> bound, const uint64_t* immediates);
  // After the circuit ran. Error(kInternal) with the tape and the plan where a slot that is live
  // differs in any bit, other than in which NaN an element of the type written last is. Calls do
  // not tell their types: what they wrote last may be any NaN of any type.
  void compare(const circuit::Plan& plan, std::span<char* const> bound) const;

 private:
  std::span<const uint64_t> words_;
  std::span<const uint8_t> states_;
  std::vector<size_t> sizes_;
  std::vector<std::unique_ptr<char[]>> copies_;
};

}  // namespace hologram::internal
