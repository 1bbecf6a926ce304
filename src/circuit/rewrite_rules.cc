// SPDX-License-Identifier: MIT
// Rewrites the graph: laws, common subexpressions, copies and round trips of conversions.
//
// A node that equals something else is replaced in those who read it. Only what stays in place all
// through the circuit may stand for it: a result that no op writes over, memory that no op
// writes. A node whose own memory is wanted becomes a copy.
#include "src/circuit/rewrite_rules.h"

#include <bit>
#include <unordered_map>

#include "hologram/op.h"
#include "src/circuit/iteration_domain.h"

namespace hologram::circuit {
namespace {

constexpr Law kLaws[] = {
#define EXACT LawTag::kExact
#define QUIET LawTag::kQuiet
#define FLOATS LawTypes::kFloats
#define INTEGERS LawTypes::kIntegers
#define SIGNED LawTypes::kSigned
#define BOTH LawTypes::kBoth
#define HOLOGRAM_NEUTRAL(op, operand, number, types, tag) \
  {LawKind::kNeutral, OpId::op, OpId::op, operand, NumberClass::number, types, tag},
#define HOLOGRAM_SAME(op, types, tag) \
  {LawKind::kSame, OpId::op, OpId::op, 0, NumberClass::kOther, types, tag},
#define HOLOGRAM_PROJECTION(op, types, tag) \
  {LawKind::kProjection, OpId::op, OpId::op, 0, NumberClass::kOther, types, tag},
#define HOLOGRAM_INVOLUTION(op, types, tag) \
  {LawKind::kInvolution, OpId::op, OpId::op, 0, NumberClass::kOther, types, tag},
#define HOLOGRAM_ABSORBS(outer, inner, types, tag) \
  {LawKind::kAbsorbs, OpId::outer, OpId::inner, 0, NumberClass::kOther, types, tag},
#include "src/circuit/rewrite_rules.def"
#undef EXACT
#undef QUIET
#undef FLOATS
#undef INTEGERS
#undef SIGNED
#undef BOTH
};

// Whether every NaN the op gives is a quiet one, whatever it is given.
bool quiets(OpId op) { return (op_info(op).traits & kPassesNan) == 0; }

// Whether every value of `from` is one of `to`.
bool holds_all(Dtype to, Dtype from) {
  if (to == from || from == Dtype::kBool) return true;
  if (to == Dtype::kBool) return false;
  const auto digits = [](Dtype d) {
    switch (d) {
      case Dtype::kUInt8:
        return 8;
      case Dtype::kInt8:
        return 7;
      case Dtype::kInt16:
        return 15;
      case Dtype::kInt32:
        return 31;
      case Dtype::kInt64:
        return 63;
      case Dtype::kFloat16:
        return 11;
      case Dtype::kBFloat16:
        return 8;
      case Dtype::kFloat32:
        return 24;
      default:
        return 53;
    }
  };
  if (is_floating(from)) {
    return to == Dtype::kFloat64 || (to == Dtype::kFloat32 && from != Dtype::kFloat64);
  }
  if (is_floating(to)) return digits(to) >= digits(from);
  return digits(to) >= digits(from) && to != Dtype::kUInt8;
}

class Rewriter {
 public:
  Rewriter(Graph& graph, const PlanOptions& options)
      : graph_(graph), options_(options), equal_(graph.nodes.size()) {}

  void run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      Node& node = graph_.nodes[i];
      ++graph_.visits;
      if (node.call >= 0) continue;
      for (int k = 0; k < node.arity; ++k) replace(node, k);
      std::optional<Input> same = by_law(node);
      if (!same) same = by_copy(node);
      if (!same) same = by_round_trip(node);
      if (!same) same = by_recurrence(node, static_cast<int>(i));
      if (!same) continue;
      become_copy(node, *same);
      equal_[i] = *same;
    }
  }

 private:
  Node& at(int i) { return graph_.nodes[static_cast<size_t>(i)]; }

  // Something that may stand for a node's result, read element by element in the node's own order;
  // empty where it may change before the last reader.
  std::optional<Input> lasting(const Input& input) const {
    if (input.is_number) return input;
    if (input.node >= 0) {
      if (graph_.nodes[static_cast<size_t>(input.node)].clobbered) return std::nullopt;
      return input;
    }
    if (!graph_.never_written(input.region)) return std::nullopt;
    return input;
  }

