// SPDX-License-Identifier: MIT
// make_plan: canonical form, fusion, then a kernel for each cluster: conversions become
// instructions and each value is converted to a dtype once.
#include "src/circuit/plan.h"

#include <algorithm>
#include <bit>
#include <climits>
#include <unordered_map>

#include "hologram/op.h"
#include "src/circuit/call_kinds.h"
#include "src/circuit/fusion.h"
#include "src/circuit/passing_values.h"

namespace hologram::circuit {
namespace {

// ---- from clusters of nodes to kernels of instructions ----

std::shared_ptr<KernelCall> make_call(const Graph& graph, int index) {
  const Node& node = graph.nodes[static_cast<size_t>(index)];
  const GraphCall& call = graph.calls[static_cast<size_t>(node.call)];
  auto made = std::make_shared<KernelCall>();
  made->kind = node.attr;
  made->record = node.record;
  made->number = node.call;
  for (const CallUse& use : call.uses) made->operands.push_back(use.slot);
  made->attributes.assign(call.attributes.begin(), call.attributes.end());
  made->first_number = call.first_number;
  if (call.is_narrowed) {
    made->narrowed = call.narrowing.operand;
    const Region& region = call.uses[static_cast<size_t>(made->narrowed)].region;
    made->narrowed_offset = region.offset.id();
    made->narrowed_bytes = region.map.numel().id();
  }
  if (call.result.cols != 0) {
    made->result = call.result.operand;
    made->operands[static_cast<size_t>(made->result)].present = node.stored;
  }
  return made;
}

void append_call(const KernelCall& call, std::vector<uint64_t>& words) {
  uint64_t name = 0;
  for (const char* c = call_name(call.kind); *c != 0; ++c) {
    name = (name ^ static_cast<unsigned char>(*c)) * 0x100000001b3u + 1;
  }
  words.push_back(name);
  words.push_back(call.operands.size() | uint64_t{call.attributes.size()} << 32);
  for (const CallSlot& operand : call.operands) {
    words.push_back(uint64_t{operand.present} | uint64_t{operand.reads} << 1 |
                    uint64_t{operand.writes} << 2 | uint64_t{operand.covers} << 3);
    words.push_back(static_cast<uint64_t>(operand.bytes));
  }
  words.insert(words.end(), call.attributes.begin(), call.attributes.end());
}

// Temps alive at once, at most. The output of an elementwise instruction may lie where an input of
// the same item size is read for the last time.
int count_live_values(const Kernel& kernel) {
  constexpr size_t kNever = ~size_t{0};
  std::vector<size_t> last_read(kernel.temps.size(), kNever);
  for (size_t i = 0; i < kernel.instrs.size(); ++i) {
    const Instr& instr = kernel.instrs[i];
    for (int k = 0; k < instr.arity; ++k) {
      if (instr.in[k].kind == Ref::kTemp) last_read[instr.in[k].index] = i;
    }
  }
  int live = 0, most = 0;
  for (size_t i = 0; i < kernel.instrs.size(); ++i) {
    const Instr& instr = kernel.instrs[i];
    const Temp* out = instr.out.kind == Ref::kTemp ? &kernel.temps[instr.out.index] : nullptr;
    int ending = 0;
    bool in_place = false;
    for (int k = 0; k < instr.arity; ++k) {
      if (instr.in[k].kind != Ref::kTemp || last_read[instr.in[k].index] != i) continue;
      last_read[instr.in[k].index] = kNever;  // an operand may come twice
      const Temp& in = kernel.temps[instr.in[k].index];
      in_place = in_place || (out != nullptr && instr.is_op() && in.rank == out->rank &&
                              itemsize(in.dtype) == itemsize(out->dtype));
      ++ending;
    }
    if (out != nullptr) {
      most = std::max(most, live + (in_place ? 0 : 1));
      if (last_read[instr.out.index] != kNever) ++live;
    }
    live -= ending;
  }
  return most;
}

// Slots of the kernel's call and accesses, and numbers of its instructions.
int count_arguments(const Kernel& kernel) {
  std::vector<std::pair<bool, uint32_t>> named;
  for_slots(kernel, [&](uint32_t slot) { named.emplace_back(false, slot); });
  for (const Instr& instr : kernel.instrs) {
    for (int k = 0; k < instr.arity; ++k) {
      if (instr.in[k].kind == Ref::kImmediate) named.emplace_back(true, instr.in[k].index);
    }
  }
  std::sort(named.begin(), named.end());
  return static_cast<int>(std::unique(named.begin(), named.end()) - named.begin());
}

class KernelMaker {
 public:
  KernelMaker(const Graph& graph, const Cluster& cluster)
      : graph_(graph),
        cluster_(cluster),
        domain_(cluster.domain),
        value_(cluster.nodes.size()),
        of_members_(cluster.nodes.size(), kNone) {
    find_row_slots();
    kernel_.whole_rows = cluster.whole_rows;
    if (cluster.call >= 0) {
      domain_.cut_rows(cluster.cols);
      kernel_.call = make_call(graph, cluster.call);
    }
    kernel_.ndim = domain_.ndim();
    domain_.shape(shape_);
  }

