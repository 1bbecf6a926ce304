// SPDX-License-Identifier: MIT
// Holds fused circuits against their ops run one by one.
#include "src/runtime/circuit_check.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "hologram/error.h"

namespace hologram::internal {
namespace {

std::atomic<bool>& wish() {
  static std::atomic<bool> checks{[] {
    const char* text = std::getenv("HOLOGRAM_RECORDER_CHECK");
    return text != nullptr && std::string_view(text) == "1";
  }()};
  return checks;
}

}  // namespace

bool checks_circuits() { return wish().load(std::memory_order_relaxed); }
void set_checks_circuits(bool check) { wish().store(check); }

CircuitCheck::CircuitCheck(Device& device, std::span<const uint64_t> words,
                           std::span<const uint8_t> states, std::vector<size_t> sizes,
                           std::span<char* const> bound, const uint64_t* immediates)
    : device_(device), words_(words), states_(states), sizes_(std::move(sizes)) {
  std::vector<char*> places;
  for (size_t s = 0; s < sizes_.size(); ++s) {
    // Unwritten bytes are copied too, so that they compare equal.
    copies_.push_back(std::make_unique<char[]>(sizes_[s]));
    if (bound[s] != nullptr) std::memcpy(copies_[s].get(), bound[s], sizes_[s]);
    places.push_back(copies_[s].get());
  }
  const auto plan = circuit::make_plan(words_, states_, {.fuse = false});
  if (!plan->kernels.empty()) device_.run_plan(*plan, {places.data(), immediates}, 0);
}

void CircuitCheck::compare(const circuit::Plan& plan, std::span<char* const> bound) const {
  for (size_t s = 0; s < sizes_.size(); ++s) {
    if (bound[s] == nullptr || (states_[s] & circuit::kSlotLive) == 0) continue;
    const char* fused = bound[s];
    const char* alone = copies_[s].get();
    const auto at = std::mismatch(fused, fused + sizes_[s], alone).first - fused;
    if (static_cast<size_t>(at) == sizes_[s]) continue;
    fail(ErrorKind::kInternal, "recorder check: fused and unfused results differ in slot ", s,
         " from byte ", at, " of ", sizes_[s], " on; the tape:\n", circuit::print_tape(words_),
         "the plan:\n", circuit::print_plan(plan));
  }
}

}  // namespace hologram::internal
