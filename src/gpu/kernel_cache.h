// SPDX-License-Identifier: MIT
// Texts as programs of the device: each is built once, whatever plans ask for it.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "src/gpu/driver.h"

namespace hologram::gpu {

class KernelCache {
 public:
  explicit KernelCache(Driver& driver) : driver_(driver) {}

  // Thread-safe. Throws what Driver::build() throws.
  std::shared_ptr<const CompiledKernel> get(const std::string& source);

 private:
  // So many are kept though no plan uses them.
  static constexpr size_t kKept = 1024;

  Driver& driver_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const CompiledKernel>> known_;
};

}  // namespace hologram::gpu
