// Typed memory of the host or of a device, never mistaken for each other: what models, fabrics and strategies hand on
// without looking inside.
#pragma once
#include <cstddef>
#include <memory>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string_view>
#include <type_traits>

#include "core/element.hpp"
#include "runtime/device_memory.hpp"

namespace gradmeter::runtime {

/// A moment of a device's own clock, known once its queue got there.
class Mark {
 public:
  virtual ~Mark() = default;
  /// Seconds from this mark to a later one of the same device. Both are reached.
  virtual double until(const Mark& later) const = 0;
};
using MarkPtr = std::shared_ptr<const Mark>;

/// What work of a queue may do with its device, only while it runs, on that thread. What is not overridden is right for
/// a device whose work runs on the host.
class DeviceAccess {
 public:
  virtual ~DeviceAccess() = default;
  /// `written`: the caller may write there. Errors: std::logic_error for an address that is not the device's.
  virtual std::byte* host_address(const std::byte* device_address, std::size_t bytes, bool written) const = 0;
  /// Has it kernels of its own? Then work launches those that there are, and touches memory only for the rest.
  virtual std::string_view kernels() const { return "host"; }
  /// Copies, of device or host memory, as the queue's next work. False: the caller does.
  virtual bool copy(std::byte* to, const std::byte* from, std::size_t bytes) const {
    return (void)to, (void)from, (void)bytes, false;
  }
  /// Copies device memory to where transports reach it, and back. Nothing where both are one.
  virtual void to_transport(const std::byte* device_address, std::size_t bytes) const {
    (void)device_address, (void)bytes;
  }
  virtual void from_transport(std::byte* device_address, std::size_t bytes) const { (void)device_address, (void)bytes; }
  /// Null: work is done when it returns, by the host's clock.
  virtual MarkPtr mark() const { return nullptr; }
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
      : address_(reinterpret_cast<Byte*>(std::ranges::data(host))),
        count_(std::ranges::size(host)),
        element_(core::element_of<std::ranges::range_value_t<R>>) {}
  template <class T>
  BasicBuffer(DeviceSpan<T> device)  // NOLINT(google-explicit-constructor)
      : address_(reinterpret_cast<Byte*>(device.device_address())),
        count_(device.size()),
        element_(core::element_of<std::remove_const_t<T>>),
        on_device_(true) {}
  /// Memory of a type that is known at run time. Errors: std::logic_error when it is not a whole number of elements.
  BasicBuffer(core::Element element, std::span<Byte> host) : BasicBuffer(element, host.data(), host.size(), false) {}
  BasicBuffer(core::Element element, DeviceSpan<Byte> device)
      : BasicBuffer(element, device.device_address(), device.bytes(), true) {}
  /// Reading memory that may be written, as spans do.
  template <class Other>
  requires(std::is_same_v<Byte, const Other>) BasicBuffer(const BasicBuffer<Other>& other)  // NOLINT
      : address_(other.address_), count_(other.count_), element_(other.element_), on_device_(other.on_device_) {}

  /// The same place, not the same contents.
  bool operator==(const BasicBuffer&) const = default;

  core::Element element() const { return element_; }
  std::size_t count() const { return count_; }
  std::size_t bytes() const { return count_ * core::size_of(element_); }
  bool on_device() const { return on_device_; }
  /// For `DeviceAccess::copy` and comparisons, wherever it is: nobody else can follow a device's.
  Byte* address() const { return address_; }

  Byte* host() const {
    if (!on_device_) return address_;
    if (device_access == nullptr) throw std::logic_error("device memory was given where host memory is needed");
    return device_access->host_address(address_, bytes(), !std::is_const_v<Byte>);
  }
  /// Host memory as what it holds.
  template <class T>
  auto values() const {
    using Value = std::conditional_t<std::is_const_v<Byte>, const T, T>;
    if (core::element_of<T> != element_) throw std::logic_error("a buffer was asked for another type than it holds");
    return std::span<Value>(reinterpret_cast<Value*>(host()), count_);
  }
  /// Errors: std::logic_error for memory of the host.
  DeviceSpan<Byte> device() const {
    if (!on_device_) throw std::logic_error("host memory was given where device memory is needed");
    return DeviceSpan<Byte>(address_, bytes());
  }
  /// Elements [offset, offset + count).
  BasicBuffer part(std::size_t offset, std::size_t count) const {
    if (offset > count_ || count > count_ - offset) throw std::logic_error("a part beyond the end of its buffer");
    BasicBuffer out = *this;
    out.address_ += offset * core::size_of(element_);
    out.count_ = count;
    return out;
  }

 private:
  template <class>
  friend class BasicBuffer;
  BasicBuffer(core::Element element, Byte* address, std::size_t bytes, bool on_device)
      : address_(address), count_(bytes / core::size_of(element)), element_(element), on_device_(on_device) {
    if (count_ * core::size_of(element) != bytes) throw std::logic_error("a buffer of part of an element");
  }

  Byte* address_;
  std::size_t count_;  // elements
  core::Element element_;
  bool on_device_ = false;
};

using Buffer = BasicBuffer<std::byte>;
using ConstBuffer = BasicBuffer<const std::byte>;
inline const Buffer no_floats = std::span<float>{};  ///< an empty buffer

}  // namespace gradmeter::runtime
