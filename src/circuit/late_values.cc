// SPDX-License-Identifier: MIT
// Moves nodes from one cluster to a later one so that less goes through memory.
//
// fuse() puts a node into the cluster of its operands, also where only a later cluster reads its
// result. Two steps of a stencil, for example, are two clusters: the first would compute and store
// what the second needs of the first one's result at its own place. Nothing is computed twice here.
#include <algorithm>

#include "src/circuit/fusion.h"

namespace hologram::circuit {
namespace {

constexpr int kNone = -1;
// Of those who read a result, how many are looked at to see whether a cluster is among them.
constexpr size_t kMostUsers = 16;

class LateValues {
 public:
  LateValues(Graph& graph, const PlanLimits& limits, std::vector<Cluster>& clusters)
      : graph_(graph),
        limits_(limits),
        clusters_(clusters),
        cluster_of_(clusters_by_node(graph, clusters)),
        ranks_(graph.nodes.size(), Rank::kFull),
        exposed_(graph.nodes.size(), 0),
        copies_(graph.nodes.size(), kNone),
        users_(graph.nodes.size()) {
    for (const Cluster& c : clusters) {
      for (size_t k = 0; k < c.nodes.size(); ++k) {
        ranks_[static_cast<size_t>(c.nodes[k])] = c.ranks[k];
      }
      for (const int member : c.exposed) exposed_[static_cast<size_t>(member)] = 1;
    }
    const int count = static_cast<int>(graph.nodes.size());
    for (int i = 0; i < count; ++i) {
      if (is_copy(i)) copies_[static_cast<size_t>(node(i).in[0].node)] = i;
    }
    for (int i = 0; i < count; ++i) {
      if (!node(i).live) continue;
      read_copies(i);
      for (int k = 0; k < node(i).arity; ++k) {
        if (node(i).in[k].node >= 0) users(node(i).in[k].node).push_back(i);
      }
    }
  }

  void run() {
    bool any = false;
    for (int i = static_cast<int>(graph_.nodes.size()); i-- > 0;) {
      if (node(i).live && move(i)) any = true;
    }
    if (any) collect_nodes();
  }

 private:
  Node& node(int i) { return graph_.nodes[static_cast<size_t>(i)]; }
  std::vector<int>& users(int i) { return users_[static_cast<size_t>(i)]; }
  int of(int i) const { return cluster_of_[static_cast<size_t>(i)]; }
  Cluster& cluster(int c) { return clusters_[static_cast<size_t>(c)]; }

  // A node that only copies a result of its cluster to memory, where it stays as it is.
  bool is_copy(int index) {
    const Node& n = node(index);
    return n.live && n.code == kCodeConvert && n.stored && !n.clobbered && n.in[0].node >= 0 &&
           n.in[0].rank == Rank::kFull && n.out.dtype == n.in[0].region.dtype &&
           n.out_n == node(n.in[0].node).out_n && of(index) == of(n.in[0].node);
  }
  // The node whose memory holds the result anyway while later clusters than `from` run; else kNone.
  int in_memory(int index, int from) {
    if (node(index).stored || of(index) != from) return index;
    if (const int copy = copies_[static_cast<size_t>(index)]; copy != kNone) return copy;
    return is_read_by(index, [&](int c) { return c != from; }) ? index : kNone;
  }
  // False where there are too many users to tell.
  template <class F>
  bool is_read_by(int index, F&& accepts) {
    const std::vector<int>& all = users(index);
    const size_t looked_at = std::min(all.size(), kMostUsers);
    graph_.visits += static_cast<int64_t>(looked_at);
    return std::any_of(all.end() - static_cast<std::ptrdiff_t>(looked_at), all.end(),
                       [&](int user) { return accepts(of(user)); });
  }

  // Of an operand that is a result of another cluster than `c` and in no memory: the copy of it
  // that is; else kNone.
  int copy_for(const Input& in, int c) {
    if (in.node < 0 || in.rank != Rank::kFull || node(in.node).stored || of(in.node) == c) {
      return kNone;
    }
    return copies_[static_cast<size_t>(in.node)];
  }
  // Reads copies where there are some, in the loops of its cluster.
  void read_copies(int index) {
    Node& n = node(index);
    Cluster& c = cluster(of(index));
    if (n.call >= 0 || c.call >= 0 || ranks_[static_cast<size_t>(index)] != Rank::kFull) return;
    for (int k = 0; k < n.arity; ++k) {
      Input& in = n.in[k];
      const int copy = copy_for(in, of(index));
      if (copy == kNone || !c.domain.add(node(copy).out.map)) continue;
      in.node = copy;
      in.region = node(copy).out;
    }
  }

