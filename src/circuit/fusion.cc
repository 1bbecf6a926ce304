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
#include <optional>
#include <unordered_map>
#include <utility>

namespace hologram::circuit {
namespace {

constexpr int kNone = -1;

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
constexpr int64_t kPage = 4096;
// Smaller arrays stay in the second cache, so a line that left the first one is soon back.
constexpr int64_t kLeastCrowding = int64_t{1} << 20;
// Of those who read the same memory and could not be joined: how many later ones try to join.
constexpr size_t kMostTried = 8;

class Fuser {
 public:
  Fuser(Graph& graph, const PlanOptions& options)
      : graph_(graph),
        options_(options),
        cluster_of_(graph.nodes.size(), kNone),
        ranks_(graph.nodes.size(), Rank::kFull),
        hazards_(graph) {}

  std::vector<Cluster> run() {
    find_exposed();
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (graph_.nodes[i].live) place(static_cast<int>(i));
    }
    share_loads();
    graph_.visits +=
        hazards_.written.visits() + hazards_.touched.visits() + hazards_.readers.visits();
    std::vector<Cluster> result;
    for (size_t c = 0; c < clusters_.size(); ++c) {
      if (clusters_[c].nodes.empty()) continue;
      Cluster& kept = result.emplace_back(std::move(clusters_[c]));
      for (const int member : kept.nodes) kept.ranks.push_back(rank(member));
    }
    std::stable_sort(result.begin(), result.end(),
                     [](const Cluster& a, const Cluster& b) { return a.level < b.level; });
    return result;
  }

