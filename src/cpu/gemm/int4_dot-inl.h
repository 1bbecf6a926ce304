// SPDX-License-Identifier: MIT
// Rows times a block of an int4 weight; in the namespace HOLOGRAM_INT4_DOTS of int4_kernels.cc,
// which includes it again with HOLOGRAM_INT4_ADD_PRODUCTS: an instruction that adds four products
// of bytes to 32 bits. Without it, two products are added in 16 bits for as long as they fit.
// No include guard.
namespace HOLOGRAM_INT4_DOTS {

#ifdef HOLOGRAM_INT4_ADD_PRODUCTS
constexpr int kTogether = 4;
#else
constexpr int kTogether = 2;
#endif

// 32-bit sums for each row: those of the two upper digits go to `high`, as one number of 256 d2 +
// d1 each, those of the lowest to `low`, where kDense is 3.
template <int kPieces, int kCount, int kDense, class Sum>
HWY_INLINE void StoreSums(const Sum& sum, int at, float* high, float* low) {
  const Single d;
#pragma GCC unroll 2
  for (int r = 0; r < kCount; ++r) {
    const auto digit = [&](int k) HWY_ATTR {
      return hn::ConvertTo(d, sum(r * kDense + k + kDense - kDigits));
    };
    const int to = 32 * kPieces * r + at;
    StoreRows<kPieces>(hn::MulAdd(digit(2), hn::Set(d, 256.0F), digit(1)), high + to);
    if constexpr (kDense == kDigits) StoreRows<kPieces>(digit(0), low + to);
  }
}

// Sums of a group for kCount rows whose digits are `next` bytes apart: the products of the upper
// two digits, or of all.
template <int kPieces, int kCount, int kDense>
HWY_INLINE void DotGroup(const uint8_t* HWY_RESTRICT weight, int64_t columns,
                         const int8_t* HWY_RESTRICT digits, int64_t next,
                         const Int4Group* const* group, float* high, float* low) {
  using F = Form<kPieces>;
  const Word dw;
  const DigitLoads<kPieces, kTogether> load;
  const auto low_bits = hn::Set(kBytes, 15);
  constexpr int kRuns = kCount * kDense, kStep = kTogether * F::kColumns;
  constexpr int kNext = F::kColumns * F::kColumnBytes;
  // Sums that stay in registers beside the bytes that are multiplied.
  constexpr int kMostSums = HWY_TARGET == HWY_AVX3 ? 24 : 8;
  const auto run_of = [&](int k) { return k % kDense + kDigits - kDense; };
  const auto start_of = [&](int k) HWY_ATTR {
    const auto first_column = hn::FirstN(
        dw, static_cast<size_t>(F::kColumns == 1 ? 4 * F::kVectorPieces : 4 * F::kOfColumn));
    return hn::IfThenElseZero(first_column, hn::Set(dw, group[k / kDense]->start[run_of(k)]));
  };
  const int64_t steps = columns / kStep;
  const int64_t ahead =
      columns * F::kColumnBytes < kAheadBytes ? kAheadBytes : columns * F::kColumnBytes;
  // The parts of a group read the same bytes: with the first, the next group's come near.
  const auto prefetch = [&](const uint8_t* at) {
#pragma GCC unroll 8
    for (int line = 0; line < kTogether * kNext; line += 64) __builtin_prefetch(at + ahead + line);
  };
#ifdef HOLOGRAM_INT4_ADD_PRODUCTS
  // Rows 4 u to 4 u + 3 of each piece, and of its upper half: those that fit registers at a time.
  constexpr int kQuarters = 4 * kRuns <= kMostSums ? 2 : 1, kSums = 2 * kQuarters;
  const hn::Repartition<uint16_t, decltype(kBytes)> pairs;
  for (int vector = 0; vector < F::kVectors; ++vector) {
    for (int part = 0; part < 4; part += kQuarters) {
      hn::Vec<Word> sum[kRuns][kSums];
#pragma GCC unroll 6
      for (int k = 0; k < kRuns; ++k) {
#pragma GCC unroll 4
        for (int s = 0; s < kSums; ++s) sum[k][s] = start_of(k);
      }
      const uint8_t* at = weight + 16 * F::kVectorPieces * vector;
      const int8_t* digit = digits;
      for (int64_t step = 0; step < steps; ++step, at += kTogether * kNext, digit += kStep) {
        const auto a = hn::LoadU(kBytes, at), b = hn::LoadU(kBytes, at + kNext);
        const auto c = hn::LoadU(kBytes, at + 2 * kNext), e = hn::LoadU(kBytes, at + 3 * kNext);
        const bool upper = part >= 2;
        const auto ab = hn::BitCast(
            pairs, upper ? hn::InterleaveUpper(kBytes, a, b) : hn::InterleaveLower(kBytes, a, b));
        const auto ce = hn::BitCast(
            pairs, upper ? hn::InterleaveUpper(kBytes, c, e) : hn::InterleaveLower(kBytes, c, e));
        Bytes rows[kSums];
#pragma GCC unroll 2
        for (int q = 0; q < kQuarters; ++q) {
          const auto both = (part + q) % 2 == 0 ? hn::InterleaveLower(pairs, ab, ce)
                                                : hn::InterleaveUpper(pairs, ab, ce);
          rows[2 * q] = hn::And(hn::BitCast(kBytes, both), low_bits);
          rows[2 * q + 1] = hn::And(hn::BitCast(kBytes, hn::ShiftRight<4>(both)), low_bits);
        }
#pragma GCC unroll 6
        for (int k = 0; k < kRuns; ++k) {
          const auto x = load(digit + k / kDense * next + run_of(k) * columns);
#pragma GCC unroll 4
          for (int s = 0; s < kSums; ++s) {
            sum[k][s].raw = HOLOGRAM_INT4_ADD_PRODUCTS(sum[k][s].raw, rows[s].raw, x.raw);
          }
        }
        if (part == 0) prefetch(at);
      }
#pragma GCC unroll 4
      for (int s = 0; s < kSums; ++s) {
        StoreSums<kPieces, kCount, kDense>(
            [&](int k) HWY_ATTR { return sum[k][s]; },
            16 * F::kVectorPieces * vector + 4 * (part + s / 2) + s % 2 * F::kColumnBytes, high,
            low);
      }
    }
  }
#else
  // Rows 8 u to 8 u + 7 of each piece, and of its upper half: those that fit registers at a time.
  constexpr int kHalves = 4 * kRuns <= kMostSums ? 2 : 1, kSums = 2 * kHalves;
  const Half dh;
  const hn::Repartition<uint16_t, decltype(kBytes)> words;
  for (int vector = 0; vector < F::kVectors; ++vector) {
    for (int part = 0; part < 2; part += kHalves) {
      hn::Vec<Word> wide[kRuns][kSums][2];
#pragma GCC unroll 6
      for (int k = 0; k < kRuns; ++k) {
#pragma GCC unroll 4
        for (int s = 0; s < kSums; ++s) wide[k][s][0] = wide[k][s][1] = start_of(k);
      }
      const uint8_t* at = weight + 16 * F::kVectorPieces * vector;
      const int8_t* digit = digits;
      for (int64_t step = 0; step < steps;) {
        hn::Vec<Half> sum[kRuns][kSums];
#pragma GCC unroll 6
        for (int k = 0; k < kRuns; ++k) {
#pragma GCC unroll 4
          for (int s = 0; s < kSums; ++s) sum[k][s] = hn::Zero(dh);
        }
        const int64_t end = step + kStepsInHalf < steps ? step + kStepsInHalf : steps;
        for (; step < end; ++step, at += kTogether * kNext, digit += kStep) {
          const auto a = hn::LoadU(kBytes, at), b = hn::LoadU(kBytes, at + kNext);
          hn::Vec<hn::ScalableTag<int8_t>> x[kRuns];
#pragma GCC unroll 6
          for (int k = 0; k < kRuns; ++k) {
            x[k] = load(digit + k / kDense * next + run_of(k) * columns);
          }
          const auto add = [&](int s, Bytes rows) HWY_ATTR {
#pragma GCC unroll 6
            for (int k = 0; k < kRuns; ++k)
              sum[k][s] = Kept(hn::Add(sum[k][s], MulPairs(rows, x[k])));
          };
#pragma GCC unroll 2
          for (int h = 0; h < kHalves; ++h) {
            const auto both = part + h == 0 ? hn::InterleaveLower(kBytes, a, b)
                                            : hn::InterleaveUpper(kBytes, a, b);
            add(2 * h, hn::And(both, low_bits));
            const auto upper = hn::ShiftRight<4>(hn::BitCast(words, both));
            add(2 * h + 1, hn::And(hn::BitCast(kBytes, upper), low_bits));
          }
          if (part == 0) prefetch(at);
        }
#pragma GCC unroll 6
        for (int k = 0; k < kRuns; ++k) {
#pragma GCC unroll 4
          for (int s = 0; s < kSums; ++s) {
            auto* const to = wide[k][s];
            const auto both = hn::BitCast(dw, sum[k][s]);
            to[0] = hn::Add(to[0], hn::ShiftRight<16>(hn::ShiftLeft<16>(both)));
            to[1] = hn::Add(to[1], hn::ShiftRight<16>(both));
          }
        }
      }
#pragma GCC unroll 4
      for (int s = 0; s < kSums; ++s) {
        const int row =
            16 * F::kVectorPieces * vector + 8 * (part + s / 2) + s % 2 * F::kColumnBytes;
        StoreSums<kPieces, kCount, kDense>(
            [&](int k) HWY_ATTR { return hn::InterleaveLower(dw, wide[k][s][0], wide[k][s][1]); },
            row, high, low);
        StoreSums<kPieces, kCount, kDense>(
            [&](int k) HWY_ATTR { return hn::InterleaveUpper(dw, wide[k][s][0], wide[k][s][1]); },
            row + 4, high, low);
      }
    }
  }
#endif
}

template <class In, int kPieces, int kCount>
void DotRows(const uint8_t* weight, const Int4Rows& x, const In* pairs, int64_t pitch, float* y) {
  const Single d;
  constexpr int kRows = 32 * kPieces;
  HWY_ALIGN float high[kCount * kRows], low[kCount * kRows];
  HWY_ALIGN float total[kCount * kRows] = {};
  const int64_t next = kDigits * x.groups * x.columns;
  const int8_t* digits = x.digits;
  for (int64_t g = 0; g < x.groups; ++g) {
    const Int4Group* group[kCount];
    bool listed = true;
    for (int r = 0; r < kCount; ++r) {
      group[r] = x.group + r * x.groups + g;
      listed = listed && group[r]->listed >= 0;
    }
    // The next group's lie far away.
    constexpr int kPairBytes = 2 * kRows * static_cast<int>(sizeof(In));
#pragma GCC unroll 8
    for (int line = 0; line < kPairBytes; line += 64) {
      __builtin_prefetch(reinterpret_cast<const char*>(pairs + pitch) + line);
    }
    if (listed) {
      DotGroup<kPieces, kCount, 2>(weight, x.columns, digits, next, group, high, low);
      for (int r = 0; r < kCount; ++r) AddListed<kPieces>(weight, *group[r], low + r * kRows);
    } else {
      DotGroup<kPieces, kCount, 3>(weight, x.columns, digits, next, group, high, low);
    }
    for (int j = 0; j < kRows; j += static_cast<int>(hn::Lanes(d))) {
      hn::Vec<Single> scale, zero;
      LoadPairs(pairs + 2 * j, scale, zero);
      for (int r = 0; r < kCount; ++r) {
        const int at = r * kRows + j;
        const auto number =
            hn::MulAdd(hn::Load(d, high + at), hn::Set(d, 256.0F), hn::Load(d, low + at));
        const auto sum = hn::Mul(number, hn::Set(d, group[r]->unit));
        const auto before = hn::MulAdd(zero, hn::Set(d, group[r]->sum), hn::Load(d, total + at));
        hn::Store(hn::MulAdd(scale, sum, before), d, total + at);
      }
    }
    weight += x.columns * 16 * kPieces;
    digits += kDigits * x.columns;
    pairs += pitch;
  }
  std::memcpy(y, total, sizeof(total));
}

template <class In, int kPieces>
void DotBlockOf(const uint8_t* weight, const Int4Rows& x, const void* pairs, int64_t pitch,
                float* y) {
  const In* const from = static_cast<const In*>(pairs);
  if (x.count == 2) {
    DotRows<In, kPieces, 2>(weight, x, from, pitch, y);
  } else {
    DotRows<In, kPieces, 1>(weight, x, from, pitch, y);
  }
}

template <class In>
void DotBlock(const uint8_t* weight, int64_t block, const Int4Rows& x, const void* pairs,
              int64_t pitch, float* y) {
  if (block == cpu::kLargeInt4Block) {
    DotBlockOf<In, 2>(weight, x, pairs, pitch, y);
  } else {
    DotBlockOf<In, 1>(weight, x, pairs, pitch, y);
  }
}

}  // namespace HOLOGRAM_INT4_DOTS
