// SPDX-License-Identifier: MIT
// make_plan: canonical form, fusion, kernels, and what they cost beside the ops one by one.
#include "src/circuit/plan.h"

#include <algorithm>
#include <unordered_map>

#include "src/circuit/make_kernel.h"

namespace hologram::circuit {
namespace {

int64_t distinct_elements(const Kernel& kernel, const Access& access) {
  int64_t n = 1;
  for (int d = 0; d < kernel.ndim; ++d) {
    if (access.strides[static_cast<size_t>(d)] != 0) n *= kernel.shape[static_cast<size_t>(d)];
  }
  return n;
}

int64_t bytes_of(const CallSlot& operand) {
  return operand.present ? operand.bytes * (int{operand.reads} + int{operand.writes}) : 0;
}

int64_t bytes_alone(const Graph& graph, const Node& node) {
  if (node.call >= 0) {
    int64_t bytes = 0;
    for (const CallUse& use : graph.calls[static_cast<size_t>(node.call)].uses) {
      bytes += bytes_of(use.slot);
    }
    return bytes;
  }
  int64_t bytes = node.out_n * node.out.size();
  for (int k = 0; k < node.arity; ++k) {
    if (!node.in[k].is_number) bytes += node.in[k].region.map.distinct() * node.in[k].region.size();
  }
  return bytes;
}

struct WordsHash {
  size_t operator()(const std::vector<uint64_t>& words) const { return hash_words(words); }
};

// Kernels of one stage with equal programs get one number and stand side by side. Calls run one by
// one, also equal ones.
void number_launches(Plan& plan) {
  int next = 0;
  for (size_t begin = 0; begin < plan.kernels.size();) {
    size_t end = begin;
    std::unordered_map<std::vector<uint64_t>, int, WordsHash> known;
    for (; end < plan.kernels.size() && plan.kernels[end].stage == plan.kernels[begin].stage;
         ++end) {
      if (plan.kernels[end].call != nullptr) {
        plan.kernels[end].launch = next++;
        continue;
      }
      std::vector<uint64_t> program;
      append_program(plan.kernels[end], program);
      const auto [at, fresh] = known.emplace(std::move(program), next);
      if (fresh) ++next;
      plan.kernels[end].launch = at->second;
    }
    std::stable_sort(plan.kernels.begin() + static_cast<std::ptrdiff_t>(begin),
                     plan.kernels.begin() + static_cast<std::ptrdiff_t>(end),
                     [](const Kernel& a, const Kernel& b) { return a.launch < b.launch; });
    begin = end;
  }
  plan.stats.kernels = static_cast<int>(plan.kernels.size());
  plan.stats.groups = next;
}

// The kernels with slots numbered as they come up: what equal computations have in common.
uint64_t canonical_hash(const Plan& plan) {
  std::vector<uint64_t> words;
  std::unordered_map<uint32_t, uint64_t> slots;
  for (const Kernel& kernel : plan.kernels) {
    append_program(kernel, words);
    words.push_back(static_cast<uint64_t>(kernel.stage));
    for_slots(kernel, [&](uint32_t slot) {
      words.push_back(slots.emplace(slot, slots.size()).first->second);
    });
  }
  return hash_words(words);
}

// False where a kernel of more than one record needs more scratch slots than there are.
bool make_kernels(Graph& graph, const PlanOptions& options, Plan& plan) {
  plan.kernels.clear();
  for (const Cluster& cluster : fuse(graph, options)) {
    Kernel& kernel = plan.kernels.emplace_back(make_kernel(graph, cluster));
    kernel.stage = cluster.level;
    graph.visits += static_cast<int64_t>(kernel.instrs.size() * (1 + kernel.accesses.size()));
    if (cluster.nodes.size() > 1 && kernel.live_values > options.limits.scratch_slots) return false;
  }
  return true;
}

}  // namespace

int64_t KernelCall::bytes() const {
  int64_t bytes = 0;
  for (const CallSlot& operand : operands) bytes += bytes_of(operand);
  return bytes;
}

int product_access(const Kernel& kernel) {
  const auto at = std::find_if(kernel.accesses.begin(), kernel.accesses.end(),
                               [](const Access& access) { return access.product; });
  return at == kernel.accesses.end() ? -1 : static_cast<int>(at - kernel.accesses.begin());
}

bool wants_whole_rows(const Kernel& kernel) {
  return kernel.whole_rows ||
         std::any_of(kernel.accesses.begin(), kernel.accesses.end(),
                     [](const Access& a) { return a.stored && a.rank == Rank::kRow; });
}

int64_t kernel_bytes(const Kernel& kernel) {
  int64_t bytes = kernel.call != nullptr ? kernel.call->bytes() : 0;
  for (const Access& access : kernel.accesses) {
    if (access.product) continue;
    bytes += distinct_elements(kernel, access) * static_cast<int64_t>(itemsize(access.dtype)) *
             (int{access.loaded} + int{access.stored});
  }
  return bytes;
}

std::unique_ptr<Plan> make_plan(std::span<const uint64_t> words, std::span<const uint8_t> states,
                                const PlanOptions& options) {
  auto plan = std::make_unique<Plan>();
  plan->slots = static_cast<int>(states.size());
  Graph graph = make_graph(words, states);
  if (options.fuse) simplify(graph, options);
  find_live(graph);
  PlanOptions smaller = options;
  while (!make_kernels(graph, smaller, *plan)) {
    smaller.limits.max_instrs = (smaller.limits.max_instrs + 1) / 2;
  }

  number_launches(*plan);
  std::vector<bool> seen(states.size(), false);
  PlanStats& stats = plan->stats;
  for (const Kernel& kernel : plan->kernels) {
    stats.live_values = std::max(stats.live_values, kernel.live_values);
    stats.bytes_moved += kernel_bytes(kernel);
    for_slots(kernel, [&](uint32_t slot) {
      if (!seen[slot]) plan->attach.push_back(slot);
      seen[slot] = true;
    });
  }
  std::sort(plan->attach.begin(), plan->attach.end());
  stats.ops = static_cast<int>(graph.nodes.size());
  stats.visits = graph.visits + graph.newest.visits();
  for (const Node& node : graph.nodes) {
    stats.bytes_unfused += bytes_alone(graph, node);
    stats.dead += node.live ? 0 : 1;
  }
  plan->canonical_hash = canonical_hash(*plan);
  return plan;
}

}  // namespace hologram::circuit
