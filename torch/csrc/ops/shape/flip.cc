// SPDX-License-Identifier: MIT
// flip and roll: copies that read the input in another order.
#include "hologram/elementwise.h"
#include "recording/native_common.h"
#include "recording/record.h"

namespace hologram_torch {
namespace {

using at::Tensor;
using c10::DimVector;
using c10::IntArrayRef;

bool takes(const Tensor& self) {
  return is_dense(self) && dtype_code(self.scalar_type()) != kNoDtype &&
         (is_on_host(self) || is_real(self.scalar_type())) && self.numel() > 0 && self.dim() <= 64;
}

// Copies what `from` walks over in self to what `to` walks over in out. False where neither can be:
// the device is not the host and has not recorded it.
bool copy_walk(const Tensor& self, const Walk& from, Tensor& out, const Walk& to,
               IntArrayRef sizes) {
  if (is_recorded(out) &&
      record_walk(self.unsafeGetTensorImpl(), from, out.unsafeGetTensorImpl(), to, sizes)) {
    return true;
  }
  if (!is_on_host(out)) return false;
  hologram::View in = read_view(self), result = write_view(out);
  for (const auto& [view, walk] : {std::pair(&in, &from), std::pair(&result, &to)}) {
    view->data =
        static_cast<char*>(view->data) + walk->first * static_cast<int64_t>(self.itemsize());
    view->shape = sizes.data();
    view->strides = walk->strides.data();
  }
  hologram::copy(in, result, threads_for(c10::multiply_integers(sizes)));
  return true;
}

// --- flip ---------------------------------------------------------------------------------------

Tensor flip(const Tensor& self, IntArrayRef dims) {
  const int64_t ndim = self.dim();
  const auto refused = [&] { return call_fallback<"flip">(self, dims).back().toTensor(); };
  if (C10_UNLIKELY(!takes(self))) return refused();
  uint64_t flipped = 0;
  Walk from{0, DimVector(self.strides())};
  for (const int64_t dim : dims) {
    if (dim < -ndim || dim >= ndim) return refused();
    const auto d = static_cast<size_t>(dim < 0 ? dim + ndim : dim);
    if ((flipped >> d & 1) != 0) return refused();
    flipped |= uint64_t{1} << d;
    from.first += (self.sizes()[d] - 1) * from.strides[d];
    from.strides[d] = -from.strides[d];
  }
  Tensor out = make_like(self);
  return copy_walk(self, from, out, {0, DimVector(out.strides())}, self.sizes()) ? out : refused();
}

// --- roll ---------------------------------------------------------------------------------------

// Dimensions of one call: a result is put together of two pieces for each.
constexpr size_t kMostRolled = 3;

struct Rolled {
  size_t dim;
  int64_t shift;  // the last `shift` come first
};

Tensor roll_dims(const Tensor& self, c10::ArrayRef<Rolled> rolled) {
  if (rolled.size() > kMostRolled) {
    return roll_dims(roll_dims(self, rolled.slice(0, kMostRolled)), rolled.slice(kMostRolled));
  }
  Tensor out = make_formatted(self.sizes(), self.scalar_type(), self.suggest_memory_format(),
                              self.device().index());
  for (unsigned piece = 0; piece < 1u << rolled.size(); ++piece) {
    DimVector sizes(self.sizes());
    Walk from{0, DimVector(self.strides())}, to{0, DimVector(out.strides())};
    for (size_t k = 0; k < rolled.size(); ++k) {
      const auto [d, shift] = rolled[k];
      const bool to_front = (piece >> k & 1) != 0;
      const int64_t rest = sizes[d] - shift;
      (to_front ? from.first : to.first) +=
          to_front ? rest * from.strides[d] : shift * to.strides[d];
      sizes[d] = to_front ? shift : rest;
    }
    if (!copy_walk(self, from, out, to, sizes)) return {};
  }
  return out;
}

Tensor roll(const Tensor& self, IntArrayRef shifts, IntArrayRef dims) {
  const int64_t ndim = self.dim();
  const auto refused = [&] { return call_fallback<"roll">(self, shifts, dims).back().toTensor(); };
  const bool flat = dims.empty() && shifts.size() == 1;
  if (C10_UNLIKELY(!takes(self) || shifts.empty() || (!flat && dims.size() != shifts.size()))) {
    return refused();
  }
  if (flat) {
    const int64_t zero = 0;
    return hologram_torch::roll(self.contiguous().view(-1), shifts, zero).view(self.sizes());
  }
  DimVector by_dim(static_cast<size_t>(ndim), 0);
  for (size_t k = 0; k < dims.size(); ++k) {
    if (dims[k] < -ndim || dims[k] >= ndim) return refused();
    const auto d = static_cast<size_t>(dims[k] < 0 ? dims[k] + ndim : dims[k]);
    const int64_t size = self.sizes()[d];
    by_dim[d] = (by_dim[d] + shifts[k] % size + size) % size;
  }
  c10::SmallVector<Rolled, 4> rolled;
  for (size_t d = 0; d < by_dim.size(); ++d) {
    if (by_dim[d] != 0) rolled.push_back({d, by_dim[d]});
  }
  const Tensor out = roll_dims(self, rolled);
  return out.defined() ? out : refused();
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  register_native<&flip>(m, "flip");
  register_native<&roll>(m, "roll");
}
