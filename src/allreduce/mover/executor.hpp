// Runs plans in slices over a transport: the one executor of all our own algorithms.
#pragma once
#include <variant>
#include <vector>

#include "allreduce/collective.hpp"
#include "allreduce/mover/pipeline.hpp"
#include "allreduce/schedule/plan.hpp"
#include "allreduce/schedule/slices.hpp"
#include "compression/registry.hpp"
#include "runtime/transport/arena.hpp"
#include "runtime/transport/staged_transport.hpp"

namespace gradmeter::allreduce {

/// An algorithm is one or more schedules over the same ranks and blocks; slice s runs schedule s mod count.
struct Algorithm {
  std::string name;
  std::vector<SchedulePtr> schedules;
};

struct ExecutorOptions {
  Placement placement = Placement::in_place;
  std::size_t max_bytes = 0;         ///< the longest buffer that will be given [bytes]
  std::size_t message_bytes = 0;     ///< of values, before any codec; 0: what the transport is efficient at
  compression::CodecPtr codec = {};  ///< what messages are made of; null: the values themselves
  MakeBlockCodec block_codecs = {};  ///< the codec on the queue's memory; null: the host's
  /// Copies, sums and the codec's work go there, and only there are buffers read and written; null: they are done at
  /// once by the caller's thread. It outlives the executor, and its events are polled. Whoever gives up a call that is
  /// not complete synchronises it before the executor and the buffers go. Of a device that `is_staged` (a GPU): its
  /// kernels work on the device's memory, and messages pass through the host's (StagedTransport).
  runtime::Queue* queue = nullptr;
  /// Network::takes_device_memory: messages of such a device are not staged.
  bool transport_takes_device = false;
};

/// Scratch is kept between calls. What peers may read of it (values summed beside their block) is taken from `scratch`,
/// at most the slices under way; data received for a reduction goes to private memory. The transport should have
/// most_lanes() channels: each lane needs its own, and with fewer there are fewer lanes.
/// With a codec: calls are sums or averages of fp32, any buffers will do, and each lane keeps an encoded slice.
/// With a queue, a message is sent when the work before it is done, and what came in is given back when it was read.
/// On a device that `is_staged`, what was submitted to its queue before a call comes first.
/// Errors: BackendError for a buffer longer than max_bytes, or one that the transport's peers cannot read.
class Executor final : public Collective {
 public:
  Executor(Algorithm, runtime::Transport&, runtime::Arena& scratch, ExecutorOptions);
  const std::string& name() const override { return algorithm_.name; }
  bool takes_device_memory() const override { return options_.queue != nullptr; }
  bool reads_device() const override { return on_device_; }
  void start(const Call&) override;
  bool advance() override;
  Waiting waiting() const override;
  std::optional<runtime::Traffic> sent() const override { return sent_; }
  std::optional<std::uint64_t> bytes_due() const override { return bytes_due_; }
  std::optional<CodingTime> coding() const override;

  /// What the constructor will take from the arena on this rank.
  static std::size_t arena_bytes(const Algorithm&, std::uint32_t rank, const ExecutorOptions&);
  /// How a buffer is cut; and its bytes on the wire. message_bytes must be given.
  static Slices slices(const Algorithm&, const ExecutorOptions&, std::size_t elements, std::size_t element_bytes);
  static std::uint64_t buffer_bytes(const ExecutorOptions&, const Slices&, std::size_t element_bytes);
  /// What a slice's alternate holds, for any buffer up to max_bytes; and what lands for the reductions of a round.
  /// message_bytes must be given.
  static std::size_t alternate_bytes(const Algorithm&, const ExecutorOptions&);
  static std::size_t landing_bytes(const Algorithm&, std::size_t alternate_bytes, std::uint32_t landing_blocks);
  /// Errors: BackendError for a call that the algorithm, bound with these options, does not take.
  static void check_call(const Algorithm&, const ExecutorOptions&, const Call&);

 private:
  /// Lane i runs slices i, i + lanes, i + 2·lanes … on channel i.
  template <class Submit>
  struct Lane {
    Pipeline<Submit> pipeline;
    std::size_t slice;
  };
  template <class Submit>
  using Lanes = std::vector<Lane<Submit>>;
  void check(const Call&, CallMemory) const;
  CallMemory memory_of(const Call&) const;
  void take_device();
  std::span<std::byte> take_scratch(runtime::Arena&, std::size_t bytes);
  /// What the pipelines' messages go by.
  runtime::Transport& moving() const { return staged_ ? *staged_ : transport_; }
  template <class Submit>
  void add_lanes(const Submit&, runtime::Arena& scratch);
  template <class Submit>
  void launch(Lane<Submit>&, std::size_t slice);
  template <class Submit>
  void advance(Lanes<Submit>&);
  Slices slices_of(std::size_t elements, std::size_t width) const;
  std::uint64_t due(std::size_t elements, std::size_t width, const Slices&);

  Algorithm algorithm_;
  runtime::Transport& transport_;
  ExecutorOptions options_;
  std::vector<Plan> plans_;
  std::optional<runtime::PrivateArena> landings_;
  // Of a device that is staged. Where its messages are, the scratch lies beside what is taken of the host's.
  bool on_device_ = false;
  std::shared_ptr<void> pinned_landings_;
  std::vector<runtime::OwnedBuffer> device_scratch_;
  std::unique_ptr<runtime::StagedTransport> staged_;
  bool whole_ = false;  ///< in one slice: a message spans blocks whose places matter
  std::variant<Lanes<AtOnce>, Lanes<Submitter>> lanes_;
  Call call_{};
  CallMemory memory_;
  Slices slices_;
  std::size_t finished_ = 0;
  bool running_ = false;
  runtime::EventPtr ready_;  ///< of a device that is staged: after what its queue had to do before the call
  runtime::Traffic before_, sent_;
  std::uint64_t bytes_due_ = 0;
  // Training repeats a handful of bucket sizes, so their due bytes are computed once.
  struct Due {
    std::size_t elements, width;
    std::uint64_t bytes;
  };
  std::vector<Due> known_due_;
};

}  // namespace gradmeter::allreduce
