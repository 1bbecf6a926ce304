// SPDX-License-Identifier: MIT
// Random numbers of every dtype: arguments, threads, conversion of what the kernels make.
#include "hologram/random.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/random/random_kernels.h"

namespace hologram {
namespace {

using cpu::RandomKernels;

constexpr int64_t kChunk = 16384;  // a multiple of both groups
constexpr int64_t kTile = 1024;    // converted while it is in L1

const RandomKernels& kernels() { return cpu::random_kernels(current_isa()); }

PhiloxStream at(PhiloxStream stream, int64_t element, int bits) {
  stream.offset += philox_blocks(element, bits);
  return stream;
}

void check_floating(const char* name, Dtype dtype) {
  if (!is_floating(dtype)) {
    fail(ErrorKind::kNotSupported, name, ": dtype must be floating, got ", dtype_name(dtype));
  }
}

void check_real(const char* name, Dtype dtype) {
  if (is_complex(dtype)) {
    fail(ErrorKind::kNotSupported, name, ": dtype must be real, got ", dtype_name(dtype));
  }
}

// make(stream, T* to, count) fills contiguous T; what it makes is stored as dtype.
template <class T, class Make>
void generate(PhiloxStream stream, int bits, Dtype made, Dtype dtype, void* out, int64_t n,
              int max_threads, Make make) {
  if (n <= 0) return;
  const size_t size = itemsize(dtype);
  cpu::for_chunks(n, kChunk, max_threads, [&](int64_t begin, int64_t end) {
    char* to = static_cast<char*>(out) + static_cast<size_t>(begin) * size;
    if (made == dtype) {
      make(at(stream, begin, bits), reinterpret_cast<T*>(to), end - begin);
      return;
    }
    alignas(64) T tile[kTile];
    for (int64_t i = begin; i < end; i += kTile) {
      const int64_t count = std::min(kTile, end - i);
      make(at(stream, i, bits), tile, count);
      convert(made, tile, dtype, to, count);
      to += static_cast<size_t>(count) * size;
    }
  });
}

int threads_or_all(int max_threads) { return max_threads > 0 ? max_threads : num_threads(); }

int significant_bits(Dtype dtype) {
  return dtype == Dtype::kFloat16 ? 11 : dtype == Dtype::kBFloat16 ? 8 : 24;
}

// The words below it are the share p of all.
uint64_t limit_of(double p) {
  if (!(p > 0)) return 0;
  return p >= 1 ? uint64_t{1} << 32 : static_cast<uint64_t>(std::nearbyint(p * 0x1p32));
}

uint64_t high_product(uint64_t a, uint64_t b) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
}

}  // namespace

void fill_uniform(PhiloxStream stream, double from, double to, Dtype dtype, void* out, int64_t n,
                  int max_threads) {
  check_floating("uniform", dtype);
  max_threads = threads_or_all(max_threads);
  const RandomKernels& k = kernels();
  if (dtype == Dtype::kFloat64) {
    generate<double>(
        stream, 64, dtype, dtype, out, n, max_threads,
        [&](PhiloxStream s, double* p, int64_t count) { k.uniform64(s, from, to, p, count); });
    return;
  }
  const int bits = significant_bits(dtype);
  generate<float>(stream, 32, Dtype::kFloat32, dtype, out, n, max_threads,
                  [&](PhiloxStream s, float* p, int64_t count) {
                    k.uniform32(s, static_cast<float>(from), static_cast<float>(to), bits, p,
                                count);
                  });
}

void fill_normal(PhiloxStream stream, double mean, double std, Dtype dtype, void* out, int64_t n,
                 int max_threads) {
  check_floating("normal", dtype);
  max_threads = threads_or_all(max_threads);
  const RandomKernels& k = kernels();
  if (dtype == Dtype::kFloat64) {
    generate<double>(
        stream, 64, dtype, dtype, out, n, max_threads,
        [&](PhiloxStream s, double* p, int64_t count) { k.normal64(s, mean, std, p, count); });
    return;
  }
  generate<float>(stream, 32, Dtype::kFloat32, dtype, out, n, max_threads,
                  [&](PhiloxStream s, float* p, int64_t count) {
                    k.normal32(s, static_cast<float>(mean), static_cast<float>(std), p, count);
                  });
}

