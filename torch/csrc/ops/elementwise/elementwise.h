// SPDX-License-Identifier: MIT
// The way from an ATen call to a row of the op table: a few inlined checks for the usual shapes,
// one general path for the others, the fallback for what neither takes.
#pragma once

#include <type_traits>

#include "hologram/elementwise.h"
#include "hologram/op_columns.h"
#include "hologram/parallel.h"
#include "recording/autograd_bypass.h"
#include "recording/native_common.h"
#include "recording/record.h"

namespace hologram_torch {

// --- Operands --------------------------------------------------------------------------------

// A number that takes part in type promotion, as the other operand of an addition does.
struct Num {
  const c10::Scalar& value;
};

// A number that does not (slope, bound, weight): it becomes whatever is computed in.
struct Param {
  const c10::Scalar& value;
};

// The condition of where and masked_fill: a tensor that does not promote.
struct Mask {
  const at::Tensor& tensor;
};

// Any of these at run time.
struct Operand {
  const at::Tensor* tensor = nullptr;
  const c10::Scalar* number = nullptr;
  bool promotes = true;

  explicit Operand(const at::Tensor& t) : tensor(&t) {}
  explicit Operand(const Mask& m) : tensor(&m.tensor), promotes(false) {}
  explicit Operand(const Num& n) : number(&n.value) {}
  explicit Operand(const Param& p) : number(&p.value), promotes(false) {}
};

// The kernels of one _foreach_ call, kept back so that they can run together.
class Batch {
 public:
  struct Item {
    hologram::OpId op;
    hologram::Dtype dtype;               // of the tensors
    hologram::ElementwiseKernel kernel;  // null for the half types
    const void* in[4];
    void* out;
    char slots[4][8];  // the operands in `numbers`
    unsigned numbers;
    int arity;
    bool bool_result;
    int64_t n;
  };

  void add(const Item& item) { items_.push_back(item); }
  // Runs what was added, on several threads where no item needs another's result.
  void run();

 private:
  bool independent() const;
  std::vector<Item> items_;
};

// Where a result goes: into a tensor that was given (in-place and out=), or into a new one.
struct Target {
  const at::Tensor* given = nullptr;
  at::Tensor fresh = {};
  Batch* batch = nullptr;

