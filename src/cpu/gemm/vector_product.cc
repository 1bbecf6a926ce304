// SPDX-License-Identifier: MIT
// Cuts matrix times vector into runs of results, and long dot products into pieces.
#include "src/cpu/gemm/vector_product.h"

#include <algorithm>
#include <vector>

#include "hologram/elementwise.h"
#include "hologram/parallel.h"
#include "src/base/element.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/gemm/vector_kernels.h"

namespace hologram::cpu {
namespace {

// Elements of the matrix for each task: some five microseconds.
constexpr int64_t kTaskElements = int64_t{1} << 16;
// Elements of a piece of a dot product.
constexpr int64_t kPiece = 4096;
// Rows that are read together: see DotRows().
constexpr int64_t kRowsRead = 4;
// Results that are summed at a time.
constexpr int64_t kMostResults = 8192, kMostDots = 1024;
// With fewer rows than this their places in vectors are not worth settling.
constexpr int64_t kLeastShortRows = 16;
// Pieces of k for columns of few results, and rows of them that are read at a time.
constexpr int64_t kMostShortPieces = 64, kShortRowsTogether = 4096;

// y = alpha M x + beta y. Either the rows of M, one for each result, lie along k, or its columns
// do, so that result j is a sum over elements j of k rows.
template <class T>
struct VectorProduct {
  const GemmArgs& g;
  const VectorKernel<T>& kernel;
  int64_t size = static_cast<int64_t>(itemsize(g.dtype));  // of C's elements
  Dtype matrix_type, vector_type;
  const char* matrix = nullptr;
  int64_t ld = 0;
  bool along_k = false;
  const char* vector = nullptr;
  int64_t step = 0;  // of the vector
  int64_t count = 0, result_step = 0;
  std::vector<T> packed;

  VectorProduct(const GemmArgs& args, Dtype b_type)
      : g(args),
        kernel(vector_kernel(current_isa(), args.m == 1 ? b_type : args.dtype, T())),
        matrix_type(args.m == 1 ? b_type : args.dtype),
        vector_type(args.m == 1 ? args.dtype : b_type) {
    const bool row = g.m == 1;
    matrix = static_cast<const char*>(row ? g.b : g.a);
    ld = row ? g.ldb : g.lda;
    along_k = row ? g.trans_b : !g.trans_a;
    vector = static_cast<const char*>(row ? g.a : g.b);
    if (row) {
      step = g.trans_a ? g.lda : 1;
    } else {
      step = g.trans_b ? 1 : g.ldb;
    }
    count = row ? g.n : g.m;
    result_step = row ? 1 : g.ldc;
    if (count == 1 && !along_k && ld == 1) along_k = true;
  }

  static constexpr Dtype kComputed = sizeof(T) == 4 ? Dtype::kFloat32 : Dtype::kFloat64;

  const char* in_matrix(int64_t i) const {
    return matrix + i * static_cast<int64_t>(itemsize(matrix_type));
  }

  // Elements `by` apart, side by side as T.
  static void gather(Dtype type, const void* from, int64_t by, int64_t n, T* to) {
    if (by == 1) return convert(type, from, kComputed, to, n);
    if (type == kComputed) return strided_copy(static_cast<const T*>(from), by, n, to, 1);
    in_chunks(type, n, [&]<class U>(U* chunk, int64_t first, int64_t count) {
      strided_copy(static_cast<const U*>(from) + first * by, by, count, chunk, 1);
      convert(type, chunk, kComputed, to + first, count);
    });
  }
  // The reverse.
  static void scatter(const T* from, Dtype type, void* to, int64_t by, int64_t n) {
    if (by == 1) return convert(kComputed, from, type, to, n);
    if (type == kComputed) return strided_copy(from, 1, n, static_cast<T*>(to), by);
    in_chunks(type, n, [&]<class U>(U* chunk, int64_t first, int64_t count) {
      convert(kComputed, from + first, type, chunk, count);
      strided_copy(chunk, 1, count, static_cast<U*>(to) + first * by, by);
    });
  }

  template <class U>
  static void strided_copy(const U* from, int64_t from_step, int64_t n, U* to, int64_t to_step) {
    for (int64_t i = 0; i < n; ++i) to[i * to_step] = from[i * from_step];
  }

