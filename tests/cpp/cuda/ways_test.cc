// SPDX-License-Identifier: MIT
// The table of docs/gpu-calls.md says what the code does. HOLOGRAM_WRITE_DOCS=1 writes it anew.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "hologram/call_ops.h"
#include "src/gpu/indexing.h"
#include "src/gpu/philox.h"
#include "src/gpu/products.h"
#include "src/gpu/recipes/recipes.h"

namespace hologram::gpu {
namespace {

std::string table() {
  std::ostringstream page;
  page << "<!-- SPDX-License-Identifier: MIT -->\n"
          "# Calls on GPUs\n\n"
          "Elementwise ops, reductions and softmax along the last dimension are records, which are "
          "planned and fused as on\nthe CPU and become generated kernels. Calls are ops over whole "
          "tensors. On devices of `src/gpu/` (OpenCL, CUDA) a\ncall is a generated kernel of its "
          "own, a recipe (records on a private tape, which are planned in the same way), or "
          "is\nleft "
          "to the CPU, on copies, and counted (`host_kernels`, `host_bytes`). Complex numbers and "
          "tensors of more than\nseven dimensions are always the CPU's; so are packed sequences, "
          "and "
          "random numbers where the device has no float64.\n\n"
          "| call | CPU | GPU |\n| --- | --- | --- |\n";
  int counts[3] = {};
  const std::span<const CallOp> ops = call_ops();
  for (size_t k = 0; k < ops.size(); ++k) {
    const auto kind = static_cast<CallNumber>(k);
    const bool is_kernel = has_product(kind) || has_random(kind) || has_indexing(kind);
    const int way = is_kernel ? 0 : has_recipe(kind) ? 1 : 2;
    constexpr const char* kWays[] = {"kernel", "recipe", "host"};
    ++counts[way];
    page << "| " << ops[k].name << " | kernel | " << kWays[way] << " |\n";
  }
  page << "\n"
       << counts[0] << " kernels, " << counts[1] << " recipes, " << counts[2]
       << " left to the host. `HOLOGRAM_WRITE_DOCS=1 cuda_test --gtest_filter='Ways.*'` writes "
          "this page.\n";
  return page.str();
}

TEST(Ways, ThePageOfCallsIsTrue) {
  const std::string path = HOLOGRAM_SOURCE "/docs/gpu-calls.md";
  if (std::getenv("HOLOGRAM_WRITE_DOCS") != nullptr) std::ofstream(path) << table();
  std::ostringstream written;
  written << std::ifstream(path).rdbuf();
  EXPECT_EQ(written.str(), table()) << "HOLOGRAM_WRITE_DOCS=1 writes it anew";
}

}  // namespace
}  // namespace hologram::gpu
