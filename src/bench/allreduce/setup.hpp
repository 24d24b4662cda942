// SPDX-License-Identifier: Apache-2.0
// The setup of a collective sweep: buffers, networks and bound algorithms; and collectives with injected faults, for
// --inject of `allreduce`.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "allreduce/collective.hpp"
#include "allreduce/schedule/schedule.hpp"
#include "bench/allreduce/plan.hpp"
#include "bench/engine/session.hpp"
#include "core/injection.hpp"
#include "runtime/transport/arena.hpp"

namespace gradmeter::bench {

/// The faults of a run, this rank's number, and the number of calls that all collectives of this rank have made so far.
struct InjectedFaults {
  core::Injection injection;
  int rank = 0, ranks = 1;
  std::uint64_t calls = 0;

  /// True where this rank's calls must be altered.
  bool concerns_calls() const {
    const auto is_here = [this](const auto& fault) { return fault && fault->rank == rank; };
    return is_here(injection.slow) || is_here(injection.flip) || is_here(injection.omit);
  }
};

/// A collective with injected faults. flip: from call number `call` on (the first is 0), one element of this rank's
/// result is wrong. omit: from that call on, the rank contributes zeros to all-reduces and reduce-scatters, and its
/// input is overwritten. slow: before each call the rank is busy for factor - 1 times the duration of the call before
/// it, so that to its peers the call takes `factor` times as long; a call with another number of bytes than the one
/// before it is not slowed.
/// All other functions are those of the inner collective. Buffers must be registered with the inner collective before
/// it is wrapped.
class InjectedCollective final : public allreduce::Collective {
 public:
  /// `faults` and the queue must outlive this object. Without a queue (null) buffers are host memory.
  InjectedCollective(std::unique_ptr<allreduce::Collective>, allreduce::CollectiveKind, InjectedFaults& faults,
                     runtime::Queue* = nullptr);
  const std::string& name() const override { return inner_->name(); }
  const std::string& algorithm_for(std::uint64_t bytes) const override { return inner_->algorithm_for(bytes); }
  const Collective& serving(std::uint64_t bytes) const override { return inner_->serving(bytes); }
  bool takes_device_memory() const override { return inner_->takes_device_memory(); }
  bool works_on_device_memory() const override { return inner_->works_on_device_memory(); }
  bool holds_up_other_calls() const override { return inner_->holds_up_other_calls(); }
  void start(const allreduce::Call&) override;
  bool advance() override;
  allreduce::Waiting waiting() const override { return inner_->waiting(); }
  std::optional<runtime::Traffic> sent() const override { return inner_->sent(); }
  std::optional<std::uint64_t> bytes_required() const override { return inner_->bytes_required(); }
  std::optional<allreduce::CodingTime> coding() const override { return inner_->coding(); }
  allreduce::CodecState take_state() override { return inner_->take_state(); }
  void restore_state(const allreduce::CodecState& s) override { inner_->restore_state(s); }

 private:
  void on_host(const runtime::Work& work);
  void flip();
  void omit();

  std::unique_ptr<allreduce::Collective> inner_;
  allreduce::CollectiveKind collective_kind_;
  InjectedFaults& faults_;
  runtime::Queue* queue_;
  double slowdown_ = 1;
  allreduce::Call call_{};
  bool running_ = false;
  double begin_ = 0, last_s_ = 0;
  std::size_t last_bytes_ = 0;  ///< bytes of the last call's buffer
};

// The resources that the points of a collective sweep share: buffers, networks and bound algorithms.

/// The buffers of a call; in == out for a call in place. Data are written and checked in the host's memory.
struct CollectiveBuffers {
  std::span<std::byte> in, out;
  /// The device buffers that calls are made on; empty: calls are made on `in` and `out`.
  runtime::Buffer device_in = runtime::empty_buffer, device_out = runtime::empty_buffer;

  /// The part of the buffers that begins at the page `first_page` and has `bytes` bytes.
  CollectiveBuffers part(std::size_t first_page, std::size_t bytes, bool in_place) const;
};

/// An algorithm that is ready to be called. `transport` is its transport; null for a vendor's.
struct BoundCollective {
  std::unique_ptr<allreduce::Collective> collective;
  /// Null unless calls are captured as a graph. One call of this collective launches the graphs that hold all calls of
  /// a timed iteration. If it is null, an iteration calls `collective` once for each of its calls.
  std::unique_ptr<allreduce::Collective> graph_of_iteration = {};
  runtime::Transport* transport = nullptr;
  std::string label;                    ///< "allreduce ring", for the watchdog
  bool works_on_device_memory = false;  ///< true: it works on a device's memory; false: on copies in host memory
};

/// The memory that a set of points of one collective needs on one rank.
struct SetupNeeds {
  /// At least one; a vendor's algorithm uses the arena of the first.
  std::vector<runtime::TransportKind> transports;
  std::vector<BufferKind> buffers = {};
  bool out_of_place = false;
  std::size_t max_bytes = 0;
  std::size_t scratch_bytes = 0;  ///< the scratch in each network's arena, beside the buffers

