// SPDX-License-Identifier: MIT
// Storages whose bytes may be computed later: their addresses, and the watch over them.
#include <atomic>
#include <vector>

#include "device/tensor.h"

namespace hologram_torch {
namespace {

// A DataPtr has no function to change its address alone, and replacing it as a whole would briefly
// take the buffer away from other threads. Explicit instantiation may name private members.
template <auto kMember, class Tag>
struct Expose {
  friend constexpr auto member_of(Tag) { return kMember; }
};
struct Pointer {
  friend constexpr auto member_of(Pointer);
};
struct Address {
  friend constexpr auto member_of(Address);
};
template struct Expose<&c10::DataPtr::ptr_, Pointer>;
template struct Expose<&c10::detail::UniqueVoidPtr::data_, Address>;

// What it showed before.
void* show_address(c10::DataPtr& data, void* address) {
  void*& place = (data.*member_of(Pointer{})).*member_of(Address{});
  return std::atomic_ref<void*>(place).exchange(address, std::memory_order_acq_rel);
}

// Storages whose addresses were asked for as names, by this thread; see begin_naming().
thread_local std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> t_named;
thread_local int t_naming = 0;

}  // namespace

void correct_address(const c10::StorageImpl& storage, const hologram::Buffer& buffer) {
  c10::DataPtr& data = const_cast<c10::StorageImpl&>(storage)._mutable_data_ptr_no_checks();
  void* const address = buffer.data();
  void* const before = show_address(data, address);
  if (may_profile_memory()) report_moved(buffer, before, address);
}

void hide_address(const c10::StorageImpl& storage) {
  c10::DataPtr& data = const_cast<c10::StorageImpl&>(storage)._mutable_data_ptr_no_checks();
  const hologram::Buffer* const buffer = buffer_of(storage);
  void* const address = nowhere_of(buffer);
  void* const before = show_address(data, address);
  if (buffer != nullptr && may_profile_memory()) report_moved(*buffer, before, address);
}

void settle_storage(c10::StorageImpl& storage, hologram::Buffer& buffer) {
  try {
    hologram::materialize(buffer);
  } catch (const std::exception& error) {
    rethrow_as_torch(error, buffer.nbytes());
  }
  correct_address(storage, buffer);
}

void hand_out(c10::StorageImpl* storage) {
  hologram::Buffer* buffer = buffer_of(*storage);
  if (buffer == nullptr) return;
  if (hologram::is_capturing_graph()) check_look();
  if (t_naming > 0) {
    settle_storage(*storage, *buffer);
    t_named.emplace_back(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage));
    return;
  }
  hologram::mark_exported(*buffer);
  settle_storage(*storage, *buffer);
}

void begin_naming() { ++t_naming; }

void end_naming() {
  if (--t_naming > 0) return;
  for (const auto& weak : t_named) {
    const auto storage = weak.lock();
    if (storage != nullptr && !is_watched(*storage)) watch(*storage);
  }
  t_named.clear();
}

void export_storage([[maybe_unused]] c10::StorageImpl& storage) {
#if HOLOGRAM_CAN_DEFER
  if (!storage.has_materializer()) return;
  if (buffer_of(storage) == nullptr) {
    // A copy-on-write clone: the foreign code may write, so it gets memory of its own.
    storage.mutable_data();
    return;
  }
  hand_out(&storage);
  storage.clear_materializer();
#endif
}

namespace {

// Runs f(device, address of the storage's bytes).
template <class F>
void with_bytes(const c10::StorageImpl& storage, F&& f) {
  hologram::Buffer* buffer = buffer_of(storage);
  TORCH_INTERNAL_ASSERT(buffer != nullptr, "hologram: a storage of ", storage.device(),
                        " is not in its memory");
  settle_storage(const_cast<c10::StorageImpl&>(storage), *buffer);
  try {
    f(buffer->device(), static_cast<char*>(buffer->data()));
  } catch (const std::exception& error) {
    rethrow_as_torch(error, storage.nbytes());
  }
}

}  // namespace

void read_storage(const c10::StorageImpl& storage, size_t offset, void* to, size_t nbytes) {
  if (nbytes == 0) return;
  with_bytes(storage, [&](hologram::Device& device, const char* bytes) {
    device.copy_to_host(device.default_stream(), to, bytes + offset, nbytes);
  });
}

void write_storage(c10::StorageImpl& storage, size_t offset, const void* from, size_t nbytes) {
  if (nbytes == 0) return;
  with_bytes(storage, [&](hologram::Device& device, char* bytes) {
    device.copy_from_host(device.default_stream(), bytes + offset, from, nbytes);
  });
}

void grow_storage(c10::StorageImpl& storage, size_t nbytes) {
  const size_t before = storage.nbytes();
  if (nbytes <= before) return;
  c10::DataPtr grown = allocate_bytes(nbytes, storage.device().index());
  if (before != 0) {
    with_bytes(storage, [&](hologram::Device& device, const char* bytes) {
      device.copy_within(device.default_stream(), grown.get(), bytes, before);
    });
  }
  storage.set_data_ptr_noswap(std::move(grown));
  storage.set_nbytes(nbytes);
}

void adopt_memory(c10::DataPtr& data, size_t nbytes) {
  void* const address = data.get();
  void* const context = data.get_context();
  if (nbytes == 0 || address == nullptr || context == nullptr) return;
  hologram::Buffer* buffer =
      hologram::wrap_buffer(memory_device(), address, nbytes, data.get_deleter(), context);
  static_cast<void>(data.release_context());
  if (may_profile_memory()) report_taken(*buffer);
  data = c10::DataPtr(address, buffer, &release_buffer, data.device());
}

}  // namespace hologram_torch
