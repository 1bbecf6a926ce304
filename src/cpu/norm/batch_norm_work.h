// SPDX-License-Identifier: MIT
// What batch norm's forward and backward share: layouts, operands of any dtype piece by piece, and
// how the work is cut.
#pragma once

#include <algorithm>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "hologram/view.h"
#include "src/cpu/device/dense_view.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/device/scratch.h"
#include "src/cpu/norm/batch_norm_kernels.h"
#include "src/cpu/reduce/reduce_gather.h"

namespace hologram::cpu::batch {

// Elements of a slot of scratch.
inline int64_t slot_elements(Dtype compute) {
  return BoundaryPool::kClassBytes / static_cast<int64_t>(itemsize(compute));
}
// Units of work that a shape is cut into when its channels are few; rows in one such unit.
inline constexpr int64_t kUnits = 64;
inline constexpr int64_t kUnitElements = 16384;
inline constexpr int64_t kRowsAtOnce = 64;
// Elements of the rows at once, so that a second look at them finds them in the nearest cache.
inline constexpr int64_t kRowElements = 16384;

struct Layout {
  bool rows = false;  // channels adjacent
  int64_t batch = 0, channels = 0, size = 0;

  int64_t per_channel() const { return batch * size; }
};

inline bool is_rows(const View& v) {
  return (v.strides[1] == 1 || v.shape[1] == 1) &&
         (v.shape[2] == 1 || v.shape[0] == 1 || v.strides[0] == v.shape[2] * v.strides[2]);
}
inline bool is_runs(const View& v) { return v.strides[2] == 1 || v.shape[2] == 1; }

inline int64_t row_stride(const View& v) { return v.shape[2] == 1 ? v.strides[0] : v.strides[2]; }

inline Layout layout_of(const View& in) {
  Layout layout{false, in.shape[0], in.shape[1], in.shape[2]};
  // With one place a channel's elements are rows if anything.
  layout.rows = is_rows(in) && (layout.size == 1 || !is_runs(in));
  return layout;
}

// A dense [batch, channels, ...] as [batch, channels, size], whether its channels lie last or not.
class BatchView {
 public:
  explicit BatchView(const View& view)
      : sizes_{view.shape[0], view.shape[1], elements_of(view, 2, view.ndim)},
        view_{view.data, view.dtype, 3, sizes_, strides_} {
    const int64_t whole = sizes_[1] * sizes_[2];
    strides_[0] = whole, strides_[1] = sizes_[2], strides_[2] = 1;
    if (!is_row_major(view)) strides_[1] = 1, strides_[2] = sizes_[1];
  }
  BatchView(const BatchView&) = delete;
  BatchView& operator=(const BatchView&) = delete;

  const View& operator*() const { return view_; }
  const View* pointer() const { return view_.data != nullptr ? &view_ : nullptr; }

 private:
  static bool is_row_major(const View& view) {
    int64_t step = 1;
    for (int d = view.ndim - 1; d >= 0; --d) {
      if (view.shape[d] != 1 && view.strides[d] != step) return false;
      step *= view.shape[d];
    }
    return true;
  }

  int64_t sizes_[3], strides_[3];
  View view_;
};

// Arrays of one float64 per channel and, at the end, of factors in the compute type.
class Channels {
 public:
  Channels(const char* what, int64_t channels, int64_t wide, int64_t narrow, Dtype compute)
      : channels_(channels), wide_(wide), size_(static_cast<int64_t>(itemsize(compute))) {
    const int64_t bytes = channels * (wide * 8 + narrow * size_);
    data_.reset(new (std::nothrow) double[static_cast<size_t>(bytes / 8 + 1)]);
    if (data_ == nullptr) fail(ErrorKind::kOutOfMemory, what, " needs ", bytes, " bytes");
  }
  double* wide(int64_t k) { return data_.get() + k * channels_; }
  char* narrow(int64_t k) { return reinterpret_cast<char*>(wide(wide_)) + k * channels_ * size_; }

