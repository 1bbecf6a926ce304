// SPDX-License-Identifier: MIT
// Keeps PyTorch's OpenMP kernels to one thread while the machine is busy with others' work.
#pragma once

#include <ATen/Parallel.h>

#include <chrono>
#include <cstdint>

#include "hologram/parallel.h"

// From the OpenMP and MKL that libtorch brings; weak, for a build of it may lack either.
extern "C" {
__attribute__((weak)) int omp_get_max_threads();
__attribute__((weak)) void omp_set_num_threads(int threads);
__attribute__((weak)) void GOMP_parallel(void (*member)(void*), void* context, unsigned threads,
                                         unsigned flags);
__attribute__((weak)) int MKL_Set_Num_Threads_Local(int threads);
}

namespace hologram_torch {

// Makes torch.set_num_threads hold in libhologram, and lends it the OpenMP threads that PyTorch
// keeps. Those spin for milliseconds after each of PyTorch's regions; a second pool would have to
// wait for them to give up the processor.
inline void lend_openmp_threads() {
  hologram::set_thread_count_source(&at::get_num_threads);
  if (GOMP_parallel == nullptr) return;
  hologram::set_thread_team([](int threads, void (*member)(void*), void* context) {
    GOMP_parallel(member, context, static_cast<unsigned>(threads), 0);
  });
}

// An OpenMP region ends in a barrier: with a core taken by another process every small op waits a
// scheduler's time slice for the thread that was there. libhologram measures how soon its workers
// answer; while they are late, a CPU kernel run by us stays on the calling thread.
class LoadGuard {
 public:
  // work: multiplications or the like; below some thousands PyTorch starts no threads anyway.
  // keeps_threads: of a kernel whose bits depend on how many there are, which must not depend on
  // how busy the machine is.
  explicit LoadGuard(int64_t work = INT64_MAX, bool keeps_threads = false) {
    if (work <= kWorthThreads) return;
    if (keeps_threads || hologram::workers_answer_quickly()) {
      begin_ = now();
      return;
    }
    if (omp_set_num_threads == nullptr || omp_get_max_threads == nullptr) return;
    threads_ = omp_get_max_threads();
    if (threads_ <= 1) return;
    omp_set_num_threads(1);
    if (MKL_Set_Num_Threads_Local != nullptr) mkl_threads_ = MKL_Set_Num_Threads_Local(1);
  }
  ~LoadGuard() {
    // What took longer than this was worth a region to PyTorch.
    if (begin_ != 0 && now() - begin_ > kWorthRegion) hologram::note_team_in_use();
    if (threads_ <= 1) return;
    omp_set_num_threads(threads_);
    if (MKL_Set_Num_Threads_Local != nullptr) MKL_Set_Num_Threads_Local(mkl_threads_);
  }
  LoadGuard(const LoadGuard&) = delete;
  LoadGuard& operator=(const LoadGuard&) = delete;

 private:
  static int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

  static constexpr int64_t kWorthThreads = 4096;
  static constexpr int64_t kWorthRegion = 50'000;
  int64_t begin_ = 0;
  int threads_ = 0;
  int mkl_threads_ = 0;
};

}  // namespace hologram_torch
