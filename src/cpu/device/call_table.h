// SPDX-License-Identifier: MIT
// The CPU's kernels of the calls (hologram/call_structs.h): a run() for each, beside the kernels of
// its family. A row without one does not link.
#pragma once

#include "hologram/call.h"
#include "hologram/call_frame.h"
#include "hologram/call_structs.h"

namespace hologram::cpu {

#define HOLOGRAM_RUN(name, Struct) void run(const calls::Struct<>& call, CallThreads threads);
HOLOGRAM_EACH_CALL(HOLOGRAM_RUN)
#undef HOLOGRAM_RUN

// Those with a result that ops read block by block: CallKind's result and run_blocks. The struct of
// result_of() has no memory.
bool result_of(const calls::Convolution<>& call, CallResult& result);
bool run_blocks(const calls::Convolution<>& call, CallThreads threads,
                const CallEpilogue& epilogue);
bool result_of(const calls::Gemm<>& call, CallResult& result);
bool run_blocks(const calls::Gemm<>& call, CallThreads threads, const CallEpilogue& epilogue);
bool result_of(const calls::LinearInt8<>& call, CallResult& result);
bool run_blocks(const calls::LinearInt8<>& call, CallThreads threads, const CallEpilogue& epilogue);

// Those with an operand that may be narrower: CallKind's narrowing.
bool narrowing_of(const calls::Gemm<>& call, CallNarrowing& narrowing);

// Makes all of them known to the catalogue of calls.
void register_calls();

}  // namespace hologram::cpu
