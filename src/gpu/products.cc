// SPDX-License-Identifier: MIT
// See products.h.
#include "src/gpu/products.h"

#include <algorithm>
#include <bit>

#include "hologram/call_frame.h"
#include "src/gpu/elementwise.h"

namespace hologram::gpu {
namespace {

// With as many dimensions as `to`, and in all but the last two its sizes, to which it is repeated.
Array expanded(const Array& array, const Array& to) {
  Array result = array;
  result.ndim = to.ndim;
  for (int d = to.ndim; d-- > 0;) {
    const int own = d - (to.ndim - array.ndim);
    const auto at = static_cast<size_t>(d), from = static_cast<size_t>(std::max(0, own));
    const bool repeats = own < 0 || (d < to.ndim - 2 && array.shape[from] != to.shape[at]);
    result.strides[at] = repeats ? 0 : array.strides[from];
    result.shape[at] = own < 0 ? 1 : array.shape[from];
    if (d < to.ndim - 2) result.shape[at] = to.shape[at];
  }
  return result;
}

class ProductWriter : ElementWriter {
 public:
  // `product` is that of the kernel's call.
  ProductWriter(const Product& product, const circuit::Kernel& kernel, const Traits& traits)
      : ElementWriter(kernel, traits), p_(product), first_number_(kernel.call->first_number) {
    const Dtype dtype = product.a.dtype;
    sum_ = is_floating(dtype) ? compute_dtype(dtype) : Dtype::kInt64;
    type_ = storage_type(sum_);
    // Small tiles where large ones would be mostly empty.
    own_ = p_.m() >= 64 && p_.n() >= 64 ? 8 : 2;
  }

  KernelText write() {
    const int64_t tile = kSide * own_;
    const int64_t rows = (p_.m() + tile - 1) / tile, cols = (p_.n() + tile - 1) / tile;
    const std::string m = cat("(i64)", add_word(p_.m())), n = cat("(i64)", add_word(p_.n()));
    const std::string k = cat("(i64)", add_word(p_.k()));
    std::string body;
    put(body, "  LOCAL ", type_, " tile_a[", kDepth * tile, "], tile_b[", kDepth * tile, "];\n");
    const std::string of_rows = add_word(rows), of_cols = add_word(cols);
    put(body, "  const u32 y = LANE / ", kSide, ", x = LANE % ", kSide, ";\n");
    put(body, "  const i64 row = (i64)(OWN_GROUP / (u64)", of_cols, " % (u64)", of_rows, ") * ",
        tile, ", col = (i64)(OWN_GROUP % (u64)", of_cols, ") * ", tile, ";\n");
    put(body, "  const u64 product = OWN_GROUP / ((u64)", of_cols, " * (u64)", of_rows, ");\n");
    if (p_.batch_dims() > 0) {
      put(body, "  ", positions("q", "product", p_.c.shape.data(), 0, p_.batch_dims()), "\n");
    }
    write_begin("a", p_.a, body);
    write_begin("b", p_.b, body);
    if (p_.c.is_given) write_begin("c", p_.c, body);
    if (p_.input.is_given) write_begin("added", p_.input, body);
    put(body, "  ", type_, " sums[", own_ * own_, "];\n#pragma unroll\n");
    put(body, "  for (int e = 0; e < ", own_ * own_, "; ++e) sums[e] = 0;\n");
    put(body, "  for (i64 first = 0; first < ", k, "; first += ", kDepth, ") {\n");
    write_tile("a", p_.a, "row", m, p_.a.ndim - 2, p_.a.ndim - 1, k, tile, body);
    write_tile("b", p_.b, "col", n, p_.b.ndim - 1, p_.b.ndim - 2, k, tile, body);
    put(body, "    BARRIER;\n#pragma unroll\n    for (int step = 0; step < ", kDepth,
        "; ++step) {\n      ", type_, " left[", own_, "], right[", own_, "];\n");
    put(body, "#pragma unroll\n      for (int i = 0; i < ", own_,
        "; ++i) {\n        left[i] = tile_a[step * ", tile, " + y + i * ", kSide,
        "];\n        right[i] = tile_b[step * ", tile, " + x + i * ", kSide, "];\n      }\n");
    put(body, "#pragma unroll\n      for (int e = 0; e < ", own_ * own_,
        "; ++e) {\n        sums[e] = ",
        sum(cat("left[e / ", own_, "]"), cat("right[e % ", own_, "]"), "sums[e]"),
        ";\n      }\n    }\n    BARRIER;\n  }\n");
    write_results(m, n, body);
    int64_t groups = rows * cols;
    for (int d = 0; d < p_.batch_dims(); ++d) groups *= p_.c.shape[static_cast<size_t>(d)];
    return finish(body, static_cast<size_t>(groups));
  }

