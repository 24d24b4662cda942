// random-k between a worker and a server: both draw the places, so that only values travel.
#pragma once
#include "dataparallel/server/chunks/chunk_codec.hpp"

namespace gradmeter::dataparallel {

/// The draw depends on the change's clock, not on its sender. So all changes of a clock have the same places, and their
/// sum on a server is as sparse as each of them.
/// Wire: k fp32, k = ceil(density·n). Cost: O(k), with error feedback O(n) at the sender. Memory there: n with
/// feedback. Source: Stich et al., NeurIPS 2018; Vogels et al., NeurIPS 2019.
ChunkCodecPtr make_drawn_place_chunks(const compression::CodecChoice&, std::size_t senders);

}  // namespace gradmeter::dataparallel
