// SPDX-License-Identifier: MIT
// Marks of ops: numbers that tell a launch, or the memory of a result, which call recorded it.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace hologram_torch {

// Who wants ops to be marked. They are while anyone does.
enum class MarkUse : uint8_t { kTimeline = 1, kMemoryHistory = 2 };
void use_marks(MarkUse use, bool on);

// Marks an op that this thread is about to record; 0 where no one wants that.
uint64_t mark_op();

// The lines of Python that this thread is at (a torch::CapturedTraceback); null where it runs none.
// Takes the GIL.
std::shared_ptr<c10::GatheredContext> gather_lines();

// Where PyTorch's Python sources and ours are, with a slash at the end; set once, at import.
void set_library_folders(std::vector<std::string> folders);
// Whether a file of Python is in one of them: the program's own lines say more.
bool is_library_file(std::string_view file);

}  // namespace hologram_torch
