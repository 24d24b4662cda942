// random-k between two: both draw the places, so that only values travel.
#pragma once
#include "dataparallel/server/chunks/chunk_codec.hpp"

namespace gradmeter::dataparallel {

/// The draw names the change, not its sender: all who send a change of the same clock send the same places, and what a
/// server adds up is as sparse as each of them.
/// Wire: k fp32, k = ceil(density·n). Cost: O(k), with error feedback O(n) at the sender. Memory there: n with
/// feedback. Source: Stich et al., NeurIPS 2018; Vogels et al., NeurIPS 2019.
ChunkCodecPtr make_drawn_place_chunks(const compression::CodecChoice&, std::size_t senders);

}  // namespace gradmeter::dataparallel
