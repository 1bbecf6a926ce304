// SPDX-License-Identifier: MIT
// Layer norm and batch norm on host memory, with their gradients.
#pragma once

#include "hologram/view.h"

namespace hologram {

// Everything is floating; dtypes may differ. Computed in float64 where the input is, else in
// float32, and rounded once. Sums have a fixed order: the same bits for any number of threads.
// Errors: kInvalidArgument for shapes and layouts, kNotSupported for dtypes.

// in and out are [rows, n], a row's elements adjacent; weight and bias (null: 1 and 0) are [n];
// mean and rstd are [rows], all of them dense. out may be in.
//   out = (in - mean) * rstd * weight + bias,  rstd = 1 / sqrt(var + eps),  var without correction
void layer_norm(const View& in, const View* weight, const View* bias, double eps, const View& out,
                const View& mean, const View& rstd, int max_threads = 0);

// The gradients that are wanted (not null): grad_in [rows, n]; grad_weight and grad_bias [n].
void layer_norm_backward(const View& grad, const View& in, const View& mean, const View& rstd,
                         const View* weight, const View* grad_in, const View* grad_weight,
                         const View* grad_bias, int max_threads = 0);

// in and out are [batch, channels, size] of one layout: either the elements of each batch and
// channel adjacent, or the channels of each batch and place adjacent with the places one after
// another. Everything of a channel is a dense [channels], or null: weight 1, bias 0, the running
// statistics and the saved ones not wanted.
struct BatchNormOptions {
  const View* weight = nullptr;
  const View* bias = nullptr;
  const View* running_mean = nullptr;
  const View* running_var = nullptr;
  // With the batch's own statistics (variance without correction); else with the running ones.
  bool training = true;
  // running = (1 - momentum) * running + momentum * the batch's, variance with correction 1
  double momentum = 0.1;
  double eps = 1e-5;
  int max_threads = 0;
};

//   out = (in - mean) * invstd * weight + bias,  invstd = 1 / sqrt(var + eps)
// save_mean and save_invstd receive the batch's, in training.
void batch_norm(const View& in, const View& out, const View* save_mean, const View* save_invstd,
                const BatchNormOptions& options = {});

// The gradients that are wanted (not null), grad and grad_in of in's layout. Of the options weight,
// running statistics, training, eps and max_threads count.
void batch_norm_backward(const View& grad, const View& in, const View* save_mean,
                         const View* save_invstd, const View* grad_in, const View* grad_weight,
                         const View* grad_bias, const BatchNormOptions& options = {});

}  // namespace hologram
