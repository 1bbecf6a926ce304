// SPDX-License-Identifier: MIT
// See cublaslt.h. The library's matrices are column-major: it is given the transposed product,
// d^T = b^T a^T, and calls its first operand what is b here.
#include "src/cuda/cublaslt.h"

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "hologram/error.h"

namespace hologram::cuda {
namespace {

using gpu::MatrixLayout;
using gpu::ProductProblem;

// What algorithms may ask for: as much as those for the newest GPUs want (PyTorch's bound, too).
// The same whatever memory is left, so that a problem always has the same algorithm.
constexpr uint64_t kMaxWorkspace = uint64_t{32} << 20;

// Multiplications from which on a product is worth a call of the library. Below, either takes less
// than the 2 to 3 us of a launch, and equal products of a stage can share a launch of ours. Ours
// take 0.13 us for each element of the inner dimension, one behind the other (H200).
constexpr int64_t kMinWork = int64_t{1} << 20, kMinDepth = 128;

int64_t min_work() {
  static const int64_t chosen = [] {
    const char* const wish = std::getenv("HOLOGRAM_CUBLASLT_MIN_WORK");
    return wish != nullptr && *wish != '\0' ? std::atoll(wish) : kMinWork;
  }();
  return chosen;
}

template <class... Parts>
void check_lt(lt::Status code, const char* call, const Parts&... asked) {
  if (code == lt::kSuccess) [[likely]]
    return;
  fail(ErrorKind::kInternal, "cuda: cublasLt", call, asked..., " returned ", code, " (",
       lt::api()->GetStatusName(code), ")");
}

struct Destroy {
  void operator()(lt::Operation operation) const { lt::api()->MatmulDescDestroy(operation); }
  void operator()(lt::Layout layout) const { lt::api()->MatrixLayoutDestroy(layout); }
  void operator()(lt::Preference preference) const {
    lt::api()->MatmulPreferenceDestroy(preference);
  }
};
template <class Pointer>
using Owned = std::unique_ptr<std::remove_pointer_t<Pointer>, Destroy>;

// What a problem is called in messages.
std::string text_of(const ProductProblem& p) {
  std::string text = " of " + std::to_string(p.batch) + " x [" + std::to_string(p.m) + ", " +
                     std::to_string(p.k) + "] [" + std::to_string(p.k) + ", " + std::to_string(p.n);
  text += "] of ";
  text += dtype_name(p.dtype);
  return text;
}

int type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat64:
      return lt::kFloat64;
    case Dtype::kFloat16:
      return lt::kFloat16;
    case Dtype::kBFloat16:
      return lt::kBFloat16;
    default:
      return lt::kFloat32;
  }
}

class LtAlgorithm final : public gpu::ProductAlgorithm {
 public:
  explicit LtAlgorithm(const ProductProblem& problem) : p_(problem) {
    const bool is_double = p_.compute == Dtype::kFloat64;
    lt::Operation operation = nullptr;
    check_lt(
        lt::api()->MatmulDescCreate(
            &operation, is_double ? lt::kComputeFloat64 : lt::kComputeFloat32, type_of(p_.compute)),
        "MatmulDescCreate");
    operation_.reset(operation);
    transpose(lt::kTransposeA, p_.b);
    transpose(lt::kTransposeB, p_.a);
    if (p_.bias_alignment != 0) set(lt::kEpilogue, int32_t{lt::kAddBias});
    a_ = layout(p_.a, p_.m, p_.k);
    b_ = layout(p_.b, p_.k, p_.n);
    c_ = layout(p_.c, p_.m, p_.n);
    d_ = layout(p_.d, p_.m, p_.n);
  }

  // False where the library has nothing for the problem.
  bool choose(lt::Handle handle) {
    lt::Preference made = nullptr;
    check_lt(lt::api()->MatmulPreferenceCreate(&made), "MatmulPreferenceCreate");
    const Owned<lt::Preference> preference(made);
    prefer(made, lt::kMaxWorkspaceBytes, kMaxWorkspace);
    prefer(made, lt::kReductionSchemes, lt::kReduceInComputeType);
    prefer(made, lt::kMinAlignmentA, p_.b.alignment);
    prefer(made, lt::kMinAlignmentB, p_.a.alignment);
    prefer(made, lt::kMinAlignmentC, p_.c.alignment);
    // A bias has no attribute of its own; an epilogue reads it as it writes the result.
    const uint32_t bias = p_.bias_alignment != 0 ? p_.bias_alignment : p_.d.alignment;
    prefer(made, lt::kMinAlignmentD, std::min(p_.d.alignment, bias));
    lt::Choice choice = {};
    int count = 0;
    const lt::Status code = lt::api()->MatmulAlgoGetHeuristic(
        handle, operation_.get(), b_.get(), a_.get(), c_.get(), d_.get(), made, 1, &choice, &count);
    // How it says so: strides that it does not take are invalid.
    if (code == lt::kNotSupported || code == lt::kInvalidValue) return false;
    check_lt(code, "MatmulAlgoGetHeuristic", text_of(p_));
    algorithm_ = choice.algorithm;
    workspace_bytes_ = choice.workspace_bytes;
    return count > 0 && choice.state == lt::kSuccess;
  }

  size_t workspace_bytes() const override { return workspace_bytes_; }