  // Puts in place of operand k what its node was found to equal.
  void replace(Node& node, int k) {
    const Input before = node.in[k];
    if (before.is_number || before.node < 0) return;
    const std::optional<Input>& same = equal_[static_cast<size_t>(before.node)];
    if (!same) return;
    Input after = *same;
    if (after.is_number) {
      // A number can stand only where it is in the type computed in.
      if (after.dtype != node.compute || node.code == kCodeReduction || node.code == kCodeRow ||
          at(before.node).out.dtype != after.dtype) {
        return;
      }
    } else if (before.rank != Rank::kFull && before.times > 1) {
      if (after.rank == Rank::kFull) {
        Map map;
        if (before.rank == Rank::kRow) {
          if (after.region.map.count + 1 > kTapeDims) return;
          map.push(before.times, 0);
          for (int i = 0; i < after.region.map.count; ++i) {
            map.push(after.region.map.parts[static_cast<size_t>(i)].size,
                     after.region.map.parts[static_cast<size_t>(i)].stride);
          }
        } else {
          map = after.region.map;
        }
        after.region.map = map;
        after.rank = before.rank;
        after.times = before.times;
      } else if (after.rank == Rank::kRow) {
        return;
      } else {
        after.times = node.n;
      }
    }
    node.in[k] = after;
    if (!loops_agree(node)) node.in[k] = before;
  }

  static bool loops_agree(const Node& node) {
    Domain domain(node.n);
    if (node.row > 0 && !domain.set_row(node.row)) return false;
    for (int k = 0; k < node.arity; ++k) {
      const Input& in = node.in[k];
      if (in.is_number || in.rank == Rank::kOne) continue;
      if (!domain.add(in.region.map)) return false;
    }
    return node.code == kCodeReduction ? domain.add_rows(node.out.map) : domain.add(node.out.map);
  }

  // The node keeps its memory and gets its contents from `same`.
  static void become_copy(Node& node, const Input& same) {
    Node copy = node;
    copy.code = kCodeConvert;
    copy.attr = 0;
    copy.parameter = 0;
    copy.arity = 1;
    copy.in[0] = same;
    copy.compute = same.is_number ? same.dtype : same.region.dtype;
    copy.n = node.out_n;
    copy.row = 0;
    if (loops_agree(copy)) node = copy;
  }

  static bool same_input(const Input& a, const Input& b) {
    if (a.is_number != b.is_number) return false;
    if (a.is_number) {
      return a.dtype == b.dtype && (a.immediate == b.immediate ||
                                    (a.number == b.number && a.number != NumberClass::kOther));
    }
    return a.node == b.node && a.rank == b.rank && a.times == b.times && a.region == b.region &&
           a.newest == b.newest;
  }

  // Whether an operand is exactly what the node hands on: nothing is converted on the way.
  static bool passes(const Node& node, const Input& input) {
    return !input.is_number && input.region.dtype == node.compute && node.out.dtype == node.compute;
  }

  bool is_quiet(const Node& node, const Input& input) {
    if (!is_floating(node.compute)) return true;
    if (input.node < 0) return false;
    const Node& from = at(input.node);
    if (from.is_op()) return quiets(from.op());
    return from.code == kCodeConvert ? from.compute != from.out.dtype : true;
  }

  bool allowed(const Law& law, const Node& node, const Input& kept) {
    if (!law.covers(node.compute)) return false;
    if (is_floating(node.compute) && !options_.float_laws) return false;
    return law.tag == LawTag::kExact || is_quiet(node, kept);
  }

  std::optional<Input> by_law(Node& node) {
    if (!node.is_op()) return std::nullopt;
    for (const Law& law : kLaws) {
      if (law.op != node.op()) continue;
      switch (law.kind) {
        case LawKind::kNeutral: {
          const Input& number = node.in[law.operand];
          const Input& kept = node.in[1 - law.operand];
          if (number.is_number && number.number == law.number && passes(node, kept) &&
              allowed(law, node, kept)) {
            if (auto same = lasting(kept)) return same;
          }
          break;
        }
        case LawKind::kSame:
          if (same_input(node.in[0], node.in[1]) && passes(node, node.in[0]) &&
              allowed(law, node, node.in[0])) {
            if (auto same = lasting(node.in[0])) return same;
          }
          break;
        default:
          if (auto same = by_inner(law, node)) return same;
      }
    }
    return std::nullopt;
  }