 private:
  static constexpr int64_t kSide = 8;   // items of a group along each side of its tile
  static constexpr int64_t kDepth = 8;  // of the inner dimension that is in local memory
  static_assert(kSide * kSide == static_cast<int64_t>(kGroupItems));

  // The first byte of the matrix that the group works on.
  void write_begin(const char* name, const Array& array, std::string& body) {
    circuit::MemoryAccess access;
    access.slot = array.slot;
    access.offset = array.offset;
    put(body, "  GLOBAL u8* const ", name, " = ", begin_of(access));
    for (int d = 0; d < p_.batch_dims(); ++d) {
      const int64_t stride = array.strides[static_cast<size_t>(d)];
      if (stride == 0) continue;
      put(body, " + (i64)q", d, " * ",
          add_word(stride * static_cast<int64_t>(itemsize(array.dtype))));
    }
    body += ";\n";
  }

  std::string step(const Array& array, int dim) {
    return add_word(array.strides[static_cast<size_t>(dim)] *
                    static_cast<int64_t>(itemsize(array.dtype)));
  }

  // Elements of an operand into local memory, as [inner][outer]; 0 where there are none. Neighbours
  // read neighbours in memory.
  void write_tile(const char* name, const Array& array, const char* begin, const std::string& size,
                  int outer, int inner, const std::string& depth, int64_t tile, std::string& body) {
    const auto stride_of = [&](int dim) { return array.strides[static_cast<size_t>(dim)]; };
    const bool inner_first = stride_of(inner) < stride_of(outer);
    put(body, "#pragma unroll\n    for (u32 e = LANE; e < ", kDepth * tile, "; e += ", kGroupItems,
        ") {\n      const u32 o = e ", inner_first ? "/ " : "% ", inner_first ? kDepth : tile,
        ", d = e ", inner_first ? "% " : "/ ", inner_first ? kDepth : tile, ";\n");
    const std::string at = cat(name, " + (", begin, " + o) * ", step(array, outer),
                               " + (first + d) * ", step(array, inner));
    put(body, "      tile_", name, "[d * ", tile, " + o] = ", begin, " + o < ", size,
        " && first + d < ", depth, " ? ",
        functions_.converted(load(at, array.dtype), array.dtype, sum_), " : 0;\n    }\n");
  }

  std::string sum(const std::string& x, const std::string& y, const std::string& z) {
    if (is_floating(sum_)) return cat("fma(", x, ", ", y, ", ", z, ")");
    const std::string factors[] = {x, y};
    const std::string terms[] = {functions_.row(OpId::mul, sum_, factors, 2), z};
    return functions_.row(OpId::add, sum_, terms, 2);
  }

  // A number of the call in the type of the sums.
  std::string factor(double field) {
    const auto index = first_number_ + static_cast<uint32_t>(std::bit_cast<uint64_t>(field));
    const Dtype dtype = is_floating(sum_) ? sum_ : Dtype::kInt64;
    text_.numbers.push_back({static_cast<uint32_t>(text_.words.size()), index, dtype, true});
    const std::string word = add_word(0);
    if (dtype == Dtype::kFloat32) return cat("as_f32((u32)", word, ")");
    return dtype == Dtype::kFloat64 ? cat("as_f64(", word, ")") : word;
  }

