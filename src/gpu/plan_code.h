// SPDX-License-Identifier: MIT
// What a device makes of a plan: launches, recipes, and runs of kernels that the host takes.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "hologram/device.h"
#include "src/circuit/plan.h"
#include "src/gpu/driver.h"
#include "src/gpu/fault_word.h"
#include "src/gpu/kernel_cache.h"
#include "src/gpu/kernel_text.h"
#include "src/gpu/library_product.h"
#include "src/gpu/recipes/recipe.h"
#include "src/runtime/device/host_fallback.h"

namespace hologram::gpu {

// What plans are made ready with, and run on. One thread at a time.
struct Machine {
  Device& device;
  Driver& driver;
  KernelCache& kernels;
  const circuit::PlanLimits& limits;
  FaultWord& fault;
  // Counts kernels that the host takes, and the bytes that are copied for them.
  std::function<void(uint64_t kernels, uint64_t bytes)> count_host;
  // Of the launch that is under way.
  const char* scratch = nullptr;  // what kScratchSlot is
  std::vector<Place> places = {};
  std::vector<void*> blocks = {};
  std::vector<int64_t> words = {};
};

class PlanCode final : public circuit::PlanCode {
 public:
  PlanCode(const circuit::Plan& plan, Machine& machine);
  ~PlanCode() override;

  // Enqueues all. running: which kernel of the plan it is at, as Plan::running.
  void run(Machine& machine, const circuit::Bindings& bindings, int max_threads,
           int& running) const;
  // Whether nothing is left to the host.
  bool is_native() const;
  size_t bytes() const override;

 private:
  // A launch: a kernel of a plan, or equal ones of one stage, or a part of a kernel.
  struct Kernel {
    std::shared_ptr<const CompiledKernel> compiled;
    KernelText text;  // without functions and body
    void launch(Machine& machine, const circuit::Bindings& bindings) const;
  };
  // A call as a plan of its own, of which the slots are those of the call, then temporaries.
  struct Cooked {
    uint16_t kind = 0;
    uint32_t first_number = 0;         // of the call, among the outer plan's immediates
    std::vector<uint32_t> call_slots;  // in the outer plan
    size_t slots = 0;
    struct Temporary {
      uint32_t slot;
      size_t bytes;
    };
    std::vector<Temporary> temporaries;  // those that need memory
    std::vector<Recipe::Immediate> immediates;
    std::unique_ptr<PlanCode> code;
    void run(Machine& machine, const circuit::Bindings& bindings, int max_threads) const;
  };
  // Launches, of a kernel or of equal ones, with a library's product among them; a recipe; or what
  // the host takes.
  struct Step {
    int first_kernel = 0;
    std::vector<Kernel> kernels;
    std::unique_ptr<LibraryProduct> product;
    size_t before_product = 0;  // how many of the kernels
    std::unique_ptr<Cooked> cooked;
    std::unique_ptr<internal::HostKernels> host;

    void launch(Machine& machine, const circuit::Bindings& bindings) const;
  };

  struct Draft;

  static std::unique_ptr<Cooked> cooked(const circuit::KernelCall& call, Machine& machine);
  static Draft native_draft(const circuit::Kernel& kernel, Machine& machine);
  static bool joins(std::vector<Draft>& drafts, KernelText& text, int stage, const Traits& traits);
  void add(Draft& draft, Machine& machine);

  std::vector<Step> steps_;
};

}  // namespace hologram::gpu
