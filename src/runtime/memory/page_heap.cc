// SPDX-License-Identifier: MIT
// Best fit by exact lists of spans, one for each number of pages, and a bit for each list; joining
// by links to the neighbours. Both are Knuth's boundary-tag method (The Art of Computer
// Programming, vol. 1, 2.5) with the tags beside the memory, which may be without pages.
#include "src/runtime/memory/page_heap.h"

#include <algorithm>
#include <bit>
#include <mutex>
#include <new>

#include "src/runtime/memory/memory_watch.h"
#include "src/runtime/memory/os_memory.h"

namespace hologram::internal {
namespace {

constexpr size_t kFirstChunk = kHugePage;
constexpr size_t kLargestChunk = 16 * kHugePage;
static_assert(kFirstChunk >= kLongestSpan);

// Spans of one state by length; the last list has all that are longer than anyone asks for.
class Lengths {
 public:
  void add(Span* span) {
    const size_t list = list_of(span->bytes);
    span->newer = nullptr;
    span->older = first_[list];
    if (span->older != nullptr) span->older->newer = span;
    first_[list] = span;
    filled_[list / 64] |= uint64_t{1} << list % 64;
  }
  void remove(Span* span) {
    const size_t list = list_of(span->bytes);
    (span->newer != nullptr ? span->newer->older : first_[list]) = span->older;
    if (span->older != nullptr) span->older->newer = span->newer;
    if (first_[list] == nullptr) filled_[list / 64] &= ~(uint64_t{1} << list % 64);
  }
  // The shortest that holds `bytes`; null when none does.
  Span* find(size_t bytes) const {
    size_t list = list_of(bytes);
    uint64_t word = filled_[list / 64] & ~uint64_t{0} << list % 64;
    for (size_t i = list / 64;;) {
      if (word != 0) {
        list = i * 64 + static_cast<size_t>(std::countr_zero(word));
        break;
      }
      if (++i == kWords) return nullptr;
      word = filled_[i];
    }
    Span* best = first_[list];
    if (list < kLists - 1) return best;
    Span* other = best->older;
    for (int looks = 0; other != nullptr && looks < kLooks; ++looks, other = other->older) {
      if (other->bytes < best->bytes) best = other;
    }
    return best;
  }

 private:
  static constexpr size_t kLists = kLongestSpan / kPage + 2;
  static constexpr size_t kWords = (kLists + 63) / 64;
  static constexpr int kLooks = 16;  // any long one will do; the shortest of some is better
  static size_t list_of(size_t bytes) { return std::min(bytes / kPage, kLists - 1); }

