// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/peer_memory.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>

#include "core/error.hpp"

namespace gradmeter::runtime {
namespace {

using VmTransfer = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);

/// Moves all bytes; a single call of the kernel may move fewer, up to the end of a mapping. Returns why it failed;
/// empty: it did not.
std::string transfer_bytes(VmTransfer transfer, pid_t process, std::byte* own, std::byte* theirs, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const iovec own_part{own + done, bytes - done}, peer_part{theirs + done, bytes - done};
    const ssize_t moved = transfer(process, &own_part, 1, &peer_part, 1, 0);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) return moved < 0 ? std::strerror(errno) : "the memory is not mapped";
    done += static_cast<std::size_t>(moved);
  }
  return {};
}

}  // namespace

bool PeerMemory::is_here() const { return process_ == ::getpid(); }

void PeerMemory::read(const std::byte* from, std::span<std::byte> to) const {
  if (const auto why = transfer_bytes(::process_vm_readv, process_, to.data(), const_cast<std::byte*>(from), to.size());
      !why.empty())
    throw core::BackendError("kernel", "process_vm_readv", why);
}

void PeerMemory::write(std::span<const std::byte> from, std::byte* to) const {
  if (const auto why =
          transfer_bytes(::process_vm_writev, process_, const_cast<std::byte*>(from.data()), to, from.size());
      !why.empty())
    throw core::BackendError("kernel", "process_vm_writev", why);
}

// Each rank publishes the address of a random word. A process with the same number on another host, or in another
// namespace, does not hold that word.
std::vector<PeerMemory> reach_peer_memory(const Communicator& c) {
  struct ReachableWord {
    pid_t process = 0;
    std::uint64_t word = 0;
    std::uint64_t* address = nullptr;
  };
  const auto size = static_cast<std::size_t>(c.size()), rank = static_cast<std::size_t>(c.rank());
  if (c.ranks_as() == RanksAs::threads) return std::vector(size, PeerMemory(::getpid()));
  std::random_device entropy;
  std::vector<std::uint64_t> written(size, 0);  // by rank: the word that this peer wrote here
  std::uint64_t word = std::uint64_t{entropy()} << 32 | entropy();
  const auto peers = c.all_gather_value(ReachableWord{::getpid(), word, &word});
  const auto write_targets = c.all_gather_value(written.data());
  bool is_reached = true;
  for (std::size_t q = 0; q < size && is_reached; ++q) {
    std::uint64_t seen = 0;
    const ReachableWord& peer = peers[q];
    is_reached = transfer_bytes(::process_vm_readv, peer.process, reinterpret_cast<std::byte*>(&seen),
                                reinterpret_cast<std::byte*>(peer.address), sizeof(seen))
                     .empty() &&
                 seen == peer.word &&
                 transfer_bytes(::process_vm_writev, peer.process, reinterpret_cast<std::byte*>(&word),
                                reinterpret_cast<std::byte*>(write_targets[q] + rank), sizeof(word))
                     .empty();
  }
  // Must come before any return: other ranks still read and write words of this rank.
  if (c.any(!is_reached)) return {};
  std::vector<PeerMemory> out;
  for (std::size_t q = 0; q < size; ++q) {
    if (written[q] != peers[q].word) is_reached = false;
    out.emplace_back(peers[q].process);
  }
  if (c.any(!is_reached)) return {};
  return out;
}

}  // namespace gradmeter::runtime
