// SPDX-License-Identifier: MIT
// Moves values between clusters so that less goes through memory.
//
// A node joins the cluster of its operands, though it may be needed in a later one alone: two steps
// of a stencil are two clusters, and what the second computes of the first one's result at its own
// place would be stored by the first.
#include <algorithm>

#include "src/circuit/fusion.h"

namespace hologram::circuit {
namespace {

constexpr int kNone = -1;

class LateValues {
 public:
  LateValues(Graph& graph, const PlanLimits& limits, std::vector<Cluster>& clusters)
      : graph_(graph),
        limits_(limits),
        clusters_(clusters),
        cluster_of_(clusters_by_node(graph, clusters)),
        users_(graph.nodes.size()),
        exposed_(graph.nodes.size(), 0) {
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& n = graph.nodes[i];
      for (int k = 0; n.live && k < n.arity; ++k) {
        if (n.in[k].node >= 0) users(n.in[k].node).push_back(static_cast<int>(i));
      }
    }
    for (const Cluster& c : clusters) {
      for (const int member : c.exposed) exposed_[static_cast<size_t>(member)] = 1;
    }
  }

  void run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (graph_.nodes[i].live) read_copies(static_cast<int>(i));
    }
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      if (graph_.nodes[i].live) move(static_cast<int>(i));
    }
    std::erase_if(clusters_, [](const Cluster& c) { return c.nodes.empty(); });
  }

 private:
  Node& node(int i) { return graph_.nodes[static_cast<size_t>(i)]; }
  std::vector<int>& users(int i) { return users_[static_cast<size_t>(i)]; }
  int of(int i) const { return cluster_of_[static_cast<size_t>(i)]; }
  Cluster& cluster(int c) { return clusters_[static_cast<size_t>(c)]; }

  Rank rank(int i) {
    const Cluster& c = cluster(of(i));
    const auto at = std::lower_bound(c.nodes.begin(), c.nodes.end(), i) - c.nodes.begin();
    return c.ranks[static_cast<size_t>(at)];
  }

  void read_copies(int index) {
    Node& n = node(index);
    for (int k = 0; k < n.arity; ++k) {
      Input& in = n.in[k];
      if (in.node < 0 || in.rank != Rank::kFull || node(in.node).stored ||
          of(in.node) == of(index)) {
        continue;
      }
      for (const int user : users(in.node)) {
        ++graph_.visits;
        const Node& copy = node(user);
        const bool serves = copy.code == kCodeConvert && copy.stored && !copy.clobbered &&
                            copy.out.dtype == in.region.dtype &&
                            copy.out_n == node(in.node).out_n && of(user) == of(in.node);
        if (!serves) continue;
        in.node = user;
        in.region = copy.out;
        users(user).push_back(index);
        break;
      }
    }
  }

  void move(int index) {
    const Node& n = node(index);
    if (n.call >= 0 || n.code == kCodeReduction || n.code == kCodeRow || n.stored ||
        n.out_n != n.n || exposed_[static_cast<size_t>(index)] != 0) {
      return;
    }
    const int from = of(index), to = common_cluster_of_users(index);
    if (to == kNone || cluster(to).level <= cluster(from).level || cluster(from).call >= 0 ||
        cluster(to).call >= 0 || cluster(to).domain.numel() != n.n ||
        !takes_operands(n, from, to)) {
      return;
    }
    Cluster& target = cluster(to);
    Cluster sum;
    if (!join_loops(graph_, limits_, target, single_cluster(graph_, index, limits_), sum) ||
        sum.domain.numel() != n.n) {
      return;
    }
    sum.nodes = std::move(target.nodes), sum.ranks = std::move(target.ranks);
    sum.exposed = std::move(target.exposed);
    const auto place = [index](std::vector<int>& nodes) {
      return std::lower_bound(nodes.begin(), nodes.end(), index) - nodes.begin();
    };
    Cluster& source = cluster(from);
    const auto old = place(source.nodes);
    source.nodes.erase(source.nodes.begin() + old);
    source.ranks.erase(source.ranks.begin() + old);
    const auto now = place(sum.nodes);
    sum.nodes.insert(sum.nodes.begin() + now, index);
    sum.ranks.insert(sum.ranks.begin() + now, Rank::kFull);
    target = std::move(sum);
    cluster_of_[static_cast<size_t>(index)] = to;
    read_copies(index);
  }

  // Where all who read the result are, each element by element; else kNone.
  int common_cluster_of_users(int index) {
    int common = kNone;
    for (const int user : users(index)) {
      ++graph_.visits;
      const Node& n = node(user);
      bool reads = false;  // not so where it reads a copy now
      for (int k = 0; k < n.arity; ++k) {
        if (n.in[k].node != index) continue;
        if (n.in[k].rank != Rank::kFull) return kNone;
        reads = true;
      }
      if (!reads) continue;
      if (n.call >= 0 || (common != kNone && of(user) != common) || rank(user) != Rank::kFull) {
        return kNone;
      }
      common = of(user);
    }
    return common;
  }

  // Whether the operands are in memory anyway until `to` runs, which reads all but one of them.
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
      if (node(in.node).clobbered || !is_stored(in.node, from)) return false;
      more += is_read_by(in.node, to) ? 0 : 1;
    }
    return more <= 1;
  }
  bool is_read_by(int index, int c) {
    return std::any_of(users(index).begin(), users(index).end(),
                       [&](int user) { return of(user) == c; });
  }
  // A result of cluster `from`, or of an earlier one.
  bool is_stored(int index, int from) {
    return of(index) != from || node(index).stored ||
           std::any_of(users(index).begin(), users(index).end(),
                       [&](int user) { return of(user) != from; });
  }

  Graph& graph_;
  const PlanLimits& limits_;
  std::vector<Cluster>& clusters_;
  std::vector<int> cluster_of_;
  std::vector<std::vector<int>> users_;  // by node: who reads its result; some read a copy now
  std::vector<char> exposed_;
};

}  // namespace

std::vector<int> clusters_by_node(const Graph& graph, const std::vector<Cluster>& clusters) {
  std::vector<int> of(graph.nodes.size(), kNone);
  for (size_t c = 0; c < clusters.size(); ++c) {
    for (const int member : clusters[c].nodes) {
      of[static_cast<size_t>(member)] = static_cast<int>(c);
    }
  }
  return of;
}

void settle_late_values(Graph& graph, const PlanLimits& limits, std::vector<Cluster>& clusters) {
  LateValues(graph, limits, clusters).run();
}

}  // namespace hologram::circuit
