// SPDX-License-Identifier: MIT
// Products as recorded calls.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include "hologram/error.h"
#include "hologram/gemm.h"
#include "hologram/parallel.h"
#include "hologram/recorder.h"
#include "src/cpu/gemm/blocking.h"
#include "src/cpu/gemm/gemm_builtin.h"
#include "src/cpu/gemm/gemm_float.h"
#include "src/cpu/gemm/gemm_provider.h"
#include "src/cpu/gemm/gemm_tiles.h"

namespace hologram {
namespace cpu {
namespace {

// A product as attribute words. Operands: C, A, B, the input.
struct GemmCall {
  int64_t dtype, trans_a, trans_b;
  int64_t batch, m, n, k;
  int64_t lda, ldb, ldc;
  int64_t a_batch, b_batch, c_batch;
  int64_t scales;    // whether there is something that beta scales
  int64_t provider;  // the address of who computes it
  int64_t input_batch, input_row, input_col;

  Dtype type() const { return static_cast<Dtype>(dtype); }
  const GemmProvider& computed_by() const {
    return *reinterpret_cast<const GemmProvider*>(static_cast<uintptr_t>(provider));
  }
  // Without numbers and memory.
  GemmArgs product() const {
    GemmArgs g;
    g.dtype = type();
    g.trans_a = trans_a != 0, g.trans_b = trans_b != 0;
    g.m = m, g.n = n, g.k = k;
    g.lda = lda, g.ldb = ldb, g.ldc = ldc;
    return g;
  }
  bool is_builtin() const { return computed_by().gemm == builtin_gemm().gemm; }
  // Whether elements are there before the whole product is: the built-in GEMM computes half types
  // in float32 and rounds them at the end.
  bool is_done_in_blocks() const {
    if (!is_builtin()) return computed_by().one_thread;
    return (type() == Dtype::kFloat32 || type() == Dtype::kFloat64) && !is_sum_of_dots(product());
  }
  int64_t size() const { return static_cast<int64_t>(itemsize(type())); }
};
constexpr size_t kWords = sizeof(GemmCall) / sizeof(uint64_t);
using Words = std::array<uint64_t, kWords>;

GemmCall call_of(const uint64_t* attributes) {
  Words words;
  std::copy_n(attributes, kWords, words.begin());
  return std::bit_cast<GemmCall>(words);
}

int threads_for(const GemmCall& call, int max_threads) {
  return call.batch * effective_work(call.m, call.n, call.k) < kSharedWork ? 1 : max_threads;
}

template <class T>
void spread_row(const GemmCall& call, const char* input, int64_t cols, char* c) {
  const T* from = reinterpret_cast<const T*>(input);
  T* to = reinterpret_cast<T*>(c);
  if (call.input_col == 1) {
    std::memcpy(to, from, static_cast<size_t>(cols) * sizeof(T));
  } else {
    for (int64_t j = 0; j < cols; ++j) to[j] = from[j * call.input_col];
  }
}

// Columns [col, col + cols) of row i of product p get the input, as if it had been there.
void spread_row(const GemmCall& call, const char* input, int64_t p, int64_t i, int64_t col,
                int64_t cols, char* c) {
  input += (p * call.input_batch + i * call.input_row + col * call.input_col) * call.size();
  switch (call.size()) {
    case 1:
      return spread_row<uint8_t>(call, input, cols, c);
    case 2:
      return spread_row<uint16_t>(call, input, cols, c);
    case 4:
      return spread_row<uint32_t>(call, input, cols, c);
    default:
      return spread_row<uint64_t>(call, input, cols, c);
  }
}

GemmArgs gemm_args(const GemmCall& call, const CallArguments& arguments, int threads) {
  GemmArgs g = call.product();
  g.alpha = std::bit_cast<double>(arguments.numbers[0]);
  g.beta = call.scales != 0 ? std::bit_cast<double>(arguments.numbers[1]) : 0;
  g.a = arguments.operands[1], g.b = arguments.operands[2], g.c = arguments.operands[0];
  g.max_threads = threads;
  return g;
}

// narrow: the type of B's elements where it is not that of the call.
void run_gemm_of(const CallArguments& arguments, std::optional<Dtype> narrow) {
  const GemmCall call = call_of(arguments.attributes);
  const int threads = threads_for(call, arguments.max_threads);
  char* const c = arguments.operands[0];
  if (const char* input = arguments.operands[3]; input != nullptr) {
    const int64_t chunk = std::max<int64_t>(1, 65536 / call.n);
    const int64_t chunks = (call.m + chunk - 1) / chunk;
    parallel_for(call.batch * chunks, threads, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t p = t / chunks, last = std::min(call.m, (t % chunks + 1) * chunk);
        for (int64_t i = t % chunks * chunk; i < last; ++i) {
          spread_row(call, input, p, i, 0, call.n,
                     c + (p * call.c_batch + i * call.ldc) * call.size());
        }
      }
    });
  }
  GemmArgs g = gemm_args(call, arguments, threads);
  if (narrow) return narrow_gemm(g, *narrow);
  if (call.k > 0) {
    return run_products(call.computed_by(), g, call.batch,
                        {call.a_batch, call.b_batch, call.c_batch});
  }
  for (int64_t p = 0; p < call.batch; ++p) {
    g.c = c + p * call.c_batch * call.size();
    prepare(g);
  }
}

void run_gemm(const CallArguments& arguments) { run_gemm_of(arguments, std::nullopt); }

// Up to this many bytes of a row of A, a second pass over C would cost visible time. With longer
// rows, blocks whose part of B stays in the caches are narrow, and A is packed for each.
constexpr int64_t kDeepBytes = 4096;
constexpr int64_t kNearBytes = int64_t{1} << 20;

// A product whose elements other ops may read block by block.
bool gemm_result(const uint64_t* attributes, CallResult& result) {
  const GemmCall call = call_of(attributes);
  result = {call.type(), call.m, call.n};
  return call.is_done_in_blocks() && call.batch == 1 && call.m > 1 && call.n > 1 && call.k > 0 &&
         call.k * call.size() <= kDeepBytes && call.ldc == call.n;
}

struct BlocksContext {
  const GemmCall& call;
  const char* input;
  const CallEpilogue& epilogue;
};

void before_block(void* context, const GemmBlocks::Block& block) {
  const auto& [call, input, epilogue] = *static_cast<const BlocksContext*>(context);
  if (input == nullptr) return;
  for (int64_t i = 0; i < block.rows; ++i) {
    spread_row(call, input, 0, block.row + i, block.col, block.cols,
               block.data + i * block.pitch * call.size());
  }
}

void after_block(void* context, const GemmBlocks::Block& block) {
  const CallEpilogue& epilogue = static_cast<const BlocksContext*>(context)->epilogue;
  epilogue.run(epilogue.context,
               {block.row, block.rows, block.col, block.cols, block.data, block.pitch});
}

bool run_gemm_blocks_of(const CallArguments& arguments, const CallEpilogue& epilogue,
                        std::optional<Dtype> narrow) {
  const GemmCall call = call_of(arguments.attributes);
  const int threads = threads_for(call, arguments.max_threads);
  BlocksContext context{call, arguments.operands[3], epilogue};
  const GemmArgs g = gemm_args(call, arguments, threads);
  const GemmBlocks blocks{&before_block, &after_block, &context, epilogue.whole_rows};
  if (!call.is_builtin()) return run_tiles_blocks(call.computed_by(), g, blocks);
  // Each thread would pack more of B than its caches hold.
  if (epilogue.whole_rows && call.n * call.k * call.size() > kNearBytes) return false;
  float_gemm_blocks(g, narrow.value_or(g.dtype), blocks);
  return true;
}
bool run_gemm_blocks(const CallArguments& arguments, const CallEpilogue& epilogue) {
  return run_gemm_blocks_of(arguments, epilogue, std::nullopt);
}

// Products of the built-in GEMM that widen B while they read it.
template <Dtype kNarrow>
int narrow_kind(const char* name) {
  return register_call(
      {.name = name,
       .run = [](const CallArguments& arguments) { run_gemm_of(arguments, kNarrow); },
       .result = &gemm_result,
       .run_blocks =
           [](const CallArguments& arguments, const CallEpilogue& epilogue) {
             return run_gemm_blocks_of(arguments, epilogue, kNarrow);
           }});
}

// B, where the built-in GEMM computes one product: the bits do not depend on how B is stored.
bool gemm_narrowing(const uint64_t* attributes, CallNarrowing& narrowing) {
  const GemmCall call = call_of(attributes);
  const Dtype dtype = call.type();
  const bool half = dtype == Dtype::kFloat16 || dtype == Dtype::kBFloat16;
  if ((dtype != Dtype::kFloat32 && !half) || !call.is_builtin() || call.batch != 1 || call.k == 0)
    return false;
  static const CallNarrowing known{2, Dtype::kFloat32, narrow_kind<Dtype::kInt8>("gemm_int8"),
                                   narrow_kind<Dtype::kFloat16>("gemm_float16"),
                                   narrow_kind<Dtype::kBFloat16>("gemm_bfloat16")};
  narrowing = known;
  narrowing.dtype = dtype;
  if (half) narrowing.of_float16 = narrowing.of_bfloat16 = -1;
  return true;
}

uint16_t gemm_kind() {
  static const uint16_t kind = register_call({.name = "gemm",
                                              .run = &run_gemm,
                                              .result = &gemm_result,
                                              .run_blocks = &run_gemm_blocks,
                                              .narrowing = &gemm_narrowing});
  return kind;
}

// The bytes of `batch` matrices, whose strides are not negative.
CallOperand extent(Buffer* buffer, int64_t offset, int64_t batch, int64_t batch_stride,
                   int64_t rows, int64_t row_stride, int64_t cols, int64_t col_stride,
                   int64_t size) {
  CallOperand operand;
  if (rows == 0 || cols == 0) return operand;
  operand.buffer = buffer;
  operand.offset = offset;
  operand.bytes =
      ((batch - 1) * batch_stride + (rows - 1) * row_stride + (cols - 1) * col_stride + 1) * size;
  operand.reads = true;
  return operand;
}

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
}  // namespace cpu

