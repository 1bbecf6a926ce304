// SPDX-License-Identifier: MIT
// Convolution as a product whose right operand is unfolded panel by panel while it is packed.
#include "src/cpu/conv/convolution.h"

#include <algorithm>
#include <vector>

#include "src/cpu/conv/channels_last.h"
#include "src/cpu/conv/convolution_work.h"
#include "src/cpu/conv/depthwise_kernels.h"
#include "src/cpu/conv/plane_bands.h"
#include "src/cpu/conv/plane_kernels.h"
#include "src/cpu/conv/winograd.h"
#include "src/cpu/gemm/pack_buffer.h"

namespace hologram {
namespace cpu {
namespace {

// Images of at least this many panels are walked one by one, since neighbouring panels share
// rows of the input; smaller ones place by place, since the same places share a plan.
constexpr int64_t kWalkImages = 8;
// Panels that a depthwise convolution walks in a plane before it turns to the next: long enough for
// the processor to see where it goes.
constexpr int64_t kPlanePanels = 96;
// Elements of results that are kept until they are moved to their images.
constexpr int64_t kKeptResults = int64_t{1} << 16;
// The cost of packing a panel, in rows of the product, as measured: of places that are read where
// they lie, of others of stride 1, and of those that are further apart.
constexpr double kPackPlaces = 4, kPackTaps = 10, kPackStrided = 28;
// Elements of a band of a plane, which stay near until they are handed over, and of small planes
// that are handed over together.
constexpr int64_t kHandedElements = 8192;

// Whether output i reads place i alone, and places have step 1.
bool reads_places(const ConvolutionArgs& a) {
  if (!reads_each_once(a)) return false;
  int64_t step = 1;
  for (size_t i = 3; i-- > 0;) {
    if (a.in_size[i] != 1 && a.x_strides.size[i] != step) return false;
    step *= a.in_size[i];
  }
  return true;
}

// y = w x + bias for dense images. The columns of the product are output positions: those of an
// image in panels, or, where an image fills its panels badly, those of all images in a row.
template <class T>
class ConvolutionForward {
 public:
  // The epilogue, or null, gets blocks of y, whose rows are the channels of all images. Without y
  // they lie in scratch, which stays in the caches.
  ConvolutionForward(const ConvolutionArgs& args, const T* x, const T* w, const T* bias, T* y,
                     const CallEpilogue* epilogue)
      : a_(args),
        product_(gemm_kernel(current_isa(), T())),
        columns_(conv_kernel(current_isa(), T())),
        depthwise_(depthwise_kernel(current_isa(), T())),
        taps_(args),
        x_(x),
        w_(w),
        bias_(bias),
        y_(y),
        epilogue_(epilogue),
        channels_(args.in_channels / args.groups),
        rows_(args.out_channels / args.groups),
        depth_(channels_ * taps_.count()),
        places_(volume(args.out_size)) {
    const int64_t lanes = product_.cols / 2;
    panels_per_image_ = ceil_div(places_, product_.cols);
    is_depthwise_ = channels_ == 1 && rows_ == 1;
    // A panel of no more than one vector costs half.
    joined_ =
        !is_depthwise_ && a_.batch > 1 &&
        static_cast<double>(places_) < 0.85 * static_cast<double>(ceil_div(places_, lanes) * lanes);
    panels_ = joined_ ? ceil_div(a_.batch * places_, product_.cols) : a_.batch * panels_per_image_;
    image_major_ = !joined_ && panels_per_image_ >= kWalkImages;
    reads_places_ = !joined_ && reads_places(a_);
    source_.low = source_.high = x;
    if (depth_ > 0) {
      source_.high += 1 + (a_.batch - 1) * a_.x_strides.batch;
      source_.high += (a_.in_channels - 1) * a_.x_strides.channel;
      for (size_t i = 0; i < 3; ++i) source_.high += (a_.in_size[i] - 1) * a_.x_strides.size[i];
    }
    source_.channel = a_.x_strides.channel;
    source_.channels = channels_, source_.taps = taps_.count();
    source_.tap = taps_.positions();
    source_.channels_last = a_.weight_channels_last;
    turned_ = a_.weight_turned;
  }