  Kernel run() {
    for (size_t i = 0; i < cluster_.nodes.size(); ++i) {
      add(i, graph_.nodes[static_cast<size_t>(cluster_.nodes[i])], cluster_.ranks[i]);
    }
    kernel_.live_values = count_live_values(kernel_);
    put_sizes();
    return std::move(kernel_);
  }

 private:
  static constexpr int kNone = -1;

  // A value as the cluster knows it: what an access holds, or a member's result.
  struct Value {
    Ref ref;
    Dtype dtype = Dtype::kFloat32;
    Rank rank = Rank::kFull;
    bool is_member = false;
    uint32_t id = 0;
  };
  // Of one value to another dtype.
  struct Converted {
    Dtype dtype;
    Ref ref;
    int older;  // another of the value; kNone: there is none
  };

  // Where an access is and how it steps, until the kernel is done.
  struct AccessSizes {
    Size offset;
    std::array<Size, kMaxDomainDims> strides{};
    bool operator==(const AccessSizes&) const = default;
  };

  uint32_t access(const Region& region, Rank rank, bool store) {
    MemoryAccess wanted;
    wanted.slot = region.slot;
    wanted.dtype = region.dtype;
    wanted.rank = rank;
    AccessSizes sizes{region.offset};
    domain_.strides(region.map, rank, sizes.strides);
    if (domain_.numel() == 1) {
      wanted.rank = Rank::kFull;
      sizes.strides.fill(0);
      sizes.strides[static_cast<size_t>(kernel_.ndim - 1)] = 1;
    } else if (!store && rank == Rank::kFull) {
      const size_t last = static_cast<size_t>(kernel_.ndim - 1);
      if (std::all_of(sizes.strides.begin(), sizes.strides.end(), [](Size s) { return s == 0; })) {
        wanted.rank = Rank::kOne;
      } else if (sizes.strides[last] == 0 && shape_[last] > 1) {
        wanted.rank = Rank::kRow;
      }
    }
    const uint64_t place[] = {wanted.slot, static_cast<uint64_t>(sizes.offset.value())};
    int& newest = at_place_.try_emplace(hash_words(place), kNone).first->second;
    for (int i = newest; i != kNone; i = older_[static_cast<size_t>(i)]) {
      ++graph_.visits;
      const MemoryAccess& known = kernel_.accesses[static_cast<size_t>(i)];
      if (known.slot == wanted.slot && known.dtype == wanted.dtype && known.rank == wanted.rank &&
          sizes_[static_cast<size_t>(i)] == sizes) {
        return static_cast<uint32_t>(i);
      }
    }
    const uint32_t made = add_access(wanted, sizes);
    older_[made] = std::exchange(newest, static_cast<int>(made));
    return made;
  }

  uint32_t add_access(const MemoryAccess& access, const AccessSizes& sizes) {
    kernel_.accesses.push_back(access);
    sizes_.push_back(sizes);
    older_.push_back(kNone);
    of_accesses_.push_back(kNone);
    return static_cast<uint32_t>(kernel_.accesses.size() - 1);
  }