  // What was kept back runs before code that computes outside run_fast.
  void settle() const {
    if (batch != nullptr) batch->run();
  }
};

// What an ATen op asks of its row besides the arithmetic: traits of the row, and one of the op.
enum Traits : int {
  kPlainTraits = hologram::kPlainTraits,
  kBoolRow = hologram::kTruth,
  kIntToFloat = hologram::kIntToFloat,
  kSameDtype = hologram::kSameDtype,
  kRoundNumbers = hologram::kRoundsNumbers,
  kSecondLeads = hologram::kSecondLeads,
  kContiguousResult = 1 << 16,  // the op defines its result to be contiguous
};

struct Rule {
  hologram::OpId op;
  int traits;
};

// What the compiler knows of a row.
struct RowFacts {
  int arity;
  int params;
  hologram::DtypeSet dtypes;
  int traits;
};
constexpr RowFacts row_facts(hologram::OpId op) {
  using namespace hologram::op_columns;  // NOLINT: the words of the table
  switch (op) {
#define HOLOGRAM_OP(name, id, arity, params, dtypes, others, accuracy, traits, ...) \
  case hologram::OpId::name:                                                        \
    return {arity, params, dtypes, traits};
#include "hologram/elementwise.def"
  }
  return {};
}

// --- The general path ------------------------------------------------------------------------

// Computes into `target`: promotion, broadcasting, PyTorch's choice of strides, overlap. False,
// with nothing changed, for whatever the fallback has to do or refuse.
bool run_general(Rule rule, const Operand* operands, int arity, Target& target);

// What the inlined checks of run_fast have settled: n elements of operands of one layout.
struct FastJob {
  hologram::OpId op;
  hologram::Dtype dtype;  // of the tensors
  const Source* in;
  int arity;
  bool bool_result;
  c10::TensorImpl* out;
  bool fresh;  // `out` was made for this result
  int64_t n;
};

// Records the job, keeps it back in the batch, or runs it. False where `out` overlaps an operand,
// and where the tensors are on several devices.
bool finish_fast(const FastJob& job, Batch* batch);

// float16 and bfloat16: `in` are elements of dtype, or, where bit k of `numbers` is set, float32.
void run_half(hologram::OpId op, hologram::Dtype dtype, const void* const* in, unsigned numbers,
              int arity, void* out, bool bool_result, int64_t n);

// --- The usual cases -------------------------------------------------------------------------

constexpr bool is_half(hologram::Dtype d) {
  return d == hologram::Dtype::kFloat16 || d == hologram::Dtype::kBFloat16;
}

// Whether PyTorch would find that the number overflows the half type.
inline bool fits_half(hologram::Dtype half, float value) {
  const float limit = half == hologram::Dtype::kFloat16 ? 65504.0f : 3.3895313892515355e38f;
  return !(std::fabs(value) > limit) || std::isinf(value);
}

// Whether a dimension has one element.
inline bool has_single(const c10::TensorImpl* t) {
  const c10::IntArrayRef sizes = t->sizes();
  return std::find(sizes.begin(), sizes.end(), 1) != sizes.end();
}

// A wrapped Python number on the CPU as an element of `compute`; false where it would promote.
inline bool store_wrapped(const c10::TensorImpl* t, hologram::Dtype compute, void* slot) {
  using hologram::Dtype;
  if (!t->is_wrapped_number()) return false;
  const c10::ScalarType type = t->dtype().toScalarType();
  const void* data = t->unsafe_storage().unsafeGetStorageImpl()->data();
  if (type == c10::ScalarType::Double) {
    const double value = *static_cast<const double*>(data);
    if (compute == Dtype::kFloat32) {
      *static_cast<float*>(slot) = static_cast<float>(value);
      return true;
    }
    if (compute == Dtype::kFloat64) {
      *static_cast<double*>(slot) = value;
      return true;
    }
    return false;
  }
  if (type == c10::ScalarType::Long) {
    if (compute == Dtype::kBool) return false;
    return store_number(c10::Scalar(*static_cast<const int64_t*>(data)), compute, slot);
  }
  return false;
}

template <class T>
inline constexpr bool is_number = std::is_same_v<T, Num> || std::is_same_v<T, Param>;

// One operand of an inlined call; false ends the attempt.
struct FastCall {
  const c10::TensorImpl* lead;
  hologram::Dtype dtype;    // of the tensors
  hologram::Dtype compute;  // float32 for the half types
  bool rounds;

