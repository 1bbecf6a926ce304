// SPDX-License-Identifier: MIT
// Writes hologram/call_structs.h: a struct for each row of src/ops/calls.def.
//
//   hologram_call_structs OUT
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>

#include "hologram/call_ops.h"
#include "src/ops/call_rows.h"

namespace hologram {
namespace {

using Kind = CallParameterInfo::Kind;

// layer_norm -> LayerNorm
std::string struct_name(std::string_view name) {
  std::string result;
  bool upper = true;
  for (const char c : name) {
    if (c == '_') {
      upper = true;
    } else {
      result += upper ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
      upper = false;
    }
  }
  return result;
}

const char* type_of(const CallParameterInfo& parameter) {
  switch (parameter.kind) {
    case Kind::integer:
      return "int64_t";
    case Kind::boolean:
      return "bool";
    case Kind::integers:
      return "Ints";
    case Kind::number:
      return "double";
    case Kind::word:
      return "uint64_t";
    case Kind::scalar:
      return parameter.is_list ? "ScalarList<T>" : "Scalar<T>";
  }
  return "";
}

// " = value": what a caller may leave out. Lists of integers have no default but the caller's.
std::string default_of(const CallParameterInfo& parameter) {
  if (parameter.is_required || parameter.kind == Kind::integers || parameter.is_list) return "";
  if (parameter.kind == Kind::boolean) return parameter.value != 0 ? " = true" : " = false";
  if (std::isnan(parameter.value)) return " = std::numeric_limits<double>::quiet_NaN()";
  char digits[64];
  const auto end = std::to_chars(digits, digits + sizeof digits, parameter.value).ptr;
  return " = " + std::string(digits, end);
}

std::string type_of(const CallOperandInfo& operand) {
  const std::string list = operand.is_list ? "List<T>" : "<T>";
  if (operand.is_result || operand.is_covered) return "Out" + list;
  return (operand.is_updated ? "InOut" : "In") + list;
}

void write_operand(std::ostream& out, const CallOperandInfo& operand) {
  out << "  " << type_of(operand) << " " << operand.name << (operand.is_optional ? " = {}" : "")
      << ";  // " << static_cast<char>(operand.dtype) << operand.shape_text
      << (operand.is_optional ? ", or none" : "") << (operand.is_saved ? ", for the gradient" : "")
      << "\n";
}

void write_struct(std::ostream& out, const CallOp& op, const CallRow& row) {
  const std::string name = struct_name(op.name);
  out << "// " << op.doc << ".\n"
      << "template <class T = CallView>\n"
      << "struct " << name << " {\n"
      << "  static constexpr CallNumber kNumber = CallNumber::" << op.name << ";\n\n"
      << "  [[no_unique_address]] ByName by_name = ByName();\n";
  for (const CallOperandInfo& operand : op.operands) {
    if (!operand.is_result) write_operand(out, operand);
  }
  for (const CallParameterInfo& parameter : op.parameters) {
    if (parameter.only_shapes) continue;
    out << "  " << type_of(parameter) << " " << parameter.name << default_of(parameter) << ";\n";
  }
  for (const CallOperandInfo& operand : op.operands) {
    if (operand.is_result) write_operand(out, operand);
  }
  out << "\n  // Rough nanoseconds on one thread.\n"
      << "  double cost() const { return " << row.cost << "; }\n"
      << "  // f(field) for all, in the order of a tape's words.\n"
      << "  template <class Self, class F>\n"
      << "  static void each(Self& self, F&& f) {\n";
  for (const CallOperandInfo& operand : op.operands) out << "    f(self." << operand.name << ");\n";
  for (const CallParameterInfo& parameter : op.parameters) {
    if (!parameter.only_shapes) out << "    f(self." << parameter.name << ");\n";
  }
  out << "  }\n};\n\n";
}

std::string header() {
  std::ostringstream out;
  const auto ops = call_ops();
  const auto rows = call_rows();
  out << "// SPDX-License-Identifier: MIT\n"
         "// Written during the build by tools/call_structs from src/ops/calls.def: the structs of "
         "the calls.\n"
         "// Operands are named as in the row; behind each are its letter of dtypes and its "
         "shape.\n"
         "#pragma once\n\n"
         "#include <cstdint>\n#include <limits>\n\n"
         "#include \"hologram/call_fields.h\"\n\n"
         "namespace hologram {\n\n"
         "// The kind of a call (register_call()).\n"
         "enum class CallNumber : uint16_t {\n";
  for (const CallOp& op : ops) out << "  " << op.name << " = " << op.number << ",\n";
  out << "};\n\n// X(name, struct) for every call.\n#define HOLOGRAM_EACH_CALL(X)";
  for (const CallOp& op : ops) {
    out << " \\\n  X(" << op.name << ", " << struct_name(op.name) << ")";
  }
  out << "\n\nnamespace calls {\n\n";
  for (const CallOp& op : ops) write_struct(out, op, rows[op.number]);
  out << "}  // namespace calls\n}  // namespace hologram\n";
  return out.str();
}

// Leaves a file alone that says the same, so that nothing is compiled again.
void write(const std::filesystem::path& path, const std::string& text) {
  std::ifstream old(path);
  if (old && std::string(std::istreambuf_iterator<char>(old), {}) == text) return;
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path);
  if (!(file << text << std::flush)) throw std::runtime_error("cannot write " + path.string());
}

}  // namespace
}  // namespace hologram

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s OUT\n", argv[0]);
    return 2;
  }
  try {
    hologram::write(argv[1], hologram::header());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
  return 0;
}
