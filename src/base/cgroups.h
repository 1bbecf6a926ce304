// SPDX-License-Identifier: MIT
// The limits of the control groups that this process is in, versions 1 and 2: what a container
// gets.
#pragma once

#include <cstddef>
#include <string>

namespace hologram::internal {

// The folder that holds the `proc` and `sys` of this machine: nothing, or what HOLOGRAM_SYSTEM_ROOT
// names. Tests put recorded trees there.
const std::string& system_root();

// How many processors' time the groups get, rounded down and at least 1; the smallest quota counts,
// from the process's own group up to the outermost that can be seen. 0 where there is no quota.
int cgroup_processors(const std::string& root);

// The smallest limit on memory on the same way, and the least memory that a group uses. 0: none.
size_t cgroup_memory_limit(const std::string& root);
size_t cgroup_memory_used(const std::string& root);

}  // namespace hologram::internal
