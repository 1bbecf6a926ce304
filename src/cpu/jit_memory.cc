// SPDX-License-Identifier: MIT
// Code pages: written while they are data, then sealed. A sealed page is never written again, since
// another thread may be running it, so each piece of code begins a page.
#include "src/cpu/jit_memory.h"

#include <cstring>

#if defined(__unix__)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace hologram::cpu::jit {
namespace {

constexpr size_t kRegionBytes = size_t{1} << 20;  // address space is taken in such pieces
constexpr size_t kMaxBytes = size_t{32} << 20;    // of code in all

}  // namespace

#if defined(__unix__)
const void* install_code(const uint8_t* code, size_t bytes) {
  static uint8_t* next = nullptr;
  static size_t left = 0;
  static size_t taken = 0;
  static const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t room = (bytes + page - 1) / page * page;
  if (room > kRegionBytes) return nullptr;
  if (next == nullptr || room > left) {
    if (taken + kRegionBytes > kMaxBytes) return nullptr;
    void* region =
        mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (region == MAP_FAILED) return nullptr;
    next = static_cast<uint8_t*>(region);
    left = kRegionBytes;
    taken += kRegionBytes;
  }
  uint8_t* place = next;
  std::memcpy(place, code, bytes);
  next += room;
  left -= room;
  if (mprotect(place, room, PROT_READ | PROT_EXEC) != 0) return nullptr;
  return place;
}
#else
const void* install_code(const uint8_t*, size_t) { return nullptr; }
#endif

}  // namespace hologram::cpu::jit
