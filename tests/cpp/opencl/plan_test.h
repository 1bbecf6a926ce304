// SPDX-License-Identifier: MIT
// Tests that run plans on the device.
#pragma once

#include <vector>

#include "tests/cpp/cpu/plan_support.h"
#include "tests/cpp/opencl/opencl_support.h"

namespace hologram::opencl {

class PlanTest : public OpenClTest {
 protected:
  // What a plan leaves in its slots, on the device, on copies of them.
  static std::vector<std::vector<char>> run(plans::Case& test) {
    Stream& stream = gpu().default_stream();
    std::vector<BufferRef> memory;
    std::vector<char*> at;
    for (const auto& bytes : test.slots) {
      memory.push_back(BufferRef::adopt(allocate_buffer(gpu(), bytes.size())));
      at.push_back(memory.back()->data_as<char>());
      gpu().copy_from_host(stream, at.back(), bytes.data(), bytes.size());
    }
    gpu().run_plan(test.plan, {at.data(), test.immediates.data()}, 0);
    std::vector<std::vector<char>> result = test.slots;
    for (size_t s = 0; s < result.size(); ++s) {
      gpu().copy_to_host(stream, result[s].data(), at[s], result[s].size());
    }
    return result;
  }
};

}  // namespace hologram::opencl
