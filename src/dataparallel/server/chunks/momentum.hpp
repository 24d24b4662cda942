// Deep gradient compression between a worker and a server: the sender corrects momentum, the largest elements travel.
#pragma once
#include "dataparallel/server/chunks/chunk_codec.hpp"

namespace gradmeter::dataparallel {

/// Local clipping takes the norm of the chunk, and the senders for the number of ranks.
/// Wire: as top-k's. Memory at the sender: 2n. Source: Lin et al., ICLR 2018, section 3.
ChunkCodecPtr make_momentum_chunks(const compression::CodecChoice&, std::size_t senders);

}  // namespace gradmeter::dataparallel
