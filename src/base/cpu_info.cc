// SPDX-License-Identifier: MIT
// Detects instruction sets and keeps the choice.
#include "hologram/cpu_info.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <atomic>
#include <cstdlib>
#include <string>

#include "hologram/error.h"

namespace hologram {
namespace {

constexpr std::string_view kNames[kIsaCount] = {"baseline", "avx2", "avx512"};

#if defined(__x86_64__)
// Clang knows no name for this feature.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

std::string available_names() {
  std::string names;
  for (int i = 0; i < kIsaCount; ++i) {
    if (!isa_available(static_cast<Isa>(i))) continue;
    if (!names.empty()) names += ", ";
    names += kNames[i];
  }
  return names;
}

Isa choose() {
  const char* forced = std::getenv("HOLOGRAM_FORCE_ISA");
  if (forced != nullptr && *forced != '\0') {
    for (int i = 0; i < kIsaCount; ++i) {
      if (kNames[i] == forced && isa_available(static_cast<Isa>(i))) return static_cast<Isa>(i);
    }
    fail(ErrorKind::kInvalidArgument, "HOLOGRAM_FORCE_ISA=", forced,
         " cannot be used here; choose one of: ", available_names());
  }
  for (int i = kIsaCount - 1; i > 0; --i) {
    if (isa_available(static_cast<Isa>(i))) return static_cast<Isa>(i);
  }
  return Isa::kBaseline;
}

std::atomic<int> g_isa{-1};

}  // namespace

std::string_view isa_name(Isa isa) { return kNames[static_cast<int>(isa)]; }

bool isa_available(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kBaseline:
      return true;
    case Isa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("bmi2") && has_f16c();
    case Isa::kAvx512:
      return isa_available(Isa::kAvx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  }
  return false;
#else
  return isa == Isa::kBaseline;
#endif
}

Isa current_isa() {
  int isa = g_isa.load(std::memory_order_relaxed);
  if (isa < 0) {
    isa = static_cast<int>(choose());
    g_isa.store(isa, std::memory_order_relaxed);
  }
  return static_cast<Isa>(isa);
}

void force_isa(Isa isa) {
  if (!isa_available(isa)) {
    fail(ErrorKind::kInvalidArgument, "instruction set ", isa_name(isa),
         " cannot be used here; choose one of: ", available_names());
  }
  g_isa.store(static_cast<int>(isa), std::memory_order_relaxed);
}

}  // namespace hologram
