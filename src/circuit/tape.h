// SPDX-License-Identifier: MIT
// Tape: a circuit as it is recorded, one run of 64-bit words per op, cheap to append, to hash and
// to compare. Recorder::append() (src/runtime/recording/record.cc) writes it, make_graph() and the
// plan cache read it.
//
// Two tapes with equal words compute the same function of their slots and immediates, so the words
// (with the state of the slots, see SlotState) are the key under which a plan is remembered.
// Buffers are named by slot, numbers by position: neither an address nor the value of a number is
// in the words, except that the few numbers which laws know (0, -0, 1, -1, 2) are marked as such.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "hologram/dtype.h"
#include "hologram/op_ids.h"

namespace hologram::circuit {

// What a record does: a row of the op table (its OpId), or one of these.
enum Code : uint16_t {
  // out = in converted to out's dtype (rounded to nearest even; floats to integers truncate).
  kCodeConvert = 0x1000,
  // Reduction `attr` of the last dimension, see Record::row.
  kCodeReduction = 0x1001,
  // A function of whole rows, see RowOp; `attr` names it.
  kCodeRow = 0x1002,
  // A call over whole buffers, see CallRecord; `attr` is its kind.
  kCodeCall = 0x1003,
};

// Functions that turn rows into rows of the same length.
enum class RowOp : uint8_t {
  kSoftmax = 0,             // (x)
  kLogSoftmax = 1,          // (x)
  kSoftmaxBackward = 2,     // (grad, output)
  kLogSoftmaxBackward = 3,  // (grad, output)
};

enum class OperandKind : uint8_t {
  kMemory = 0,     // one element per element of the record
  kOne = 1,        // one element of memory, repeated
  kImmediate = 2,  // a number
};

// Which known number an immediate is, whatever its dtype.
enum class NumberClass : uint8_t { kOther = 0, kZero, kNegativeZero, kOne, kMinusOne, kTwo };
// bits: a number in `dtype` (float32 in the low 4 bytes, float64, int64 for integers and bool).
NumberClass classify_number(Dtype dtype, uint64_t bits);

struct TapeOperand {
  OperandKind kind = OperandKind::kMemory;
  // As stored. Of an immediate: the type computed in, in which its bits are.
  Dtype dtype = Dtype::kFloat32;
  NumberClass number = NumberClass::kOther;
  uint32_t slot = 0;       // kMemory, kOne
  int64_t offset = 0;      // bytes from the start of the slot's buffer
  uint32_t immediate = 0;  // position among the tape's immediates
};

inline constexpr int kMaxArity = 4;
inline constexpr int kTapeDims = 8;

// Bytes of a slot that a call touches.
struct CallSlot {
  bool present = false;
  bool reads = false;
  bool writes = false;
  bool covers = false;  // writes every byte of its extent
  uint32_t slot = 0;
  int64_t offset = 0;
  int64_t bytes = 0;
};

// What a call's record holds beside its kind; spans point into the tape's words.
struct CallRecord {
  std::span<const uint64_t> operand_words;
  std::span<const uint64_t> attributes;
  uint32_t first_number = 0;  // its numbers follow each other among the tape's immediates
  uint32_t numbers = 0;

  static constexpr size_t kOperandWords = 3;
  size_t operands() const { return operand_words.size() / kOperandWords; }
  CallSlot operand(size_t k) const;
};

// One decoded record. The output is operand 0.
//
// Elements are visited in an order that the recorder chose (by the output's strides, largest
// first), as `ndim` dimensions, the innermost last; ndim 1 with strides 1 is the usual case. A
// kMemory operand k steps strides[k][d] elements in dimension d, 0 where it is repeated.
// For kCodeReduction the dimensions are those of the input and the output's strides in the last one
// are 0: the last dimension is folded. For kCodeRow the last dimension is the row. For kCodeCall
// only code, attr and call mean anything.
struct Record {
  uint16_t code = 0;
  Dtype compute = Dtype::kFloat32;
  uint8_t arity = 0;
  uint16_t attr = 0;     // kCodeReduction: Reduction; kCodeRow: RowOp; kCodeCall: the kind
  double parameter = 0;  // kCodeReduction: correction of var and std, p of norm
  int ndim = 1;
  bool flat = false;  // decoded from the words of append_flat()
  int64_t shape[kTapeDims] = {};
  int64_t strides[kMaxArity + 1][kTapeDims] = {};
  TapeOperand operands[kMaxArity + 1];
  CallRecord call;

