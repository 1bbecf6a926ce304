// SPDX-License-Identifier: MIT
// Random numbers of every dtype: arguments, threads, conversion of what the kernels make.
#include "hologram/random.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "hologram/elementwise.h"
#include "src/base/philox.h"
#include "src/cpu/device/call_table.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/random/random_kernels.h"

namespace hologram::cpu {
namespace {

constexpr int64_t kChunk = 16384;     // a multiple of both groups
constexpr int64_t kConverted = 1024;  // converted while it is in L1

const RandomKernels& kernels() { return random_kernels(current_isa()); }

PhiloxStream at(PhiloxStream stream, int64_t element, int bits) {
  stream.offset += philox_blocks(element, bits);
  return stream;
}

// make(stream, T* to, count) fills contiguous T; what it makes is stored as dtype.
template <class T, class Make>
void generate(PhiloxStream stream, int bits, Dtype made, const View& self, CallThreads threads,
              Make make) {
  const Dtype dtype = self.dtype;
  const size_t size = itemsize(dtype);
  for_chunks(self.numel(), kChunk, threads_of(threads(self.numel())),
             [&](int64_t begin, int64_t end) {
               char* to = static_cast<char*>(self.data) + static_cast<size_t>(begin) * size;
               if (made == dtype) {
                 make(at(stream, begin, bits), reinterpret_cast<T*>(to), end - begin);
                 return;
               }
               alignas(64) T tile[kConverted];
               for (int64_t i = begin; i < end; i += kConverted) {
                 const int64_t count = std::min(kConverted, end - i);
                 make(at(stream, i, bits), tile, count);
                 convert(made, tile, dtype, to, count);
                 to += static_cast<size_t>(count) * size;
               }
             });
}

int significant_bits(Dtype dtype) {
  return dtype == Dtype::kFloat16 ? 11 : dtype == Dtype::kBFloat16 ? 8 : 24;
}

// The words below it are the share p of all.
uint64_t limit_of(double p) {
  if (!(p > 0)) return 0;
  return p >= 1 ? uint64_t{1} << 32 : static_cast<uint64_t>(std::nearbyint(p * 0x1p32));
}

void apply_mask(Dtype dtype, const void* in, const uint8_t* mask, double scale, void* out,
                int64_t n, int threads) {
  const RandomKernels& k = kernels();
  const auto size = static_cast<int64_t>(itemsize(dtype));
  for_chunks(n, 2 * kChunk, threads, [&](int64_t begin, int64_t end) {
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
      alignas(64) float tile[kConverted];
      for (int64_t i = 0; i < count; i += kConverted) {
        const int64_t part = std::min(kConverted, count - i);
        convert(dtype, from + i * size, Dtype::kFloat32, tile, part);
        k.apply_mask32(tile, m + i, static_cast<float>(scale), tile, part);
        convert(Dtype::kFloat32, tile, dtype, to + i * size, part);
      }
    }
  });
}

}  // namespace

// Even spread over [low, high): steps of 2^-24 (float32), 2^-53, 2^-11 (float16), 2^-8 (bfloat16)
// times high - low.
void run(const calls::Uniform<>& call, CallThreads threads) {
  const RandomKernels& k = kernels();
  const PhiloxStream stream{call.seed, call.offset};
  const double low = call.low, high = call.high;
  if (call.self.dtype == Dtype::kFloat64) {
    generate<double>(
        stream, 64, Dtype::kFloat64, call.self, threads,
        [&](PhiloxStream s, double* p, int64_t count) { k.uniform64(s, low, high, p, count); });
    return;
  }
  const int bits = significant_bits(call.self.dtype);
  generate<float>(stream, 32, Dtype::kFloat32, call.self, threads,
                  [&](PhiloxStream s, float* p, int64_t count) {
                    k.uniform32(s, static_cast<float>(low), static_cast<float>(high), bits, p,
                                count);
                  });
}

// By Box and Muller: an element of the first half of its words (word 0 or 2 of a block, the low 64
// bits) shares radius and angle with its partner in the next. The half types round float32.
void run(const calls::Normal<>& call, CallThreads threads) {
  const RandomKernels& k = kernels();
  const PhiloxStream stream{call.seed, call.offset};
  if (call.self.dtype == Dtype::kFloat64) {
    generate<double>(stream, 64, Dtype::kFloat64, call.self, threads,
                     [&](PhiloxStream s, double* p, int64_t count) {
                       k.normal64(s, call.mean, call.std, p, count);
                     });
    return;
  }
  generate<float>(stream, 32, Dtype::kFloat32, call.self, threads,
                  [&](PhiloxStream s, float* p, int64_t count) {
                    k.normal32(s, static_cast<float>(call.mean), static_cast<float>(call.std), p,
                               count);
                  });
}

