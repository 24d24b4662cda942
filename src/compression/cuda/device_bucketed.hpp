// Bucketed codecs on a GPU.
#pragma once
#include "compression/cuda/device_codecs.hpp"

namespace gradmeter::compression::cuda {

DeviceCodecPtr make_device_bf16(const CodecChoice&);
DeviceCodecPtr make_device_fp16(const CodecChoice&);
DeviceCodecPtr make_device_fp8_e4m3(const CodecChoice&);
DeviceCodecPtr make_device_fp8_e5m2(const CodecChoice&);
DeviceCodecPtr make_device_lns4(const CodecChoice&);
DeviceCodecPtr make_device_natural8(const CodecChoice&);
DeviceCodecPtr make_device_onebit(const CodecChoice&);
DeviceCodecPtr make_device_qsgd1(const CodecChoice&);
/// Of 2, 4 and 8 bits.
DeviceCodecPtr make_device_qsgd(const CodecChoice&);

}  // namespace gradmeter::compression::cuda
