// SPDX-License-Identifier: MIT
// The device's random state: a Philox (seed, offset) pair from which every random op reserves.
#pragma once

#include <ATen/core/Generator.h>

#include <memory>

namespace hologram_torch {

// A counter-based generator: the state is a seed and how many numbers were handed out. Equal
// (seed, offset) give equal numbers whatever the threads.
class PhiloxGenerator final : public c10::GeneratorImpl {
 public:
  explicit PhiloxGenerator(uint64_t seed = c10::default_rng_seed_val);

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 14
  void philox_state(uint64_t increment, at::Tensor& seed, at::Tensor& offset,
                    at::Tensor& intragraph_offset) override;
#endif
  static c10::DeviceType device_type();

  struct Reserved {
    uint64_t seed;
    uint64_t offset;
  };
  // Takes `count` random 128-bit blocks out of the stream. The caller holds mutex_.
  Reserved reserve(uint64_t count);

 private:
  PhiloxGenerator* clone_impl() const override;
  uint64_t seed_;
  uint64_t offset_ = 0;
};

const at::Generator& default_generator();

// (seed, offset) for a random op: of `generator` where given, else of the device's own. Raises
// PyTorch's error for a generator of another device.
PhiloxGenerator::Reserved reserve_random(const std::optional<at::Generator>& generator,
                                         uint64_t count);

// A CPU generator whose stream is a function of one reservation, for ops that a CPU kernel serves.
// Each thread has one; it is valid until this thread's next call.
at::Generator derived_cpu_generator(const std::optional<at::Generator>& generator);

// For CPU kernels that draw from the CPU's own generator without being handed one: gives that
// generator a derived state for the duration and then puts back what it had.
class ScopedCpuSeed {
 public:
  ScopedCpuSeed();
  ~ScopedCpuSeed();
  ScopedCpuSeed(const ScopedCpuSeed&) = delete;
  ScopedCpuSeed& operator=(const ScopedCpuSeed&) = delete;

 private:
  struct Saved;
  std::unique_ptr<Saved> saved_;
};

}  // namespace hologram_torch
