// SPDX-License-Identifier: Apache-2.0
// Memory of a device as a type of its own: device spans cannot be mixed with host spans, and the host cannot index
// them.
#pragma once
#include <cassert>
#include <cstddef>
#include <type_traits>

namespace gradmeter::runtime {

/// `size` elements at a device address, without ownership. It compiles without CUDA, so that all interfaces can use it.
template <class T>
class DeviceSpan {
 public:
  using element_type = T;

  constexpr DeviceSpan() = default;
  constexpr explicit DeviceSpan(T* device_address, std::size_t count) : address_(device_address), count_(count) {}
  /// Converts writable memory to memory that is only read, as spans do.
  template <class U>
  requires(std::is_same_v<T, const U>) constexpr DeviceSpan(DeviceSpan<U> other)
      : address_(other.device_address()), count_(other.size()) {}

  /// The address for launchers and library calls. There is no `data` or `begin`: with these members a device span would
  /// convert to a host span.
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
