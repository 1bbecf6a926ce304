// SPDX-License-Identifier: MIT
// Texts as programs of the device: each is built once, whatever plans ask for it.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "src/opencl/cl_api.h"

namespace hologram::opencl {

// A program with one kernel.
class BuiltProgram {
 public:
  BuiltProgram(Context context, DeviceId device, const std::string& options,
               const std::string& source);
  ~BuiltProgram();
  BuiltProgram(const BuiltProgram&) = delete;
  BuiltProgram& operator=(const BuiltProgram&) = delete;
  KernelObject kernel() const { return kernel_; }

 private:
  Program program_ = nullptr;
  KernelObject kernel_ = nullptr;
};

class Programs {
 public:
  Programs(Context context, DeviceId device, std::string options)
      : context_(context), device_(device), options_(std::move(options)) {}

  // Thread-safe. Error(kInternal) with the compiler's log where it refuses the text.
  std::shared_ptr<const BuiltProgram> get(const std::string& source);

 private:
  // So many are kept though no plan uses them.
  static constexpr size_t kKept = 1024;

  const Context context_;
  const DeviceId device_;
  const std::string options_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const BuiltProgram>> known_;
};

}  // namespace hologram::opencl
