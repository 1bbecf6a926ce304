// SPDX-License-Identifier: MIT
// Runs a libFuzzer harness without libFuzzer: cases made of seeds, or files.
//
//   capi_fuzz [--cases N] [--seed S] [FILE...]
//
// Case i of seed S is the same on every machine. A case that crashes is named by the last line.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "hologram/device.h"
#include "hologram/memory.h"
#include "hologram/recorder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

uint64_t g_seed = 0;
uint64_t g_case = 0;

// The generator splitmix64.
uint64_t next(uint64_t& state) {
  uint64_t z = state += 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

void run_case(uint64_t seed, uint64_t number, std::vector<uint8_t>& input) {
  uint64_t state = seed * 0x2545f4914f6cdd1dU + number;
  input.resize(16 + next(state) % 240);
  for (size_t i = 0; i < input.size(); i += 8) {
    const uint64_t bytes = next(state);
    std::memcpy(&input[i], &bytes, std::min<size_t>(8, input.size() - i));
  }
  LLVMFuzzerTestOneInput(input.data(), input.size());
}

int run_files(int count, char** names) {
  for (int i = 0; i < count; ++i) {
    std::ifstream file(names[i], std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "cannot read %s\n", names[i]);
      return 1;
    }
    const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  }
  std::printf("%d files\n", count);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t cases = 10000;
  g_seed = 1;
  int at = 1;
  for (; at + 1 < argc && std::strncmp(argv[at], "--", 2) == 0; at += 2) {
    const uint64_t value = std::strtoull(argv[at + 1], nullptr, 10);
    (std::strcmp(argv[at], "--seed") == 0 ? g_seed : cases) = value;
  }
  if (at < argc) return run_files(argc - at, argv + at);
  std::atexit([] {
    if (g_case != 0)
      std::fprintf(stderr, "ended in case %llu of seed %llu\n",
                   static_cast<unsigned long long>(g_case),
                   static_cast<unsigned long long>(g_seed));
  });
  const auto start = std::chrono::steady_clock::now();
  std::vector<uint8_t> input;
  int64_t blocks = -1;
  for (g_case = 1; g_case <= cases; ++g_case) {
    run_case(g_seed, g_case, input);
    // Whatever a case made, it has freed; what it recorded holds some of it.
    if (g_case % 1024 == 0 || g_case == cases) {
      hologram::flush(hologram::device(hologram::BackendType::kCpu));
      const hologram::MemoryStats stats = hologram::memory_stats();
      const int64_t now = stats.active_blocks.current + stats.boundary_blocks.current;
      if (blocks >= 0 && now > blocks) {
        std::fprintf(
            stderr, "buffers are lost: %lld live, %lld before (by case %llu of seed %llu)\n",
            static_cast<long long>(now), static_cast<long long>(blocks),
            static_cast<unsigned long long>(g_case), static_cast<unsigned long long>(g_seed));
        return 1;
      }
      blocks = now;
    }
  }
  g_case = 0;
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  std::printf("%llu cases of seed %llu in %.1f s, none failed\n",
              static_cast<unsigned long long>(cases), static_cast<unsigned long long>(g_seed),
              spent.count());
  return 0;
}
