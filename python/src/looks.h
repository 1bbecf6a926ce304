// SPDX-License-Identifier: MIT
// What Python does that needs values, as traces name the cause of a circuit.
#pragma once

#include "hologram/trace.h"

namespace hologram::python {

// Names what this thread does as long as it lives: Look look("float()"). The outermost one counts:
// repr() looks through the buffer protocol. Costs one relaxed load while nothing is traced, so
// where most values are there it stands on the way of the others.
class Look {
 public:
  explicit Look(const char* what)
      : is_traced_(internal::g_traces.load(std::memory_order_relaxed) != 0) {
    if (is_traced_) [[unlikely]]
      begin(what);
  }
  ~Look() {
    if (is_traced_) [[unlikely]]
      end();
  }
  Look(const Look&) = delete;
  Look& operator=(const Look&) = delete;

 private:
  void begin(const char* what);
  void end() const;

  const bool is_traced_;
  const char* outer_ = nullptr;
};

}  // namespace hologram::python
