// TernGrad on a GPU.
#pragma once
#include "compression/cuda/device_codecs.hpp"

namespace gradmeter::compression::cuda {

DeviceCodecPtr make_device_terngrad(const CodecChoice&);

}  // namespace gradmeter::compression::cuda
