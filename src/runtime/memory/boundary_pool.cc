// SPDX-License-Identifier: MIT
// Boundary pools: 96 classes of scratch in one piece, claimed by bit.
#include <pthread.h>

#include <bit>
#include <mutex>

#include "hologram/error.h"
#include "hologram/memory.h"
#include "src/runtime/memory/memory_watch.h"
#include "src/runtime/memory/os_memory.h"

namespace hologram {
namespace {

constexpr size_t kPoolBytes = BoundaryPool::kClasses * BoundaryPool::kClassStride;

// The bits of the second word that are no classes count as taken.
constexpr uint64_t kNoClass = ~uint64_t{0} << (BoundaryPool::kClasses - 64);

constinit thread_local BoundaryPool* t_pool = nullptr;

// Pools of ended threads wait here for new ones; leaked, since threads may outlive main.
struct PoolNode {
  BoundaryPool pool;
  PoolNode* next = nullptr;
  PoolNode* older = nullptr;
};
struct Keeper {
  std::mutex mutex;
  PoolNode* spare = nullptr;
  PoolNode* newest = nullptr;  // of all
  pthread_key_t key{};
  bool key_made = false;
};

void give_back(void* argument);

Keeper& keeper() {
  static Keeper* instance = [] {
    auto* k = new Keeper;
    k->key_made = pthread_key_create(&k->key, give_back) == 0;
    return k;
  }();
  return *instance;
}

void lock_keeper() { keeper().mutex.lock(); }
void unlock_keeper() { keeper().mutex.unlock(); }

// The child has one thread; it may use the pools of the others, as of threads that ended.
void after_fork_in_child() {
  Keeper& k = keeper();
  k.spare = nullptr;
  for (PoolNode* node = k.newest; node != nullptr; node = node->older) {
    if (&node->pool == t_pool) continue;
    for (int c = 0; c < BoundaryPool::kClasses; ++c) node->pool.release(c);
    node->next = k.spare;
    k.spare = node;
  }
  k.mutex.unlock();
}

// Registered as the library is loaded, before the recorders': what they still run before a fork
// takes pools.
[[maybe_unused]] const int kHandled =
    pthread_atfork(lock_keeper, unlock_keeper, after_fork_in_child);

void give_back(void* argument) {
  auto* node = static_cast<PoolNode*>(argument);
  t_pool = nullptr;
  Keeper& k = keeper();
  std::lock_guard lock(k.mutex);
  node->next = k.spare;
  k.spare = node;
}

}  // namespace

BoundaryPool::BoundaryPool() : taken_{{0}, {kNoClass}} {}

BoundaryPool::~BoundaryPool() {
  if (char* base = base_.load(std::memory_order_acquire)) {
    internal::os_unmap(base, kPoolBytes);
    internal::count_boundary_reserved(-static_cast<int64_t>(kPoolBytes));
  }
}

char* BoundaryPool::map() {
  void* mapped = internal::os_map(kPoolBytes);
  if (mapped == nullptr) {
    empty_cache();
    mapped = internal::os_map(kPoolBytes);
  }
  if (mapped == nullptr) {
    fail(ErrorKind::kOutOfMemory, "out of memory: the operating system refused the ", kPoolBytes,
         " bytes of a boundary pool; free buffers and try again");
  }
  char* expected = nullptr;
  if (!base_.compare_exchange_strong(expected, static_cast<char*>(mapped),
                                     std::memory_order_acq_rel)) {
    internal::os_unmap(mapped, kPoolBytes);
    return expected;
  }
  internal::count_boundary_reserved(static_cast<int64_t>(kPoolBytes));
  return static_cast<char*>(mapped);
}

int BoundaryPool::acquire() {
  base();
  for (int word = 0; word < 2; ++word) {
    uint64_t taken = taken_[word].load(std::memory_order_relaxed);
    while (taken != ~uint64_t{0}) {
      const int bit = std::countr_one(taken);
      if (taken_[word].compare_exchange_weak(taken, taken | uint64_t{1} << bit,
                                             std::memory_order_acquire,
                                             std::memory_order_relaxed)) {
        const int c = word * 64 + bit;
        if (internal::is_poisoning()) [[unlikely]]
          internal::poison(slot(c), kClassBytes);
        return c;
      }
    }
  }
  return -1;
}

void BoundaryPool::release(int c) noexcept {
  taken_[c / 64].fetch_and(~(uint64_t{1} << (c % 64)), std::memory_order_release);
}

int BoundaryPool::free_classes() const {
  return std::popcount(~taken_[0].load(std::memory_order_relaxed)) +
         std::popcount(~taken_[1].load(std::memory_order_relaxed));
}

BoundaryPool& this_thread_pool() {
  if (t_pool != nullptr) [[likely]]
    return *t_pool;
  Keeper& k = keeper();
  PoolNode* node = nullptr;
  {
    std::lock_guard lock(k.mutex);
    if (k.spare != nullptr) {
      node = k.spare;
      k.spare = node->next;
    }
  }
  if (node == nullptr) {
    node = new PoolNode;
    std::lock_guard lock(k.mutex);
    node->older = k.newest;
    k.newest = node;
  }
  if (k.key_made) pthread_setspecific(k.key, node);
  t_pool = &node->pool;
  return *t_pool;
}

}  // namespace hologram
