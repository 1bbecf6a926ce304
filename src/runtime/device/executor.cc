// SPDX-License-Identifier: MIT
// Executors, and the boundary pool each of them may keep small buffers in.
#include "hologram/executor.h"

#include <cstddef>

#include "hologram/error.h"
#include "hologram/memory.h"
#include "src/runtime/memory/buffer_access.h"
#include "src/runtime/memory/memory_watch.h"
#include "src/runtime/memory/size_class.h"

namespace hologram {

// Kept alive by the executor and by every buffer in it.
struct Executor::Pool {
  std::atomic<int64_t> references{1};
  BoundaryPool classes;

  void drop() noexcept {
    if (references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  // A buffer in a free class; null when none is free.
  Buffer* allocate(Device& device, size_t nbytes) {
    const int c = classes.acquire();
    if (c < 0) return nullptr;
    Buffer* b;
    try {
      b = internal::take_header(device, nbytes);
    } catch (...) {
      classes.release(c);
      throw;
    }
    references.fetch_add(1, std::memory_order_relaxed);
    internal::BufferAccess::pool(b) = PoolKind::kBoundary;
    internal::BufferAccess::size_class(b) = static_cast<uint16_t>(c);
    internal::BufferAccess::data(b) = classes.slot(c);
    internal::BufferAccess::capacity(b) = BoundaryPool::kClassBytes;
    internal::BufferAccess::owner(b) = this;
    internal::BufferAccess::deleter(b) = [](void* buffer) {
      auto* self = static_cast<Buffer*>(buffer);
      auto* pool = static_cast<Pool*>(internal::BufferAccess::owner(self));
      pool->classes.release(self->class_index());
      internal::BufferAccess::size_class(self) = internal::kBareClass;
      internal::count_boundary_block(-1);
      pool->drop();
    };
    internal::count_boundary_block(1);
    return b;
  }
};

std::shared_ptr<Executor> Executor::with_backend(BackendType backend) {
  return on_stream(hologram::device(backend).default_stream());
}

std::shared_ptr<Executor> Executor::automatic() { return with_backend(default_backend()); }

std::shared_ptr<Executor> Executor::on_stream(Stream& stream) {
  return std::shared_ptr<Executor>(new Executor(stream));
}

Executor::Executor(Stream& stream) : device_(stream.device()), stream_(stream) {
  // Boundary classes are host memory; devices of their own kind keep theirs.
  if (device_.is_host_memory()) pool_.store(new Pool, std::memory_order_release);
}

Executor::~Executor() {
  if (Pool* pool = pool_.load(std::memory_order_acquire)) pool->drop();
}

void Executor::check_open(const char* operation) const {
  if (closed()) {
    fail(ErrorKind::kState, operation, ": the executor is closed; make a new one");
  }
}

BufferRef Executor::allocate(int64_t length, Dtype dtype) {
  check_open("allocate");
  if (length < 0) {
    fail(ErrorKind::kInvalidArgument, "allocate: length is ", length,
         "; pass the number of elements, 0 or more");
  }
  size_t nbytes = 0;
  if (__builtin_mul_overflow(static_cast<size_t>(length), itemsize(dtype), &nbytes)) {
    fail(ErrorKind::kOutOfMemory, "out of memory: ", length, " elements of ", dtype_name(dtype),
         " are more bytes than an address can count");
  }
  Buffer* b = nullptr;
  Pool* pool = pool_.load(std::memory_order_acquire);
  if (pool != nullptr && nbytes != 0 && nbytes <= BoundaryPool::kClassBytes) {
    b = pool->allocate(device_, nbytes);
    if (b != nullptr) boundary_allocations_.fetch_add(1, std::memory_order_relaxed);
  }
  if (b == nullptr) b = allocate_buffer(device_, nbytes);
  b->set_dtype(dtype);
  allocations_.fetch_add(1, std::memory_order_relaxed);
  bytes_requested_.fetch_add(static_cast<int64_t>(nbytes), std::memory_order_relaxed);
  return BufferRef::adopt(b);
}

void Executor::synchronize() {
  check_open("synchronize");
  stream_.synchronize();
}

void Executor::close() noexcept { closed_.store(true, std::memory_order_release); }

ExecutorStats Executor::stats() const {
  check_open("stats");
  ExecutorStats s;
  s.allocations = allocations_.load(std::memory_order_relaxed);
  s.boundary_allocations = boundary_allocations_.load(std::memory_order_relaxed);
  s.bytes_requested = bytes_requested_.load(std::memory_order_relaxed);
  if (Pool* pool = pool_.load(std::memory_order_acquire)) {
    s.boundary_classes_free = pool->classes.free_classes();
  }
  s.work_submitted = stream_.submitted();
  return s;
}

}  // namespace hologram
