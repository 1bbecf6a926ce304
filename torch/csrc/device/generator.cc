// SPDX-License-Identifier: MIT
// The Philox state of the device, seeding, and its state as a tensor.
#include <torch/version.h>

#include "device/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/Utils.h>

#include <cstring>

#include "device/graph.h"
#include "device/tensor.h"

namespace hologram_torch {
namespace {

// One round of SplitMix64: spreads neighbouring seeds and offsets over all 64 bits.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t derived_seed(const PhiloxGenerator::Reserved& r) { return mix(mix(r.seed) ^ r.offset); }

constexpr size_t kStateBytes = 2 * sizeof(uint64_t);

}  // namespace

PhiloxGenerator::PhiloxGenerator(uint64_t seed)
    : c10::GeneratorImpl(hologram_torch::device(),
                         c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      seed_(seed) {}

void PhiloxGenerator::set_current_seed(uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}
void PhiloxGenerator::set_offset(uint64_t offset) { offset_ = offset; }
uint64_t PhiloxGenerator::get_offset() const { return offset_; }
uint64_t PhiloxGenerator::current_seed() const { return seed_; }

uint64_t PhiloxGenerator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

void PhiloxGenerator::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  TORCH_CHECK(static_cast<size_t>(state.numel()) == kStateBytes,
              "RNG state of a hologram generator is ", kStateBytes, " bytes, got ", state.numel());
  const auto* bytes = static_cast<const char*>(state.data());
  std::memcpy(&seed_, bytes, sizeof(seed_));
  std::memcpy(&offset_, bytes + sizeof(seed_), sizeof(offset_));
}

c10::intrusive_ptr<c10::TensorImpl> PhiloxGenerator::get_state() const {
  at::Tensor state = at::detail::empty_cpu({static_cast<int64_t>(kStateBytes)}, at::kByte);
  auto* bytes = static_cast<char*>(state.mutable_data_ptr());
  std::memcpy(bytes, &seed_, sizeof(seed_));
  std::memcpy(bytes + sizeof(seed_), &offset_, sizeof(offset_));
  return state.getIntrusivePtr();
}

#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 14
void PhiloxGenerator::philox_state(uint64_t increment, at::Tensor& seed, at::Tensor& offset,
                                   at::Tensor& intragraph_offset) {
  const Reserved r = reserve(increment);
  seed.fill_(static_cast<int64_t>(r.seed));
  offset.fill_(static_cast<int64_t>(r.offset));
  intragraph_offset.fill_(0);
}
#endif

c10::DeviceType PhiloxGenerator::device_type() { return kDeviceType; }

PhiloxGenerator::Reserved PhiloxGenerator::reserve(uint64_t count) {
  const Reserved r{seed_, offset_};
  offset_ += count;
  return r;
}

PhiloxGenerator* PhiloxGenerator::clone_impl() const {
  auto* copy = new PhiloxGenerator(seed_);
  copy->offset_ = offset_;
  return copy;
}

const at::Generator& default_generator() {
  // Leaked: ops may still run while statics are destroyed.
  static const at::Generator* generator = new at::Generator(c10::make_intrusive<PhiloxGenerator>());
  return *generator;
}

PhiloxGenerator::Reserved reserve_random(const std::optional<at::Generator>& generator,
                                         uint64_t count) {
  TORCH_CHECK(
      !generator.has_value() || !generator->defined() || generator->device().type() == kDeviceType,
      "Expected a 'hologram' device type for generator but found '", generator->device().type(),
      "'");
  auto* impl = at::get_generator_or_default<PhiloxGenerator>(generator, default_generator());
  std::lock_guard<std::mutex> lock(impl->mutex_);
  PhiloxGenerator::Reserved reserved;
  return draws_in_graph(*impl, count, reserved) ? reserved : impl->reserve(count);
}

at::Generator derived_cpu_generator(const std::optional<at::Generator>& generator) {
  const uint64_t seed = derived_seed(reserve_random(generator, 1));
  thread_local at::Generator cpu = at::detail::createCPUGenerator();
  std::lock_guard<std::mutex> lock(cpu.mutex());
  cpu.set_current_seed(seed);
  return cpu;
}

struct ScopedCpuSeed::Saved {
  at::mt19937 engine;
  std::optional<float> next_float;
  std::optional<double> next_double;
};

ScopedCpuSeed::ScopedCpuSeed() : saved_(std::make_unique<Saved>()) {
  const uint64_t seed = derived_seed(reserve_random(std::nullopt, 1));
  auto* cpu = at::detail::getDefaultCPUGenerator().get<at::CPUGeneratorImpl>();
  std::lock_guard<std::mutex> lock(cpu->mutex_);
  saved_->engine = cpu->engine();
  saved_->next_float = cpu->next_float_normal_sample();
  saved_->next_double = cpu->next_double_normal_sample();
  cpu->set_current_seed(seed);
}

ScopedCpuSeed::~ScopedCpuSeed() {
  auto* cpu = at::detail::getDefaultCPUGenerator().get<at::CPUGeneratorImpl>();
  std::lock_guard<std::mutex> lock(cpu->mutex_);
  cpu->set_engine(saved_->engine);
  cpu->set_next_float_normal_sample(saved_->next_float);
  cpu->set_next_double_normal_sample(saved_->next_double);
}

}  // namespace hologram_torch
