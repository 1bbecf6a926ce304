// SPDX-License-Identifier: MIT
// libcublaslt_fake.so, see fake_cuda.h: sums in float64, each rounded once to the result's type.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <mutex>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "src/cuda/cublaslt_api.h"
#include "tests/fake_cuda/fake_cuda.h"

namespace hologram::cuda::lt {

struct HandleObject {};
struct OperationObject {
  int compute = 0, scale = 0;
  int32_t transposes[2] = {kPlain, kPlain};
  int32_t epilogue = kNoEpilogue;
  const void* bias = nullptr;  // no algorithm is chosen by where it is

  bool operator==(const OperationObject& other) const {
    return compute == other.compute && scale == other.scale && epilogue == other.epilogue &&
           std::ranges::equal(transposes, other.transposes);
  }
};
struct LayoutObject {
  int type = 0;
  int64_t rows = 0, cols = 0, step = 0;
  int32_t batch = 1;
  int64_t batch_step = 0;

  bool operator==(const LayoutObject&) const = default;
  int64_t bytes() const { return type == kFloat64 ? 8 : type == kFloat32 ? 4 : 2; }
  int64_t last() const { return (batch - 1) * batch_step + (cols - 1) * step + rows - 1; }
};
struct PreferenceObject {
  uint64_t workspace = 0;
  uint32_t reductions = 7;
  uint32_t alignments[4] = {256, 256, 256, 256};
};

}  // namespace hologram::cuda::lt

namespace {

using namespace hologram::cuda::lt;

constexpr uint64_t kMagic = 0x66616b65;
// What products of a long inner dimension ask for, as those that split it do.
constexpr int64_t kLongInner = 128;
constexpr size_t kWorkspace = 1 << 16;

// What an algorithm was chosen for.
struct Chosen {
  OperationObject operation;
  LayoutObject layouts[4];
  PreferenceObject preference;
  size_t workspace = 0;
};

std::mutex g_mutex;
std::set<const void*> g_live;
std::vector<Chosen> g_chosen;

template <class... Parts>
Status complain(Status code, const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  fake_cuda_complain(code, text.str().c_str());
  return code;
}

// The status of a call of `name`, as a test wishes.
Status enter(const char* name, bool needs_context = false) {
  const int code = fake_cuda_enter(name, needs_context);
  return code < 100 ? code : kNotInitialized;
}

template <class... Objects>
bool are_live(const Objects*... objects) {
  const std::lock_guard lock(g_mutex);
  return (g_live.contains(objects) && ...);
}

template <class Object, class... Fields>
Status make(const char* name, Object** made, Fields... fields) {
  if (const Status code = enter(name); code != kSuccess) return code;
  *made = new Object{fields...};
  const std::lock_guard lock(g_mutex);
  g_live.insert(*made);
  fake_cuda_note("objects", 1);
  return kSuccess;
}

template <class Object>
Status destroy(const char* name, Object* object) {
  if (!are_live(object)) return complain(kInvalidValue, name, " of what is not live");
  const std::lock_guard lock(g_mutex);
  g_live.erase(object);
  fake_cuda_note("objects", -1);
  delete object;
  return kSuccess;
}

template <class Object, class Value>
Status set(const char* name, Object* object, Value* to, const void* from, size_t bytes) {
  if (const Status code = enter(name); code != kSuccess) return code;
  if (!are_live(object) || to == nullptr || bytes != sizeof(Value)) {
    return complain(kInvalidValue, name, " of an attribute that the fake does not know, or of ",
                    bytes, " bytes");
  }
  std::memcpy(to, from, bytes);
  return kSuccess;
}

double rounded(double value, int digits, int least) {
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent = 0;
  std::frexp(value, &exponent);
  const int unit = std::max(exponent - digits, least);
  return std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
}

double element(int type, const char* at) {
  if (type == kFloat64) return *reinterpret_cast<const double*>(at);
  if (type == kFloat32) return static_cast<double>(*reinterpret_cast<const float*>(at));
  const uint32_t bits = *reinterpret_cast<const uint16_t*>(at);
  if (type == kBFloat16) return static_cast<double>(std::bit_cast<float>(bits << 16));
  const int exponent = static_cast<int>(bits >> 10 & 31), part = static_cast<int>(bits & 1023);
  double size = std::ldexp(exponent != 0 ? part + 1024 : part, std::max(exponent, 1) - 25);
  if (exponent == 31) size = part != 0 ? std::nan("") : HUGE_VAL;
  return (bits >> 15) != 0 ? -size : size;
}

void store(int type, double value, char* at) {
  if (type == kFloat64) {
    *reinterpret_cast<double*>(at) = value;
  } else if (type == kFloat32) {
    *reinterpret_cast<float*>(at) = static_cast<float>(value);
  } else if (type == kBFloat16) {
    const auto bits = std::bit_cast<uint32_t>(static_cast<float>(rounded(value, 8, -133)));
    *reinterpret_cast<uint16_t*>(at) = static_cast<uint16_t>(bits >> 16);
  } else {
    const double near = rounded(value, 11, -24), size = std::abs(near);
    uint32_t bits = 0x7e00;
    if (size >= 65536) {
      bits = 0x7c00;
    } else if (size >= std::ldexp(1, -14)) {
      const int exponent = std::ilogb(size);
      bits = static_cast<uint32_t>(std::ldexp(size, 10 - exponent)) +
             static_cast<uint32_t>(exponent + 14) * 1024;
    } else if (!std::isnan(size)) {
      bits = static_cast<uint32_t>(std::ldexp(size, 24));
    }
    *reinterpret_cast<uint16_t*>(at) =
        static_cast<uint16_t>(bits | (std::signbit(near) ? 0x8000u : 0u));
  }
}

// Rows x cols of one matrix of a batch, the inner dimension (the rows of the second operand) last.
std::vector<double> matrix(const LayoutObject& x, int64_t batch, bool inner_is_rows,
                           const char* bytes) {
  const int64_t outer = inner_is_rows ? x.cols : x.rows, inner = inner_is_rows ? x.rows : x.cols;
  std::vector<double> values;
  values.reserve(static_cast<size_t>(outer * inner));
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) {
      const int64_t row = inner_is_rows ? i : o, col = inner_is_rows ? o : i;
      const int64_t at = batch * x.batch_step + col * x.step + row;
      values.push_back(element(x.type, bytes + at * x.bytes()));
    }
  }
  return values;
}

