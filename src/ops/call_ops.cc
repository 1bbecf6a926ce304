// SPDX-License-Identifier: MIT
// Expands the table of calls and reads the schemas of its rows.
#include "hologram/call_ops.h"

#include <cctype>
#include <cstdlib>
#include <limits>
#include <unordered_map>

#include "hologram/call_frame.h"
#include "hologram/error.h"
#include "hologram/loss.h"

namespace hologram {
namespace {

// Whether a loss takes logarithms of every element.
bool is_logarithmic(int64_t loss) {
  const auto which = static_cast<PointLoss>(loss);
  return which == PointLoss::bce || which == PointLoss::bce_with_logits;
}

#define NONE 0.0
constexpr CallOp kNoCall = {};
struct Row {
  const char *name, *schema, *doc;
  double (*cost)(const CallShapes&);
};
constexpr Row kRows[] = {
#define HOLOGRAM_CALL(name, schema, cost, doc) \
  {#name, schema, doc, [](const CallShapes& s) -> double { return static_cast<void>(s), cost; }},
#include "src/ops/calls.def"
};
#undef NONE

// Reads one schema from left to right. A schema that does not read is a fault of the table, which
// the first look at it shows.
class SchemaReader {
 public:
  explicit SchemaReader(const Row& row) : row_(row), rest_(row.schema) {}

  void read_into(CallOp& op) {
    bool results = false, saved = false;
    while (true) {
      skip();
      if (take("->")) {
        results = true;
      } else if (take("|")) {
        saved = true;
      } else if (rest_.empty()) {
        break;
      } else if (take(",")) {
        continue;
      } else if (is_operand()) {
        CallOperandInfo& operand = op.operands.emplace_back(read_operand());
        operand.is_result = results;
        operand.is_saved = saved;
      } else {
        if (results) fault("a parameter among the results");
        op.parameters.push_back(read_parameter());
      }
    }
    if (!results) fault("no ->");
  }

 private:
  [[noreturn]] void fault(const char* what) const {
    fail(ErrorKind::kInternal, "the schema of the call ", row_.name, " does not read: ", what,
         " before \"", rest_, "\"");
  }
  void skip() {
    while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
  }
  bool take(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  void expect(std::string_view text) {
    skip();
    if (!take(text)) fault(text.data());
  }
  // Operands begin with a dtype's capital letter, parameters with a small one.
  bool is_operand() const { return std::isupper(static_cast<unsigned char>(rest_.front())) != 0; }
  std::string read_name() {
    skip();
    size_t n = 0;
    while (n < rest_.size() &&
           (std::isalnum(static_cast<unsigned char>(rest_[n])) != 0 || rest_[n] == '_')) {
      ++n;
    }
    if (n == 0) fault("a name is missing");
    std::string name(rest_.substr(0, n));
    rest_.remove_prefix(n);
    return name;
  }

  CallDim read_dim() {
    CallDim dim;
    skip();
    if (take("*")) {
      dim.run = true;
      dim.names.push_back(read_name());
      if (take("(")) {
        dim.count = read_name();
        expect(")");
      }
      return dim;
    }
    do {
      const std::string name = read_name();
      if (std::isdigit(static_cast<unsigned char>(name[0])) != 0) {
        dim.factor *= std::atoll(name.c_str());
      } else {
        dim.names.push_back(name);
      }
    } while (take("*"));
    return dim;
  }

  CallOperandInfo read_operand() {
    CallOperandInfo operand;
    operand.dtype = static_cast<CallDtype>(rest_.front());
    rest_.remove_prefix(1);
    if (take("(")) {
      operand.positions_in = read_name();
      expect(")");
    }
    operand.is_list = take("[]");
    operand.is_covered = take("=");
    operand.is_updated = operand.is_covered || take("&");
    operand.name = read_name();
    operand.is_optional = take("?");
    operand.broadcasts = take("~");
    if (operand.is_list) return operand;
    const std::string_view from = rest_;
    expect("[");
    skip();
    operand.free_shape = take("...");
    while (skip(), !take("]")) {
      if (!take(",")) operand.shape.push_back(read_dim());
    }
    operand.shape_text = std::string(from.substr(0, from.size() - rest_.size()));
    return operand;
  }

  CallParameterInfo read_parameter() {
    using Kind = CallParameterInfo::Kind;
    CallParameterInfo parameter;
    parameter.only_shapes = take("shape ");
    const std::string kind = read_name();
    parameter.kind = kind == "int"      ? Kind::integer
                     : kind == "bool"   ? Kind::boolean
                     : kind == "ints"   ? Kind::integers
                     : kind == "float"  ? Kind::number
                     : kind == "uint"   ? Kind::word
                     : kind == "scalar" ? Kind::scalar
                                        : (fault("an unknown kind of parameter"), Kind::integer);
    parameter.is_list = take("[]");
    parameter.name = read_name();
    skip();
    if (!take("=")) return parameter;
    parameter.is_required = false;
    skip();
    const std::string text(rest_.substr(0, rest_.find_first_of(",-", 1)));
    if (std::isalpha(static_cast<unsigned char>(text[0])) != 0 && !text.starts_with("nan")) {
      parameter.value_of = read_name();
      return parameter;
    }
    char* end = nullptr;
    parameter.value = std::strtod(rest_.data(), &end);
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return parameter;
  }

  const Row& row_;
  std::string_view rest_;
};

const std::vector<CallOp>& table() {
  static const auto* rows = [] {
    auto* list = new std::vector<CallOp>;
    for (const Row& row : kRows) {
      CallOp& op = list->emplace_back(kNoCall);
      op.name = row.name, op.schema = row.schema, op.doc = row.doc, op.cost = row.cost;
      op.number = static_cast<uint16_t>(list->size() - 1);
      SchemaReader(row).read_into(op);
    }
    return list;
  }();
  return *rows;
}

}  // namespace

std::span<const CallOp> call_ops() { return table(); }

const CallOp* find_call(std::string_view name) {
  static const auto* by_name = [] {
    auto* map = new std::unordered_map<std::string_view, const CallOp*>;
    for (const CallOp& op : call_ops()) map->emplace(op.name, &op);
    return map;
  }();
  const auto found = by_name->find(name);
  return found == by_name->end() ? nullptr : found->second;
}

const CallOp& call_op(std::string_view name) {
  const CallOp* op = find_call(name);
  if (op == nullptr) {
    fail(ErrorKind::kInvalidArgument, "there is no call \"", name,
         "\"; call_ops() lists those of this version");
  }
  return *op;
}

// --- Sizes ---------------------------------------------------------------------------------------

namespace {

// Of the view whose head is *word.
const int64_t* sizes_of(const uint64_t* word) { return reinterpret_cast<const int64_t*>(word + 1); }

}  // namespace

const uint64_t* CallShapes::operand(int position) const {
  const uint64_t* word = words_;
  for (int k = 0; k < position; ++k) {
    if (!op_.operands[static_cast<size_t>(k)].is_list) word += 1 + view_words(*word);
  }
  return word;
}

double CallShapes::numel(int position) const {
  const uint64_t* word = operand(position);
  if (*word == 0) return 0;
  double n = 1;
  for (int d = 0; d < view_ndim(*word); ++d) n *= static_cast<double>(sizes_of(word)[d]);
  return n;
}

double CallShapes::nbytes(int position) const {
  return numel(position) * static_cast<double>(itemsize(view_dtype(*operand(position))));
}

double CallShapes::size(int position, int dim) const {
  const uint64_t* word = operand(position);
  const int ndim = view_ndim(*word), d = dim < 0 ? dim + ndim : dim;
  return d < 0 || d >= ndim ? 1 : static_cast<double>(sizes_of(word)[d]);
}

const uint64_t* CallShapes::parameter(int position) const {
  using Kind = CallParameterInfo::Kind;
  const uint64_t* word = operand(static_cast<int>(op_.operands.size()));
  for (int k = 0; k < position; ++k) {
    const CallParameterInfo& info = op_.parameters[static_cast<size_t>(k)];
    if (info.only_shapes) continue;
    if (info.kind == Kind::integer || info.kind == Kind::boolean) ++word;
    if (info.kind == Kind::integers) word += 1 + *word;
  }
  return word;
}

int64_t CallShapes::value(int position) const { return static_cast<int64_t>(*parameter(position)); }

double CallShapes::product(int position) const {
  const uint64_t* word = parameter(position);
  double product = 1;
  for (uint64_t k = 1; k <= *word; ++k) product *= static_cast<double>(word[k]);
  return product;
}

}  // namespace hologram
