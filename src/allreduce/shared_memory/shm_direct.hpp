// SPDX-License-Identifier: Apache-2.0
// All-reduce by reading every rank's buffer in shared memory: each rank sums its share of the elements over all ranks
// and writes the result to all of them. Point-to-point algorithms cannot be as fast.
#pragma once
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "allreduce/collective.hpp"
#include "allreduce/registry.hpp"
#include "allreduce/schedule/slices.hpp"

namespace gradmeter::allreduce {

/// Buffers in the arena are read and written where they lie, in one pass over all of them. Other buffers go through
/// memory of the arena in chunks that are short enough to stay in cache. For calls of up to `small` bytes every rank
/// copies its buffer to shared memory, and every rank sums all of them, with one barrier instead of two.
/// The owner of an element sums it in rank order (for small buffers, every rank sums in that order), so bits are equal
/// on all ranks.
/// Cost:   2 barriers; p·n bytes read and p·n written by all ranks together.
/// Errors: BackendError when a call is started before the last one is complete.
class ShmDirect final : public Collective {
 public:
  static constexpr std::size_t small = 8192;  ///< bytes
  /// The bytes of a buffer outside the arena that are copied to the arena at a time.
  static constexpr std::size_t chunk = std::size_t{256} << 10;

  /// The state that a rank shows to the others, on cache lines of its own.
  struct alignas(128) SharedState {
    std::atomic<std::uint64_t> arrivals{0};  ///< barriers that this rank has reached
    std::uint64_t in = 0, out = 0;           ///< offsets in the rank's arena at which its buffers begin
  };
  /// A peer's arena at the address where this rank maps it, and the peer's region in this arena: a page with its
  /// SharedState, then its memory for copies (`stage`).
  struct Peer {
    std::span<std::byte> arena;
    SharedState* shared_state;
    std::byte* stage;  ///< 2 × small bytes, then 4 × chunk
  };
  /// Takes a rank's region from its own arena and initialises it. All regions must be made before any rank makes a
  /// ShmDirect that reads them.
  static Peer make_region(runtime::Arena&);
  /// Reads and writes the regions of all ranks, which are in rank order.
  ShmDirect(int rank, std::vector<Peer> peers);

  /// Collective over the site's ranks, which share a node and a shared arena.
  explicit ShmDirect(const Site&);
  const std::string& name() const override { return name_; }
  void start(const Call&) override;
  bool advance() override;
  Waiting waiting() const override;
  std::optional<runtime::Traffic> sent() const override { return moved_; }
  std::optional<std::uint64_t> bytes_due() const override { return due_; }

  static std::size_t arena_bytes();

 private:
  static constexpr std::size_t stage_bytes = 2 * small + 4 * chunk;
  static std::vector<Peer> peers_of(const Site&);
  enum class CopyPath : std::uint8_t { small, direct, staged };

  /// Says that this rank has reached the next barrier. Ranks that see this also see all that it has written before.
  void arrive();
  bool all_arrived();
  bool in_arena(const void* p, std::size_t bytes) const;
  ElementRange share(std::size_t elements, int rank) const;
  void sum_small();
  void sum_share();
  void sum_stage(std::size_t number);
  void copy_in(std::size_t number);
  void copy_out(std::size_t number);
  std::size_t chunk_length(std::size_t number) const;
  std::byte* input(const Peer& q) const { return q.arena.data() + q.shared_state->in; }
  std::byte* output(const Peer& q) const { return q.arena.data() + q.shared_state->out; }
  std::byte* staged(const Peer& q, std::size_t number, bool result) const;
  bool advance_staged();

  const std::string name_ = "shm-direct";
  int rank_, size_;
  std::span<std::byte> arena_;
  std::vector<Peer> peers_;
  Call call_{};
  CopyPath copy_path_ = CopyPath::small;
  bool running_ = false;
  std::uint64_t barrier_ = 0;
  int awaited_ = 0;        ///< the first rank not yet seen at the barrier
  std::size_t stage_ = 0;  ///< direct: number of barriers passed; staged: number of chunks summed
  std::vector<const std::byte*> sources_;
  runtime::Traffic moved_;
  std::uint64_t due_ = 0;
};

/// Errors of binding: UsageError when the site's transport shares no memory.
extern const AlgorithmInfo shm_direct_row;

// Copies by non-temporal stores, for results that are longer than the last-level cache (streaming_copy.cpp).

/// Does what memcpy does, with stores that do not first read the lines they overwrite. This is faster for buffers
/// longer than the last-level cache, and slower for shorter ones. Addresses may have any alignment. Other ranks see the
/// stores after `end_streaming`. Cost: 2n bytes of memory traffic, where a plain copy causes 3n.
void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes);
void end_streaming();

}  // namespace gradmeter::allreduce
