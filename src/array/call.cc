// SPDX-License-Identifier: MIT
// Calls of the catalogue on tensors, made from the description of their rows.
#include "hologram/calls.h"

#include <algorithm>
#include <cmath>

#include "hologram/error.h"
#include "hologram/functions.h"
#include "src/array/array.h"
#include "src/array/call_shapes.h"
#include "src/array/record_call.h"
#include "src/array/unsigned.h"

namespace hologram {
namespace array {
namespace {

using Kind = CallParameterInfo::Kind;

// A position out of range has to be found at the call, not when the circuit runs.
template <class T>
void check_positions(const CallOp& op, const CallOperandInfo& info, const Tensor& positions,
                     int64_t size) {
  std::vector<T> values(static_cast<size_t>(positions.numel()));
  const Shape strides = contiguous_strides(positions.shape());
  read(positions, {values.data(), positions.dtype(), positions.ndim(), positions.shape().data(),
                   strides.data()});
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] >= 0 && values[i] < size) continue;
    fail(ErrorKind::kIndex, op.name, ": ", info.name, " holds ", values[i], " at position ", i,
         ", which is out of range for size ", size);
  }
}

// What is known to work on the carriers of uint16, uint32 and uint64: calls that move bits, or that
// add or fill, where the sign makes no difference.
bool takes_carriers(std::string_view name) {
  constexpr std::string_view kNames[] = {"take",     "put_at",      "gather",      "scatter",
                                         "triangle", "bernoulli",   "integers",    "pack_rows",
                                         "pad_rows", "rows_before", "searchsorted"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

// One call: its inputs made ready, its results made, its parameters given in the row's order.
class TableCall {
 public:
  TableCall(std::string_view name, std::span<const CallInput> inputs,
            std::span<const CallArgument> arguments)
      : op_(call_op(name)), inputs_(inputs), settled_(op_, inputs, arguments) {
    check_devices();
    check_scatter();
    for (const CallOperandInfo& info : op_.operands) {
      if (info.is_result) results_.push_back(make_result(info));
    }
    for (size_t k = 0; k < inputs_.size(); ++k) {
      const CallOperandInfo& info = op_.operands[k];
      if (info.positions_in.empty() || !inputs_[k].is_given()) continue;
      std::string_view in = info.positions_in;
      const int64_t size = std::islower(static_cast<unsigned char>(in[0])) != 0
                               ? settled_.integer(in)
                               : settled_.size(in);
      const Tensor& positions = inputs_[k].tensor();
      positions.dtype() == Dtype::kInt64 ? check_positions<int64_t>(op_, info, positions, size)
                                         : check_positions<int32_t>(op_, info, positions, size);
    }
  }

  std::vector<Tensor>& results() { return results_; }

  void run() {
    if (leaves_nothing()) return;
    for (size_t k = 0; k < op_.operands.size() && !op_.operands[k].is_result; ++k) ready(k);
    check_lists();
    CallRecord record;
    for (size_t k = 0; k < ready_.size(); ++k) add_operand(record, k);
    for (const Tensor& result : results_) {
      const Tensor bits = carrier(result);
      record.operand(Arg::of<Access::writes>(bits.numel() == 0 ? nullptr : &bits));
    }
    add_parameters(record);
    record.run(static_cast<CallNumber>(op_.number));
    for (const auto& [from, to] : copied_back_) copy_into(from, to);
  }

 private:
  bool has_lists() const {
    return std::any_of(op_.operands.begin(), op_.operands.end(),
                       [](const CallOperandInfo& info) { return info.is_list; });
  }
  size_t list_size() const {
    for (size_t k = 0; k < inputs_.size(); ++k) {
      if (inputs_[k].is_list() && inputs_[k].is_given()) return inputs_[k].tensors().size();
    }
    return 0;
  }

  void check_devices() {
    for (const CallInput& input : inputs_) {
      for (const Tensor& tensor : input.tensors()) {
        if (first_ == nullptr) first_ = &tensor;
        device_of(op_.name, *first_, tensor);
        if (is_stored_only(tensor.dtype()) && !takes_carriers(op_.name)) {
          fail(ErrorKind::kTypeMismatch, op_.name, ": is not defined for ",
               dtype_name(tensor.dtype()), "; cast the tensor to int64 or to a floating dtype");
        }
      }
    }
    if (first_ == nullptr) settled_.refuse("no tensor was given; its schema: ", op_.schema);
  }

  Tensor make_result(const CallOperandInfo& info) const {
    return fresh(settled_.shape_of(info), settled_.dtype_of(info), device_of(*first_));
  }

  // Additions of integers of 16 bits have no kernel, whatever their sign.
  void check_scatter() const {
    if (op_.name != std::string_view("scatter") || settled_.integer("add") == 0) return;
    const Dtype dtype = first_->dtype();
    if (dtype == Dtype::kUInt16) {
      fail(ErrorKind::kTypeMismatch, "scatter: does not add numbers of ", dtype_name(dtype),
           "; cast the tensors to uint32 or int64");
    }
  }

  // Nothing to compute, or sums of nothing.
  bool leaves_nothing() const {
    const auto is_empty = [](const Tensor& t) { return t.numel() == 0; };
    if (has_lists()) return list_size() == 0;
    if (!results_.empty() && std::all_of(results_.begin(), results_.end(), is_empty)) return true;
    const bool no_input = std::any_of(inputs_.begin(), inputs_.end(), [&](const CallInput& input) {
      return input.is_given() && is_empty(input.tensor());
    });
    if (!no_input) return false;
    for (const Tensor& result : results_) {
      if (!is_empty(result)) fill_into(Scalar(int64_t{0}), result);
    }
    return true;
  }

  // Makes input k contiguous and, where it is written, apart from all the others.
  void ready(size_t k) {
    std::vector<Tensor>& list = ready_.emplace_back();
    if (k >= inputs_.size()) return;
    const CallOperandInfo& info = op_.operands[k];
    for (const Tensor& given : inputs_[k].tensors()) {
      Tensor tensor = given;
      if (info.broadcasts) tensor = broadcast(tensor, settled_.shape_of(info));
      if (info.is_updated) {
        if (given.may_overlap_itself()) {
          settled_.refuse(info.name, " is written and has several elements in one place");
        }
        if (!given.is_contiguous()) {
          tensor = info.is_covered ? fresh(given.shape(), given.dtype(), device_of(given))
                                   : copy_of(given, given.dtype());
          copied_back_.emplace_back(tensor, given);
        }
      } else if (!tensor.is_contiguous() || is_written(tensor)) {
        tensor = copy_of(tensor, tensor.dtype());
      }
      // It compares; all others are given the bits as they are, see takes_carriers().
      if (is_stored_only(tensor.dtype()) && op_.name == std::string_view("searchsorted")) {
        tensor = turned(tensor);
      }
      list.push_back(tensor);
    }
  }
  bool is_written(const Tensor& tensor) const {
    for (size_t k = 0; k < inputs_.size(); ++k) {
      if (!op_.operands[k].is_updated) continue;
      for (const Tensor& other : inputs_[k].tensors()) {
        if (may_overlap(other, tensor)) return true;
      }
    }
    return false;
  }

  void add_operand(CallRecord& record, size_t k) const {
    const CallOperandInfo& info = op_.operands[k];
    const Access access = info.is_covered   ? Access::writes
                          : info.is_updated ? Access::updates
                                            : Access::reads;
    if (info.is_list) record(static_cast<int64_t>(ready_[k].size()));
    for (const Tensor& tensor : ready_[k]) {
      const Tensor bits = carrier(tensor);
      record.operand({&bits, access});
    }
    if (!info.is_list && ready_[k].empty()) record.operand({});
  }

  void add_parameters(CallRecord& record) {
    for (const CallParameterInfo& info : op_.parameters) {
      if (info.only_shapes) continue;
      switch (info.kind) {
        case Kind::integer:
          record(settled_.integer(info.name));
          break;
        case Kind::boolean:
          record(settled_.integer(info.name) != 0);
          break;
        case Kind::integers:
          record(calls::Ints(settled_.integers(info.name)));
          break;
        case Kind::number:
          record(settled_.number(info.name));
          break;
        case Kind::word:
          record(static_cast<uint64_t>(settled_.integer(info.name)));
          break;
        case Kind::scalar:
          if (!info.is_list) {
            record(calls::Scalar<Arg>(settled_.number(info.name)));
            break;
          }
          std::vector<calls::Scalar<Arg>> scalars;
          for (size_t i = 0; i < list_size(); ++i) {
            scalars.emplace_back(settled_.number_at(info.name, i, list_size()));
          }
          record(calls::ScalarList<Arg>(scalars));
          break;
      }
    }
  }

  // Lists agree in length and, one by one, in shape.
  void check_lists() const {
    const size_t count = list_size();
    const std::vector<Tensor>* first = nullptr;
    for (size_t k = 0; k < ready_.size(); ++k) {
      const CallOperandInfo& info = op_.operands[k];
      if (!info.is_list || ready_[k].empty()) continue;
      if (ready_[k].size() != count) {
        settled_.refuse(info.name, " has ", ready_[k].size(), " tensors; the first list has ",
                        count);
      }
      if (first == nullptr) first = &ready_[k];
      for (size_t i = 0; i < count; ++i) {
        if (ready_[k][i].shape() == (*first)[i].shape()) continue;
        settled_.refuse(info.name, " ", i, " has shape ", shape_text(ready_[k][i].shape()),
                        "; that of the first list has ", shape_text((*first)[i].shape()));
      }
    }
  }

  const CallOp& op_;
  std::span<const CallInput> inputs_;
  CallSettling settled_;
  const Tensor* first_ = nullptr;
  std::vector<Tensor> results_;
  std::vector<std::vector<Tensor>> ready_;
  std::vector<std::pair<Tensor, Tensor>> copied_back_;
};

}  // namespace
}  // namespace array

