// SPDX-License-Identifier: MIT
// Settles which instruction sets a kernel source is compiled for; include instead of
// hwy/foreach_target.h, after defining HWY_TARGET_INCLUDE. No include guard: a source includes this
// once, and each inclusion must reach foreach_target.h.

#include "src/cpu/device/isa_select.h"
// clang-format off
#include "hwy/foreach_target.h"
// clang-format on
