// SPDX-License-Identifier: MIT
// Code pages: written while they are data, then sealed. Another thread may be running a sealed
// page, so each piece of code begins a page, and pages are written again only when nobody uses
// their code.
#include "src/cpu/jit/code_memory.h"

#include <cstring>
#include <iterator>

#if defined(__unix__)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace hologram::cpu::jit {

#if defined(__unix__)
namespace {

constexpr size_t kRegionBytes = size_t{1} << 20;  // address space is taken in such pieces

size_t page_bytes() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

size_t CodeMemory::room_for(size_t bytes) {
  return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

bool CodeMemory::add_region() {
  void* region =
      mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (region == MAP_FAILED) return false;
  put_back(static_cast<uint8_t*>(region), kRegionBytes);
  return true;
}

void CodeMemory::take_out(std::map<uint8_t*, size_t>::iterator run) {
  by_length_.erase({run->second, run->first});
  free_.erase(run);
}

// Joins the free pages before and after.
void CodeMemory::put_back(uint8_t* at, size_t bytes) {
  const auto after = free_.lower_bound(at);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == at) {
      at = before->first;
      bytes += before->second;
      take_out(before);
    }
  }
  if (after != free_.end() && at + bytes == after->first) {
    bytes += after->second;
    take_out(after);
  }
  free_.emplace(at, bytes);
  by_length_.emplace(bytes, at);
}

const void* CodeMemory::install(const uint8_t* code, size_t bytes, size_t most) {
  const size_t room = room_for(bytes);
  if (room > kRegionBytes || taken_ + room > most) return nullptr;
  auto found = by_length_.lower_bound({room, nullptr});
  if (found == by_length_.end()) {
    if (!add_region()) return nullptr;
    found = by_length_.lower_bound({room, nullptr});
  }
  const auto [length, place] = *found;
  if (mprotect(place, room, PROT_READ | PROT_WRITE) != 0) return nullptr;
  std::memcpy(place, code, bytes);
  if (mprotect(place, room, PROT_READ | PROT_EXEC) != 0) return nullptr;
  take_out(free_.find(place));
  if (length > room) put_back(place + room, length - room);
  taken_ += room;
  return place;
}

void CodeMemory::release(const void* code, size_t bytes) {
  const size_t room = room_for(bytes);
  put_back(static_cast<uint8_t*>(const_cast<void*>(code)), room);
  taken_ -= room;
}
#else
size_t CodeMemory::room_for(size_t bytes) { return bytes; }
const void* CodeMemory::install(const uint8_t*, size_t, size_t) { return nullptr; }
void CodeMemory::release(const void*, size_t) {}
#endif

}  // namespace hologram::cpu::jit
