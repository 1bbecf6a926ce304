// SPDX-License-Identifier: MIT
// See kernel_text.h. A work item computes one element of the domain: what the kernel's instructions
// make of it, in order.
#include "src/gpu/kernel_text.h"

#include <algorithm>

namespace hologram::gpu {
namespace {

using circuit::Instr;
using circuit::Kernel;
using circuit::MemoryAccess;
using circuit::Rank;
using circuit::Ref;

bool can_run(const Kernel& kernel, const circuit::NativeOps& native) {
  if (kernel.call != nullptr) return false;
  for (const MemoryAccess& access : kernel.accesses) {
    if (access.product || !native.has(access.dtype)) return false;
    if (!access.stored || access.rank == Rank::kFull) continue;
    for (const MemoryAccess& other : kernel.accesses) {
      if (other.loaded && other.slot == access.slot) return false;
    }
  }
  for (const circuit::Temp& temp : kernel.temps) {
    if (!native.has(temp.dtype)) return false;
  }
  return std::all_of(kernel.instrs.begin(), kernel.instrs.end(), [&](const Instr& instr) {
    if (!instr.is_op() && instr.code != circuit::kCodeConvert) return false;
    if (instr.is_op() && !native.has(instr.op(), instr.compute)) return false;
    for (int k = 0; k < instr.arity; ++k) {
      // Numbers come in the types that ops compute in.
      if (instr.in[k].kind == Ref::kImmediate && compute_dtype(instr.compute) != instr.compute) {
        return false;
      }
    }
    return native.has(instr.compute) && native.has(instr.result);
  });
}

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

std::string number(size_t n) { return std::to_string(n); }

class Writer {
 public:
  Writer(const Kernel& kernel, const Traits& traits)
      : kernel_(kernel), traits_(traits), words_(traits) {}

  KernelText write() {
    text_.items = kernel_.numel();
    add_word(text_.items);
    std::string body;
    const bool walks = std::any_of(
        kernel_.accesses.begin(), kernel_.accesses.end(), [&](const MemoryAccess& access) {
          return access.rank != Rank::kOne && !is_linear(kernel_, access);
        });
    if (walks) write_position(body);
    for (size_t a = 0; a < kernel_.accesses.size(); ++a) write_address(a, walks, body);
    for (size_t t = 0; t < kernel_.temps.size(); ++t) {
      body.append("  ").append(storage_type(kernel_.temps[t].dtype)).append(" t");
      body += number(t) + ";\n";
    }
    for (const Instr& instr : kernel_.instrs) write_instr(instr, body);

    const size_t words = text_.words.size();
    text_.words_in_memory = 8 * (text_.slots.size() + words) > traits_.parameter_bytes;
    std::string& source = text_.source;
    source = words_.text();
    if (!text_.words_in_memory)
      source += "typedef struct { i64 w[" + number(words) + "]; } Words;\n";
    source += "#define W(k) words" + std::string(text_.words_in_memory ? "[k]\n" : ".w[k]\n");
    source += "KERNEL(" + number(kGroupItems) + ") " + kKernelName + "(";
    for (size_t s = 0; s < text_.slots.size(); ++s) {
      source += "GLOBAL u8* RESTRICT s" + number(s) + ",\n    ";
    }
    source += text_.words_in_memory ? "GLOBAL const i64* RESTRICT words" : "const Words words";
    source += ") {\n  const u64 i = ITEM;\n  if (i >= (u64)W(0)) return;\n" + body + "}\n";
    return std::move(text_);
  }

 private:
  // How the text says a new word.
  std::string add_word(int64_t value) {
    text_.words.push_back(value);
    return "W(" + number(text_.words.size() - 1) + ")";
  }

  // Where in the domain the item is: p0 to the last, from i.
  void write_position(std::string& body) {
    // Division of 64 bits is slow.
    const std::string type = text_.items <= INT32_MAX ? "u32" : "u64";
    const auto ndim = static_cast<size_t>(kernel_.ndim);
    body += "  " + type + " r = (" + type + ")i;\n";
    for (size_t d = ndim; d-- > 1;) {
      const std::string size = "(" + type + ")" + add_word(kernel_.shape[d]);
      body.append("  const ").append(type).append(" p").append(number(d)).append(" = r % ");
      body.append(size).append("; r /= ").append(size).append(";\n");
    }
    body += "  const " + type + " p0 = r;\n";
  }

