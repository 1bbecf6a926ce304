// SPDX-License-Identifier: MIT
// What capturing a graph means for random numbers; graph.cc registers graphs with PyTorch.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <span>
#include <vector>

#include "device/generator.h"

namespace hologram_torch {

// The random numbers that a graph draws. While it is captured, a number that nothing else in it
// equals stands for the seed of a generator; offsets count from the first draw.
class CapturedDraws {
 public:
  // What stands for `count` random blocks of the generator.
  PhiloxGenerator::Reserved draw(PhiloxGenerator& generator, uint64_t count);
  // The capture has ended: where in the graph's numbers the stand-ins are.
  void find_places(std::span<const uint64_t> numbers);
  // Draws for a replay, into its numbers.
  void advance(std::span<uint64_t> numbers) const;
  void clear() { draws_.clear(); }
  bool empty() const { return draws_.empty(); }

 private:
  struct Draws {
    c10::intrusive_ptr<c10::GeneratorImpl> owner;
    PhiloxGenerator* generator;
    uint64_t token;
    uint64_t count = 0;  // of a replay
    struct Place {
      size_t seed;  // among the graph's numbers; the offset follows
      uint64_t offset;
    };
    std::vector<Place> places;
  };
  std::vector<Draws> draws_;
};

// While a graph or a function is captured on this thread: (seed, offset) that stand for what each
// replay draws from the generator. False at other times. The caller holds the generator's mutex_.
bool draws_in_graph(PhiloxGenerator& generator, uint64_t count,
                    PhiloxGenerator::Reserved& reserved);
// Where the function that is being captured draws; null: none is. It is one at a time.
void set_function_draws(CapturedDraws* draws);

}  // namespace hologram_torch
