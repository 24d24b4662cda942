// SPDX-License-Identifier: Apache-2.0
// The executor of our schedules. Each of its lanes runs one slice at a time through a plan; several lanes run side by
// side, each on a channel of its own.
#pragma once
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "allreduce/collective.hpp"
#include "allreduce/executor/coding.hpp"
#include "allreduce/executor/submitter.hpp"
#include "allreduce/schedule/plan.hpp"
#include "allreduce/schedule/slices.hpp"
#include "compression/registry.hpp"
#include "runtime/transport/arena.hpp"
#include "runtime/transport/decorators.hpp"
#include "runtime/transport/transport.hpp"

namespace gradmeter::allreduce {

/// Runs slices one after another on one channel. Submit is AtOnce or Submitter (submitter.hpp). Cost: 12 to 34 ns a
/// step, without transfers, as bench_executor prints it; results/allreduce.md has the figures.
template <class Submit>
class Lane {
 public:
  /// alternate, landing: scratch that is kept between calls. `alternate` is the memory of Place::alternate; `landing`
  /// takes the data received for reductions, and is empty where peers' memory is read directly. `coded` is given for
  /// coded plans, which need no `alternate`.
  Lane(runtime::Transport& t, int channel, std::span<std::byte> alternate, std::span<std::byte> landing, Submit submit,
       std::optional<CodedSlice> coded = {})
      : transport_(t),
        channel_(channel),
        alternate_(alternate),
        landing_(landing),
        work_(std::move(submit)),
        coded_(std::move(coded)) {}

  /// Begins one slice of the call's buffers. Plan and call must live until the slice is done.
  void launch(const Plan& plan, const Call& call, CallMemory memory, const Slice& slice);
  /// Advances as far as it can without blocking; true when anything moved.
  bool advance();
  bool busy() const { return plan_ != nullptr; }
  /// The number of the slice that was launched last.
  std::size_t slice() const { return slice_.number; }
  Waiting waiting() const;
  CodingTime coding() const { return coded_ ? coded_->time() : CodingTime{}; }

 private:
  enum class Phase : std::uint8_t { encode, post_sends, post_receives, receive, finish_sums, copy_rest, end_slice };

  Phase first_phase() const { return round_ < plan_->rounds.size() ? Phase::encode : Phase::copy_rest; }
  const PlanRound& round() const { return plan_->rounds[round_]; }
  bool encode();
  bool post_sends();
  bool sendable();
  bool may_post_receive(const ReceiveStep&);
  bool post_receives();
  bool receive();
  bool receive_direct();
  bool reduce_one(const ReduceStep&);
  bool finish_sums();
  bool copy_rest();
  bool end_slice();
  void copy(const std::vector<LocalStep>&);
  void sum(const ReduceStep&, const Extent&);
  bool operands_arrived(const ReduceStep&);
  const std::byte* received_data(std::uint32_t receive);
  bool first_sends_done(std::uint32_t count);
  std::size_t bytes(const Extent& e) const { return e.elements * width_; }
  std::byte* at(Place, const Extent&) const;
  /// The memory from which a message of these blocks is sent, or in which it is received.
  std::span<std::byte> message(Place, Blocks) const;

