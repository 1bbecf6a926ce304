// SPDX-License-Identifier: MIT
// Everything at once on the CPU: many threads record, hand over, look, give away and free, while
// the worker and the threads of parallel_for run what they recorded.
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "hologram/call.h"
#include "hologram/memory.h"
#include "hologram/parallel.h"
#include "hologram/recorder.h"
#include "hologram/trace.h"
#include "src/runtime/recording/circuit_worker.h"
#include "src/runtime/recording/recorder.h"
#include "tests/cpp/runtime/support.h"

namespace hologram {
namespace {

using internal::Recorder;

constexpr int kThreads = 16;
constexpr int64_t kCols = 64;
// From what one thread does at once to what all share; multiples of kCols.
constexpr int64_t kSizes[] = {kCols, 16 * kCols, 2048 * kCols};

// out[i] = in[n - 1 - i] + number, in tiles that several threads take.
const uint16_t kTurn =
    register_call({"stress_turn", [](const CallArguments& c) {
                     float more;
                     std::memcpy(&more, c.numbers, sizeof more);
                     const auto n = static_cast<int64_t>(c.attributes[0]);
                     const auto* in = reinterpret_cast<const float*>(c.operands[0]);
                     auto* out = reinterpret_cast<float*>(c.operands[1]);
                     parallel_for(n / kCols, c.max_threads, [&](int64_t begin, int64_t end, int) {
                       for (int64_t i = begin * kCols; i < end * kCols; ++i)
                         out[i] = in[n - 1 - i] + more;
                     });
                   }});

// A buffer whose elements are all to be `value`, a small integer.
struct Item {
  BufferRef buffer;
  int64_t n = 0;
  float value = 0;
};

RecordOperand memory(const Item& item) {
  RecordOperand operand;
  operand.buffer = item.buffer.get();
  return operand;
}
RecordOperand number(float value) {
  RecordOperand operand;
  std::memcpy(&operand.bits, &value, sizeof value);
  return operand;
}

// A thread's program. Its items are its own alone; `common` belongs to all, who only read it.
class Program {
 public:
  Program(unsigned seed, const std::vector<Item>& common, std::atomic<Item*>* mail)
      : random_(seed), common_(common), mail_(mail) {
    for (Item& item : items_) item = copy_of(any_common());
  }

  void run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) step();
    for (const Item& item : items_) look(item);
  }

  static std::atomic<int64_t> wrapped, unwrapped;