  // Laws of an op applied to the result of another, both in one type.
  std::optional<Input> by_inner(const Law& law, Node& node) {
    const Input& in = node.in[0];
    if (in.is_number || in.node < 0 || in.rank != Rank::kFull || !passes(node, in)) {
      return std::nullopt;
    }
    const Node& inner = at(in.node);
    const OpId wanted = law.kind == LawKind::kAbsorbs ? law.inner : law.op;
    if (inner.code != static_cast<uint16_t>(wanted) || inner.compute != node.compute ||
        inner.out.dtype != node.compute || inner.in[0].is_number ||
        inner.in[0].region.dtype != node.compute || !allowed(law, node, inner.in[0])) {
      return std::nullopt;
    }
    if (law.kind == LawKind::kProjection) return lasting(in);
    std::optional<Input> source = lasting(inner.in[0]);
    if (!source) return std::nullopt;
    if (law.kind == LawKind::kInvolution) return source;
    const Input before = node.in[0];
    node.in[0] = *source;
    if (!loops_agree(node)) node.in[0] = before;
    return std::nullopt;
  }

  // A conversion to the same type is its operand.
  std::optional<Input> by_copy(const Node& node) {
    if (node.code != kCodeConvert) return std::nullopt;
    const Input& in = node.in[0];
    if (in.is_number) {
      return node.out.dtype == in.dtype ? std::optional<Input>(in) : std::nullopt;
    }
    return in.region.dtype == node.out.dtype ? lasting(in) : std::nullopt;
  }

  // To a type that holds every value, and back.
  std::optional<Input> by_round_trip(Node& node) {
    if (node.code != kCodeConvert || node.in[0].is_number || node.in[0].node < 0 ||
        node.in[0].rank != Rank::kFull) {
      return std::nullopt;
    }
    const Node& inner = at(node.in[0].node);
    if (inner.code != kCodeConvert || inner.in[0].is_number ||
        inner.in[0].region.dtype != node.out.dtype || !holds_all(inner.out.dtype, node.out.dtype)) {
      return std::nullopt;
    }
    const Input& source = inner.in[0];
    if (is_floating(node.out.dtype)) {
      if (!options_.float_laws || source.node < 0 || !at(source.node).is_op() ||
          !quiets(at(source.node).op())) {
        return std::nullopt;
      }
    }
    return lasting(source);
  }

  // An earlier node that computes the same.
  std::optional<Input> by_recurrence(const Node& node, int index) {
    const auto [begin, end] = seen_.equal_range(hash(node));
    for (auto at = begin; at != end; ++at) {
      ++graph_.visits;
      const Node& other = graph_.nodes[static_cast<size_t>(at->second)];
      if (!computes_same(node, other)) continue;
      Input result;
      result.dtype = other.out.dtype;
      result.region = other.out;
      result.node = at->second;
      return result;
    }
    // What is written over does not last: no op may read it in place of another.
    if (!node.clobbered) seen_.emplace(hash(node), index);
    return std::nullopt;
  }

  static bool computes_same(const Node& a, const Node& b) {
    if (a.code != b.code || a.attr != b.attr || a.compute != b.compute || a.n != b.n ||
        a.row != b.row || a.out.dtype != b.out.dtype || a.arity != b.arity ||
        std::bit_cast<uint64_t>(a.parameter) != std::bit_cast<uint64_t>(b.parameter)) {
      return false;
    }
    for (int k = 0; k < a.arity; ++k) {
      if (!same_input(a.in[k], b.in[k])) return false;
    }
    return true;
  }

  // Equal for nodes that compute the same.
  static uint64_t hash(const Node& node) {
    uint64_t words[4 + 3 * kMaxArity] = {
        uint64_t{node.code} | uint64_t{node.attr} << 16 |
            static_cast<uint64_t>(node.compute) << 32 | static_cast<uint64_t>(node.out.dtype) << 40,
        static_cast<uint64_t>(node.n.value()), static_cast<uint64_t>(node.row.value()),
        std::bit_cast<uint64_t>(node.parameter)};
    size_t count = 4;
    for (int k = 0; k < node.arity; ++k) {
      const Input& in = node.in[k];
      if (in.is_number) {
        words[count++] = static_cast<uint64_t>(in.dtype);
        words[count++] = static_cast<uint64_t>(in.number);
        words[count++] = in.number == NumberClass::kOther ? in.immediate : 0;
      } else {
        words[count++] = Places::Hash()(Places(in.region));
        words[count++] =
            uint64_t{static_cast<uint32_t>(in.node)} << 32 | static_cast<uint32_t>(in.newest);
        words[count++] = static_cast<uint64_t>(in.rank);
      }
    }
    return hash_words({words, count});
  }

  Graph& graph_;
  const PlanOptions& options_;
  std::vector<std::optional<Input>> equal_;
  std::unordered_multimap<uint64_t, int> seen_;
};

}  // namespace

std::span<const Law> laws() { return kLaws; }

void simplify(Graph& graph, const PlanOptions& options) { Rewriter(graph, options).run(); }

}  // namespace hologram::circuit
