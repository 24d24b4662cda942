// The fabric over real ranks: schedules over a transport, or the vendor's collectives, and the host's clock.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "allreduce/compressed/compressed.hpp"
#include "allreduce/registry.hpp"
#include "dataparallel/fabric.hpp"
#include "dataparallel/ranks/engine.hpp"
#include "runtime/communicator.hpp"
#include "runtime/transport/network.hpp"

namespace gradmeter::dataparallel {

using runtime::TransportKind;

struct RankFabricOptions {
  allreduce::AlgorithmPtr algorithm = {};  ///< null, and where it does not apply: ring
  compression::CodecChoicePtr codec = {};  ///< of all-reduces with a tensor layout; null: none
  TransportKind transport = TransportKind::automatic;
  ProgressMode progress = ProgressMode::on_wait;
  runtime::SpinPolicy spin_policy{200, 0};         ///< of a progress thread, or of whoever moves collectives
  runtime::SpinPolicy worker_spin_policy{200, 0};  ///< of workers that wait for messages
  std::size_t memory_bytes = 0;                    ///< for models, strategies' `memory` and messages
  bool scatters = false;                           ///< reduce_scatter and all_gather will be called
  int background_threads = 1;                      ///< of a background task's kernels
  std::size_t max_call_bytes = 0;                  ///< the longest buffer of a collective
  int groups = 3;                                  ///< that make collectives, with that of all ranks: each has memory
  // They outlive the fabric.
  runtime::Queue* queue = nullptr;  ///< of this rank's computations; null: the host's
  /// Of the copies, sums and codecs of its collectives, on the same device; null: the engine does them, at once.
  runtime::Queue* exchange_queue = nullptr;
  core::MessageFaults message_faults = {};  ///< of all its messages
  int world_rank = 0;                       ///< for them
};

/// Collective over the communicator, as are `split` and the destructor's window.
/// Errors: UsageError when shm is asked for over several nodes; BackendError when memory is short.
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
  void exchange(std::string_view label, const runtime::Work& work) override;
  runtime::Device& device() override { return queue_->device(); }
  runtime::EventPtr record() override { return queue_->record(); }
  void begin_after(const runtime::EventPtr& e) override { queue_->begin_after(e); }
  void synchronise() override;
  void log_to(ComputeLog* log) override;
  double now() const override { return runtime::host_clock(); }

  /// Memory that the transport moves best, and the only kind that shm can: models keep their gradients here.
  runtime::Arena& arena();
  TransportKind transport() const { return network_.transport(); }
  /// The length at which the group's collectives cut buffers.
  std::size_t message_bytes(Group g) const;
  /// While it lives nothing moves, so all ranks must have completed what they wait for.
  std::unique_ptr<Engine::ProgressPause> pause_progress() { return std::make_unique<Engine::ProgressPause>(*engine_); }
  /// Drops the codec's state from earlier calls.
  void forget();

  /// What will be resident on this rank for these options [bytes]: for --dry-run.
  static std::size_t resident_bytes(const RankFabricOptions&, int ranks);

 private:
  struct CommGroup;
  CommGroup& comm_group(Group g) const;
  std::unique_ptr<CommGroup> make_comm_group(runtime::Communicator);
  EngineTicket operation(const FabricCall&);
  void run(std::string_view label, const runtime::Work& work, bool exchanges);
  void run_marked(std::string_view label, const runtime::Work& work, runtime::MarkPtr begin);
  /// Of the marked work: what it took goes to the log. All of it is done.
  void log_marked();
  /// Work of a device's queue and exchanges are on two threads; of the host's, on one, which needs no lock.
  std::unique_lock<std::mutex> log_lock();
  allreduce::Collective& collective(CommGroup&, const FabricCall&);
  /// Must the call's buffers go through where transports reach them?
  bool is_staged(const FabricCall&);

  RankFabricOptions options_;
  runtime::Network network_;
  runtime::Activity& activity_;
  runtime::HostQueue host_queue_;
  runtime::Queue* queue_;
  std::mutex log_mutex_;
  ComputeLog* log_ = nullptr;
  /// Work that a device has timed by its own clock, since the last `synchronise`.
  struct Marked {
    std::string_view label;
    runtime::MarkPtr begin, end;
  };
  std::vector<Marked> marked_;
  std::vector<std::shared_ptr<void>> pinned_;  ///< the network's memory
  std::vector<runtime::OwnedBuffer> mapped_;   ///< of the network's memory
  /// A staged device's: its copies to and from the network's memory. Null: there are none.
  std::unique_ptr<runtime::Queue> copies_;
  std::map<const Operation*, Buffer> arriving_;          ///< results of calls under way, not yet copied to the device
  std::vector<std::unique_ptr<CommGroup>> comm_groups_;  ///< by group id
  std::unique_ptr<Engine> engine_;                       ///< last: its thread ends before what it uses
};

}  // namespace gradmeter::dataparallel