 private:
  int64_t channels_;
  int64_t wide_;
  int64_t size_;
  std::unique_ptr<double[]> data_;
};

// Few rows of many channels are worked on block by block of the channels, each from its first pass
// to its last while it is in the caches. The shape alone decides.
inline constexpr int64_t kBlockedRows = 2048;
inline constexpr int64_t kLeastBlock = 128, kMostBlock = 1024;  // channels
inline int64_t channels_at_once(const Layout& layout, Dtype dtype) {
  const int64_t rows = layout.per_channel();
  if (!layout.rows || rows > kBlockedRows) return layout.channels;
  const bool is_converted = dtype != Dtype::kFloat32 && dtype != Dtype::kFloat64;
  const int64_t elements = is_converted ? slot_elements(Dtype::kFloat32) : kUnitElements;
  const int64_t block = std::clamp(elements / rows, kLeastBlock, kMostBlock);
  return layout.channels < 2 * block ? layout.channels : block;
}

// Channels [first, first + n) of an operand.
class ChannelBlock {
 public:
  ChannelBlock(const View& view, int64_t first, int64_t n)
      : sizes_{view.shape[0], n, view.shape[2]}, view_(view) {
    view_.shape = sizes_;
    if (view.data != nullptr) {
      view_.data = static_cast<char*>(view.data) +
                   first * view.strides[1] * static_cast<int64_t>(itemsize(view.dtype));
    }
  }
  ChannelBlock(const ChannelBlock&) = delete;
  ChannelBlock& operator=(const ChannelBlock&) = delete;

  const View& operator*() const { return view_; }

 private:
  int64_t sizes_[3];
  View view_;
};

// The call whose numbers of channels begin with those of channel `first`.
template <class Call>
Call from_channel(const Call& call, int64_t first) {
  Call part = call;
  Call::each(part, [&](auto& field) {
    if constexpr (std::is_base_of_v<View, std::remove_reference_t<decltype(field)>>) {
      if (field.ndim != 1 || field.data == nullptr) return;
      field.data =
          static_cast<char*>(field.data) + first * static_cast<int64_t>(itemsize(field.dtype));
    }
  });
  return part;
}

// What has no data was not given.
inline void read_channel(const View& view, int64_t channels, double otherwise, double* to) {
  if (view.data == nullptr) {
    std::fill_n(to, channels, otherwise);
  } else {
    convert(view.dtype, view.data, Dtype::kFloat64, to, channels);
  }
}
inline void write_channel(const double* from, int64_t channels, const View& view) {
  if (view.data != nullptr) convert(Dtype::kFloat64, from, view.dtype, view.data, channels);
}

inline BatchFactors factors_at(const BatchFactors& all, int64_t c, Dtype compute) {
  const int64_t offset = c * static_cast<int64_t>(itemsize(compute));
  const auto at = [&](const void* p) -> const void* {
    return p == nullptr ? nullptr : static_cast<const char*>(p) + offset;
  };
  return {at(all.shift), at(all.scale), at(all.offset), at(all.mean_grad), at(all.slope)};
}

// Some lines of an operand in the compute type: its own memory, or what is copied into scratch.
class LineOperand {
 public:
  LineOperand(const View* view, Dtype compute) : view_(view), compute_(compute) {}
  bool plain() const { return view_ == nullptr || view_->dtype == compute_; }
  bool given() const { return view_ != nullptr; }

  Lines load(int64_t offset, int64_t count, int64_t stride, int64_t n, char* scratch) const {
    const auto size = static_cast<int64_t>(itemsize(view_->dtype));
    const char* from = static_cast<const char*>(view_->data) + offset * size;
    if (plain()) return {from, stride};
    gather_rows(from, view_->dtype, count, stride, n, 1, compute_, scratch);
    return {scratch, n};
  }
  char* target(int64_t offset, char* scratch) const {
    return plain() ? static_cast<char*>(view_->data) +
                         offset * static_cast<int64_t>(itemsize(view_->dtype))
                   : scratch;
  }
  void store(int64_t offset, int64_t count, int64_t stride, int64_t n, const char* scratch) const {
    if (plain()) return;
    const auto size = static_cast<int64_t>(itemsize(view_->dtype));
    scatter_rows(scratch, compute_, count, stride, n, 1, view_->dtype,
                 static_cast<char*>(view_->data) + offset * size);
  }
  const View& view() const { return *view_; }

