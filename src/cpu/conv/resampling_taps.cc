// SPDX-License-Identifier: MIT
// The taps of pooling and interpolation, and the same from the inputs' side.
#include "src/cpu/conv/resampling_taps.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace hologram::cpu {
namespace {

template <class T>
AxisTaps<T> no_taps(int64_t inputs, int64_t outputs, int64_t most, bool weighted) {
  AxisTaps<T> taps;
  taps.inputs = inputs, taps.outputs = outputs, taps.most = most;
  taps.input.assign(static_cast<size_t>(outputs * most), 0);
  if (weighted) taps.weight.assign(static_cast<size_t>(outputs * most), T(0));
  taps.count.assign(static_cast<size_t>(outputs), 0);
  return taps;
}

// Output i gets inputs [begin, end).
template <class T>
void set_window(AxisTaps<T>& taps, int64_t i, int64_t begin, int64_t end) {
  for (int64_t at = begin; at < end; ++at) {
    taps.input[static_cast<size_t>(i * taps.most + at - begin)] = at;
  }
  taps.count[static_cast<size_t>(i)] = std::max<int64_t>(0, end - begin);
}

template <class T>
AxisTaps<T> window_taps(const ResamplingArgs& a, size_t axis, int64_t in, int64_t out) {
  AxisTaps<T> taps = no_taps<T>(in, out, std::min(a.kernel[axis], in), false);
  taps.divisor.assign(static_cast<size_t>(out), T(1));
  for (int64_t i = 0; i < out; ++i) {
    const int64_t start = i * a.stride[axis] - a.padding[axis];
    const int64_t stop = std::min(start + a.kernel[axis], in + a.padding[axis]);
    const int64_t begin = std::clamp<int64_t>(start, 0, in), end = std::clamp(stop, begin, in);
    set_window(taps, i, begin, end);
    T& divisor = taps.divisor[static_cast<size_t>(i)];
    if (a.divisor != 0) {
      divisor = axis == 0 ? static_cast<T>(a.divisor) : T(1);
    } else if (end > begin) {
      divisor = static_cast<T>(a.flag ? stop - start : end - begin);
    }
  }
  return taps;
}

template <class T>
AxisTaps<T> adaptive_taps(int64_t in, int64_t out) {
  const auto begin_of = [&](int64_t i) { return i / out * in + i % out * in / out; };
  const auto end_of = [&](int64_t i) { return 1 + ((i + 1) * in - 1) / out; };
  int64_t most = 0;
  for (int64_t i = 0; i < out; ++i) most = std::max(most, end_of(i) - begin_of(i));
  AxisTaps<T> taps = no_taps<T>(in, out, most, false);
  for (int64_t i = 0; i < out; ++i) {
    set_window(taps, i, begin_of(i), end_of(i));
    taps.divisor.push_back(static_cast<T>(end_of(i) - begin_of(i)));
  }
  return taps;
}

// Inputs per output, in the arithmetic of T.
template <class T>
T step_of(double scale, int64_t in, int64_t out) {
  return scale > 0 ? static_cast<T>(1.0 / scale) : static_cast<T>(in) / static_cast<T>(out);
}
double step_of(const ResamplingArgs& a, size_t axis, int64_t in, int64_t out) {
  if (!a.flag) return step_of<double>(a.scales[axis], in, out);
  return out > 1 ? static_cast<double>(in - 1) / static_cast<double>(out - 1) : 0;
}

// The input that an output of nearest interpolation takes. PyTorch counts in float32 where it
// ignores scales, and rounds what it counts in float64.
template <class T>
int64_t nearest_input(const ResamplingArgs& a, size_t axis, int64_t i, int64_t in, int64_t out) {
  const bool exact = a.kind == Resampling::nearest_exact;
  float at = 0;
  if (a.flag) {
    if (!exact && in == out) return i;
    if (!exact && out == 2 * in) return i / 2;
    const float step = step_of<float>(a.scales[axis], in, out);
    at = exact ? static_cast<float>((static_cast<double>(i) + 0.5) * static_cast<double>(step))
               : static_cast<float>(i) * step;
  } else {
    const T step = step_of<T>(a.scales[axis], in, out);
    const T place = step * (static_cast<T>(i) + T(0.5)) - T(0.5);
    at = static_cast<float>(exact ? std::max(place, T(0)) + T(0.5) : step * static_cast<T>(i));
  }
  return std::min(static_cast<int64_t>(std::floor(at)), in - 1);
}

template <class T>
AxisTaps<T> nearest_taps(const ResamplingArgs& a, size_t axis, int64_t in, int64_t out) {
  AxisTaps<T> taps = no_taps<T>(in, out, 1, false);
  for (int64_t i = 0; i < out; ++i) {
    const int64_t at = nearest_input<T>(a, axis, i, in, out);
    set_window(taps, i, at, at + 1);
  }
  return taps;
}

// Where an output lies among the inputs. In float64: what is rounded in a position is many times
// that in the result.
double position(const ResamplingArgs& a, double step, int64_t i) {
  if (a.flag) return step * static_cast<double>(i);
  const double at = step * (static_cast<double>(i) + 0.5) - 0.5;
  return a.kind == Resampling::linear ? std::max(at, 0.0) : at;
}

// The input at or before a position, and how far it lies behind that.
struct Place {
  int64_t low;
  double part;
};
Place place_of(double at, int64_t in) {
  const int64_t low = std::min(static_cast<int64_t>(std::floor(at)), in - 1);
  return {low, std::clamp(at - static_cast<double>(low), 0.0, 1.0)};
}

template <class T>
void set_tap(AxisTaps<T>& taps, int64_t i, int64_t at, double weight) {
  int64_t& count = taps.count[static_cast<size_t>(i)];
  const auto place = static_cast<size_t>(i * taps.most + count++);
  taps.input[place] = at, taps.weight[place] = static_cast<T>(weight);
}

template <class T>
AxisTaps<T> linear_taps(const ResamplingArgs& a, size_t axis, int64_t in, int64_t out) {
  if (in == out) return nearest_taps<T>({}, axis, in, out);
  AxisTaps<T> taps = no_taps<T>(in, out, 2, true);
  const double step = step_of(a, axis, in, out);
  for (int64_t i = 0; i < out; ++i) {
    const auto [low, part] = place_of(position(a, step, i), in);
    set_tap(taps, i, low, 1 - part);
    set_tap(taps, i, std::min(low + 1, in - 1), part);
  }
  return taps;
}

std::array<double, 4> cubic_weights(double t) {
  constexpr double kA = -0.75;
  const auto near = [](double x) { return ((kA + 2) * x - (kA + 3)) * x * x + 1; };
  const auto far = [](double x) { return ((kA * x - 5 * kA) * x + 8 * kA) * x - 4 * kA; };
  return {far(t + 1), near(t), near(1 - t), far(2 - t)};
}

template <class T>
AxisTaps<T> cubic_taps(const ResamplingArgs& a, size_t axis, int64_t in, int64_t out) {
  if (in == 1 && out == 1) return nearest_taps<T>({}, axis, in, out);  // an axis that is not there
  AxisTaps<T> taps = no_taps<T>(in, out, 4, true);
  const double step = step_of(a, axis, in, out);
  for (int64_t i = 0; i < out; ++i) {
    const auto [low, part] = place_of(position(a, step, i), in);
    const std::array<double, 4> weights = cubic_weights(part);
    for (int64_t k = 0; k < 4; ++k) {
      set_tap(taps, i, std::clamp<int64_t>(low - 1 + k, 0, in - 1),
              weights[static_cast<size_t>(k)]);
    }
  }
  return taps;
}

// The same sums from the inputs' side: each input gets what it gave.
template <class T>
AxisTaps<T> transposed(const AxisTaps<T>& from) {
  std::vector<int64_t> readers(static_cast<size_t>(from.inputs), 0);
  const auto for_taps = [&](auto&& f) {
    for (int64_t i = 0; i < from.outputs; ++i) {
      for (int64_t k = 0; k < from.count[static_cast<size_t>(i)]; ++k) {
        f(i, static_cast<size_t>(i * from.most + k));
      }
    }
  };
  for_taps([&](int64_t, size_t place) { ++readers[static_cast<size_t>(from.input[place])]; });
  const bool weighted = !from.weight.empty() || !from.divisor.empty();
  const int64_t most = readers.empty() ? 0 : *std::max_element(readers.begin(), readers.end());
  AxisTaps<T> taps = no_taps<T>(from.outputs, from.inputs, most, weighted);
  for_taps([&](int64_t i, size_t place) {
    const auto to = static_cast<size_t>(from.input[place]);
    const auto at = to * static_cast<size_t>(most) + static_cast<size_t>(taps.count[to]++);
    taps.input[at] = i;
    if (!weighted) return;
    taps.weight[at] = from.weight.empty() ? T(1) : from.weight[place];
    if (!from.divisor.empty()) taps.weight[at] /= from.divisor[static_cast<size_t>(i)];
  });
  return taps;
}

template <class T>
AxisTaps<T> forward_taps(const ResamplingArgs& a, size_t axis) {
  const int64_t in = a.in_size[axis], out = a.out_size[axis];
  switch (a.kind) {
    case Resampling::windows:
      return window_taps<T>(a, axis, in, out);
    case Resampling::adaptive:
      return adaptive_taps<T>(in, out);
    case Resampling::linear:
      return linear_taps<T>(a, axis, in, out);
    case Resampling::cubic:
      return cubic_taps<T>(a, axis, in, out);
    default:
      return nearest_taps<T>(a, axis, in, out);
  }
}

}  // namespace

template <class T>
AxisTaps<T> make_axis_taps(const ResamplingArgs& args, size_t axis) {
  AxisTaps<T> taps = forward_taps<T>(args, axis);
  return args.is_gradient ? transposed(taps) : taps;
}
template AxisTaps<float> make_axis_taps(const ResamplingArgs&, size_t);
template AxisTaps<double> make_axis_taps(const ResamplingArgs&, size_t);

}  // namespace hologram::cpu