  // False, with nothing done, where the epilogue needs blocks that there are not.
  bool run() {
    if (depth_ == 0) {
      if (epilogue_ != nullptr) return false;
      fill();
      return true;
    }
    const int threads = threads_of(a_);
    const int64_t work = a_.groups * rows_ * depth_ * a_.batch * places_;
    if (is_depthwise_) turn(threads);
    if (is_depthwise_ && is_flat(a_)) return planes(work, threads);
    if (is_depthwise_) {
      if (epilogue_ != nullptr) return false;
      // Reading an element costs as much as some multiplications of a product.
      const ConvGrid grid =
          choose_conv_grid(a_.groups, 1, panels_, kPlanePanels, 1, 8 * work, 1, threads);
      parallel_for(grid.rows * grid.cols, threads, [&](int64_t begin, int64_t end, int) {
        for (int64_t task = begin; task < end; ++task) {
          const int64_t r = task % grid.rows, c = task / grid.rows;
          depthwise_block(a_.groups * r / grid.rows, a_.groups * (r + 1) / grid.rows,
                          panels_ * c / grid.cols, panels_ * (c + 1) / grid.cols);
        }
      });
      return true;
    }
    const int64_t widest =
        joined_ ? std::clamp<int64_t>(kKeptResults / (rows_ * product_.cols), 1, kConvPanels)
                : kConvPanels;
    const ConvGrid grid = choose_conv_grid(rows_, product_.rows, panels_, widest, a_.groups, work,
                                           pack_rows(), threads);
    // A block has whole rows where it has all panels.
    if (epilogue_ != nullptr && epilogue_->whole_rows && grid.cols > 1) return false;
    // A weight that one task reads is turned there, channels first.
    if (grid.cols > 1 || a_.weight_channels_last) turn(threads);
    const int64_t tasks = grid.rows * grid.cols;
    parallel_for(a_.groups * tasks, threads, [&](int64_t begin, int64_t end, int) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t r = task % tasks % grid.rows, c = task % tasks / grid.rows;
        block(task / tasks, rows_ * r / grid.rows, rows_ * (r + 1) / grid.rows,
              panels_ * c / grid.cols, panels_ * (c + 1) / grid.cols);
      }
    });
    return true;
  }