  void write_results(const std::string& m, const std::string& n, std::string& body) {
    if (p_.has_factors) {
      put(body, "  const ", type_, " alpha = ", factor(p_.alpha), ";\n");
      if (p_.input.is_given) put(body, "  const ", type_, " beta = ", factor(p_.beta), ";\n");
    }
    // Long code is written once for all elements, which a loop cannot find in registers.
    const int elements = own_ * own_;
    const bool is_loop = elements > 4 && !kernel_.instrs.empty();
    if (is_loop) {
      put(body, "  ", type_, " kept[", elements, "];\n#pragma unroll\n  for (int e = 0; e < ",
          elements, "; ++e) kept[e] = sums[e];\n");
    }
    put(body, "#pragma unroll", is_loop ? " 1" : "", "\n  for (int e = 0; e < ", elements,
        "; ++e) {\n");
    put(body, "    const i64 i = row + y + e / ", own_, " * ", kSide, ", j = col + x + e % ", own_,
        " * ", kSide, ";\n    if (i >= ", m, " || j >= ", n, ") continue;\n");
    put(body, "    ", type_, " value = ", is_loop ? "kept" : "sums", "[e];\n");
    const auto at = [&](const char* name, const Array& array) {
      return cat(name, " + i * ", step(array, array.ndim - 2), " + j * ",
                 step(array, array.ndim - 1));
    };
    if (p_.has_factors) {
      const std::string factors[] = {"alpha", "value"};
      put(body, "    value = ", functions_.row(OpId::mul, sum_, factors, 2), ";\n");
      if (p_.input.is_given) {
        const std::string added =
            functions_.converted(load(at("added", p_.input), p_.input.dtype), p_.input.dtype, sum_);
        put(body, "    if (beta != 0) value = ", sum("beta", added, "value"), ";\n");
      }
    }
    if (p_.scale.is_given) {
      circuit::MemoryAccess access;
      access.slot = p_.scale.slot;
      access.offset = p_.scale.offset;
      const std::string scale = functions_.converted(
          load(cat(begin_of(access), " + j * ", step(p_.scale, 0)), p_.scale.dtype), p_.scale.dtype,
          sum_);
      put(body, "    value = value * ", scale, ";\n");
    }
    const std::string_view result = storage_type(p_.c.dtype);
    put(body, "    const ", result, " c_ij = ", functions_.converted("value", sum_, p_.c.dtype),
        ";\n");
    if (p_.c.is_given) put(body, "    *(GLOBAL ", result, "*)(", at("c", p_.c), ") = c_ij;\n");
    if (!kernel_.instrs.empty()) write_work_behind(m, n, body);
    body += "  }\n";
  }

  // The domain is the rows of all products, in as many dimensions as it takes, and their columns.
  void write_work_behind(const std::string& m, const std::string& n, std::string& body) {
    put(body, "    const i64 r = (i64)product * ", m, " + i, number = r * ", n, " + j;\n");
    const int last = kernel_.ndim - 1;
    if (walks()) {
      put(body, "    ", positions("p", "r", kernel_.shape.data(), 0, last), " const i64 p", last,
          " = j;\n");
    }
    write_element("number", "c_ij", body);
  }