std::vector<Tensor> call(std::string_view name, std::span<const CallInput> inputs,
                         std::span<const CallArgument> arguments) {
  array::TableCall call(name, inputs, arguments);
  call.run();
  return std::move(call.results());
}

void call_into(std::string_view name, std::span<const CallInput> inputs,
               std::span<const CallArgument> arguments, std::span<const Tensor> results) {
  array::TableCall call(name, inputs, arguments);
  std::vector<Tensor>& made = call.results();
  const std::string text(name);
  if (results.size() > made.size()) {
    fail(ErrorKind::kInvalidArgument, name, ": gives ", made.size(), " results, and ",
         results.size(), " tensors for them were given");
  }
  for (size_t k = 0; k < results.size(); ++k) {
    array::check_result(text.c_str(), results[k]);
    array::device_of(text.c_str(), made[k], results[k]);
    if (results[k].shape() != made[k].shape()) {
      fail(ErrorKind::kInvalidArgument, name, ": result ", k, " has shape ",
           shape_text(made[k].shape()), ", out has ", shape_text(results[k].shape()));
    }
    if (results[k].dtype() != made[k].dtype()) {
      fail(ErrorKind::kTypeMismatch, name, ": result ", k, " is ", dtype_name(made[k].dtype()),
           ", out is ", dtype_name(results[k].dtype()), "; give an out of that dtype");
    }
  }
  const auto apart = [&](const Tensor& result) {
    return result.is_contiguous() &&
           std::none_of(inputs.begin(), inputs.end(), [&](const CallInput& input) {
             return std::any_of(input.tensors().begin(), input.tensors().end(),
                                [&](const Tensor& t) { return array::may_overlap(result, t); });
           });
  };
  // Results that share memory are written one after another.
  std::vector<size_t> later;
  for (size_t k = 0; k < results.size(); ++k) {
    const auto before = results.first(k);
    if (apart(results[k]) && std::none_of(before.begin(), before.end(), [&](const Tensor& other) {
          return array::may_overlap(results[k], other);
        })) {
      made[k] = results[k];
    } else {
      later.push_back(k);
    }
  }
  call.run();
  for (const size_t k : later) copy_into(made[k], results[k]);
}

LstmResult lstm(const Tensor& x, const Tensor& h0, const Tensor& c0, const Tensor& weight_ih,
                const Tensor& weight_hh, const Tensor* bias_ih, const Tensor* bias_hh,
                bool reverse) {
  if (x.ndim() != 3) {
    fail(ErrorKind::kInvalidArgument, "lstm: x has to have shape [steps, batch, inputs], got ",
         shape_text(x.shape()));
  }
  const Tensor gates = linear(x, weight_ih, bias_ih);
  std::vector<Tensor> results =
      call("lstm_recurrence", {gates, weight_hh, bias_hh, h0, c0}, {{"reverse", reverse}});
  return {results[0], results[1], results[2]};
}

}  // namespace hologram