  void launch(lt::Handle handle, const gpu::ProductLaunch& launch) const {
    const float alpha = static_cast<float>(launch.alpha), beta = static_cast<float>(launch.beta);
    const bool is_double = p_.compute == Dtype::kFloat64;
    const void* const by_alpha = is_double ? static_cast<const void*>(&launch.alpha) : &alpha;
    const void* const by_beta = is_double ? static_cast<const void*>(&launch.beta) : &beta;
    const auto at = [](const gpu::Place& place) {
      return static_cast<char*>(place.block) + place.offset;
    };
    // The descriptor is this algorithm's own, and launches come one by one.
    if (p_.bias_alignment != 0) set(lt::kBiasPointer, static_cast<const void*>(at(launch.bias)));
    check_lt(
        lt::api()->Matmul(handle, operation_.get(), by_alpha, at(launch.b), b_.get(), at(launch.a),
                          a_.get(), by_beta, at(launch.c), c_.get(), at(launch.d), d_.get(),
                          &algorithm_, workspace_bytes_ != 0 ? at(launch.workspace) : nullptr,
                          workspace_bytes_, /*stream=*/nullptr),
        "Matmul", text_of(p_));
  }

 private:
  template <class Value>
  void set(int which, Value value) const {
    check_lt(lt::api()->MatmulDescSetAttribute(operation_.get(), which, &value, sizeof value),
             "MatmulDescSetAttribute ", which);
  }
  void transpose(int which, const MatrixLayout& matrix) const {
    set(which, int32_t{matrix.is_transposed ? lt::kTransposed : lt::kPlain});
  }

  Owned<lt::Layout> layout(const MatrixLayout& matrix, int64_t rows, int64_t cols) const {
    if (matrix.is_transposed) std::swap(rows, cols);
    lt::Layout made = nullptr;
    check_lt(lt::api()->MatrixLayoutCreate(&made, type_of(p_.dtype), static_cast<uint64_t>(cols),
                                           static_cast<uint64_t>(rows), matrix.row_step),
             "MatrixLayoutCreate");
    Owned<lt::Layout> owned(made);
    if (p_.batch == 1) return owned;
    const auto count = static_cast<int32_t>(p_.batch);
    check_lt(lt::api()->MatrixLayoutSetAttribute(made, lt::kBatchCount, &count, sizeof count),
             "MatrixLayoutSetAttribute ", lt::kBatchCount);
    const int64_t step = matrix.batch_step;
    check_lt(lt::api()->MatrixLayoutSetAttribute(made, lt::kBatchStep, &step, sizeof step),
             "MatrixLayoutSetAttribute ", lt::kBatchStep);
    return owned;
  }

  template <class Value>
  static void prefer(lt::Preference preference, int which, Value value) {
    check_lt(lt::api()->MatmulPreferenceSetAttribute(preference, which, &value, sizeof value),
             "MatmulPreferenceSetAttribute ", which);
  }

  const ProductProblem p_;
  Owned<lt::Operation> operation_;
  Owned<lt::Layout> a_, b_, c_, d_;
  lt::Algorithm algorithm_ = {};
  size_t workspace_bytes_ = 0;
};

// Whether products of the shape go to the library where it has something for them.
bool is_for_library(const ProductProblem& p) {
  const double work = static_cast<double>(p.batch) * static_cast<double>(p.m) *
                      static_cast<double>(p.n) * static_cast<double>(p.k);
  const bool is_large = work >= static_cast<double>(min_work()) || p.k >= kMinDepth;
  return p.k > 0 && p.batch <= INT_MAX && is_large;
}

}  // namespace

bool CublasLt::open() {
  if (std::exchange(is_opened_, true)) return handle_ != nullptr;
  std::string why;
  if (lt::api() == nullptr) {
    const char* const named = std::getenv("HOLOGRAM_CUBLASLT_LIBRARY");
    if (named == nullptr || *named == '\0' || std::string(named) == "none") return false;
    why = lt::why_no_api();
  } else {
    try {
      check_lt(lt::api()->Create(&handle_), "Create");
    } catch (const Error& error) {
      handle_ = nullptr;
      why = error.what();
    }
  }
  if (!why.empty()) std::fprintf(stderr, "hologram: cuBLASLt is left out: %s\n", why.c_str());
  return handle_ != nullptr;
}

std::shared_ptr<const gpu::ProductAlgorithm> CublasLt::algorithm(const ProductProblem& problem) {
  if (!is_for_library(problem)) return nullptr;
  std::lock_guard lock(mutex_);
  if (!open()) return nullptr;
  if (const auto at = known_.find(problem); at != known_.end()) return at->second;
  if (known_.size() >= kKept) {
    std::erase_if(known_, [](const auto& entry) { return entry.second.use_count() <= 1; });
  }
  auto made = std::make_shared<LtAlgorithm>(problem);
  if (!made->choose(handle_)) made = nullptr;
  return known_.emplace(problem, std::move(made)).first->second;
}

void CublasLt::launch(const gpu::ProductLaunch& launch) {
  static_cast<const LtAlgorithm*>(launch.algorithm)->launch(handle_, launch);
}

void CublasLt::close() noexcept {
  if (handle_ != nullptr) lt::api()->Destroy(std::exchange(handle_, nullptr));
}

}  // namespace hologram::cuda
