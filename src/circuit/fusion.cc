// SPDX-License-Identifier: MIT
// Grows clusters node by node: a node joins those of its operands where all their loops agree.
//
// Every dependence either lies within one cluster, where instructions keep the circuit's order, or
// goes from a lower level to a higher one. A cluster of a lower level may be lifted to join a
// higher one as long as nothing below has to wait for it.
//
// What comes before a node for the sake of memory is asked of trees over the bytes (see cells.h)
// and answered by a level: no node holds a list of all that it has to follow. Only what walks the
// very same places, and so may be in one kernel with it, is known by name.
#include "src/circuit/fusion.h"

#include <algorithm>
#include <climits>
#include <unordered_map>
#include <utility>

namespace hologram::circuit {
namespace {

constexpr int kNone = -1;

// The bytes of the wider of what a node computes with and leaves.
int64_t width(const Node& node) {
  int64_t widest = std::max<int64_t>(node.out.size(), static_cast<int64_t>(itemsize(node.compute)));
  for (int k = 0; k < node.arity; ++k) {
    if (!node.in[k].is_number) widest = std::max(widest, node.in[k].region.size());
  }
  return widest;
}

// Whether the device runs it itself, if it is elementwise.
bool is_native(const Node& node, const PlanLimits& limits) {
  if (limits.native == nullptr || node.call >= 0) return true;
  const NativeOps& native = *limits.native;
  if (node.is_op() && !native.has(node.op(), node.compute)) return false;
  if (node.code == kCodeReduction && (native.folds >> node.attr & 1) == 0) return false;
  if (node.code == kCodeRow && !native.row_functions) return false;
  if (!native.has(node.compute) || !native.has(node.out.dtype)) return false;
  return std::all_of(node.in, node.in + node.arity,
                     [&](const Input& in) { return in.is_number || native.has(in.region.dtype); });
}

// Memory as the nodes placed so far have left it.
struct Hazards {
  explicit Hazards(const Graph& graph)
      : written(graph.tree_nodes), touched(graph.tree_nodes), readers(graph.tree_nodes) {}

  Greatest written;  // the highest level of those who write
  // The newest node that reads in part, or writes; not what reads the result of one node, which is
  // among that one's dependents by name.
  Greatest touched;
  Readers readers;
  std::unordered_map<Places, int, Places::Hash> last;  // the newest node with such an output
};

// Clusters that read the same memory in equal loops.
struct Load {
  int level;
  bool whole_rows;
  Size numel;
  Dtype dtype;
  Places places;

  Load(const Cluster& c, const Region& region)
      : level(c.level),
        whole_rows(c.whole_rows),
        numel(c.domain.numel()),
        dtype(region.dtype),
        places(region) {}
  bool operator==(const Load&) const = default;
};
struct LoadHash {
  size_t operator()(const Load& load) const {
    const uint64_t words[] = {Places::Hash()(load.places),
                              static_cast<uint64_t>(load.numel.value()),
                              uint64_t{load.whole_rows} | static_cast<uint64_t>(load.level) << 1};
    return hash_words(words);
  }
};
// Of those who read the same memory and could not be joined: how many later ones try to join.
constexpr size_t kMostTried = 8;

class Fuser {
 public:
  Fuser(Graph& graph, const PlanOptions& options)
      : graph_(graph),
        options_(options),
        cluster_of_(graph.nodes.size(), kNone),
        hazards_(graph),
        in_step_(graph.nodes.size(), kNone) {}

  std::vector<Cluster> run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (graph_.nodes[i].live) place(static_cast<int>(i));
    }
    share_loads();
    mark_stored();
    graph_.visits +=
        hazards_.written.visits() + hazards_.touched.visits() + hazards_.readers.visits();
    std::vector<Cluster> result;
    for (size_t c = 0; c < clusters_.size(); ++c) {
      if (!clusters_[c].nodes.empty()) result.push_back(std::move(clusters_[c]));
    }
    std::stable_sort(result.begin(), result.end(),
                     [](const Cluster& a, const Cluster& b) { return a.level < b.level; });
    return result;
  }

