// SPDX-License-Identifier: MIT
// Grows clusters node by node: a node joins those of its operands where all their loops agree.
//
// Every dependence either lies within one cluster, where instructions keep the circuit's order, or
// goes from a lower level to a higher one. A cluster of a lower level may be lifted to join a
// higher one as long as nothing below has to wait for it.
#include "src/circuit/fusion.h"

#include <algorithm>
#include <climits>
#include <map>

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

class Fuser {
 public:
  Fuser(Graph& graph, const PlanOptions& options)
      : graph_(graph), options_(options), cluster_of_(graph.nodes.size(), kNone) {}

  std::vector<Cluster> run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (graph_.nodes[i].live) place(static_cast<int>(i));
    }
    share_loads();
    mark_stored();
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
    while (c >= 0 && merged_into_[static_cast<size_t>(c)] != kNone) {
      c = merged_into_[static_cast<size_t>(c)];
    }
    return cluster_of_[static_cast<size_t>(i)] = c;
  }
  Cluster& cluster(int c) { return clusters_[static_cast<size_t>(c)]; }

  struct Dependence {
    int cluster;
    bool joinable;
  };

  void depend(int on, bool joinable) {
    if (!node(on).live) {
      for (const Order& order : node(on).order) depend(order.node, joinable && order.in_step);
      return;
    }
    const int c = find(on);
    for (Dependence& d : dependences_) {
      if (d.cluster == c) {
        d.joinable = d.joinable && joinable;
        return;
      }
    }
    dependences_.push_back({c, joinable});
  }

  void place(int index) {
    find_dependences(index);
    Cluster grown;
    start(grown, node(index), index);
    chosen_.clear();
    if (options_.fuse) {
      const Cluster own = grown;
      grown.level = lowest_level();
      // Everything at its level that is joinable must be joined, or the node moves up.
      while (!join_level(grown, index)) {
        const int higher = grown.level + 1;
        grown = own;
        grown.level = higher;
      }
      lift(grown, index);
    } else {
      grown.level = static_cast<int>(clusters_.size());
    }
    const int level = grown.level;
    cluster_of_[static_cast<size_t>(index)] = settle(std::move(grown));
    for (const Dependence& d : dependences_) {
      if (std::find(chosen_.begin(), chosen_.end(), d.cluster) != chosen_.end()) continue;
      Cluster& c = cluster(d.cluster);
      c.nearest_dependent = std::min(c.nearest_dependent, level);
    }
  }

  void find_dependences(int index) {
    const Node& n = node(index);
    dependences_.clear();
    for (int k = 0; k < n.arity; ++k) {
      if (n.in[k].node >= 0) depend(n.in[k].node, true);
    }
    for (const Order& order : n.order) depend(order.node, order.in_step);
  }

  int lowest_level() {
    int level = 0;
    for (const Dependence& d : dependences_) {
      level = std::max(level, cluster(d.cluster).level + (d.joinable ? 0 : 1));
    }
    return level;
  }

  // Joins the joinable clusters of grown's level; false where one of them does not fit.
  bool join_level(Cluster& grown, int index) {
    chosen_.clear();
    for (const Dependence& d : dependences_) {
      if (!d.joinable || cluster(d.cluster).level != grown.level) continue;
      if (!join(grown, cluster(d.cluster), index)) return false;
      chosen_.push_back(d.cluster);
    }
    return true;
  }

  // Joins joinable clusters of lower levels for which nothing waits below; the others are read from
  // memory.
  void lift(Cluster& grown, int index) {
    for (const Dependence& d : dependences_) {
      const Cluster& c = cluster(d.cluster);
      if (!d.joinable || c.level >= grown.level || c.nearest_dependent <= grown.level) continue;
      if (join(grown, c, index)) chosen_.push_back(d.cluster);
    }
  }

  // Puts the cluster in the place of those that it has joined; returns its number.
  int settle(Cluster grown) {
    for (const int c : chosen_) {
      grown.nearest_dependent = std::min(grown.nearest_dependent, cluster(c).nearest_dependent);
    }
    if (chosen_.empty()) {
      clusters_.push_back(std::move(grown));
      merged_into_.push_back(kNone);
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
  void start(Cluster& own, const Node& n, int index) {
    own.domain = Domain(n.n);
    own.nearest_dependent = INT_MAX;
    own.widest = width(n);
    if (n.call >= 0) {
      own.call = index;
      own.cols = graph_.calls[static_cast<size_t>(n.call)].result_cols;
      own.nodes.push_back(index);
      own.ranks.push_back(Rank::kFull);
      return;
    }
    if (n.row > 0) {
      own.whole_rows = true;
      own.domain.set_row(n.row);
    }
    own.nodes.push_back(index);
    own.ranks.push_back(n.code == kCodeFold ? Rank::kRow : Rank::kFull);
    add_maps(own, n, own.ranks.back());
  }

  // Cuts the loops so that every operand of the node steps evenly. rank: of a node whose elements
  // are rows of the cluster.
  static bool add_maps(Cluster& c, const Node& n, Rank rank) {
    const bool rows = rank == Rank::kRow && n.code != kCodeFold;
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
    if (static_cast<int>(to.nodes.size() + c.nodes.size()) > options_.max_instrs) return false;
    if (to.call >= 0 && c.call >= 0) return false;
    Cluster sum;
    sum.call = std::max(to.call, c.call);
    sum.cols = std::max(to.cols, c.cols);
    sum.level = to.level;
    sum.nearest_dependent = to.nearest_dependent;
    sum.whole_rows = to.whole_rows || c.whole_rows;
    sum.widest = std::max(to.widest, c.widest);
    const int64_t a = to.domain.numel(), b = c.domain.numel();
    const int64_t row = std::max(to.domain.row(), c.domain.row());
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
    if (sum.whole_rows && sum.domain.row() * sum.widest > kMaxRowBytes) return false;
    if (sum.whole_rows && sum.domain.row() > kMaxRowBytes / 4) return false;
    // Members in the order of the circuit, their ranks in the common domain.
    const auto take = [&](const Cluster& from) {
      for (size_t i = 0; i < from.nodes.size(); ++i) {
        Rank rank = from.ranks[i];
        if (from.domain.numel() != sum.domain.numel()) {
          if (rank != Rank::kFull) return false;
          rank = Rank::kRow;
        }
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
                          !sum.domain.has_rows_of(sum.cols))) {
      return false;
    }
    if (!agrees(sum, index)) return false;
    to = std::move(sum);
    return true;
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
    const Rank own = rank_of(index);
    const Rank reads = n.code == kCodeFold ? Rank::kFull : own;
    for (int k = 0; k < n.arity; ++k) {
      const Input& in = n.in[k];
      if (in.node < 0) continue;
      const Rank rank = rank_of(in.node);
      if (rank == Rank::kOne) continue;  // not a member
      const int64_t row = c.domain.row();
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
    for (const Order& order : n.order) {
      if (!order.in_step || !node(order.node).live) continue;
      const Rank rank = rank_of(order.node);
      if (rank == Rank::kOne) continue;
      const Rank walks =
          node(order.node).code == kCodeFold && !node(order.node).out.same_places(n.out)
              ? Rank::kFull
              : rank;
      if (walks != own) return false;
    }
    return true;
  }

  // Clusters of one level with equal loops that read the same memory read it once.
  void share_loads() {
    if (!options_.fuse) return;
    std::map<uint32_t, std::vector<size_t>> readers;  // by slot, ascending
    for (size_t c = 0; c < clusters_.size(); ++c) {
      for_loads(clusters_[c], [&](const Region& region) {
        std::vector<size_t>& of_slot = readers[region.slot];
        if (of_slot.empty() || of_slot.back() != c) of_slot.push_back(c);
      });
    }
    for (const auto& [slot, of_slot] : readers) {
      for (size_t i = 0; i < of_slot.size(); ++i) {
        for (size_t k = i + 1; k < of_slot.size(); ++k) try_share(of_slot[i], of_slot[k], slot);
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

  void try_share(size_t a, size_t b, uint32_t slot) {
    const Cluster& one = clusters_[a];
    const Cluster& other = clusters_[b];
    if (one.nodes.empty() || other.nodes.empty() || other.level != one.level || one.call >= 0 ||
        other.call >= 0 || other.whole_rows != one.whole_rows ||
        other.domain.numel() != one.domain.numel()) {
      return;
    }
    bool shares = false;
    for_loads(one, [&](const Region& x) {
      if (x.slot != slot || shares) return;
      for_loads(other, [&](const Region& y) { shares = shares || x == y; });
    });
    if (!shares) return;
    Cluster sum = one;
    if (!join(sum, other, sum.nodes[0])) return;
    clusters_[a] = std::move(sum);
    clusters_[b].nodes.clear();
    merged_into_[b] = static_cast<int>(a);
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
  std::vector<Dependence> dependences_;
  std::vector<int> chosen_;
};

}  // namespace

std::vector<Cluster> fuse(Graph& graph, const PlanOptions& options) {
  return Fuser(graph, options).run();
}

}  // namespace hologram::circuit
