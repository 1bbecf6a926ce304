// SPDX-License-Identifier: MIT
// Hologram tensors seen as CPU tensors over the same bytes, and CPU results made hologram's.
#pragma once

#include <c10/util/SmallVector.h>

#include "device/tensor.h"

namespace hologram_torch {

// Turns the tensors of one call into CPU tensors that share their memory, and its results back.
// Each storage is aliased once, so arguments that overlap still overlap. What the host cannot read
// is copied to the host, and back where adopt_changes() says that it was written. A scope belongs
// to one thread and one call.
class AliasScope {
 public:
  AliasScope() = default;
  AliasScope(const AliasScope&) = delete;
  AliasScope& operator=(const AliasScope&) = delete;
  // A kernel that kept an alias reads and writes the memory when it likes.
  ~AliasScope();

  // For a kernel that keeps aliases only until a time that programs wait for: ops on what it has
  // are still recorded.
  void keep_recording() { keeps_recording_ = true; }

  // The CPU tensor over t's bytes; t itself when it is undefined or not ours. Conjugate and
  // negative bits and the wrapped-number flag are kept.
  at::Tensor to_cpu(const at::Tensor& t);
  std::optional<at::Tensor> to_cpu(const std::optional<at::Tensor>& t) {
    return t.has_value() ? std::optional<at::Tensor>(to_cpu(*t)) : std::nullopt;
  }
  std::vector<at::Tensor> to_cpu(at::TensorList list);

  // The hologram tensor for a result of a CPU kernel. Shares the original storage when the result
  // views an argument; otherwise takes the CPU memory over, without a copy.
  at::Tensor to_device(at::Tensor result);

  // The device of the results: that of the first tensor aliased, until told.
  c10::DeviceIndex index() const { return std::max<c10::DeviceIndex>(index_, 0); }
  bool has_index() const { return index_ >= 0; }
  void set_index(c10::DeviceIndex index) { index_ = index; }

  // After the kernel has written `alias`, an alias of `original`: hands on what changed besides
  // the elements (storage grown, sizes, strides, sparse members).
  void adopt_changes(const at::Tensor& original, const at::Tensor& alias);
  // Copies what was written back to devices whose memory the host cannot touch. Once, after all
  // else.
  void write_back();

 private:
  struct Pair {
    c10::StorageImpl* original;
    c10::intrusive_ptr<c10::StorageImpl> alias;
    bool copied = false;  // the alias is a copy
    bool written = false;
  };

  void keep_alias(c10::StorageImpl& original, c10::StorageImpl& alias) const noexcept;
  c10::intrusive_ptr<c10::StorageImpl> alias_storage(const c10::Storage& storage);
  c10::intrusive_ptr<c10::StorageImpl> device_storage(const c10::Storage& cpu);
  at::Tensor special_to_cpu(const at::Tensor& t);
  at::Tensor special_to_device(const at::Tensor& t);
  void adopt_special(const at::Tensor& original, const at::Tensor& alias);

  c10::DeviceIndex index_ = -1;
  bool keeps_recording_ = false;
  c10::SmallVector<Pair, 6> pairs_;
};

// Keeps autograd and autocast from running again below a kernel of ours.
struct BelowAutograd {
  c10::impl::ExcludeDispatchKeyGuard guard{c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                           c10::autocast_dispatch_keyset};
};

inline const c10::Device kCpu(c10::DeviceType::CPU);

// The deleter of memory borrowed from a storage, which it keeps alive: a kernel may keep its
// argument (packed weights). `storage`: a c10::intrusive_ptr_target*.
void release_storage(void* storage);

// The allocator of alias storages: hologram memory under the CPU's name, so that a CPU kernel that
// resizes an output resizes it in our pool.
c10::Allocator* alias_allocator();

}  // namespace hologram_torch