 private:
  Node& node(int i) { return graph_.nodes[static_cast<size_t>(i)]; }
  int find(int i) {
    int c = cluster_of_[static_cast<size_t>(i)];
    while (c >= 0) {
      int& into = merged_into_[static_cast<size_t>(c)];
      if (into == kNone) break;
      ++graph_.visits;
      // Half the way is gone the next time.
      if (const int after = merged_into_[static_cast<size_t>(into)]; after != kNone) into = after;
      c = into;
    }
    return cluster_of_[static_cast<size_t>(i)] = c;
  }
  const CallUse& use_of(const Node& n, int k) const {
    return graph_.calls[static_cast<size_t>(n.call)].uses[static_cast<size_t>(k)];
  }
  Cluster& cluster(int c) { return clusters_[static_cast<size_t>(c)]; }

  // A cluster that has to come before the node that is being placed, and that it may join.
  void depend(int on) {
    ++graph_.visits;
    const int c = find(on);
    if (std::exchange(asked_[static_cast<size_t>(c)], placing_) != placing_) {
      dependences_.push_back(c);
    }
  }

  void place(int index) {
    ++graph_.visits;
    placing_ = index;
    dependences_.clear();
    kept_apart_.clear();
    chosen_.clear();
    Cluster grown;
    start(grown, node(index), index);
    if (options_.fuse) {
      grown.level = find_dependences(index);
      // Everything at its level that is joinable must be joined, or the node moves up.
      if (!join_level(grown, index)) {
        const int higher = grown.level + 1;
        grown = Cluster();
        start(grown, node(index), index);
        grown.level = higher;
        chosen_.clear();
      }
      for (const int c : kept_apart_) await(c, grown.level);
      lift(grown, index);
    } else {
      grown.level = static_cast<int>(clusters_.size());
    }
    const int level = grown.level;
    cluster_of_[static_cast<size_t>(index)] = settle(std::move(grown));
    if (!options_.fuse) return;
    for (const int c : dependences_) {
      if (std::find(chosen_.begin(), chosen_.end(), c) == chosen_.end()) await(c, level);
    }
    remember(index, level);
  }

  // Something at this level has to come after the cluster.
  void await(int c, int level) {
    cluster(c).nearest_dependent = std::min(cluster(c).nearest_dependent, level);
  }

  // Sets dependences_ and kept_apart_; returns the lowest level for the node.
  int find_dependences(int index) {
    const Node& n = node(index);
    int lowest = 0;
    const auto come_after = [&](int level) { lowest = std::max(lowest, level + 1); };
    for (int k = 0; k < n.arity; ++k) {
      if (n.in[k].node >= 0) depend(n.in[k].node);
    }
    graph_.for_reads(n, [&](const Region& region, int k) {
      if (n.call < 0 && n.in[k].node >= 0) return;
      come_after(hazards_.written.most(region.cells));
      hazards_.touched.raise(region.cells, index);
    });
    graph_.for_writes(n, [&](const Region& region, bool) {
      const int highest = hazards_.written.most(region.cells);
      const int same = n.call < 0 && highest != Greatest::kNone ? last_in_step(n) : kNone;
      // Who wrote since, and elsewhere too, is on a higher level than the one in step.
      if (same != kNone && highest == cluster(find(same)).level) {
        depend(same);
        in_step_[static_cast<size_t>(same)] = index;
      } else {
        come_after(highest);
        hazards_.touched.raise(region.cells, index);
      }
      find_readers(index, region, come_after);
    });
    for (const int c : dependences_) lowest = std::max(lowest, cluster(c).level);
    return lowest;
  }

  // The node that was the last to write the very places that this one writes.
  int last_in_step(const Node& n) {
    const auto at = hazards_.last.find(Places(n.out));
    return at != hazards_.last.end() && node(at->second).out_n == n.out_n ? at->second : kNone;
  }

  template <class F>
  void find_readers(int index, const Region& region, F&& come_after) {
    readers_.clear();
    const int settled = hazards_.readers.take(
        region.cells, [&](const Readers::Reader& reader) { readers_.push_back(reader); },
        [&](const Readers::Reader& reader) {
          // Nothing that comes after it can be on a lower level than the next.
          const int c = find(reader.node);
          await(c, cluster(c).level + 1);
          return cluster(c).level;
        });
    come_after(settled);
    std::sort(readers_.begin(), readers_.end(), [](const auto& a, const auto& b) {
      return a.node != b.node ? a.node < b.node : a.input < b.input;
    });
    const Node& n = node(index);
    for (const Readers::Reader& reader : readers_) {
      const Node& other = node(reader.node);
      const bool in_step = n.call < 0 && other.call < 0 && other.n == n.out_n &&
                           other.in[reader.input].rank == Rank::kFull &&
                           other.in[reader.input].region.same_places(region);
      if (in_step) {
        depend(reader.node);
        in_step_[static_cast<size_t>(reader.node)] = index;
      } else {
        ++graph_.visits;
        const int c = find(reader.node);
        come_after(cluster(c).level);
        kept_apart_.push_back(c);
      }
    }
  }

