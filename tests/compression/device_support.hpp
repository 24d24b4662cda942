// SPDX-License-Identifier: Apache-2.0
// Codecs on the device against the host's: buffers, and one call each with what it must not touch.
#pragma once
#include <algorithm>
#include <limits>
#include <vector>

#include "compression/cuda/device_codec.hpp"
#include "runtime/cuda/handles.hpp"
#include "support.hpp"
#include "support/on_device.hpp"

namespace gradmeter::compression::cuda {

using test::expect_equal_floats;
using test::on_device;
using test::read_back;

/// Wires are followed by bytes that nobody may write.
inline constexpr std::size_t guard_bytes = 64;

class OnDevice {
 public:
  OnDevice(const CodecChoice& choice, std::size_t n)
      : host(*choice.codec),
        device(make_device_codec(choice)),
        n_(n),
        before_(n % 2),
        workspace_(device->reduce_workspace_bytes(n)) {}

  Bytes encode(std::span<const float> x, const RandomDraw& draw) {
    const auto on = placed(x);
    return written([&](DeviceSpan<std::byte> wire) {
      device->encode(on.span().subspan(before_, n_), wire, draw, workspace_.span(), stream.get());
    });
  }
  std::vector<float> decode(const Bytes& wire, std::span<const float> addend, bool in_place = false) {
    const auto on = on_device<std::byte>(wire, stream);
    auto added = placed(addend), own = placed(std::vector<float>(n_));
    auto& out = in_place ? added : own;
    const DeviceSpan<const float> none;
    device->decode(on.span(), addend.empty() ? none : added.span().subspan(before_, n_),
                   out.span().subspan(before_, n_), workspace_.span(), stream.get());
    const std::vector<float> all = read_back<float>(out.span(), stream);
    for (std::size_t i = before_ + n_; i < all.size(); ++i) EXPECT_TRUE(std::isnan(all[i])) << "behind the tensor";
    return {all.begin() + static_cast<std::ptrdiff_t>(before_),
            all.begin() + static_cast<std::ptrdiff_t>(before_ + n_)};
  }
  Bytes reduce(std::span<const Bytes> wires, const RandomDraw& draw) {
    std::vector<runtime::DeviceBuffer<std::byte>> on;
    std::vector<DeviceSpan<const std::byte>> spans;
    for (const Bytes& wire : wires) spans.push_back(on.emplace_back(on_device<std::byte>(wire, stream)).span());
    return written(
        [&](DeviceSpan<std::byte> out) { device->reduce(spans, n_, out, draw, workspace_.span(), stream.get()); });
  }

  const Codec& host;
  const DeviceCodecPtr device;
  const runtime::Stream stream;

 private:
  /// NaN before and behind: whoever reads it would show it, whoever writes it would remove it. An odd tensor does not
  /// begin at a multiple of 16 bytes.
  runtime::DeviceBuffer<float> placed(std::span<const float> x) const {
    constexpr std::size_t behind = 64;
    std::vector<float> all(before_ + n_ + behind, std::numeric_limits<float>::quiet_NaN());
    std::copy(x.begin(), x.end(), all.begin() + static_cast<std::ptrdiff_t>(before_));
    return on_device<float>(all, stream);
  }

  template <class Write>
  Bytes written(Write write) {
    const std::size_t bytes = device->wire_bytes(n_);
    const Bytes before(bytes + guard_bytes, std::byte{0xa5});
    auto wire = on_device<std::byte>(before, stream);
    write(wire.span().first(bytes));
    Bytes after = read_back<std::byte>(wire.span(), stream);
    for (std::size_t i = bytes; i < after.size(); ++i) EXPECT_EQ(after[i], std::byte{0xa5}) << "behind the wire";
    after.resize(bytes);
    return after;
  }

  std::size_t n_, before_;
  runtime::DeviceBuffer<std::byte> workspace_;
};

}  // namespace gradmeter::compression::cuda