  runtime::Transport& transport_;
  int channel_;
  std::span<std::byte> alternate_, landing_;
  [[no_unique_address]] Submit work_;  ///< runs copies, sums and the codec's work
  std::optional<CodedSlice> coded_;
  const Plan* plan_ = nullptr;
  const Call* call_ = nullptr;
  CallMemory memory_;
  Slice slice_;
  std::size_t width_ = 1;  ///< bytes of an element
  std::size_t round_ = 0;
  Phase phase_ = Phase::encode;
  /// Indices in this round: of the receive that `receive_direct` looks at next, and of the next reduction.
  std::uint32_t next_receive_ = 0, next_reduction_ = 0;
  std::vector<runtime::MessageHandle> sends_, receives_;
  std::vector<const std::byte*> received_;  ///< the data of each receive of this round; null: it has not arrived
  SourceAddresses sources_;
  std::uint32_t sends_done_ = 0;  ///< number of sends, in the order of posting, that are known to be done
};

/// An algorithm is one or more schedules over the same ranks and blocks; slice s runs schedule s mod schedules.size().
struct ScheduledAlgorithm {
  std::string name;
  std::vector<SchedulePtr> schedules;
};

class AlgorithmChoice;

/// How buffers are exchanged: the one description from which an algorithm and a codec are chosen, forecast and bound.
struct ExchangeSpec {
  Placement placement = Placement::in_place;
  std::size_t max_bytes = 0;  ///< the longest buffer that will be given [bytes]
  /// Bytes of values in a message, before any codec; by convention 0: as many as suit the transport.
  std::size_t message_bytes = 0;
  /// True: calls' buffers lie outside the network's arena, so that peers cannot map them. A selection then takes only
  /// what works on such buffers.
  bool private_buffers = false;
  /// The algorithm with which a codec is combined; null without a codec.
  std::shared_ptr<const AlgorithmChoice> algorithm = {};
  compression::CodecChoicePtr codec = {};  ///< codec that encodes the values; null: they are sent as they are
  RankShape shape = {};                    ///< shape of the ranks, used with a codec
  /// Copies, sums and the codec's work are submitted to this queue, and only that work reads and writes buffers; null:
  /// the caller's thread does this work at once. The queue must outlive the executor. A caller that abandons a call
  /// before it is complete must synchronise the queue before it frees the executor and the buffers. Where the queue's
  /// device `is_staged` (a GPU), its kernels work on the device's memory, and messages pass through the host's memory
  /// (StagedTransport).
  runtime::Queue* queue = nullptr;
  /// True: messages are sent directly from the device's memory (Network::takes_device_memory).
  bool transport_takes_device = false;

  /// The number of fp32 elements in the longest buffer.
  std::size_t max_floats() const { return max_bytes / sizeof(float); }
  /// The device whose kernels sum and encode; null: host code does, since the buffers are host memory or memory of a
  /// device that runs host code.
  runtime::Device* gpu() const { return queue && queue->device().is_staged() ? &queue->device() : nullptr; }
  /// The spec for the inner calls of an exchange with a codec, on buffers of up to `longest` bytes in the arena.
  ExchangeSpec inner_call_spec(std::size_t longest) const {
    return {.placement = Placement::in_place, .max_bytes = longest, .message_bytes = message_bytes, .queue = queue};
  }
};

/// Runs an algorithm's schedules over a transport, slice by slice. Scratch is kept between calls. The memory of
/// Place::alternate is taken from the arena `scratch`, since peers may read values that are summed into it; each of the
/// slices that are under way at once has its own. Data received for a reduction go to private memory. On a GPU both
/// kinds of scratch are device memory; unless the transport takes device memory, each piece of scratch also has a host
/// copy, which lies in the arena or in private memory as on the host. The transport should have most_lanes() channels:
/// each lane needs its own, and with fewer channels there are fewer lanes.
/// With a codec, calls are sums or averages of fp32, buffers may lie inside the arena or outside, and each lane keeps
/// an encoded slice. With a queue, a message is sent once the work before it is done, and a received message is
/// released once the work that reads it is done. On a device that `is_staged`, work that was submitted to its queue
/// before a call is done before the call's work. Errors: BackendError for a buffer longer than max_bytes, for a buffer
/// that peers cannot read over the transport, and for buffers in host memory where the queue is a GPU's.
class Executor final : public Collective {
 public:
  Executor(ScheduledAlgorithm, runtime::Transport&, runtime::Arena& scratch, ExchangeSpec);
  const std::string& name() const override { return algorithm_.name; }
  bool takes_device_memory() const override { return spec_.queue != nullptr; }
  bool works_on_device_memory() const override { return on_device_; }
  void start(const Call&) override;
  bool advance() override;
  Waiting waiting() const override;
  std::optional<runtime::Traffic> sent() const override { return sent_; }
  std::optional<std::uint64_t> bytes_required() const override { return bytes_required_; }
  std::optional<CodingTime> coding() const override;