  // The node has been placed: what later ones have to know.
  void remember(int index, int level) {
    const Node& n = node(index);
    graph_.for_reads(n, [&](const Region& region, int k) {
      // Who comes after its write comes after it.
      const bool writes_there = n.call < 0 ? region.same_places(n.out) : use_of(n, k).writes();
      // Where nothing is written later the read orders nothing.
      if (writes_there || graph_.newest.most(region.cells) <= index) return;
      hazards_.readers.add(region.cells, {index, k});
    });
    graph_.for_writes(n, [&](const Region& region, bool) {
      hazards_.written.raise(region.cells, level);
      hazards_.touched.raise(region.cells, index);
    });
    if (n.clobbered) hazards_.last.insert_or_assign(Places(n.out), index);
  }

  // Joins the clusters of grown's level; false where one of them does not fit.
  bool join_level(Cluster& grown, int index) {
    for (const int c : dependences_) {
      if (cluster(c).level != grown.level) continue;
      if (!join(grown, cluster(c), index)) return false;
      chosen_.push_back(c);
    }
    return true;
  }

  // Joins clusters of lower levels for which nothing waits below; the others are read from memory.
  void lift(Cluster& grown, int index) {
    for (const int c : dependences_) {
      if (cluster(c).level >= grown.level || is_awaited(c, grown.level)) continue;
      if (join(grown, cluster(c), index)) chosen_.push_back(c);
    }
  }

  // Whether something that may be at this level or below has to come after the cluster.
  bool is_awaited(int c, int level) {
    if (cluster(c).nearest_dependent <= level) return true;
    for (const int member : cluster(c).nodes) {
      bool touched = false;
      graph_.for_writes(node(member), [&](const Region& region, bool) {
        // In the cluster: in step with the member, and so has touched all that is there.
        const int newest = hazards_.touched.most(region.cells);
        touched = touched || (newest > member && find(newest) != c);
      });
      if (touched) return true;
    }
    return false;
  }

  // Puts the cluster in the place of those that it has joined; returns its number.
  int settle(Cluster grown) {
    for (const int c : chosen_) {
      grown.nearest_dependent = std::min(grown.nearest_dependent, cluster(c).nearest_dependent);
      if (options_.fuse && cluster(c).level < grown.level) {
        for (const int member : cluster(c).nodes) {
          graph_.for_writes(node(member), [&](const Region& region, bool) {
            hazards_.written.raise(region.cells, grown.level);
          });
        }
      }
    }
    if (chosen_.empty()) {
      clusters_.push_back(std::move(grown));
      merged_into_.push_back(kNone);
      asked_.push_back(kNone);
      return static_cast<int>(clusters_.size()) - 1;
    }
    const int target = chosen_[0];
    for (const int c : chosen_) {
      if (c == target) continue;
      merged_into_[static_cast<size_t>(c)] = target;
      cluster(c).nodes.clear();
    }
    cluster(target) = std::move(grown);
    return target;
  }

  // A cluster of one node.
  void start(Cluster& single, const Node& n, int index) {
    single.domain = Domain(n.n);
    single.nearest_dependent = INT_MAX;
    single.widest = width(n);
    single.native = is_native(n, options_.limits);
    if (n.call >= 0) {
      single.call = index;
      const GraphCall& call = graph_.calls[static_cast<size_t>(n.call)];
      single.cols = call.cols;
      single.group = call.group;
      single.nodes.push_back(index);
      single.ranks.push_back(Rank::kFull);
      return;
    }
    if (n.row > 0) {
      single.whole_rows = true;
      single.domain.set_row(n.row);
    }
    single.nodes.push_back(index);
    single.ranks.push_back(n.code == kCodeReduction ? Rank::kRow : Rank::kFull);
    add_maps(single, n, single.ranks.back());
  }

  // Cuts the loops so that every operand of the node steps evenly. rank: of a node whose elements
  // are rows of the cluster.
  static bool add_maps(Cluster& c, const Node& n, Rank rank) {
    const bool rows = rank == Rank::kRow && n.code != kCodeReduction;
    for (int k = 0; k < n.arity; ++k) {
      const Input& in = n.in[k];
      if (in.is_number || in.rank == Rank::kOne) continue;
      if (!(rows ? c.domain.add_rows(in.region.map) : c.domain.add(in.region.map))) return false;
    }
    return rank == Rank::kRow ? c.domain.add_rows(n.out.map) : c.domain.add(n.out.map);
  }

