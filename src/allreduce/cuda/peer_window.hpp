// What GPUs that read each other's memory show, and what a call of a kernel on it is given.
#pragma once
#include <cstddef>
#include <cstdint>

namespace gradmeter::allreduce::cuda {

inline constexpr unsigned most_peers = 64;        ///< GPUs that read each other's memory, themselves included
inline constexpr unsigned most_peer_blocks = 36;  ///< of a kernel: all spin, so all must be resident at once

/// What each GPU shows its peers: flags of barriers between blocks of one number, two slots for what it gives, in turn,
/// and what else peers read. Zeroed before the first call.
struct PeerWindow {
  static constexpr std::size_t flag_bytes = sizeof(std::uint32_t) * most_peers * most_peer_blocks;
  std::size_t room;     ///< of each place [bytes], a multiple of 16
  unsigned places = 2;  ///< slots included

  constexpr std::size_t given(unsigned slot) const { return flag_bytes + slot * room; }
  constexpr std::size_t result() const { return flag_bytes + 2 * room; }  ///< the third place
  constexpr std::size_t bytes() const { return flag_bytes + places * room; }
};

struct PeerCall {
  std::byte* windows[most_peers];  ///< by rank, as this GPU reaches them
  unsigned ranks, rank;
  PeerWindow window;
  unsigned slot;          ///< place that holds what is given
  unsigned blocks;        ///< at most, up to most_peer_blocks; the same on all GPUs
  std::uint32_t barrier;  ///< number of the call's first barrier, from 1 on; how many more it may use is the row's
};

}  // namespace gradmeter::allreduce::cuda
