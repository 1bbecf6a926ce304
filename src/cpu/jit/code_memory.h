// SPDX-License-Identifier: MIT
// Memory for generated code, never writable and executable at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace hologram::cpu::jit {

// Whole pages of code. Not thread-safe.
class CodeMemory {
 public:
  // Copies code to where it can run. Null where the system refuses, or with this the pages taken
  // would be more than `most` bytes.
  const void* install(const uint8_t* code, size_t bytes, size_t most);
  // Nobody runs the code, or will: its pages serve other code.
  void release(const void* code, size_t bytes);
  // What so many bytes of code take.
  static size_t room_for(size_t bytes);
  size_t taken() const { return taken_; }

 private:
  using Run = std::pair<size_t, uint8_t*>;  // bytes, address
  bool add_region();
  void put_back(uint8_t* at, size_t bytes);
  void take_out(std::map<uint8_t*, size_t>::iterator run);

  // Free pages that follow each other, by address and by length.
  std::map<uint8_t*, size_t> free_;
  std::set<Run> by_length_;
  size_t taken_ = 0;
};

}  // namespace hologram::cpu::jit