  // Adds cluster c to `to`, or leaves it as it is. The newest node (index) is in `to`. The one
  // with rows, or the larger one, sets the loops.
  bool join(Cluster& to, const Cluster& c, int index) {
    const PlanLimits& limits = options_.limits;
    if (static_cast<int>(to.nodes.size() + c.nodes.size()) > limits.max_instrs) return false;
    if (to.call >= 0 && c.call >= 0) return false;
    if (to.native != c.native) return false;
    const bool is_row_work = to.whole_rows || c.whole_rows;
    if (is_row_work && (to.call >= 0 || c.call >= 0) && !limits.fuse_rows_of_calls) return false;
    if (stays_alone(to) || stays_alone(c)) return false;
    Cluster sum;
    sum.call = std::max(to.call, c.call);
    sum.cols = std::max(to.cols, c.cols);
    sum.group = std::max(to.group, c.group);
    sum.level = to.level;
    sum.nearest_dependent = to.nearest_dependent;
    sum.whole_rows = to.whole_rows || c.whole_rows;
    sum.native = to.native;
    sum.widest = std::max(to.widest, c.widest);
    const Size a = to.domain.numel(), b = c.domain.numel();
    const Size row = std::max(to.domain.row(), c.domain.row());
    if (a == b) {
      sum.domain = to.domain;
      if (!sum.domain.merge(c.domain)) return false;
    } else if (sum.whole_rows && row > 1) {
      // One side is made of rows, the other has an element for each of them.
      const Cluster& rows = a > b ? to : c;
      const Cluster& each = a > b ? c : to;
      if (!rows.whole_rows || each.whole_rows || rows.domain.row() != row ||
          rows.domain.numel() != each.domain.numel() * row) {
        return false;
      }
      sum.domain = rows.domain;
    } else {
      return false;
    }
    if (sum.whole_rows &&
        sum.domain.row() > limits.longest_row(sum.native) / std::max<int64_t>(4, sum.widest)) {
      return false;
    }
    // Members in the order of the circuit, their ranks in the common domain.
    const auto take = [&](const Cluster& from) {
      for (size_t i = 0; i < from.nodes.size(); ++i) {
        Rank rank = from.ranks[i];
        if (from.domain.numel() != sum.domain.numel()) {
          if (rank != Rank::kFull) return false;
          rank = Rank::kRow;
        }
        ++graph_.visits;
        sum.nodes.push_back(from.nodes[i]);
        sum.ranks.push_back(rank);
      }
      return true;
    };
    if (!take(c) || !take(to)) return false;
    sort_members(sum);
    if (a != b) {
      for (size_t i = 0; i < sum.nodes.size(); ++i) {
        if (!add_maps(sum, node(sum.nodes[i]), sum.ranks[i])) return false;
      }
    }
    if (sum.call >= 0 && (sum.domain.numel() != node(sum.call).n || sum.cols == 0 ||
                          !sum.domain.has_rows_of(sum.cols, sum.group))) {
      return false;
    }
    if (!agrees(sum, index)) return false;
    to = std::move(sum);
    return true;
  }

  // Whether the cluster is one node of a kind that the device keeps to a kernel of its own.
  bool stays_alone(const Cluster& c) {
    if (c.nodes.size() != 1) return false;
    const Node& only = node(c.nodes[0]);
    if (only.code == kCodeReduction) return !options_.limits.fuse_reductions;
    return only.code == kCodeRow && !options_.limits.fuse_row_functions;
  }

  static void sort_members(Cluster& c) {
    std::vector<std::pair<int, Rank>> members;
    members.reserve(c.nodes.size());
    for (size_t i = 0; i < c.nodes.size(); ++i) members.emplace_back(c.nodes[i], c.ranks[i]);
    std::sort(members.begin(), members.end());
    for (size_t i = 0; i < members.size(); ++i) {
      c.nodes[i] = members[i].first;
      c.ranks[i] = members[i].second;
    }
  }

