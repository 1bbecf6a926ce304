// SPDX-License-Identifier: MIT
// See kernel_cache.h.
#include "src/gpu/kernel_cache.h"

namespace hologram::gpu {

std::shared_ptr<const CompiledKernel> KernelCache::get(const std::string& source) {
  std::lock_guard lock(mutex_);
  const auto at = known_.find(source);
  if (at != known_.end()) return at->second;
  if (known_.size() >= kKept) {
    std::erase_if(known_, [](const auto& entry) { return entry.second.use_count() == 1; });
  }
  return known_.emplace(source, driver_.build(source)).first->second;
}

}  // namespace hologram::gpu