 private:
  const View* view_;
  Dtype compute_;
};

// What is done to some lines that fit a piece: their place, how many, how long.
struct Span {
  int64_t batch;  // or row
  int64_t first;  // element of the run, or channel
  int64_t count;
  int64_t n;
};

// Calls f(span) for the runs of batches [begin, end), at most `most` elements at a time.
template <class F>
void for_runs(const Layout& layout, int64_t begin, int64_t end, int64_t most, F&& f) {
  if (layout.size >= most) {
    for (int64_t b = begin; b < end; ++b) {
      for (int64_t i = 0; i < layout.size; i += most) {
        f(Span{b, i, 1, std::min(most, layout.size - i)});
      }
    }
  } else {
    const int64_t together = most / layout.size;
    for (int64_t b = begin; b < end; b += together) {
      f(Span{b, 0, std::min(together, end - b), layout.size});
    }
  }
}

// Calls f(span) for rows [begin, end), a few at a time; fewer where they are looked at twice. slot:
// elements of scratch that they must fit, in blocks of channels if need be; 0: they need none.
template <class F>
void for_rows(const Layout& layout, int64_t begin, int64_t end, int64_t slot, bool twice, F&& f) {
  const bool plain = slot == 0;
  const int64_t width = plain ? layout.channels : std::min(layout.channels, slot);
  const int64_t most = !plain ? slot : twice ? kRowElements : kRowsAtOnce * width;
  const int64_t together = std::clamp<int64_t>(most / width, plain ? 8 : 1, kRowsAtOnce);
  for (int64_t r = begin; r < end; r += together) {
    for (int64_t c = 0; c < layout.channels; c += width) {
      f(Span{r, c, std::min(together, end - r), std::min(width, layout.channels - c)});
    }
  }
}

inline int64_t run_offset(const View& v, int64_t c, const Span& span) {
  return span.batch * v.strides[0] + c * v.strides[1] + span.first;
}
inline int64_t row_offset(const View& v, const Span& span) {
  return span.batch * row_stride(v) + span.first;
}

struct Job {
  Layout layout;
  Dtype compute;
  const BatchKernel* kernel;
  LineOperand grad, in, out;
  int64_t slot;   // elements, where an operand goes through scratch; else 0
  int64_t piece;  // elements of runs at once

  Job(const Layout& shape, Dtype type, const View* grad_view, const View* in_view,
      const View* out_view)
      : layout(shape),
        compute(type),
        kernel(&batch_kernel(current_isa(), type)),
        grad(grad_view, type),
        in(in_view, type),
        out(out_view, type),
        slot(grad.plain() && in.plain() && out.plain() ? 0 : slot_elements(type)),
        piece(slot == 0 ? kPiece : std::min(kPiece, slot)) {}

  // The four things done to batches [begin, end) of channel c, or to rows [begin, end).

  void moments(int64_t c, int64_t begin, int64_t end, double* mean, double* m2,
               int64_t* seen) const {
    Scratch scratch;
    for_runs(layout, begin, end, piece, [&](const Span& s) {
      const View& v = in.view();
      char* room = in.plain() ? nullptr : scratch.slot(0);
      kernel->run_moments(in.load(run_offset(v, c, s), s.count, v.strides[0], s.n, room), s.count,
                          s.n, mean, m2, seen);
    });
  }
  void row_moments(int64_t begin, int64_t end, double* mean, double* m2) const {
    Scratch scratch;
    for_rows(layout, begin, end, slot, true, [&](const Span& s) {
      const View& v = in.view();
      char* room = in.plain() ? nullptr : scratch.slot(0);
      kernel->row_moments(in.load(row_offset(v, s), s.count, row_stride(v), s.n, room), s.count,
                          s.n, mean + s.first, m2 + s.first, s.batch - begin);
    });
  }

  void sums(int64_t c, int64_t begin, int64_t end, const void* shift, double* pair) const {
    Scratch scratch;
    for_runs(layout, begin, end, piece, [&](const Span& s) {
      const auto [g, x] = run_pair(c, s, scratch);
      kernel->run_sums(g, x, s.count, s.n, shift, pair);
    });
  }
  void row_sums(int64_t begin, int64_t end, const BatchFactors& all, double* sum,
                double* dot) const {
    Scratch scratch;
    for_rows(layout, begin, end, slot, false, [&](const Span& s) {
      const auto [g, x] = row_pair(s, scratch);
      kernel->row_sums(g, x, s.count, s.n, factors_at(all, s.first, compute).shift, sum + s.first,
                       dot + s.first);
    });
  }

  // out from in, or, where there is a slope, from grad and in.
  void write(int64_t c, int64_t begin, int64_t end, const BatchFactors& one) const {
    Scratch scratch;
    for_runs(layout, begin, end, piece, [&](const Span& s) {
      const View& v = out.view();
      const int64_t at = run_offset(v, c, s);
      const int64_t stride = out.plain() ? v.strides[0] : s.n;
      char* to = out.target(at, out.plain() ? nullptr : scratch.slot(2));
      const auto [g, x] = run_pair(c, s, scratch);
      if (one.slope != nullptr) {
        kernel->run_grad(g, x, s.count, s.n, one, to, stride);
      } else {
        kernel->run_apply(grad.given() ? g : x, s.count, s.n, one, to, stride);
      }
      out.store(at, s.count, v.strides[0], s.n, to);
    });
  }
  void write_rows(int64_t begin, int64_t end, const BatchFactors& all) const {
    Scratch scratch;
    for_rows(layout, begin, end, slot, false, [&](const Span& s) {
      const View& v = out.view();
      const int64_t at = row_offset(v, s);
      const int64_t stride = out.plain() ? row_stride(v) : s.n;
      char* to = out.target(at, out.plain() ? nullptr : scratch.slot(2));
      const auto [g, x] = row_pair(s, scratch);
      const BatchFactors factors = factors_at(all, s.first, compute);
      if (all.slope != nullptr) {
        kernel->row_grad(g, x, s.count, s.n, factors, to, stride);
      } else {
        kernel->row_apply(grad.given() ? g : x, s.count, s.n, factors, to, stride);
      }
      out.store(at, s.count, row_stride(v), s.n, to);
    });
  }

