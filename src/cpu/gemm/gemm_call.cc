// SPDX-License-Identifier: MIT
// Products as recorded calls.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>

#include "hologram/error.h"
#include "hologram/gemm.h"
#include "hologram/parallel.h"
#include "hologram/recorder.h"
#include "src/base/dtype_check.h"
#include "src/cpu/device/call_table.h"
#include "src/cpu/gemm/blocking.h"
#include "src/cpu/gemm/gemm_builtin.h"
#include "src/cpu/gemm/gemm_float.h"
#include "src/cpu/gemm/gemm_provider.h"
#include "src/cpu/gemm/gemm_tiles.h"

namespace hologram {
namespace cpu {
namespace {

using Gemm = calls::Gemm<>;

int64_t size_of(const Gemm& call) { return static_cast<int64_t>(itemsize(call.c.dtype)); }
int64_t depth_of(const Gemm& call) { return call.a.shape[call.trans_a ? 1 : 2]; }

GemmArgs args_of(const Gemm& call, int threads) {
  GemmArgs g;
  g.dtype = call.c.dtype;
  g.trans_a = call.trans_a, g.trans_b = call.trans_b;
  g.m = call.c.shape[1], g.n = call.c.shape[2], g.k = depth_of(call);
  g.alpha = call.alpha, g.beta = call.scales ? call.beta : 0;
  g.a = call.a.data, g.b = call.b.data, g.c = call.c.data;
  g.lda = call.a.strides[1], g.ldb = call.b.strides[1], g.ldc = call.c.strides[1];
  g.max_threads = threads;
  return g;
}

bool is_builtin(const Gemm& call) {
  return provider_of_number(call.provider).gemm == builtin_gemm().gemm;
}
// Whether elements are there before the whole product is: the built-in GEMM computes half types in
// float32 and rounds them at the end.
bool is_done_in_blocks(const Gemm& call) {
  if (!is_builtin(call)) return provider_of_number(call.provider).one_thread;
  return (call.c.dtype == Dtype::kFloat32 || call.c.dtype == Dtype::kFloat64) &&
         !is_sum_of_dots(args_of(call, 1));
}

int threads_for(const Gemm& call, CallThreads threads) {
  const int64_t* size = call.c.shape;
  return size[0] * effective_work(size[1], size[2], depth_of(call)) < kSharedWork ? 1
                                                                                  : threads.most();
}

template <class T>
void spread_row(const char* input, int64_t step, int64_t cols, char* c) {
  const T* from = reinterpret_cast<const T*>(input);
  T* to = reinterpret_cast<T*>(c);
  if (step == 1) {
    std::memcpy(to, from, static_cast<size_t>(cols) * sizeof(T));
  } else if (step == 0) {
    std::fill_n(to, cols, *from);
  } else {
    for (int64_t j = 0; j < cols; ++j) to[j] = from[j * step];
  }
}

void spread_row(const Gemm& call, const char* from, int64_t step, int64_t cols, char* c) {
  switch (size_of(call)) {
    case 1:
      return spread_row<uint8_t>(from, step, cols, c);
    case 2:
      return spread_row<uint16_t>(from, step, cols, c);
    case 4:
      return spread_row<uint32_t>(from, step, cols, c);
    default:
      return spread_row<uint64_t>(from, step, cols, c);
  }
}

// Columns [col, col + cols) of row i of product p get the input, as if it had been there.
void spread_row(const Gemm& call, int64_t p, int64_t i, int64_t col, int64_t cols, char* c) {
  const int64_t* step = call.input.strides;
  const char* from = static_cast<const char*>(call.input.data) +
                     (p * step[0] + i * step[1] + col * step[2]) * size_of(call);
  spread_row(call, from, step[2], cols, c);
}

// narrow: the type of B's elements where it is not that of the call.
void run_gemm_of(const Gemm& call, CallThreads most, std::optional<Dtype> narrow) {
  GemmArgs g = args_of(call, threads_for(call, most));
  const int64_t batch = call.c.shape[0], c_batch = call.c.strides[0];
  char* const c = static_cast<char*>(call.c.data);
  if (call.input.has_data() && g.n == 1 && g.ldc == 1) {
    // Columns that lie as rows do.
    constexpr int64_t kChunk = 65536;
    const int64_t* step = call.input.strides;
    const int64_t chunks = (g.m + kChunk - 1) / kChunk;
    parallel_for(batch * chunks, g.max_threads, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t p = t / chunks, i = t % chunks * kChunk;
        const int64_t from = p * step[0] + i * step[1];
        spread_row(call, static_cast<const char*>(call.input.data) + from * size_of(call), step[1],
                   std::min(kChunk, g.m - i), c + (p * c_batch + i) * size_of(call));
      }
    });
  } else if (call.input.has_data()) {
    const int64_t chunk = std::max<int64_t>(1, 65536 / g.n);
    const int64_t chunks = (g.m + chunk - 1) / chunk;
    parallel_for(batch * chunks, g.max_threads, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t p = t / chunks, last = std::min(g.m, (t % chunks + 1) * chunk);
        for (int64_t i = t % chunks * chunk; i < last; ++i) {
          spread_row(call, p, i, 0, g.n, c + (p * c_batch + i * g.ldc) * size_of(call));
        }
      }
    });
  }
  if (narrow) return narrow_gemm(g, *narrow);
  if (g.k > 0) {
    return run_products(provider_of_number(call.provider), g, batch,
                        {call.a.strides[0], call.b.strides[0], c_batch});
  }
  for (int64_t p = 0; p < batch; ++p) {
    g.c = c + p * c_batch * size_of(call);
    prepare(g);
  }
}