bool record_gemm(const RecordGemm& given) {
  RecordGemm g = given;
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
  // Products whose rows follow each other are one taller product, as in matmul().
  if (g.batch > 1 && !g.trans_a && g.b.batch_stride == 0 && g.a.batch_stride == g.m * g.a.ld &&
      g.c.batch_stride == g.m * g.c.ld &&
      (g.input.buffer == nullptr || g.input.batch_stride == g.m * g.input.row_stride)) {
    g.m *= g.batch;
    g.batch = 1;
  }
  const int64_t size = static_cast<int64_t>(itemsize(g.dtype));
  const auto matrix = [&](const RecordMatrix& m, int64_t rows, int64_t cols) {
    return cpu::extent(m.buffer, m.offset, g.batch, m.batch_stride, rows, m.ld, cols, 1, size);
  };
  const int64_t a_rows = g.trans_a ? g.k : g.m, a_cols = g.trans_a ? g.m : g.k;
  const int64_t b_rows = g.trans_b ? g.n : g.k, b_cols = g.trans_b ? g.k : g.n;
  cpu::check_ld("a", g.a.ld, a_cols);
  cpu::check_ld("b", g.b.ld, b_cols);
  cpu::check_ld("c", g.c.ld, g.n);
  CallOperand operands[4] = {matrix(g.c, g.m, g.n), matrix(g.a, a_rows, a_cols),
                             matrix(g.b, b_rows, b_cols)};
  CallOperand& c = operands[0];
  if (cpu::overlap(c, operands[1]) || cpu::overlap(c, operands[2])) return false;
  const bool scales = g.beta != 0;
  bool in_place = scales && g.input.buffer == nullptr;
  if (scales && !in_place) {
    const RecordAddend& in = g.input;
    operands[3] = cpu::extent(in.buffer, in.offset, g.batch, in.batch_stride, g.m, in.row_stride,
                              g.n, in.col_stride, size);
    if (cpu::overlap(c, operands[3])) {
      in_place = in.offset == c.offset && (g.n == 1 || in.col_stride == 1) &&
                 (g.m == 1 || in.row_stride == g.c.ld) &&
                 (g.batch == 1 || in.batch_stride == g.c.batch_stride);
      if (!in_place) return false;
      operands[3] = {};
    }
  }
  c.reads = in_place;
  c.writes = true;
  c.covers = (g.m == 1 || g.c.ld == g.n) && (g.batch == 1 || g.c.batch_stride == g.m * g.n);

  const bool has_input = operands[3].buffer != nullptr;
  cpu::GemmCall call{.dtype = static_cast<int64_t>(g.dtype),
                     .trans_a = g.trans_a,
                     .trans_b = g.trans_b,
                     .batch = g.batch,
                     .m = g.m,
                     .n = g.n,
                     .k = g.k,
                     .lda = g.a.ld,
                     .ldb = g.b.ld,
                     .ldc = g.c.ld,
                     .a_batch = g.a.batch_stride,
                     .b_batch = g.b.batch_stride,
                     .c_batch = g.c.batch_stride,
                     .scales = scales,
                     .provider = 0,
                     .input_batch = has_input ? g.input.batch_stride : 0,
                     .input_row = has_input ? g.input.row_stride : 0,
                     .input_col = has_input ? g.input.col_stride : 0};
  call.provider = static_cast<int64_t>(
      reinterpret_cast<uintptr_t>(&cpu::provider_for(call.product(), g.batch)));
  const uint64_t numbers[] = {std::bit_cast<uint64_t>(g.alpha), std::bit_cast<uint64_t>(g.beta)};
  // Some fifty multiplications a nanosecond.
  const double cost = 200 + static_cast<double>(g.batch * g.m) * static_cast<double>(g.n) *
                                static_cast<double>(g.k) / 50;
  return record_call(cpu::gemm_kind(), operands, std::bit_cast<cpu::Words>(call), numbers, cost);
}

}  // namespace hologram
