// SPDX-License-Identifier: MIT
// torch.accelerator.Graph: capture and replay, with random numbers that go on from replay to
// replay.
#include "device/graph.h"

#include <atomic>
#include <random>
#include <string>

#include "device/tensor.h"
#include "hologram/recorder.h"

#if __has_include(<ATen/core/GraphImplInterface.h>)
#include <ATen/core/GraphImplInterface.h>

#include <fstream>
#define HOLOGRAM_HAS_GRAPHS 1
#else
#define HOLOGRAM_HAS_GRAPHS 0
#endif

namespace hologram_torch {

namespace {
thread_local int t_exempt = 0;
}  // namespace

CaptureExempt::CaptureExempt() { ++t_exempt; }
CaptureExempt::~CaptureExempt() { --t_exempt; }

void check_look() {
  TORCH_CHECK(t_exempt > 0,
              "the value of a hologram tensor is asked for while a graph is captured, when nothing "
              "is computed: .item(), .cpu(), print, a copy from the cpu, or an op that runs on the "
              "cpu. Do it before the capture or after replay()");
}

void cannot_capture(const char* op) {
  TORCH_CHECK(false, op,
              " cannot be part of a graph on device 'hologram': it runs on the cpu, or looks at "
              "values. Run it before the capture or after replay()");
}

bool captures_otherwise(const char* op) {
  if (hologram::is_capturing_function()) cannot_capture(op);
  return hologram::is_capturing_graph();
}

PhiloxGenerator::Reserved CapturedDraws::draw(PhiloxGenerator& generator, uint64_t count) {
  Draws* of = nullptr;
  for (Draws& draws : draws_) {
    if (draws.generator == &generator) of = &draws;
  }
  if (of == nullptr) {
    static std::random_device source;
    const uint64_t token = uint64_t{source()} << 32 | source();
    draws_.push_back({c10::intrusive_ptr<c10::GeneratorImpl>::reclaim_copy(&generator),
                      &generator,
                      token,
                      0,
                      {}});
    of = &draws_.back();
  }
  const PhiloxGenerator::Reserved reserved{of->token, of->count};
  of->count += count;
  return reserved;
}

void CapturedDraws::find_places(std::span<const uint64_t> numbers) {
  for (Draws& draws : draws_) {
    for (size_t k = 0; k + 1 < numbers.size(); ++k) {
      if (numbers[k] == draws.token) draws.places.push_back({k, numbers[k + 1]});
    }
  }
}

void CapturedDraws::advance(std::span<uint64_t> numbers) const {
  for (const Draws& draws : draws_) {
    std::lock_guard<std::mutex> lock(draws.generator->mutex_);
    const auto from = draws.generator->reserve(draws.count);
    for (const Draws::Place& place : draws.places) {
      numbers[place.seed] = from.seed;
      numbers[place.seed + 1] = from.offset + place.offset;
    }
  }
}

namespace {
constinit std::atomic<CapturedDraws*> g_function_draws{nullptr};
}  // namespace

void set_function_draws(CapturedDraws* draws) {
  g_function_draws.store(draws, std::memory_order_release);
}

#if HOLOGRAM_HAS_GRAPHS

namespace {

class Graph final : public at::GraphImplInterface {
 public:
  explicit Graph(const at::GraphImplArgs& args)
      : graph_(memory_device(index_of({}))), keeps_(args.keep_graph) {}
  ~Graph() override { stop(); }

  void capture_begin(at::MempoolId_t pool, at::GraphCaptureMode) override {
    static std::atomic<uint64_t> pools{0};
    TORCH_CHECK(kCanDefer, "graphs on device 'hologram' need PyTorch 2.13 or later");
    attempt([&] { graph_.begin(); });
    draws_.clear();
    pool_ = pool.first != 0 || pool.second != 0 ? pool : at::MempoolId_t{0, ++pools};
    current_ = this;
  }
  void capture_end() override {
    attempt([&] { graph_.end(); });
    stop();
    draws_.find_places(graph_.numbers());
    if (graph_.stats().ops == 0) {
      TORCH_WARN(
          "The graph is empty: nothing was recorded on device 'hologram' between capture_begin() "
          "and capture_end()");
    }
    if (!keeps_) instantiate();
  }
  void instantiate() override {
    attempt([&] { graph_.prepare(); });
  }
  void replay() override {
    draws_.advance(graph_.numbers());
    attempt([&] { graph_.replay(); });
  }
  void reset() override {
    stop();
    graph_.reset();
    draws_.clear();
  }
  at::MempoolId_t pool() const override {
    TORCH_CHECK(graph_.is_capturing() || graph_.is_captured(),
                "a graph has a memory pool once capture_begin() was called");
    return pool_;
  }
  void enable_debug_mode() override { debug_ = true; }
  void debug_dump(const std::string& path) override {
    TORCH_CHECK(debug_, "debug_dump: call enable_debug_mode() before the capture");
    TORCH_CHECK(graph_.is_captured(), "debug_dump: there is no captured graph");
    std::ofstream file(path);
    file << graph_.print();
    TORCH_CHECK(file.good(), "debug_dump: cannot write ", path);
  }

  static Graph* current() { return current_; }
  CapturedDraws& draws() { return draws_; }

 private:
  template <class F>
  static void attempt(F&& f) {
    try {
      f();
    } catch (const std::exception& error) {
      rethrow_as_torch(error, 0);
    }
  }
  void stop() {
    Graph* self = this;
    current_.compare_exchange_strong(self, nullptr);
  }

  static inline std::atomic<Graph*> current_{nullptr};
  hologram::DeviceGraph graph_;
  const bool keeps_;
  bool debug_ = false;
  at::MempoolId_t pool_{0, 0};
  CapturedDraws draws_;
};

}  // namespace

#endif

bool draws_in_graph(PhiloxGenerator& generator, uint64_t count,
                    PhiloxGenerator::Reserved& reserved) {
  if (!hologram::is_capturing_graph()) return false;
  CapturedDraws* draws = nullptr;
  if (hologram::is_capturing_function()) {
    draws = g_function_draws.load(std::memory_order_acquire);
#if HOLOGRAM_HAS_GRAPHS
  } else if (Graph* graph = Graph::current()) {
    draws = &graph->draws();
#endif
  }
  if (draws == nullptr) return false;
  reserved = draws->draw(generator, count);
  return true;
}

}  // namespace hologram_torch

#if HOLOGRAM_HAS_GRAPHS
namespace at {
using HologramGraph = hologram_torch::Graph;
// By the name of the device, as PyTorch looks it up.
REGISTER_GRAPH_IMPL(HOLOGRAM, HologramGraph)
}  // namespace at
#endif
