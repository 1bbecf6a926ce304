// SPDX-License-Identifier: MIT
// Writes records as words and reads them back.
//
// One record: a head word, the parameter of a fold, the loop sizes, then the operands with the
// output first. A head with ndim 0 stands for one dimension in which all memory is contiguous.
// A call: a head word, the counts of operands and numbers, that of attributes, the operands, the
// attributes.
#include "src/circuit/tape.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace hologram::circuit {
namespace {

uint64_t head_word(uint16_t code, Dtype compute, int arity, int ndim, uint16_t attr) {
  return uint64_t{code} | uint64_t{static_cast<uint8_t>(compute)} << 16 |
         static_cast<uint64_t>(arity) << 24 | static_cast<uint64_t>(ndim) << 32 |
         uint64_t{attr} << 40;
}

uint64_t operand_word(const Operand& operand) {
  return static_cast<uint64_t>(operand.kind) | static_cast<uint64_t>(operand.dtype) << 2 |
         static_cast<uint64_t>(operand.number) << 8 | uint64_t{operand.slot} << 16;
}

}  // namespace

NumberClass classify_number(Dtype dtype, uint64_t bits) {
  if (dtype == Dtype::kFloat32) {
    switch (static_cast<uint32_t>(bits)) {
      case 0:
        return NumberClass::kZero;
      case 0x80000000u:
        return NumberClass::kNegativeZero;
      case 0x3f800000u:
        return NumberClass::kOne;
      case 0xbf800000u:
        return NumberClass::kMinusOne;
      case 0x40000000u:
        return NumberClass::kTwo;
      default:
        return NumberClass::kOther;
    }
  }
  if (dtype == Dtype::kFloat64) {
    const double value = std::bit_cast<double>(bits);
    if (value == 0) return bits == 0 ? NumberClass::kZero : NumberClass::kNegativeZero;
    if (value == 1) return NumberClass::kOne;
    if (value == -1) return NumberClass::kMinusOne;
    return value == 2 ? NumberClass::kTwo : NumberClass::kOther;
  }
  switch (static_cast<int64_t>(bits)) {
    case 0:
      return NumberClass::kZero;
    case 1:
      return NumberClass::kOne;
    case -1:
      return NumberClass::kMinusOne;
    case 2:
      return NumberClass::kTwo;
    default:
      return NumberClass::kOther;
  }
}

void Tape::clear() {
  words_.clear();
  immediates_.clear();
  records_ = 0;
}

void Tape::append_flat(uint16_t code, Dtype compute, int arity, const Operand* operands,
                       const uint64_t* bits, int64_t n) {
  const size_t at = words_.size();
  words_.resize(at + 2 + 2 * static_cast<size_t>(arity + 1));
  uint64_t* word = words_.data() + at;
  *word++ = head_word(code, compute, arity, 0, 0);
  *word++ = static_cast<uint64_t>(n);
  for (int k = 0; k <= arity; ++k) {
    *word++ = operand_word(operands[k]);
    if (operands[k].kind == OperandKind::kImmediate) {
      immediates_.push_back(bits[k]);
    } else {
      *word++ = static_cast<uint64_t>(operands[k].offset);
    }
  }
  words_.resize(static_cast<size_t>(word - words_.data()));
  ++records_;
}

void Tape::append(const Record& record, const uint64_t* bits) {
  words_.push_back(head_word(record.code, record.compute, record.arity, record.ndim, record.attr));
  if (record.code == kCodeFold) words_.push_back(std::bit_cast<uint64_t>(record.parameter));
  for (int d = 0; d < record.ndim; ++d) {
    words_.push_back(static_cast<uint64_t>(record.shape[d]));
  }
  for (int k = 0; k <= record.arity; ++k) {
    const Operand& operand = record.operands[k];
    words_.push_back(operand_word(operand));
    if (operand.kind == OperandKind::kImmediate) {
      immediates_.push_back(bits[k]);
      continue;
    }
    words_.push_back(static_cast<uint64_t>(operand.offset));
    if (operand.kind == OperandKind::kOne) continue;
    for (int d = 0; d < record.ndim; ++d) {
      words_.push_back(static_cast<uint64_t>(record.strides[k][d]));
    }
  }
  ++records_;
}