 private:
  // Turns the weights where they are.
  void turn(int threads) {
    if (!turned_) return;
    constexpr int64_t kKept = kKeptBytes / static_cast<int64_t>(sizeof(T));
    const int64_t count = a_.out_channels * depth_;
    T* const to = (count <= kKept ? conv_scratch().weights : passing_).template get<T>(count);
    const int64_t height = std::min(rows_, std::max<int64_t>(16, 32768 / depth_));
    const int64_t chunks = ceil_div(rows_, height);
    parallel_for(a_.groups * chunks, threads, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t group = i / chunks, o0 = i % chunks * height;
        turn_weights(a_, w_, group, o0, std::min(rows_, o0 + height), 0, channels_,
                     to + (group * rows_ + o0) * depth_, depth_);
      }
    });
    w_ = to;
    turned_ = false;
  }

  // Panel f holds outputs [first, first + n) of an image, or of all of them.
  struct Panel {
    int64_t image, first, n;
  };
  Panel panel(int64_t f) const {
    if (joined_) {
      const int64_t first = f * product_.cols;
      return {0, first, std::min(product_.cols, a_.batch * places_ - first)};
    }
    const int64_t image = image_major_ ? f / panels_per_image_ : f % a_.batch;
    const int64_t first = (image_major_ ? f % panels_per_image_ : f / a_.batch) * product_.cols;
    return {image, first, std::min(product_.cols, places_ - first)};
  }
  // Panels whose columns are at the same places of their images share a plan.
  int64_t plan_of(int64_t f) const { return joined_ || image_major_ ? f : f / a_.batch; }

  ConvPanels<T>& plans(int64_t begin, int64_t end) const {
    ConvPanels<T>& kept = conv_scratch().plans<T>(0);
    kept.reset(a_, taps_, end - begin);
    int64_t planned = -1;
    for (int64_t f = begin; f < end; ++f) {
      if (plan_of(f) == planned) continue;
      planned = plan_of(f);
      const Panel p = panel(f);
      kept.add(p.first, p.n, product_.cols / 2);
    }
    return kept;
  }

  double pack_rows() const {
    if (reads_places_) return kPackPlaces;
    return a_.stride[2] == 1 ? kPackTaps : kPackStrided;
  }

  // Whether what panel f reads lies side by side in its channels, so that the products find it
  // there.
  bool lies(int64_t f) const { return reads_places_ && panel(f).n == product_.cols; }

  // The channels of a group in the image of panel f.
  const T* channels_of(int64_t f, int64_t group) const {
    return x_ + panel(f).image * a_.x_strides.batch + group * channels_ * a_.x_strides.channel;
  }

  // Rows [i0, i1) of a group's panels [f0, f1).
  void block(int64_t group, int64_t i0, int64_t i1, int64_t f0, int64_t f1) const {
    ConvScratch& scratch = conv_scratch();
    const ConvPanels<T>* const plan = reads_places_ ? nullptr : &plans(f0, f1);
    const int64_t cols = product_.cols, width = (f1 - f0) * cols;
    const int64_t depth = std::min(kPanelDepth, depth_),
                  height = strip_height(i1 - i0, product_.rows);
    T* const panels = scratch.panels.get<T>(width * depth);
    T* const packed = f1 - f0 > kFewPanels ? scratch.rows.get<T>(height * depth) : nullptr;
    const Scratch results = scratch_for(i1 - i0, f0, f1);
    const int64_t row = group * rows_;
    ConvSource<T> source = source_;
    for (int64_t p0 = 0; p0 < depth_; p0 += kPanelDepth) {
      const int64_t k = std::min(kPanelDepth, depth_ - p0);
      for (int64_t f = f0; f < f1; ++f) {
        if (lies(f)) continue;
        T* const to = panels + (f - f0) * cols * k;
        source.x = channels_of(f, group);
        if (plan != nullptr) {
          columns_.pack(source, (*plan)[plan_of(f) - plan_of(f0)], p0, p0 + k, to, cols);
        } else {
          const int64_t step = a_.x_strides.channel;
          product_.pack_b(source.x + p0 * step + panel(f).first, step, 1, k, panel(f).n, to);
        }
      }
      for (int64_t i = i0; i < i1; i += height) {
        GemmPanel<T> g;
        g.m = std::min(height, i1 - i);
        g.k = k;
        g.row = depth_, g.col = 1;
        const T* rows = w_ + (row + i) * depth_ + p0;
        if (turned_) {
          const int64_t taps = taps_.count(), c0 = p0 / taps, c1 = ceil_div(p0 + k, taps);
          g.row = (c1 - c0) * taps;
          T* const turned = scratch.weights.template get<T>(g.m * g.row);
          turn_weights(a_, w_, group, i, i + g.m, c0, c1, turned, g.row);
          rows = turned + p0 - c0 * taps;
        }
        g.a = rows;
        if (packed != nullptr) {
          product_.pack_a(g.a, g.row, g.col, g.m, k, packed);
          g.a = packed;
          g.packed = true;
        }
        // The first piece is added to the bias.
        g.beta = p0 == 0 ? T(0) : T(1);
        g.bias = p0 == 0 && bias_ != nullptr ? bias_ + row + i : nullptr;
        for (int64_t f = f0; f < f1; ++f) {
          const Panel p = panel(f);
          g.n = p.n;
          T* const panel = panels + (f - f0) * cols * k;
          const bool is_first = i == i0 && lies(f);
          g.b = is_first ? channels_of(f, group) + p0 * a_.x_strides.channel + p.first : panel;
          g.ldb = is_first ? a_.x_strides.channel : cols;
          g.copy = is_first ? panel : nullptr;
          g.c = results.data != nullptr
                    ? results.data + (i - i0) * results.pitch + results.slot(f) * cols
                    : place_of(p.image, row + i, p.first);
          g.ldc = results.data != nullptr ? results.pitch : a_.y_strides.channel;
          multiply_panel(product_, g, rows);
        }
        if (p0 + k == depth_ && !joined_) hand_over_panels(row + i, g.m, f0, f1, results, i - i0);
      }
    }
    if (joined_) move_results(results.data, width, row + i0, i1 - i0, f0 * cols);
  }

  T* place_of(int64_t image, int64_t row, int64_t place) const {
    return y_ + image * a_.y_strides.batch + row * a_.y_strides.channel + place;
  }

  // Results of panels [f0, ...) that do not lie at their places: rows of panels, where those of an
  // image lie side by side.
  struct Scratch {
    T* data = nullptr;
    int64_t pitch = 0;
    int64_t f0 = 0, images = 1, panels = 0;  // images that take turns, panels of each
    int64_t slot(int64_t f) const { return (f - f0) % images * panels + (f - f0) / images; }
  };
  Scratch scratch_for(int64_t rows, int64_t f0, int64_t f1) const {
    Scratch s;
    if (!joined_ && y_ != nullptr) return s;
    if (!joined_ && !image_major_) s.images = std::min(a_.batch, f1 - f0);
    s.f0 = f0, s.panels = ceil_div(f1 - f0, s.images);
    s.pitch = s.images * s.panels * product_.cols;
    s.data = conv_scratch().results.template get<T>(rows * s.pitch);
    return s;
  }

  // Rows of an image's channels are done, `n` places of each, at `data`.
  void hand_over(int64_t image, int64_t row, int64_t rows, int64_t place, int64_t n, T* data,
                 int64_t pitch) const {
    epilogue_->run(epilogue_->context, {image * a_.out_channels + row, rows, place, n,
                                        reinterpret_cast<char*>(data), pitch});
  }

  // Panels [f0, f1) are done: hands over the places in them of each image, which follow each other.
  // first_row: of the rows in the scratch.
  void hand_over_panels(int64_t row, int64_t rows, int64_t f0, int64_t f1, const Scratch& results,
                        int64_t first_row) const {
    if (epilogue_ == nullptr) return;
    const int64_t nearest = image_major_ ? f0 / panels_per_image_ : 0;
    const int64_t farthest = image_major_ ? (f1 - 1) / panels_per_image_ : a_.batch - 1;
    for (int64_t image = nearest; image <= farthest; ++image) {
      // Its panels are begin + step * i.
      const int64_t begin = image_major_ ? image * panels_per_image_ : image;
      const int64_t step = image_major_ ? 1 : a_.batch;
      const auto first_from = [&](int64_t f) {
        return std::clamp<int64_t>(ceil_div(std::max<int64_t>(f - begin, 0), step), 0,
                                   panels_per_image_);
      };
      const int64_t panel = first_from(f0), first = panel * product_.cols;
      const int64_t last = std::min(first_from(f1) * product_.cols, places_);
      if (first >= last) continue;
      const bool kept = results.data != nullptr;
      T* const data = kept ? results.data + first_row * results.pitch +
                                 results.slot(begin + step * panel) * product_.cols
                           : place_of(image, row, first);
      hand_over(image, row, rows, first, last - first, data,
                kept ? results.pitch : a_.y_strides.channel);
    }
  }

  // Rows of results that begin at output `first` of all images.
  void move_results(T* from, int64_t width, int64_t row, int64_t rows, int64_t first) const {
    const int64_t last = std::min(first + width, a_.batch * places_);
    for (int64_t at = first; at < last;) {
      const int64_t image = at / places_, place = at % places_;
      const int64_t n = std::min(places_ - place, last - at);
      if (y_ == nullptr) {
        hand_over(image, row, rows, place, n, from + at - first, width);
      } else {
        T* const to = place_of(image, row, place);
        for (int64_t i = 0; i < rows; ++i) {
          std::copy_n(from + i * width + at - first, n, to + i * a_.y_strides.channel);
        }
        if (epilogue_ != nullptr) hand_over(image, row, rows, place, n, to, a_.y_strides.channel);
      }
      at += n;
    }
  }

  // Without inputs there is nothing to add up.
  void fill() const {
    for (int64_t n = 0; n < a_.batch; ++n) {
      for (int64_t o = 0; o < a_.out_channels; ++o) {
        std::fill_n(y_ + n * a_.y_strides.batch + o * a_.y_strides.channel, places_,
                    bias_ != nullptr ? bias_[o] : T(0));
      }
    }
  }

  void depthwise_block(int64_t c0, int64_t c1, int64_t f0, int64_t f1) const {
    const ConvPanels<T>& plan = plans(f0, f1);
    ConvSource<T> source = source_;
    for (int64_t c = c0; c < c1; ++c) {
      for (int64_t f = f0; f < f1; ++f) {
        const Panel p = panel(f);
        source.x = x_ + p.image * a_.x_strides.batch + c * a_.x_strides.channel;
        columns_.depthwise(source, plan[plan_of(f) - plan_of(f0)], w_ + c * depth_,
                           bias_ != nullptr ? bias_[c] : T(0), p.n,
                           y_ + p.image * a_.y_strides.batch + c * a_.y_strides.channel + p.first);
      }
    }
  }

  // Depthwise, a band of a plane at a time, which is computed where the plane lies or from a copy.
  bool planes(int64_t work, int threads) const {
    const bool is_even = a_.kernel[1] == a_.kernel[2] && a_.stride[1] == a_.stride[2] &&
                         a_.dilation[1] == 1 && a_.dilation[2] == 1;
    const DepthwisePlaneKernel<T> direct =
        is_even ? depthwise_plane_kernel(current_isa(), a_.kernel[1], a_.stride[1], T()) : nullptr;
    const bool whole = epilogue_ != nullptr && epilogue_->whole_rows;
    const PlaneBands<T> cut(a_);
    const int64_t width = a_.out_size[2];
    const int64_t height =
        whole ? a_.out_size[1] : std::clamp<int64_t>(kHandedElements / width, 1, a_.out_size[1]);
    const int64_t bands = direct != nullptr ? ceil_div(a_.out_size[1], height) : cut.count();
    if (whole && bands > 1) return false;
    const int64_t all = a_.batch * a_.groups * bands;
    const int64_t together = bands > 1 ? 1 : std::max<int64_t>(1, kHandedElements / places_);
    const int64_t chunk =
        std::clamp<int64_t>(kTaskWork / 8 / std::max<int64_t>(1, work / all), 1, all);
    const auto plane_at = [&](int64_t plane) {
      return x_ + plane / a_.groups * a_.x_strides.batch + plane % a_.groups * a_.x_strides.channel;
    };
    parallel_for(ceil_div(all, chunk), threads, [&](int64_t begin, int64_t end, int) {
      int64_t kept = 0;  // planes that are done and not handed over
      const int64_t last = std::min(all, end * chunk);
      T* const results =
          y_ == nullptr ? conv_scratch().results.template get<T>(together * places_) : nullptr;
      const auto results_at = [&](int64_t plane, int64_t place) {
        return results != nullptr ? results + kept * places_
                                  : place_of(plane / a_.groups, plane % a_.groups, place);
      };
      const auto finish = [&](int64_t i, int64_t plane, int64_t place, int64_t n, T* y) {
        if (epilogue_ == nullptr) return;
        const int64_t image = plane / a_.groups, c = plane % a_.groups;
        if (bands > 1) {
          hand_over(image, c, 1, place, n, y, places_);
        } else if (++kept == together || i + 1 == last || c + 1 == a_.groups) {
          T* const data = results != nullptr ? results : place_of(image, c + 1 - kept, 0);
          hand_over(image, c + 1 - kept, kept, 0, places_, data,
                    results != nullptr ? places_ : a_.y_strides.channel);
          kept = 0;
        }
      };
      const auto weight_of = [&](int64_t plane) { return w_ + plane % a_.groups * depth_; };
      const auto bias_of = [&](int64_t plane) {
        return bias_ != nullptr ? bias_[plane % a_.groups] : T(0);
      };
      if (direct == nullptr) {
        const auto compute = [&](int64_t i, int64_t plane, int64_t first, DepthwiseBand<T>& band) {
          band.w = weight_of(plane), band.bias = bias_of(plane);
          band.y = results_at(plane, first * width);
          depthwise_.band(band);
          finish(i, plane, first * width, band.rows * width, band.y);
        };
        return cut.run(begin * chunk, last, T(0), plane_at, compute);
      }
      DepthwisePlane<T> p;
      p.step = a_.x_strides.size[1], p.height = a_.in_size[1], p.width = a_.in_size[2];
      p.top = a_.padding[1], p.left = a_.padding[2], p.out_width = width;
      for (int64_t i = begin * chunk; i < last; ++i) {
        const int64_t plane = i / bands;
        p.first = i % bands * height, p.rows = std::min(height, a_.out_size[1] - p.first);
        p.x = plane_at(plane), p.w = weight_of(plane), p.bias = bias_of(plane);
        p.y = results_at(plane, p.first * width);
        direct(p);
        finish(i, plane, p.first * width, p.rows * width, p.y);
      }
    });
    return true;
  }

  const ConvolutionArgs& a_;
  const GemmKernel<T>& product_;
  const ConvKernel<T>& columns_;
  const DepthwiseKernel<T>& depthwise_;
  const ConvTaps taps_;
  const T* const x_;
  const T* w_;
  const T* const bias_;
  T* const y_;
  const CallEpilogue* const epilogue_;
  const int64_t channels_, rows_, depth_, places_;  // of a group; of an image
  bool turned_ = false;                             // what w_ points to is
  PackBuffer passing_;
  int64_t panels_per_image_, panels_;
  bool is_depthwise_, joined_, image_major_, reads_places_;
  ConvSource<T> source_;
};

}  // namespace

