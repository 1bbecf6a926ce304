// SPDX-License-Identifier: MIT
// Decides in which phase each operation runs and what is kept in memory between phases.
#include "src/cpu/jit/schedule.h"

#include <algorithm>
#include <limits>

#include "hologram/op.h"
#include "src/cpu/device/kernel_table.h"

namespace hologram::cpu::jit {
namespace {

constexpr int64_t kStripBudget = 16384;  // bytes of all strips: half of a first-level cache
constexpr int64_t kMinStrip = 128;
constexpr int64_t kMaxStrip = 1024;

class Scheduler {
 public:
  explicit Scheduler(const LoopGraph& graph) : graph_(graph), nodes_(graph.nodes) {}

  Schedule run() {
    find_needed();
    find_invariants();
    find_lanes();
    find_levels();
    find_phases();
    for (const LoopNode& node : nodes_) {
      if (node.op == Op::kLoad) add_array({Array::kInput, node.dtype, node.index, 0});
    }
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      const Dtype dtype = nodes_[static_cast<size_t>(graph_.outputs[i])].dtype;
      add_array({Array::kOutput, dtype, static_cast<int>(i), 0});
    }
    loads_ = static_cast<int>(out_.arrays.size() - graph_.outputs.size());
    out_.phases.resize(static_cast<size_t>(last_phase_) + 1);
    strip_of_.assign(nodes_.size(), -1);
    place_calls();
    place_operations();
    place_stores();
    for (Phase& phase : out_.phases) find_sources(phase);
    size_strips();
    return std::move(out_);
  }

 private:
  static size_t at(int id) { return static_cast<size_t>(id); }
  bool is_call(int id) const { return nodes_[at(id)].op == Op::kCall; }
  bool is_load(int id) const { return nodes_[at(id)].op == Op::kLoad; }
  bool is_invariant(int id) const { return out_.is_invariant[at(id)] != 0; }
  // Computed by an item of a phase.
  bool is_operation(int id) const {
    return needed_[at(id)] && !is_invariant(id) && !is_load(id) && !is_call(id);
  }

  int add_array(Array array) {
    out_.arrays.push_back(array);
    return static_cast<int>(out_.arrays.size()) - 1;
  }

  void find_needed() {
    needed_.assign(nodes_.size(), 0);
    for (int id : graph_.outputs) needed_[at(id)] = 1;
    for (int id : graph_.folds) needed_[at(id)] = 1;
    for (size_t i = nodes_.size(); i-- > 0;) {
      if (!needed_[i]) continue;
      for (int k = 0; k < nodes_[i].arity; ++k) needed_[at(nodes_[i].in[k])] = 1;
    }
  }

  void find_invariants() {
    out_.is_invariant.assign(nodes_.size(), 0);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const LoopNode& node = nodes_[i];
      if (!needed_[i] || node.op == Op::kLoad || node.op == Op::kCall) continue;
      bool invariant = node.op == Op::kNumber || !node.is_mask();
      for (int k = 0; k < node.arity; ++k) invariant = invariant && is_invariant(node.in[k]);
      out_.is_invariant[i] = invariant;
      if (invariant) out_.invariants.push_back(static_cast<int>(i));
    }
    // Numbers first, for registers go to the first of those that are used as often.
    std::stable_partition(out_.invariants.begin(), out_.invariants.end(),
                          [&](int id) { return nodes_[at(id)].op == Op::kNumber; });
  }