  static SetupNeeds of(std::span<const CollectivePoint>, const NodeMap&, int rank);
  bool has(BufferKind) const;
  std::size_t buffer_bytes() const;    ///< bytes of one set of buffers
  std::size_t resident_bytes() const;  ///< bytes of all buffers and arenas
  /// The bytes of shared memory that all transports together take on a node that holds `ranks_per_node` of the `ranks`
  /// ranks.
  std::size_t shared_bytes_on_node(int ranks_per_node, int ranks) const;
};

/// Points with equal keys share a binding. The members in order: transport, algorithm, codec, whether calls are in
/// place, kind of collective, root, launches of a graph in an iteration, whether buffers are registered, whether they
/// are outside the arena, number of the repeated measurement.
using BindingKey = std::tuple<std::string, std::string, std::string, bool, allreduce::CollectiveKind, int, std::size_t,
                              bool, bool, std::size_t>;

/// Buffers, networks and bindings of one sweep. Its constructor and destructor and `bind` are collective over the
/// session's world. Errors: BackendError when memory is short; Unavailable, on all ranks, when a device's memory is
/// short.
class CollectiveSetup {
 public:
  /// `faults` must outlive this object.
  CollectiveSetup(Session&, const NodeMap&, const SetupNeeds&, InjectedFaults& faults);
  ~CollectiveSetup();
  CollectiveSetup(const CollectiveSetup&) = delete;
  CollectiveSetup& operator=(const CollectiveSetup&) = delete;

  /// The number of pages at which buffers may begin. Each block of timed calls (rounds.hpp) has its buffers begin at
  /// one of them, the same on all ranks. The time of a call depends on the pages that hold the data, and these differ
  /// from launch to launch. If blocks change pages, a point's 95 % interval covers this difference.
  static constexpr std::size_t first_page_count = 16;
  CollectiveBuffers buffers(const CollectivePoint&, std::size_t first_page = 0);
  /// Copies the buffers' data to the device, after the host has written them. `download` copies the result back, before
  /// the host reads it. Both do nothing where calls are made on the host's memory.
  void upload(const CollectiveBuffers&);
  void download(const CollectiveBuffers&);
  bool is_on_device() const { return queue_ != nullptr; }
  /// The whole buffers of this kind, to register them with NCCL.
  CollectiveBuffers all_buffers(BufferKind);
  struct BindOutcome {
    core::Status status = core::Status::ok;
    std::string reason;
  };
  /// Binds every point's algorithm. Returns for each point whether it is bound. If it is not, `reason` says why, and
  /// `status` is `unsupported` if this machine lacks what the point needs, or `failed` if binding should have worked.
  /// The result is the same on all ranks. A binding is kept and serves later groups of points too (the points of a
  /// group take turns). The arenas have scratch for the bindings of all points from which the needs were computed.
  std::vector<BindOutcome> bind(std::span<CollectivePoint* const>);
  /// The binding of a point that `bind` has bound.
  BoundCollective& bound(const CollectivePoint&);
  /// Wraps work that is timed as the lower bound of a call's time (LeastWork in limits.hpp): if a fault slows this
  /// rank, that work is slowed too.
  std::unique_ptr<allreduce::Collective> with_slow_fault(std::unique_ptr<allreduce::Collective>);
  const allreduce::RankShape& shape() const { return shape_; }
  const runtime::Communicator& world() const { return session_.world(); }

 private:
  struct ConnectedNetwork;
  ConnectedNetwork& network_of(const CollectivePoint&);
  BindOutcome bind_one(const CollectivePoint&);

  Session& session_;
  SetupNeeds needs_;
  InjectedFaults& faults_;
  InjectedFaults limit_faults_;  ///< for `with_slow_fault`: as `faults_`, but without `flip` and `omit`
  allreduce::RankShape shape_;
  struct PrivateBuffers {
    PrivateBuffers(std::size_t bytes, runtime::Pages pages) : arena(bytes, pages) {}
    runtime::PrivateArena arena;
    CollectiveBuffers buffers;
  };
  std::map<BufferKind, std::unique_ptr<PrivateBuffers>> private_buffers_;
  /// The queue of the device that calls use; null: calls are made on the host. With a queue, `device_buffers_` holds
  /// the device's memory of each buffer, and `pinned_` keeps the host's memory pinned.
  std::unique_ptr<runtime::Queue> queue_;
  std::vector<runtime::OwnedBuffer> device_buffers_;
  std::vector<std::shared_ptr<void>> pinned_;
  CollectiveBuffers take(runtime::Arena&, BufferKind);
  std::unique_ptr<allreduce::Collective> staged_for_device(std::unique_ptr<allreduce::Collective>);
  std::map<runtime::TransportKind, std::unique_ptr<ConnectedNetwork>> networks_;
  std::map<BindingKey, BoundCollective> bound_;
};

}  // namespace gradmeter::bench