  // Calls f with room for a few elements of the type, as words of their size.
  template <class F>
  static void in_chunks(Dtype type, int64_t n, F&& f) {
    constexpr int64_t kChunk = 256;
    with_element("gemm", static_cast<int64_t>(itemsize(type)), [&]<class U>(U) {
      U chunk[kChunk];
      for (int64_t i = 0; i < n; i += kChunk) f(chunk, i, std::min(kChunk, n - i));
    });
  }

  void run() {
    if (count == 1 || (along_k && are_few_long_dots(count, g.k))) return dot();
    if (g.k == 1 && ld == 1) along_k = false;
    if (!along_k && count <= kLongestShortRow && g.k >= kLeastShortRows)
      return sums_of_short_rows();
    const T* x = reinterpret_cast<const T*>(vector);
    if (step != 1 || vector_type != kComputed) {
      packed.resize(static_cast<size_t>(g.k));
      gather(vector_type, vector, step, g.k, packed.data());
      x = packed.data();
    }
    along_k ? dots(x) : sums(x);
  }

  // Whether sums are results.
  bool are_stored() const {
    return g.dtype == kComputed && result_step == 1 && g.alpha == 1 && g.beta == 0;
  }

  // Results [first, first + n), at most kMostResults, from sums.
  void store(int64_t first, int64_t n, T* sums) const {
    const T alpha = static_cast<T>(g.alpha), beta = static_cast<T>(g.beta);
    char* const to = static_cast<char*>(g.c) + first * result_step * size;
    if (alpha != T(1)) {
      for (int64_t i = 0; i < n; ++i) sums[i] *= alpha;
    }
    if (beta != T(0)) {
      T before[kMostResults];
      gather(g.dtype, to, result_step, n, before);
      for (int64_t i = 0; i < n; ++i) sums[i] += beta * before[i];
    }
    scatter(sums, g.dtype, to, result_step, n);
  }

  void dots(const T* x) const {
    const int64_t wish = std::clamp<int64_t>(kTaskElements / g.k, 1, kMostDots);
    const int64_t chunk = ceil_div(wish, kRowsRead) * kRowsRead;
    parallel_for(ceil_div(count, chunk), g.max_threads, [&](int64_t begin, int64_t end, int) {
      T results[kMostDots];
      for (int64_t i = begin * chunk; i < std::min(count, end * chunk); i += chunk) {
        const int64_t n = std::min(chunk, count - i);
        T* const to = are_stored() ? static_cast<T*>(g.c) + i : results;
        kernel.dot_rows(in_matrix(i * ld), ld, x, n, g.k, to);
        if (!are_stored()) store(i, n, results);
      }
    });
  }

  // Pieces of k that are summed apart, so that each thread reads whole rows of the matrix, which
  // lie one after another. Their number follows from k alone, or the bits would hang on the
  // threads.
  int64_t pieces() const { return g.k < 512 ? 1 : g.k < 1024 ? 2 : 4; }

  void sums(const T* x) const {
    const int64_t pieces = this->pieces(), depth = ceil_div(ceil_div(g.k, pieces), 4) * 4;
    const int threads = threads_of(g.max_threads);
    const int64_t useful = std::clamp<int64_t>(count * g.k / kTaskElements, 1, threads);
    const int64_t width = ceil_div(ceil_div(count, ceil_div(useful, pieces)), kWhole) * kWhole;
    const int64_t ranges = ceil_div(count, width);
    std::vector<T> found(static_cast<size_t>(pieces > 1 ? pieces * count : 0));
    parallel_for(pieces * ranges, g.max_threads, [&](int64_t begin, int64_t end, int) {
      T results[kMostResults];
      for (int64_t task = begin; task < end; ++task) {
        const int64_t from = task / ranges * depth, first = task % ranges * width;
        const int64_t last = std::min(count, first + width);
        for (int64_t j = first; j < last; j += kMostResults) {
          const int64_t n = std::min(kMostResults, last - j);
          T* to = results;
          if (pieces > 1) {
            to = &found[static_cast<size_t>(task / ranges * count + j)];
          } else if (are_stored()) {
            to = static_cast<T*>(g.c) + j;
          }
          std::fill_n(to, n, T(0));
          kernel.add_rows(in_matrix(from * ld + j), ld, x + from, std::min(depth, g.k - from), n,
                          to);
          if (to == results) store(j, n, to);
        }
      }
    });
    for (int64_t j = 0; pieces > 1 && j < count; j += kMostResults) {
      const int64_t n = std::min(kMostResults, count - j);
      T* const sums = &found[static_cast<size_t>(j)];
      for (int64_t piece = 1; piece < pieces; ++piece) {
        for (int64_t i = 0; i < n; ++i) sums[i] += sums[piece * count + i];
      }
      store(j, n, sums);
    }
  }

