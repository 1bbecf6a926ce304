// SPDX-License-Identifier: MIT
// Notices a program that looks at the result of every op before it calls the next one.
#pragma once

#include <cstdint>

namespace hologram::internal {

// Where each circuit is one op there is nothing to fuse. Then small ops run at their call, which
// saves the way through a circuit, longer than the op itself. Of every kSample ops one is recorded
// as ever: if another op comes before anyone looks, the program has begun to do something else.
// So at most kSample - 1 ops of a chain run one by one. On one thread all of it follows from the
// order of calls and looks, so that equal loops make equal circuits; only where the worker seals a
// circuit for its age does time matter. It begins anew where the recorder's counts do.
//
// The recorder's record lock guards it.
class LoneOps {
 public:
  // Elements of an op that runs at its call. Larger ones are worth fusing more than this saves.
  static constexpr int64_t kMostElements = 1 << 14;

  // An op was appended to the open circuit, which now has `records` ops. elements: how many the op
  // computes; 0 for an op of a kind that never runs at its call.
  void note_record(int64_t elements, int records) {
    is_lone_ = records == 1 && elements > 0 && elements <= kMostElements;
  }
  // The open circuit was sealed, because a thread asks for it or not.
  void note_sealing(bool asked) {
    looks_ = !asked || !is_lone_ ? 0 : looks_ < kLooks ? looks_ + 1 : kLooks;
    is_lone_ = false;
  }
  // Whether an op that comes to an empty circuit should run at its call.
  bool run_next() { return looks_ == kLooks && ++calls_ % kSample != 0; }

 private:
  static constexpr uint8_t kLooks = 16;  // in a row, before an op runs at its call
  static constexpr uint8_t kSample = 8;

  bool is_lone_ = false;  // whether the open circuit is one op that could have run at its call
  uint8_t looks_ = 0;
  uint8_t calls_ = 0;
};

}  // namespace hologram::internal
