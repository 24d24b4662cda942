// Memory of a device as a type of its own: a host span and a device span do not mix, and the host cannot index one.
#pragma once
#include <cassert>
#include <cstddef>
#include <type_traits>

namespace gradmeter::runtime {

/// `size` elements at a device address. Says nothing about ownership. Compiles without CUDA, so that interfaces can
/// name it everywhere.
template <class T>
class DeviceSpan {
 public:
  using element_type = T;

  constexpr DeviceSpan() = default;
  constexpr explicit DeviceSpan(T* device_address, std::size_t count) : address_(device_address), count_(count) {}
  /// Reading memory that may be written, as spans do.
  template <class U>
  requires(std::is_same_v<T, const U>) constexpr DeviceSpan(DeviceSpan<U> other)
      : address_(other.device_address()), count_(other.size()) {}

  /// For launchers and library calls. No `data`, no `begin`: that would make a span of it.
  constexpr T* device_address() const { return address_; }
  constexpr std::size_t size() const { return count_; }
  constexpr std::size_t bytes() const { return count_ * sizeof(T); }
  constexpr bool empty() const { return count_ == 0; }

  constexpr DeviceSpan first(std::size_t count) const { return subspan(0, count); }
  constexpr DeviceSpan subspan(std::size_t offset) const {
    assert(offset <= count_);
    return subspan(offset, count_ - offset);
  }
  constexpr DeviceSpan subspan(std::size_t offset, std::size_t count) const {
    assert(offset <= count_ && count <= count_ - offset);
    return DeviceSpan(address_ + offset, count);
  }

 private:
  T* address_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace gradmeter::runtime