  /// An upper bound of the bytes that the constructor takes from the arena on this rank.
  static std::size_t arena_bytes(const ScheduledAlgorithm&, std::uint32_t rank, const ExchangeSpec&);
  /// slices: the slices into which a buffer is cut; the spec must give message_bytes. buffer_bytes: the bytes of the
  /// whole buffer, encoded if there is a codec.
  static Slices slices(const ScheduledAlgorithm&, const ExchangeSpec&, std::size_t elements, std::size_t element_bytes);
  static std::uint64_t buffer_bytes(const ExchangeSpec&, const Slices&, std::size_t element_bytes);
  /// alternate_bytes: the bytes of Place::alternate for one slice, enough for any buffer up to max_bytes.
  /// landing_bytes: the most bytes that are received for the reductions of one round. slice_bytes: the bytes of a
  /// slice, encoded if there is a codec. The spec must give message_bytes.
  static std::size_t alternate_bytes(const ScheduledAlgorithm&, const ExchangeSpec&);
  static std::size_t landing_bytes(const ScheduledAlgorithm&, std::size_t slice_bytes, std::uint32_t landing_blocks);
  /// Errors: BackendError for a call that the algorithm, bound with this spec, does not take.
  static void check_call(const ScheduledAlgorithm&, const ExchangeSpec&, const Call&);

 private:
  /// Lane i runs slices i, i + lanes, i + 2·lanes … on channel i.
  template <class Submit>
  using Lanes = std::vector<Lane<Submit>>;
  void check(const Call&, CallMemory) const;
  CallMemory memory_of(const Call&) const;
  /// Sets up work on the memory of the queue's GPU.
  void set_up_device();
  std::span<std::byte> take_scratch(runtime::Arena&, std::size_t bytes);
  /// The transport that carries the lanes' messages.
  runtime::Transport& message_transport() const { return staged_ ? *staged_ : transport_; }
  template <class Submit>
  void add_lanes(const Submit&, runtime::Arena& scratch);
  template <class Submit>
  void launch(Lane<Submit>&, std::size_t slice);
  template <class Submit>
  void advance(Lanes<Submit>&);
  Slices slices_of(std::size_t elements, std::size_t element_bytes) const;
  std::uint64_t bytes_required_for(std::size_t elements, std::size_t element_bytes, const Slices&);

  ScheduledAlgorithm algorithm_;
  runtime::Transport& transport_;
  ExchangeSpec spec_;
  std::vector<Plan> plans_;
  std::optional<runtime::PrivateArena> landings_;
  // True for a device that is staged. The scratch is then device memory; if messages pass through host memory, each
  // piece of this scratch has a copy in the host's arena (`Device::allocate_beside`).
  bool on_device_ = false;
  std::shared_ptr<void> pinned_landings_;  ///< keeps the memory of `landings_` pinned
  std::vector<runtime::OwnedBuffer> device_scratch_;
  std::unique_ptr<runtime::StagedTransport> staged_;
  /// True: the buffer is one slice, since a message holds several blocks whose positions matter, or since the codec
  /// takes whole tensors.
  bool is_one_slice_ = false;
  std::variant<Lanes<AtOnce>, Lanes<Submitter>> lanes_;
  Call call_{};
  CallMemory memory_;
  Slices slices_;
  std::size_t finished_ = 0;  ///< number of this call's slices that are done
  bool running_ = false;
  /// For a staged device: reached when its queue has done all work submitted before the call.
  runtime::EventPtr ready_;
  runtime::Traffic traffic_at_start_, sent_;
  std::uint64_t bytes_required_ = 0;
  /// Results of `bytes_required_for`, by a buffer's number of elements and the bytes of an element. Training repeats a
  /// handful of bucket sizes, so the result for each size is computed once.
  std::map<std::pair<std::size_t, std::size_t>, std::uint64_t> known_bytes_required_;
};

}  // namespace gradmeter::allreduce
