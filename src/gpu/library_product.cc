// SPDX-License-Identifier: MIT
// See library_product.h.
#include "src/gpu/library_product.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "src/gpu/elementwise.h"
#include "src/gpu/scratch.h"

namespace hologram::gpu {
namespace {

// What blocks of the device's memory begin on; libraries ask for no more.
constexpr int64_t kAlignment = 16;

int64_t stride(const Array& array, int dim) { return array.strides[static_cast<size_t>(dim)]; }
int64_t shape(const Array& array, int dim) { return array.shape[static_cast<size_t>(dim)]; }
int64_t item_bytes(const Array& array) { return static_cast<int64_t>(itemsize(array.dtype)); }

// The last two dimensions, of rows x cols; nothing where neither of them is in one piece.
std::optional<MatrixLayout> layout_of(const Array& array, int64_t rows, int64_t cols) {
  const int64_t row_step = stride(array, array.ndim - 2), col_step = stride(array, array.ndim - 1);
  if ((cols == 1 || col_step == 1) && (rows == 1 || row_step >= cols)) {
    return MatrixLayout{.row_step = rows == 1 ? cols : row_step};
  }
  if ((rows == 1 || row_step == 1) && (cols == 1 || col_step >= rows)) {
    return MatrixLayout{.row_step = cols == 1 ? rows : col_step, .is_transposed = true};
  }
  return std::nullopt;
}

Product transposed(const Product& product) {
  const auto flip = [](const Array& matrix) {
    return matrix.is_given ? matrix.transposed(matrix.ndim - 2, matrix.ndim - 1) : matrix;
  };
  Product flipped = product;
  flipped.a = flip(product.b), flipped.b = flip(product.a);
  flipped.c = flip(product.c), flipped.input = flip(product.input);
  return flipped;
}

bool is_plain(const std::optional<MatrixLayout>& layout) {
  return layout.has_value() && !layout->is_transposed;
}

// Whether the two are the same elements in the same places; those of one element have no stride.
bool is_same(const Array& x, const Array& y) {
  if (x.slot != y.slot || x.offset != y.offset) return false;
  for (int d = 0; d < y.ndim; ++d) {
    if (shape(y, d) != 1 && stride(x, d) != stride(y, d)) return false;
  }
  return true;
}

// Whether their bytes, from the first to the last, may be the same; both have the shape of `y`.
bool may_overlap(const Array& x, const Array& y) {
  if (x.slot != y.slot) return false;
  const auto range = [&](const Array& array) {
    int64_t first = 0, last = 0;
    for (int d = 0; d < y.ndim; ++d) {
      const int64_t end = (shape(y, d) - 1) * stride(array, d);
      (end < 0 ? first : last) += end;
    }
    return std::pair(array.offset + first * item_bytes(array),
                     array.offset + (last + 1) * item_bytes(array));
  };
  const auto [x_begin, x_end] = range(x);
  const auto [y_begin, y_end] = range(y);
  return x_begin < y_end && y_begin < x_end;
}

// What copies the elements of `from`, as far as strides repeat them, to `to`.
KernelText copy_text(const Array& from, const Array& to, const Traits& traits) {
  Kernel kernel;
  kernel.ndim = to.ndim;
  for (const Array* array : {&from, &to}) {
    MemoryAccess& access = kernel.accesses.emplace_back();
    access.slot = array->slot;
    access.offset = array->offset;
    access.dtype = array->dtype;
    (array == &from ? access.loaded : access.stored) = true;
    for (int d = 0; d < to.ndim; ++d) {
      kernel.shape[static_cast<size_t>(d)] = shape(to, d);
      access.strides[static_cast<size_t>(d)] = shape(to, d) == 1 ? 0 : stride(*array, d);
    }
  }
  Instr& instr = kernel.instrs.emplace_back();
  instr.code = circuit::kCodeConvert;
  instr.compute = instr.result = to.dtype;
  instr.arity = 1;
  instr.in[0] = {Ref::kAccess, 0};
  instr.out = {Ref::kAccess, 1};
  return elementwise_text(kernel, traits);
}

// The instructions behind the kernel's product, which is read from where it lies.
KernelText text_behind(const Kernel& kernel, const Array& product, const Traits& traits) {
  Kernel rest = kernel;
  rest.call = nullptr;
  for (MemoryAccess& access : rest.accesses) {
    if (!access.product) continue;
    access.product = false;
    access.slot = product.slot;
    access.offset = product.offset;
    int64_t step = 1;  // a result that others work on has no gaps
    for (auto d = static_cast<size_t>(rest.ndim); d-- > 0;) {
      access.strides[d] = step;
      step *= rest.shape[d];
    }
  }
  return elementwise_text(rest, traits);
}

// Dimensions [0, outer) of a batch, which are walked, and those behind as one of `count` matrices.
struct Split {
  int outer = 0;
  int64_t count = 1;
  std::array<int64_t, 4> steps{};  // of each array
};

Split split_batch(const Product& product, const std::array<const Array*, 4>& arrays) {
  Split batch;
  for (batch.outer = product.batch_dims(); batch.outer > 0; --batch.outer) {
    const int d = batch.outer - 1;
    const int64_t size = shape(product.c, d);
    if (size == 1) continue;
    for (size_t k = 0; k < arrays.size(); ++k) {
      if (batch.count != 1 && stride(*arrays[k], d) != batch.steps[k] * batch.count) return batch;
    }
    for (size_t k = 0; k < arrays.size() && batch.count == 1; ++k) {
      batch.steps[k] = stride(*arrays[k], d);
    }
    batch.count *= size;
  }
  return batch;
}

uint32_t alignment_of(const Array& array, const Array& result, int outer) {
  int64_t bits = kAlignment | array.offset;
  for (int d = 0; d < outer; ++d) {
    if (shape(result, d) != 1) bits |= stride(array, d) * item_bytes(array);
  }
  return static_cast<uint32_t>(bits & -bits);
}

// A batch of matrices times one matrix is one product, of all their rows.
void join_rows(ProductProblem& p) {
  const auto is_tall = [&](const MatrixLayout& x) {
    return !x.is_transposed && x.batch_step == p.m * x.row_step;
  };
  if (p.batch == 1 || p.b.batch_step != 0) return;
  if (!is_tall(p.a) || !is_tall(p.c) || !is_tall(p.d)) return;
  p.m *= std::exchange(p.batch, 1);
  p.a.batch_step = p.c.batch_step = p.d.batch_step = 0;
}

// Whether the input is one row, which is added to each row of every matrix.
bool is_bias(const Product& product) {
  const Array& input = product.input;
  const int rows = input.ndim - 2, cols = input.ndim - 1;
  for (int d = 0; d <= rows; ++d) {
    if (shape(product.c, d) != 1 && stride(input, d) != 0) return false;
  }
  return product.n() == 1 || stride(input, cols) == 1;
}

bool is_for_library(const Product& product) {
  const Dtype dtype = product.c.dtype;
  return is_floating(dtype) && product.a.dtype == dtype && product.b.dtype == dtype &&
         !product.scale.is_given && (!product.input.is_given || product.input.dtype == dtype);
}

}  // namespace

std::unique_ptr<LibraryProduct> LibraryProduct::make(const Kernel& kernel, Driver& driver) {
  if (kernel.call == nullptr) return nullptr;
  const circuit::KernelCall& call = *kernel.call;
  std::optional<Product> read = read_product(call, driver.traits());
  if (!read.has_value() || !is_for_library(*read)) return nullptr;
  const bool is_seen = read->c.is_given;
  if (!is_seen) {
    // Aligned as where it would be seen: the library chooses by that.
    const circuit::CallSlot& result = call.operands[static_cast<size_t>(call.result)];
    read->c.slot = kScratchSlot;
    read->c.offset = result.offset % kAlignment;
  }
  const Array whole = read->c;
  if (!is_plain(layout_of(read->c, read->m(), read->n()))) read = transposed(*read);
  const Product& product = *read;
  const int64_t m = product.m(), n = product.n(), k = product.k();
  const auto a = layout_of(product.a, m, k), b = layout_of(product.b, k, n),
             d = layout_of(product.c, m, n);
  if (!a.has_value() || !b.has_value() || !is_plain(d)) return nullptr;
  const bool adds = product.input.is_given;
  const bool is_added_at = adds && !is_same(product.input, product.c);
  // A library would read what it has written.
  if (is_added_at && may_overlap(product.input, product.c)) return nullptr;
  const auto added = adds ? layout_of(product.input, m, n) : d;
  const bool is_copied = !is_plain(added);
  const Array& c = adds && !is_copied ? product.input : product.c;

  const Split batch = split_batch(product, {&product.a, &product.b, &c, &product.c});
  ProductProblem problem{.dtype = product.c.dtype,
                         .compute = compute_dtype(product.c.dtype),
                         .m = m,
                         .n = n,
                         .k = k,
                         .batch = batch.count,
                         .a = *a,
                         .b = *b,
                         .c = is_copied ? *d : *added,
                         .d = *d};
  const std::pair<MatrixLayout*, const Array*> all[] = {{&problem.a, &product.a},
                                                        {&problem.b, &product.b},
                                                        {&problem.c, &c},
                                                        {&problem.d, &product.c}};
  for (size_t i = 0; i < std::size(all); ++i) {
    all[i].first->batch_step = batch.steps[i];
    all[i].first->alignment = alignment_of(*all[i].second, product.c, batch.outer);
  }
  join_rows(problem);

  auto made = std::make_unique<LibraryProduct>();
  made->algorithm_ = driver.product_algorithm(problem);
  if (made->algorithm_ == nullptr) return nullptr;
  const auto operand = [&](const Array& array) { return Operand{array.slot, array.offset}; };
  if (is_copied && is_bias(product)) {
    problem.bias_alignment = alignment_of(product.input, product.c, 0);
    made->with_bias_ = driver.product_algorithm(problem);
    made->bias_ = operand(product.input);
  }
  made->kind_ = call.kind;
  if (!is_seen) {
    made->result_bytes_ = static_cast<size_t>(whole.offset + whole.numel() * item_bytes(whole));
  }
  made->a_ = operand(product.a), made->b_ = operand(product.b);
  made->c_ = operand(c), made->d_ = operand(product.c);
  made->adds_ = adds;
  made->has_factors_ = product.has_factors;
  const auto number = [&](double field) {
    return call.first_number + static_cast<uint32_t>(std::bit_cast<uint64_t>(field));
  };
  made->alpha_ = number(product.alpha), made->beta_ = number(product.beta);
  made->members_.emplace_back();
  for (int dim = 0; dim < batch.outer; ++dim) {
    const auto before = std::move(made->members_);
    made->members_.clear();
    for (const Member& member : before) {
      for (int64_t i = 0; i < shape(product.c, dim); ++i) {
        const auto step = [&](const Array& array) {
          return i * stride(array, dim) * item_bytes(array);
        };
        made->members_.push_back({member.a + step(product.a), member.b + step(product.b),
                                  member.c + step(c), member.d + step(product.c)});
      }
    }
  }
  if (is_copied) made->before_ = copy_text(product.input, product.c, driver.traits());
  if (!kernel.instrs.empty()) made->after_ = text_behind(kernel, whole, driver.traits());
  return made;
}

double LibraryProduct::number(const circuit::Bindings& bindings, uint32_t index) const {
  return std::bit_cast<double>(bindings.immediates[index]);
}

bool LibraryProduct::needs_copy(const circuit::Bindings& bindings) const {
  if (with_bias_ == nullptr) return true;
  return has_factors_ && number(bindings, beta_) != 1;
}

void LibraryProduct::run(Device& device, Driver& driver, const circuit::Bindings& bindings,
                         const char* scratch) const {
  const bool has_bias = !needs_copy(bindings);
  const ProductAlgorithm& algorithm = has_bias ? *with_bias_ : *algorithm_;
  const Scratch workspace = make_scratch(device, algorithm.workspace_bytes(), name());
  const auto place = [&](const Operand& operand, int64_t offset) {
    const char* const begin = operand.slot == kScratchSlot ? scratch : bindings.slots[operand.slot];
    return driver.place(begin + operand.offset + offset);
  };
  ProductLaunch launch{.algorithm = &algorithm,
                       .workspace = workspace != nullptr ? driver.place(workspace.get()) : Place{},
                       .alpha = has_factors_ ? number(bindings, alpha_) : 1,
                       .beta = adds_ && !has_bias ? number(bindings, beta_) : 0};
  if (has_bias) launch.bias = place(bias_, 0);
  for (const Member& member : members_) {
    launch.a = place(a_, member.a), launch.b = place(b_, member.b);
    launch.c = place(c_, member.c), launch.d = place(d_, member.d);
    driver.launch(launch);
  }
}

size_t LibraryProduct::bytes() const {
  return sizeof(LibraryProduct) + members_.capacity() * sizeof(Member);
}

}  // namespace hologram::gpu
