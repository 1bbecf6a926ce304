// SPDX-License-Identifier: MIT
// Rows times a block of an int4 weight; in the namespace HOLOGRAM_INT4_DOTS of int4_kernels.cc,
// which includes it again with HOLOGRAM_INT4_ADD_PRODUCTS: an instruction that adds four products
// of bytes to 32 bits. Without it, products are added in 16 bits for as long as they fit.
// No include guard.
namespace HOLOGRAM_INT4_DOTS {

// Sums of a group for kCount rows whose digits are `next` bytes apart.
template <int kPieces, int kCount>
HWY_INLINE void DotGroup(const uint8_t* HWY_RESTRICT weight, int64_t columns,
                         const int8_t* HWY_RESTRICT digits, int64_t next,
                         const Int4Group* const* group, float* sums) {
  using F = Form<kPieces>;
  const Word dw;
  const Single d;
  const hn::Repartition<uint16_t, decltype(kBytes)> pairs;
  const DigitLoads<kPieces> load;
  const auto low_bits = hn::Set(kBytes, 15);
  // Rows 4 u + 8 h to 4 u + 8 h + 3 of each piece: those that fit registers at a time.
  constexpr int kQuarters = HWY_TARGET == HWY_AVX3 ? 2 : 1;
  constexpr int kSums = 2 * kQuarters;
  constexpr int kRuns = kCount * kDigits;
  const auto first_column = hn::FirstN(
      dw, static_cast<size_t>(F::kColumns == 1 ? 4 * F::kVectorPieces : 4 * F::kOfColumn));
  const int64_t steps = columns / F::kStep;
  const int64_t ahead =
      columns * F::kColumnBytes < kAheadBytes ? kAheadBytes : columns * F::kColumnBytes;
  for (int vector = 0; vector < F::kVectors; ++vector) {
    for (int part = 0; part < 4; part += kQuarters) {
      hn::Vec<Word> wide[kRuns][kSums];
#pragma GCC unroll 6
      for (int k = 0; k < kRuns; ++k) {
        const int32_t first = group[k / kDigits]->start[k % kDigits];
        const auto start = hn::IfThenElseZero(first_column, hn::Set(dw, first));
#pragma GCC unroll 4
        for (int s = 0; s < kSums; ++s) wide[k][s] = start;
      }
      const uint8_t* at = weight + 16 * F::kVectorPieces * vector;
      const int8_t* digit = digits;
      for (int64_t step = 0; step < steps;) {
#ifdef HOLOGRAM_INT4_ADD_PRODUCTS
        const int64_t end = steps;
#else
        const Half dh;
        hn::Vec<Half> sum[kRuns][kSums];
#pragma GCC unroll 6
        for (int k = 0; k < kRuns; ++k) {
#pragma GCC unroll 4
          for (int s = 0; s < kSums; ++s) sum[k][s] = hn::Zero(dh);
        }
        const int64_t end = step + kStepsInHalf < steps ? step + kStepsInHalf : steps;
#endif
        for (; step < end; ++step) {
          constexpr int kNext = F::kColumns * F::kColumnBytes;
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
            const auto x = load(digit + k / kDigits * next + k % kDigits * columns);
#pragma GCC unroll 4
            for (int s = 0; s < kSums; ++s) {
#ifdef HOLOGRAM_INT4_ADD_PRODUCTS
              wide[k][s].raw = HOLOGRAM_INT4_ADD_PRODUCTS(wide[k][s].raw, rows[s].raw, x.raw);
#else
              sum[k][s] = hn::Add(sum[k][s], MulPairs(rows[s], x));
#endif
            }
          }
          // The parts of a group read the same bytes: meanwhile the next group's come near.
          constexpr int kAhead = 4 * kNext * kQuarters / 4;
#pragma GCC unroll 4
          for (int line = 0; line < kAhead; line += 64) {
            __builtin_prefetch(at + ahead + kAhead * (part / kQuarters) + line);
          }
          at += 4 * kNext;
          digit += F::kStep;
        }
#ifndef HOLOGRAM_INT4_ADD_PRODUCTS
        const auto ones = hn::Set(dh, 1);
        auto none = hn::Zero(dw);  // a second sum, where an instruction has two
#pragma GCC unroll 6
        for (int k = 0; k < kRuns; ++k) {
#pragma GCC unroll 4
          for (int s = 0; s < kSums; ++s) {
            wide[k][s] = hn::ReorderWidenMulAccumulate(dw, sum[k][s], ones, wide[k][s], none);
          }
        }
        wide[0][0] = hn::Add(wide[0][0], none);
#endif
      }
#pragma GCC unroll 2
      for (int r = 0; r < kCount; ++r) {
        const auto unit = hn::Set(d, group[r]->unit);
        float* const to = sums + 32 * kPieces * r + 16 * F::kVectorPieces * vector;
#pragma GCC unroll 4
        for (int s = 0; s < kSums; ++s) {
          auto total = hn::ConvertTo(d, wide[kDigits * r + 2][s]);
          const auto by = hn::Set(d, 256.0F);
          total = hn::MulAdd(total, by, hn::ConvertTo(d, wide[kDigits * r + 1][s]));
          total = hn::MulAdd(total, by, hn::ConvertTo(d, wide[kDigits * r][s]));
          StoreRows<kPieces>(hn::Mul(total, unit),
                             to + 4 * (part + s / 2) + s % 2 * F::kColumnBytes);
        }
      }
    }
  }
}

template <class In, int kPieces, int kCount>
void DotRows(const uint8_t* weight, const Int4Rows& x, const In* pairs, int64_t pitch, float* y) {
  const Single d;
  constexpr int kRows = 32 * kPieces;
  HWY_ALIGN float sums[kCount * kRows];
  HWY_ALIGN float total[kCount * kRows] = {};
  const int64_t next = kDigits * x.groups * x.columns;
  const int8_t* digits = x.digits;
  for (int64_t g = 0; g < x.groups; ++g) {
    const Int4Group* group[kCount];
    for (int r = 0; r < kCount; ++r) group[r] = x.group + r * x.groups + g;
    DotGroup<kPieces, kCount>(weight, x.columns, digits, next, group, sums);
    for (int j = 0; j < kRows; j += static_cast<int>(hn::Lanes(d))) {
      hn::Vec<Single> scale, zero;
      LoadPairs(pairs + 2 * j, scale, zero);
      for (int r = 0; r < kCount; ++r) {
        float* const to = total + r * kRows + j;
        const auto before = hn::MulAdd(zero, hn::Set(d, group[r]->sum), hn::Load(d, to));
        hn::Store(hn::MulAdd(scale, hn::Load(d, sums + r * kRows + j), before), d, to);
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