struct Work {
  Chosen chosen;
  double alpha = 0, beta = 0;
  size_t bias = 0;  // which of the ranges; 0: none

  void operator()(std::span<char* const> bytes) const {
    const auto& [a, b, c, d] = chosen.layouts;
    const bool a_by_inner = chosen.operation.transposes[0] == kTransposed;
    const bool b_by_inner = chosen.operation.transposes[1] == kPlain;
    const int64_t inner = a_by_inner ? a.rows : a.cols;
    for (int64_t n = 0; n < d.batch; ++n) {
      const std::vector<double> left = matrix(a, n, a_by_inner, bytes[1]),
                                right = matrix(b, n, b_by_inner, bytes[2]);
      for (int64_t col = 0; col < d.cols; ++col) {
        for (int64_t row = 0; row < d.rows; ++row) {
          const double *x = &left[static_cast<size_t>(row * inner)],
                       *y = &right[static_cast<size_t>(col * inner)];
          double sum = 0;
          for (int64_t i = 0; i < inner; ++i) sum += x[i] * y[i];
          sum *= alpha;
          if (beta != 0) {
            const int64_t at = n * c.batch_step + col * c.step + row;
            sum += beta * element(c.type, bytes[3] + at * c.bytes());
          }
          if (bias != 0) sum += element(d.type, bytes[bias] + row * d.bytes());
          store(d.type, sum, bytes[0] + (n * d.batch_step + col * d.step + row) * d.bytes());
        }
      }
    }
    if (chosen.workspace != 0) std::memset(bytes.back(), 0x5a, chosen.workspace);
  }
};

// Why a problem is none; empty where it is one.
std::string mistake(const OperationObject& operation, std::span<const LayoutObject* const> all) {
  const LayoutObject &a = *all[0], &b = *all[1], &c = *all[2], &d = *all[3];
  const bool is_double = d.type == kFloat64;
  if (operation.compute != (is_double ? kComputeFloat64 : kComputeFloat32) ||
      operation.scale != (is_double ? kFloat64 : kFloat32)) {
    return "sums in another type than the fake knows for its operands";
  }
  for (const LayoutObject* x : all) {
    if (x->type != d.type || x->batch != d.batch) return "operands of other types or batches";
    if (x->rows < 1 || x->cols < 1 || x->step < x->rows) return "a layout that is none";
  }
  if (operation.epilogue != kNoEpilogue && operation.epilogue != kAddBias) {
    return "an epilogue that the fake does not know";
  }
  const auto [turns_a, turns_b] = operation.transposes;
  const int64_t a_rows = turns_a ? a.cols : a.rows, a_cols = turns_a ? a.rows : a.cols,
                b_rows = turns_b ? b.cols : b.rows, b_cols = turns_b ? b.rows : b.cols;
  if (a_cols != b_rows || a_rows != d.rows || b_cols != d.cols || c.rows != d.rows ||
      c.cols != d.cols) {
    return "shapes that do not agree";
  }
  // Results that overlap themselves.
  if (d.batch > 1 && d.batch_step < d.rows) return "results at one place";
  return {};
}

}  // namespace

