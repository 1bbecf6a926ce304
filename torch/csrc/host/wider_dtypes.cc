// SPDX-License-Identifier: MIT
// The table of operators whose CPU kernels lack dtypes, and the copies of a call in wider ones.
#include "host/wider_dtypes.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/resize.h>
#include <ATen/ops/to.h>
#include <torch/library.h>

#include <algorithm>

#include "host/fallback.h"

namespace hologram_torch {
namespace {

using c10::ScalarType;

struct WiderRow {
  std::string_view name;
  uint8_t lacking;
};

constexpr uint8_t kHalfTypes = kHalfs | kBFloat16s;

// Sorted by name. tests/torch/conformance finds what is missing here. Gradients of bags of
// embeddings are here for accuracy: PyTorch's kernel takes half types, but rounds after each
// addition to a row, and a frequent word has thousands.
constexpr WiderRow kWiderRows[] = {
    {"_embedding_bag_backward", kHalfTypes},
    {"_embedding_bag_dense_backward", kHalfTypes},
    {"_fft_c2c", kComplexHalfs},
    {"_fft_c2r", kComplexHalfs},
    {"_fft_r2c", kHalfTypes},
    {"_upsample_bilinear2d_aa", kHalfTypes},
    {"_upsample_bilinear2d_aa_backward", kHalfTypes},
    {"abs", kBools},
    {"acos", kComplexHalfs},
    {"acosh", kComplexHalfs},
    {"angle", kComplexHalfs},
    {"asin", kComplexHalfs},
    {"asinh", kComplexHalfs},
    {"atan", kComplexHalfs},
    {"atanh", kComplexHalfs},
    {"avg_pool3d", kHalfTypes},
    {"avg_pool3d_backward", kHalfTypes},
    {"cos", kComplexHalfs},
    {"cosh", kComplexHalfs},
    {"cumprod", kComplexHalfs},
    {"div", kComplexHalfs},
    {"exp", kComplexHalfs},
    {"flip", kComplexHalfs},
    {"histc", kIntegers},
    {"lerp", kComplexHalfs},
    {"log", kComplexHalfs},
    {"logaddexp", kComplexHalfs},
    {"multi_margin_loss", kHalfTypes},
    {"multi_margin_loss_backward", kHalfTypes},
    {"multilabel_margin_loss_backward", kHalfTypes},
    {"multilabel_margin_loss_forward", kHalfTypes},
    {"nansum", kComplexHalfs},
    {"polygamma", kHalfs},
    {"pow", kComplexHalfs},
    {"prod", kComplexHalfs},
    {"reciprocal", kComplexHalfs},
    {"round", kHalfs},
    {"rrelu_with_noise", kHalfs},
    {"rrelu_with_noise_backward", kHalfs},
    {"rsqrt", kComplexHalfs},
    {"scatter", kFloat8s},
    {"sgn", kComplexHalfs},
    {"sigmoid", kComplexHalfs},
    {"sigmoid_backward", kComplexHalfs},
    {"sin", kComplexHalfs},
    {"sinh", kComplexHalfs},
    {"sqrt", kComplexHalfs},
    {"sum", kComplexHalfs},
    {"tan", kComplexHalfs},
    {"tanh", kComplexHalfs},
    {"tanh_backward", kComplexHalfs},
    {"trace", kComplexHalfs | kBools},
};

bool is_integer(ScalarType dtype) {
  return dtype == ScalarType::Byte || dtype == ScalarType::Char || dtype == ScalarType::Short ||
         dtype == ScalarType::Int || dtype == ScalarType::Long;
}

}  // namespace

uint8_t lacking_dtypes(std::string_view schema_name) {
  constexpr std::string_view kAten = "aten::";
  if (schema_name.substr(0, kAten.size()) != kAten) return kNone;
  std::string_view name = schema_name.substr(kAten.size());
  const auto find = [](std::string_view wanted) {
    const auto* row =
        std::lower_bound(std::begin(kWiderRows), std::end(kWiderRows), wanted,
                         [](const WiderRow& r, std::string_view other) { return r.name < other; });
    return row != std::end(kWiderRows) && row->name == wanted ? row->lacking : uint8_t{kNone};
  };
  if (name.substr(0, 4) == "fft_") return kHalfTypes | kComplexHalfs;
  if (const uint8_t lacking = find(name)) return lacking;
  if (!name.empty() && name.back() == '_') name.remove_suffix(1);
  return find(name);
}

bool Widening::lacks(ScalarType dtype) const {
  switch (dtype) {
    case ScalarType::Half:
      return (info_.lacking & kHalfs) != 0;
    case ScalarType::BFloat16:
      return (info_.lacking & kBFloat16s) != 0;
    case ScalarType::ComplexHalf:
      return (info_.lacking & kComplexHalfs) != 0;
    case ScalarType::Bool:
      return (info_.lacking & kBools) != 0;
    default:
      return ((info_.lacking & kIntegers) != 0 && is_integer(dtype)) ||
             ((info_.lacking & kFloat8s) != 0 && c10::isFloat8Type(dtype));
  }
}

void Widening::add(ScalarType dtype) {
  found_ = found_ || lacks(dtype);
  ScalarType real = ScalarType::Undefined;
  if (dtype == ScalarType::Half || dtype == ScalarType::ComplexHalf) {
    real = ScalarType::Half;
  } else if (dtype == ScalarType::BFloat16 || lacks(dtype)) {
    real = dtype;
  } else if (c10::isFloatingType(dtype) || c10::isComplexType(dtype)) {
    mixed_ = true;
  }
  if (real == ScalarType::Undefined) return;
  mixed_ = mixed_ || (real_ != ScalarType::Undefined && real_ != real);
  real_ = real;
}

void Widening::add(const at::Tensor& t) {
  if (!t.defined()) return;
  // Numbers and tensors without dimensions decide no dtype beside others.
  if (t.unsafeGetTensorImpl()->is_wrapped_number()) return;
  add(t.scalar_type());
}

ScalarType Widening::widen(ScalarType dtype) const {
  switch (dtype) {
    case ScalarType::Half:
    case ScalarType::BFloat16:
      return ScalarType::Float;
    case ScalarType::ComplexHalf:
      return ScalarType::ComplexFloat;
    case ScalarType::Bool:
      return lacks(dtype) ? ScalarType::Byte : dtype;
    default:
      if (!lacks(dtype)) return dtype;
      return is_integer(dtype) ? ScalarType::Double : ScalarType::Float;
  }
}

ScalarType Widening::narrow(ScalarType dtype) const {
  if (is_integer(real_)) return dtype == ScalarType::Double ? real_ : dtype;
  if (real_ == ScalarType::Bool) return dtype == ScalarType::Byte ? real_ : dtype;
  if (dtype == ScalarType::Float) return real_;
  // There is no complex type of two bfloat16.
  if (dtype == ScalarType::ComplexFloat && real_ == ScalarType::Half) {
    return ScalarType::ComplexHalf;
  }
  return dtype;
}

at::Tensor Widening::widen(const at::Tensor& t, bool written) {
  if (!t.defined()) return t;
  const ScalarType wide = widen(t.scalar_type());
  if (wide == t.scalar_type()) return t;
  for (Copy& copy : copies_) {
    if (copy.given.is_same(t)) {
      copy.written = copy.written || written;
      return copy.wide;
    }
  }
  copies_.push_back({t, t.to(wide), written});
  return copies_.back().wide;
}

at::Tensor Widening::narrow(at::Tensor t) const {
  if (!t.defined()) return t;
  for (const Copy& copy : copies_) {
    if (copy.wide.is_same(t)) return copy.given;
  }
  const ScalarType dtype = leaves_ ? t.scalar_type() : narrow(t.scalar_type());
  return dtype == t.scalar_type() ? t : t.to(dtype);
}

bool Widening::widen_arguments(torch::jit::Stack* stack) {
  const size_t begin = stack->size() - info_.arity;
  for (const ArgInfo& arg : info_.args) {
    const c10::IValue& value = (*stack)[begin + arg.index];
    if (value.isTensor()) {
      add(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& t : value.toTensorVector()) add(t);
    } else if (arg.kind == ArgKind::kDtype && value.isInt()) {
      add(static_cast<ScalarType>(value.toInt()));
    }
  }
  if (!found_ || mixed_) return false;
  for (const ArgInfo& arg : info_.args) {
    c10::IValue& value = (*stack)[begin + arg.index];
    if (value.isTensor()) {
      value = widen(value.toTensor(), arg.written);
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> wide;
      for (const at::Tensor& t : value.toTensorVector()) wide.push_back(widen(t, arg.written));
      value = std::move(wide);
    } else if (arg.kind == ArgKind::kDtype && value.isInt()) {
      value = static_cast<int64_t>(widen(static_cast<ScalarType>(value.toInt())));
    }
  }
  refuse_overlap();
  return true;
}

// What PyTorch's kernels ask of a result and the operands beside it, which the copies hide.
void Widening::refuse_overlap() const {
  for (const Copy& out : copies_) {
    if (!out.written) continue;
    at::assert_no_internal_overlap(out.given);
    for (const Copy& in : copies_) {
      if (&in != &out) at::assert_no_partial_overlap(out.given, in.given);
    }
  }
}

void Widening::narrow_results(torch::jit::Stack* stack) {
  for (const Copy& copy : copies_) {
    if (!copy.written) continue;
    if (copy.given.sizes() != copy.wide.sizes()) {
      copy.given.resize_(copy.wide.sizes(), copy.wide.suggest_memory_format());
    }
    copy.given.copy_(copy.wide);
  }
  for (size_t i = stack->size() - info_.returns.size(); i < stack->size(); ++i) {
    c10::IValue& value = (*stack)[i];
    if (value.isTensor()) {
      value = narrow(std::move(value).toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list = value.toTensorList();
      for (size_t k = 0; k < list.size(); ++k) list.set(k, narrow(list.extract(k)));
    }
  }
}

namespace {

// Stands before a composite, with and without autograd, which sees the conversions.
void run_composite_wider(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const OpInfo& info = op_info(op);
  Widening widening(info);
  const bool wider = widening.widen_arguments(stack);
  // There is no transform to pairs of bfloat16: CUDA's results are those of float32, too.
  if (wider && widening.narrow_dtype() == ScalarType::BFloat16) widening.leave_results();
  // The kernel of a composite is the same for every device.
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::AutogradCPU), stack);
  if (wider) widening.narrow_results(stack);
}

}  // namespace

void register_wider_composites() {
  using c10::DispatchKey;
  static torch::Library autograd(torch::Library::IMPL, "aten", DispatchKey::AutogradPrivateUse1,
                                 __FILE__, __LINE__);
  static torch::Library dense(torch::Library::IMPL, "aten", DispatchKey::PrivateUse1, __FILE__,
                              __LINE__);
  // Their composites want a device of PyTorch's own.
  dense.impl("mode.values", fallback_kernel());
  dense.impl("conj_physical_", fallback_kernel());
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::fft_", 0) != 0) continue;
    const auto op = dispatcher.findOp(name);
    if (!op || !op->hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd)) continue;
    // Shifts know every dtype; frequencies have no tensor to look at.
    if (name.name.find("shift") != std::string::npos || op_info(*op).args.empty()) continue;
    const std::string full =
        name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    autograd.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_composite_wider>());
    dense.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_composite_wider>());
  }
}

}  // namespace hologram_torch