// Up to this many bytes of a row of A, a second pass over C would cost visible time. With longer
// rows, blocks whose part of B stays in the caches are narrow, and A is packed for each.
constexpr int64_t kDeepBytes = 4096;
constexpr int64_t kNearBytes = int64_t{1} << 20;

struct BlocksContext {
  const Gemm& call;
  const CallEpilogue& epilogue;
};

void before_block(void* context, const GemmBlocks::Block& block) {
  const Gemm& call = static_cast<const BlocksContext*>(context)->call;
  if (!call.input.has_data()) return;
  for (int64_t i = 0; i < block.rows; ++i) {
    spread_row(call, 0, block.row + i, block.col, block.cols,
               block.data + i * block.pitch * size_of(call));
  }
}

void after_block(void* context, const GemmBlocks::Block& block) {
  const CallEpilogue& epilogue = static_cast<const BlocksContext*>(context)->epilogue;
  epilogue.run(epilogue.context,
               {block.row, block.rows, block.col, block.cols, block.data, block.pitch});
}

bool run_gemm_blocks_of(const Gemm& call, CallThreads threads, const CallEpilogue& epilogue,
                        std::optional<Dtype> narrow) {
  BlocksContext context{call, epilogue};
  const GemmArgs g = args_of(call, threads_for(call, threads));
  const GemmBlocks blocks{&before_block, &after_block, &context, epilogue.whole_rows};
  if (!is_builtin(call)) return run_tiles_blocks(provider_of_number(call.provider), g, blocks);
  // Each thread would pack more of B than its caches hold.
  if (epilogue.whole_rows && g.n * g.k * size_of(call) > kNearBytes) return false;
  float_gemm_blocks(g, narrow.value_or(g.dtype), blocks);
  return true;
}

// Products of the built-in GEMM that widen B while they read it.
template <Dtype kNarrow>
int narrow_kind(const char* name) {
  return register_call({.name = name,
                        .run =
                            [](const CallArguments& arguments) {
                              CallFrame frame(arguments);
                              run_gemm_of(frame.call<Gemm>(), frame.threads(), kNarrow);
                            },
                        .result =
                            [](const uint64_t* attributes, CallResult& result) {
                              CallFrame frame({nullptr, attributes, nullptr, 1});
                              return result_of(frame.call<Gemm>(), result);
                            },
                        .run_blocks =
                            [](const CallArguments& arguments, const CallEpilogue& epilogue) {
                              CallFrame frame(arguments);
                              return run_gemm_blocks_of(frame.call<Gemm>(), frame.threads(),
                                                        epilogue, kNarrow);
                            }});
}

// An operand of a recorded product: `batch` matrices.
struct Matrices {
  Dtype dtype;
  std::array<int64_t, 3> shape, strides;  // batch, rows, columns; strides are not negative
  CallOperand memory;

  // offset: in bytes.
  Matrices(Dtype type, Buffer* buffer, int64_t offset, const std::array<int64_t, 3>& sizes,
           const std::array<int64_t, 3>& steps)
      : dtype(type), shape(sizes), strides(steps) {
    if (shape[1] == 0 || shape[2] == 0) return;
    int64_t last = 0;
    for (size_t d = 0; d < 3; ++d) last += (shape[d] - 1) * strides[d];
    memory.buffer = buffer;
    memory.offset = offset;
    memory.bytes = (last + 1) * static_cast<int64_t>(itemsize(type));
    memory.reads = true;
  }
  bool is_row_major() const {
    return strides[2] == 1 && strides[1] == shape[2] &&
           (shape[0] == 1 || strides[0] == shape[1] * shape[2]);
  }
};

