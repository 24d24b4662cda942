// Memory given to a fabric: on the host or on a device, never mistaken for each other.
#pragma once
#include <cstddef>
#include <span>
#include <stdexcept>
#include <variant>

#include "core/element.hpp"
#include "runtime/device_memory.hpp"

namespace gradmeter::dataparallel {

/// A typed span of host or device memory. Asking a device buffer for host memory throws: a fabric that cannot reach
/// the device says so instead of crashing.
template <class Byte>
class BasicBuffer {
 public:
  template <class T>
  BasicBuffer(std::span<T> host)  // NOLINT: implicit on purpose, spans are the common case
      : element_(core::element_of<std::remove_const_t<T>>), count_(host.size()), memory_(bytes_of(host)) {}
  template <class T>
  BasicBuffer(runtime::DeviceSpan<T> device)  // NOLINT
      : element_(core::element_of<std::remove_const_t<T>>),
        count_(device.size()),
        memory_(runtime::DeviceSpan<Byte>(reinterpret_cast<Byte*>(device.device_address()), device.bytes())) {}

  core::Element element() const { return element_; }
  std::size_t count() const { return count_; }
  std::size_t bytes() const { return count_ * core::size_of(element_); }
  bool on_device() const { return memory_.index() == 1; }
  Byte* host() const {
    if (on_device()) throw std::logic_error("a device buffer was given to a fabric over host memory");
    return std::get<0>(memory_).data();
  }
  runtime::DeviceSpan<Byte> device() const { return std::get<1>(memory_); }

 private:
  template <class T>
  static std::span<Byte> bytes_of(std::span<T> s) {
    return {reinterpret_cast<Byte*>(s.data()), s.size_bytes()};
  }
  core::Element element_;
  std::size_t count_;
  std::variant<std::span<Byte>, runtime::DeviceSpan<Byte>> memory_;
};

using Buffer = BasicBuffer<std::byte>;
using ConstBuffer = BasicBuffer<const std::byte>;

}  // namespace gradmeter::dataparallel