  void put_sizes() {
    bool computed = false;
    const auto put = [&](int64_t& to, Size size) {
      to = size.value();
      kernel_.formulas.push_back(size.id());
      computed = computed || size.id() != 0;
    };
    const auto ndim = static_cast<size_t>(kernel_.ndim);
    for (size_t d = 0; d < ndim; ++d) put(kernel_.shape[d], shape_[d]);
    for (size_t k = 0; k < sizes_.size(); ++k) {
      for (size_t d = 0; d < ndim; ++d) put(kernel_.accesses[k].strides[d], sizes_[k].strides[d]);
    }
    for (size_t k = 0; k < sizes_.size(); ++k) put(kernel_.accesses[k].offset, sizes_[k].offset);
    if (!computed) kernel_.formulas = {};
  }

  Ref temp(Dtype dtype, Rank rank) {
    kernel_.temps.push_back({dtype, rank});
    return {Ref::kTemp, static_cast<uint32_t>(kernel_.temps.size() - 1)};
  }

  Value load(const Input& in, Rank walks) {
    if (in.node >= 0) {
      const auto at = std::lower_bound(cluster_.nodes.begin(), cluster_.nodes.end(), in.node);
      if (at != cluster_.nodes.end() && *at == in.node) {
        return value_[static_cast<size_t>(at - cluster_.nodes.begin())];
      }
    }
    Value value;
    value.id = access(in.region, in.rank == Rank::kOne ? Rank::kOne : walks, false);
    MemoryAccess& from = kernel_.accesses[value.id];
    if (!from.stored) from.loaded = true;
    value.ref = {Ref::kAccess, value.id};
    value.dtype = in.region.dtype;
    value.rank = from.rank;
    if (from.rank != Rank::kFull && writes_row_values(in.region.slot)) value.ref = kept(value);
    return value;
  }

  // Whether a member stores one element a row into the slot.
  bool writes_row_values(uint32_t slot) const {
    return std::find(row_slots_.begin(), row_slots_.end(), slot) != row_slots_.end();
  }
  void find_row_slots() {
    for (size_t i = 0; i < cluster_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[static_cast<size_t>(cluster_.nodes[i])];
      if (cluster_.ranks[i] != Rank::kRow || !node.stored) continue;
      if (!writes_row_values(node.out.slot)) row_slots_.push_back(node.out.slot);
    }
  }

  // What the memory holds before the kernel writes there. An operand of one element is taken to be
  // the same all through a kernel, so it cannot be read where it is.
  Ref kept(const Value& value) {
    for (const auto& [access, ref] : kept_) {
      if (access == value.id) return ref;
    }
    const Ref to = temp(value.dtype, value.rank);
    emit_convert(value.ref, value.dtype, to, value.dtype, value.rank);
    kept_.emplace_back(value.id, to);
    return to;
  }

  void emit_convert(Ref from, Dtype source, Ref to, Dtype target, Rank rank) {
    Instr convert;
    convert.code = kCodeConvert;
    convert.compute = source;
    convert.result = target;
    convert.rank = rank;
    convert.arity = 1;
    convert.in[0] = from;
    convert.out = to;
    convert.record = record_;
    kernel_.instrs.push_back(convert);
  }

  Ref converted(const Value& value, Dtype dtype) {
    if (value.dtype == dtype) return value.ref;
    int& newest = (value.is_member ? of_members_ : of_accesses_)[value.id];
    for (int i = newest; i != kNone; i = converted_[static_cast<size_t>(i)].older) {
      const Converted& known = converted_[static_cast<size_t>(i)];
      if (known.dtype == dtype) return known.ref;
    }
    const Ref to = temp(dtype, value.rank);
    emit_convert(value.ref, value.dtype, to, dtype, value.rank);
    converted_.push_back({dtype, to, newest});
    newest = static_cast<int>(converted_.size() - 1);
    return to;
  }