template <class T>
bool convolve(const ConvolutionArgs& args, const T* x, const T* w, const T* bias, T* y,
              const CallEpilogue* epilogue) {
  if (const auto done = winograd(args, x, w, bias, y, epilogue)) return *done;
  return ConvolutionForward<T>(args, x, w, bias, y, epilogue).run();
}
template bool convolve(const ConvolutionArgs&, const float*, const float*, const float*, float*,
                       const CallEpilogue*);
template bool convolve(const ConvolutionArgs&, const double*, const double*, const double*, double*,
                       const CallEpilogue*);

}  // namespace cpu

void convolution(const ConvolutionArgs& args, const void* x, const void* w, const void* bias,
                 void* y) {
  cpu::check_convolution(args);
  if (args.batch * args.out_channels * cpu::volume(args.out_size) == 0) return;
  const int64_t channels = args.in_channels * cpu::volume(args.in_size);
  if (x == nullptr && channels > 0) cpu::fail_missing_operand("x");
  if (w == nullptr && args.in_channels > 0) cpu::fail_missing_operand("w");
  if (y == nullptr) cpu::fail_missing_operand("y");
  cpu::for_dtype(args.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto *const x_data = static_cast<const T*>(x), *const w_data = static_cast<const T*>(w);
    const auto* const bias_data = static_cast<const T*>(bias);
    if (cpu::convolve_channels_last(args, x_data, w_data, bias_data, static_cast<T*>(y))) return;
    const cpu::ConvImages from{const_cast<void*>(x), true}, to{y, false};
    cpu::with_dense_images(args, from, to, [&](const ConvolutionArgs& dense, void* xs, void* ys) {
      cpu::convolve(dense, static_cast<const T*>(xs), w_data, bias_data, static_cast<T*>(ys));
    });
  });
}