struct Arg {
  const Matrices* matrices = nullptr;  // null: none

  template <Access>
  static Arg of(const Matrices& matrices) {
    return {&matrices};
  }
  template <Access>
  static Arg of(const Matrices* matrices) {
    return {matrices};
  }
  int64_t count() const {
    const auto& n = matrices->shape;
    return n[0] * n[1] * n[2];
  }
  int dims() const { return 3; }
  int64_t extent(int dim) const { return matrices->shape[static_cast<size_t>(dim)]; }
};

// Room for the words of a product.
template <class T, size_t kRoom>
struct FixedWords {
  std::array<T, kRoom> items;
  size_t count = 0;

  void push_back(const T& item) { items[count++] = item; }
  std::span<const T> span() const { return {items.data(), count}; }
};

class GemmRecord
    : public CallEncoder<GemmRecord, FixedWords<uint64_t, 40>, FixedWords<uint64_t, 2>> {
 public:
  void operand(const Arg& arg) {
    if (arg.matrices == nullptr) {
      operands_.push_back({});
      return word(0);
    }
    const Matrices& m = *arg.matrices;
    operands_.push_back(m.memory);
    const bool row_major = m.is_row_major();
    word(view_head(m.dtype, 3, row_major));
    for (const int64_t size : m.shape) word(static_cast<uint64_t>(size));
    if (row_major) return;
    for (const int64_t stride : m.strides) word(static_cast<uint64_t>(stride));
  }
  bool record(double cost) const {
    return record_call(static_cast<uint16_t>(CallNumber::gemm), operands_.span(), words_.span(),
                       numbers_.span(), cost);
  }

 private:
  FixedWords<CallOperand, 4> operands_;
};

bool overlap(const CallOperand& x, const CallOperand& y) {
  return x.buffer == y.buffer && x.buffer != nullptr && x.offset < y.offset + y.bytes &&
         y.offset < x.offset + x.bytes;
}

void check_ld(const char* name, int64_t ld, int64_t cols) {
  if (ld >= std::max<int64_t>(1, cols)) return;
  fail(ErrorKind::kInvalidArgument, "record_gemm: rows of ", name, " have ", cols,
       " elements but lie only ", ld, " apart");
}

}  // namespace

void run(const Gemm& call, CallThreads threads) { run_gemm_of(call, threads, std::nullopt); }

// A product whose elements other ops may read block by block.
bool result_of(const Gemm& call, CallResult& result) {
  const int64_t *size = call.c.shape, k = depth_of(call);
  result = {call.c.dtype, size[1], size[2], 0, 3};
  return is_done_in_blocks(call) && size[0] == 1 && size[1] > 1 && size[2] > 1 && k > 0 &&
         k * size_of(call) <= kDeepBytes && call.c.strides[1] == size[2];
}

bool run_blocks(const Gemm& call, CallThreads threads, const CallEpilogue& epilogue) {
  return run_gemm_blocks_of(call, threads, epilogue, std::nullopt);
}

// B, where the built-in GEMM computes one product: the bits do not depend on how B is stored.
bool narrowing_of(const Gemm& call, CallNarrowing& narrowing) {
  const Dtype dtype = call.c.dtype;
  const bool half = dtype == Dtype::kFloat16 || dtype == Dtype::kBFloat16;
  if ((dtype != Dtype::kFloat32 && !half) || !is_builtin(call) || call.c.shape[0] != 1 ||
      depth_of(call) == 0) {
    return false;
  }
  static const CallNarrowing known{1, Dtype::kFloat32, narrow_kind<Dtype::kInt8>("gemm_int8"),
                                   narrow_kind<Dtype::kFloat16>("gemm_float16"),
                                   narrow_kind<Dtype::kBFloat16>("gemm_bfloat16")};
  narrowing = known;
  narrowing.dtype = dtype;
  if (half) narrowing.of_float16 = narrowing.of_bfloat16 = -1;
  return true;
}

}  // namespace cpu