  int64_t numel() const {
    int64_t n = 1;
    for (int d = 0; d < ndim; ++d) n *= shape[d];
    return n;
  }
};

// What a slot is when the circuit is sealed.
enum SlotState : uint8_t {
  kSlotLive = 1,   // code outside the circuit may still read the buffer
  kSlotFresh = 2,  // nothing was written before this circuit: its first contents are undefined
};

class Tape {
 public:
  void clear();
  bool empty() const { return records_ == 0; }
  int records() const { return records_; }

  // Appends. Immediates' `immediate` is ignored: the number is `bits` and gets the next position.
  // The usual case: n elements, every kMemory operand contiguous.
  void append_flat(uint16_t code, Dtype compute, int arity, const TapeOperand* operands,
                   const uint64_t* bits, int64_t n);
  void append(const Record& record, const uint64_t* bits);
  void append_call(uint16_t kind, std::span<const CallSlot> operands,
                   std::span<const uint64_t> attributes, std::span<const uint64_t> numbers);

  // The usual case again, for those who have the operands one by one: begin_flat, the operands in
  // order, the output first and each where the one before ended, end_record. Only begin_flat can
  // fail, with nothing changed.
  uint64_t* begin_flat(uint16_t code, Dtype compute, int arity, int64_t n) {
    const size_t operands = static_cast<size_t>(arity) + 1;
    uint64_t* word = make_room(2 + 2 * operands, operands);
    word[0] = head_word(code, compute, arity, 0, 0);
    word[1] = static_cast<uint64_t>(n);
    return word + 2;
  }
  static uint64_t* put_memory(uint64_t* word, bool one, Dtype dtype, uint32_t slot,
                              int64_t offset) {
    word[0] = operand_word(one ? OperandKind::kOne : OperandKind::kMemory, dtype,
                           NumberClass::kOther, slot);
    word[1] = static_cast<uint64_t>(offset);
    return word + 2;
  }
  uint64_t* put_number(uint64_t* word, Dtype dtype, uint64_t bits) {
    word[0] = operand_word(OperandKind::kImmediate, dtype, classify_number(dtype, bits), 0);
    immediates_.push_back(bits);
    return word + 1;
  }
  void end_record(const uint64_t* end) {
    used_ = static_cast<size_t>(end - words_.data());
    ++records_;
  }

  // Whether the last record may be a conversion of contiguous memory, from memory; false: it is
  // not.
  bool may_end_in_conversion() const {
    return used_ >= kConversionWords && (words_[used_ - kConversionWords] & ~uint64_t{0xff0000}) ==
                                            head_word(kCodeConvert, Dtype{}, 1, 0, 0);
  }
  // Of such a conversion's record.
  static constexpr size_t kConversionWords = 6;
  // Removes the last `count` records, which are such conversions.
  void remove_conversions(int count) {
    used_ -= kConversionWords * static_cast<size_t>(count);
    records_ -= count;
  }
  // Room for that many conversions, which then cannot fail to be appended.
  void reserve_conversions(size_t count) { make_room(kConversionWords * count, 0); }

  // The same for a call: begin_call, the operands in order, end_call.
  uint64_t* begin_call(uint16_t kind, size_t operands, size_t attributes, size_t numbers) {
    uint64_t* word = make_room(3 + CallRecord::kOperandWords * operands + attributes, numbers);
    word[0] = head_word(kCodeCall, Dtype::kFloat32, 0, 0, kind);
    word[1] = uint64_t{numbers} << 32 | operands;
    word[2] = attributes;
    return word + 3;
  }
  static uint64_t* put_call_operand(uint64_t* word, const CallSlot& operand) {
    word[0] = uint64_t{operand.present} | uint64_t{operand.reads} << 1 |
              uint64_t{operand.writes} << 2 | uint64_t{operand.covers} << 3 |
              uint64_t{operand.slot} << 16;
    word[1] = static_cast<uint64_t>(operand.offset);
    word[2] = static_cast<uint64_t>(operand.bytes);
    return word + CallRecord::kOperandWords;
  }
  void end_call(uint64_t* word, std::span<const uint64_t> attributes,
                std::span<const uint64_t> numbers) {
    word = std::copy(attributes.begin(), attributes.end(), word);
    immediates_.insert(immediates_.end(), numbers.begin(), numbers.end());
    end_record(word);
  }

