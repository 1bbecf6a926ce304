// SPDX-License-Identifier: MIT
// Which processors this process may use, and how many at a time.
//
// A thread's own mask says too little: where OMP_PROC_BIND, GOMP_CPU_AFFINITY or KMP_AFFINITY is
// set, OpenMP binds the thread that loads it to one processor, and every thread that this one
// starts inherits that. So the process may use what any of its threads may, and what OpenMP says
// that it binds to. A container's quota limits how many of these work at a time.
#pragma once

#include <sched.h>

namespace hologram::internal {

// How many processors the process gets: no more than it may run on, and no more than the quota of
// its control groups, rounded down; at least 1. Fixed when first asked.
int processors();

// How many processors the machine has, or the quota where that is less; at least 1. Affinity does
// not change it: what decides the bits of a result is cut by this number. Fixed when first asked.
int machine_processors();

// The mask for a thread of ours that is to work for the calling thread, or for `thread` where that
// is not 0: its own one, or all of the process's processors where another runtime binds threads.
// False where it is unknown.
bool mask_for_helpers(pid_t thread, cpu_set_t& mask);
// True where another runtime binds threads, so that new threads inherit too small a mask.
bool are_threads_bound();

}  // namespace hologram::internal
