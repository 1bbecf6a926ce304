// SPDX-License-Identifier: MIT
// See plan_code.h.
#include "src/gpu/plan_code.h"

#include <bit>
#include <utility>

#include "hologram/error.h"
#include "src/circuit/call_kinds.h"
#include "src/gpu/indexing.h"
#include "src/gpu/philox.h"
#include "src/gpu/products.h"
#include "src/gpu/recipes/recipes.h"
#include "src/gpu/scratch.h"

namespace hologram::gpu {

PlanCode::~PlanCode() = default;

// A step before it is compiled.
struct PlanCode::Draft {
  Step step;
  // Of a step that is launches: one, or several to be joined into one, or where the kernel takes
  // more than one, these in order.
  std::vector<KernelText> texts = {};
  bool in_order = false;
  int stage = -1;
};

void PlanCode::add(Draft& draft, Machine& machine) {
  if (!draft.in_order && draft.texts.size() > 1) {
    draft.texts = {joined(draft.texts, machine.driver.traits())};
  }
  for (KernelText& text : draft.texts) {
    auto compiled = machine.kernels.get(source_of(text));
    text.functions = {};
    text.body = {};
    draft.step.kernels.push_back({std::move(compiled), std::move(text)});
  }
  steps_.push_back(std::move(draft.step));
}

// Puts a kernel into the launch of an equal one of its stage, on which it does not depend; false
// where there is none that has room.
bool PlanCode::joins(std::vector<Draft>& drafts, KernelText& text, int stage,
                     const Traits& traits) {
  for (auto draft = drafts.rbegin(); draft != drafts.rend() && draft->stage == stage; ++draft) {
    if (draft->texts.empty() || draft->in_order || !is_equal(draft->texts[0], text)) continue;
    // The launches before it are full, too.
    if (draft->texts.size() >= most_members(text, traits)) return false;
    draft->texts.push_back(std::move(text));
    return true;
  }
  return false;
}

// Null where the call has no recipe, or one that would leave something to the host.
std::unique_ptr<PlanCode::Cooked> PlanCode::cooked(const circuit::KernelCall& call,
                                                   Machine& machine) {
  Recipe recipe(call, machine.driver.traits());
  if (!write_recipe(call, recipe)) return nullptr;
  const auto plan = recipe.plan({.limits = machine.limits});
  auto made = std::make_unique<Cooked>();
  made->code = std::make_unique<PlanCode>(*plan, machine);
  if (!made->code->is_native()) return nullptr;
  made->kind = call.kind;
  made->first_number = call.first_number;
  made->call_slots = recipe.call_slots();
  made->slots = made->call_slots.size() + recipe.temporary_bytes().size();
  const auto add_temporary = [&](uint32_t slot) {
    if (slot < made->call_slots.size()) return;
    made->temporaries.push_back({slot, recipe.temporary_bytes()[slot - made->call_slots.size()]});
  };
  for (const uint32_t slot : plan->attach) add_temporary(slot);
  for (const circuit::PassingValue& value : plan->passing) add_temporary(value.slot);
  made->immediates = recipe.take_immediates();
  return made;
}

// Neither text nor recipe where the device has nothing for the kernel.
PlanCode::Draft PlanCode::native_draft(const circuit::Kernel& kernel, Machine& machine) {
  Draft draft;
  const Traits& traits = machine.driver.traits();
  draft.stage = kernel.stage;
  draft.texts = kernel_texts(kernel, traits, *machine.limits.native);
  draft.in_order = draft.texts.size() > 1;
  if (kernel.call == nullptr) return draft;
  draft.step.product = LibraryProduct::make(kernel, machine.driver);
  if (LibraryProduct* const product = draft.step.product.get()) {
    draft.in_order = true;
    if (auto before = product->take_before()) draft.texts.push_back(*std::move(before));
    draft.step.before_product = draft.texts.size();
    if (auto after = product->take_after()) draft.texts.push_back(*std::move(after));
    return draft;
  }
  std::optional<KernelText> text = product_text(kernel, traits, *machine.limits.native);
  // By the device's limits, any other call is all that there is in its kernel.
  if (!text.has_value() && kernel.instrs.empty()) {
    Recipe recipe(*kernel.call, traits);
    text = random_text(*kernel.call, recipe, traits);
    if (!text.has_value()) text = indexing_text(*kernel.call, recipe, traits);
    if (text.has_value()) {
      for (uint32_t& slot : text->slots) {
        if (slot != kFaultSlot) slot = recipe.call_slots()[slot];
      }
    } else {
      draft.step.cooked = cooked(*kernel.call, machine);
    }
  }
  if (text.has_value()) draft.texts.push_back(*std::move(text));
  return draft;
}

PlanCode::PlanCode(const circuit::Plan& plan, Machine& machine) {
  const int count = static_cast<int>(plan.kernels.size());
  std::vector<Draft> drafts;
  int host_begin = -1;
  const auto end_host = [&](int end) {
    if (host_begin < 0) return;
    Step& step = drafts.emplace_back().step;
    step.first_kernel = host_begin;
    step.host = std::make_unique<internal::HostKernels>(plan, host_begin, end);
    host_begin = -1;
  };
  for (int k = 0; k < count; ++k) {
    const circuit::Kernel& kernel = plan.kernels[static_cast<size_t>(k)];
    Draft draft = native_draft(kernel, machine);
    const bool is_product = draft.step.product != nullptr;
    if (draft.texts.empty() && draft.step.cooked == nullptr && !is_product) {
      // What follows each other on the host needs no copies in between.
      if (host_begin < 0) host_begin = k;
      continue;
    }
    end_host(k);
    if (!draft.texts.empty() && draft.texts[0].groups == 0) continue;
    if (draft.texts.size() == 1 && !draft.in_order &&
        joins(drafts, draft.texts[0], kernel.stage, machine.driver.traits())) {
      continue;
    }
    draft.step.first_kernel = k;
    drafts.push_back(std::move(draft));
  }
  end_host(count);
  for (Draft& draft : drafts) add(draft, machine);
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
    if (const Cooked* cooked = step.cooked.get()) {
      bytes += sizeof(Cooked) + 4 * cooked->call_slots.capacity() +
               sizeof(Cooked::Temporary) * cooked->temporaries.capacity() +
               sizeof(Recipe::Immediate) * cooked->immediates.capacity() + cooked->code->bytes();
    }
    if (step.product != nullptr) bytes += step.product->bytes();
    for (const auto& [compiled, text] : step.kernels) {
      bytes += sizeof(Kernel) + 8 * text.words.capacity() + 4 * text.slots.capacity() +
               sizeof(KernelText::Offset) * text.offsets.capacity() +
               sizeof(KernelText::Number) * text.numbers.capacity();
    }
  }
  return bytes;
}