  void write_address(size_t index, bool walks, std::string& body) {
    const MemoryAccess& access = kernel_.accesses[index];
    auto at = std::find(text_.slots.begin(), text_.slots.end(), access.slot);
    if (at == text_.slots.end()) at = text_.slots.insert(at, access.slot);
    const auto slot = static_cast<size_t>(at - text_.slots.begin());
    const std::string type = "GLOBAL " + std::string(storage_type(access.dtype)) + "*";
    const auto size = static_cast<int64_t>(itemsize(access.dtype));
    text_.offsets.push_back(
        {static_cast<uint32_t>(text_.words.size()), static_cast<uint32_t>(slot)});
    body += "  " + type + " const a" + number(index) + " = (" + type + ")(s" + number(slot) +
            " + " + add_word(access.offset);
    if (access.rank == Rank::kOne) {
      body += ");\n";
    } else if (!walks || is_linear(kernel_, access)) {
      body += ") + i;\n";
    } else {
      for (int d = 0; d < kernel_.ndim; ++d) {
        const auto dim = static_cast<size_t>(d);
        body += " + (i64)p" + number(dim) + " * " + add_word(access.strides[dim] * size);
      }
      body += ");\n";
    }
  }

  std::string read(const Ref& ref, Dtype compute) {
    if (ref.kind == Ref::kTemp) return "t" + number(ref.index);
    if (ref.kind == Ref::kAccess) {
      const std::string element = "*a" + number(ref.index);
      // Any byte but 0 is true: bytes may be seen as bool.
      const bool is_bool = kernel_.accesses[ref.index].dtype == Dtype::kBool;
      return is_bool ? "(u8)(" + element + " != 0)" : element;
    }
    auto at = std::find_if(
        text_.numbers.begin(), text_.numbers.end(),
        [&](const KernelText::Number& n) { return n.index == ref.index && n.dtype == compute; });
    if (at == text_.numbers.end()) {
      at =
          text_.numbers.insert(at, {static_cast<uint32_t>(text_.words.size()), ref.index, compute});
      add_word(0);
    }
    const std::string word = "W(" + number(at->word) + ")";
    if (compute == Dtype::kFloat32) return "as_f32((u32)" + word + ")";
    if (compute == Dtype::kFloat64) return "as_f64(" + word + ")";
    return "(" + std::string(storage_type(compute)) + ")" + word;
  }

  Dtype dtype_of(const Ref& ref, Dtype number) const {
    if (ref.kind == Ref::kTemp) return kernel_.temps[ref.index].dtype;
    return ref.kind == Ref::kAccess ? kernel_.accesses[ref.index].dtype : number;
  }

  void write_instr(const Instr& instr, std::string& body) {
    std::string values[circuit::kMaxArity];
    for (int k = 0; k < instr.arity; ++k) {
      values[k] = words_.converted(read(instr.in[k], instr.compute),
                                   dtype_of(instr.in[k], instr.compute), instr.compute);
    }
    const Dtype target = dtype_of(instr.out, instr.result);
    const std::string value =
        instr.is_op() ? words_.converted(words_.row(instr.op(), instr.compute, values, instr.arity),
                                         instr.result, target)
                      : words_.converted(values[0], instr.compute, target);
    body += "  ";
    if (instr.out.kind == Ref::kTemp) {
      body += "t" + number(instr.out.index);
    } else {
      // One item stores for all that have the same value.
      const MemoryAccess& out = kernel_.accesses[instr.out.index];
      if (out.rank == Rank::kRow && kernel_.cols() > 1) {
        body += "if (p" + number(static_cast<size_t>(kernel_.ndim - 1)) + " == 0) ";
      } else if (out.rank == Rank::kOne) {
        body += "if (i == 0) ";
      }
      body += "*a" + number(instr.out.index);
    }
    body += " = " + value + ";\n";
  }

  const Kernel& kernel_;
  const Traits& traits_;
  Words words_;
  KernelText text_;
};

}  // namespace

std::optional<KernelText> kernel_text(const Kernel& kernel, const Traits& traits,
                                      const circuit::NativeOps& native) {
  if (!can_run(kernel, native)) return std::nullopt;
  return Writer(kernel, traits).write();
}

int max_arguments(const Traits& traits) {
  // All are pointers, beside one for the words.
  return std::max(circuit::kMaxArity + 1, static_cast<int>(traits.parameter_bytes / 8) - 1);
}

}  // namespace hologram::gpu