bool record_gemm(const RecordGemm& given) {
  RecordGemm g = given;
  check_has_kernels("record_gemm", g.dtype);
  if (g.m < 0 || g.n < 0 || g.k < 0 || g.batch < 0) {
    fail(ErrorKind::kInvalidArgument, "record_gemm: batch, m, n and k must not be negative, got ",
         g.batch, ", ", g.m, ", ", g.n, ", ", g.k);
  }
  if (g.c.buffer == nullptr || !is_recording(g.c.buffer->device()) ||
      !g.c.buffer->device().runs_plans()) {
    return false;
  }
  if (!is_floating(g.dtype) && !is_integer(g.dtype)) return false;
  if (g.batch == 0 || g.m == 0 || g.n == 0) return true;
  // Products whose rows follow each other are one taller product, as in matmul(), where single rows
  // are dense. What is added to single rows may lie anywhere.
  const bool one_row = g.m == 1;
  if (one_row && g.trans_a && g.a.ld == 1) g.trans_a = false, g.a.ld = std::max<int64_t>(1, g.k);
  const int64_t a_row = one_row ? g.k : g.a.ld, c_row = one_row ? g.n : g.c.ld;
  const int64_t input_row = one_row ? g.input.batch_stride : g.input.row_stride;
  if (g.batch > 1 && !g.trans_a && g.b.batch_stride == 0 && g.a.batch_stride == g.m * a_row &&
      g.c.batch_stride == g.m * c_row &&
      (g.beta == 0 || g.input.buffer == nullptr || g.input.batch_stride == g.m * input_row)) {
    g.a.ld = std::max<int64_t>(1, a_row), g.c.ld = c_row, g.input.row_stride = input_row;
    g.m *= g.batch;
    g.batch = 1;
  }
  const auto matrix = [&](const RecordMatrix& m, int64_t rows, int64_t cols) {
    return cpu::Matrices(g.dtype, m.buffer, m.offset, {g.batch, rows, cols},
                         {m.batch_stride, m.ld, 1});
  };
  const int64_t a_rows = g.trans_a ? g.k : g.m, a_cols = g.trans_a ? g.m : g.k;
  const int64_t b_rows = g.trans_b ? g.n : g.k, b_cols = g.trans_b ? g.k : g.n;
  cpu::check_ld("a", g.a.ld, a_cols);
  cpu::check_ld("b", g.b.ld, b_cols);
  cpu::check_ld("c", g.c.ld, g.n);
  const cpu::Matrices a = matrix(g.a, a_rows, a_cols), b = matrix(g.b, b_rows, b_cols);
  cpu::Matrices c = matrix(g.c, g.m, g.n);
  if (cpu::overlap(c.memory, a.memory) || cpu::overlap(c.memory, b.memory)) return false;
  const bool scales = g.beta != 0;
  bool in_place = scales && g.input.buffer == nullptr;
  const RecordAddend& in = g.input;
  std::optional<cpu::Matrices> input;
  if (scales && !in_place) {
    input.emplace(g.dtype, in.buffer, in.offset, c.shape,
                  std::to_array({in.batch_stride, in.row_stride, in.col_stride}));
  }
  if (input && cpu::overlap(c.memory, input->memory)) {
    in_place = in.offset == g.c.offset && (g.n == 1 || in.col_stride == 1) &&
               (g.m == 1 || in.row_stride == g.c.ld) &&
               (g.batch == 1 || in.batch_stride == g.c.batch_stride);
    if (!in_place) return false;
    input.reset();
  }
  c.memory.reads = in_place;
  c.memory.writes = true;
  c.memory.covers = (g.m == 1 || g.c.ld == g.n) && (g.batch == 1 || g.c.batch_stride == g.m * g.n);
  GemmArgs product;
  product.dtype = g.dtype;
  product.trans_a = g.trans_a, product.trans_b = g.trans_b;
  product.m = g.m, product.n = g.n, product.k = g.k;
  product.lda = g.a.ld, product.ldb = g.b.ld, product.ldc = g.c.ld;
  const calls::Gemm<cpu::Arg> call{.a = a,
                                   .b = b,
                                   .input = input ? &*input : nullptr,
                                   .trans_a = g.trans_a,
                                   .trans_b = g.trans_b,
                                   .scales = scales,
                                   .provider = cpu::number_of(cpu::provider_for(product, g.batch)),
                                   .alpha = g.alpha,
                                   .beta = g.beta,
                                   .c = c};
  cpu::GemmRecord record;
  calls::Gemm<cpu::Arg>::each(call, record);
  return record.record(call.cost());
}

}  // namespace hologram
