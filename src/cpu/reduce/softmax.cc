// SPDX-License-Identifier: MIT
// softmax and its relatives over any dimension: rows or columns in place, anything else through
// scratch.
#include "hologram/softmax.h"

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "hologram/error.h"
#include "hologram/parallel.h"
#include "src/cpu/device/call_table.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/reduce/reduce_gather.h"
#include "src/cpu/reduce/reduce_plan.h"
#include "src/cpu/reduce/softmax_kernels.h"

namespace hologram {
namespace cpu {
namespace {

// Elements a thread claims at a time.
constexpr int64_t kSoftmaxUnit = 8192;

struct SoftmaxJob {
  const SoftmaxKernel* kernel;
  Dtype compute;
  const View* views[3];  // a, b (may be null), out
  Nest kept;             // strides of a, b, out
  int64_t n;
  int64_t step[3];  // along the dimension

  char* at(int k, int64_t offset) const {
    if (views[k] == nullptr) return nullptr;
    return static_cast<char*>(views[k]->data) +
           offset * static_cast<int64_t>(itemsize(views[k]->dtype));
  }
  SoftmaxArgs args(const int64_t (&offset)[3]) const {
    return {at(0, offset[0]), at(1, offset[1]), at(2, offset[2])};
  }
  bool all(auto&& test) const {
    for (int k = 0; k < 3; ++k) {
      if (views[k] != nullptr && !test(k)) return false;
    }
    return true;
  }
};

// Rows [first, first + count) of the kept dimensions, run by run of the innermost one.
template <class F>
void for_runs(const SoftmaxJob& job, int64_t first, int64_t count, F&& f) {
  const Nest& kept = job.kept;
  const int64_t run = kept.ndim > 0 ? kept.size[kept.ndim - 1] : 1;
  int64_t step[3] = {0, 0, 0};
  for (int k = 0; k < 3; ++k) step[k] = kept.ndim > 0 ? kept.stride[k][kept.ndim - 1] : 0;
  while (count > 0) {
    const int64_t here = std::min(count, run - first % run);
    const int64_t offset[3] = {kept.offset(first, 0), kept.offset(first, 1), kept.offset(first, 2)};
    f(offset, here, step);
    first += here;
    count -= here;
  }
}

// Any layout and dtypes: rows are gathered, worked on and scattered, as many at a time as fit.
void run_scratch(const SoftmaxJob& job, const int64_t (&offset)[3], int64_t count,
                 const int64_t* step) {
  const int64_t n = job.n, size = static_cast<int64_t>(itemsize(job.compute));
  const int64_t together = std::max<int64_t>(1, kScratchElements / n);
  alignas(64) char stack[3][kScratchElements * 8];
  std::unique_ptr<char[]> heap;
  char* buffer[3] = {stack[0], stack[1], stack[2]};
  if (n > kScratchElements) {
    heap.reset(new (std::nothrow) char[static_cast<size_t>(3 * n * size)]);
    if (heap == nullptr) fail(ErrorKind::kOutOfMemory, "softmax needs ", 3 * n * size, " bytes");
    for (int k = 0; k < 3; ++k) buffer[k] = heap.get() + k * n * size;
  }
  const int64_t row[3] = {n, n, n};
  for (int64_t r = 0; r < count; r += together) {
    const int64_t here = std::min(together, count - r);
    for (int k = 0; k < 2; ++k) {
      if (job.views[k] == nullptr) continue;
      for (int64_t i = 0; i < n; i += kScratchElements) {
        gather_rows(job.at(k, offset[k] + r * step[k] + i * job.step[k]), job.views[k]->dtype, here,
                    step[k], std::min(n - i, kScratchElements), job.step[k], job.compute,
                    buffer[k] + i * size);
      }
    }
    job.kernel->rows({buffer[0], buffer[1], buffer[2]}, here, n, row);
    scatter_rows(buffer[2], job.compute, here, step[2], n, job.step[2], job.views[2]->dtype,
                 job.at(2, offset[2] + r * step[2]));
  }
}

// Columns of other dtypes or layouts: as many as fit the memory are gathered, worked on in place
// and scattered.
class GatheredColumns {
 public:
  explicit GatheredColumns(const SoftmaxJob& job)
      : job_(job),
        size_(static_cast<int64_t>(itemsize(job.compute))),
        width_(std::max(kLeast, kElements / job.n)) {}

  // Where so few columns take more memory than a nearby cache has, rows are read one by one.
  static bool fits(int64_t n) { return n <= kMostRows; }

  void run(const int64_t (&offset)[3], int64_t count, const int64_t* beside) {
    const SoftmaxJob& job = job_;
    const int operands = job.views[1] != nullptr ? 2 : 1;
    const int64_t width = std::min(width_, count), room = width * job.n * size_;
    reserve(operands * room);
    for (int64_t j = 0; j < count; j += width) {
      const int64_t here = std::min(width, count - j);
      for (int k = 0; k < operands; ++k) {
        gather_rows(job.at(k, offset[k] + j * beside[k]), job.views[k]->dtype, job.n, job.step[k],
                    here, beside[k], job.compute, memory_.get() + k * room);
      }
      char* const a = memory_.get();
      const int64_t step[3] = {here, here, here};
      job.kernel->cols({a, a + (operands - 1) * room, a}, here, job.n, step);
      scatter_rows(a, job.compute, job.n, job.step[2], here, beside[2], job.views[2]->dtype,
                   job.at(2, offset[2] + j * beside[2]));
    }
  }

 private:
  // Elements of an operand at once, which stay in the caches of one processor; columns at once.
  static constexpr int64_t kElements = 8192, kLeast = 32, kMostRows = 4096;

