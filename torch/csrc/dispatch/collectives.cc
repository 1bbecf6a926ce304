// SPDX-License-Identifier: MIT
// torch.distributed for hologram tensors: the operators of c10d get CPU tensors over the same
// memory, so that gloo sends and receives without a copy.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "host/alias.h"

namespace hologram_torch {
namespace {

using c10::IValue;
using c10::ivalue::Future;
using c10d::ProcessGroup;
using c10d::Work;

// The value with f applied to each tensor in it, however deep its lists are.
template <class F>
IValue map_tensors(const IValue& value, F&& f) {
  if (value.isTensor()) return f(value.toTensor());
  if (!value.isList()) return value;
  const c10::List<IValue> from = value.toList();
  c10::impl::GenericList to(from.elementType());
  to.reserve(from.size());
  for (const IValue& element : from) to.push_back(map_tensors(element, f));
  return to;
}

// The tensors of one collective as gloo sees them, until it is done. What was recorded on their
// memory has run. Ops that touch it before wait() find what they would find on cpu: no program may
// do that, so ops on other parts of the memory are still recorded.
class Loan {
 public:
  Loan() { scope_.keep_recording(); }

  IValue lend(const IValue& value) {
    return map_tensors(value, [this](const at::Tensor& t) {
      if (!t.defined()) return t;
      TORCH_CHECK(is_ours(t), "hologram: a collective was given a tensor of ", t.device(),
                  " beside one of hologram; all must be on one device");
      TORCH_CHECK(
          is_host_index(t.device().index()), "hologram: memory of ", t.device(),
          " cannot be reached from the processor, so gloo cannot send it; use .cpu() first");
      return tensors_.emplace_back(t, scope_.to_cpu(t)).second;
    });
  }

  // The hologram tensors for aliases in a result, or for views of them.
  IValue originals(const IValue& value) {
    return map_tensors(value, [this](const at::Tensor& alias) {
      for (const auto& [original, lent] : tensors_) {
        if (lent.is_same(alias)) return original;
      }
      return scope_.to_device(alias);
    });
  }

  // A sparse result has other members, not other bytes.
  void adopt_sparse() {
    for (const auto& [original, lent] : tensors_) {
      if (original.is_sparse()) scope_.adopt_changes(original, lent);
    }
  }

 private:
  AliasScope scope_;
  std::vector<std::pair<at::Tensor, at::Tensor>> tensors_;  // hologram's, and the alias
};

// gloo's work, with hologram tensors as its result.
class LentWork final : public Work {
 public:
  LentWork(c10::intrusive_ptr<Work> work, const std::shared_ptr<Loan>& loan)
      : Work(-1, work->retrieveOpType()), work_(std::move(work)) {
    const c10::intrusive_ptr<Future> theirs = work_->getFuture();
    future_ = theirs->createInstance(theirs->elementType());
    // On gloo's thread.
    theirs->addCallback([loan, ours = future_](Future& done) {
      if (done.hasError()) {
        ours->setError(done.exception_ptr());
        return;
      }
      try {
        loan->adopt_sparse();
        ours->markCompleted(loan->originals(done.constValue()));
      } catch (...) {
        ours->setErrorIfNeeded(std::current_exception());
      }
    });
  }

  bool isCompleted() override { return work_->isCompleted() && future_->completed(); }
  bool isSuccess() const override { return work_->isSuccess(); }
  std::exception_ptr exception() const override { return work_->exception(); }
  void synchronize() override { work_->synchronize(); }
  void abort() override { work_->abort(); }
  float getDuration() const override { return work_->getDuration(); }
  uint64_t getSequencenumber() const override { return work_->getSequencenumber(); }
  c10::intrusive_ptr<Future> getFuture() override { return future_; }

  bool wait(std::chrono::milliseconds timeout) override {
    const bool done = work_->wait(timeout);
    future_->wait();
    return done;
  }

  std::vector<at::Tensor> result() override {
    TORCH_CHECK(future_->completed(), "hologram: call wait() before result()");
    IValue value = future_->value();
    // A collective of several lists gives the first, as gloo does.
    if (value.isList() && !value.isTensorList() && !value.toListRef().empty()) {
      value = value.toListRef()[0];
    }
    return value.isTensorList() ? value.toTensorVector() : std::vector<at::Tensor>();
  }

 private:
  c10::intrusive_ptr<Work> work_;
  c10::intrusive_ptr<Future> future_;
};

bool has_ours(const IValue& value) {
  if (value.isTensor()) return value.toTensor().defined() && is_ours(value.toTensor());
  if (!value.isList()) return false;
  for (const IValue& element : value.toListRef()) {
    if (has_ours(element)) return true;
  }
  return false;
}

// Stands above the kernels of devices, whose PrivateUse1 ones hand over what gloo refuses. Groups
// in which another backend than the processor's serves hologram keep that.
void collective(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
  const auto group =
      arguments[*op.schema().argumentIndexWithName("process_group")].toCustomClass<ProcessGroup>();
  if (std::none_of(arguments.begin(), arguments.end(), has_ours) ||
      group->getBackend(c10::DeviceType::PrivateUse1) != group->getBackend(c10::DeviceType::CPU)) {
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER,
                                                  c10::DispatchKey::BackendSelect),
                       stack);
    return;
  }
  const auto loan = std::make_shared<Loan>();
  for (auto it = stack->end() - arguments.size(); it != stack->end(); ++it) *it = loan->lend(*it);
  const BelowAutograd guard;
  op.callBoxed(stack);
  for (auto it = stack->end() - op.schema().returns().size(); it != stack->end(); ++it) {
    if (!it->isCustomClass()) {
      *it = loan->originals(*it);
      continue;
    }
    // What has no future and no result is waited for as it is: sends, receives, and gloo's
    // reduce_scatter of one tensor, which sums in a copy and writes the output in wait().
    auto work = it->toCustomClass<Work>();
    const c10d::OpType type = work->retrieveOpType();
    if (type == c10d::OpType::UNKNOWN || c10d::isP2POp(type)) continue;
    *it = c10::intrusive_ptr<Work>(c10::make_intrusive<LentWork>(std::move(work), loan));
  }
}

// DDP's clock, without which it warns. It takes the times of calls; recorded work may run later.
class CallTimer final : public c10d::Timer {
 public:
  explicit CallTimer(c10::Device) {}
  std::optional<int64_t> measureDifference(Event start, Event end) override {
    const std::optional<int64_t> from = getTimestamp(start);
    const std::optional<int64_t> to = getTimestamp(end);
    if (!from.has_value() || !to.has_value() || *to < *from) return std::nullopt;
    return *to - *from;
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(c10d, BackendSelect, m) {
  for (const char* name : {"send",
                           "recv_",
                           "recv_any_source_",
                           "broadcast_",
                           "allreduce_",
                           "allreduce_coalesced_",
                           "reduce_",
                           "allgather_",
                           "_allgather_base_",
                           "allgather_coalesced_",
                           "allgather_into_tensor_coalesced_",
                           "gather_",
                           "gather_into_tensor_",
                           "scatter_",
                           "reduce_scatter_",
                           "_reduce_scatter_base_",
                           "reduce_scatter_tensor_coalesced_",
                           "alltoall_",
                           "alltoall_base_",
                           "barrier",
                           "monitored_barrier_"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&collective>());
  }
}

}  // namespace hologram_torch

namespace c10d {
C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::kPrivateUse1, hologram_torch::CallTimer)
}  // namespace c10d
