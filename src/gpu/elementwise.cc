// SPDX-License-Identifier: MIT
// See elementwise.h.
#include "src/gpu/elementwise.h"

#include <algorithm>
#include <utility>

#include "src/gpu/blocks.h"

namespace hologram::gpu {
namespace {

class ElementwiseWriter : ElementWriter {
 public:
  using ElementWriter::ElementWriter;

  KernelText write() {
    std::string body = cat("  const u64 i = OWN_ITEM;\n  if (i >= (u64)", add_word(kernel_.numel()),
                           ") return;\n");
    if (walks()) {
      put(body, "  ", positions("p", "i", kernel_.shape.data(), 0, kernel_.ndim), "\n");
    }
    write_element("i", {}, body);
    const auto items = static_cast<size_t>(kernel_.numel());
    return finish_items(body, items);
  }
};

}  // namespace

bool ElementWriter::is_linear(const MemoryAccess& access) const {
  int64_t step = 1;
  for (int d = kernel_.ndim - 1; d >= 0; --d) {
    const auto at = static_cast<size_t>(d);
    if (kernel_.shape[at] != 1 && access.strides[at] != step) return false;
    step *= kernel_.shape[at];
  }
  return true;
}

bool ElementWriter::walks() const {
  return std::any_of(kernel_.accesses.begin(), kernel_.accesses.end(),
                     [&](const MemoryAccess& access) {
                       return access.rank != Rank::kOne && !access.product && !is_linear(access);
                     });
}

void ElementWriter::write_element(const std::string& number, const std::string& product,
                                  std::string& body) {
  for (size_t a = 0; a < kernel_.accesses.size(); ++a) write_address(a, number, body);
  write_instrs(number, product, body);
}

void ElementWriter::write_instrs(const std::string& number, const std::string& product,
                                 std::string& body) {
  for (size_t t = 0; t < kernel_.temps.size(); ++t) {
    put(body, "  ", storage_type(kernel_.temps[t].dtype), " t", t, ";\n");
  }
  for (const Instr& instr : kernel_.instrs) write_instr(instr, number, product, body);
}

void ElementWriter::write_address(size_t index, const std::string& number, std::string& body) {
  const MemoryAccess& access = kernel_.accesses[index];
  if (access.product) return;
  const std::string type = cat("GLOBAL ", storage_type(access.dtype), "*");
  const auto size = static_cast<int64_t>(itemsize(access.dtype));
  put(body, "  ", type, " const a", index, " = (", type, ")(", begin_of(access));
  if (access.rank == Rank::kOne) {
    body += ");\n";
  } else if (is_linear(access)) {
    put(body, ") + ", number, ";\n");
  } else {
    for (int d = 0; d < kernel_.ndim; ++d) {
      const auto dim = static_cast<size_t>(d);
      put(body, " + (i64)p", d, " * ", add_word(access.strides[dim] * size));
    }
    body += ");\n";
  }
}

std::string ElementWriter::read(const Ref& ref, Dtype compute, const std::string& product) {
  if (ref.kind == Ref::kTemp) return cat("t", ref.index);
  if (ref.kind == Ref::kImmediate) return immediate(ref.index, compute);
  const MemoryAccess& access = kernel_.accesses[ref.index];
  if (access.product) return product;
  const std::string element = place(ref.index);
  return access.dtype == Dtype::kBool ? cat("(u8)(", element, " != 0)") : element;
}

Dtype ElementWriter::dtype_of(const Ref& ref, Dtype number) const {
  if (ref.kind == Ref::kTemp) return kernel_.temps[ref.index].dtype;
  return ref.kind == Ref::kAccess ? kernel_.accesses[ref.index].dtype : number;
}

void ElementWriter::write_instr(const Instr& instr, const std::string& number,
                                const std::string& product, std::string& body) {
  std::string values[circuit::kMaxArity];
  for (int k = 0; k < instr.arity; ++k) {
    values[k] = functions_.converted(read(instr.in[k], instr.compute, product),
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
    if (stores_at_once()) {
      const MemoryAccess& out = kernel_.accesses[instr.out.index];
      if (out.rank == Rank::kRow && kernel_.cols() > 1) {
        put(body, "if (p", kernel_.ndim - 1, " == 0) ");
      } else if (out.rank == Rank::kOne) {
        put(body, "if (", number, " == 0) ");
      }
    }
    body += place(instr.out.index);
  }
  put(body, " = ", value, ";\n");
}

KernelText elementwise_text(const Kernel& kernel, const Traits& traits) {
  if (auto text = block_text(kernel, traits)) return *std::move(text);
  return ElementwiseWriter(kernel, traits).write();
}

}  // namespace hologram::gpu