  std::span<const uint64_t> words() const { return {words_.data(), used_}; }
  const std::vector<uint64_t>& immediates() const { return immediates_; }

  // Calls rest(word) for each word in order but those that are numbers of elements or bytes, for
  // which it calls size(word), and those of calls' attributes: call(kind, operand words,
  // attributes).
  template <class Rest, class OfSize, class OfCall>
  static void walk(std::span<const uint64_t> words, Rest&& rest, OfSize&& size, OfCall&& call) {
    for (size_t at = 0; at < words.size();) {
      const uint64_t head = words[at++];
      rest(head);
      if (static_cast<uint16_t>(head) == kCodeCall) {
        const uint64_t counts = words[at++], attributes = words[at++];
        rest(counts);
        rest(attributes);
        const auto operands =
            words.subspan(at, CallRecord::kOperandWords * static_cast<uint32_t>(counts));
        for (size_t k = 0; k < operands.size(); k += CallRecord::kOperandWords) {
          rest(operands[k]);
          size(operands[k + 1]);
          size(operands[k + 2]);
        }
        at += operands.size();
        call(static_cast<uint16_t>(head >> 40), operands, words.subspan(at, attributes));
        at += attributes;
        continue;
      }
      const uint64_t arity = head >> 24 & 0xff, ndim = head >> 32 & 0xff;
      if (static_cast<uint16_t>(head) == kCodeReduction) rest(words[at++]);
      for (uint64_t d = 0; d < std::max<uint64_t>(1, ndim); ++d) size(words[at++]);
      for (uint64_t k = 0; k <= arity; ++k) {
        const uint64_t operand = words[at++];
        rest(operand);
        const auto kind = static_cast<OperandKind>(operand & 3);
        if (kind == OperandKind::kImmediate) continue;
        size(words[at++]);
        if (kind == OperandKind::kOne) continue;
        for (uint64_t d = 0; d < ndim; ++d) size(words[at++]);
      }
    }
  }

  // Calls f(record, index) for each, in order.
  template <class F>
  static void decode(std::span<const uint64_t> words, F&& f) {
    size_t at = 0;
    uint32_t immediates = 0;
    for (int index = 0; at < words.size(); ++index) {
      Record record;
      at = decode_one(words, at, immediates, record);
      f(record, index);
    }
  }

 private:
  static size_t decode_one(std::span<const uint64_t> words, size_t at, uint32_t& immediates,
                           Record& record);
  static size_t decode_call(std::span<const uint64_t> words, size_t at, uint32_t& immediates,
                            CallRecord& call);

  static uint64_t head_word(uint16_t code, Dtype compute, int arity, int ndim, uint16_t attr) {
    return uint64_t{code} | uint64_t{static_cast<uint8_t>(compute)} << 16 |
           static_cast<uint64_t>(arity) << 24 | static_cast<uint64_t>(ndim) << 32 |
           uint64_t{attr} << 40;
  }
  static uint64_t operand_word(OperandKind kind, Dtype dtype, NumberClass number, uint32_t slot) {
    return static_cast<uint64_t>(kind) | static_cast<uint64_t>(dtype) << 2 |
           static_cast<uint64_t>(number) << 8 | uint64_t{slot} << 16;
  }
  // Makes room for that many words and immediates more.
  uint64_t* make_room(size_t words, size_t immediates);

  std::vector<uint64_t> words_;  // the first used_ count; the others are room
  size_t used_ = 0;
  std::vector<uint64_t> immediates_;
  int records_ = 0;
};

inline uint64_t* Tape::make_room(size_t words, size_t immediates) {
  if (words_.size() - used_ < words) [[unlikely]]
    words_.resize(std::max(2 * words_.size(), used_ + words));
  if (immediates_.capacity() - immediates_.size() < immediates) [[unlikely]] {
    immediates_.reserve(std::max(2 * immediates_.capacity(), immediates_.size() + immediates));
  }
  return words_.data() + used_;
}

// 64 bits that depend on every word.
uint64_t hash_words(std::span<const uint64_t> words, uint64_t seed = 0);

}  // namespace hologram::circuit
