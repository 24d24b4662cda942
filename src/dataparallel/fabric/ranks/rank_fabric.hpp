// SPDX-License-Identifier: Apache-2.0
// The fabric over real ranks: collectives by schedules over a transport or by the vendor's library, and the host's
// clock.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "allreduce/coded/coded.hpp"
#include "allreduce/registry.hpp"
#include "dataparallel/fabric/fabric.hpp"
#include "dataparallel/fabric/ranks/engine.hpp"
#include "runtime/communicator.hpp"
#include "runtime/transport/network.hpp"

namespace gradmeter::dataparallel {

using runtime::TransportKind;

struct RankFabricOptions {
  /// The algorithm, codec and queue of collectives; the fabric fills in the group's ranks. If the algorithm is null or
  /// lacks a kind of collective, a ring is used instead; broadcasts always use a binomial tree. The codec applies to
  /// all-reduces with a tensor layout. Copies, sums and the codec's work are submitted to `exchange.queue`; if that is
  /// null, the engine does them at once on the host.
  allreduce::ExchangeSpec exchange = {};
  std::uint64_t codec_seed = 1;  ///< seed of the codec's random rounding and choices
  TransportKind transport = TransportKind::automatic;
  ProgressMode progress = ProgressMode::on_wait;
  runtime::SpinPolicy spin_policy{200, 0};         ///< for the thread that moves bytes (see ProgressMode)
  runtime::SpinPolicy worker_spin_policy{200, 0};  ///< for workers that wait for messages
  std::size_t memory_bytes = 0;                    ///< bytes that models, strategies and messages will take
  bool uses_reduce_scatter = false;                ///< true: reduce_scatter and all_gather will be called
  int background_threads = 1;                      ///< threads of a background task's kernels
  /// Number of groups that make collectives, including that of all ranks. Each has memory of its own.
  int groups = 3;
  /// The queue of this rank's computations, which must outlive the fabric; null: the host's queue.
  runtime::Queue* queue = nullptr;
  core::MessageFaults message_faults = {};  ///< faults that are injected into the fabric's messages
  int world_rank = 0;                       ///< this rank in the world, for `message_faults`
};

/// The constructor, `split` and the destructor are collective over the communicator.
/// Errors: UsageError if the transport shm is asked for over several nodes; BackendError if memory is short.
class RankFabric final : public Fabric {
 public:
  RankFabric(const runtime::Communicator&, const RankFabricOptions&, runtime::Activity&);
  ~RankFabric() override;

  int rank(Group) const override;
  int size(Group) const override;
  Group split(int color, int key) override;
  Ticket start(const FabricCall&) override;
  void wait(const Ticket&) override;
  Ports open(Group, const PortOptions&) override;
  std::unique_ptr<BackgroundTask> launch(BackgroundProgram) override;
  Buffer memory(std::size_t floats) override;
  void submit(std::string_view label, runtime::Cost, const runtime::Work& work) override;
  void handle_messages(std::string_view label, const runtime::Work& work) override;
  runtime::Device& device() override { return queue_->device(); }
  runtime::EventPtr record() override { return queue_->record(); }
  void begin_after(const runtime::EventPtr& e) override { queue_->begin_after(e); }
  void synchronise() override;
  void log_to(ComputeLog* log) override { log_ = log; }
  void stamp(double& to) override;
  double now() const override { return runtime::host_clock(); }

  /// The memory from which the transport sends best; the transport shm can send from no other. Models keep their
  /// gradients here.
  runtime::Arena& arena();
  TransportKind transport() const { return network_.transport(); }
  /// The length of the messages into which the group's collectives cut buffers [bytes].
  std::size_t message_bytes(Group g) const;
  /// Nothing moves as long as the returned object lives. Every rank must have completed its calls before it pauses.
  std::shared_ptr<void> pause_progress() { return engine_->pause_progress(); }
  /// Drops the state that the codec keeps from earlier calls.
  void forget();

  /// The most bytes that these options will make resident on any rank, for --dry-run.
  static std::size_t resident_bytes(const RankFabricOptions&, int ranks);

 private:
  struct CommGroup;
  CommGroup& comm_group(Group g) const;
  std::unique_ptr<CommGroup> make_comm_group(runtime::Communicator);
  EngineTicket operation(const FabricCall&);
  struct LoggedWork;
  void run(std::string_view label, const runtime::Work& work, bool is_exchange, ComputeLog* log);
  void run_marked(std::string_view label, const runtime::Work& work, runtime::EventPtr begin, ComputeLog& log);
  /// Writes the times of marked work to logs and stamps. All submitted work must be done. `mark` is an event that was
  /// recorded after that work and reached at the time `now`.
  void read_marks(const runtime::Event& mark, double now);
  /// Locks the log if two threads write to it: the device's queue and the thread that makes exchanges. With the host's
  /// queue there is only one thread, and no lock is taken.
  std::unique_lock<std::mutex> log_lock();
  allreduce::Collective& collective(CommGroup&, const FabricCall&);
  /// True if the call's buffers must be copied to and from memory that transports reach.
  bool is_staged(const FabricCall&);

  RankFabricOptions options_;
  runtime::Network network_;
  runtime::Activity& activity_;
  runtime::HostQueue host_queue_;
  runtime::Queue* queue_;
  std::mutex log_mutex_;
  ComputeLog* log_ = nullptr;
  /// Work since the last `synchronise` that a device times by its own clock, and the log to which its time will be
  /// added.
  struct Marked {
    std::string_view label;
    runtime::EventPtr begin, end;
    ComputeLog* log;
  };
  std::vector<Marked> marked_;
  /// The time of `mark` is to be written to `to`.
  struct Stamp {
    double* to;
    runtime::EventPtr mark;
  };
  std::vector<Stamp> stamps_;                  ///< stamps to write at the next `synchronise`
  std::vector<std::shared_ptr<void>> pinned_;  ///< holds the network's memory pinned
  std::vector<runtime::OwnedBuffer> buffers_;  ///< owners of the buffers that `memory` has given
  /// The queue of copies between a staged device and the network's memory; null: no copies are needed.
  std::unique_ptr<runtime::Queue> copies_;
  /// The buffer of each call under way whose result `wait` must still copy to the device.
  std::map<Ticket, Buffer> arriving_;
  std::vector<std::unique_ptr<CommGroup>> comm_groups_;  ///< by group id
  std::unique_ptr<Engine> engine_;  ///< declared last, so that its thread ends while what it uses still lives
};

}  // namespace gradmeter::dataparallel
