// SPDX-License-Identifier: MIT
// Autocast: PyTorch registers none for a private device, so its shared op lists are applied here.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#define HOLOGRAM_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define HOLOGRAM_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define HOLOGRAM_FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define HOLOGRAM_DIFFERENT_SIGNATURE(...) \
  KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE(__VA_ARGS__)
#define HOLOGRAM_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

namespace {

at::Tensor binary_cross_entropy_banned(const at::Tensor&, const at::Tensor&,
                                       const std::optional<at::Tensor>&, int64_t) {
  TORCH_CHECK(false,
              "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to "
              "autocast. Many models use a sigmoid layer right before the binary cross entropy "
              "layer. In this case, combine the two layers using "
              "torch.nn.functional.binary_cross_entropy_with_logits or "
              "torch.nn.BCEWithLogitsLoss, which are safe to autocast.");
}

}  // namespace

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

namespace at::autocast {

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(HOLOGRAM_LOWER_PRECISION)
  AT_FORALL_FP32(HOLOGRAM_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(HOLOGRAM_FP32_SET_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(HOLOGRAM_DIFFERENT_SIGNATURE)
  AT_FORALL_PROMOTE(HOLOGRAM_PROMOTE)
  m.impl("binary_cross_entropy", TORCH_FN(binary_cross_entropy_banned));
}

}  // namespace at::autocast
