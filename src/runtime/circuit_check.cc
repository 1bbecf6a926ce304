// SPDX-License-Identifier: MIT
// Holds fused circuits against their ops run one by one.
#include "src/runtime/circuit_check.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "hologram/error.h"
#include "src/circuit/tape.h"

namespace hologram::internal {
namespace {

std::atomic<bool>& wish() {
  static std::atomic<bool> checks{[] {
    const char* text = std::getenv("HOLOGRAM_RECORDER_CHECK");
    return text != nullptr && std::string_view(text) == "1";
  }()};
  return checks;
}

// What the elements of a slot are; nothing said: any floating type, as far as the check goes.
using SlotDtype = std::optional<Dtype>;

// Of each slot, by the last record that writes it.
std::vector<SlotDtype> written_dtypes(std::span<const uint64_t> words, size_t slots) {
  std::vector<SlotDtype> dtypes(slots);
  circuit::Tape::decode(words, [&](const circuit::Record& record, int) {
    if (record.code != circuit::kCodeCall) {
      dtypes[record.operands[0].slot] = record.operands[0].dtype;
      return;
    }
    for (size_t k = 0; k < record.call.operands(); ++k) {
      const circuit::CallSlot operand = record.call.operand(k);
      if (operand.present && operand.writes) dtypes[operand.slot].reset();
    }
  });
  return dtypes;
}

template <class Bits>
bool is_nan(const char* at, Bits infinity) {
  Bits bits;
  std::memcpy(&bits, at, sizeof bits);
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  return static_cast<Bits>(bits & ~kSign) > infinity;
}

bool is_nan(Dtype dtype, const char* at) {
  switch (dtype) {
    case Dtype::kFloat16:
      return is_nan<uint16_t>(at, 0x7c00);
    case Dtype::kBFloat16:
      return is_nan<uint16_t>(at, 0x7f80);
    case Dtype::kFloat32:
    case Dtype::kComplex64:
      return is_nan<uint32_t>(at, 0x7f800000);
    case Dtype::kFloat64:
    case Dtype::kComplex128:
      return is_nan<uint64_t>(at, 0x7ff0000000000000);
    default:
      return false;
  }
}

// Whether the element that byte i is of is a NaN on both sides. Slots begin with a whole element.
bool both_nan(Dtype dtype, const char* a, const char* b, size_t i, size_t n) {
  const size_t size = is_complex(dtype) ? itemsize(dtype) / 2 : itemsize(dtype);
  const size_t begin = i - i % size;
  return begin + size <= n && is_nan(dtype, a + begin) && is_nan(dtype, b + begin);
}

// The first byte in which they differ, and not only in which NaN an element is; else n.
size_t first_difference(SlotDtype dtype, const char* a, const char* b, size_t n) {
  for (size_t i = 0;; ++i) {
    i = static_cast<size_t>(std::mismatch(a + i, a + n, b + i).first - a);
    if (i == n) return n;
    bool nan = false;
    if (dtype.has_value()) {
      nan = both_nan(*dtype, a, b, i, n);
    } else {
      for (const Dtype d : {Dtype::kFloat16, Dtype::kBFloat16, Dtype::kFloat32, Dtype::kFloat64}) {
        nan = nan || both_nan(d, a, b, i, n);
      }
    }
    if (!nan) return i;
  }
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
  const std::vector<SlotDtype> dtypes = written_dtypes(words_, sizes_.size());
  for (size_t s = 0; s < sizes_.size(); ++s) {
    if (bound[s] == nullptr || (states_[s] & circuit::kSlotLive) == 0) continue;
    const size_t at = first_difference(dtypes[s], bound[s], copies_[s].get(), sizes_[s]);
    if (at == sizes_[s]) continue;
    fail(ErrorKind::kInternal, "recorder check: fused and unfused results differ in slot ", s,
         " from byte ", at, " of ", sizes_[s], " on; the tape:\n", circuit::print_tape(words_),
         "the plan:\n", circuit::print_plan(plan));
  }
}

}  // namespace hologram::internal
