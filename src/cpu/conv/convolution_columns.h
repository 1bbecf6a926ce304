// SPDX-License-Identifier: MIT
// Finds where the columns of a convolution's product lie in its input.
#pragma once

#include <cstdint>
#include <vector>

#include "src/cpu/conv/convolution.h"
#include "src/cpu/conv/convolution_kernels.h"

namespace hologram::cpu {

// What all panels of a convolution share: where its taps are, and which outputs they reach.
class ConvTaps {
 public:
  explicit ConvTaps(const ConvolutionArgs& args);

  int64_t count() const { return static_cast<int64_t>(positions_.size()); }
  const int64_t* positions() const { return positions_.data(); }

  // A row of columns, [lane, lane + count) of a panel, which begins at output d, h, w.
  struct Run {
    int64_t lane, count, d, h, w;
  };
  // Adds to each tap's bits the columns of a run that it reaches.
  void add_reach(const Run& run, uint32_t* reach) const;

 private:
  struct Range {
    int64_t begin, end;  // outputs for which a tap is inside
  };
  std::vector<int64_t> positions_;
  std::vector<Range> ranges_[3];  // for each dimension, each tap along it
};

// The panels of a block, kept for all depths and channels.
template <class T>
class ConvPanels {
 public:
  // Forgets the panels; `count` at most will follow.
  void reset(const ConvolutionArgs& args, const ConvTaps& taps, int64_t count);
  // Outputs [first, first + n) of `args`, counted over all images; n is at most two vectors.
  void add(int64_t first, int64_t n, int64_t lanes);
  const ConvColumns<T>& operator[](int64_t i) const { return columns_[static_cast<size_t>(i)]; }

 private:
  int add_segments(const int64_t* at, int64_t n, int64_t lanes);

  const ConvolutionArgs* args_ = nullptr;
  const ConvTaps* taps_ = nullptr;
  std::vector<ConvSegment<T>> segments_;
  std::vector<uint32_t> reach_;
  std::vector<ConvColumns<T>> columns_;
};

}  // namespace hologram::cpu
