// SPDX-License-Identifier: MIT
// See indexing.h. An item makes an element of the result.
#include "src/gpu/indexing.h"

#include "hologram/loss.h"
#include "src/gpu/writer.h"

namespace hologram::gpu {
namespace {

// Elements that are moved as they are.
std::string_view bits_type(Dtype dtype) {
  switch (itemsize(dtype)) {
    case 1:
      return "u8";
    case 2:
      return "u16";
    case 4:
      return "u32";
    default:
      return "u64";
  }
}

// Operands as [outer, size, inner] around a dimension.
struct Lines {
  int64_t outer = 1, inner = 1;

  Lines(const Array& array, int64_t dim) {
    for (int64_t d = 0; d < array.ndim; ++d) {
      if (d < dim) outer *= array.shape[static_cast<size_t>(d)];
      if (d > dim) inner *= array.shape[static_cast<size_t>(d)];
    }
  }
};

class IndexWriter : Writer {
 public:
  IndexWriter(const circuit::Kernel& nothing, const Traits& traits, CallNumber number)
      : Writer(nothing, traits), number_(number) {}

  std::optional<KernelText> write(const calls::Take<Array>& call) {
    if (!are_plain({&call.input, &call.out})) return std::nullopt;
    return moved(call.input, call.index, call.out, call.dim, call.index.numel(), "k");
  }

  std::optional<KernelText> write(const calls::Gather<Array>& call) {
    if (!are_plain({&call.input, &call.out})) return std::nullopt;
    return moved(call.input, call.index, call.out, call.dim,
                 call.index.shape[static_cast<size_t>(call.dim)], "i");
  }

  std::optional<KernelText> write(const calls::NllLossBackward<Array>& call) {
    const Array& out = call.grad_input;
    const Dtype dtype = out.dtype;
    if (!are_plain({&call.grad, &call.target, &call.total_weight, &out}) || !is_floating(dtype) ||
        (call.weight.is_given && !call.weight.is_row_major())) {
      return std::nullopt;
    }
    const auto reduction = static_cast<LossReduction>(call.reduction);
    const int64_t class_dim = out.ndim == 1 ? 0 : 1;
    const Lines lines(out, class_dim);
    const int64_t classes = out.shape[static_cast<size_t>(class_dim)];
    // As the CPU's kernel: rounded once.
    const Dtype compute = traits_.has_double ? Dtype::kFloat64 : compute_dtype(dtype);
    begin(out.numel());
    put(body_, "  const i64 inner = ", add_word(lines.inner), ", size = ", add_word(classes),
        ";\n");
    body_ += "  const i64 c = i / inner % size, at = i / (inner * size) * inner + i % inner;\n";
    pointer("out", out, storage_type(dtype));
    pointer("grad", call.grad, storage_type(dtype));
    pointer("target", call.target, storage_type(call.target.dtype));
    const auto value = [&](const std::string& element) {
      return functions_.converted(element, dtype, compute);
    };
    const std::string type(storage_type(compute));
    put(body_, "  const i64 wanted = (i64)target[at];\n");
    put(body_, "  const int counts = wanted != ", add_word(call.ignore_index), ";\n");
    body_ += "  if (counts && (wanted < 0 || wanted >= size)) {\n";
    fault("size");
    put(body_, "  }\n  ", type,
        " g = ", value(reduction == LossReduction::none ? "grad[at]" : "grad[0]"), ";\n");
    if (reduction == LossReduction::mean) {
      pointer("total", call.total_weight, storage_type(dtype));
      put(body_, "  g = ", quotient("g", value("total[0]"), compute), ";\n");
    }
    if (call.weight.is_given) {
      pointer("weight", call.weight, storage_type(dtype));
      put(body_, "  g = g * ", value("weight[c]"), ";\n");
    }
    put(body_, "  out[i] = ",
        functions_.converted(cat("(counts && wanted == c ? -g : 0)"), compute, dtype), ";\n");
    return end(out.numel());
  }

 private:
  bool are_plain(std::initializer_list<const Array*> arrays) const {
    for (const Array* array : arrays) {
      if (!array->is_given || array->numel() == 0 || is_complex(array->dtype) ||
          !array->is_row_major() || (!traits_.has_double && array->dtype == Dtype::kFloat64)) {
        return false;
      }
    }
    return true;
  }

  void begin(int64_t items) {
    put(body_, "  const i64 i = (i64)OWN_ITEM;\n  if (i >= ", add_word(items), ") return;\n");
  }
  void pointer(const char* name, const Array& array, std::string_view type) {
    circuit::MemoryAccess access;
    access.slot = array.slot;
    access.offset = array.offset;
    const std::string begin = begin_of(access);
    put(body_, "  GLOBAL ", type, "* const ", name, " = (GLOBAL ", type, "*)(", begin, ");\n");
  }
  // Items that write there write the same.
  void fault(const char* size) {
    circuit::MemoryAccess access;
    access.slot = kFaultSlot;
    const std::string begin = begin_of(access);
    put(body_, "    GLOBAL i64* const fault = (GLOBAL i64*)(", begin, ");\n");
    put(body_, "    fault[0] = ", static_cast<int>(number_) + 1, ";\n    fault[1] = ", size, ";\n");
  }
  std::string quotient(const std::string& a, const std::string& b, Dtype compute) {
    const std::string both[] = {a, b};
    return functions_.row(OpId::div, compute, both, 2);
  }

  // out[o, k, d] = input[o, at, d], where `at` is the index at the position that `of` says, of `k`,
  // the place along the dimension, or of `i`, the element.
  std::optional<KernelText> moved(const Array& input, const Array& index, const Array& out,
                                  int64_t dim, int64_t count, const char* of) {
    if (!are_plain({&index})) return std::nullopt;
    const Lines lines(input, dim);
    begin(out.numel());
    put(body_, "  const i64 inner = ", add_word(lines.inner), ", count = ", add_word(count),
        ", size = ", add_word(input.shape[static_cast<size_t>(dim)]), ";\n");
    body_ += "  const i64 k = i / inner % count, o = i / (inner * count);\n";
    pointer("in", input, bits_type(input.dtype));
    pointer("out", out, bits_type(out.dtype));
    pointer("index", index, storage_type(index.dtype));
    put(body_, "  i64 at = (i64)index[", of, "];\n  if (at < 0) at += size;\n");
    body_ += "  if (at < 0 || at >= size) {\n";
    fault("size");
    body_ += "    at = 0;\n  }\n  out[i] = in[(o * size + at) * inner + i % inner];\n";
    return end(out.numel());
  }

  KernelText end(int64_t items) { return finish_items(body_, static_cast<size_t>(items)); }

  const CallNumber number_;
  std::string body_;
};

template <class Call>
concept IsIndexed = requires(IndexWriter& writer, const Call& call) {
  writer.write(call);
};

}  // namespace

bool has_indexing(CallNumber kind) {
  return for_call(kind, []<class Call>(std::type_identity<Call>) { return IsIndexed<Call>; });
}

std::optional<KernelText> indexing_text(const circuit::KernelCall& kernel, Recipe& recipe,
                                        const Traits& traits) {
  const auto kind = static_cast<CallNumber>(kernel.kind);
  return for_call(kind, [&]<class Call>(std::type_identity<Call>) -> std::optional<KernelText> {
    if constexpr (IsIndexed<Call>) {
      RecipeFrame frame(recipe, kernel);
      Call call{};
      Call::each(call, frame);
      const circuit::Kernel nothing;
      if (frame.is_read()) return IndexWriter(nothing, traits, kind).write(call);
    }
    return std::nullopt;
  });
}

}  // namespace hologram::gpu