  // Whether the newest node reads every member's result at the place where it is.
  bool agrees(const Cluster& c, int index) {
    const auto rank_of = [&](int member) {
      const auto at = std::lower_bound(c.nodes.begin(), c.nodes.end(), member);
      if (at == c.nodes.end() || *at != member) return Rank::kOne;
      return c.ranks[static_cast<size_t>(at - c.nodes.begin())];
    };
    const Node& n = node(index);
    const Rank own_rank = rank_of(index);
    const Rank reads = n.code == kCodeReduction ? Rank::kFull : own_rank;
    for (int k = 0; k < n.arity; ++k) {
      const Input& in = n.in[k];
      if (in.node < 0) continue;
      const Rank rank = rank_of(in.node);
      if (rank == Rank::kOne) continue;  // not a member
      const Size row = c.domain.row();
      bool fits;
      if (in.rank == Rank::kFull || in.times == 1) {
        fits = rank == reads;
      } else if (in.rank == Rank::kRow) {
        fits = reads == Rank::kFull && rank == Rank::kRow && in.times == row;
      } else {
        fits = reads == Rank::kFull && rank == Rank::kRow && in.times == row &&
               c.domain.numel() == row;
      }
      if (!fits) return false;
    }
    // What it has to follow in step must walk in the same loops.
    for (size_t i = 0; i < c.nodes.size(); ++i) {
      const int member = c.nodes[i];
      if (in_step_[static_cast<size_t>(member)] != index) continue;
      const bool as_read =
          node(member).code == kCodeReduction && !node(member).out.same_places(n.out);
      if ((as_read ? Rank::kFull : c.ranks[i]) != own_rank) return false;
    }
    return true;
  }

  // Clusters of one level with equal loops that read the same memory read it once.
  void share_loads() {
    if (!options_.fuse) return;
    // Those that later ones may join, by what they read; of one such list the last few are tried.
    std::unordered_map<Load, std::vector<int>, LoadHash> open;
    const auto enter = [&](int c, const Cluster& loads) {
      for_loads(loads, [&](const Region& region) {
        std::vector<int>& list = open[Load(cluster(c), region)];
        if (std::find(list.begin(), list.end(), c) != list.end()) return;
        if (list.size() == kMostTried) list.erase(list.begin());
        list.push_back(c);
      });
    };
    std::vector<int> tried(clusters_.size(), kNone);
    for (int c = 0; c < static_cast<int>(clusters_.size()); ++c) {
      if (cluster(c).nodes.empty() || cluster(c).call >= 0) continue;
      int with = kNone;
      for_loads(cluster(c), [&](const Region& region) {
        if (with != kNone) return;
        const auto list = open.find(Load(cluster(c), region));
        if (list == open.end()) return;
        for (const int other : list->second) {
          if (with != kNone || std::exchange(tried[static_cast<size_t>(other)], c) == c) continue;
          ++graph_.visits;
          if (join(cluster(other), cluster(c), cluster(other).nodes[0])) with = other;
        }
      });
      if (with != kNone) {
        merged_into_[static_cast<size_t>(c)] = with;
        enter(with, std::exchange(cluster(c), Cluster()));
      } else {
        enter(c, cluster(c));
      }
    }
  }

  template <class F>
  void for_loads(const Cluster& c, F&& f) {
    for (const int member : c.nodes) {
      const Node& n = node(member);
      for (int k = 0; k < n.arity; ++k) {
        if (!n.in[k].is_number && n.in[k].rank == Rank::kFull) f(n.in[k].region);
      }
    }
  }

  void mark_stored() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      Node& n = graph_.nodes[i];
      if (!n.live) continue;
      for (int k = 0; k < n.arity; ++k) {
        const int from = n.in[k].node;
        if (from >= 0 && find(from) != find(static_cast<int>(i))) node(from).stored = true;
      }
    }
  }

  Graph& graph_;
  const PlanOptions& options_;
  std::vector<Cluster> clusters_;
  std::vector<int> merged_into_;
  std::vector<int> cluster_of_;
  Hazards hazards_;

  // Of the node that is being placed.
  int placing_ = kNone;
  std::vector<int> dependences_;          // clusters that it follows and may join
  std::vector<int> kept_apart_;           // clusters that it follows and may not join
  std::vector<int> chosen_;               // of dependences_, those that it has joined
  std::vector<int> asked_;                // by cluster: the node that has it in dependences_
  std::vector<int> in_step_;              // by node: the last that had to follow it in step
  std::vector<Readers::Reader> readers_;  // of what it writes
};

}  // namespace

std::vector<Cluster> fuse(Graph& graph, const PlanOptions& options) {
  return Fuser(graph, options).run();
}

}  // namespace hologram::circuit
