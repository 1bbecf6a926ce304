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
    // By bits, as above: a thread may take denormal numbers for zero.
    switch (bits) {
      case 0:
        return NumberClass::kZero;
      case std::bit_cast<uint64_t>(-0.0):
        return NumberClass::kNegativeZero;
      case std::bit_cast<uint64_t>(1.0):
        return NumberClass::kOne;
      case std::bit_cast<uint64_t>(-1.0):
        return NumberClass::kMinusOne;
      case std::bit_cast<uint64_t>(2.0):
        return NumberClass::kTwo;
      default:
        return NumberClass::kOther;
    }
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
  used_ = 0;
  immediates_.clear();
  records_ = 0;
}

void Tape::append_flat(uint16_t code, Dtype compute, int arity, const TapeOperand* operands,
                       const uint64_t* bits, int64_t n) {
  uint64_t* word = begin_flat(code, compute, arity, n);
  for (int k = 0; k <= arity; ++k) {
    const TapeOperand& operand = operands[k];
    word = operand.kind == OperandKind::kImmediate
               ? put_number(word, operand.dtype, bits[k])
               : put_memory(word, operand.kind == OperandKind::kOne, operand.dtype, operand.slot,
                            operand.offset);
  }
  end_record(word);
}

void Tape::append(const Record& record, const uint64_t* bits) {
  const size_t operands = static_cast<size_t>(record.arity) + 1;
  const size_t ndim = static_cast<size_t>(record.ndim);
  uint64_t* word = make_room(2 + ndim + operands * (2 + ndim), operands);
  *word++ = head_word(record.code, record.compute, record.arity, record.ndim, record.attr);
  if (record.code == kCodeReduction) *word++ = std::bit_cast<uint64_t>(record.parameter);
  word = std::transform(record.shape, record.shape + ndim, word,
                        [](int64_t size) { return static_cast<uint64_t>(size); });
  for (size_t k = 0; k < operands; ++k) {
    const TapeOperand& operand = record.operands[k];
    if (operand.kind == OperandKind::kImmediate) {
      word = put_number(word, operand.dtype, bits[k]);
      continue;
    }
    const bool one = operand.kind == OperandKind::kOne;
    word = put_memory(word, one, operand.dtype, operand.slot, operand.offset);
    if (one) continue;
    word = std::transform(record.strides[k], record.strides[k] + ndim, word,
                          [](int64_t stride) { return static_cast<uint64_t>(stride); });
  }
  end_record(word);
}

void Tape::append_call(uint16_t kind, std::span<const CallSlot> operands,
                       std::span<const uint64_t> attributes, std::span<const uint64_t> numbers) {
  uint64_t* word = begin_call(kind, operands.size(), attributes.size(), numbers.size());
  for (const CallSlot& operand : operands) word = put_call_operand(word, operand);
  end_call(word, attributes, numbers);
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
  if (record.code == kCodeReduction) record.parameter = std::bit_cast<double>(words[at++]);
  record.flat = record.ndim == 0;
  if (record.flat) record.ndim = 1;
  for (int d = 0; d < record.ndim; ++d) record.shape[d] = static_cast<int64_t>(words[at++]);
  for (int k = 0; k <= record.arity; ++k) {
    TapeOperand& operand = record.operands[k];
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
      record.strides[k][d] = record.flat ? 1 : static_cast<int64_t>(words[at++]);
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
  // Two words a multiplication, as wyhash has it, in two chains that do not wait for each other.
  size_t i = 0;
  for (; i + 4 <= words.size(); i += 4) {
    a = fold(a ^ words[i], kA ^ words[i + 1]);
    b = fold(b ^ words[i + 2], kB ^ words[i + 3]);
  }
  for (; i < words.size(); ++i) a = fold(a ^ words[i], kA);
  return fold(a ^ words.size(), b | 1) ^ a;
}

}  // namespace hologram::circuit