  // True where the node is in another cluster now.
  bool move(int index) {
    const Node& n = node(index);
    if (n.call >= 0 || n.code == kCodeReduction || n.code == kCodeRow || n.stored ||
        n.out_n != n.n || exposed_[static_cast<size_t>(index)] != 0) {
      return false;
    }
    const int from = of(index), to = common_cluster_of_users(index);
    if (to == kNone || cluster(to).level <= cluster(from).level || cluster(from).call >= 0 ||
        cluster(to).call >= 0 || cluster(to).domain.numel() != n.n ||
        !takes_operands(n, from, to)) {
      return false;
    }
    Cluster& target = cluster(to);
    Cluster sum;
    if (!join_loops(graph_, limits_, target, single_cluster(graph_, index, limits_), sum) ||
        sum.domain.numel() != n.n) {
      return false;
    }
    for (int k = 0; k < n.arity; ++k) {
      const int copy = copy_for(n.in[k], to);
      if (copy != kNone && !sum.domain.add(node(copy).out.map)) return false;
    }
    sum.nodes = std::move(target.nodes), sum.ranks = std::move(target.ranks);
    sum.exposed = std::move(target.exposed);
    target = std::move(sum);
    cluster_of_[static_cast<size_t>(index)] = to;
    ranks_[static_cast<size_t>(index)] = Rank::kFull;
    read_copies(index);
    for (int k = 0; k < n.arity; ++k) {
      if (n.in[k].node >= 0) users(n.in[k].node).push_back(index);
    }
    return true;
  }

  // Where all who read the result are, each element by element; else kNone.
  int common_cluster_of_users(int index) {
    int common = kNone;
    for (const int user : users(index)) {
      ++graph_.visits;
      const Node& n = node(user);
      if (n.call >= 0 || (common != kNone && of(user) != common) ||
          ranks_[static_cast<size_t>(user)] != Rank::kFull) {
        return kNone;
      }
      for (int k = 0; k < n.arity; ++k) {
        if (n.in[k].node == index && n.in[k].rank != Rank::kFull) return kNone;
      }
      common = of(user);
    }
    return common;
  }

  // Whether all operands are in memory anyway, and `to` reads all but one of them.
  bool takes_operands(const Node& n, int from, int to) {
    int more = 0;
    for (int k = 0; k < n.arity; ++k) {
      const Input& in = n.in[k];
      if (in.is_number) continue;
      if (in.node < 0) {
        if (!graph_.never_written(in.region)) return false;
        ++more;
        continue;
      }
      const int memory = in_memory(in.node, from);
      if (memory == kNone || node(memory).clobbered) return false;
      if (memory != in.node && in.rank != Rank::kFull) return false;
      more += is_read_by(memory, [&](int c) { return c == to; }) ? 0 : 1;
    }
    return more <= 1;
  }

  // Of all clusters anew, in the order of the circuit.
  void collect_nodes() {
    for (Cluster& c : clusters_) {
      c.nodes.clear();
      c.ranks.clear();
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (cluster_of_[i] == kNone) continue;
      cluster(cluster_of_[i]).nodes.push_back(static_cast<int>(i));
      cluster(cluster_of_[i]).ranks.push_back(ranks_[i]);
    }
    std::erase_if(clusters_, [](const Cluster& c) { return c.nodes.empty(); });
  }

  Graph& graph_;
  const PlanLimits& limits_;
  std::vector<Cluster>& clusters_;
  // By node:
  std::vector<int> cluster_of_;
  std::vector<Rank> ranks_;
  std::vector<char> exposed_;            // as Cluster::exposed
  std::vector<int> copies_;              // a node that is_copy() of the result, or kNone
  std::vector<std::vector<int>> users_;  // who reads the result
};

}  // namespace

void settle_late_values(Graph& graph, const PlanLimits& limits, std::vector<Cluster>& clusters) {
  LateValues(graph, limits, clusters).run();
}

}  // namespace hologram::circuit