#define FAKE_API extern "C" __attribute__((visibility("default")))

FAKE_API const char* cublasLtGetStatusName(Status code) {
  switch (code) {
    case kNotInitialized:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case kAllocFailed:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case kInvalidValue:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case kExecutionFailed:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case kNotSupported:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
  }
}

FAKE_API Status cublasLtCreate(Handle* made) {
  if (const Status code = enter("cublasLtCreate", true); code != kSuccess) return code;
  return make("", made);
}
FAKE_API Status cublasLtDestroy(Handle handle) { return destroy("cublasLtDestroy", handle); }

FAKE_API Status cublasLtMatmulDescCreate(Operation* made, int compute, int scale) {
  return make("cublasLtMatmulDescCreate", made, compute, scale);
}
FAKE_API Status cublasLtMatmulDescDestroy(Operation operation) {
  return destroy("cublasLtMatmulDescDestroy", operation);
}
FAKE_API Status cublasLtMatmulDescSetAttribute(Operation operation, int which, const void* from,
                                               size_t bytes) {
  const char* const name = "cublasLtMatmulDescSetAttribute";
  if (which == kBiasPointer) return set(name, operation, &operation->bias, from, bytes);
  if (which == kEpilogue) return set(name, operation, &operation->epilogue, from, bytes);
  int32_t* const to = which == kTransposeA || which == kTransposeB
                          ? &operation->transposes[which - kTransposeA]
                          : nullptr;
  return set(name, operation, to, from, bytes);
}

FAKE_API Status cublasLtMatrixLayoutCreate(Layout* made, int type, uint64_t rows, uint64_t cols,
                                           int64_t step) {
  return make("cublasLtMatrixLayoutCreate", made, type, static_cast<int64_t>(rows),
              static_cast<int64_t>(cols), step);
}
FAKE_API Status cublasLtMatrixLayoutDestroy(Layout layout) {
  return destroy("cublasLtMatrixLayoutDestroy", layout);
}
FAKE_API Status cublasLtMatrixLayoutSetAttribute(Layout layout, int which, const void* from,
                                                 size_t bytes) {
  const char* const name = "cublasLtMatrixLayoutSetAttribute";
  if (which == kBatchCount) return set(name, layout, &layout->batch, from, bytes);
  return set(name, layout, which == kBatchStep ? &layout->batch_step : nullptr, from, bytes);
}

FAKE_API Status cublasLtMatmulPreferenceCreate(Preference* made) {
  return make("cublasLtMatmulPreferenceCreate", made);
}
FAKE_API Status cublasLtMatmulPreferenceDestroy(Preference preference) {
  return destroy("cublasLtMatmulPreferenceDestroy", preference);
}
FAKE_API Status cublasLtMatmulPreferenceSetAttribute(Preference preference, int which,
                                                     const void* from, size_t bytes) {
  const char* const name = "cublasLtMatmulPreferenceSetAttribute";
  if (which == kMaxWorkspaceBytes)
    return set(name, preference, &preference->workspace, from, bytes);
  if (which == kReductionSchemes)
    return set(name, preference, &preference->reductions, from, bytes);
  uint32_t* const to = which >= kMinAlignmentA && which <= kMinAlignmentD
                           ? &preference->alignments[which - kMinAlignmentA]
                           : nullptr;
  return set(name, preference, to, from, bytes);
}

FAKE_API Status cublasLtMatmulAlgoGetHeuristic(Handle handle, Operation operation, Layout a,
                                               Layout b, Layout c, Layout d, Preference preference,
                                               int asked, Choice* found, int* count) {
  *count = 0;
  const Status code = enter("cublasLtMatmulAlgoGetHeuristic", true);
  fake_cuda_note("asked", 1);
  if (code != kSuccess) return code;
  if (!are_live(handle, operation, a, b, c, d, preference) || asked < 1) {
    return complain(kInvalidValue, "an algorithm for what is not live");
  }
  const LayoutObject* const all[] = {a, b, c, d};
  if (const std::string what = mistake(*operation, all); !what.empty()) {
    return complain(kInvalidValue, "an algorithm for ", what);
  }
  // Sums that are split have to be added up in the type of the sums.
  if (preference->reductions != kReduceInComputeType) {
    return complain(kInvalidValue, "an algorithm that may round parts of sums");
  }
  const int64_t inner = operation->transposes[0] == kPlain ? a->cols : a->rows;
  const size_t workspace =
      inner >= kLongInner && preference->workspace >= kWorkspace ? kWorkspace : 0;
  const std::lock_guard lock(g_mutex);
  *found = {{{kMagic, g_chosen.size()}}, workspace, kSuccess, 1.0f, {}};
  g_chosen.push_back({*operation, {*a, *b, *c, *d}, *preference, workspace});
  *count = 1;
  return kSuccess;
}