  // The result of the kernel's call: an access of its own, since it need not be in its slot.
  Value product(const Node& node, uint32_t member) {
    MemoryAccess made;
    made.slot = node.out.slot;
    made.dtype = node.out.dtype;
    made.loaded = made.product = true;
    AccessSizes sizes{node.out.offset};
    domain_.strides(node.out.map, Rank::kFull, sizes.strides);
    return {{Ref::kAccess, add_access(made, sizes)}, node.out.dtype, Rank::kFull, true, member};
  }

  void add(size_t member, const Node& node, Rank rank) {
    if (node.call >= 0) {
      value_[member] = product(node, static_cast<uint32_t>(member));
      return;
    }
    Instr instr;
    instr.code = node.code;
    instr.attr = node.attr;
    instr.compute = node.compute;
    instr.rank = rank;
    instr.arity = static_cast<uint8_t>(node.arity);
    instr.parameter = node.parameter;
    instr.record = record_ = node.record;
    const Rank walks = node.code == kCodeReduction ? Rank::kFull : rank;
    for (int k = 0; k < node.arity; ++k) {
      const Input& in = node.in[k];
      if (in.is_number) {
        instr.in[k] = {Ref::kImmediate, in.immediate};
        continue;
      }
      const Value value = load(in, walks);
      const bool as_stored = node.code == kCodeReduction || node.code == kCodeConvert;
      instr.in[k] = as_stored ? value.ref : converted(value, node.compute);
    }
    const Dtype target = node.out.dtype;
    if (node.is_op()) {
      const OpInfo& info = op_info(node.op());
      instr.result = info.result_is_bool ? Dtype::kBool : node.compute;
      kernel_.heavy = kernel_.heavy || info.is_heavy();
    } else {
      instr.result = node.code == kCodeRow ? node.compute : target;
      kernel_.heavy = kernel_.heavy || node.code == kCodeRow;
    }
    Value& value = value_[member];
    value.dtype = target;
    value.rank = rank;
    value.is_member = true;
    value.id = static_cast<uint32_t>(member);
    Ref memory;
    if (node.stored) {
      memory = {Ref::kAccess, access(node.out, rank, true)};
      kernel_.accesses[memory.index].stored = true;
    }
    // Values of rows are read from a temp and stored besides: with one row their memory is one
    // element, and such an operand is taken to be the same all through the kernel.
    const bool stored_besides = node.stored && rank == Rank::kRow;
    value.ref = node.stored && !stored_besides ? memory : temp(target, rank);
    if (instr.result == target) {
      instr.out = value.ref;
      kernel_.instrs.push_back(instr);
    } else {
      instr.out = temp(instr.result, rank);
      kernel_.instrs.push_back(instr);
      emit_convert(instr.out, instr.result, value.ref, target, rank);
    }
    if (stored_besides) emit_convert(value.ref, target, memory, target, rank);
  }

