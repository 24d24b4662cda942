// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/shared_memory_transport.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmath>

#include "core/error.hpp"
#include "core/units.hpp"
#include "runtime/clock.hpp"

namespace gradmeter::runtime {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t), "a futex is a word");

// One of the fences in `arm` and `ring` comes first: either the ringer sees that the doorbell is armed, or the sleeper
// sees the message.
void Doorbell::arm(bool yes) {
  armed_.store(yes ? 1 : 0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void Doorbell::ring() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (armed_.load(std::memory_order_relaxed) != 0) wake();
}

// The futex calls of `sleep` and `wake` may fail because another process was quicker; there is then nothing left to do.
void Doorbell::sleep(std::uint32_t seen, double at_most) {
  const double whole = std::floor(at_most);
  const timespec limit{static_cast<time_t>(whole), static_cast<long>((at_most - whole) * 1e9)};
  syscall(SYS_futex, &rings_, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void Doorbell::wake() {
  rings_.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &rings_, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

using namespace core::literals;

std::size_t shared_memory_cell_count(int size, int channels) {
  const auto ranks = static_cast<std::size_t>(size);
  return ranks * ranks * static_cast<std::size_t>(channels) * SharedMemoryTransport::cells_per_path + ranks;
}

SharedMemoryTransport::SharedMemoryTransport(std::string_view name, int rank, int size, int channels,
                                             std::span<SharedMemoryCell> cells,
                                             std::vector<std::span<std::byte>> memory, std::shared_ptr<void> owner)
    : name_(name),
      rank_(rank),
      size_(size),
      channels_(channels),
      owner_(std::move(owner)),
      cells_(cells),
      memory_(std::move(memory)),
      sent_(path_index(size, 0)),
      received_(path_index(size, 0)) {
  if (cells_.size() != shared_memory_cell_count(size, channels)) {
    throw core::BackendError("runtime", "SharedMemoryTransport", "not as many cells as the group needs");
  }
}

std::size_t SharedMemoryTransport::message_bytes() const { return (256_KiB).value; }

SharedMemoryCell* SharedMemoryTransport::cell(int source, int destination, int channel, std::uint64_t sequence) {
  const auto pair =
      static_cast<std::size_t>(source) * static_cast<std::size_t>(size_) + static_cast<std::size_t>(destination);
  const std::size_t path = pair * static_cast<std::size_t>(channels_) + static_cast<std::size_t>(channel);
  return &cells_[path * cells_per_path + sequence % cells_per_path];
}

bool SharedMemoryTransport::can_send_from(std::span<const std::byte> data) const {
  if (memory_.empty() || data.empty()) return true;
  const auto own = memory_[static_cast<std::size_t>(rank_)];
  return data.data() >= own.data() && data.data() + data.size() <= own.data() + own.size();
}

std::byte* SharedMemoryTransport::base(int rank) const {
  return memory_.empty() ? nullptr : memory_[static_cast<std::size_t>(rank)].data();
}

std::optional<std::uint64_t> SharedMemoryTransport::memory_number_of(std::span<const std::byte> data) const {
  if (!can_send_from(data)) return std::nullopt;
  return reinterpret_cast<std::uintptr_t>(data.data()) - reinterpret_cast<std::uintptr_t>(base(rank_));
}

std::byte* SharedMemoryTransport::peer_memory(int peer, std::uint64_t memory_number) const {
  return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(base(peer)) + memory_number);
}

bool SharedMemoryTransport::post(const Offer& o) {
  if (o.sequence > cells_per_path &&
      o.cell->read_sequence.load(std::memory_order_acquire) < o.sequence - cells_per_path)
    return false;
  o.cell->offset = o.offset;
  o.cell->sent_s = o.sent_s;
  o.cell->posted_sequence.store(o.sequence, std::memory_order_release);
  ring(o.peer);
  return true;
}

Doorbell* SharedMemoryTransport::use_doorbell() {
  uses_doorbells_ = true;
  return &doorbell(rank_);
}

void SharedMemoryTransport::ring(int peer) {
  if (uses_doorbells_) doorbell(peer).ring();
}

MessageHandle SharedMemoryTransport::send(int peer, int channel, std::span<const std::byte> data) {
  const std::uint64_t sequence = ++sent_[path_index(peer, channel)];
  const Offer offer{cell(rank_, peer, channel, sequence), sequence,
                    reinterpret_cast<std::uintptr_t>(data.data()) - reinterpret_cast<std::uintptr_t>(base(rank_)), peer,
                    notes_send_times_ ? host_clock() : 0};
  traffic_.bytes += data.size();
  ++traffic_.messages;
  if (!post(offer)) waiting_.push_back(offer);
  return {sequence, offer.cell};
}

MessageHandle SharedMemoryTransport::receive(int peer, int channel, std::span<std::byte>) {
  const std::uint64_t sequence = ++received_[path_index(peer, channel)];
  return {sequence | static_cast<std::uint64_t>(peer) << peer_shift, cell(peer, rank_, channel, sequence)};
}

void SharedMemoryTransport::progress() {
  std::erase_if(waiting_, [this](const Offer& o) { return post(o); });
}

bool SharedMemoryTransport::send_done(MessageHandle& handle) {
  return handle.id == 0 ||
         static_cast<SharedMemoryCell*>(handle.address)->read_sequence.load(std::memory_order_acquire) >= handle.id;
}

const std::byte* SharedMemoryTransport::try_receive(MessageHandle& handle) {
  constexpr std::uint64_t sequence_bits = (std::uint64_t{1} << peer_shift) - 1;
  auto* c = static_cast<SharedMemoryCell*>(handle.address);
  if (c->posted_sequence.load(std::memory_order_acquire) != (handle.id & sequence_bits)) return nullptr;
  return peer_memory(static_cast<int>(handle.id >> peer_shift), c->offset);
}

std::optional<double> SharedMemoryTransport::sent_s(const MessageHandle& handle) const {
  const double sent = static_cast<const SharedMemoryCell*>(handle.address)->sent_s;
  return sent > 0 ? std::optional(sent) : std::nullopt;
}

void SharedMemoryTransport::release(MessageHandle& handle) {
  constexpr std::uint64_t sequence_bits = (std::uint64_t{1} << peer_shift) - 1;
  static_cast<SharedMemoryCell*>(handle.address)
      ->read_sequence.store(handle.id & sequence_bits, std::memory_order_release);
  ring(static_cast<int>(handle.id >> peer_shift));  // the peer may have a message that waits for this cell
}

}  // namespace gradmeter::runtime