  const Product& p_;
  const uint32_t first_number_;
  Dtype sum_ = Dtype::kFloat32;
  std::string_view type_;
  int64_t own_ = 2;  // elements of an item along each side
};

bool fill(const calls::Gemm<Array>& call, Product& product) {
  product.c = call.c;
  product.a = call.trans_a ? call.a.transposed(1, 2) : static_cast<const Array&>(call.a);
  product.b = call.trans_b ? call.b.transposed(1, 2) : static_cast<const Array&>(call.b);
  if (call.input.is_given) {
    product.input = call.input;
  } else if (call.scales) {
    product.input = call.c;
  }
  product.alpha = call.alpha, product.beta = call.beta;
  product.has_factors = true;
  return call.c.ndim == 3;
}

bool fill(const calls::Matmul<Array>& call, Product& product) {
  Array a = call.a, b = call.b, c = call.out;
  // A vector is a row or a column; the result lacks that dimension.
  const auto insert = [](Array& array, int dim) {
    for (int d = array.ndim; d > dim; --d) {
      array.shape[static_cast<size_t>(d)] = array.shape[static_cast<size_t>(d - 1)];
      array.strides[static_cast<size_t>(d)] = array.strides[static_cast<size_t>(d - 1)];
    }
    array.shape[static_cast<size_t>(dim)] = 1;
    array.strides[static_cast<size_t>(dim)] = 0;
    ++array.ndim;
  };
  if (a.ndim == 0 || b.ndim == 0) return false;
  const bool is_row = a.ndim == 1, is_column = b.ndim == 1;
  if (is_row) insert(a, 0);
  if (is_column) insert(b, 1);
  if (is_row) insert(c, is_column ? c.ndim : c.ndim - 1);
  if (is_column) insert(c, c.ndim);
  if (c.ndim > kMostDims || a.dtype != b.dtype || a.dtype != c.dtype) return false;
  product.a = expanded(a, c), product.b = expanded(b, c), product.c = c;
  return true;
}

bool fill(const calls::LinearInt8<Array>& call, Product& product) {
  const int rows = call.input.ndim - 1;
  product.a = call.input, product.c = call.out;
  if (rows != 1 && call.input.can_merge(0, rows) && call.out.can_merge(0, rows)) {
    product.a = call.input.merged(0, rows), product.c = call.out.merged(0, rows);
  } else if (rows == 0) {
    return false;
  }
  product.b = expanded(call.weight.transposed(0, 1), product.c);
  product.scale = call.scale;
  return true;
}

template <class Call>
concept IsProduct = requires(const Call& call, Product& product) {
  fill(call, product);
};

template <class Call>
std::optional<Product> product_of(const circuit::KernelCall& kernel, const Traits& traits) {
  Recipe recipe(kernel, traits);
  RecipeFrame frame(recipe, kernel);
  Call call{};
  Call::each(call, frame);
  Product product;
  if (!frame.is_read() || !fill(call, product) || product.c.numel() == 0) return std::nullopt;
  for (Array* array : {&product.a, &product.b, &product.c, &product.input, &product.scale}) {
    if (array->is_given) array->slot = recipe.call_slots()[array->slot];
  }
  return product;
}

// The result on which instructions may work: it has no gaps. Each row may have its own operands.
bool find_result(const calls::CallView& c, int operand, CallResult& result) {
  int64_t rows = 1, step = 1;
  for (int d = c.ndim; d-- > 0;) {
    if (c.shape[d] != 1 && c.strides[d] != step) return false;
    step *= c.shape[d];
    if (d < c.ndim - 1) rows *= c.shape[d];
  }
  result = {
      .dtype = c.dtype, .rows = rows, .cols = c.shape[c.ndim - 1], .group = 1, .operand = operand};
  return c.dtype != Dtype::kBool && c.ndim < kMostDims;
}

bool result_of(const calls::Gemm<>& call, CallResult& result) {
  return find_result(call.c, 3, result);
}

bool result_of(const calls::Matmul<>& call, CallResult& result) {
  return std::min(call.a.ndim, call.b.ndim) >= 2 &&
         std::max(call.a.ndim, call.b.ndim) < kMostDims && find_result(call.out, 2, result);
}

bool result_of(const calls::LinearInt8<>& call, CallResult& result) {
  return call.input.ndim >= 2 && find_result(call.out, 3, result);
}

template <class Call>
bool result_of_words(const uint64_t* attributes, CallResult& result) {
  CallFrame frame({nullptr, attributes, nullptr, 1});
  return result_of(frame.call<Call>(), result);
}

}  // namespace

bool has_product(CallNumber kind) {
  return for_call(kind, []<class Call>(std::type_identity<Call>) { return IsProduct<Call>; });
}

bool product_result(uint16_t kind, const uint64_t* attributes, CallResult& result) {
  switch (static_cast<CallNumber>(kind)) {
    case CallNumber::gemm:
      return result_of_words<calls::Gemm<>>(attributes, result);
    case CallNumber::matmul:
      return result_of_words<calls::Matmul<>>(attributes, result);
    case CallNumber::linear_int8:
      return result_of_words<calls::LinearInt8<>>(attributes, result);
    default:
      return false;
  }
}

std::optional<Product> read_product(const circuit::KernelCall& call, const Traits& traits) {
  return for_call(static_cast<CallNumber>(call.kind), [&]<class Call>(std::type_identity<Call>) {
    if constexpr (IsProduct<Call>) {
      return product_of<Call>(call, traits);
    } else {
      return std::optional<Product>();
    }
  });
}

std::optional<KernelText> product_text(const circuit::Kernel& kernel, const Traits& traits,
                                       const circuit::NativeOps& native) {
  const std::optional<Product> product = read_product(*kernel.call, traits);
  if (!product.has_value()) return std::nullopt;
  for (const Array* array : {&product->a, &product->b, &product->c}) {
    if (is_complex(array->dtype) || !native.has(array->dtype) || array->dtype == Dtype::kBool) {
      return std::nullopt;
    }
  }
  return ProductWriter(*product, kernel, traits).write();
}

}  // namespace hologram::gpu