bool convolution_blocks(const ConvolutionArgs& args, const void* x, const void* w, const void* bias,
                        void* y, const CallEpilogue& epilogue) {
  cpu::check_convolution(args);
  const int64_t elements = args.batch * args.out_channels * cpu::volume(args.out_size);
  if (elements == 0 || args.in_channels == 0 || !cpu::has_columns(args)) return false;
  bool done = false;
  cpu::for_dtype(args.dtype, [&](auto zero) {
    using T = decltype(zero);
    done = cpu::convolve(args, static_cast<const T*>(x), static_cast<const T*>(w),
                         static_cast<const T*>(bias), static_cast<T*>(y), &epilogue);
  });
  return done;
}

namespace cpu {

// The rows of the result are the channels of all images, its columns their places.
bool result_of(const calls::Convolution<>& call, CallResult& result) {
  const View& y = call.out;
  int64_t places = 1;
  for (int d = y.ndim - 1; d > 1; --d) {
    if (y.shape[d] != 1 && y.strides[d] != places) return false;
    places *= y.shape[d];
  }
  const int64_t channels = y.shape[1];
  if ((channels != 1 && y.strides[1] != places) ||
      (y.shape[0] != 1 && y.strides[0] != channels * places)) {
    return false;
  }
  result = {y.dtype, y.shape[0] * channels, places, channels, 3};
  return call.input.shape[1] > 0;
}

bool run_blocks(const calls::Convolution<>& call, CallThreads threads,
                const CallEpilogue& epilogue) {
  return convolution_blocks(convolution_arguments(call, call.input, call.weight, call.out, threads),
                            call.input.data, call.weight.data, call.bias.data, call.out.data,
                            epilogue);
}

void run(const calls::Convolution<>& call, CallThreads threads) {
  hologram::convolution(convolution_arguments(call, call.input, call.weight, call.out, threads),
                        call.input.data, call.weight.data, call.bias.data, call.out.data);
}

}  // namespace cpu

}  // namespace hologram
