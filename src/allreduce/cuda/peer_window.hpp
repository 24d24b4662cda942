// What GPUs that read each other's memory show, and what a call of a kernel on it is given.
#pragma once
#include <cstddef>
#include <cstdint>

namespace gradmeter::allreduce::cuda {

inline constexpr unsigned most_peers = 64;        ///< GPUs that read each other's memory, themselves included
inline constexpr unsigned most_peer_blocks = 36;  ///< of a kernel: all spin, so all must be resident at once

/// What each GPU shows its peers: flags of barriers between blocks of one number, two slots for what it gives, in turn,
/// and what else peers read; and its own counts. Zeroed before the first call.
struct PeerWindow {
  static constexpr std::size_t flag_bytes = sizeof(std::uint32_t) * most_peers * most_peer_blocks;
  static constexpr std::size_t count_bytes = 16;  ///< of the GPU's calls, and of the call's blocks that are done
  std::size_t room;                               ///< of each place [bytes], a multiple of 16
  unsigned places = 2;                            ///< slots included

  static constexpr std::size_t counts() { return flag_bytes; }
  constexpr std::size_t given(unsigned slot) const { return flag_bytes + count_bytes + slot * room; }
  constexpr std::size_t result() const { return given(2); }  ///< the third place
  constexpr std::size_t bytes() const { return given(places); }
};

struct PeerCall {
  std::byte* windows[most_peers];  ///< by rank, as this GPU reaches them
  unsigned ranks, rank;
  PeerWindow window;
  unsigned blocks;         ///< at most, up to most_peer_blocks; the same on all GPUs
  std::uint32_t barriers;  ///< numbers of barriers that each call of the window takes, whether it uses them or not
};

}  // namespace gradmeter::allreduce::cuda
