// SPDX-License-Identifier: Apache-2.0
// Buffers: views of host or device memory that know the type of its elements. Models, fabrics and strategies pass them
// on without reading the memory. Also DeviceAccess, by which a queue's work reaches the memory of its device.
#pragma once
#include <cstddef>
#include <memory>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <type_traits>

#include "core/element.hpp"
#include "runtime/device_memory.hpp"

namespace gradmeter::runtime {

/// A point in a queue's work. It is reached when all work before it is done, as with cudaEventRecord. Any thread may
/// ask whether it is reached, or wait for it.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool reached() const = 0;
  /// Returns once the event is reached.
  virtual void wait() const {
    while (!reached()) std::this_thread::yield();
  }
  /// Seconds from this event to a later one of the same device, by the device's own clock; both must be reached.
  /// Errors: std::logic_error for an event without a clock of its own.
  virtual double until(const Event& later) const {
    (void)later;
    throw std::logic_error("an event of a queue without a clock was asked for times");
  }
};
using EventPtr = std::shared_ptr<const Event>;  ///< null: an event that is reached

/// Gives work of a queue access to its device: only while the work runs, and only on the thread that runs it. The
/// defaults suit a device whose work runs on the host.
class DeviceAccess {
 public:
  virtual ~DeviceAccess() = default;
  /// The address at which the host reaches device memory. `is_writable`: the caller may write there. Errors:
  /// std::logic_error for an address that is not the device's.
  virtual std::byte* host_address(const std::byte* device_address, std::size_t bytes, bool is_writable) const = 0;
  /// The set of kernels that the work must launch: "host" or "cuda". On a device with kernels of its own, host code
  /// reads and writes memory only in operations that have no kernel.
  virtual std::string_view kernels() const { return "host"; }
  /// Copies device or host memory as the next work of the queue. False: the device cannot, so the caller must copy.
  virtual bool copy(std::byte* to, const std::byte* from, std::size_t bytes) const {
    return (void)to, (void)from, (void)bytes, false;
  }
  /// Copies device memory to the memory that transports reach, and back. Does nothing where the two are the same.
  virtual void to_transport(const std::byte* device_address, std::size_t bytes) const {
    (void)device_address, (void)bytes;
  }
  virtual void from_transport(std::byte* device_address, std::size_t bytes) const { (void)device_address, (void)bytes; }
  /// An event at this point of the work, by which the work is timed. Null: the work is done when its call returns, so
  /// the host's clock can time it.
  virtual EventPtr mark() const { return nullptr; }
};
/// The access of the work that runs on this thread. Null: the thread can reach no device.
inline thread_local const DeviceAccess* device_access = nullptr;

/// A view of memory that somebody else owns. Byte: std::byte, or const std::byte for memory that is only read. Errors:
/// std::logic_error when a device buffer is asked for host memory on a thread that cannot reach the device now, and
/// when a buffer is asked for another element type than it holds. So code that cannot reach the device gets an error
/// instead of crashing.
template <class Byte>
class BasicBuffer {
 public:
  /// Takes any contiguous range. Spans and vectors convert implicitly, since they are the common case.
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
  /// Takes memory with an element type known at run time. Errors: std::logic_error when the memory is not a whole
  /// number of elements.
  BasicBuffer(core::Element element, std::span<Byte> host) : BasicBuffer(element, host.data(), host.size(), false) {}
  BasicBuffer(core::Element element, DeviceSpan<Byte> device)
      : BasicBuffer(element, device.device_address(), device.bytes(), true) {}
  /// Converts writable memory to memory that is only read, as spans do.
  template <class Other>
  requires(std::is_same_v<Byte, const Other>) BasicBuffer(const BasicBuffer<Other>& other)  // NOLINT
      : address_(other.address_), count_(other.count_), element_(other.element_), on_device_(other.on_device_) {}

  /// Compares addresses, lengths and element types, not contents.
  bool operator==(const BasicBuffer&) const = default;

  core::Element element() const { return element_; }
  std::size_t count() const { return count_; }
  std::size_t bytes() const { return count_ * core::size_of(element_); }
  bool on_device() const { return on_device_; }
  /// The address, of the host or the device, for `DeviceAccess::copy` and comparisons. The host cannot read at a
  /// device's address.
  Byte* address() const { return address_; }

  Byte* host() const {
    if (!on_device_) return address_;
    if (device_access == nullptr) throw std::logic_error("device memory was given where host memory is needed");
    return device_access->host_address(address_, bytes(), !std::is_const_v<Byte>);
  }
  /// Views host memory as the type that it holds.
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
  /// Returns elements [offset, offset + count).
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
inline const Buffer empty_buffer = std::span<float>{};  ///< an empty buffer

}  // namespace gradmeter::runtime
