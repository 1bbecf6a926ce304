// SPDX-License-Identifier: MIT
// Products by cuBLASLt, where it is found.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "src/cuda/cublaslt_api.h"
#include "src/gpu/driver.h"

namespace hologram::cuda {

// Of one context, which is the calling thread's in every call. Failed calls throw Error(kInternal)
// that names the call, its code and the code's name.
class CublasLt {
 public:
  // As gpu::Driver::product_algorithm(). Thread-safe. Where the library is named and cannot be
  // used, or has no handle for the context, a message says why, once.
  std::shared_ptr<const gpu::ProductAlgorithm> algorithm(const gpu::ProductProblem& problem);
  // On the legacy default stream, with an algorithm of this.
  void launch(const gpu::ProductLaunch& launch);
  // Gives back the handle. Without it that is lost with the context.
  void close() noexcept;

 private:
  // So many problems are kept though no plan has them.
  static constexpr size_t kKept = 1024;

  bool open();

  std::mutex mutex_;
  bool is_opened_ = false;
  lt::Handle handle_ = nullptr;
  std::map<gpu::ProductProblem, std::shared_ptr<const gpu::ProductAlgorithm>> known_;
};

}  // namespace hologram::cuda
