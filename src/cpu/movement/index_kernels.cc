// SPDX-License-Identifier: MIT
// Kernels that check positions, and take, put and add rows by them, for every instruction set.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/movement/index_kernels.cc"
#include "src/cpu/simd/targets.h"
// clang-format off
#include "hwy/highway.h"
#include "src/cpu/movement/copy_bytes.h"
#include "src/cpu/movement/index_kernels.h"
// clang-format on

#include <algorithm>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using cpu::LinesOfRows;

// --- Positions ----------------------------------------------------------------------------------

template <class Index>
bool Within(const Index* HWY_RESTRICT index, int64_t n, int64_t low, int64_t high) {
  if (n == 0 || low >= high) return n == 0;
  // A position below low wraps to a large number.
  const auto first = static_cast<uint64_t>(low), span = static_cast<uint64_t>(high) - first;
  uint64_t outside = 0;
  for (int64_t i = 0; i < n; ++i) {
    outside |= static_cast<uint64_t>(static_cast<int64_t>(index[i])) - first >= span ? 1 : 0;
  }
  return outside == 0;
}

template <class Index>
void Places(const Index* HWY_RESTRICT index, int64_t n, int64_t size, int64_t step,
            int64_t* HWY_RESTRICT places) {
  const auto place = [=](int64_t i) HWY_ATTR {
    const int64_t at = index[i];
    return at + ((at >> 63) & size);
  };
  if ((step & (step - 1)) == 0) {  // few instruction sets multiply vectors of int64
    const int shift = __builtin_ctzll(static_cast<unsigned long long>(step));
    for (int64_t i = 0; i < n; ++i) places[i] = place(i) << shift;
  } else {
    for (int64_t i = 0; i < n; ++i) places[i] = place(i) * step;
  }
}

// --- Rows copied --------------------------------------------------------------------------------

// Rows of kBytes bytes.
template <size_t kBytes>
struct Whole {
  HWY_INLINE void operator()(char* HWY_RESTRICT to, const char* HWY_RESTRICT from) const {
    std::memcpy(to, from, kBytes);
  }
};

// Rows of kBytes bytes to twice as many: their beginning and their end, which may overlap.
template <size_t kBytes>
struct Ends {
  size_t bytes;
  HWY_INLINE void operator()(char* HWY_RESTRICT to, const char* HWY_RESTRICT from) const {
    char first[kBytes], last[kBytes];
    std::memcpy(first, from, kBytes);
    std::memcpy(last, from + bytes - kBytes, kBytes);
    std::memcpy(to, first, kBytes);
    std::memcpy(to + bytes - kBytes, last, kBytes);
  }
};

// Rows of a vector and more.
struct Vectors {
  int64_t bytes;
  HWY_INLINE void operator()(char* HWY_RESTRICT to, const char* HWY_RESTRICT from) const {
    const hn::ScalableTag<uint8_t> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto* in = reinterpret_cast<const uint8_t*>(from);
    auto* out = reinterpret_cast<uint8_t*>(to);
    const auto last = hn::LoadU(d, in + bytes - lanes);
    for (int64_t i = 0; i < bytes - lanes; i += lanes) hn::StoreU(hn::LoadU(d, in + i), d, out + i);
    hn::StoreU(last, d, out + bytes - lanes);
  }
};

struct Long {
  int64_t bytes;
  void operator()(char* to, const char* from) const { cpu::copy_bytes(to, from, bytes); }
};

template <bool kTakes, class Row>
HWY_INLINE void CopyRows(const char* from, char* to, const int64_t* HWY_RESTRICT places,
                         const LinesOfRows& shape, Row row) {
  for (int64_t line = 0; line < shape.lines; ++line) {
    for (int64_t i = 0; i < shape.rows; ++i) {
      if constexpr (kTakes) {
        row(to + i * shape.step, from + places[i]);
      } else {
        row(to + places[i], from + i * shape.step);
      }
    }
    from += shape.from_line;
    to += shape.to_line;
  }
}

template <bool kTakes>
void CopyRowsOf(const char* from, char* to, const int64_t* places, const LinesOfRows& shape) {
  const auto copy = [&](auto row) HWY_ATTR { CopyRows<kTakes>(from, to, places, shape, row); };
  const auto bytes = static_cast<size_t>(shape.bytes);
  switch (bytes) {
    case 1:
      return copy(Whole<1>());
    case 2:
      return copy(Whole<2>());
    case 4:
      return copy(Whole<4>());
    case 8:
      return copy(Whole<8>());
    case 16:
      return copy(Whole<16>());
    case 32:
      return copy(Whole<32>());
    default:
      break;
  }
  if (bytes >= static_cast<size_t>(cpu::kLongCopy)) {
    copy(Long{shape.bytes});
  } else if (bytes >= 64) {
    copy(Vectors{shape.bytes});
  } else if (bytes > 32) {
    copy(Ends<32>{bytes});
  } else if (bytes > 16) {
    copy(Ends<16>{bytes});
  } else if (bytes > 8) {
    copy(Ends<8>{bytes});
  } else if (bytes > 4) {
    copy(Ends<4>{bytes});
  } else if (bytes == 3) {
    copy(Ends<2>{bytes});
  }
}

