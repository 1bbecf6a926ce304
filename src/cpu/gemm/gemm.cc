// SPDX-License-Identifier: MIT
// The list of GEMM providers, and the checks before one is called.
#include "hologram/gemm.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "hologram/error.h"
#include "hologram/parallel.h"
#include "src/base/dtype_check.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/gemm/gemm_builtin.h"
#include "src/cpu/gemm/gemm_provider.h"

namespace hologram {
namespace cpu {
namespace {

struct Providers {
  std::vector<const GemmProvider*> known;    // by their numbers, for the life of the process
  std::vector<const GemmProvider*> current;  // highest priority first
};

// Readers take no lock: the lists are never changed, only replaced, and the old ones are kept.
std::atomic<const Providers*>& lists() {
  static std::atomic<const Providers*> lists{
      new Providers{.known = {&builtin_gemm()}, .current = {&builtin_gemm()}}};
  return lists;
}
const Providers& now() { return *lists().load(std::memory_order_acquire); }

template <class Change>
void replace_lists(Change&& change) {
  static std::mutex mutex;
  static auto* replaced = new std::vector<const Providers*>;
  const std::lock_guard<std::mutex> lock(mutex);
  auto* next = new Providers(now());
  change(*next);
  std::stable_sort(
      next->current.begin(), next->current.end(),
      [](const GemmProvider* a, const GemmProvider* b) { return a->priority > b->priority; });
  replaced->push_back(lists().exchange(next, std::memory_order_acq_rel));
}

void remove(Providers& providers, const char* name) {
  std::erase_if(providers.current,
                [&](const GemmProvider* p) { return std::strcmp(p->name, name) == 0; });
}

// BETA zero writes zeros whatever C holds.
template <class T>
void scale_rows(const GemmArgs& g) {
  for (int64_t i = 0; i < g.m; ++i) {
    T* row = static_cast<T*>(g.c) + i * g.ldc;
    for (int64_t j = 0; j < g.n; ++j) {
      row[j] = g.beta == 0 ? T(0) : static_cast<T>(row[j] * static_cast<T>(g.beta));
    }
  }
}

// C = beta C.
void scale(const GemmArgs& g) {
  switch (g.dtype) {
    case Dtype::kFloat32:
      return scale_rows<float>(g);
    case Dtype::kFloat64:
      return scale_rows<double>(g);
    case Dtype::kInt8:
      return scale_rows<int8_t>(g);
    case Dtype::kUInt8:
      return scale_rows<uint8_t>(g);
    case Dtype::kInt16:
      return scale_rows<int16_t>(g);
    case Dtype::kInt32:
      return scale_rows<int32_t>(g);
    case Dtype::kInt64:
      return scale_rows<int64_t>(g);
    default: {
      // A product with zeros: the half types' arithmetic lives in the GEMM.
      const uint16_t zero[1] = {0};
      GemmArgs one = g;
      one.trans_a = one.trans_b = false;
      one.a = one.b = zero;
      one.m = one.n = one.k = one.lda = one.ldb = 1;
      for (int64_t i = 0; i < g.m; ++i) {
        for (int64_t j = 0; j < g.n; ++j) {
          one.c = static_cast<uint16_t*>(g.c) + i * g.ldc + j;
          builtin_gemm().gemm(one);
        }
      }
    }
  }
}

void check_matrix(const char* name, const void* data, int64_t ld, int64_t rows, int64_t cols) {
  if (ld < std::max<int64_t>(1, cols)) {
    fail(ErrorKind::kInvalidArgument, "gemm: rows of ", name, " have ", cols,
         " elements but lie only ld", name, " = ", ld, " apart");
  }
  if (data == nullptr && rows > 0 && cols > 0) {
    fail(ErrorKind::kInvalidArgument, "gemm: ", name, " is null but has ", rows, " x ", cols,
         " elements");
  }
}

}  // namespace

const GemmProvider& provider_for(Dtype dtype) {
  check_has_kernels("gemm", dtype);
  for (const GemmProvider* provider : now().current) {
    if (provider->supports(dtype)) return *provider;
  }
  fail(ErrorKind::kNotSupported, "no GEMM provider takes ", dtype_name(dtype),
       "; convert the matrices to a floating or integer dtype");
}

int64_t number_of(const GemmProvider& provider) {
  const auto& known = now().known;
  return std::find(known.begin(), known.end(), &provider) - known.begin();
}

const GemmProvider& provider_of_number(int64_t number) {
  return *now().known[static_cast<size_t>(number)];
}

bool prepare(const GemmArgs& g) {
  if (g.m < 0 || g.n < 0 || g.k < 0) {
    fail(ErrorKind::kInvalidArgument, "gemm: m, n and k must not be negative, got ", g.m, ", ", g.n,
         ", ", g.k);
  }
  provider_for(g.dtype);
  check_matrix("a", g.a, g.lda, g.trans_a ? g.k : g.m, g.trans_a ? g.m : g.k);
  check_matrix("b", g.b, g.ldb, g.trans_b ? g.n : g.k, g.trans_b ? g.k : g.n);
  check_matrix("c", g.c, g.ldc, g.m, g.n);
  if (g.m == 0 || g.n == 0) return false;
  if (g.k == 0) {
    scale(g);
    return false;
  }
  return true;
}

}  // namespace cpu

void register_gemm_provider(const GemmProvider& provider) {
  if (provider.name == nullptr || provider.supports == nullptr || provider.gemm == nullptr) {
    fail(ErrorKind::kInvalidArgument, "a GEMM provider needs a name, supports and gemm");
  }
  cpu::replace_lists([&](cpu::Providers& providers) {
    cpu::remove(providers, provider.name);
    providers.known.push_back(new GemmProvider(provider));
    providers.current.push_back(providers.known.back());
  });
}

void unregister_gemm_provider(const char* name) {
  if (std::strcmp(name, "hologram") == 0) {
    fail(ErrorKind::kInvalidArgument, "the built-in GEMM provider cannot be removed");
  }
  cpu::replace_lists([&](cpu::Providers& providers) { cpu::remove(providers, name); });
}

std::vector<GemmProvider> gemm_providers() {
  std::vector<GemmProvider> providers;
  for (const GemmProvider* provider : cpu::now().current) providers.push_back(*provider);
  return providers;
}

const char* gemm_provider_name(Dtype dtype) { return cpu::provider_of_large(dtype).name; }

void gemm(const GemmArgs& args) {
  if (cpu::prepare(args)) cpu::run_products(cpu::provider_for(args), args);
}

}  // namespace hologram
