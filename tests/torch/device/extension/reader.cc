// SPDX-License-Identifier: MIT
// An extension as others write them: its operators take addresses by const_data_ptr() and add up
// what is there. What test_extension.py compiles and loads.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <vector>

namespace {

using torch::stable::Tensor;

// The sum of a contiguous float32 tensor.
double add_up(const Tensor& x) {
  const float* const elements = static_cast<const float*>(x.const_data_ptr());
  double sum = 0;
  for (int64_t i = 0; i < x.numel(); ++i) sum += elements[i];
  return sum;
}

double add_up_all(std::vector<Tensor> list) {
  double sum = 0;
  for (const Tensor& x : list) sum += add_up(x);
  return sum;
}

#ifdef OVERRIDE_PYTORCH
// In place of an operator of PyTorch's: of the kernel of its own that it gives this device nobody
// is told.
Tensor unseen(Tensor x) {
  add_up(x);
  return x;
}
#endif

}  // namespace

STABLE_TORCH_LIBRARY(hologram_test_reader, m) {
  m.def("composite(Tensor x) -> float");
  m.def("explicit(Tensor x) -> float");
  m.def("device(Tensor x) -> float");
  m.def("device_list(Tensor[] list) -> float");
  m.def("cpu(Tensor x) -> float");
}
STABLE_TORCH_LIBRARY_IMPL(hologram_test_reader, CompositeImplicitAutograd, m) {
  m.impl("composite", TORCH_BOX(&add_up));
}
STABLE_TORCH_LIBRARY_IMPL(hologram_test_reader, CompositeExplicitAutograd, m) {
  m.impl("explicit", TORCH_BOX(&add_up));
}
STABLE_TORCH_LIBRARY_IMPL(hologram_test_reader, PrivateUse1, m) {
  m.impl("device", TORCH_BOX(&add_up));
  m.impl("device_list", TORCH_BOX(&add_up_all));
}
STABLE_TORCH_LIBRARY_IMPL(hologram_test_reader, CPU, m) { m.impl("cpu", TORCH_BOX(&add_up)); }
#ifdef OVERRIDE_PYTORCH
STABLE_TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("special_bessel_y1", TORCH_BOX(&unseen)); }
#endif
