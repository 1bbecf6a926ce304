// SPDX-License-Identifier: MIT
// Cached memory goes back to the system when the pools were not used for a while: ten seconds, or
// what HOLOGRAM_TRIM_SECONDS says (0: never).
//
// A thread of the recorder's sees to it: it sleeps for time_until_trim(), trims once, and then
// sleeps until it is called, which the next use of the pools does. Where there is no such thread,
// the next op or synchronize() trims.
#pragma once

#include <atomic>
#include <cstdint>

namespace hologram::internal {

// A shared list or a mapping is about to be used, with no lock of the pools held. Blocks that the
// lists of threads serve do not count.
void note_pool_use() noexcept;

// Nanoseconds until the pools have been idle for that long, at least 1; 0 where nothing is to be
// given back, or never.
int64_t time_until_trim() noexcept;

// Gives memory back if the pools have been idle for that long.
void trim_if_idle() noexcept;

// Who is called once, by the next use of the pools after memory was given back; null: no one.
// False, with no one to be called, where they have been used since.
bool call_at_next_use(void (*call)()) noexcept;

}  // namespace hologram::internal