  bool add(const at::Tensor& t, Source& in) const {
    const c10::TensorImpl* impl = t.unsafeGetTensorImpl();
    if (impl != lead) {
      if (C10_UNLIKELY(!is_dense(impl) || impl->dtype() != lead->dtype() ||
                       !same_layout(lead, impl))) {
        return false;
      }
    }
    in.tensor = impl;
    return true;
  }
  // The last operand of two may also be a number from Python.
  bool add_last(const at::Tensor& t, Source& in) const {
    const c10::TensorImpl* impl = t.unsafeGetTensorImpl();
    if (!is_cpu_number(impl)) return add(t, in);
    if (rounds && compute != dtype) return false;
    return store_wrapped(impl, compute, in.number);
  }
  bool add(const Mask&, Source&) const { return false; }
  bool add(const Num& n, Source& in) const {
    if (dtype == hologram::Dtype::kBool) return false;
    return add(Param{n.value}, in);
  }
  bool add(const Param& p, Source& in) const {
    if (!store_number(p.value, compute, in.number)) return false;
    if (C10_UNLIKELY(compute != dtype)) {
      if (rounds || !fits_half(dtype, *reinterpret_cast<float*>(in.number))) return false;
    }
    return true;
  }
};

// Whether a kernel of the row has a form for numbers at these places, see hologram::Form.
template <size_t kArity>
consteval bool has_kernel(const RowFacts& row, const bool (&number)[kArity]) {
  int numbers = 0;
  while (numbers < static_cast<int>(kArity) && number[kArity - 1 - numbers]) ++numbers;
  bool others = false;
  for (size_t k = 0; k + numbers < kArity; ++k) others = others || number[k];
  if (kArity == 2 && row.params == 0) return numbers < 2;
  return !others && (numbers == 0 || numbers == row.params);
}

// Tensors of one dtype and layout, numbers behind them (or one before). Allocates the result only.
template <hologram::OpId kOp, int kTraits, class... Operands>
inline bool run_fast(Target& target, const Operands&... operands) {
  using hologram::Dtype;
  constexpr int kArity = sizeof...(Operands);
  constexpr bool kNumber[] = {is_number<Operands>...};
  constexpr RowFacts kRow = row_facts(kOp);
  if constexpr (!has_kernel(kRow, kNumber)) return false;
  constexpr bool kBool = (kTraits & kBoolRow) != 0;
  constexpr int kLead = kNumber[0] ? 1 : 0;
  const c10::TensorImpl* lead = nullptr;
  {
    int k = 0;
    const auto pick = [&](const auto& operand) {
      if constexpr (std::is_same_v<std::decay_t<decltype(operand)>, at::Tensor>) {
        if (k == kLead) lead = operand.unsafeGetTensorImpl();
      }
      ++k;
    };
    (pick(operands), ...);
  }
  if (C10_UNLIKELY(lead == nullptr || !is_dense(lead))) return false;
  const int code = dtype_code(lead->dtype().toScalarType());
  if (C10_UNLIKELY(code < 0)) return false;
  const Dtype dtype = static_cast<Dtype>(code);
  const FastCall call{lead, dtype, hologram::compute_dtype(dtype), (kTraits & kRoundNumbers) != 0};
  if (C10_UNLIKELY(!hologram::supports(kRow.dtypes, call.compute))) return false;

  Source in[kArity];
  {
    int k = 0;
    const auto add = [&](const auto& operand) {
      bool taken;
      if constexpr (kArity == 2 && std::is_same_v<std::decay_t<decltype(operand)>, at::Tensor>) {
        taken = k == 1 ? call.add_last(operand, in[k]) : call.add(operand, in[k]);
      } else {
        taken = call.add(operand, in[k]);
      }
      ++k;
      return taken;
    };
    if (!(add(operands) && ...)) return false;
  }

  FastJob job{kOp, dtype, in, kArity, kBool, nullptr, false, lead->numel()};
  const c10::DeviceIndex index = lead->device().index();
  if (target.given == nullptr) {
    const c10::ScalarType type = kBool ? c10::ScalarType::Bool : lead->dtype().toScalarType();
    // Beside a number, which is broadcast, PyTorch keeps the order of the dimensions, also of those
    // with one element, whose strides are otherwise made anew.
    constexpr bool kNum = kArity == 2 && (std::is_same_v<Operands, Num> || ...);
    constexpr bool kTwoTensors = kArity == 2 && (std::is_same_v<Operands, at::Tensor> && ...);
    const bool beside_number = kNum || (kTwoTensors && in[kArity - 1].tensor == nullptr);
    if (C10_LIKELY(lead->is_contiguous())) {
      if (beside_number && C10_UNLIKELY(!has_usual_strides(lead))) return false;
      target.fresh = make_tensor(lead->sizes(), type, index);
    } else if ((kTraits & kContiguousResult) == 0 && lead->is_non_overlapping_and_dense()) {
      const bool free = has_single(lead);
      if (C10_LIKELY(!free)) {
        target.fresh = make_strided(lead->sizes(), lead->strides(), type, index);
      } else if (!beside_number && lead->is_contiguous(c10::MemoryFormat::ChannelsLast)) {
        target.fresh = make_formatted(lead->sizes(), type, c10::MemoryFormat::ChannelsLast, index);
      } else {
        return false;
      }
    } else {
      return false;
    }
    job.out = target.fresh.unsafeGetTensorImpl();
    job.fresh = true;
  } else {
    c10::TensorImpl* given = target.given->unsafeGetTensorImpl();
    if (given != lead) {
      if (!is_dense(given) || !same_layout(given, lead)) return false;
    } else if (!lead->is_non_overlapping_and_dense()) {
      return false;
    }
    if (given->dtype().toScalarType() !=
        (kBool ? c10::ScalarType::Bool : lead->dtype().toScalarType())) {
      return false;
    }
    job.out = given;
  }
  return finish_fast(job, target.batch);
}

// A row applied to operands: tensors, Num, Param, Mask.
template <hologram::OpId kOp, int kExtraTraits = kPlainTraits, class... Operands>
inline bool run_row(Target& target, const Operands&... operands) {
  constexpr int kTraits = row_facts(kOp).traits | kExtraTraits;
  if (C10_LIKELY((run_fast<kOp, kTraits>(target, operands...)))) return true;
  const Operand list[] = {Operand(operands)...};
  return run_general({kOp, kTraits}, list, sizeof...(operands), target);
}

// --- Kernels of ATen ops ---------------------------------------------------------------------

// Gives a function `bool rule(Target&, args...)`, which takes the arguments of an ATen op and may
// decline, the three faces of the op.
template <Name kName, auto* kRule>
struct Face;

template <Name kName, class Self, class... Args, bool (*kRule)(Target&, Self, Args...)>
struct Face<kName, kRule> {
  static at::Tensor functional(Self self, Args... args) {
    Target target;
    if (C10_LIKELY(kRule(target, self, args...))) return std::move(target.fresh);
    return std::move(call_fallback<kName>(self, args...).back()).toTensor();
  }
  static at::Tensor& in_place(at::Tensor& self, Args... args) {
    Target target{&self};
    if (C10_UNLIKELY(!kRule(target, self, args...))) call_fallback<kName>(self, args...);
    return self;
  }
  static at::Tensor& out(Self self, Args... args, at::Tensor& result) {
    Target target{&result};
    if (C10_UNLIKELY(!kRule(target, self, args...))) call_fallback<kName>(self, args..., result);
    return result;
  }

