// SPDX-License-Identifier: MIT
// Tells PyTorch's profiler the bytes that storages take and give back (profile_memory=True).
//
// A storage counts from its creation to its end with all its bytes, as if they were allocated at
// the call: that is what the program asks for, and what an op of another device would take. When
// memory is really taken, the pool's figures say, which come along as totals.
#pragma once

#include <atomic>
#include <cstddef>

#include "hologram/buffer.h"

namespace hologram_torch {

// How many profiles are on, of whatever kind. A thread's own profile says whether it wants memory.
extern constinit std::atomic<int> g_profiles;
inline bool may_profile_memory() { return g_profiles.load(std::memory_order_relaxed) > 0; }
void begin_memory_profile();
void end_memory_profile();

// These report where this thread's profile wants memory. The profiler knows a storage by the
// address that it shows.

// A new storage has this buffer, and shows the buffer's address or nowhere_of() it.
[[gnu::cold]] void report_taken(const hologram::Buffer& buffer) noexcept;
// The storage is gone.
[[gnu::cold]] void report_given_back(const hologram::Buffer& buffer) noexcept;
// The storage showed `before`, and shows `now`: as if it had given back one and taken the other.
[[gnu::cold]] void report_moved(const hologram::Buffer& buffer, void* before, void* now) noexcept;
// An allocation of `nbytes` bytes failed.
[[gnu::cold]] void report_out_of_memory(size_t nbytes) noexcept;

}  // namespace hologram_torch
