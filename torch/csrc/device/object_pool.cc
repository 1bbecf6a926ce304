// SPDX-License-Identifier: MIT
// The thread's lists of free memory for small objects.
#include "device/object_pool.h"

#include <new>

namespace hologram_torch {

constinit thread_local PlaceList t_places[kPlaceKinds];

namespace {

// Tensors that a thread drops together, as at the end of a step, before any go to the heap.
constexpr uint32_t kMostPlaces = 256;

// Opens the lists of its thread, and empties them for good when the thread ends.
struct Opening {
  Opening() {
    for (PlaceList& list : t_places) list.limit = kMostPlaces;
  }
  ~Opening() {
    for (PlaceList& list : t_places) {
      list.limit = 0;
      while (PlaceList::Place* place = list.head) {
        list.head = place->next;
        ::operator delete(place);
      }
      list.count = 0;
    }
  }
};

}  // namespace

void* take_place_slowly(size_t bytes) {
  thread_local const Opening opening;
  return ::operator new(bytes);
}

}  // namespace hologram_torch
