// SPDX-License-Identifier: MIT
// Launches as device events of PyTorch's Kineto timeline, linked to the ops that recorded them.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <cstdint>
#include <memory>

#include "hologram/trace.h"

namespace hologram_torch {

// Whether a profiler collects device events (ProfilerActivity.PrivateUse1) at this moment. False
// with PyTorch 2.11, whose Kineto takes no events of other devices.
bool is_timeline_on();

// Of a launch that begins on this thread. The token goes to end_on_timeline(); null: it is not
// shown.
void* begin_on_timeline(const hologram::Launch& launch);
void end_on_timeline(void* token);

// Whether the profiler wants to know the lines of Python that record ops (with_stack).
bool wants_lines_on_timeline();
// Notes an op that this thread is about to record: its mark, which operator of PyTorch it is in,
// when, and, where they are wanted, at which lines. Marks ascend.
void mark_on_timeline(uint64_t mark, std::shared_ptr<c10::GatheredContext> lines);

}  // namespace hologram_torch