 private:
  std::pair<Lines, Lines> run_pair(int64_t c, const Span& s, Scratch& scratch) const {
    Lines g{}, x{};
    if (grad.given()) {
      const View& v = grad.view();
      g = grad.load(run_offset(v, c, s), s.count, v.strides[0], s.n,
                    grad.plain() ? nullptr : scratch.slot(0));
    }
    const View& v = in.view();
    x = in.load(run_offset(v, c, s), s.count, v.strides[0], s.n,
                in.plain() ? nullptr : scratch.slot(1));
    return {g, x};
  }
  std::pair<Lines, Lines> row_pair(const Span& s, Scratch& scratch) const {
    Lines g{}, x{};
    if (grad.given()) {
      const View& v = grad.view();
      g = grad.load(row_offset(v, s), s.count, row_stride(v), s.n,
                    grad.plain() ? nullptr : scratch.slot(0));
    }
    const View& v = in.view();
    x = in.load(row_offset(v, s), s.count, row_stride(v), s.n,
                in.plain() ? nullptr : scratch.slot(1));
    return {g, x};
  }
};

// How the work is cut: by channels, by parts of each channel's batches, or by rows. The shape alone
// decides, and so the order of every sum.
struct Cut {
  int64_t parts;     // of a channel, or of the rows
  int64_t per_part;  // batches, or rows

  explicit Cut(const Layout& layout) {
    const int64_t elements = layout.per_channel() * layout.channels;
    const int64_t lines = layout.rows ? layout.per_channel() : layout.batch;
    int64_t wanted = std::min(kUnits, (elements + kUnitElements - 1) / kUnitElements);
    if (!layout.rows) wanted = (wanted + layout.channels - 1) / layout.channels;
    per_part = std::max<int64_t>(1, (lines + wanted - 1) / std::max<int64_t>(1, wanted));
    parts = (lines + per_part - 1) / per_part;
  }
  int64_t begin(int64_t part) const { return part * per_part; }
  int64_t end(int64_t part, int64_t lines) const { return std::min(lines, (part + 1) * per_part); }
};

// Joins the moments of parts of a channel, `step` apart.
inline void join_moments(const double* means, const double* m2s, const int64_t* seen, int64_t parts,
                         int64_t step, double* mean, double* m2) {
  *mean = means[0], *m2 = m2s[0];
  double count = static_cast<double>(seen[0]);
  for (int64_t p = 1; p < parts; ++p) {
    const double more = static_cast<double>(seen[p]);
    const double difference = means[p * step] - *mean;
    *m2 += m2s[p * step] + difference * difference * (count * more / (count + more));
    *mean = (count * *mean + more * means[p * step]) / (count + more);
    count += more;
  }
}

template <class T>
void put(char* to, int64_t c, double value) {
  reinterpret_cast<T*>(to)[c] = static_cast<T>(value);
}
inline void put(Dtype compute, char* to, int64_t c, double value) {
  compute == Dtype::kFloat64 ? put<double>(to, c, value) : put<float>(to, c, value);
}

// Calls stats(part, c) for all parts, ends(c, n) for all channels [c, c + n) and then writes(part,
// c): a channel at a time where it has one part, so that it is still in the cache when it is read
// again. By rows c is -1 in stats and writes.
template <class Stats, class Ends, class Writes>
void in_phases(const Layout& layout, const Cut& cut, int max_threads, Stats&& stats, Ends&& ends,
               Writes&& writes) {
  const int64_t channels = layout.channels;
  if (!layout.rows && cut.parts == 1) {
    const int64_t per_chunk = std::max<int64_t>(1, kUnitElements / layout.per_channel());
    for_chunks(channels, per_chunk, threads_of(max_threads), [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) stats(0, c), ends(c, 1), writes(0, c);
    });
    return;
  }
  const int64_t units = layout.rows ? cut.parts : channels * cut.parts;
  const auto each = [&](auto&& f) {
    parallel_for(units, max_threads, [&](int64_t begin, int64_t end, int) {
      for (int64_t unit = begin; unit < end; ++unit) {
        layout.rows ? f(unit, int64_t{-1}) : f(unit % cut.parts, unit / cut.parts);
      }
    });
  };
  each(stats);
  ends(0, channels);
  each(writes);
}

}  // namespace hologram::cpu::batch
