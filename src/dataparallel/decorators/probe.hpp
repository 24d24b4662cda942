// Records a strategy from outside: collects the intervals that the fabric itself took of every computation and call. So
// all strategies share one trace and one interval arithmetic, and none has a timer.
#pragma once
#include <mutex>
#include <vector>

#include "dataparallel/decorators/decomposition.hpp"
#include "dataparallel/decorators/forwarding.hpp"

namespace gradmeter::dataparallel {

/// Everything that a rank has sent in steps, with its server's answers to steps. Messages outside steps are not
/// counted: evaluation weights, and the messages that end a connection.
struct Totals {
  std::uint64_t bytes_sent = 0, bytes_between_nodes = 0, bytes_due = 0, calls = 0;
  bool bytes_known = true;  ///< false: a vendor's call was among them
  void add(const Completion&);
};

/// What background tasks did. Any thread.
class BackgroundLog {
 public:
  /// Whether to keep records until somebody takes them; totals are always kept.
  void keep(bool);
  void add(const ComputeLog&);
  void add(const Ticket&);
  /// What was completed since the last call.
  StepRecord take();
  /// For a call that is already in a step's record.
  void add_done(const Completion&);
  Totals totals();
  bool idle();

 private:
  void sweep();  ///< what has been completed goes to the record; mutex held

  std::mutex mutex_;
  bool keep_ = false;
  StepRecord record_;
  std::vector<Ticket> under_way_;
  Totals totals_;
};

/// A fabric that forwards everything and records it. One at a time over a fabric.
class Probe final : public ForwardingFabric {
 public:
  explicit Probe(Fabric& inner) : ForwardingFabric(inner) {}
  ~Probe() override { inner_.log_to(nullptr); }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  /// Calls that are posted between begin and end belong to the step; those outside belong to none.
  void begin_step();
  /// Calls that are not done yet will belong to the step in which they complete. The record stays valid until the next
  /// `begin_step`.
  const StepRecord& end_step();
  /// What background tasks did since the last call, if it is kept.
  StepRecord take_background() { return background_log_.take(); }
  void keep_background(bool yes) { background_log_.keep(yes); }
  /// Of all steps so far, for calls that are done.
  Totals totals();
  /// No call of any step is under way, by the worker or a background task.
  bool idle();

  void submit(std::string_view label, runtime::Cost cost, const runtime::Work& work) override {
    ++record_.submitted;
    inner_.submit(label, cost, work);
  }
  void enter_layer(int layer) override {
    if (in_step_) record_.layers.push_back({layer, record_.submitted});
  }
  Ticket start(const FabricCall& call) override { return keep(inner_.start(call)); }
  void wait(const Ticket&) override;
  Ports open(Group, const PortOptions&) override;
  std::unique_ptr<BackgroundTask> launch(BackgroundProgram) override;

 private:
  void note_wait(std::string_view why, double begin);
  Ticket keep(Ticket t) {
    if (in_step_) tickets_.push_back(t);
    return t;
  }
  StepRecord record_;
  std::vector<Ticket> tickets_;  ///< posted in a step, not done when it ended
  std::vector<Ticket> kept_;     ///< of the record, which uses their labels
  bool in_step_ = false;
  BackgroundLog background_log_;
};

}  // namespace gradmeter::dataparallel