// 1 with probability p, to 2^-32.
void run(const calls::Bernoulli<>& call, CallThreads threads) {
  const RandomKernels& k = kernels();
  const uint64_t limit = limit_of(call.p);
  const Dtype made = call.self.dtype == Dtype::kUInt8 ? Dtype::kUInt8 : Dtype::kBool;
  generate<uint8_t>(
      {call.seed, call.offset}, 32, made, call.self, threads,
      [&](PhiloxStream s, uint8_t* to, int64_t count) { k.bernoulli(s, limit, to, count); });
}

namespace {

// Choices by words of 32 bits in T, in which they wrap.
template <class T>
void generate_narrow(const calls::Integers<>& call, Dtype made, CallThreads threads) {
  const RandomKernels& k = kernels();
  const uint64_t range = call.count;
  const auto start = static_cast<T>(call.low);
  const auto count32 = static_cast<uint32_t>(range);
  const uint32_t least = refused_below(count32);
  const auto fill = [&](PhiloxStream s, T* to, int64_t count) {
    alignas(64) uint32_t words[kConverted];
    for (int64_t i = 0; i < count; i += kConverted) {
      const int64_t part = std::min(kConverted, count - i);
      k.words32(at(s, i, 32), words, part);
      uint32_t refused = 0;
      for (int64_t j = 0; j < part; ++j) {
        to[i + j] = start + static_cast<T>(words[j] * range >> 32);
        refused |= words[j] * count32 < least;
      }
      for (int64_t j = 0; refused != 0 && j < part; ++j) {
        if (words[j] * count32 >= least) continue;
        const uint64_t word = drawn_again32(s, static_cast<uint64_t>(i + j), count32);
        to[i + j] = start + static_cast<T>(word * range >> 32);
      }
    }
  };
  generate<T>({call.seed, call.offset}, 32, made, call.self, threads, fill);
}

}  // namespace

// low + an even choice among `count` integers (0: all 2^64), wrapping in int64, then converted.
void run(const calls::Integers<>& call, CallThreads threads) {
  const Dtype dtype = call.self.dtype;
  if (integer_random_bits(call.count) == 32) {
    // What wraps in 32 bits has the same lower bits.
    return is_integer(dtype) && itemsize(dtype) <= sizeof(uint32_t)
               ? generate_narrow<uint32_t>(call, Dtype::kInt32, threads)
               : generate_narrow<uint64_t>(call, Dtype::kInt64, threads);
  }
  const RandomKernels& k = kernels();
  const uint64_t start = call.low, range = call.count;
  const uint64_t least = range == 0 ? 0 : refused_below(range);
  generate<uint64_t>({call.seed, call.offset}, 64, Dtype::kInt64, call.self, threads,
                     [&](PhiloxStream s, uint64_t* words, int64_t count) {
                       k.words64(s, words, count);
                       for (int64_t i = 0; range != 0 && i < count; ++i) {
                         if (words[i] * range < least) {
                           words[i] = drawn_again64(s, static_cast<uint64_t>(i), range);
                         }
                         words[i] = high_product(words[i], range);
                       }
                       for (int64_t i = 0; i < count; ++i) words[i] += start;
                     });
}

void run(const calls::Dropout<>& call, CallThreads threads) {
  const View& in = call.input;
  const double scale = 1 / (1 - call.p);
  const RandomKernels& k = kernels();
  const uint64_t limit = limit_of(1 - call.p);
  const auto size = static_cast<int64_t>(itemsize(in.dtype));
  const int most = threads_of(threads(in.numel()));
  for_chunks(in.numel(), kChunk, most, [&](int64_t begin, int64_t end) {
    const PhiloxStream first = at({call.seed, call.offset}, begin, 32);
    const char* from = static_cast<const char*>(in.data) + begin * size;
    char* to = static_cast<char*>(call.out.data) + begin * size;
    uint8_t* mask = static_cast<uint8_t*>(call.mask.data) + begin;
    if (in.dtype == Dtype::kFloat32) {
      k.dropout(first, limit, static_cast<float>(scale), reinterpret_cast<const float*>(from),
                reinterpret_cast<float*>(to), mask, end - begin);
      return;
    }
    k.bernoulli(first, limit, mask, end - begin);
    apply_mask(in.dtype, from, mask, scale, to, end - begin, 1);
  });
}

void run(const calls::DropoutBackward<>& call, CallThreads threads) {
  const View& grad = call.grad;
  apply_mask(grad.dtype, grad.data, static_cast<const uint8_t*>(call.mask.data), call.scale,
             call.grad_input.data, grad.numel(), threads_of(threads(grad.numel())));
}

}  // namespace hologram::cpu