void Tape::append_call(uint16_t kind, std::span<const CallSlot> operands,
                       std::span<const uint64_t> attributes, std::span<const uint64_t> numbers) {
  // What may fail comes first, so that the tape never ends in half a record.
  if (immediates_.capacity() - immediates_.size() < numbers.size()) {
    immediates_.reserve(std::max(2 * immediates_.capacity(), immediates_.size() + numbers.size()));
  }
  const size_t at = words_.size();
  words_.resize(at + 3 + CallRecord::kOperandWords * operands.size() + attributes.size());
  uint64_t* word = words_.data() + at;
  *word++ = head_word(kCodeCall, Dtype::kFloat32, 0, 0, kind);
  *word++ = uint64_t{numbers.size()} << 32 | operands.size();
  *word++ = attributes.size();
  for (const CallSlot& operand : operands) {
    *word++ = uint64_t{operand.present} | uint64_t{operand.reads} << 1 |
              uint64_t{operand.writes} << 2 | uint64_t{operand.covers} << 3 |
              uint64_t{operand.slot} << 16;
    *word++ = static_cast<uint64_t>(operand.offset);
    *word++ = static_cast<uint64_t>(operand.bytes);
  }
  std::copy(attributes.begin(), attributes.end(), word);
  immediates_.insert(immediates_.end(), numbers.begin(), numbers.end());
  ++records_;
}

CallSlot CallRecord::operand(size_t k) const {
  const uint64_t* word = operand_words.data() + k * kOperandWords;
  CallSlot slot;
  slot.present = (word[0] & 1) != 0;
  slot.reads = (word[0] & 2) != 0;
  slot.writes = (word[0] & 4) != 0;
  slot.covers = (word[0] & 8) != 0;
  slot.slot = static_cast<uint32_t>(word[0] >> 16);
  slot.offset = static_cast<int64_t>(word[1]);
  slot.bytes = static_cast<int64_t>(word[2]);
  return slot;
}

size_t Tape::decode_call(std::span<const uint64_t> words, size_t at, uint32_t& immediates,
                         CallRecord& call) {
  const uint64_t counts = words[at++], attributes = words[at++];
  const size_t operand_words = CallRecord::kOperandWords * static_cast<uint32_t>(counts);
  call.operand_words = words.subspan(at, operand_words);
  at += operand_words;
  call.attributes = words.subspan(at, attributes);
  call.first_number = immediates;
  call.numbers = static_cast<uint32_t>(counts >> 32);
  immediates += call.numbers;
  return at + attributes;
}

size_t Tape::decode_one(std::span<const uint64_t> words, size_t at, uint32_t& immediates,
                        Record& record) {
  const uint64_t head = words[at++];
  record.code = static_cast<uint16_t>(head);
  record.compute = static_cast<Dtype>(head >> 16 & 0xff);
  record.arity = static_cast<uint8_t>(head >> 24);
  record.ndim = static_cast<int>(head >> 32 & 0xff);
  record.attr = static_cast<uint16_t>(head >> 40);
  if (record.code == kCodeCall) return decode_call(words, at, immediates, record.call);
  if (record.code == kCodeFold) record.parameter = std::bit_cast<double>(words[at++]);
  const bool flat = record.ndim == 0;
  if (flat) record.ndim = 1;
  for (int d = 0; d < record.ndim; ++d) record.shape[d] = static_cast<int64_t>(words[at++]);
  for (int k = 0; k <= record.arity; ++k) {
    Operand& operand = record.operands[k];
    const uint64_t word = words[at++];
    operand.kind = static_cast<OperandKind>(word & 3);
    operand.dtype = static_cast<Dtype>(word >> 2 & 0x3f);
    operand.number = static_cast<NumberClass>(word >> 8 & 0xff);
    operand.slot = static_cast<uint32_t>(word >> 16);
    if (operand.kind == OperandKind::kImmediate) {
      operand.immediate = immediates++;
      continue;
    }
    operand.offset = static_cast<int64_t>(words[at++]);
    if (operand.kind == OperandKind::kOne) continue;
    for (int d = 0; d < record.ndim; ++d) {
      record.strides[k][d] = flat ? 1 : static_cast<int64_t>(words[at++]);
    }
  }
  return at;
}

// Two independent multiply-and-fold lanes, so that the multiplications overlap.
uint64_t hash_words(std::span<const uint64_t> words, uint64_t seed) {
  constexpr uint64_t kA = 0x9e3779b97f4a7c15u, kB = 0xd6e8feb86659fd93u;
  const auto fold = [](uint64_t x, uint64_t y) {
    const auto product = static_cast<unsigned __int128>(x) * y;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  uint64_t a = seed ^ kA, b = ~seed ^ kB;
  size_t i = 0;
  for (; i + 2 <= words.size(); i += 2) {
    a = fold(a ^ words[i], kA);
    b = fold(b ^ words[i + 1], kB);
  }
  if (i < words.size()) a = fold(a ^ words[i], kA);
  return fold(a ^ words.size(), b | 1) ^ a;
}

}  // namespace hologram::circuit
