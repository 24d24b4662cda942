// Top-k on a GPU, and the part of DGC that is more than top-k.
#pragma once
#include "compression/codecs/topk.hpp"
#include "compression/cuda/device_codecs.hpp"
#include "compression/cuda/topk.hpp"

namespace gradmeter::compression::cuda {

DeviceCodecPtr make_device_topk(const CodecChoice&);

/// The wire of a codec of n elements.
TopKWire topk_wire(const TopK&, std::size_t n);

}  // namespace gradmeter::compression::cuda
