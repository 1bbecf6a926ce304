// SPDX-License-Identifier: MIT
// Tapes and plans as JSON, for the tools that draw and count them.
#include <sstream>
#include <string_view>
#include <vector>

#include "hologram/op.h"
#include "src/circuit/call_kinds.h"
#include "src/circuit/plan.h"

namespace hologram::circuit {
namespace {

template <class F>
void list(std::ostream& out, size_t n, F&& each) {
  out << '[';
  for (size_t i = 0; i < n; ++i) {
    if (i > 0) out << ',';
    each(i);
  }
  out << ']';
}

template <class T>
void numbers(std::ostream& out, int n, const T& values) {
  list(out, static_cast<size_t>(n), [&](size_t i) { out << values[i]; });
}

const char* rank_name(Rank rank) {
  return rank == Rank::kFull ? "full" : rank == Rank::kRow ? "row" : "one";
}

void write_ref(std::ostream& out, const Kernel& kernel, const Ref& ref) {
  switch (ref.kind) {
    case Ref::kAccess:
      if (kernel.accesses[ref.index].product) {
        out << "{\"result\":true}";
        break;
      }
      out << "{\"access\":" << ref.index << '}';
      break;
    case Ref::kTemp:
      out << "{\"temp\":" << ref.index << '}';
      break;
    default:
      out << "{\"number\":" << ref.index << '}';
  }
}

// An operand of a call, which walks bytes.
void write_call_operand(std::ostream& out, const CallSlot& operand) {
  out << "{\"slot\":" << operand.slot << ",\"offset\":" << operand.offset
      << ",\"dtype\":\"bytes\",\"strides\":[1],\"bytes\":" << operand.bytes
      << ",\"rank\":\"full\",\"loaded\":" << (operand.reads ? "true" : "false")
      << ",\"stored\":" << (operand.writes ? "true" : "false") << '}';
}

// Those that are there.
std::vector<CallSlot> call_operands(const CallRecord& call) {
  std::vector<CallSlot> operands;
  for (size_t k = 0; k < call.operands(); ++k) {
    if (call.operand(k).present) operands.push_back(call.operand(k));
  }
  return operands;
}

void write_call_record(std::ostream& out, const Record& record) {
  const std::vector<CallSlot> operands = call_operands(record.call);
  out << "{\"op\":\"" << code_name(record.code, record.attr)
      << "\",\"call\":true,\"compute\":\"\",\"shape\":[],";
  CallResult result;
  const CallKind* kind = find_kernel(record.attr);
  if (kind != nullptr && kind->result != nullptr &&
      kind->result(record.call.attributes.data(), result)) {
    out << "\"result\":{\"dtype\":\"" << dtype_name(result.dtype) << "\",\"shape\":[" << result.rows
        << ',' << result.cols << "]},";
  }
  out << "\"operands\":";
  list(out, operands.size(), [&](size_t k) { write_call_operand(out, operands[k]); });
  out << ",\"attributes\":";
  list(out, record.call.attributes.size(),
       [&](size_t i) { out << static_cast<int64_t>(record.call.attributes[i]); });
  out << ",\"numbers\":[" << record.call.first_number << ',' << record.call.numbers << "]}";
}

// As a step before the others, whose accesses come after those of the kernel.
void write_call(std::ostream& out, const Kernel& kernel, const std::vector<CallSlot>& operands) {
  const size_t first = kernel.accesses.size();
  const std::string name = code_name(kCodeCall, kernel.call->kind);
  const auto access = [&](size_t i) { out << "{\"access\":" << first + i << '}'; };
  std::vector<size_t> in, written;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].reads) in.push_back(i);
    if (operands[i].writes) written.push_back(i);
  }
  out << "{\"op\":\"" << name << "\",\"compute\":\"\",\"result\":\"\",\"rank\":\"full\",\"in\":";
  list(out, in.size(), [&](size_t i) { access(in[i]); });
  out << ",\"out\":";
  if (written.empty()) {
    out << "{\"result\":true}";
  } else {
    access(written[0]);
  }
  out << ",\"record\":" << kernel.call->record << '}';
}

