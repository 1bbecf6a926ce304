// SPDX-License-Identifier: MIT
// Expands the table of calls and reads the schemas of its rows.
#include "hologram/call_ops.h"

#include <cctype>
#include <cstdlib>
#include <unordered_map>

#include "hologram/error.h"
#include "src/ops/call_rows.h"

namespace hologram {
namespace {

constexpr CallRow kRows[] = {
#define HOLOGRAM_CALL(name, schema, cost, doc) {#name, schema, #cost, doc},
#include "src/ops/calls.def"
};

// Reads one schema from left to right. A schema that does not read is a fault of the table, which
// the first look at it shows.
class SchemaReader {
 public:
  explicit SchemaReader(const CallRow& row) : row_(row), rest_(row.schema) {}

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

  const CallRow& row_;
  std::string_view rest_;
};

const std::vector<CallOp>& table() {
  static const auto* rows = [] {
    auto* list = new std::vector<CallOp>;
    for (const CallRow& row : kRows) {
      CallOp& op = list->emplace_back();
      op.name = row.name, op.schema = row.schema, op.doc = row.doc;
      op.number = static_cast<uint16_t>(list->size() - 1);
      SchemaReader(row).read_into(op);
    }
    return list;
  }();
  return *rows;
}

}  // namespace

std::span<const CallRow> call_rows() { return kRows; }

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

}  // namespace hologram