void Take(const char* from, const int64_t* places, char* to, const LinesOfRows& shape) {
  CopyRowsOf<true>(from, to, places, shape);
}

void Put(const char* from, char* to, const int64_t* places, const LinesOfRows& shape) {
  CopyRowsOf<false>(from, to, places, shape);
}

// --- Rows added ---------------------------------------------------------------------------------

// Vectors of 16 bytes before single elements: a masked store would hold up the next load of it.
template <class T>
HWY_INLINE void AddRow(T* to, const T* from, int64_t n) {
  const hn::ScalableTag<T> d;
  const hn::CappedTag<T, 16 / sizeof(T)> block;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto few = static_cast<int64_t>(hn::Lanes(block));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Add(hn::LoadU(d, to + i), hn::LoadU(d, from + i)), d, to + i);
  }
  for (; i + few <= n; i += few) {
    hn::StoreU(hn::Add(hn::LoadU(block, to + i), hn::LoadU(block, from + i)), block, to + i);
  }
  for (; i < n; ++i) to[i] += from[i];
}

// Rows of kWidth elements, of as many as the shape says where that is 0.
template <class T, int64_t kWidth>
HWY_INLINE void AddLines(const char* from, const int64_t* HWY_RESTRICT sources, char* to,
                         const int64_t* HWY_RESTRICT places, const LinesOfRows& shape) {
  const int64_t width = shape.bytes / static_cast<int64_t>(sizeof(T));
  const auto add = [=](const char* row, char* place) HWY_ATTR {
    const T* const source = reinterpret_cast<const T*>(row);
    T* const target = reinterpret_cast<T*>(place);
    if constexpr (kWidth > 0) {
      T sums[kWidth];
      for (int64_t j = 0; j < kWidth; ++j) sums[j] = target[j] + source[j];
      for (int64_t j = 0; j < kWidth; ++j) target[j] = sums[j];
    } else {
      AddRow(target, source, width);
    }
  };
  for (int64_t line = 0; line < shape.lines; ++line) {
    if (kWidth == 1 && sources == nullptr && shape.step == static_cast<int64_t>(sizeof(T))) {
      const T* HWY_RESTRICT elements = reinterpret_cast<const T*>(from);
#pragma GCC unroll 4
      for (int64_t i = 0; i < shape.rows; ++i) {
        T* const target = reinterpret_cast<T*>(to + places[i]);
        *target = *target + elements[i];
      }
    } else if (sources == nullptr) {
      for (int64_t i = 0; i < shape.rows; ++i) add(from + i * shape.step, to + places[i]);
    } else {
      for (int64_t i = 0; i < shape.rows; ++i) add(from + sources[i], to + places[i]);
    }
    from += shape.from_line;
    to += shape.to_line;
  }
}

template <class T>
void Add(const char* from, const int64_t* sources, char* to, const int64_t* places,
         const LinesOfRows& shape) {
  switch (shape.bytes / static_cast<int64_t>(sizeof(T))) {
    case 1:
      return AddLines<T, 1>(from, sources, to, places, shape);
    case 2:
      return AddLines<T, 2>(from, sources, to, places, shape);
    case 3:
      return AddLines<T, 3>(from, sources, to, places, shape);
    default:
      return AddLines<T, 0>(from, sources, to, places, shape);
  }
}

}  // namespace

void AddIndexKernels(cpu::IndexKernels& kernels) {
  kernels.within64 = &Within<int64_t>;
  kernels.within32 = &Within<int32_t>;
  kernels.places64 = &Places<int64_t>;
  kernels.places32 = &Places<int32_t>;
  kernels.take = &Take;
  kernels.put = &Put;
  kernels.add[static_cast<int>(Dtype::kFloat32)] = &Add<float>;
  kernels.add[static_cast<int>(Dtype::kFloat64)] = &Add<double>;
  kernels.add[static_cast<int>(Dtype::kInt32)] = &Add<uint32_t>;
  kernels.add[static_cast<int>(Dtype::kInt64)] = &Add<uint64_t>;
}

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hologram::cpu {

const IndexKernels& index_kernels(Isa isa) {
  static const IndexKernels* tables = [] {
    auto* built = new IndexKernels[kIsaCount];
    for (int i = 0; i < kIsaCount; ++i) {
      if (isa_available(static_cast<Isa>(i))) {
        HOLOGRAM_FOR_ISA(static_cast<Isa>(i), AddIndexKernels)(built[i]);
      }
    }
    return built;
  }();
  return tables[static_cast<int>(isa)];
}

}  // namespace hologram::cpu
#endif
