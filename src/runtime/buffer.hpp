// Typed memory of the host or of a device, never mistaken for each other: what models, fabrics and strategies hand on
// without looking inside.
#pragma once
#include <cstddef>
#include <ranges>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <variant>

#include "core/element.hpp"
#include "runtime/device_memory.hpp"

namespace gradmeter::runtime {

/// Where host code may reach the memory of a device: only while work of one of its queues runs, on that thread.
class DeviceAccess {
 public:
  virtual ~DeviceAccess() = default;
  /// Errors: std::logic_error for an address that is not the device's.
  virtual std::byte* host_address(const std::byte* device_address, std::size_t bytes) const = 0;
};
/// Of this thread. Null: nothing of any device can be reached.
inline thread_local const DeviceAccess* device_access = nullptr;

/// Says nothing about ownership. Byte: std::byte, or const std::byte for memory that is only read.
/// Errors: std::logic_error when host memory is asked of a device buffer that this thread cannot reach now, or another
/// type than it holds: whoever cannot reach the device says so instead of crashing.
template <class Byte>
class BasicBuffer {
 public:
  /// Any contiguous range: spans and vectors convert by themselves, since they are the common case.
  template <std::ranges::contiguous_range R>
  requires(std::is_const_v<Byte> || !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>)
      BasicBuffer(R&& host)  // NOLINT(google-explicit-constructor,bugprone-forwarding-reference-overload)
      : element_(core::element_of<std::ranges::range_value_t<R>>),
        count_(std::ranges::size(host)),
        memory_(std::span<Byte>(reinterpret_cast<Byte*>(std::ranges::data(host)),
                                std::ranges::size(host) * sizeof(std::ranges::range_value_t<R>))) {}
  template <class T>
  BasicBuffer(DeviceSpan<T> device)  // NOLINT(google-explicit-constructor)
      : element_(core::element_of<std::remove_const_t<T>>),
        count_(device.size()),
        memory_(DeviceSpan<Byte>(reinterpret_cast<Byte*>(device.device_address()), device.bytes())) {}
  /// Memory of a type that is known at run time. Errors: std::logic_error when it is not a whole number of elements.
  BasicBuffer(core::Element element, std::span<Byte> host) : BasicBuffer(element, host, host.size()) {}
  BasicBuffer(core::Element element, DeviceSpan<Byte> device) : BasicBuffer(element, device, device.bytes()) {}
  /// Reading memory that may be written, as spans do.
  template <class Other>
  requires(std::is_same_v<Byte, const Other>) BasicBuffer(const BasicBuffer<Other>& other)  // NOLINT
      : element_(other.element()), count_(other.count()), memory_(std::span<Byte>{}) {
    if (other.on_device()) {
      memory_ = DeviceSpan<Byte>(other.device());
    } else {
      memory_ = std::span<Byte>(other.host(), other.bytes());
    }
  }

  core::Element element() const { return element_; }
  std::size_t count() const { return count_; }
  std::size_t bytes() const { return count_ * core::size_of(element_); }
  bool on_device() const { return memory_.index() == 1; }

  Byte* host() const {
    if (!on_device()) return std::get<0>(memory_).data();
    if (device_access == nullptr) throw std::logic_error("device memory was given where host memory is needed");
    return device_access->host_address(std::get<1>(memory_).device_address(), bytes());
  }
  /// Host memory as what it holds.
  template <class T>
  auto values() const {
    using Value = std::conditional_t<std::is_const_v<Byte>, const T, T>;
    if (core::element_of<T> != element_) throw std::logic_error("a buffer was asked for another type than it holds");
    return std::span<Value>(reinterpret_cast<Value*>(host()), count_);
  }
  DeviceSpan<Byte> device() const { return std::get<1>(memory_); }
  /// Elements [offset, offset + count).
  BasicBuffer part(std::size_t offset, std::size_t count) const {
    if (offset > count_ || count > count_ - offset) throw std::logic_error("a part beyond the end of its buffer");
    BasicBuffer out = *this;
    const std::size_t width = core::size_of(element_);
    out.count_ = count;
    std::visit([&](auto& m) { m = m.subspan(offset * width, count * width); }, out.memory_);
    return out;
  }

 private:
  BasicBuffer(core::Element element, std::variant<std::span<Byte>, DeviceSpan<Byte>> memory, std::size_t bytes)
      : element_(element), count_(bytes / core::size_of(element)), memory_(memory) {
    if (count_ * core::size_of(element) != bytes) throw std::logic_error("a buffer of part of an element");
  }

  core::Element element_;
  std::size_t count_;
  std::variant<std::span<Byte>, DeviceSpan<Byte>> memory_;
};

using Buffer = BasicBuffer<std::byte>;
using ConstBuffer = BasicBuffer<const std::byte>;
inline const Buffer no_floats = std::span<float>{};  ///< an empty buffer

}  // namespace gradmeter::runtime
