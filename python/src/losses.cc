// SPDX-License-Identifier: MIT
// What hologram.ops builds its other functions of: reductions, softmax, losses and products that
// write into tensors that are there.

#include <array>
#include <string>

#include "convert.h"
#include "hologram/functions.h"
#include "objects.h"

namespace hologram::python {
namespace {

void store_into(const Tensor& result, const TensorObject& out, const char* name) {
  out.check_writable(name);
  if (out.tensor().numel() != result.numel()) {
    fail(ErrorKind::kInvalidArgument, name, ": out has ", out.tensor().numel(),
         " elements and the result ", result.numel());
  }
  copy_into(reshaped(result, out.tensor().shape()), out.tensor());
}

// loss, and where there is room the sum and the number of terms.
void store_loss(const Tensor& sum, int64_t count, const TensorObject& out, const char* name) {
  out.check_writable(name);
  const Tensor& target = out.tensor();
  if (target.numel() != 1 && (target.ndim() != 1 || target.numel() < 3)) {
    fail(ErrorKind::kInvalidArgument, name, ": out has shape ", text(target.shape()),
         "; give it 1 element for the loss, or at least 3 in one dimension for the loss, the sum "
         "and the number of terms");
  }
  const std::array<Operand, 2> operands = {Operand(sum), Operand(static_cast<double>(count))};
  const Tensor mean = apply(OpId::div, operands, Rules::numpy);
  if (target.numel() == 1) {
    copy_into(mean, target);
    return;
  }
  copy_into(mean, target.select(0, 0));
  copy_into(sum, target.select(0, 1));
  fill_into(Scalar(static_cast<double>(count)), target.select(0, 2));
}

void point(int which, const TensorObject& prediction, const TensorObject& target,
           const TensorObject& out, const std::string& name) {
  PointLossOptions options;
  options.reduction = LossReduction::sum;
  const Tensor sum =
      point_loss(static_cast<PointLoss>(which), prediction.tensor(), target.tensor(), options);
  store_loss(sum, prediction.tensor().numel(), out, name.c_str());
}

void class_loss(const TensorObject& logits, const TensorObject& target, const TensorObject& out) {
  ClassLossOptions options;
  options.reduction = LossReduction::sum;
  const Tensor sum = cross_entropy(logits.tensor(), target.tensor(), options);
  store_loss(sum, target.tensor().numel(), out, "cross_entropy_loss");
}

// Targets that are probabilities of each class along the last dimension.
void soft_class_loss(const TensorObject& logits, const TensorObject& target,
                     const TensorObject& out) {
  const Tensor& x = logits.tensor();
  if (x.shape() != target.tensor().shape() || x.ndim() == 0) {
    fail(ErrorKind::kInvalidArgument, "cross_entropy_loss: pred has shape ", text(x.shape()),
         " and target ", text(target.tensor().shape()),
         "; a floating target has pred's shape, an int64 one that without the classes");
  }
  const Tensor logs = log_softmax(x, -1);
  const std::array<Operand, 2> operands = {Operand(logs), Operand(target.tensor())};
  const Tensor sum = reduce(Reduction::sum, apply(OpId::mul, operands, Rules::numpy));
  const std::array<Operand, 1> total = {Operand(sum)};
  const int64_t classes = x.size(-1);
  store_loss(apply(OpId::neg, total, Rules::numpy), classes == 0 ? 0 : x.numel() / classes, out,
             "cross_entropy_loss");
}

}  // namespace

void register_losses(nb::module_& m) {
  nb::module_ into = m.def_submodule("into", "Functions that write into tensors that are there.");
  into.def("point_loss", &point);
  into.def("class_loss", &class_loss);
  into.def("soft_class_loss", &soft_class_loss);
  into.def("reduce", [](int which, const TensorObject& x, const TensorObject& out) {
    ReduceSpec spec;
    spec.rules = Rules::numpy;
    const auto op = static_cast<Reduction>(which);
    store_into(reduce(op, x.tensor(), spec), out, std::string(reduction_name(op)).c_str());
  });
  into.def("softmax", [](const TensorObject& x, const TensorObject& out, int axis) {
    out.check_writable("softmax");
    softmax_into(x.tensor(), axis, out.tensor());
  });
  into.def("matmul", [](const TensorObject& a, const TensorObject& b, const TensorObject& out) {
    out.check_writable("gemm");
    const Unlocked unlocked;
    matmul_into(a.tensor(), b.tensor(), out.tensor());
  });
}

}  // namespace hologram::python
