// SPDX-License-Identifier: MIT
// See plan_code.h.
#include "src/gpu/plan_code.h"

#include <bit>
#include <utility>

#include "hologram/error.h"
#include "src/circuit/call_kinds.h"
#include "src/gpu/philox.h"
#include "src/gpu/products.h"
#include "src/gpu/recipes.h"
#include "src/gpu/ways.h"

namespace hologram::gpu {

PlanCode::~PlanCode() = default;

std::unique_ptr<PlanCode::Kernel> PlanCode::ready(KernelText text, Machine& machine) {
  auto compiled = machine.kernels.get(text.source);
  text.source = {};
  return std::make_unique<Kernel>(Kernel{std::move(compiled), std::move(text)});
}

// An empty step where the device has nothing for the kernel.
PlanCode::Step PlanCode::native_step(const circuit::Kernel& kernel, Machine& machine) {
  Step step;
  if (auto own = kernel_text(kernel, machine.driver.traits(), *machine.limits.native)) {
    step.kernel = ready(*std::move(own), machine);
    return step;
  }
  if (kernel.call == nullptr || !kernel.instrs.empty() || kernel.call->narrowed >= 0) return step;
  const circuit::KernelCall& call = *kernel.call;
  const Traits& traits = machine.driver.traits();
  const Way way = way_of(static_cast<CallNumber>(call.kind));
  if (way == Way::kHost) return step;
  Recipe recipe(call);
  if (way == Way::kKernel) {
    auto text = product_text(call, recipe, traits, *machine.limits.native);
    if (!text.has_value()) text = random_text(call, recipe, traits);
    if (!text.has_value()) return step;
    for (uint32_t& slot : text->slots) slot = recipe.call_slots()[slot];
    step.kernel = ready(*std::move(text), machine);
    return step;
  }
  if (!write_recipe(call, recipe, traits.has_double)) return step;
  auto cooked = std::make_unique<Cooked>(
      Cooked{std::move(recipe), call.kind, call.first_number, nullptr, nullptr});
  cooked->plan = cooked->recipe.plan({.limits = machine.limits});
  cooked->code = std::make_unique<PlanCode>(*cooked->plan, machine);
  if (cooked->code->is_native()) step.cooked = std::move(cooked);
  return step;
}

PlanCode::PlanCode(const circuit::Plan& plan, Machine& machine) {
  const int count = static_cast<int>(plan.kernels.size());
  int host_begin = -1;
  const auto end_host = [&](int end) {
    if (host_begin < 0) return;
    Step& step = steps_.emplace_back();
    step.first_kernel = host_begin;
    step.host = std::make_unique<internal::HostKernels>(plan, host_begin, end);
    host_begin = -1;
  };
  for (int k = 0; k < count; ++k) {
    Step step = native_step(plan.kernels[static_cast<size_t>(k)], machine);
    if (step.kernel == nullptr && step.cooked == nullptr) {
      // What follows each other on the host needs no copies in between.
      if (host_begin < 0) host_begin = k;
      continue;
    }
    end_host(k);
    step.first_kernel = k;
    steps_.push_back(std::move(step));
  }
  end_host(count);
}

bool PlanCode::is_native() const {
  for (const Step& step : steps_) {
    if (step.host != nullptr) return false;
  }
  return true;
}

size_t PlanCode::bytes() const {
  size_t bytes = sizeof(PlanCode) + steps_.capacity() * sizeof(Step);
  for (const Step& step : steps_) {
    if (step.host != nullptr) bytes += step.host->bytes();
    if (step.cooked != nullptr) bytes += sizeof(Cooked) + step.cooked->code->bytes();
    if (step.kernel == nullptr) continue;
    const KernelText& text = step.kernel->text;
    bytes += sizeof(Kernel) + 8 * text.words.capacity() + 4 * text.slots.capacity() +
             sizeof(KernelText::Offset) * text.offsets.capacity() +
             sizeof(KernelText::Number) * text.numbers.capacity();
  }
  return bytes;
}

void PlanCode::run(Machine& machine, const circuit::Bindings& bindings, int max_threads,
                   int& running) const {
  for (const Step& step : steps_) {
    running = step.first_kernel;
    if (step.kernel != nullptr) {
      step.kernel->launch(machine, bindings);
      continue;
    }
    if (step.cooked != nullptr) {
      step.cooked->run(machine, bindings, max_threads);
      continue;
    }
    machine.count_host(static_cast<uint64_t>(step.host->kernels()),
                       static_cast<uint64_t>(step.host->copied_bytes()));
    try {
      step.host->run(machine.device, bindings, max_threads);
    } catch (...) {
      running += step.host->running();
      throw;
    }
  }
}

void PlanCode::Kernel::launch(Machine& machine, const circuit::Bindings& bindings) const {
  if (text.groups == 0) return;
  machine.places.clear();
  machine.blocks.clear();
  for (const uint32_t slot : text.slots) {
    machine.places.push_back(machine.driver.place(bindings.slots[slot]));
    machine.blocks.push_back(machine.places.back().block);
  }
  machine.words = text.words;
  for (const KernelText::Offset& offset : text.offsets) {
    machine.words[offset.word] += static_cast<int64_t>(machine.places[offset.position].offset);
  }
  for (const KernelText::Number& number : text.numbers) {
    const uint64_t bits = bindings.immediates[number.index];
    machine.words[number.word] = static_cast<int64_t>(
        number.is_of_call ? bits_of(number.dtype, std::bit_cast<double>(bits)) : bits);
  }
  machine.driver.launch({.kernel = compiled.get(),
                         .blocks = machine.blocks,
                         .words = machine.words,
                         .words_in_memory = text.words_in_memory,
                         .groups = text.groups,
                         .group_items = text.group_items});
}

void PlanCode::Cooked::run(Machine& machine, const circuit::Bindings& bindings,
                           int max_threads) const {
  const std::vector<uint32_t>& outer = recipe.call_slots();
  const std::vector<size_t>& sizes = recipe.temporary_bytes();
  std::vector<char*> slots(outer.size() + sizes.size(), nullptr);
  for (size_t k = 0; k < outer.size(); ++k) slots[k] = bindings.slots[outer[k]];
  // The queue runs in order: memory that is given back here is used by others after this.
  const auto release = [&](const uint32_t* end) {
    for (const uint32_t* slot = plan->attach.data(); slot != end; ++slot) {
      if (*slot >= outer.size()) machine.memory.release(slots[*slot], sizes[*slot - outer.size()]);
    }
  };
  for (const uint32_t& slot : plan->attach) {
    if (slot < outer.size()) continue;
    const size_t bytes = sizes[slot - outer.size()];
    slots[slot] = static_cast<char*>(machine.memory.allocate(bytes));
    if (slots[slot] != nullptr) continue;
    release(&slot);
    fail(ErrorKind::kOutOfMemory, machine.device.name(), ": no memory for ", bytes, " bytes that ",
         circuit::call_name(kind), " needs while it runs; free buffers, or use smaller tensors");
  }
  const auto* numbers = reinterpret_cast<const double*>(bindings.immediates + first_number);
  const std::vector<uint64_t> immediates = recipe.immediates(numbers);
  int running = 0;
  try {
    code->run(machine, {slots.data(), immediates.data()}, max_threads, running);
  } catch (...) {
    release(plan->attach.data() + plan->attach.size());
    throw;
  }
  release(plan->attach.data() + plan->attach.size());
}

}  // namespace hologram::gpu
