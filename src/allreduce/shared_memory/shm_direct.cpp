// SPDX-License-Identifier: Apache-2.0
#include "allreduce/shared_memory/shm_direct.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <new>
#include <utility>

#include "allreduce/schedule/slices.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/streaming_copy.hpp"

namespace gradmeter::allreduce {
namespace {

/// Bytes that are summed at a time, so few that a sum stays in the L1 cache until it has been copied to every rank.
constexpr std::size_t piece_bytes = std::size_t{8} << 10;
/// Bytes of all ranks' buffers together from which on results are written by non-temporal stores. Measured with 2 and 4
/// ranks: at 128 MiB 1.6 times as fast, at 32 MiB no difference, below slower.
constexpr std::size_t least_streamed = std::size_t{64} << 20;
/// Bytes of the pieces of peers' buffers that are copied for a sum: all pieces together, which should stay in the L2
/// cache, and the least of one piece, which should be worth its system call.
constexpr std::size_t attached_pieces = std::size_t{512} << 10, least_attached_piece = std::size_t{16} << 10;

}  // namespace

std::size_t ShmDirect::arena_bytes() { return runtime::page_bytes + scratch_bytes; }

ShmDirect::Peer ShmDirect::make_region(runtime::Arena& arena) {
  std::byte* const region = arena.take(arena_bytes()).data();
  return {arena.memory(), new (region) SharedState, region + runtime::page_bytes};
}

ShmDirect::ShmDirect(int rank, std::vector<Peer> peers, std::vector<runtime::PeerMemory> memory)
    : rank_(rank),
      size_(static_cast<int>(peers.size())),
      arena_(peers[static_cast<std::size_t>(rank)].arena),
      peers_(std::move(peers)),
      memory_(std::move(memory)) {}

std::vector<ShmDirect::Peer> ShmDirect::peers_of(const GroupConnection& connection) {
  const Peer mine = make_region(connection.network.arena());
  const auto scratch_offsets =
      connection.communicator.all_gather_value(static_cast<std::size_t>(mine.scratch - mine.arena.data()));
  const auto arenas = connection.network.arenas_of(connection.communicator);
  connection.communicator.barrier();  // every SharedState is made before any rank reads it
  std::vector<Peer> peers;
  for (std::size_t q = 0; q < scratch_offsets.size(); ++q) {
    std::byte* const scratch = arenas[q].data() + scratch_offsets[q];
    auto* const state = std::launder(reinterpret_cast<SharedState*>(scratch - runtime::page_bytes));
    peers.push_back({arenas[q], state, scratch});
  }
  return peers;
}

ShmDirect::ShmDirect(const GroupConnection& connection)
    : ShmDirect(connection.communicator.rank(), peers_of(connection),
                runtime::reach_peer_memory(connection.communicator)) {}

ShmDirect::CopyPath ShmDirect::path_of(const Call& call) const {
  const std::size_t bytes = call.out.bytes();
  if (bytes <= small) return CopyPath::small;
  if (in_arena(call.in.host(), bytes) && in_arena(call.out.host(), bytes)) return CopyPath::in_arena;
  if (memory_.empty()) return CopyPath::staged;
  return std::ranges::all_of(memory_, &runtime::PeerMemory::is_here) ? CopyPath::addressed : CopyPath::attached;
}

void ShmDirect::start(const Call& call) {
  if (running_) throw core::BackendError("allreduce", name_, "started before the last call was complete");
  check_supported(call.element(), call.op, call.accumulates_in());
  call_ = call;
  running_ = true;
  steps_done_ = 0;
  const std::size_t bytes = call.out.bytes();
  const Peer& own = peers_[static_cast<std::size_t>(rank_)];
  copy_path_ = path_of(call);
  if (copy_path_ == CopyPath::small) {
    if (bytes > 0) std::memcpy(small_place(own, barrier_ + 1), call.in.host(), bytes);
    return arrive();
  }
  own.shared_state->copy_path = static_cast<std::uint8_t>(copy_path_);
  if (copy_path_ == CopyPath::staged) {
    copy_in(0);
  } else {
    const auto place = [&](const std::byte* p) {
      return copy_path_ == CopyPath::in_arena ? static_cast<std::uint64_t>(p - arena_.data())
                                              : reinterpret_cast<std::uint64_t>(p);
    };
    own.shared_state->in = place(call.in.host());
    own.shared_state->out = place(call.out.host());
  }
  arrive();
}

void ShmDirect::check_paths() {
  for (const Peer& q : peers_) {
    if (q.shared_state->copy_path == static_cast<std::uint8_t>(copy_path_)) continue;
    running_ = false;
    throw core::BackendError("allreduce", name_, "some ranks' buffers are in the arena, and others' are not");
  }
}

bool ShmDirect::in_arena(const void* p, std::size_t bytes) const {
  const auto* b = static_cast<const std::byte*>(p);
  return b >= arena_.data() && b + bytes <= arena_.data() + arena_.size();
}

void ShmDirect::arrive() {
  awaited_ = 0;
  peers_[static_cast<std::size_t>(rank_)].shared_state->arrivals.store(++barrier_, std::memory_order_release);
}

bool ShmDirect::all_arrived() {
  for (; awaited_ < size_; ++awaited_) {
    if (peers_[static_cast<std::size_t>(awaited_)].shared_state->arrivals.load(std::memory_order_acquire) < barrier_)
      return false;
  }
  return true;
}

Waiting ShmDirect::waiting() const {
  if (!running_ || awaited_ == size_) return {};
  return {.peer = awaited_,
          .round = static_cast<std::uint32_t>(steps_done_) + 1,
          .rounds = static_cast<std::uint32_t>(barrier_count())};
}

std::size_t ShmDirect::barrier_count() const {
  if (copy_path_ == CopyPath::small) return 1;
  return copy_path_ == CopyPath::staged ? chunk_count() + 1 : 2;
}

bool ShmDirect::advance() {
  if (!running_) return true;
  if (!all_arrived()) return false;
  if (copy_path_ != CopyPath::small && steps_done_ == 0) check_paths();
  switch (copy_path_) {
    case CopyPath::small:
      sum_small();
      break;
    case CopyPath::in_arena:
    case CopyPath::addressed:
    case CopyPath::attached:
      if (steps_done_ == 0) {
        copy_path_ == CopyPath::attached ? sum_attached() : sum_share();
        ++steps_done_;
        arrive();
        if (!all_arrived()) return false;
      }
      break;
    case CopyPath::staged:
      if (!advance_staged()) return false;
      break;
  }
  running_ = false;
  return true;
}

ElementRange ShmDirect::share(std::size_t elements, int rank) const {
  return block_range(elements, static_cast<std::uint32_t>(size_), static_cast<std::uint32_t>(rank));
}

void ShmDirect::sum_sources(std::byte* to, std::size_t count) {
  if (size_ == 1) {
    std::memcpy(to, sources_.front(), count * core::size_of(call_.element()));
  } else {
    reduce(call_.element(), call_.accumulates_in(), call_.op, to, sources_, count);
  }
  finish(call_.element(), call_.op, to, to, count, size_);
}

static_assert(offsetof(ShmDirect::SharedState, numbers) + sizeof(ShmDirect::SharedState::numbers) <= 64,
              "the numbers arrive with the flag");

std::byte* ShmDirect::small_place(const Peer& q, std::uint64_t barrier) const {
  return call_.out.bytes() <= tiny ? q.shared_state->numbers[barrier % 2].data() : q.scratch + barrier % 2 * small;
}

void ShmDirect::sum_small() {
  const std::size_t bytes = call_.out.bytes();
  if (bytes == 0) return;
  sources_.clear();
  for (const Peer& q : peers_) sources_.push_back(small_place(q, barrier_));
  sum_sources(call_.out.host(), call_.count());
  const std::uint64_t read = bytes * static_cast<std::uint64_t>(size_ - 1);
  moved_.bytes += read;
  bytes_required_ += read;
  ++moved_.messages;
}

void ShmDirect::sum_share() {
  alignas(64) std::array<std::byte, piece_bytes> sum;
  const std::size_t width = core::size_of(call_.element());
  const ElementRange mine = share(call_.count(), rank_);
  const std::size_t end = mine.begin + mine.count;
  const bool past_caches = call_.count() * width * peers_.size() >= least_streamed;
  for (std::size_t at = mine.begin; at < end; at += piece_bytes / width) {
    const std::size_t n = std::min(piece_bytes / width, end - at);
    sources_.clear();
    for (const Peer& q : peers_) sources_.push_back(input(q) + at * width);
    sum_sources(sum.data(), n);
    for (const Peer& q : peers_) {
      if (past_caches) {
        core::copy_streaming(output(q) + at * width, sum.data(), n * width);
      } else {
        std::memcpy(output(q) + at * width, sum.data(), n * width);
      }
    }
    moved_.bytes += 2 * n * width * static_cast<std::uint64_t>(size_ - 1);
  }
  if (past_caches) core::end_streaming();
  bytes_required_ += 2 * mine.count * width * static_cast<std::uint64_t>(size_ - 1);
  moved_.messages += 2 * static_cast<std::uint64_t>(size_ - 1);
}

// Calls may be in place, since only this rank reads and writes its share of every buffer.
void ShmDirect::sum_attached() {
  const std::size_t width = core::size_of(call_.element()), ranks = peers_.size();
  const std::size_t length = std::max(attached_pieces / ranks, least_attached_piece) / width;
  const auto [begin, count] = share(call_.count(), rank_);
  pieces_.resize(ranks * length * width);
  for (std::size_t at = begin; at < begin + count; at += length) {
    const std::size_t n = std::min(length, begin + count - at), bytes = n * width;
    sources_.clear();
    for (std::size_t q = 0; q < ranks; ++q) {
      if (q == static_cast<std::size_t>(rank_)) {
        sources_.push_back(call_.in.host() + at * width);
        continue;
      }
      const std::span piece(pieces_.data() + q * length * width, bytes);
      memory_[q].read(input(peers_[q]) + at * width, piece);
      sources_.push_back(piece.data());
    }
    std::byte* const sum = call_.out.host() + at * width;
    sum_sources(sum, n);
    for (std::size_t q = 0; q < ranks; ++q) {
      if (q != static_cast<std::size_t>(rank_)) memory_[q].write({sum, bytes}, output(peers_[q]) + at * width);
    }
    moved_.bytes += 2 * bytes * (ranks - 1);
  }
  bytes_required_ += 2 * count * width * (ranks - 1);
  moved_.messages += 2 * (ranks - 1);
}

std::size_t ShmDirect::chunk_length(std::size_t chunk_index) const {
  const std::size_t chunk_elements = chunk / core::size_of(call_.element()), first = chunk_index * chunk_elements;
  return first >= call_.count() ? 0 : std::min(chunk_elements, call_.count() - first);
}

std::byte* ShmDirect::staged_chunk(const Peer& q, std::size_t chunk_index, bool is_result) const {
  return q.scratch + 2 * small + (chunk_index % 2 + (is_result ? 2 : 0)) * chunk;
}

void ShmDirect::copy_in(std::size_t chunk_index) {
  const std::size_t n = chunk_length(chunk_index) * core::size_of(call_.element());
  if (n > 0)
    std::memcpy(staged_chunk(peers_[static_cast<std::size_t>(rank_)], chunk_index, false),
                call_.in.host() + chunk_index * chunk, n);
}

void ShmDirect::sum_chunk(std::size_t chunk_index) {
  const std::size_t width = core::size_of(call_.element());
  const auto [begin, n] = share(chunk_length(chunk_index), rank_);
  if (n == 0) return;
  std::byte* to = staged_chunk(peers_[static_cast<std::size_t>(rank_)], chunk_index, true) + begin * width;
  sources_.clear();
  for (const Peer& q : peers_) sources_.push_back(staged_chunk(q, chunk_index, false) + begin * width);
  sum_sources(to, n);
  moved_.bytes += n * width * static_cast<std::uint64_t>(size_ - 1);
}

void ShmDirect::copy_out(std::size_t chunk_index) {
  const std::size_t width = core::size_of(call_.element()), n = chunk_length(chunk_index);
  for (int q = 0; q < size_; ++q) {
    const auto [begin, count] = share(n, q);
    if (count == 0) continue;
    std::memcpy(call_.out.host() + chunk_index * chunk + begin * width,
                staged_chunk(peers_[static_cast<std::size_t>(q)], chunk_index, true) + begin * width, count * width);
    if (q != rank_) moved_.bytes += count * width;
  }
}

/// At barrier i every rank has staged chunk i and summed its share of chunk i - 1. Calls may be in place, since a chunk
/// of the buffer is overwritten only after it was staged.
bool ShmDirect::advance_staged() {
  const std::size_t chunks = chunk_count();
  while (all_arrived()) {
    if (steps_done_ > 0) copy_out(steps_done_ - 1);
    if (steps_done_ == chunks) {
      const std::size_t width = core::size_of(call_.element());
      for (std::size_t i = 0; i < chunks; ++i) {
        const std::size_t n = share(chunk_length(i), rank_).count;
        bytes_required_ += width * (n * static_cast<std::uint64_t>(size_ - 1) + chunk_length(i) - n);
      }
      return true;
    }
    sum_chunk(steps_done_);
    ++steps_done_;
    if (steps_done_ < chunks) copy_in(steps_done_);
    arrive();
  }
  return false;
}

namespace {

std::string shm_direct_refusal(const Request& r) {
  if (auto why = refusal_unless(r, {CollectiveKind::all_reduce}); !why.empty()) return why;
  if (r.shape.ranks_per_node != r.shape.ranks) return "shm-direct needs all ranks on one node";
  return {};
}

std::size_t shm_direct_arena_bytes(const Request&, std::uint32_t, const ExchangeSpec&) {
  return ShmDirect::arena_bytes();
}

std::unique_ptr<Collective> bind_shm_direct(const Request&, const GroupConnection& connection, const ExchangeSpec&) {
  const runtime::TransportKind transport = connection.network.transport();
  if (transport == runtime::TransportKind::mpi || transport == runtime::TransportKind::cuda_mpi) {
    throw core::UsageError(fmt::format(
        "shm-direct reads its peers' memory, which transport {} does not share; use --transport shm", name(transport)));
  }
  return std::make_unique<ShmDirect>(connection);
}

}  // namespace

constinit const AlgorithmInfo shm_direct_row{.name = "shm-direct",
                                             .cost_text = "2 barriers, p·n read and p·n written by all together",
                                             .source = "own: one pass over all ranks' buffers in shared memory",
                                             .backend = Backend::shared,
                                             .adds_all_at_once = true,
                                             .refusal = shm_direct_refusal,
                                             .bind = bind_shm_direct,
                                             .arena_bytes = shm_direct_arena_bytes};

}  // namespace gradmeter::allreduce
