// SPDX-License-Identifier: MIT
// Tapes and plans as text.
#include <sstream>

#include "hologram/op.h"
#include "hologram/reduction.h"
#include "src/circuit/call_kinds.h"
#include "src/circuit/plan.h"

namespace hologram::circuit {
namespace {

void print_shape(std::ostream& out, int ndim, const int64_t* shape) {
  out << '[';
  for (int d = 0; d < ndim; ++d) out << (d ? "," : "") << shape[d];
  out << ']';
}

void print_operand(std::ostream& out, const Record& record, int k) {
  static constexpr const char* kNumbers[] = {"", "=0", "=-0", "=1", "=-1", "=2"};
  const TapeOperand& operand = record.operands[k];
  if (operand.kind == OperandKind::kImmediate) {
    out << '#' << operand.immediate << kNumbers[static_cast<int>(operand.number)];
    return;
  }
  out << 'b' << operand.slot << ':' << dtype_name(operand.dtype);
  if (operand.offset != 0) out << '+' << operand.offset;
  if (operand.kind == OperandKind::kOne) {
    out << "(one)";
    return;
  }
  if (record.ndim == 1 && record.strides[k][0] == 1) return;
  out << "/(";
  for (int d = 0; d < record.ndim; ++d) out << (d ? "," : "") << record.strides[k][d];
  out << ')';
}

void print_call_operand(std::ostream& out, const CallSlot& operand) {
  out << 'b' << operand.slot << '[' << operand.offset << ':' << operand.offset + operand.bytes
      << ']';
}

// b2[0:8], b3[0:4] = nll_loss(b0[0:64], -, b1[0:32])  {8, 2}. What is written in part says so.
void print_call(std::ostream& out, uint16_t kind, std::span<const CallSlot> operands,
                std::span<const uint64_t> attributes) {
  bool first = true;
  for (const CallSlot& operand : operands) {
    if (!operand.present || !operand.writes) continue;
    out << (first ? "" : ", ");
    first = false;
    print_call_operand(out, operand);
    if (!operand.covers) out << " in part";
  }
  out << (first ? "" : " = ") << call_name(kind) << '(';
  first = true;
  for (const CallSlot& operand : operands) {
    if (operand.present && !operand.reads) continue;
    out << (first ? "" : ", ");
    first = false;
    if (operand.present) {
      print_call_operand(out, operand);
    } else {
      out << '-';
    }
  }
  out << ')';
  for (size_t i = 0; i < attributes.size(); ++i) {
    out << (i == 0 ? "  {" : ", ") << static_cast<int64_t>(attributes[i]);
  }
  out << (attributes.empty() ? "\n" : "}\n");
}

void print_ref(std::ostream& out, const Kernel& kernel, const Ref& ref) {
  switch (ref.kind) {
    case Ref::kAccess:
      if (kernel.accesses[ref.index].product) {
        out << "result";
        return;
      }
      out << 'b' << kernel.accesses[ref.index].slot;
      if (kernel.accesses[ref.index].offset != 0) out << '+' << kernel.accesses[ref.index].offset;
      return;
    case Ref::kTemp:
      out << 't' << ref.index;
      return;
    case Ref::kImmediate:
      out << '#' << ref.index;
      return;
    case Ref::kNone:
      out << '?';
  }
}

}  // namespace

std::string code_name(uint16_t code, uint16_t attr) {
  static constexpr const char* kRowNames[] = {"softmax", "log_softmax", "softmax_backward",
                                              "log_softmax_backward"};
  if (code < kCodeConvert) return std::string(op_info(static_cast<OpId>(code)).name);
  if (code == kCodeConvert) return "convert";
  if (code == kCodeReduction) return std::string(reduction_name(static_cast<Reduction>(attr)));
  if (code == kCodeCall) return call_name(attr);
  return kRowNames[attr];
}

std::string kernel_name(const Kernel& kernel) {
  static constexpr int kMaxParts = 6;
  std::vector<std::pair<std::string, int>> parts;
  for (const bool conversions : {false, true}) {
    for (const Instr& instr : kernel.instrs) {
      if ((instr.code == kCodeConvert) != conversions) continue;
      std::string name = code_name(instr.code, instr.attr);
      if (parts.empty() || parts.back().first != name) parts.emplace_back(std::move(name), 0);
      ++parts.back().second;
    }
    if (!parts.empty()) break;
  }
  std::string out;
  if (kernel.call != nullptr) {
    out = call_name(kernel.call->kind);
    if (!parts.empty()) out += '_';
  }
  int parts_left = kMaxParts;
  size_t at = 0;
  for (; at < parts.size() && parts_left > 0; ++at, --parts_left) {
    if (at > 0) out += '_';
    out += parts[at].first;
    if (parts[at].second > 1) out += "_x" + std::to_string(parts[at].second);
  }
  int others = 0;
  for (; at < parts.size(); ++at) others += parts[at].second;
  if (others > 0) out += "_and_" + std::to_string(others) + "_more";
  return out;
}

std::string print_tape(std::span<const uint64_t> words) {
  std::ostringstream out;
  Tape::decode(words, [&](const Record& record, int index) {
    out << '%' << index << ": ";
    if (record.code == kCodeCall) {
      std::vector<CallSlot> operands;
      for (size_t k = 0; k < record.call.operands(); ++k) {
        operands.push_back(record.call.operand(k));
      }
      print_call(out, record.attr, operands, record.call.attributes);
      return;
    }
    print_operand(out, record, 0);
    out << " = " << code_name(record.code, record.attr) << '(';
    for (int k = 1; k <= record.arity; ++k) {
      if (k > 1) out << ", ";
      print_operand(out, record, k);
    }
    out << ")  ";
    print_shape(out, record.ndim, record.shape);
    out << ' ' << dtype_name(record.compute) << '\n';
  });
  return out.str();
}

std::string print_plan(const Plan& plan) {
  static constexpr const char* kRanks[] = {"", " row", " one"};
  std::ostringstream out;
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    const Kernel& kernel = plan.kernels[i];
    out << "kernel " << i << "  stage " << kernel.stage << "  launch " << kernel.launch << "  ";
    if (kernel.call != nullptr) {
      out << "call\n  " << (product_access(kernel) >= 0 ? "result: " : "");
      print_call(out, kernel.call->kind, kernel.call->operands, kernel.call->attributes);
      if (kernel.instrs.empty()) continue;
      out << "  then  ";
    }
    print_shape(out, kernel.ndim, kernel.shape.data());
    out << (kernel.whole_rows ? " rows" : "") << "  " << kernel.live_values << " live\n";
    for (const Instr& instr : kernel.instrs) {
      out << "  ";
      print_ref(out, kernel, instr.out);
      out << " = " << code_name(instr.code, instr.attr) << '(';
      for (int k = 0; k < instr.arity; ++k) {
        if (k > 0) out << ", ";
        print_ref(out, kernel, instr.in[k]);
      }
      out << ")  " << dtype_name(instr.compute);
      if (instr.result != instr.compute) out << "->" << dtype_name(instr.result);
      out << kRanks[static_cast<int>(instr.rank)] << '\n';
    }
  }
  out << plan.stats.ops << " ops, " << plan.stats.dead << " dead, " << plan.stats.kernels
      << " kernels, " << plan.stats.live_values << " live values, " << plan.stats.bytes_moved
      << " bytes moved of " << plan.stats.bytes_unfused << '\n';
  return out.str();
}

}  // namespace hologram::circuit