  Span* first_[kLists] = {};
  uint64_t filled_[kWords] = {};
};

// Leaked on purpose: buffers are released until the very end of the process.
struct Heap {
  std::mutex mutex;  // everything below
  Lengths free;
  Lengths unbacked;
  size_t next_chunk = kFirstChunk;
  struct Taken {
    const char* base = nullptr;
    size_t colour = 0;
  } last_taken[2];
  size_t colours = 0;       // given so far
  Span* chunks = nullptr;   // the first span of each, which is never joined away
  Span* records = nullptr;  // that describe nothing, through `next`
};

Heap& heap() {
  static Heap* instance = new Heap;
  return *instance;
}

// All of the following are called with the lock held.

Lengths& lengths(Heap& h, Span::State state) {
  return state == Span::State::kFree ? h.free : h.unbacked;
}

Span* make_record(Heap& h) {
  Span* span = h.records;
  if (span != nullptr) {
    h.records = span->next;
    *span = {};
  } else {
    span = new (std::nothrow) Span;
  }
  return span;
}

// Keeps blocks that are handed out one after another at different places of their pages. A block
// had again and again stays where it is.
void choose_colour(Heap& h, Span* span) {
  const auto is_close = [&](const Heap::Taken& other) {
    const size_t apart = (span->colour - other.colour) % kPage;
    return other.base != span->base && std::min(apart, kPage - apart) < 4 * kColour;
  };
  while (is_close(h.last_taken[0]) || is_close(h.last_taken[1])) {
    span->colour = static_cast<uint16_t>(colour_of(h.colours++));
  }
  if (h.last_taken[0].base != span->base) h.last_taken[1] = h.last_taken[0];
  h.last_taken[0] = {span->base, span->colour};
}

// Cuts a span that is in no list: it keeps `bytes`, the rest becomes a span of its state. False
// when there is no memory for the record.
bool split(Heap& h, Span* span, size_t bytes) {
  if (span->bytes == bytes) return true;
  Span* rest = make_record(h);
  if (rest == nullptr) return false;
  rest->base = span->base + bytes;
  rest->bytes = span->bytes - bytes;
  rest->state = span->state;
  rest->before = span;
  rest->after = span->after;
  if (rest->after != nullptr) rest->after->before = rest;
  span->after = rest;
  span->bytes = bytes;
  lengths(h, rest->state).add(rest);
  return true;
}

// Makes `span` reach over the one after it, whose record goes. Neither is in a list.
void swallow(Heap& h, Span* span) {
  Span* gone = span->after;
  span->bytes += gone->bytes;
  span->after = gone->after;
  if (span->after != nullptr) span->after->before = span;
  gone->next = h.records;
  h.records = gone;
}

// Puts a span into the list of its state, joined with its neighbours in that state.
void settle(Heap& h, Span* span) {
  Lengths& list = lengths(h, span->state);
  if (Span* after = span->after; after != nullptr && after->state == span->state) {
    list.remove(after);
    swallow(h, span);
  }
  if (Span* before = span->before; before != nullptr && before->state == span->state) {
    list.remove(before);
    swallow(h, before);
    span = before;
  }
  list.add(span);
}

// A chunk as one span, in the list of those without memory.
Span* make_chunk(Heap& h) {
  Span* span = make_record(h);
  if (span == nullptr) return nullptr;
  size_t size = h.next_chunk;
  void* mapped = os_map(size);
  if (mapped == nullptr) mapped = os_map(size = kFirstChunk);
  if (mapped == nullptr) {
    span->next = h.records;
    h.records = span;
    return nullptr;
  }
  h.next_chunk = std::min(size * 2, kLargestChunk);
  span->base = static_cast<char*>(mapped);
  span->bytes = size;
  span->state = Span::State::kUnbacked;
  span->chunk = h.chunks;
  h.chunks = span;
  h.unbacked.add(span);
  return span;
}

}  // namespace

size_t round_to_pages(size_t bytes) {
  const size_t page = std::clamp(system_page(), kPage, kLargestPage);
  return (bytes + page - 1) / page * page;
}

Span* take_span(size_t bytes) {
  bytes = round_to_pages(bytes);
  Heap& h = heap();
  size_t fresh = 0;
  const char* fresh_at = nullptr;
  Span* span;
  {
    std::lock_guard lock(h.mutex);
    span = h.free.find(bytes);
    if (span != nullptr) {
      h.free.remove(span);
    } else {
      Span* source = h.unbacked.find(bytes);
      if (source == nullptr) source = make_chunk(h);
      if (source == nullptr) return nullptr;
      // Free pages that end where it begins are too few, so they are part of the span.
      Span* before = source->before;
      span = before != nullptr && before->state == Span::State::kFree ? before : source;
      fresh = span != source ? bytes - span->bytes : bytes;
      if (!reserve_bytes(fresh)) return nullptr;
      h.unbacked.remove(source);
      if (!split(h, source, fresh)) {
        h.unbacked.add(source);
        unreserve_bytes(fresh);
        return nullptr;
      }
      fresh_at = source->base;
      if (span != source) {
        h.free.remove(span);
        swallow(h, span);
      }
    }
    split(h, span, bytes);  // where it can't, the span is longer
    span->state = Span::State::kUsed;
    choose_colour(h, span);
  }
  if (fresh != 0) note_segment(MemoryEvent::kReserve, fresh_at, fresh);
  return span;
}

void give_span(Span* span) noexcept {
  Heap& h = heap();
  std::lock_guard lock(h.mutex);
  span->state = Span::State::kFree;
  settle(h, span);
}

void trim_spans() noexcept {
  Heap& h = heap();
  while (true) {
    Span* span;
    {
      std::lock_guard lock(h.mutex);
      span = h.free.find(kPage);
      if (span == nullptr) return;
      h.free.remove(span);
      span->state = Span::State::kUsed;  // no one joins with it
    }
    os_discard(span->base, span->bytes);
    unreserve_bytes(span->bytes);
    note_segment(MemoryEvent::kUnreserve, span->base, span->bytes);
    std::lock_guard lock(h.mutex);
    span->state = Span::State::kUnbacked;
    settle(h, span);
  }
}

std::vector<SpanPlace> list_spans() {
  Heap& h = heap();
  std::vector<SpanPlace> places;
  std::lock_guard lock(h.mutex);
  for (const Span* chunk = h.chunks; chunk != nullptr; chunk = chunk->chunk) {
    for (const Span* span = chunk; span != nullptr; span = span->after) {
      if (span->state == Span::State::kUnbacked) continue;
      places.push_back({reinterpret_cast<uintptr_t>(span->base), span->bytes});
    }
  }
  return places;
}

void spans_lock() { heap().mutex.lock(); }
void spans_unlock() { heap().mutex.unlock(); }

}  // namespace hologram::internal
