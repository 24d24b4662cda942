// PowerSGD between a worker and a server: the sender makes both thin factors of its own change, as there is no sum.
#pragma once
#include "dataparallel/server/chunks/chunk_codec.hpp"

namespace gradmeter::dataparallel {

/// A chunk is taken as nearly square. Q is kept from one change to the next (warm start).
/// Wire: P, then Q, padded; a chunk that would shrink less than 2x goes dense. Memory at the sender: Q, and n with
/// error feedback. Cost: 6·rank flops an element to encode and 2·rank to decode. Source: Vogels et al., NeurIPS 2019,
/// with one worker.
ChunkCodecPtr make_thin_factor_chunks(const compression::CodecChoice&, std::size_t senders);

}  // namespace gradmeter::dataparallel
