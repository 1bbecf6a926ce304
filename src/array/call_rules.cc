// SPDX-License-Identifier: MIT
// The rules of calls that a schema cannot say, by name of the call.
#include <algorithm>
#include <string_view>

#include "hologram/error.h"
#include "hologram/recurrent.h"
#include "src/array/call_shapes.h"
#include "src/base/text.h"

namespace hologram::array {
namespace {

void at_least(const CallSettling& call, std::string_view name, int64_t least) {
  for (const int64_t value : call.integers(name)) {
    if (value < least) call.refuse(name, " is ", value, "; it has to be ", least, " or more");
  }
}

void check_windows(const CallSettling& call) {
  at_least(call, "stride", 1);
  at_least(call, "dilation", 1);
  at_least(call, "padding", 0);
}

void check_groups(const CallSettling& call) {
  const int64_t groups = call.integer("groups"), outputs = call.size("O");
  if (groups < 1 || outputs % groups != 0) {
    call.refuse("groups is ", groups, ", which does not divide the ", outputs, " output channels");
  }
}

void check_rank(const CallSettling& call, const Shape& places, const Shape& kernel) {
  if (places.size() != kernel.size() || places.empty() || places.size() > 3) {
    call.refuse("takes one to three dimensions behind the first two, as many for the kernel, got ",
                places.size(), " and ", kernel.size());
  }
  for (const int64_t size : kernel) {
    if (size < 1) call.refuse("the kernel has a size of ", size, "; it has to be 1 or more");
  }
}

// The places of windows of `kernel` over `in`.
Shape windows(const CallSettling& call, const Shape& in, const Shape& kernel, bool ceil) {
  const Shape &stride = call.integers("stride"), &padding = call.integers("padding");
  const Shape& dilation = call.integers("dilation");
  Shape places;
  for (size_t d = 0; d < in.size(); ++d) {
    const int64_t room = in[d] + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1;
    if (room < 0) {
      call.refuse("the kernel reaches over ", dilation[d] * (kernel[d] - 1) + 1,
                  " places of dimension ", d + 2, ", which has ", in[d] + 2 * padding[d],
                  " with its padding");
    }
    int64_t count = (room + (ceil ? stride[d] - 1 : 0)) / stride[d] + 1;
    // The last window begins inside, or in the padding before.
    if (ceil && (count - 1) * stride[d] >= in[d] + padding[d]) --count;
    places.push_back(count);
  }
  return places;
}

void rule_convolution(CallSettling& call) {
  check_rank(call, call.run("S"), call.run("K"));
  check_windows(call);
  check_groups(call);
  call.set_run("P", windows(call, call.run("S"), call.run("K"), false));
}

void rule_convolution_backward_input(CallSettling& call) {
  const Shape &places = call.run("P"), &kernel = call.run("K");
  check_rank(call, places, kernel);
  check_windows(call);
  check_groups(call);
  const Shape &stride = call.integers("stride"), &padding = call.integers("padding");
  const Shape &dilation = call.integers("dilation"), &more = call.integers("output_padding");
  Shape sizes;
  for (size_t d = 0; d < places.size(); ++d) {
    if (more[d] < 0 || (more[d] >= stride[d] && more[d] >= dilation[d])) {
      call.refuse("output_padding is ", more[d], "; it has to be less than the stride ", stride[d],
                  " or the dilation ", dilation[d]);
    }
    sizes.push_back((places[d] - 1) * stride[d] - 2 * padding[d] + dilation[d] * (kernel[d] - 1) +
                    more[d] + 1);
    if (sizes.back() < 1) {
      call.refuse("dimension ", d + 2, " of the result would have ", sizes.back(), " places");
    }
  }
  call.set_run("S", sizes);
}

void rule_convolution_backward_weight(CallSettling& call) {
  call.set_run("K", call.integers("kernel_size"));
  check_rank(call, call.run("S"), call.run("K"));
  check_windows(call);
  check_groups(call);
  const Shape places = windows(call, call.run("S"), call.run("K"), false);
  if (places != call.run("P")) {
    call.refuse("grad has places ", shape_text(call.run("P")), "; the input gives ",
                shape_text(places));
  }
}

// in: what is pooled, `places` are those of the windows; each has an element of `in`.
void check_pooling(const CallSettling& call, const Shape& in, const Shape& places) {
  const Shape &kernel = call.integers("kernel_size"), &stride = call.integers("stride");
  const Shape &padding = call.integers("padding"), &dilation = call.integers("dilation");
  for (size_t d = 0; d < kernel.size(); ++d) {
    if (padding[d] > kernel[d] / 2) {
      call.refuse("padding is ", padding[d], "; it has to be at most half the kernel's size ",
                  kernel[d]);
    }
    // Where the last window begins.
    const int64_t last = (places[d] - 1) * stride[d] - padding[d];
    const bool gap = dilation[d] > std::max<int64_t>(1, in[d]) && kernel[d] > 1;
    if (in[d] < 0 || (places[d] > 0 && (last >= in[d] || in[d] == 0 || gap))) {
      call.refuse("dimension ", d + 2, " has ", places[d], " windows of which some lie outside ",
                  in[d], " elements: kernel ", kernel[d], ", stride ", stride[d], ", padding ",
                  padding[d], ", dilation ", dilation[d]);
    }
  }
}

void rule_max_pool(CallSettling& call) {
  const Shape &in = call.run("S"), &kernel = call.integers("kernel_size");
  check_rank(call, in, kernel);
  check_windows(call);
  const Shape places = windows(call, in, kernel, call.integer("ceil_mode") != 0);
  check_pooling(call, in, places);
  call.set_run("P", places);
}

void rule_max_pool_backward(CallSettling& call) {
  const Shape &in = call.integers("input_size"), &places = call.run("P");
  check_rank(call, places, call.integers("kernel_size"));
  check_windows(call);
  check_pooling(call, in, places);
  call.set_run("S", in);
}

void rule_batch_norm(CallSettling& call) {
  const bool running = call.is_given("running_mean") && call.is_given("running_var");
  if (call.integer("training") == 0 && !running) {
    call.refuse("running_mean and running_var are missing; without training they are what is used");
  }
}

void rule_dropout(CallSettling& call) {
  const double p = call.number("p");
  if (!(p >= 0 && p < 1)) call.refuse("p is ", p, "; it has to be in [0, 1)");
}

void rule_real(CallSettling& call) {
  const Dtype dtype = call.dtype_of(call.op().operands[0]);
  if (is_complex(dtype)) {
    fail(ErrorKind::kTypeMismatch, call.op().name, ": ", call.op().operands[0].name, " is ",
         dtype_name(dtype), "; it has to be real");
  }
}

void rule_bernoulli(CallSettling& call) {
  rule_real(call);
  const double p = call.number("p");
  if (!(p >= 0 && p <= 1)) call.refuse("p is ", p, "; it has to be in [0, 1]");
}

void rule_adam(CallSettling& call) {
  if (call.integer("amsgrad") != 0 && !call.is_given("max_exp_avg_sqs")) {
    call.refuse("max_exp_avg_sqs is missing; amsgrad needs it");
  }
}

void rule_sgd(CallSettling& call) {
  if (call.number("momentum") != 0 && !call.is_given("momentum_buffers")) {
    call.refuse("momentum_buffers is missing; momentum needs it");
  }
}

// The steps of a recurrence; `rows`: the operand that has them.
int64_t steps_of(const CallSettling& call, const char* rows) {
  const Shape& all = call.run("S");
  const bool packed = call.is_given("batch_sizes");
  if (all.size() != (packed ? 1u : 2u) || (!packed && all[1] != call.size("N"))) {
    call.refuse("the rows of ", rows, " have shape ", shape_text(all), "; ",
                packed ? "with batch_sizes, they lie one after another"
                       : "they have to have steps and the batch of the states");
  }
  const int64_t steps = packed ? call.size("L") : all[0];
  if (steps == 0) call.refuse("there are no steps; give one or more");
  return steps;
}

// Columns of h of an LSTM where it is projected, or 0.
int64_t projection_of(const CallSettling& call) {
  const int64_t columns = call.size("P"), hidden = call.size("H");
  if (call.is_given("weight_hr")) {
    if (columns < 1) {
      call.refuse("h is projected to ", columns, " columns; it has to have 1 or more");
    }
    return columns;
  }
  if (columns != hidden) {
    call.refuse("weight has ", columns, " columns for ", hidden,
                " units; without weight_hr it has as many");
  }
  return 0;
}

void rule_lstm_recurrence(CallSettling& call) {
  const int64_t steps = steps_of(call, "gates");
  call.set_size("W", lstm_workspace(steps, call.size("N"), call.size("H"), projection_of(call)));
}

void rule_lstm_backward(CallSettling& call) {
  steps_of(call, "gates");
  const int64_t projection = projection_of(call);
  if (projection > 0 && !(call.is_given("grad_projection") && call.is_given("projected"))) {
    call.refuse("with weight_hr, grad_projection and projected have to be given; they are written");
  }
  call.set_size("W", lstm_backward_workspace(call.size("N"), call.size("H"), projection));
}

void rule_gru_forward(CallSettling& call) {
  const int64_t steps = steps_of(call, "gates");
  call.set_size("W", gru_workspace(steps, call.size("N"), call.size("H")));
}

void rule_gru_backward(CallSettling& call) {
  steps_of(call, "gates");
  call.set_size("W", gru_backward_workspace(call.size("N"), call.size("H")));
}

void rule_rnn_forward(CallSettling& call) { steps_of(call, "gates"); }

void rule_rnn_backward(CallSettling& call) {
  if (!call.is_given("grad_h_n")) {
    // Nothing else has the batch.
    if (call.is_given("batch_sizes")) call.refuse("with batch_sizes, grad_h_n has to be given");
    if (call.run("S").size() == 2) call.set_size("N", call.run("S")[1]);
  }
  steps_of(call, "output");
}

void rule_pack_rows(CallSettling& call) {
  if (call.integer("rows") < 0) call.refuse("rows is ", call.integer("rows"), ", below 0");
}

void rule_pad_rows(CallSettling& call) {
  if (call.integer("steps") < call.size("L") || call.integer("batch") < 0) {
    call.refuse("room for ", call.integer("steps"), " steps of ", call.integer("batch"),
                " rows; batch_sizes has ", call.size("L"), " steps");
  }
}

}  // namespace

void apply_rule(CallSettling& call) {
  struct Rule {
    std::string_view name;
    void (*apply)(CallSettling&);
  };
  constexpr Rule kRules[] = {
      {"convolution", rule_convolution},
      {"convolution_backward_input", rule_convolution_backward_input},
      {"convolution_backward_weight", rule_convolution_backward_weight},
      {"max_pool", rule_max_pool},
      {"max_pool_backward", rule_max_pool_backward},
      {"batch_norm", rule_batch_norm},
      {"batch_norm_backward", rule_batch_norm},
      {"dropout", rule_dropout},
      {"adam", rule_adam},
      {"sgd", rule_sgd},
      {"bernoulli", rule_bernoulli},
      {"integers", rule_real},
      {"searchsorted", rule_real},
      {"lstm_recurrence", rule_lstm_recurrence},
      {"lstm_forward", rule_lstm_recurrence},
      {"lstm_backward", rule_lstm_backward},
      {"gru_forward", rule_gru_forward},
      {"gru_backward", rule_gru_backward},
      {"rnn_forward", rule_rnn_forward},
      {"rnn_backward", rule_rnn_backward},
      {"pack_rows", rule_pack_rows},
      {"pad_rows", rule_pad_rows},
  };
  for (const Rule& rule : kRules) {
    if (rule.name == call.op().name) return rule.apply(call);
  }
}

}  // namespace hologram::array
