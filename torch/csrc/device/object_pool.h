// SPDX-License-Identifier: MIT
// Memory for the small objects that every op makes and drops, kept in lists of the thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hologram_torch {

// Free places of one size. The limit is zero until the thread asks for its first place, and again
// once the thread is ending: what comes then goes to the heap.
struct PlaceList {
  struct Place {
    Place* next;
  };
  Place* head = nullptr;
  uint32_t count = 0;
  uint32_t limit = 0;
};

// One list for each type that has places.
enum class PlaceKind : uint8_t { kTensor, kStorage };
inline constexpr int kPlaceKinds = 2;

extern constinit thread_local PlaceList t_places[kPlaceKinds]
    __attribute__((tls_model("initial-exec")));

[[gnu::noinline]] void* take_place_slowly(size_t bytes);

// A final class like its base whose objects live in the lists. Its base has a virtual destructor,
// so deleting an object anywhere gives back its place.
template <class Base, PlaceKind kKind>
class Pooled final : public Base {
 public:
  using Base::Base;

  static void* operator new(size_t bytes) {
    PlaceList& list = t_places[static_cast<int>(kKind)];
    PlaceList::Place* place = list.head;
    if (place == nullptr) [[unlikely]]
      return take_place_slowly(bytes);
    list.head = place->next;
    --list.count;
    return place;
  }
  static void operator delete(void* object) noexcept {
    PlaceList& list = t_places[static_cast<int>(kKind)];
    if (list.count >= list.limit) [[unlikely]] {
      ::operator delete(object);
      return;
    }
    auto* place = static_cast<PlaceList::Place*>(object);
    place->next = list.head;
    list.head = place;
    ++list.count;
  }
};

}  // namespace hologram_torch
