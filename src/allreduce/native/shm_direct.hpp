// All-reduce by reading every rank's buffer in shared memory: each rank sums its share of the elements over all ranks
// and writes the result to all of them. Point-to-point algorithms cannot be as fast.
#pragma once
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "allreduce/collective.hpp"
#include "allreduce/registry.hpp"

namespace gradmeter::allreduce {

/// Buffers in the arena are read and written in place, one pass over all of them. Other buffers go through chunks in
/// the arena that stay in cache. Up to `small` bytes every rank copies its buffer to shared memory, and every rank sums
/// all of them: one barrier instead of two.
/// Sums are taken in rank order by whoever owns the element (small: by every rank, in the same order): equal bits.
/// Cost:   2 barriers; p·n bytes read and p·n written by all ranks together.
/// Errors: BackendError when a call overlaps the last one.
class ShmDirect final : public Collective {
 public:
  static constexpr std::size_t small = 8192;                    ///< bytes
  static constexpr std::size_t chunk = std::size_t{256} << 10;  ///< bytes of a foreign buffer staged at a time

  /// A rank's arena as this rank maps it, and the offset in it of the rank's region.
  struct Part {
    std::span<std::byte> arena;
    std::size_t room;
  };
  /// Takes a rank's region from its own arena and initialises it: before any rank makes a ShmDirect that reads it.
  static Part make_room(runtime::Arena&);
  /// Over the parts of all ranks, in rank order.
  ShmDirect(int rank, std::span<const Part>);

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
  /// What one rank tells the others, on cache lines of its own.
  struct alignas(128) SharedState {
    std::atomic<std::uint64_t> arrivals{0};  ///< barriers that this rank has reached
    std::uint64_t in = 0, out = 0;           ///< offsets of its buffers in its arena
  };
  /// A region is a page with the SharedState, then the stage.
  static constexpr std::size_t stage_bytes = 2 * small + 4 * chunk;
  struct Peer {
    std::byte* arena;
    SharedState* shared_state;
    std::byte* stage;  ///< 2 × small, then 4 × chunk
  };
  static std::vector<Part> parts_of(const Site&);
  enum class CopyPath : std::uint8_t { small, direct, staged };
  struct Range {
    std::size_t first, last;  ///< elements
  };

  void arrive();  ///< at the next barrier: ranks that see us there see everything written before
  bool all_arrived();
  bool in_arena(const void* p, std::size_t bytes) const;
  Range share(std::size_t elements, int rank) const;
  void sum_small();
  void sum_share();
  void sum_stage(std::size_t number);
  void copy_in(std::size_t number);
  void copy_out(std::size_t number);
  std::size_t chunk_length(std::size_t number) const;
  std::byte* input(const Peer& q) const { return q.arena + q.shared_state->in; }
  std::byte* output(const Peer& q) const { return q.arena + q.shared_state->out; }
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
  std::size_t stage_ = 0;  ///< direct: barriers passed; staged: chunks summed
  std::vector<const std::byte*> sources_;
  runtime::Traffic moved_;
  std::uint64_t due_ = 0;
};

std::string shm_direct_refusal(const Request&);
std::size_t shm_direct_arena_bytes(const Request&, std::uint32_t, const ExecutorOptions&);
/// Errors: UsageError when the site's transport shares no memory.
std::unique_ptr<Collective> bind_shm_direct(const Request&, const Site&, const ExecutorOptions&);

}  // namespace gradmeter::allreduce