FAKE_API Status cublasLtMatmul(Handle handle, Operation operation, const void* alpha, const void* a,
                               Layout a_layout, const void* b, Layout b_layout, const void* beta,
                               const void* c, Layout c_layout, void* d, Layout d_layout,
                               const Algorithm* algorithm, void* workspace, size_t workspace_bytes,
                               hologram::cuda::Stream stream) {
  if (const Status code = enter("cublasLtMatmul", true); code != kSuccess) return code;
  if (!are_live(handle, operation, a_layout, b_layout, c_layout, d_layout)) {
    return complain(kInvalidValue, "a product of what is not live");
  }
  Work work;
  {
    const std::lock_guard lock(g_mutex);
    if (algorithm == nullptr || algorithm->data[0] != kMagic ||
        algorithm->data[1] >= g_chosen.size()) {
      return complain(kInvalidValue, "a product without an algorithm");
    }
    work.chosen = g_chosen[algorithm->data[1]];
  }
  const Layout layouts[] = {a_layout, b_layout, c_layout, d_layout};
  const void* const at[] = {a, b, c, d};
  bool is_chosen = work.chosen.operation == *operation && stream == nullptr;
  for (size_t k = 0; k < 4; ++k) {
    is_chosen = is_chosen && work.chosen.layouts[k] == *layouts[k];
    const auto address = reinterpret_cast<uint64_t>(at[k]);
    if (address % work.chosen.preference.alignments[k] != 0) {
      return complain(kInvalidValue, "operand ", k, " of a product at ", at[k], ", not aligned to ",
                      work.chosen.preference.alignments[k]);
    }
  }
  if (!is_chosen) return complain(kInvalidValue, "an algorithm for another product");
  if (c == d && *c_layout != *d_layout) return complain(kInvalidValue, "two layouts of one result");
  if (workspace_bytes < work.chosen.workspace || reinterpret_cast<uint64_t>(workspace) % 16 != 0) {
    return complain(kInvalidValue, "a product with ", workspace_bytes, " bytes of workspace at ",
                    workspace, "; it needs ", work.chosen.workspace);
  }
  if (alpha == nullptr || beta == nullptr) return complain(kInvalidValue, "no alpha or no beta");
  work.alpha = element(operation->scale, static_cast<const char*>(alpha));
  work.beta = element(operation->scale, static_cast<const char*>(beta));
  std::vector<FakeRange> ranges;
  const auto add = [&](const void* from, int64_t bytes, bool is_written) {
    ranges.push_back({reinterpret_cast<uint64_t>(from), static_cast<size_t>(bytes), is_written});
  };
  const auto add_matrix = [&](const void* from, const LayoutObject& x, bool is_written) {
    add(from, (x.last() + 1) * x.bytes(), is_written);
  };
  add_matrix(d, *d_layout, true);
  add_matrix(a, *a_layout, false);
  add_matrix(b, *b_layout, false);
  if (work.beta != 0) add_matrix(c, *c_layout, false);
  if (operation->epilogue == kAddBias) {
    const auto address = reinterpret_cast<uint64_t>(operation->bias);
    if (address == 0 || address % work.chosen.preference.alignments[3] != 0) {
      return complain(kInvalidValue, "a bias at ", operation->bias, ", not aligned to ",
                      work.chosen.preference.alignments[3]);
    }
    work.bias = ranges.size();
    add(operation->bias, d_layout->rows * d_layout->bytes(), false);
    fake_cuda_note("biases", 1);
  }
  if (work.chosen.workspace != 0) {
    add(workspace, static_cast<int64_t>(work.chosen.workspace), true);
    for (size_t k = 0; k + 1 < ranges.size(); ++k) {
      if (ranges[k].address < ranges.back().address + ranges.back().bytes &&
          ranges.back().address < ranges[k].address + ranges[k].bytes) {
        return complain(kInvalidValue, "a workspace over an operand");
      }
    }
  }
  fake_cuda_note("products", 1);
  return fake_cuda_enqueue(ranges, work) == 0 ? kSuccess : kExecutionFailed;
}