 private:
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }
  Item& any() { return items_[below(items_.size())]; }
  const Item& any_common() { return common_[below(static_cast<uint32_t>(common_.size()))]; }

  // Without contents: deferred, with memory, or of memory that is not the library's.
  Item fresh(int64_t n) {
    const auto bytes = static_cast<size_t>(n) * sizeof(float);
    const uint32_t how = below(8);
    if (how == 0) return {allocate(bytes), n, 0};
    if (how == 1) {
      ++wrapped;
      auto* data = new float[static_cast<size_t>(n)];
      const auto unwrap = [](void* context) {
        ++unwrapped;
        delete[] static_cast<float*>(context);
      };
      return {BufferRef::adopt(wrap_buffer(cpu(), data, bytes, unwrap, data)), n, 0};
    }
    return {BufferRef::adopt(allocate_deferred(cpu(), bytes)), n, 0};
  }

  void flat(OpId op, Item& out, const RecordOperand& a, const RecordOperand& b, float value) {
    const RecordOperand operands[] = {memory(out), a, b};
    ASSERT_TRUE(record_flat(op, Dtype::kFloat32, operands, 2, out.n));
    out.value = value;
  }
  Item copy_of(const Item& from) {
    Item out = fresh(from.n);
    flat(OpId::add, out, memory(from), number(0), from.value);
    return out;
  }

  void look(const Item& item) {
    materialize(*item.buffer);
    const auto* data = item.buffer->data_as<float>();
    for (int64_t i = 0; i < item.n; ++i) {
      if (data[i] == item.value) continue;
      ADD_FAILURE() << "element " << i << " of " << item.n << " is " << data[i] << ", not "
                    << item.value;
      return;
    }
  }

  void step() {
    Item& x = any();
    if (x.value > 1000 || x.value < -1000) return flat(OpId::sub, x, memory(x), memory(x), 0);
    switch (below(16)) {
      case 0:
      case 1:
        return flat(OpId::add, x, memory(x), number(3), x.value + 3);
      case 2:
      case 3: {
        const Item& y = below(2) == 0 ? any_common() : any();
        if (y.n != x.n) return;
        Item out = fresh(x.n);
        flat(OpId::sub, out, memory(x), memory(y), x.value - y.value);
        x = std::move(out);
        return;
      }
      case 4: {
        Item out = fresh(x.n / kCols);
        if (out.n % kCols != 0) return;
        ASSERT_TRUE(record_reduction(Reduction::mean, memory(out), memory(x), out.n, kCols));
        out.value = x.value;
        x = std::move(out);
        return;
      }
      case 5:
      case 6:
      case 7: {
        Item out = fresh(x.n);
        const int64_t bytes = x.n * 4;
        const CallOperand operands[] = {{x.buffer.get(), 0, bytes, true, false, false},
                                        {out.buffer.get(), 0, bytes, false, true, true}};
        const auto n = static_cast<uint64_t>(x.n);
        const uint64_t more = number(5).bits;
        ASSERT_TRUE(record_call(kTurn, operands, {&n, 1}, {&more, 1}, static_cast<double>(n)));
        out.value = x.value + 5;
        x = std::move(out);
        return;
      }
      case 8:
        x = copy_of(any_common());
        return;
      case 9: {
        // Another thread goes on with it, and this one with what another left.
        auto* parcel = new Item(std::move(x));
        Item* got = mail_[below(kThreads)].exchange(parcel, std::memory_order_acq_rel);
        x = got != nullptr ? std::move(*got) : copy_of(any_common());
        delete got;
        return;
      }
      case 10:
        return look(x);
      case 11: {
        // At once, between recorded work on both sides.
        materialize(*x.buffer);
        auto* data = x.buffer->data_as<float>();
        for (int64_t i = 0; i < x.n; ++i) data[i] -= 2;
        x.value -= 2;
        return;
      }
      case 12:
        return Recorder::of(cpu()).hand_over();
      case 13:
        if (below(8) == 0) flush(cpu());
        return;
      case 14:
        if (below(16) == 0) empty_cache();
        (void)memory_stats();
        (void)recorder_stats(cpu());
        return;
      default: {
        if (below(16) != 0) return;
        const uint64_t trace = start_tracing(cpu());
        look(x);
        (void)stop_tracing(trace);
        return;
      }
    }
  }

  std::mt19937 random_;
  const std::vector<Item>& common_;
  std::atomic<Item*>* const mail_;
  std::array<Item, 4> items_;
};
std::atomic<int64_t> Program::wrapped{0}, Program::unwrapped{0};

TEST(RecorderStress, ThreadsRecordGiveAwayFreeAndLookWhileTheWorkerRuns) {
  const int steps = kThreadSanitizer || kAddressSanitizer ? 400 : 2000;
  set_deferring(true);
  flush(cpu());
  const int threads_before = num_threads();
  set_num_threads(4);
  internal::set_circuit_worker(true);
  const int64_t blocks = memory_stats().active_blocks.current;
  const int64_t tiles = parallel_stats().worker_tiles;
  {
    std::vector<Item> common;
    for (const int64_t n : kSizes) {
      Item item{allocate(static_cast<size_t>(n) * sizeof(float)), n, 7};
      std::fill_n(item.buffer->data_as<float>(), n, item.value);
      common.push_back(std::move(item));
    }
    std::array<std::atomic<Item*>, kThreads> mail{};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] { Program(t, common, mail.data()).run(steps); });
    }
    for (std::thread& thread : threads) thread.join();
    for (std::atomic<Item*>& place : mail) delete place.load();
    flush(cpu());
    for (const Item& item : common) EXPECT_EQ(item.buffer->data_as<float>()[item.n - 1], 7);
  }
  // Also stops what the worker does.
  internal::set_circuit_worker(false);
  flush(cpu());
  EXPECT_GT(parallel_stats().worker_tiles, tiles);
  EXPECT_GT(Program::wrapped, 0);
  EXPECT_EQ(Program::unwrapped, Program::wrapped);
  EXPECT_EQ(memory_stats().active_blocks.current, blocks);
  set_num_threads(threads_before);
}

}  // namespace
}  // namespace hologram