  // The same before autograd. What the rule declines goes all the way.
  static at::Tensor functional_untracked(c10::DispatchKeySet keys, Self self, Args... args) {
    if (C10_LIKELY(is_untracked(keys, self, args...))) {
      Target target;
      if (C10_LIKELY(kRule(target, self, args...))) return std::move(target.fresh);
    }
    return call_autograd<kName, at::Tensor, Self, Args...>(keys, self, args...);
  }
  static at::Tensor& in_place_untracked(c10::DispatchKeySet keys, at::Tensor& self, Args... args) {
    if (C10_LIKELY(is_untracked(keys, self, args...))) {
      Target target{&self};
      if (C10_LIKELY(kRule(target, self, args...))) {
        count_write(keys, self);
        return self;
      }
    }
    return call_autograd<kName, at::Tensor&, at::Tensor&, Args...>(keys, self, args...);
  }
  static at::Tensor& out_untracked(c10::DispatchKeySet keys, Self self, Args... args,
                                   at::Tensor& result) {
    if (C10_LIKELY(is_untracked(keys, self, args..., result))) {
      Target target{&result};
      if (C10_LIKELY(kRule(target, self, args...))) {
        count_write(keys, result);
        return result;
      }
    }
    return call_autograd<kName, at::Tensor&, Self, Args..., at::Tensor&>(keys, self, args...,
                                                                         result);
  }
};

template <auto* kRule>
struct Ops {
  torch::Library& library;

  template <Name kName>
  Ops& functional() {
    register_native<&Face<kName, kRule>::functional>(library, kName.view());
    register_untracked<kName, &Face<kName, kRule>::functional_untracked>();
    return *this;
  }
  template <Name kName>
  Ops& in_place() {
    register_native<&Face<kName, kRule>::in_place>(library, kName.view());
    register_untracked<kName, &Face<kName, kRule>::in_place_untracked>();
    return *this;
  }
  template <Name kName>
  Ops& out() {
    register_native<&Face<kName, kRule>::out>(library, kName.view());
    register_untracked<kName, &Face<kName, kRule>::out_untracked>();
    return *this;
  }
};

template <size_t kA, size_t kB>
consteval auto operator+(const Name<kA>& a, const Name<kB>& b) {
  Name<kA + kB - 1> sum;
  std::copy_n(a.text, kA - 1, sum.text);
  std::copy_n(b.text, kB, sum.text + kA - 1);
  return sum;
}

// Registers name, name_ and name.out, with an overload name behind each where the op has one:
// name.X, name_.X and name.Y.
template <Name kName, auto* kRule>
void add_all(torch::Library& library) {
  Ops<kRule>{library}
      .template functional<kName>()
      .template in_place<kName + Name("_")>()
      .template out<kName + Name(".out")>();
}
template <Name kName, auto* kRule, Name kOverload, Name kOut>
void add_all(torch::Library& library) {
  Ops<kRule>{library}
      .template functional<kName + Name(".") + kOverload>()
      .template in_place<kName + Name("_.") + kOverload>()
      .template out<kName + Name(".") + kOut>();
}

void register_table(torch::Library& library);
void register_binary(torch::Library& library);
void register_activations(torch::Library& library);
void register_ternary(torch::Library& library);

}  // namespace hologram_torch