  void find_lanes() {
    size_t widest = 1;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (!needed_[i]) continue;
      widest = std::max(widest, itemsize(nodes_[i].dtype));
      if (nodes_[i].op == Op::kCompare) widest = std::max(widest, itemsize(nodes_[i].from));
    }
    // Lanes of 2 bytes alone, which are only moved, are not worth masks of their own.
    if (widest == 2) widest = 4;
    out_.lanes = (graph_.isa == Isa::kAvx512 ? 64 : 32) / static_cast<int>(widest);
  }

  // How many calls must come before: a call of level l ends phase l, what uses it comes later.
  void find_levels() {
    level_.assign(nodes_.size(), 0);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      for (int k = 0; k < nodes_[i].arity; ++k) {
        const int in = nodes_[i].in[k];
        level_[i] = std::max(level_[i], level_[at(in)] + (is_call(in) ? 1 : 0));
      }
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (needed_[i]) last_phase_ = std::max(last_phase_, level_[i]);
    }
    find_direct();
    if (direct_ >= 0) return;
    for (int id : graph_.outputs) {
      if (is_call(id)) last_phase_ = std::max(last_phase_, level_[at(id)] + 1);
    }
  }

  // A call that may write to its output itself: the only output, so that nothing is read after.
  void find_direct() {
    if (graph_.outputs.size() != 1 || !is_call(graph_.outputs[0])) return;
    const int id = graph_.outputs[0];
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const bool other = needed_[i] && is_call(static_cast<int>(i)) && static_cast<int>(i) != id;
      if (other && level_[i] >= level_[at(id)]) return;
    }
    direct_ = id;
  }

  // As late as its users allow: what an operation reads is in memory anyway.
  void find_phases() {
    phase_.assign(nodes_.size(), std::numeric_limits<int>::max());
    for (int id : graph_.outputs) {
      phase_[at(id)] = is_call(id) ? level_[at(id)] : last_phase_;
    }
    for (int id : graph_.folds) phase_[at(id)] = last_phase_;
    for (size_t i = nodes_.size(); i-- > 0;) {
      if (!needed_[i]) continue;
      if (is_call(static_cast<int>(i))) phase_[i] = level_[i];
      for (int k = 0; k < nodes_[i].arity; ++k) {
        int& of = phase_[at(nodes_[i].in[k])];
        of = std::min(of, phase_[i]);
      }
    }
  }

  int strip(int id) {
    int& array = strip_of_[at(id)];
    if (array < 0) array = add_array({Array::kStrip, nodes_[at(id)].dtype, 0, 0});
    return array;
  }

  // The array a phase after the node's own finds the value in.
  int memory(int id) { return is_load(id) ? nodes_[at(id)].index : strip(id); }

  void place_calls() {
    const KernelTable& table = kernel_table(graph_.isa);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const int id = static_cast<int>(i);
      if (!needed_[i] || !is_call(id)) continue;
      const LoopNode& node = nodes_[i];
      const auto& forms = table.kernels[node.index][static_cast<int>(node.from)];
      StripCall call;
      call.node = id;
      unsigned single = 0;
      for (int k = 0; k < node.arity; ++k) single |= is_invariant(node.in[k]) ? 1u << k : 0u;
      const FormChoice choice = choose_form(forms, op_info(static_cast<OpId>(node.index)), single);
      call.form = static_cast<int>(choice.form);
      for (int k = 0; k < node.arity; ++k) {
        const int in = node.in[k];
        if (choice.single >> k & 1) {
          call.in[k].single = in;
          continue;
        }
        if (is_invariant(in) && strip_of_[at(in)] < 0) out_.fills.push_back({in, strip(in)});
        call.in[k].array = memory(in);
      }
      call.out = id == direct_ ? loads_ : strip(id);
      out_.phases[at(phase_[i])].calls.push_back(call);
    }
  }

  void place_operations() {
    // Stored or read in a later phase, which then loads it.
    std::vector<char> is_kept(nodes_.size(), 0);
    for (int id : graph_.outputs) is_kept[at(id)] = phase_[at(id)] < last_phase_;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      for (int k = 0; needed_[i] && k < nodes_[i].arity; ++k) {
        is_kept[at(nodes_[i].in[k])] |= phase_[i] > phase_[at(nodes_[i].in[k])];
      }
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const int id = static_cast<int>(i);
      if (!is_operation(id)) continue;
      if (is_kept[i]) strip(id);
      std::vector<Item>& items = out_.phases[at(phase_[i])].items;
      items.push_back({id, kCompute});
      if (strip_of_[i] >= 0) items.push_back({id, strip_of_[i]});
      place_folds(id, items);
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const int id = static_cast<int>(i);
      if (!is_operation(id)) place_folds(id, out_.phases[at(last_phase_)].items);
    }
  }

  void place_folds(int id, std::vector<Item>& items) {
    for (size_t k = 0; k < graph_.folds.size(); ++k) {
      if (graph_.folds[k] == id) items.push_back({id, kFirstFold - static_cast<int>(k)});
    }
  }

  // An output may share its memory with an input, so nothing is stored before all is loaded. An
  // item loads what it reads for the first time.
  void place_stores() {
    std::vector<Item>& items = out_.phases[at(last_phase_)].items;
    size_t loaded = 0;
    std::vector<char> seen(nodes_.size(), 0), computed(nodes_.size(), 0);
    const auto note_load = [&](int id, size_t position) {
      if (!is_load(id) || seen[at(id)]) return;
      seen[at(id)] = 1;
      loaded = position;
    };
    for (size_t position = 0; position < items.size(); ++position) {
      if (items[position].is_fold()) note_load(items[position].node, position + 1);
      if (items[position].store != kCompute) continue;
      const LoopNode& node = nodes_[at(items[position].node)];
      for (int k = 0; k < node.arity; ++k) note_load(node.in[k], position + 1);
    }
    std::vector<Item> early, late;
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      const int id = graph_.outputs[i];
      if (id == direct_) continue;
      const Item item{id, loads_ + static_cast<int>(i)};
      (is_operation(id) && phase_[at(id)] == last_phase_ ? early : late).push_back(item);
    }
    // Copies of what is not computed here come last, their loads before every store.
    std::vector<Item> placed;
    const bool copies = !late.empty();
    for (size_t position = 0; position <= items.size(); ++position) {
      const bool all_loaded = position >= loaded && (!copies || position == items.size());
      for (Item& item : early) {
        if (!all_loaded || item.store < 0 || !computed[at(item.node)]) continue;
        placed.push_back(item);
        item.store = -1;
      }
      if (position == items.size()) break;
      placed.push_back(items[position]);
      computed[at(items[position].node)] = 1;
    }
    if (copies) {
      std::vector<Item> first;
      for (const Item& item : late) {
        if (!is_invariant(item.node)) first.push_back({item.node, kPreload});
      }
      // Between the last operation and the first store.
      const auto end = static_cast<std::ptrdiff_t>(items.size());
      placed.insert(placed.begin() + end, first.begin(), first.end());
      placed.insert(placed.end(), late.begin(), late.end());
    }
    items = std::move(placed);
  }

  void find_sources(Phase& phase) {
    phase.source.assign(nodes_.size(), -1);
    std::vector<char> computed(nodes_.size(), 0);
    const auto need = [&](int id) {
      if (computed[at(id)] || is_invariant(id)) return;
      phase.source[at(id)] = memory(id);
    };
    for (const Item& item : phase.items) {
      if (item.store != kCompute) {
        need(item.node);
        continue;
      }
      const LoopNode& node = nodes_[at(item.node)];
      for (int k = 0; k < node.arity; ++k) need(node.in[k]);
      computed[at(item.node)] = 1;
    }
  }

  void size_strips() {
    int64_t bytes_per_element = 0;
    for (const Array& array : out_.arrays) {
      if (array.kind == Array::kStrip)
        bytes_per_element += static_cast<int64_t>(itemsize(array.dtype));
    }
    if (bytes_per_element == 0) return;
    const int64_t fit = kStripBudget / bytes_per_element / 64 * 64;
    out_.strip = std::clamp(fit, kMinStrip, kMaxStrip);
    for (Array& array : out_.arrays) {
      if (array.kind != Array::kStrip) continue;
      array.offset = out_.strip_bytes;
      out_.strip_bytes += out_.strip * static_cast<int64_t>(itemsize(array.dtype));
    }
  }

  const LoopGraph& graph_;
  const std::vector<LoopNode>& nodes_;
  Schedule out_;
  std::vector<char> needed_;
  std::vector<int> level_;  // by node
  std::vector<int> phase_;  // by node
  std::vector<int> strip_of_;
  int last_phase_ = 0;
  int loads_ = 0;    // arrays before those of outputs
  int direct_ = -1;  // the call that writes to the output
};

}  // namespace

Schedule make_schedule(const LoopGraph& graph) { return Scheduler(graph).run(); }

}  // namespace hologram::cpu::jit