 private:
  Node& node(int i) { return graph_.nodes[static_cast<size_t>(i)]; }
  // Of a node's result, in the loops of its cluster.
  Rank& rank(int i) { return ranks_[static_cast<size_t>(i)]; }
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
    if (index / options_.segment != segment_) {
      segment_ = index / options_.segment;
      floor_ = highest_ + 1;
    }
    placing_ = index;
    dependences_.clear();
    kept_apart_.clear();
    in_step_.clear();
    chosen_.clear();
    Cluster grown = start(index);
    if (options_.fuse) {
      grown.level = find_dependences(index);
      // Everything at its level that is joinable must be joined, or the node moves up.
      if (!join_level(grown, index)) {
        const int higher = grown.level + 1;
        grown = start(index);
        grown.level = higher;
        chosen_.clear();
      }
      for (const int c : kept_apart_) await(c, grown.level);
      lift(grown, index);
    } else {
      grown.level = static_cast<int>(clusters_.size());
    }
    const int level = grown.level;
    highest_ = std::max(highest_, level);
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
    int lowest = floor_;
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
        in_step_.push_back(same);
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
        in_step_.push_back(reader.node);
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
      if (!join(grown, c, index)) return false;
    }
    return true;
  }

  // Joins clusters of lower levels for which nothing waits below; the others are read from memory.
  void lift(Cluster& grown, int index) {
    for (const int c : dependences_) {
      const int level = cluster(c).level;
      if (level < floor_ || level >= grown.level || is_awaited(c, grown.level)) continue;
      join(grown, c, index);
    }
  }

  // Whether something that may be at this level or below has to come after the cluster.
  bool is_awaited(int c, int level) {
    if (cluster(c).nearest_dependent <= level) return true;
    for (const int member : cluster(c).exposed) {
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

  // Sets exposed_.
  void find_exposed() {
    Greatest read(graph_.tree_nodes);  // in part, by a later node
    exposed_.assign(graph_.nodes.size(), 0);
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      const Node& n = graph_.nodes[i];
      if (!n.live) continue;
      exposed_[i] = static_cast<char>(n.clobbered);
      graph_.for_writes(n, [&](const Region& region, bool) {
        if (exposed_[i] != 0) return;
        const bool is_written =
            n.call >= 0 && graph_.newest.most(region.cells) > static_cast<int>(i);
        exposed_[i] = static_cast<char>(is_written || read.most(region.cells) != Greatest::kNone);
      });
      graph_.for_reads(n, [&](const Region& region, int k) {
        if (n.call >= 0 || n.in[k].node < 0) read.raise(region.cells, 0);
      });
    }
    graph_.visits += read.visits();
  }

  // Puts the nodes of a cluster, which is then none, among those of another, whose loops are those
  // of both now.
  void move_nodes(Cluster& from, Cluster& to) {
    if (from.domain.numel() != to.domain.numel()) {
      for (const int member : from.nodes) rank(member) = Rank::kRow;
    }
    std::vector<int>& nodes = to.nodes;
    if (nodes.size() < from.nodes.size()) nodes.swap(from.nodes);
    graph_.visits += static_cast<int64_t>(from.nodes.size());
    const auto middle = nodes.insert(nodes.end(), from.nodes.begin(), from.nodes.end());
    std::inplace_merge(nodes.begin(), middle, nodes.end());
    to.exposed.insert(to.exposed.end(), from.exposed.begin(), from.exposed.end());
    from.nodes.clear();
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
    const int newest = grown.nodes[0];
    if (node(newest).n != grown.domain.numel()) rank(newest) = Rank::kRow;
    const int target = chosen_[0];
    for (const int c : chosen_) {
      if (c != target) merged_into_[static_cast<size_t>(c)] = target;
      move_nodes(cluster(c), grown);
    }
    cluster(target) = std::move(grown);
    return target;
  }

  Cluster start(int index) {
    Cluster single = single_cluster(graph_, index, options_.limits);
    if (exposed_[static_cast<size_t>(index)] != 0) single.exposed.push_back(index);
    rank(index) = own_rank(node(index));
    return single;
  }

  // Adds a cluster to the growing one, which has the nodes of chosen_, too, or leaves it as it is.
  bool join(Cluster& grown, int c, int index) {
    Cluster sum;
    if (!join_loops(graph_, options_.limits, grown, cluster(c), sum)) return false;
    const auto is_of_sum = [&](int of) {
      return of == c || std::find(chosen_.begin(), chosen_.end(), of) != chosen_.end();
    };
    // Those that are elements of rows now walk along them.
    const auto takes = [&](const Cluster& whole, const Cluster& part) {
      return sum.domain.numel() == whole.domain.numel() || add_rows(graph_, part, sum);
    };
    if (!takes(cluster(c), cluster(c)) || !takes(grown, grown)) return false;
    for (const int part : chosen_) {
      if (!takes(grown, cluster(part))) return false;
    }
    if (!fits_call(graph_, sum) || !agrees(sum, index, is_of_sum)) return false;
    sum.nodes = std::move(grown.nodes);
    sum.exposed = std::move(grown.exposed);
    grown = std::move(sum);
    chosen_.push_back(c);
    return true;
  }

  // The same of two clusters of one level: all but the nodes of both, or nothing.
  std::optional<Cluster> joined(int to, int c) {
    Cluster sum;
    const Cluster &a = cluster(to), &b = cluster(c);
    if (!join_loops(graph_, options_.limits, a, b, sum)) return std::nullopt;
    for (const Cluster* side : {&a, &b}) {
      if (sum.domain.numel() == side->domain.numel()) continue;
      if (!add_rows(graph_, *side, sum)) return std::nullopt;
    }
    const auto is_of_sum = [&](int of) { return of == to || of == c; };
    if (!fits_call(graph_, sum) || !agrees(sum, a.nodes[0], is_of_sum)) return std::nullopt;
    return sum;
  }

  // Whether the newest node reads the result of every member at the place where it is. is_of_sum:
  // of a cluster, whether its nodes are members.
  template <class F>
  bool agrees(const Cluster& sum, int index, F&& is_of_sum) {
    const auto rank_of = [&](int member) {
      const bool is_new = member == placing_;
      const int of = is_new ? kNone : find(member);
      if (!is_new && !is_of_sum(of)) return Rank::kOne;
      const Size numel = is_new ? node(member).n : cluster(of).domain.numel();
      return numel == sum.domain.numel() ? rank(member) : Rank::kRow;
    };
    const Node& n = node(index);
    const Rank walks = rank_of(index);
    const Rank reads = n.code == kCodeReduction ? Rank::kFull : walks;
    for (int k = 0; k < n.arity; ++k) {
      const Input& in = n.in[k];
      if (in.node < 0) continue;
      const Rank rank = rank_of(in.node);
      if (rank == Rank::kOne) continue;  // not a member
      const Size row = sum.domain.row();
      bool fits;
      if (in.rank == Rank::kFull || in.times == 1) {
        fits = rank == reads;
      } else if (in.rank == Rank::kRow) {
        fits = reads == Rank::kFull && rank == Rank::kRow && in.times == row;
      } else {
        fits = reads == Rank::kFull && rank == Rank::kRow && in.times == row &&
               sum.domain.numel() == row;
      }
      if (!fits) return false;
    }
    // What it has to follow in step must walk in the same loops.
    return std::all_of(in_step_.begin(), in_step_.end(), [&](int member) {
      const Rank walked = rank_of(member);
      if (walked == Rank::kOne) return true;
      const bool as_read =
          node(member).code == kCodeReduction && !node(member).out.same_places(n.out);
      return (as_read ? Rank::kFull : walked) == walks;
    });
  }

  // Clusters of one level with equal loops that read the same memory read it once.
  void share_loads() {
    if (!options_.fuse) return;
    placing_ = kNone;
    in_step_.clear();
    // Those that later ones may join, by what they read; of one such list the last few are tried.
    std::unordered_map<Load, std::vector<int>, LoadHash> open;
    const auto enter = [&](int c, const std::vector<int>& members) {
      for_loads(members, [&](const Region& region) {
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
      std::optional<Cluster> sum;
      for_loads(cluster(c).nodes, [&](const Region& region) {
        if (with != kNone) return;
        const auto list = open.find(Load(cluster(c), region));
        if (list == open.end()) return;
        for (const int other : list->second) {
          if (with != kNone || std::exchange(tried[static_cast<size_t>(other)], c) == c) continue;
          sum = joined(other, c);
          if (!sum.has_value()) continue;
          if (crowds_cache(cluster(other).nodes, cluster(c).nodes)) {
            sum.reset();
          } else {
            with = other;
          }
        }
      });
      const std::vector<int> members = cluster(c).nodes;
      if (with != kNone) {
        move_nodes(cluster(with), *sum);
        move_nodes(cluster(c), *sum);
        cluster(with) = *std::move(sum);
        merged_into_[static_cast<size_t>(c)] = with;
      }
      enter(with != kNone ? with : c, members);
    }
  }

  // Calls f(region) for memory that is worth being read with others who read it. What is written
  // between the elements of others, in the same lines of a cache, counts as well.
  template <class F>
  void for_loads(const std::vector<int>& members, F&& f) {
    for (const int member : members) {
      const Node& n = node(member);
      for (int k = 0; k < n.arity; ++k) {
        if (!n.in[k].is_number && n.in[k].rank == Rank::kFull) f(of_line(n.in[k].region));
      }
      if (n.call < 0 && shares_lines(n.out)) f(of_line(n.out));
    }
  }
  // Whether two clusters together walk large arrays in more places at once than the device allows.
  // On a processor these may all fall into one set of its first cache, as rows of 1,024 float64
  // above each other do, and it prefetches few streams. Then reading the shared memory twice costs
  // less.
  bool crowds_cache(const std::vector<int>& a, const std::vector<int>& b) const {
    if (options_.limits.shared_places == SIZE_MAX) return false;
    graph_.visits += static_cast<int64_t>(a.size() + b.size());
    std::vector<std::pair<uint32_t, Size>> places;
    const auto add = [&](const Region& region) {
      if (region.map.is_flat() || region.map.parts[0].stride != 1) return;
      if (region.map.highest() * region.size() < kLeastCrowding) return;
      places.emplace_back(region.slot, region.offset);
    };
    for (const std::vector<int>* members : {&a, &b}) {
      for (const int member : *members) {
        const Node& n = graph_.nodes[static_cast<size_t>(member)];
        for (int k = 0; k < n.arity; ++k) {
          if (!n.in[k].is_number && n.in[k].node < 0) add(n.in[k].region);
        }
        if (n.call < 0) add(n.out);
      }
    }
    if (places.size() <= options_.limits.shared_places) return false;
    std::sort(places.begin(), places.end());
    size_t count = 1;
    for (size_t i = 1; i < places.size(); ++i) {
      const auto& [slot, at] = places[i];
      count += slot != places[i - 1].first || places[i - 1].second + kPage <= at ? 1 : 0;
    }
    return count > options_.limits.shared_places;
  }
  static bool shares_lines(const Region& region) {
    constexpr int64_t kLine = 64;
    if (region.map.is_flat() || region.map.is_one()) return false;
    const Size step = region.map.parts[0].stride * region.size();
    return step > region.size() && step <= kLine;
  }
  // The same for all that go by the same steps and share lines.
  static Region of_line(Region region) {
    if (!shares_lines(region)) return region;
    const Size step = region.map.parts[0].stride * region.size();
    region.offset = region.offset - region.offset % step;
    return region;
  }

  Graph& graph_;
  const PlanOptions& options_;
  std::vector<Cluster> clusters_;
  std::vector<int> merged_into_;
  std::vector<int> cluster_of_;
  std::vector<Rank> ranks_;    // by node
  std::vector<char> exposed_;  // by node, as Cluster::exposed
  Hazards hazards_;
  int segment_ = 0;   // see PlanOptions
  int floor_ = 0;     // its lowest level
  int highest_ = -1;  // of the levels so far

  // Of the node that is being placed.
  int placing_ = kNone;
  std::vector<int> dependences_;          // clusters that it follows and may join
  std::vector<int> kept_apart_;           // clusters that it follows and may not join
  std::vector<int> chosen_;               // of dependences_, those that it has joined
  std::vector<int> asked_;                // by cluster: the node that has it in dependences_
  std::vector<int> in_step_;              // nodes that it has to follow in step
  std::vector<Readers::Reader> readers_;  // of what it writes
};

}  // namespace

std::vector<Cluster> fuse(Graph& graph, const PlanOptions& options) {
  std::vector<Cluster> clusters = Fuser(graph, options).run();
  if (options.fuse) settle_late_values(graph, options.limits, clusters);
  const std::vector<int> cluster_of = clusters_by_node(graph, clusters);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& n = graph.nodes[i];
    for (int k = 0; n.live && k < n.arity; ++k) {
      const int from = n.in[k].node;
      if (from < 0 || cluster_of[static_cast<size_t>(from)] == cluster_of[i]) continue;
      graph.nodes[static_cast<size_t>(from)].stored = true;
    }
  }
  return clusters;
}

}  // namespace hologram::circuit