  const Graph& graph_;
  const Cluster& cluster_;
  Domain domain_;
  Kernel kernel_;
  std::array<Size, kMaxDomainDims> shape_{};
  std::vector<AccessSizes> sizes_;
  std::vector<Value> value_;
  // The newest access that begins at a place (by its hash), and of each the one before; kNone:
  // there is none.
  std::unordered_map<uint64_t, int> at_place_;
  std::vector<int> older_;
  std::vector<Converted> converted_;
  std::vector<int> of_members_, of_accesses_;   // the newest of each value's conversions, or kNone
  std::vector<std::pair<uint32_t, Ref>> kept_;  // by access
  std::vector<uint32_t> row_slots_;             // see writes_row_values()
  int record_ = -1;                             // of the node that is added
};

Kernel make_kernel(const Graph& graph, const Cluster& cluster) {
  if (cluster.call >= 0 && cluster.nodes.size() == 1) {
    Kernel kernel;
    kernel.call = make_call(graph, cluster.call);
    return kernel;
  }
  return KernelMaker(graph, cluster).run();
}

// The kernel as words in which slots, offsets and numbers are left out: equal for equal programs. A
// call is named by what its kind is called, so that the words mean the same in every process.
void append_program(const Kernel& kernel, std::vector<uint64_t>& words) {
  if (kernel.call != nullptr) append_call(*kernel.call, words);
  words.push_back(static_cast<uint64_t>(kernel.ndim) | uint64_t{kernel.whole_rows} << 8 |
                  kernel.accesses.size() << 16 | kernel.instrs.size() << 40);
  for (int d = 0; d < kernel.ndim; ++d) words.push_back(static_cast<uint64_t>(kernel.shape[d]));
  for (const MemoryAccess& access : kernel.accesses) {
    words.push_back(static_cast<uint64_t>(access.dtype) | static_cast<uint64_t>(access.rank) << 8 |
                    uint64_t{access.loaded} << 16 | uint64_t{access.stored} << 17 |
                    uint64_t{access.product} << 18);
    for (int d = 0; d < kernel.ndim; ++d) {
      words.push_back(static_cast<uint64_t>(access.strides[static_cast<size_t>(d)]));
    }
  }
  const auto ref_word = [](const Ref& ref) {
    const uint64_t index = ref.kind == Ref::kImmediate ? 0 : ref.index;
    return static_cast<uint64_t>(ref.kind) | index << 8;
  };
  for (const Instr& instr : kernel.instrs) {
    words.push_back(uint64_t{instr.code} | uint64_t{instr.attr} << 16 |
                    static_cast<uint64_t>(instr.compute) << 32 |
                    static_cast<uint64_t>(instr.result) << 40 |
                    static_cast<uint64_t>(instr.rank) << 48 | uint64_t{instr.arity} << 56);
    words.push_back(std::bit_cast<uint64_t>(instr.parameter));
    for (int k = 0; k < instr.arity; ++k) words.push_back(ref_word(instr.in[k]));
    words.push_back(ref_word(instr.out));
  }
}

// ---- from kernels to a plan ----

int64_t distinct_elements(const Kernel& kernel, const MemoryAccess& access) {
  int64_t n = 1;
  for (int d = 0; d < kernel.ndim; ++d) {
    if (access.strides[static_cast<size_t>(d)] != 0) n *= kernel.shape[static_cast<size_t>(d)];
  }
  return n;
}

int64_t bytes_of(const CallSlot& operand) {
  return operand.present ? operand.bytes * (int{operand.reads} + int{operand.writes}) : 0;
}

struct WordsHash {
  size_t operator()(const std::vector<uint64_t>& words) const { return hash_words(words); }
};

// Both have the same program, and are to have it with other sizes too.
void keep_equal(const Kernel& a, const Kernel& b) {
  const auto sizes_of = [](const Kernel& kernel) {
    std::vector<Size> sizes;
    size_t k = 0;
    const auto add = [&](int64_t value) {
      const uint32_t id = kernel.formulas.empty() ? 0 : kernel.formulas[k++];
      sizes.push_back({value, id});
    };
    for (int d = 0; d < kernel.ndim; ++d) add(kernel.shape[static_cast<size_t>(d)]);
    for (const MemoryAccess& access : kernel.accesses) {
      for (int d = 0; d < kernel.ndim; ++d) add(access.strides[static_cast<size_t>(d)]);
    }
    return sizes;
  };
  if (!a.formulas.empty() || !b.formulas.empty()) (void)(sizes_of(a) == sizes_of(b));
}

// Kernels of one stage with equal programs get one number and stand side by side. Calls run one by
// one, also equal ones.
void number_launches(Plan& plan) {
  int next = 0;
  for (size_t begin = 0; begin < plan.kernels.size();) {
    size_t end = begin;
    std::unordered_map<std::vector<uint64_t>, std::pair<int, size_t>, WordsHash> known;
    for (; end < plan.kernels.size() && plan.kernels[end].stage == plan.kernels[begin].stage;
         ++end) {
      if (plan.kernels[end].call != nullptr) {
        plan.kernels[end].launch = next++;
        continue;
      }
      std::vector<uint64_t> program;
      append_program(plan.kernels[end], program);
      const auto [at, fresh] = known.emplace(std::move(program), std::pair(next, end));
      if (fresh) {
        ++next;
      } else {
        keep_equal(plan.kernels[at->second.second], plan.kernels[end]);
      }
      plan.kernels[end].launch = at->second.first;
    }
    std::stable_sort(plan.kernels.begin() + static_cast<std::ptrdiff_t>(begin),
                     plan.kernels.begin() + static_cast<std::ptrdiff_t>(end),
                     [](const Kernel& a, const Kernel& b) { return a.launch < b.launch; });
    begin = end;
  }
  plan.stats.kernels = static_cast<int>(plan.kernels.size());
  plan.stats.groups = next;
}

// Whether a kernel touches memory that the circuit does not have.
bool has_values_in_memory(const Plan& plan) {
  bool has = false;
  for (const Kernel& kernel : plan.kernels) {
    for_slots(kernel, [&](uint32_t slot) { has |= slot >= static_cast<uint32_t>(plan.slots); });
  }
  return has;
}

// False where a kernel of more than one record needs more scratch slots or arguments than there
// are.
bool make_kernels(Graph& graph, const PlanOptions& options, Plan& plan) {
  plan.kernels.clear();
  for (const Cluster& cluster : fuse(graph, options)) {
    Kernel& kernel = plan.kernels.emplace_back(make_kernel(graph, cluster));
    kernel.stage = cluster.level;
    graph.visits += static_cast<int64_t>(kernel.instrs.size());
    if (cluster.nodes.size() == 1) continue;
    const PlanLimits& limits = options.limits;
    if (kernel.live_values > limits.scratch_slots) return false;
    if (limits.max_arguments != INT_MAX && count_arguments(kernel) > limits.max_arguments) {
      return false;
    }
  }
  return true;
}

}  // namespace

int64_t KernelCall::bytes() const {
  int64_t bytes = 0;
  for (const CallSlot& operand : operands) bytes += bytes_of(operand);
  return bytes;
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

int product_access(const Kernel& kernel) {
  const auto at = std::find_if(kernel.accesses.begin(), kernel.accesses.end(),
                               [](const MemoryAccess& access) { return access.product; });
  return at == kernel.accesses.end() ? -1 : static_cast<int>(at - kernel.accesses.begin());
}

bool wants_whole_rows(const Kernel& kernel) {
  return kernel.whole_rows ||
         std::any_of(kernel.accesses.begin(), kernel.accesses.end(),
                     [](const MemoryAccess& a) { return a.stored && a.rank == Rank::kRow; });
}

int64_t kernel_bytes(const Kernel& kernel) {
  int64_t bytes = kernel.call != nullptr ? kernel.call->bytes() : 0;
  for (const MemoryAccess& access : kernel.accesses) {
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
  Graph graph = make_graph(words, states, options);
  if (options.fuse) {
    if (options.limits.narrow_call_operands) narrow_operands(graph);
    simplify(graph, options);
  }
  find_live(graph);
  PlanOptions smaller = options;
  while (!make_kernels(graph, smaller, *plan)) {
    smaller.limits.max_instrs = (smaller.limits.max_instrs + 1) / 2;
  }
  if (has_values_in_memory(*plan)) {
    smaller = options;
    smaller.limits.least_in_parts = INT64_MAX;
    return make_plan(words, states, smaller);
  }

  number_launches(*plan);
  find_memory_wanted(*plan, states);
  PlanStats& stats = plan->stats;
  for (const Kernel& kernel : plan->kernels) {
    stats.live_values = std::max(stats.live_values, kernel.live_values);
    stats.bytes_moved += kernel_bytes(kernel);
  }
  stats.ops = graph.records;
  stats.visits = graph.visits + graph.newest.visits();
  Size unfused = graph.left_out;
  for (const Node& node : graph.nodes) {
    if (node.out.slot >= states.size()) continue;  // see compute_parts()
    unfused += bytes_alone(graph, node);
    stats.dead += node.live ? 0 : 1;
  }
  stats.bytes_unfused = unfused.value();
  plan->unfused_formula = unfused.id();
  return plan;
}

}  // namespace hologram::circuit
