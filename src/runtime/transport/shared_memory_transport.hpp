// SPDX-License-Identifier: Apache-2.0
// Messages between ranks that can read each other's memory: threads of one process, or processes with a shared window.
// One class serves both, so that the thread sanitizer tests the protocol that processes use.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/transport/transport.hpp"

namespace gradmeter::runtime {

/// A word of memory that several processes see, at which one thread sleeps until a message comes. Zeroed memory is a
/// doorbell without a sleeper. The sleeper arms the doorbell, reads the number of rings, checks for its message once
/// more, and sleeps until there are more rings. A rank that has something for the sleeper rings the doorbell. Cost: a
/// ring is a fence, and a system call only if the doorbell is armed.
class Doorbell {
 public:
  void arm(bool yes);
  std::uint32_t rings() const { return rings_.load(std::memory_order_seq_cst); }
  /// Sleeps until there are more than `seen` rings, but no longer than `at_most` [s].
  void sleep(std::uint32_t seen, double at_most);
  void ring();
  /// Rings whether the doorbell is armed or not.
  void wake();

 private:
  std::atomic<std::uint32_t> rings_{0}, armed_{0};
};

/// A slot for one message at a time. The sender writes where its data is, and then the message's sequence number to
/// `posted_sequence`; the receiver reads the sender's memory, and then writes this number to `read_sequence`. Sequence
/// numbers count the messages of one (source, destination, channel) from 1.
struct alignas(128) SharedMemoryCell {
  std::atomic<std::uint64_t> posted_sequence{0};
  std::uint64_t offset = 0;  ///< place of the data (`Transport::memory_number_of`) in the sender's memory
  double sent_s = 0;         ///< time of sending, by the host clock [s]; 0: not noted
  alignas(64) std::atomic<std::uint64_t> read_sequence{0};
  Doorbell doorbell;  ///< used only in the last `size` cells, one for each rank
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "cells are shared between processes");

/// The number of cells for a group of `size` ranks: size² × channels × 4 messages in flight, and one doorbell a rank.
std::size_t shared_memory_cell_count(int size, int channels);

/// A transport over SharedMemoryCells. Cost: two cache-line transfers a message; no copy. `traffic()` counts a message
/// when `send` is called, even if the peer has not yet read it.
class SharedMemoryTransport final : public Transport {
 public:
  /// memory: each rank's readable memory as *this* process sees it; empty for threads, which share one address space.
  /// owner: keeps the memory of the cells alive; null if its owner is elsewhere.
  SharedMemoryTransport(std::string_view name, int rank, int size, int channels, std::span<SharedMemoryCell> cells,
                        std::vector<std::span<std::byte>> memory, std::shared_ptr<void> owner = nullptr);
  std::string_view name() const override { return name_; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int channels() const override { return channels_; }
  bool zero_copy_from(int) const override { return true; }
  bool can_send_from(std::span<const std::byte>) const override;
  std::optional<std::uint64_t> memory_number_of(std::span<const std::byte>) const override;
  std::byte* peer_memory(int peer, std::uint64_t memory_number) const override;
  std::size_t message_bytes() const override;
  MessageHandle send(int peer, int channel, std::span<const std::byte> data) override;
  MessageHandle receive(int peer, int channel, std::span<std::byte> landing) override;
  bool send_done(MessageHandle&) override;
  const std::byte* try_receive(MessageHandle&) override;
  void note_send_times() override { notes_send_times_ = true; }
  std::optional<double> sent_s(const MessageHandle&) const override;
  void release(MessageHandle&) override;
  void progress() override;
  Doorbell* use_doorbell() override;

 private:
  static constexpr std::uint64_t cells_per_path = 4;
  /// The id of a receive handle has the peer in the bits from this one on, and the sequence number in those below.
  static constexpr int peer_shift = 48;
  /// A sent message, as `post` writes it to its cell.
  struct Offer {
    SharedMemoryCell* cell;
    std::uint64_t sequence, offset;
    int peer;
    double sent_s;
  };
  friend std::size_t shared_memory_cell_count(int, int);
  /// The beginning of the rank's memory as this process maps it; null for threads, whose places are plain addresses.
  std::byte* base(int rank) const;
  SharedMemoryCell* cell(int source, int destination, int channel, std::uint64_t sequence);
  /// Writes the offer to its cell. False: the cell's previous message is not yet read.
  bool post(const Offer&);
  Doorbell& doorbell(int rank) {
    return cells_.last(static_cast<std::size_t>(size_))[static_cast<std::size_t>(rank)].doorbell;
  }
  void ring(int peer);
  std::size_t path_index(int peer, int channel) const {
    return static_cast<std::size_t>(peer) * static_cast<std::size_t>(channels_) + static_cast<std::size_t>(channel);
  }

  std::string_view name_;
  int rank_, size_, channels_;
  std::shared_ptr<void> owner_;
  std::span<SharedMemoryCell> cells_;
  std::vector<std::span<std::byte>> memory_;
  std::vector<std::uint64_t> sent_, received_;  ///< by `path_index`: last sequence numbers
  std::vector<Offer> waiting_;                  ///< offers whose cell still holds an unread message
  bool uses_doorbells_ = false;                 ///< true: messages ring the peer's doorbell
  bool notes_send_times_ = false;
};

}  // namespace gradmeter::runtime