void write_kernel(std::ostream& out, const Kernel& kernel) {
  std::vector<CallSlot> operands;
  if (kernel.call != nullptr) {
    for (const CallSlot& operand : kernel.call->operands) {
      if (operand.present) operands.push_back(operand);
    }
  }
  out << "{\"name\":\"" << kernel_name(kernel) << "\",\"stage\":" << kernel.stage
      << ",\"launch\":" << kernel.launch << ",\"shape\":";
  numbers(out, kernel.instrs.empty() ? 0 : kernel.ndim, kernel.shape);
  out << ",\"rows\":" << (kernel.whole_rows ? "true" : "false")
      << ",\"live_values\":" << kernel.live_values << ",\"bytes\":" << kernel_bytes(kernel)
      << ",\"accesses\":";
  list(out, kernel.accesses.size() + operands.size(), [&](size_t i) {
    if (i >= kernel.accesses.size()) {
      return write_call_operand(out, operands[i - kernel.accesses.size()]);
    }
    const MemoryAccess& access = kernel.accesses[i];
    out << "{\"slot\":" << access.slot << ",\"offset\":" << access.offset << ",\"dtype\":\""
        << dtype_name(access.dtype) << "\",\"rank\":\"" << rank_name(access.rank)
        << "\",\"loaded\":" << (access.loaded && !access.product ? "true" : "false")
        << ",\"stored\":" << (access.stored ? "true" : "false") << ",\"strides\":";
    numbers(out, kernel.ndim, access.strides);
    out << '}';
  });
  out << ",\"instrs\":";
  const size_t calls = kernel.call != nullptr ? 1 : 0;
  list(out, calls + kernel.instrs.size(), [&](size_t i) {
    if (i < calls) return write_call(out, kernel, operands);
    const Instr& instr = kernel.instrs[i - calls];
    out << "{\"op\":\"" << code_name(instr.code, instr.attr) << "\",\"compute\":\""
        << dtype_name(instr.compute) << "\",\"result\":\"" << dtype_name(instr.result)
        << "\",\"rank\":\"" << rank_name(instr.rank) << "\",\"in\":";
    list(out, instr.arity, [&](size_t k) { write_ref(out, kernel, instr.in[k]); });
    out << ",\"out\":";
    write_ref(out, kernel, instr.out);
    out << ",\"record\":" << instr.record << '}';
  });
  out << '}';
}

}  // namespace

std::string tape_json(std::span<const uint64_t> words) {
  std::ostringstream out;
  out << '[';
  Tape::decode(words, [&](const Record& record, int index) {
    if (index > 0) out << ',';
    if (record.code == kCodeCall) return write_call_record(out, record);
    out << "{\"op\":\"" << code_name(record.code, record.attr) << "\",\"compute\":\""
        << dtype_name(record.compute) << "\",\"shape\":";
    numbers(out, record.ndim, record.shape);
    out << ",\"operands\":";
    list(out, size_t{record.arity} + 1, [&](size_t k) {
      const TapeOperand& operand = record.operands[k];
      if (operand.kind == OperandKind::kImmediate) {
        out << "{\"number\":" << operand.immediate << '}';
        return;
      }
      out << "{\"slot\":" << operand.slot << ",\"offset\":" << operand.offset << ",\"dtype\":\""
          << dtype_name(operand.dtype) << "\",\"strides\":";
      const int ndim = operand.kind == OperandKind::kOne ? 0 : record.ndim;
      numbers(out, ndim, record.strides[k]);
      out << '}';
    });
    out << '}';
  });
  out << ']';
  return out.str();
}

std::string plan_json(const Plan& plan) {
  std::ostringstream out;
  const PlanStats& stats = plan.stats;
  out << "{\"ops\":" << stats.ops << ",\"dead\":" << stats.dead << ",\"groups\":" << stats.groups
      << ",\"live_values\":" << stats.live_values << ",\"bytes_moved\":" << stats.bytes_moved
      << ",\"bytes_unfused\":" << stats.bytes_unfused << ",\"hash\":\"" << std::hex
      << canonical_hash(plan) << std::dec << "\",\"kernels\":";
  list(out, plan.kernels.size(), [&](size_t i) { write_kernel(out, plan.kernels[i]); });
  out << '}';
  return out.str();
}

std::string operands_json(const Kernel& kernel) {
  std::ostringstream out;
  const auto write = [&](bool writes) {
    int written = 0;
    const auto next = [&](std::string_view dtype) -> std::ostream& {
      return out << (written++ > 0 ? ",[\"" : "[\"") << dtype << "\",";
    };
    out << '[';
    for (const MemoryAccess& access : kernel.accesses) {
      if (writes ? !access.stored : !access.loaded || access.product) continue;
      std::vector<int64_t> extents;
      for (int d = 0; d < kernel.ndim; ++d) {
        if (access.strides[d] != 0) extents.push_back(kernel.shape[d]);
      }
      numbers(next(dtype_name(access.dtype)), static_cast<int>(extents.size()), extents);
      out << ']';
    }
    if (kernel.call != nullptr) {
      for (const CallSlot& operand : kernel.call->operands) {
        if (operand.present && (writes ? operand.writes : operand.reads)) {
          next("bytes") << '[' << operand.bytes << "]]";
        }
      }
    }
    out << ']';
  };
  out << "{\"reads\":";
  write(false);
  out << ",\"writes\":";
  write(true);
  out << '}';
  return out.str();
}

}  // namespace hologram::circuit
