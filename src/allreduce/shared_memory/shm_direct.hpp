// SPDX-License-Identifier: Apache-2.0
// All-reduce by reading every rank's buffer in shared memory: each rank sums its share of the elements over all ranks
// and writes the result to all of them. Point-to-point algorithms cannot be as fast.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "allreduce/collective.hpp"
#include "allreduce/registry.hpp"
#include "allreduce/schedule/slices.hpp"
#include "runtime/transport/peer_memory.hpp"

namespace gradmeter::allreduce {

/// The collective of the row `shm-direct`. A call's path depends on its buffers:
/// - Buffers of up to `small` bytes: every rank copies its buffer to shared memory, and every rank sums all of them,
///   with one barrier instead of two.
/// - Buffers in the arena, or anywhere if all ranks are threads: they are read and written where they lie, in one pass
///   over all of them.
/// - Private buffers of processes: each rank copies its share of every peer's buffer to private memory, piece by piece,
///   and copies the sums back, if the operating system lets it (runtime::PeerMemory).
/// - All others: buffers go through memory of the arena, in chunks that are short enough to stay in cache.
/// The rank whose share holds an element sums it in rank order (for small buffers, every rank sums in that order), so
/// bits are equal on all ranks.
/// Cost: 2 barriers; p·n bytes read and p·n written by all ranks together. Calls of up to `small` bytes have 1 barrier,
/// and every rank reads all p·n bytes. Buffers that go through the arena: one barrier a chunk, and one more.
/// Buffers that are copied between processes: 2(p-1) system calls a piece, and max(512 KiB, 16p KiB) of memory.
/// Errors: BackendError when a call is started before the last one is complete; when some ranks' buffers are in the
/// arena and others' are not; when the operating system refuses a copy. In the last two cases other ranks may wait for
/// this one.
class ShmDirect final : public Collective {
 public:
  /// Bytes of the longest buffers that every rank sums whole (small), and that travel in SharedState::numbers (tiny).
  static constexpr std::size_t small = 8192, tiny = 16;
  /// A buffer that no peer can reach is copied to the arena in pieces of this many bytes.
  static constexpr std::size_t chunk = std::size_t{256} << 10;

  /// The state that a rank shows to the others, on cache lines of its own.
  struct alignas(128) SharedState {
    std::atomic<std::uint64_t> arrivals{0};  ///< barriers that this rank has reached
    /// Where the rank's buffers begin: offsets in its arena, or for private buffers addresses in its process.
    std::uint64_t in = 0, out = 0;
    std::uint8_t copy_path = 0;  ///< the CopyPath that the rank has chosen for the call
    /// Two places, used in turn, for buffers of up to `tiny` bytes. They are in the cache line of `arrivals`, so that a
    /// peer reads both at once.
    alignas(tiny) std::array<std::array<std::byte, tiny>, 2> numbers = {};
  };
  /// The arena of a rank q, at the address at which this rank has mapped it, and q's region in that arena: a page with
  /// q's SharedState, then q's memory for copies (`scratch`).
  struct Peer {
    std::span<std::byte> arena;
    SharedState* shared_state;
    /// Two places of `small` bytes, used in turn, then two chunks of input and two chunks of results, also used in
    /// turn.
    std::byte* scratch;
  };
  /// Takes a rank's region from its own arena and initialises it. All regions must be made before any rank makes a
  /// ShmDirect that reads them.
  static Peer make_region(runtime::Arena&);
  /// peers: the regions of all ranks, in rank order. memory: the private memory of all ranks; empty: it cannot be
  /// reached.
  ShmDirect(int rank, std::vector<Peer> peers, std::vector<runtime::PeerMemory> memory = {});

  /// A collective over the connected group's ranks, which share a node and a shared arena.
  explicit ShmDirect(const GroupConnection&);
  const std::string& name() const override { return name_; }
  void start(const Call&) override;
  bool advance() override;
  Waiting waiting() const override;
  std::optional<runtime::Traffic> sent() const override { return moved_; }
  std::optional<std::uint64_t> bytes_required() const override { return bytes_required_; }

  static std::size_t arena_bytes();

 private:
  static constexpr std::size_t scratch_bytes = 2 * small + 4 * chunk;
  static std::vector<Peer> peers_of(const GroupConnection&);
  /// How peers reach a call's buffers. small: by `small_place`; in_arena: by offsets in arenas that are mapped here;
  /// addressed: by addresses that are valid here; attached: by addresses in other processes; staged: through the arena.
  enum class CopyPath : std::uint8_t { small, in_arena, addressed, attached, staged };

  /// Says that this rank has reached the next barrier. Ranks that see this also see all that it has written before.
  void arrive();
  bool all_arrived();
  bool in_arena(const void* p, std::size_t bytes) const;
  CopyPath path_of(const Call&) const;
  /// Errors: BackendError where another rank has chosen another path.
  void check_paths();
  ElementRange share(std::size_t elements, int rank) const;
  /// The memory into which rank q copies its buffer in the small call that ends with barrier number `barrier`. Calls
  /// use two places in turn. That is enough since no rank is two calls ahead: each waits for the arrival of all others.
  std::byte* small_place(const Peer& q, std::uint64_t barrier) const;
  void sum_small();
  /// Sums this rank's share of the elements and writes the result to all ranks.
  void sum_share();
  void sum_attached();
  void sum_sources(std::byte* to, std::size_t count);
  void sum_chunk(std::size_t chunk_index);
  void copy_in(std::size_t chunk_index);
  void copy_out(std::size_t chunk_index);
  std::size_t chunk_count() const { return (call_.out.bytes() + chunk - 1) / chunk; }
  std::size_t chunk_length(std::size_t chunk_index) const;
  /// The number of barriers of a call on the present path.
  std::size_t barrier_count() const;
  std::byte* input(const Peer& q) const { return address(q, q.shared_state->in); }
  std::byte* output(const Peer& q) const { return address(q, q.shared_state->out); }
  std::byte* address(const Peer& q, std::uint64_t place) const {
    return copy_path_ == CopyPath::in_arena ? q.arena.data() + place : reinterpret_cast<std::byte*>(place);
  }
  /// The memory for a chunk of q's input, or of the results of q's share.
  std::byte* staged_chunk(const Peer& q, std::size_t chunk_index, bool is_result) const;
  bool advance_staged();

  const std::string name_ = "shm-direct";
  int rank_, size_;
  std::span<std::byte> arena_;
  std::vector<Peer> peers_;
  std::vector<runtime::PeerMemory> memory_;  ///< by rank; empty: private memory cannot be reached
  std::vector<std::byte> pieces_;            ///< in an attached call: a piece of each rank's input
  Call call_{};
  CopyPath copy_path_ = CopyPath::small;
  bool running_ = false;
  std::uint64_t barrier_ = 0;
  int awaited_ = 0;             ///< the first rank not yet seen at the barrier
  std::size_t steps_done_ = 0;  ///< staged: number of chunks summed; else: number of barriers passed
  std::vector<const std::byte*> sources_;
  runtime::Traffic moved_;
  std::uint64_t bytes_required_ = 0;
};

/// Errors of binding: UsageError when the connection's transport shares no memory.
extern const AlgorithmInfo shm_direct_row;

}  // namespace gradmeter::allreduce
