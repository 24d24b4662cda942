// The table of codecs on a GPU: for each codec of the registry its form there, or why it has none.
#pragma once
#include <memory>
#include <span>
#include <string_view>

#include "compression/cuda/device_codec.hpp"
#include "compression/registry.hpp"

namespace gradmeter::compression::cuda {

using DeviceCodecPtr = std::unique_ptr<const DeviceCodec>;

/// `codec`: a DeviceCodec. `parts`: the codec consists of collectives, and its arithmetic has kernels. `none`: refused.
enum class DeviceKind : unsigned char { codec, parts, none };

/// One row. `how`: what the kernels do, with the header where they are for `parts`; or why there are none. `make` is
/// null but for a codec.
struct DeviceForm {
  std::string_view name;
  DeviceKind kind = DeviceKind::codec;
  std::string_view how;
  DeviceCodecPtr (*make)(const CodecChoice&) = nullptr;
};
/// In the order of codecs(), a row for each.
std::span<const DeviceForm> device_forms();

/// Errors: UsageError with the row's reason where it is not of the kind `codec`.
DeviceCodecPtr make_device_codec(const CodecChoice&);

}  // namespace gradmeter::compression::cuda