  void reserve(int64_t bytes) {
    if (bytes <= bytes_) return;
    memory_.reset(new (std::nothrow) char[static_cast<size_t>(bytes)]);
    if (memory_ == nullptr) fail(ErrorKind::kOutOfMemory, "softmax needs ", bytes, " bytes");
    bytes_ = bytes;
  }

  const SoftmaxJob& job_;
  int64_t size_;
  int64_t width_;
  int64_t bytes_ = 0;
  std::unique_ptr<char[]> memory_;
};

// Shorter runs of columns cost more in calls than rows that are gathered together.
constexpr int64_t kGatheredRun = 16;

void run(const SoftmaxJob& job, int max_threads) {
  const Nest& kept = job.kept;
  const int64_t rows = kept.count();
  const bool plain = job.all([&](int k) { return job.views[k]->dtype == job.compute; });
  const bool beside =
      kept.ndim > 0 && job.all([&](int k) { return kept.stride[k][kept.ndim - 1] == 1; });
  const bool along = job.n == 1 || job.all([&](int k) { return job.step[k] == 1; });
  // Rows of one element are columns if they lie beside each other.
  const bool by_cols = plain && beside && (job.n == 1 || !along);
  const bool gathered =
      !by_cols && kept.ndim > 0 && kept.size[kept.ndim - 1] >= kGatheredRun &&
      GatheredColumns::fits(job.n) &&
      (job.n == 1 || (!along && std::abs(kept.stride[0][kept.ndim - 1]) < std::abs(job.step[0])));
  const bool by_rows = plain && along && !by_cols && !gathered;
  const int64_t per_unit = std::max<int64_t>(by_cols || gathered ? 64 : 1, kSoftmaxUnit / job.n);
  parallel_for(ceil_div(rows, per_unit), max_threads, [&](int64_t begin, int64_t end, int) {
    const int64_t first = begin * per_unit;
    GatheredColumns columns(job);
    for_runs(job, first, std::min(rows, end * per_unit) - first,
             [&](const int64_t(&offset)[3], int64_t count, const int64_t* step) {
               if (by_rows) {
                 job.kernel->rows(job.args(offset), count, job.n, step);
               } else if (by_cols) {
                 job.kernel->cols(job.args(offset), count, job.n, job.step);
               } else if (gathered) {
                 columns.run(offset, count, step);
               } else {
                 run_scratch(job, offset, count, step);
               }
             });
  });
}

void check(const char* what, const View& view, const View& model) {
  if (!is_floating(view.dtype)) {
    fail(ErrorKind::kNotSupported, what, " is not implemented for ", dtype_name(view.dtype),
         "; convert it to a floating dtype");
  }
  bool same = view.ndim == model.ndim;
  for (int i = 0; same && i < view.ndim; ++i) same = view.shape[i] == model.shape[i];
  if (!same) fail(ErrorKind::kInvalidArgument, what, ": the operands' shapes differ");
}

void softmax_any(const char* what, SoftmaxOp op, const View& a, const View* b, int dim,
                 const View& out, int max_threads) {
  SoftmaxJob job{};
  job.views[0] = &a, job.views[1] = b, job.views[2] = &out;
  job.compute = Dtype::kFloat32;
  for (const View* view : job.views) {
    if (view == nullptr) continue;
    check(what, *view, a);
    if (view->dtype == Dtype::kFloat64) job.compute = Dtype::kFloat64;
  }
  if (a.ndim > kMaxNest) fail(ErrorKind::kInvalidArgument, what, ": too many dimensions");
  const int along = wrap_dim(what, dim, a.ndim);
  if (a.numel() == 0) return;
  job.n = 1;
  for (int i = 0; i < a.ndim; ++i) {
    const int64_t sb = b != nullptr ? b->strides[i] : 0;
    if (i == along) {
      job.n = a.shape[i];
      job.step[0] = a.strides[i], job.step[1] = sb, job.step[2] = out.strides[i];
    } else if (a.shape[i] != 1) {
      job.kept.push(a.shape[i], a.strides[i], sb, out.strides[i]);
    }
  }
  job.kept.sort();
  job.kept.merge();
  job.kernel = &softmax_kernel(current_isa(), op, job.compute);
  run(job, max_threads);
}

}  // namespace
}  // namespace cpu

void softmax(const View& in, int dim, const View& out, int max_threads) {
  cpu::softmax_any("softmax", cpu::SoftmaxOp::kSoftmax, in, nullptr, dim, out, max_threads);
}
void log_softmax(const View& in, int dim, const View& out, int max_threads) {
  cpu::softmax_any("log_softmax", cpu::SoftmaxOp::kLogSoftmax, in, nullptr, dim, out, max_threads);
}
void softmax_backward(const View& grad, const View& output, int dim, const View& grad_in,
                      int max_threads) {
  cpu::softmax_any("softmax_backward", cpu::SoftmaxOp::kSoftmaxBackward, grad, &output, dim,
                   grad_in, max_threads);
}
void log_softmax_backward(const View& grad, const View& output, int dim, const View& grad_in,
                          int max_threads) {
  cpu::softmax_any("log_softmax_backward", cpu::SoftmaxOp::kLogSoftmaxBackward, grad, &output, dim,
                   grad_in, max_threads);
}

void cpu::run(const calls::Softmax<>& call, CallThreads threads) {
  (call.function == 1 ? hologram::log_softmax : hologram::softmax)(
      call.input, static_cast<int>(call.dim), call.out, threads(call.input.numel()));
}

void cpu::run(const calls::SoftmaxBackward<>& call, CallThreads threads) {
  (call.function == 3 ? hologram::log_softmax_backward : hologram::softmax_backward)(
      call.grad, call.output, static_cast<int>(call.dim), call.grad_input,
      threads(call.grad.numel()));
}

}  // namespace hologram
