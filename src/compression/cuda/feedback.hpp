// Error feedback on a GPU.
#pragma once
#include "compression/cuda/device_codec.hpp"

namespace gradmeter::compression::cuda {

/// As compression::encode_with_feedback, with its bits: p = x + residual is encoded, residual = p − decoded, 0 where
/// that is not finite. residual and scratch [x.size()] overlap nothing. Queued on the stream. Cost: beyond the codec's
/// encoding and decoding 24 bytes of device memory an element. Errors: as the codec's.
void encode_with_feedback(const DeviceCodec&, DeviceSpan<const float> x, DeviceSpan<float> residual,
                          DeviceSpan<float> scratch, DeviceSpan<std::byte> wire, const Draw&,
                          DeviceSpan<std::byte> workspace, cudaStream_t);

}  // namespace gradmeter::compression::cuda
