// SPDX-License-Identifier: MIT
// Sizes or strides of a tensor: a vector of integers that needs no memory of its own while short.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace hologram {

// As std::vector<int64_t>, whose members these are. Up to kInline values lie in the object.
class Shape {
 public:
  using value_type = int64_t;
  using iterator = int64_t*;
  using const_iterator = const int64_t*;
  using size_type = size_t;
  using difference_type = ptrdiff_t;
  using reference = int64_t&;
  using const_reference = const int64_t&;

  static constexpr size_t kInline = 5;

  Shape() = default;
  explicit Shape(size_t count, int64_t value = 0) { assign(count, value); }
  Shape(std::initializer_list<int64_t> values) { assign(values.begin(), values.end()); }
  Shape(const std::vector<int64_t>& values) { assign(values.begin(), values.end()); }  // NOLINT
  explicit Shape(std::span<const int64_t> values) { assign(values.begin(), values.end()); }
  template <class It, class = typename std::iterator_traits<It>::iterator_category>
  Shape(It first, It last) {
    assign(first, last);
  }
  Shape(const Shape& other) {
    if (other.is_inline()) {
      copy_inline(other);
      size_ = other.size_;
    } else {
      assign(other.begin(), other.end());
    }
  }
  Shape(Shape&& other) noexcept { take(other); }
  Shape& operator=(const Shape& other) {
    if (this != &other) assign(other.begin(), other.end());
    return *this;
  }
  Shape& operator=(Shape&& other) noexcept {
    if (this != &other) {
      drop();
      take(other);
    }
    return *this;
  }
  ~Shape() { drop(); }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t* data() { return is_inline() ? values_ : heap_; }
  const int64_t* data() const { return is_inline() ? values_ : heap_; }
  iterator begin() { return data(); }
  iterator end() { return data() + size_; }
  const_iterator begin() const { return data(); }
  const_iterator end() const { return data() + size_; }
  const_iterator cbegin() const { return begin(); }
  const_iterator cend() const { return end(); }
  int64_t& operator[](size_t i) { return data()[i]; }
  int64_t operator[](size_t i) const { return data()[i]; }
  int64_t& front() { return data()[0]; }
  int64_t front() const { return data()[0]; }
  int64_t& back() { return data()[size_ - 1]; }
  int64_t back() const { return data()[size_ - 1]; }

  void reserve(size_t capacity) {
    if (capacity > capacity_) grow(capacity);
  }
  void resize(size_t size, int64_t value = 0) {
    reserve(size);
    if (size > size_) std::fill(end(), data() + size, value);
    size_ = static_cast<uint32_t>(size);
  }
  void clear() { size_ = 0; }
  void push_back(int64_t value) {
    if (size_ == capacity_) grow(size_t{2} * capacity_);
    data()[size_++] = value;
  }
  void pop_back() { --size_; }
  void assign(size_t count, int64_t value) {
    reserve(count);
    std::fill_n(data(), count, value);
    size_ = static_cast<uint32_t>(count);
  }
  // [first, last) is not part of this.
  template <class It, class = typename std::iterator_traits<It>::iterator_category>
  void assign(It first, It last) {
    const auto count = static_cast<size_t>(std::distance(first, last));
    reserve(count);
    std::copy(first, last, data());
    size_ = static_cast<uint32_t>(count);
  }
  iterator insert(const_iterator position, int64_t value) {
    const ptrdiff_t at = position - begin();
    push_back(value);
    std::rotate(begin() + at, end() - 1, end());
    return begin() + at;
  }
  iterator erase(const_iterator position) {
    const ptrdiff_t at = position - begin();
    std::move(begin() + at + 1, end(), begin() + at);
    --size_;
    return begin() + at;
  }

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.size_ != b.size_) return false;
    const int64_t *x = a.data(), *y = b.data();
    for (size_t i = 0; i < a.size_; ++i) {  // std::equal() would be a call of memcmp()
      if (x[i] != y[i]) return false;
    }
    return true;
  }

 private:
  bool is_inline() const { return capacity_ == kInline; }
  // Copies all of the room: that takes a few instructions, a copy of size_ values is a call.
  void copy_inline(const Shape& other) noexcept {
    std::memcpy(values_, other.values_, sizeof(values_));
  }
  void grow(size_t capacity) {
    capacity = std::max(capacity, kInline + 1);
    auto* values = new int64_t[capacity];
    std::copy_n(data(), size_, values);
    drop();
    heap_ = values;
    capacity_ = static_cast<uint32_t>(capacity);
  }
  void drop() {
    if (!is_inline()) delete[] heap_;
    capacity_ = kInline;
  }
  // What `other` held; it is empty afterwards. This holds nothing before.
  void take(Shape& other) noexcept {
    size_ = std::exchange(other.size_, 0);
    if (other.is_inline()) {
      copy_inline(other);
    } else {
      heap_ = other.heap_;
      capacity_ = std::exchange(other.capacity_, static_cast<uint32_t>(kInline));
    }
  }

  uint32_t size_ = 0;
  uint32_t capacity_ = kInline;
  union {
    int64_t values_[kInline] = {};
    int64_t* heap_;
  };
};

}  // namespace hologram