  // Few results: rows of the matrix are shorter than a vector, or a few vectors long. The number of
  // pieces follows from the sizes alone.
  void sums_of_short_rows() const {
    const int64_t pieces =
        std::clamp<int64_t>(g.k / (kTaskElements / count), int64_t{1}, kMostShortPieces);
    const int64_t depth = ceil_div(ceil_div(g.k, pieces), kWhole) * kWhole;
    const bool direct = vector_type == kComputed && step == 1;
    T found[kMostShortPieces * kLongestShortRow];
    parallel_for(pieces, g.max_threads, [&](int64_t begin, int64_t end, int) {
      T x[kShortRowsTogether];
      for (int64_t piece = begin; piece < end; ++piece) {
        T* const to = found + piece * count;
        std::fill_n(to, count, T(0));
        const int64_t last = std::min(g.k, (piece + 1) * depth);
        for (int64_t from = piece * depth; from < last; from += kShortRowsTogether) {
          const int64_t n = std::min(kShortRowsTogether, last - from);
          const char* part = vector + from * step * static_cast<int64_t>(itemsize(vector_type));
          if (!direct) gather(vector_type, part, step, n, x);
          kernel.add_short_rows(in_matrix(from * ld), ld,
                                direct ? reinterpret_cast<const T*>(part) : x, n, count, to);
        }
      }
    });
    for (int64_t piece = 1; piece < pieces; ++piece) {
      for (int64_t i = 0; i < count; ++i) found[i] += found[piece * count + i];
    }
    store(0, count, found);
  }

  // Few results: threads share pieces of k, whose sums are added in order. The part of the vector
  // is converted once and stays near for all rows.
  void dot() const {
    const int64_t pieces = ceil_div(g.k, kPiece);
    const bool direct = vector_type == kComputed && step == 1;
    const auto dot_rows =
        vector_kernel(current_isa(), along_k ? matrix_type : kComputed, T()).dot_rows;
    constexpr int64_t kFew = 16;
    T few[kFew];
    std::vector<T> many(static_cast<size_t>(pieces * count > kFew ? pieces * count : 0));
    T* const found = many.empty() ? few : many.data();
    const int64_t together = std::max<int64_t>(kTaskElements / (kPiece * count), 1);
    parallel_for(ceil_div(pieces, together), g.max_threads, [&](int64_t begin, int64_t end, int) {
      T x[kPiece], y[kPiece];
      for (int64_t piece = begin * together; piece < std::min(pieces, end * together); ++piece) {
        const int64_t from = piece * kPiece, n = std::min(kPiece, g.k - from);
        const char* left = vector + from * step * static_cast<int64_t>(itemsize(vector_type));
        if (!direct) gather(vector_type, left, step, n, x);
        if (!along_k) gather(matrix_type, in_matrix(from * ld), ld, n, y);
        dot_rows(along_k ? static_cast<const void*>(in_matrix(from)) : y, ld,
                 direct ? reinterpret_cast<const T*>(left) : x, count, n, found + piece * count);
      }
    });
    for (int64_t piece = 1; piece < pieces; ++piece) {
      for (int64_t i = 0; i < count; ++i) found[i] += found[piece * count + i];
    }
    store(0, count, found);
  }
};

}  // namespace

void vector_product(const GemmArgs& args, Dtype b_type) {
  if (args.dtype == Dtype::kFloat64) {
    VectorProduct<double>(args, b_type).run();
  } else {
    VectorProduct<float>(args, b_type).run();
  }
}

}  // namespace hologram::cpu