void PlanCode::run(Machine& machine, const circuit::Bindings& bindings, int max_threads,
                   int& running) const {
  for (const Step& step : steps_) {
    running = step.first_kernel;
    if (!step.kernels.empty() || step.product != nullptr) {
      step.launch(machine, bindings);
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

void PlanCode::Step::launch(Machine& machine, const circuit::Bindings& bindings) const {
  const size_t bytes =
      product != nullptr ? product->result_bytes() : kernels.front().text.scratch_bytes;
  const char* const what = product != nullptr ? product->name() : "a reduction of long rows";
  const Scratch shared = make_scratch(machine.device, bytes, what);
  machine.scratch = shared.get();
  const bool skips = product != nullptr && !product->needs_copy(bindings);
  for (size_t k = skips ? before_product : 0; k <= kernels.size(); ++k) {
    if (product != nullptr && k == before_product) {
      product->run(machine.device, machine.driver, bindings, shared.get());
    }
    if (k < kernels.size()) kernels[k].launch(machine, bindings);
  }
}

void PlanCode::Kernel::launch(Machine& machine, const circuit::Bindings& bindings) const {
  machine.places.clear();
  machine.blocks.clear();
  for (const uint32_t slot : text.slots) {
    const char* const address = slot == kFaultSlot     ? machine.fault.address()
                                : slot == kScratchSlot ? machine.scratch
                                                       : bindings.slots[slot];
    machine.places.push_back(machine.driver.place(address));
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
  std::vector<Scratch> held;
  std::vector<char*> at(slots, nullptr);
  for (size_t k = 0; k < call_slots.size(); ++k) at[k] = bindings.slots[call_slots[k]];
  for (const Temporary& temporary : temporaries) {
    held.push_back(make_scratch(machine.device, temporary.bytes, circuit::call_name(kind)));
    at[temporary.slot] = held.back().get();
  }
  const auto* numbers = reinterpret_cast<const double*>(bindings.immediates + first_number);
  std::vector<uint64_t> bits;
  bits.reserve(immediates.size());
  for (const Recipe::Immediate& immediate : immediates) {
    bits.push_back(bits_of(immediate.dtype, immediate.number(numbers)));
  }
  int running = 0;
  code->run(machine, {at.data(), bits.data()}, max_threads, running);
}

}  // namespace hologram::gpu
