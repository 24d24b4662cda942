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

using Transfer = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);

/// Empty, or why the kernel did not move all bytes. It may move fewer in one call, up to the end of a mapping.
std::string move(Transfer transfer, pid_t process, std::byte* own, std::byte* theirs, std::size_t bytes) {
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
  if (const auto why = move(::process_vm_readv, process_, to.data(), const_cast<std::byte*>(from), to.size());
      !why.empty())
    throw core::BackendError("kernel", "process_vm_readv", why);
}

void PeerMemory::write(std::span<const std::byte> from, std::byte* to) const {
  if (const auto why = move(::process_vm_writev, process_, const_cast<std::byte*>(from.data()), to, from.size());
      !why.empty())
    throw core::BackendError("kernel", "process_vm_writev", why);
}

// A process of the same number in another namespace, or on another host, does not have the word that this rank drew.
std::vector<PeerMemory> reach_peer_memory(const Communicator& c) {
  struct Card {
    pid_t process = 0;
    std::uint64_t word = 0;
    std::uint64_t* address = nullptr;
  };
  const auto size = static_cast<std::size_t>(c.size()), rank = static_cast<std::size_t>(c.rank());
  if (c.ranks_as() == RanksAs::threads) return std::vector(size, PeerMemory(::getpid()));
  std::random_device entropy;
  std::vector<std::uint64_t> written(size, 0);  // a word of each peer
  std::uint64_t word = std::uint64_t{entropy()} << 32 | entropy();
  const auto cards = c.all_gather_value(Card{::getpid(), word, &word});
  const auto places = c.all_gather_value(written.data());
  bool is_reached = true;
  for (std::size_t q = 0; q < size && is_reached; ++q) {
    std::uint64_t seen = 0;
    const Card& peer = cards[q];
    is_reached = move(::process_vm_readv, peer.process, reinterpret_cast<std::byte*>(&seen),
                      reinterpret_cast<std::byte*>(peer.address), sizeof(seen))
                     .empty() &&
                 seen == peer.word &&
                 move(::process_vm_writev, peer.process, reinterpret_cast<std::byte*>(&word),
                      reinterpret_cast<std::byte*>(places[q] + rank), sizeof(word))
                     .empty();
  }
  // The words must live until all have read and written them.
  if (c.any(!is_reached)) return {};
  std::vector<PeerMemory> out;
  for (std::size_t q = 0; q < size; ++q) {
    if (written[q] != cards[q].word) is_reached = false;
    out.emplace_back(cards[q].process);
  }
  if (c.any(!is_reached)) return {};
  return out;
}

}  // namespace gradmeter::runtime
