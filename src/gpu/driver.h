// SPDX-License-Identifier: MIT
// Driver: what a device of this folder asks of an API for GPUs (OpenCL, CUDA). The rest of the
// folder knows no API; a driver knows no kernel and no plan.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "hologram/device.h"
#include "hologram/dtype.h"
#include "src/gpu/dialect.h"

namespace hologram::gpu {

// A text that the driver has compiled. Freed with what it is of: not before what was launched is
// done, as drivers see to.
class CompiledKernel {
 public:
  virtual ~CompiledKernel() = default;
};

// Where an address lies: the driver's own name for a block of memory, and bytes from its begin.
struct Place {
  void* block = nullptr;
  size_t offset = 0;
};

struct Launch {
  const CompiledKernel* kernel = nullptr;
  std::span<void* const> blocks;   // Place::block of each slot, in the text's order
  std::span<const int64_t> words;  // the struct of the text, or what its pointer points to
  bool words_in_memory = false;
  size_t groups = 0;  // of items
  size_t group_items = 0;
};

// How a batch of matrices lies in memory, in elements. Rows are one behind the other; those of a
// transposed matrix are its columns.
struct MatrixLayout {
  int64_t row_step = 0;
  int64_t batch_step = 0;  // 0: the batch has one matrix
  bool is_transposed = false;
  uint32_t alignment = 1;  // of its address, in bytes

  auto operator<=>(const MatrixLayout&) const = default;  // NOLINT: no null here
};

// d[m, n] = alpha a[m, k] b[k, n] + beta c[m, n] for each of a batch, by a library of the API, or
// with a bias[n] that is added to each row instead of c.
struct ProductProblem {
  Dtype dtype = Dtype::kFloat32;    // of the four matrices
  Dtype compute = Dtype::kFloat32;  // of sums, alpha and beta; what d has is rounded once
  int64_t m = 0, n = 0, k = 0, batch = 1;
  MatrixLayout a = {}, b = {};
  MatrixLayout c = {}, d = {};  // not transposed; with a bias c is as d
  uint32_t bias_alignment = 0;  // of its address, in bytes; 0: there is no bias

  auto operator<=>(const ProductProblem&) const = default;  // NOLINT
};

// How the library computes a problem.
class ProductAlgorithm {
 public:
  virtual ~ProductAlgorithm() = default;
  virtual size_t workspace_bytes() const = 0;
};

struct ProductLaunch {
  const ProductAlgorithm* algorithm = nullptr;
  Place a = {}, b = {};
  Place c = {}, d = {};  // the same, or apart; c is not read where beta is 0
  Place bias = {};       // where the problem has one; beta is 0
  Place workspace = {};
  double alpha = 1, beta = 0;
};

// One device of an API. It has one queue, which runs in order; what is enqueued sees what was
// enqueued before. Failed calls throw: Error(kOutOfMemory) where memory was refused, else
// Error(kInternal) that names the call, the API's code and its name. Thread-safe, but launch(),
// for which the caller has a lock.
class Driver {
 public:
  virtual ~Driver() = default;

  // What does not change: of the hardware, and of its compiler and launches.
  virtual DeviceProperties properties() const = 0;
  virtual const Traits& traits() const = 0;
  virtual size_t largest_block() const = 0;

  // A block of the device's memory, as addresses that a host must not read or write at: it faults.
  // Null where the device has not so much. A block that is released while work on it is queued
  // stays until that is done.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* address, size_t bytes) noexcept = 0;
  // Error(kInternal) for an address that is not in a live block.
  virtual Place place(const void* address) const = 0;

  // Bytes on the device are given by address. The host's side of write() and read() may be reused
  // when they return; copy() is enqueued, and its ranges are apart.
  virtual void write(void* to, const void* from, size_t nbytes) = 0;
  virtual void read(void* to, const void* from, size_t nbytes) = 0;
  virtual void copy(void* to, const void* from, size_t nbytes) = 0;

  // Error(kInternal) with the compiler's log and the text where it refuses it.
  virtual std::shared_ptr<const CompiledKernel> build(const std::string& text) = 0;
  virtual void launch(const Launch& launch) = 0;

  // Null where the device has no library for products, or where that computes this one not at all
  // or not faster than a kernel: an answer that stays, and depends on the problem alone.
  virtual std::shared_ptr<const ProductAlgorithm> product_algorithm(const ProductProblem&) {
    return nullptr;
  }
  // Of an algorithm that it gave; under the lock of the other launch().
  virtual void launch(const ProductLaunch&) {}

  virtual void flush() = 0;   // what is enqueued begins
  virtual void finish() = 0;  // and is done

  // A point of the queue, behind all that was enqueued before.
  virtual std::shared_ptr<void> mark() = 0;
  virtual bool is_done(const std::shared_ptr<void>& mark) const = 0;
  virtual void wait(const std::shared_ptr<void>& mark) const = 0;
  // Between two marks that are done.
  virtual double elapsed_ms(const std::shared_ptr<void>& begin,
                            const std::shared_ptr<void>& end) const = 0;
};

}  // namespace hologram::gpu