void fill_bernoulli(PhiloxStream stream, double p, Dtype dtype, void* out, int64_t n,
                    int max_threads) {
  check_real("bernoulli", dtype);
  const RandomKernels& k = kernels();
  const uint64_t limit = limit_of(p);
  const Dtype made = dtype == Dtype::kUInt8 ? Dtype::kUInt8 : Dtype::kBool;
  generate<uint8_t>(
      stream, 32, made, dtype, out, n, threads_or_all(max_threads),
      [&](PhiloxStream s, uint8_t* to, int64_t count) { k.bernoulli(s, limit, to, count); });
}

void fill_integers(PhiloxStream stream, int64_t base, uint64_t range, Dtype dtype, void* out,
                   int64_t n, int max_threads) {
  check_real("integers", dtype);
  const RandomKernels& k = kernels();
  max_threads = threads_or_all(max_threads);
  const auto start = static_cast<uint64_t>(base);
  if (integer_random_bits(range) == 32) {
    generate<int64_t>(stream, 32, Dtype::kInt64, dtype, out, n, max_threads,
                      [&](PhiloxStream s, int64_t* to, int64_t count) {
                        alignas(64) uint32_t words[kTile];
                        for (int64_t i = 0; i < count; i += kTile) {
                          const int64_t part = std::min(kTile, count - i);
                          k.words32(at(s, i, 32), words, part);
                          for (int64_t j = 0; j < part; ++j) {
                            to[i + j] = static_cast<int64_t>(start + (words[j] * range >> 32));
                          }
                        }
                      });
    return;
  }
  generate<int64_t>(stream, 64, Dtype::kInt64, dtype, out, n, max_threads,
                    [&](PhiloxStream s, int64_t* to, int64_t count) {
                      auto* words = reinterpret_cast<uint64_t*>(to);
                      k.words64(s, words, count);
                      if (range != 0) {
                        for (int64_t i = 0; i < count; ++i) {
                          words[i] = high_product(words[i], range);
                        }
                      }
                      for (int64_t i = 0; i < count; ++i) words[i] += start;
                    });
}

void dropout(PhiloxStream stream, double keep, double scale, Dtype dtype, const void* in, void* out,
             uint8_t* mask, int64_t n, int max_threads) {
  check_floating("dropout", dtype);
  if (n <= 0) return;
  const RandomKernels& k = kernels();
  const uint64_t limit = limit_of(keep);
  const auto size = static_cast<int64_t>(itemsize(dtype));
  cpu::for_chunks(n, kChunk, threads_or_all(max_threads), [&](int64_t begin, int64_t end) {
    const PhiloxStream first = at(stream, begin, 32);
    const char* from = static_cast<const char*>(in) + begin * size;
    char* to = static_cast<char*>(out) + begin * size;
    if (dtype == Dtype::kFloat32) {
      k.dropout(first, limit, static_cast<float>(scale), reinterpret_cast<const float*>(from),
                reinterpret_cast<float*>(to), mask + begin, end - begin);
      return;
    }
    k.bernoulli(first, limit, mask + begin, end - begin);
    apply_dropout(dtype, from, mask + begin, scale, to, end - begin, 1);
  });
}

void apply_dropout(Dtype dtype, const void* in, const uint8_t* mask, double scale, void* out,
                   int64_t n, int max_threads) {
  check_floating("dropout", dtype);
  if (n <= 0) return;
  const RandomKernels& k = kernels();
  const auto size = static_cast<int64_t>(itemsize(dtype));
  cpu::for_chunks(n, 2 * kChunk, threads_or_all(max_threads), [&](int64_t begin, int64_t end) {
    const char* from = static_cast<const char*>(in) + begin * size;
    char* to = static_cast<char*>(out) + begin * size;
    const uint8_t* m = mask + begin;
    const int64_t count = end - begin;
    if (dtype == Dtype::kFloat32) {
      k.apply_mask32(reinterpret_cast<const float*>(from), m, static_cast<float>(scale),
                     reinterpret_cast<float*>(to), count);
    } else if (dtype == Dtype::kFloat64) {
      k.apply_mask64(reinterpret_cast<const double*>(from), m, scale, reinterpret_cast<double*>(to),
                     count);
    } else {
      alignas(64) float tile[kTile];
      for (int64_t i = 0; i < count; i += kTile) {
        const int64_t part = std::min(kTile, count - i);
        convert(dtype, from + i * size, Dtype::kFloat32, tile, part);
        k.apply_mask32(tile, m + i, static_cast<float>(scale), tile, part);
        convert(Dtype::kFloat32, tile, dtype, to + i * size, part);
      }
    }
  });
}

}  // namespace hologram
