// SPDX-License-Identifier: MIT
// A device that runs plans element by element with scalar arithmetic, and can be made to fail: what
// the recorder's tests record on.
#pragma once

#include <cstring>
#include <functional>
#include <new>
#include <vector>

#include "hologram/recorder.h"
#include "src/circuit/call_kinds.h"
#include "src/circuit/plan.h"
#include "src/runtime/recording/circuit_worker.h"
#include "tests/cpp/runtime/support.h"

namespace hologram {

// float32 elementwise plans and calls only.
class ScalarDevice final : public Device {
 public:
  static constexpr circuit::PlanLimits kLimits{};

  ScalarDevice() : Device(BackendType::kCpu, /*host_memory=*/true, &kLimits) {}

  std::string name() const override { return "scalar"; }
  DeviceProperties properties() const override { return {}; }
  void* allocate_raw(size_t n) override { return ::operator new(n, std::nothrow); }
  void free_raw(void* data, size_t) noexcept override { ::operator delete(data); }
  SystemMemory memory_info() const override { return system_memory(); }
  void copy_from_host(Stream& s, void* to, const void* from, size_t n) override {
    copy_within(s, to, from, n);
  }
  void copy_to_host(Stream& s, void* to, const void* from, size_t n) override {
    copy_within(s, to, from, n);
  }
  void copy_within(Stream& stream, void* to, const void* from, size_t n) override {
    stream.submit([&] { std::memmove(to, from, n); });
  }

  // Called at the start of every run.
  std::function<void()> on_run;

  void run_plan(circuit::Plan& plan, const circuit::Bindings& bindings, int) override {
    if (on_run) on_run();
    plan.running = 0;
    for (const circuit::Kernel& kernel : plan.kernels) {
      run_kernel(kernel, bindings);
      ++plan.running;
    }
  }

 private:
  static float number(const circuit::Bindings& bindings, uint32_t index) {
    float value;
    std::memcpy(&value, &bindings.immediates[index], sizeof value);
    return value;
  }

  static float apply(OpId op, const float* in) {
    switch (op) {
      case OpId::add:
        return in[0] + in[1];
      case OpId::sub:
        return in[0] - in[1];
      case OpId::mul:
        return in[0] * in[1];
      case OpId::neg:
        return -in[0];
      default:
        ADD_FAILURE() << "the scalar device does not know op " << static_cast<int>(op);
        return 0;
    }
  }

  static void run_call(const circuit::KernelCall& call, const circuit::Bindings& bindings) {
    std::vector<char*> at;
    for (const circuit::CallSlot& operand : call.operands) {
      at.push_back(operand.present ? bindings.slots[operand.slot] + operand.offset : nullptr);
    }
    circuit::call_kind(call.kind).run(
        {at.data(), call.attributes.data(), bindings.immediates + call.first_number, 1});
  }

  // Elements in order: each is loaded, computed and stored before the next one.
  static void run_kernel(const circuit::Kernel& kernel, const circuit::Bindings& bindings) {
    if (kernel.call != nullptr) {
      ASSERT_TRUE(kernel.instrs.empty()) << "no call of these tests has a result";
      return run_call(*kernel.call, bindings);
    }
    std::vector<float> temps(kernel.temps.size());
    for (int64_t i = 0; i < kernel.numel(); ++i) {
      const auto place = [&](uint32_t index) {
        const circuit::MemoryAccess& access = kernel.accesses[index];
        int64_t at = 0, rest = i;
        for (int d = kernel.ndim - 1; d >= 0; --d) {
          const auto dim = static_cast<size_t>(d);
          at += rest % kernel.shape[dim] * access.strides[dim];
          rest /= kernel.shape[dim];
        }
        EXPECT_NE(bindings.slots[access.slot], nullptr);
        return reinterpret_cast<float*>(bindings.slots[access.slot] + access.offset) + at;
      };
      for (const circuit::Instr& instr : kernel.instrs) {
        float in[circuit::kMaxArity];
        for (int k = 0; k < instr.arity; ++k) {
          const circuit::Ref& ref = instr.in[k];
          in[k] = ref.kind == circuit::Ref::kTemp        ? temps[ref.index]
                  : ref.kind == circuit::Ref::kImmediate ? number(bindings, ref.index)
                                                         : *place(ref.index);
        }
        const float value = instr.is_op() ? apply(instr.op(), in) : in[0];
        if (instr.out.kind == circuit::Ref::kTemp) {
          temps[instr.out.index] = value;
        } else {
          *place(instr.out.index) = value;
        }
      }
    }
  }
};

// The tests' device. Registered for good, as devices are.
inline ScalarDevice& scalar() {
  static ScalarDevice* instance = [] {
    cpu();
    auto device = std::make_unique<ScalarDevice>();
    ScalarDevice* made = device.get();
    register_device(std::move(device));
    return made;
  }();
  return *instance;
}

inline BufferRef deferred(int64_t n, Device& device = scalar()) {
  return BufferRef::adopt(allocate_deferred(device, static_cast<size_t>(n) * sizeof(float)));
}

// n floats with memory, all `value`.
inline BufferRef filled(int64_t n, float value, Device& device = scalar()) {
  BufferRef b = BufferRef::adopt(allocate_buffer(device, static_cast<size_t>(n) * sizeof(float)));
  std::fill_n(b->data_as<float>(), n, value);
  return b;
}

inline RecordOperand memory(const BufferRef& buffer, int64_t first = 0) {
  RecordOperand operand;
  operand.buffer = buffer.get();
  operand.offset = first * static_cast<int64_t>(sizeof(float));
  return operand;
}

inline RecordOperand number(float value) {
  RecordOperand operand;
  std::memcpy(&operand.bits, &value, sizeof value);
  return operand;
}

// out = op(a, b) over n elements.
inline bool record(OpId op, const RecordOperand& out, const RecordOperand& a,
                   const RecordOperand& b, int64_t n) {
  const RecordOperand operands[] = {out, a, b};
  return record_flat(op, Dtype::kFloat32, operands, 2, n);
}

inline std::vector<float> floats(const BufferRef& buffer) {
  materialize(*buffer);
  const float* data = buffer->data_as<float>();
  return {data, data + buffer->nbytes() / sizeof(float)};
}

// Starts each test with deferring on and nothing recorded; circuits run when the test says so.
class RecorderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    set_deferring(true);
    internal::set_circuit_worker(false);
    scalar().on_run = nullptr;
    flush(scalar());
    reset_recorder_stats(scalar());
  }
  void TearDown() override {
    testing::fail_os_allocations(0);
    set_memory_limit(0);
    scalar().on_run = nullptr;
    flush(scalar());
    try {
      scalar().synchronize();  // leaves no kept error behind
    } catch (const std::exception&) {
    }
  }
};

}  // namespace hologram
