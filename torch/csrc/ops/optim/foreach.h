// SPDX-License-Identifier: MIT
// One _foreach_ op from the rule of the op it repeats.
#pragma once

#include <ATen/native/ForeachUtils.h>

#include "ops/elementwise/elementwise_forms.h"

namespace hologram_torch {

// Lists give their i-th member, everything else itself.
inline const at::Tensor& member(at::TensorList list, size_t i) { return list[i]; }
inline const at::Scalar& member(at::ArrayRef<at::Scalar> list, size_t i) { return list[i]; }
template <class T>
const T& member(const T& value, size_t) {
  return value;
}

inline void check_list(at::TensorList lead, at::TensorList list) {
  at::native::check_foreach_api_restrictions(lead, list);
}
inline void check_list(at::TensorList lead, at::ArrayRef<at::Scalar> list) {
  at::native::check_foreach_api_restrictions(lead, list);
}
template <class T>
void check_list(at::TensorList, const T&) {}

// PyTorch leaves the counting of versions to the ops that a _foreach_ op is made of.
inline void bump_version(const at::Tensor& t) { t.unsafeGetTensorImpl()->bump_version(); }

// Says that the members of a list are recorded next; see hologram::expect_list().
void expect_list(at::TensorList lead);

// Whether the lists hold enough work in enough tensors for several threads.
bool worth_batching(at::TensorList lead);

// Args are those of the _foreach_ op behind its first list. kName and kInPlace name the op that a
// member falls back to.
template <auto* kRule, Name kName, Name kInPlace, class... Args>
struct Foreach {
  static std::vector<at::Tensor> functional(at::TensorList self, Args... args) {
    at::native::check_foreach_api_restrictions(self);
    (check_list(self, args), ...);
    expect_list(self);
    Batch batch;
    Batch* const used = !is_deferring() && worth_batching(self) ? &batch : nullptr;
    std::vector<at::Tensor> results;
    results.reserve(self.size());
    for (size_t i = 0; i < self.size(); ++i) {
      Target target{nullptr, {}, used};
      if (C10_LIKELY(kRule(target, self[i], member(args, i)...))) {
        results.push_back(std::move(target.fresh));
      } else {
        target.settle();
        results.push_back(
            std::move(call_fallback<kName>(self[i], member(args, i)...).back()).toTensor());
      }
    }
    batch.run();
    return results;
  }
  static void in_place(at::TensorList self, Args... args) {
    at::native::check_foreach_api_restrictions(self);
    (check_list(self, args), ...);
    expect_list(self);
    Batch batch;
    Batch* const used = !is_deferring() && worth_batching(self) ? &batch : nullptr;
    for (size_t i = 0; i < self.size(); ++i) {
      Target target{&self[i], {}, used};
      if (C10_UNLIKELY(!kRule(target, self[i], member(args, i)...))) {
        target.settle();
        call_fallback<kInPlace>(self[i], member(args, i)...);
      }
      bump_version(self[i]);
    }
    batch.run();
  }

  // Registers _foreach_kEach and _foreach_kEach_, with the overload name of both.
  template <Name kEach, Name kOverload = "">
  static void add(torch::Library& m) {
    constexpr auto kDot = [] {
      if constexpr (kOverload.view().empty()) {
        return kOverload;
      } else {
        return Name(".") + kOverload;
      }
    }();
    register_native<&functional>(m, (Name("_foreach_") + kEach + kDot).view());
    register_native<&in_place>(m, (Name("_foreach_") + kEach + Name("_") + kDot).view());
  }
};

}  // namespace hologram_torch
