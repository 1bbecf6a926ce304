// SPDX-License-Identifier: MIT
// CUDA's driver, NVRTC and cuBLASLt without a GPU, for tests. libnvrtc_fake.so gives a program's
// text for its machine code. libcuda_fake.so puts OpenCL's prologue in place of CUDA's, builds it
// with the machine's OpenCL (HOLOGRAM_OPENCL_LIBRARY) and launches it there, so that all code of
// the device but CUDA's prologue runs.
//
// Queued work runs only when a call waits for it, so that memory that is reused or freed too early
// shows. Misuse gives the code that CUDA would give, or an access outside of memory an error that
// stays, and is a complaint: handles that are not live, a context that is not current, parameters
// that are not those of the kernel, addresses outside of live blocks, what is freed twice or while
// it is in use, what is alive when its context is released.
//
// libcublaslt_fake.so computes products of the driver's memory in the order of its queue. It checks
// what they are told of: handles, layouts, alignment, workspace, and that an algorithm is one for
// the problem.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

extern "C" {

// What tests may ask. After `after` calls of `call` that succeed, the next one returns `code`,
// once; from 700 and 719 on, all calls do, as with CUDA. `call` is a symbol of libcuda
// ("cuMemAlloc_v2") or of libcublasLt, or "kernel" for a queued launch.
// FAKE_CUDA_FAIL=call:after:code does the same from outside.
void fake_cuda_fail(const char* call, int after, int code);
// How many "blocks", "hosts" (pinned memory), "modules", "events" and "contexts" are live, and how
// many "launches" were queued; of cuBLASLt, how many "objects" are live, how many problems were
// "asked" for, and how many "products" were queued.
long fake_cuda_count(const char* what);
// Whether launches run or are only checked.
void fake_cuda_execute(bool yes);
// As when a process ends: every call gives CUDA_ERROR_DEINITIALIZED, until it is undone.
void fake_cuda_end(bool yes);
// All complaints so far, a line each. FAKE_CUDA_LOG names a file that they go to; else they are
// written to standard error.
const char* fake_cuda_complaints();

// What libcublaslt_fake.so asks of libcuda_fake.so. The code of a call that does nothing.
int fake_cuda_enter(const char* call, bool needs_context);
// Adds to what fake_cuda_count() gives.
void fake_cuda_note(const char* what, long more);
int fake_cuda_complain(int code, const char* text);
// Queues work in the current context, on copies of ranges of live blocks. What it says that it
// writes is copied back. Not 0 where a range is not in a live block.
struct FakeRange {
  uint64_t address;
  size_t bytes;
  bool is_written;
};
int fake_cuda_enqueue(std::span<const FakeRange> ranges,
                      std::function<void(std::span<char* const>)> work);
}
