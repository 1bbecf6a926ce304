// SPDX-License-Identifier: MIT
// Lends PyTorch's OpenMP threads to the library, and says how many of them PyTorch's kernels get.
#pragma once

#include <ATen/Parallel.h>

#include <chrono>
#include <cstdint>
#include <optional>

#include "hologram/parallel.h"

// From the OpenMP and MKL that libtorch brings; weak, for a build of it may lack either.
extern "C" {
__attribute__((weak)) int omp_get_max_threads();
__attribute__((weak)) void omp_set_num_threads(int threads);
__attribute__((weak)) void GOMP_parallel(void (*member)(void*), void* context, unsigned threads,
                                         unsigned flags);
__attribute__((weak)) int omp_get_num_places();
__attribute__((weak)) int omp_get_place_num_procs(int place);
__attribute__((weak)) void omp_get_place_proc_ids(int place, int* numbers);
__attribute__((weak)) int MKL_Set_Num_Threads_Local(int threads);
}

namespace hologram_torch {

// How many threads the device's own kernels use: torch.get_num_threads(), which knows no quota of
// containers, so that no more than usable_processors() are used where nobody set a number.
int thread_count();

// Makes torch.set_num_threads hold in libhologram, and lends it the OpenMP threads that PyTorch
// keeps. Those spin for milliseconds after each of PyTorch's regions; a second pool would have to
// wait for them to give up the processor.
void lend_openmp_threads();

// Keeps kernels of PyTorch's on the calling thread, where can_be_alone().
class OneThread {
 public:
  OneThread() {
    if (!can_be_alone()) return;
    threads_ = omp_get_max_threads();
    if (threads_ <= 1) return;
    omp_set_num_threads(1);
    if (MKL_Set_Num_Threads_Local != nullptr) mkl_threads_ = MKL_Set_Num_Threads_Local(1);
  }
  ~OneThread() {
    if (threads_ <= 1) return;
    omp_set_num_threads(threads_);
    if (MKL_Set_Num_Threads_Local != nullptr) MKL_Set_Num_Threads_Local(mkl_threads_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

  static bool can_be_alone() {
    return omp_set_num_threads != nullptr && omp_get_max_threads != nullptr;
  }

 private:
  int threads_ = 0;
  int mkl_threads_ = 0;
};

// Around a kernel of PyTorch's. Many sum thread by thread, so that the number of threads decides
// bits: it depends on how much there is to do and never on how busy the machine is.
class OpenMpRegion {
 public:
  // work: multiplications, or what takes as long. Little of it stays on the calling thread, for a
  // region ends in a barrier: with a core taken by another process it waits a scheduler's time
  // slice for the thread that was there. Not given: PyTorch's kernel decides.
  explicit OpenMpRegion(int64_t work = INT64_MAX) {
    if (work > kWorthThreads) {
      begin_ = now();
      return;
    }
    // PyTorch starts no threads for so little work.
    if (work > kNever) alone_.emplace();
  }
  ~OpenMpRegion() {
    // What took longer than this was worth a region to PyTorch.
    if (begin_ != 0 && now() - begin_ > kWorthRegion) note_long_region();
  }
  OpenMpRegion(const OpenMpRegion&) = delete;
  OpenMpRegion& operator=(const OpenMpRegion&) = delete;

  // Matrix times vector and dot products wait for memory: an element takes as long as this many
  // multiplications of a matrix product.
  static constexpr int64_t kPerLoad = 8;

 private:
  static void note_long_region();
  static int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

  static constexpr int64_t kNever = 4096;
  // Some ten microseconds.
  static constexpr int64_t kWorthThreads = int64_t{1} << 19;
  static constexpr int64_t kWorthRegion = 50'000;
  int64_t begin_ = 0;
  std::optional<OneThread> alone_;
};

}  // namespace hologram_torch
