// SPDX-License-Identifier: MIT
// See elementwise.h. An item runs the kernel's instructions in order, on one element.
#include "src/gpu/elementwise.h"

#include <algorithm>

#include "src/gpu/writer.h"

namespace hologram::gpu {
namespace {

// Every element behind the one before.
bool is_linear(const Kernel& kernel, const MemoryAccess& access) {
  int64_t step = 1;
  for (int d = kernel.ndim - 1; d >= 0; --d) {
    const auto at = static_cast<size_t>(d);
    if (kernel.shape[at] != 1 && access.strides[at] != step) return false;
    step *= kernel.shape[at];
  }
  return true;
}

class ElementwiseWriter : Writer {
 public:
  using Writer::Writer;

  KernelText write() {
    std::string body = cat("  const u64 i = OWN_ITEM;\n  if (i >= (u64)", add_word(kernel_.numel()),
                           ") return;\n");
    const bool walks = std::any_of(
        kernel_.accesses.begin(), kernel_.accesses.end(), [&](const MemoryAccess& access) {
          return access.rank != Rank::kOne && !is_linear(kernel_, access);
        });
    if (walks) put(body, "  ", positions("p", "i", 0, kernel_.ndim), "\n");
    for (size_t a = 0; a < kernel_.accesses.size(); ++a) write_address(a, walks, body);
    for (size_t t = 0; t < kernel_.temps.size(); ++t) {
      put(body, "  ", storage_type(kernel_.temps[t].dtype), " t", t, ";\n");
    }
    for (const Instr& instr : kernel_.instrs) write_instr(instr, body);
    const auto items = static_cast<size_t>(kernel_.numel());
    return finish(body, (items + kGroupItems - 1) / kGroupItems);
  }

 private:
  void write_address(size_t index, bool walks, std::string& body) {
    const MemoryAccess& access = kernel_.accesses[index];
    const std::string type = cat("GLOBAL ", storage_type(access.dtype), "*");
    const auto size = static_cast<int64_t>(itemsize(access.dtype));
    put(body, "  ", type, " const a", index, " = (", type, ")(", begin_of(access));
    if (access.rank == Rank::kOne) {
      body += ");\n";
    } else if (!walks || is_linear(kernel_, access)) {
      body += ") + i;\n";
    } else {
      for (int d = 0; d < kernel_.ndim; ++d) {
        const auto dim = static_cast<size_t>(d);
        put(body, " + (i64)p", d, " * ", add_word(access.strides[dim] * size));
      }
      body += ");\n";
    }
  }

  std::string read(const Ref& ref, Dtype compute) {
    if (ref.kind == Ref::kTemp) return cat("t", ref.index);
    if (ref.kind == Ref::kImmediate) return immediate(ref.index, compute);
    return load(cat("a", ref.index), kernel_.accesses[ref.index].dtype);
  }

  Dtype dtype_of(const Ref& ref, Dtype number) const {
    if (ref.kind == Ref::kTemp) return kernel_.temps[ref.index].dtype;
    return ref.kind == Ref::kAccess ? kernel_.accesses[ref.index].dtype : number;
  }

  void write_instr(const Instr& instr, std::string& body) {
    std::string values[circuit::kMaxArity];
    for (int k = 0; k < instr.arity; ++k) {
      values[k] = functions_.converted(read(instr.in[k], instr.compute),
                                       dtype_of(instr.in[k], instr.compute), instr.compute);
    }
    const Dtype target = dtype_of(instr.out, instr.result);
    const std::string value =
        instr.is_op()
            ? functions_.converted(functions_.row(instr.op(), instr.compute, values, instr.arity),
                                   instr.result, target)
            : functions_.converted(values[0], instr.compute, target);
    body += "  ";
    if (instr.out.kind == Ref::kTemp) {
      put(body, "t", instr.out.index);
    } else {
      // One item stores for all that have the same value.
      const MemoryAccess& out = kernel_.accesses[instr.out.index];
      if (out.rank == Rank::kRow && kernel_.cols() > 1) {
        put(body, "if (p", kernel_.ndim - 1, " == 0) ");
      } else if (out.rank == Rank::kOne) {
        body += "if (i == 0) ";
      }
      put(body, "*a", instr.out.index);
    }
    put(body, " = ", value, ";\n");
  }
};

}  // namespace

KernelText elementwise_text(const Kernel& kernel, const Traits& traits) {
  return ElementwiseWriter(kernel, traits).write();
}

}  // namespace hologram::gpu
