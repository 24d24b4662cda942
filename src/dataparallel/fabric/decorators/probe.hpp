// SPDX-License-Identifier: Apache-2.0
// Records what a strategy does, from outside. The fabric notes when every computation and call begins and ends. The
// probe collects these intervals and divides each step's time into computation, communication, and the part of
// communication that no computation hides (exposed). So all strategies are measured alike, and none has a timer.
#pragma once
#include <deque>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dataparallel/fabric/fabric.hpp"
#include "dataparallel/fabric/intervals.hpp"

namespace gradmeter::dataparallel {

/// One call of one rank in one step. It owns its label, since records are kept for longer than the fabric that names
/// the call.
struct CallRecord {
  std::string label;
  Completion completion;
};
/// Computations of a step from this mark on, up to the next mark, belong to this layer (`Queue::enter_layer`).
struct LayerMark {
  int layer = 0;
  std::size_t first = 0;  ///< number of computations that were submitted before the mark
};
/// The record of one rank's computations, calls and waits in one step.
struct StepRecord {
  Interval step;
  ComputeLog computations;
  std::vector<CallRecord> calls;
  /// The worker's waits for calls and messages; the label says what was awaited. `Probe::take_steps` says how long the
  /// labels stay valid.
  ComputeLog waits = {};
  std::vector<LayerMark> layers = {};
  std::size_t submitted = 0;       ///< number of computations submitted
  std::vector<double> ready = {};  ///< by tensor: when its gradient was ready; empty unless asked for
};

/// The times of one call in a step [s], from the beginning of the step.
struct CallTimes {
  double posted = 0, started = 0, finished = 0;
  /// Time from when the last rank began the call (if that is unknown: from when this rank began it) until it finished.
  double transfer = 0;
  /// The part of the call's time in the step that overlaps neither computation nor an earlier call. Over all calls of a
  /// step these parts add up to the step's `exposed`, unless calls of later steps were under way, too.
  double exposed = 0;
};

/// The parts of a step [s]. step = compute + exposed + idle, where `idle` (no member) is the time with neither a
/// computation nor a call under way.
struct Decomposition {
  double step = 0, compute = 0;
  double communication = 0;  ///< length of the time in which at least one call is under way
  double exposed = 0;        ///< the part of communication in which nothing is computed
  double overlap = 0;        ///< time in which both a computation and a call are under way
  /// The part of `exposed` in which the rank waited for peers that had not started the call yet.
  double skew = 0;
  std::uint64_t bytes_sent = 0, bytes_between_nodes = 0, bytes_required = 0;
  bool bytes_known = true;        ///< false: the step has a vendor's call, whose bytes are not counted
  double encode = 0, decode = 0;  ///< sums over calls of Completion::encode_s and decode_s
  double update = 0;   ///< the part of `compute` after the last gradient was ready; 0 where that time is unknown
  double waited = 0;   ///< time of the worker's waits
  double handled = 0;  ///< time in which the worker posts, takes and copies messages, less the
                       ///< computations and waits in that time
  std::vector<CallTimes> calls = {};
  std::vector<double> ready = {};  ///< StepRecord::ready, from the beginning of the step
};

/// `last_start[i]`: the time at which the last rank started call i, by this rank's clock. Empty: these times are not
/// known, and `skew` is 0. Only the time for which a call was under way within the step counts. later_calls: the
/// intervals of calls that were not done when this step ended, and so belong to later steps.
Decomposition decompose(const StepRecord&, std::span<const double> last_start,
                        std::span<const Interval> later_calls = {});

/// All that a rank has sent in steps, including its server's answers to messages of steps. Messages outside steps,
/// which carry evaluation weights or end a connection, are not counted.
struct Totals {
  std::uint64_t bytes_sent = 0, bytes_between_nodes = 0, bytes_required = 0, calls = 0;
  bool bytes_known = true;  ///< false: there were vendor's calls, whose bytes are not counted
  void add(const Completion&);
};

/// Records the computations and messages of background tasks, and counts the totals of a rank's steps: those of
/// background tasks and those of the worker. Any thread may use it.
class CallLog {
 public:
  /// Sets whether computations and messages are recorded, to be returned by `take`. Totals are always counted.
  void set_recording(bool);
  void add(const ComputeLog&);
  void add(const Ticket&);
  /// Returns the record of all that was completed since `take` was called last.
  StepRecord take();
  /// Adds a completed call of the worker to the totals, and not to the record, since the step's record holds it.
  void count_worker_call(const Completion&);
  Totals totals();
  bool idle();

 private:
  void collect_done();  ///< moves completed calls to the record; the mutex must be held

  std::mutex mutex_;
  bool is_recording_ = false;
  StepRecord record_;
  std::vector<Ticket> under_way_;
  Totals totals_;
};

/// A fabric that forwards computations, calls and messages, and records them. A fabric may have one probe at a time.
class Probe final : public ForwardingFabric {
 public:
  explicit Probe(Fabric& inner) : ForwardingFabric(inner) {}
  ~Probe() override;
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  /// Begins a step. A call that is posted inside a step belongs to the first step at whose end the call is done; a call
  /// that is posted outside steps belongs to none.
  void begin_step();
  /// Ends the step without waiting for a device. A call that is not done yet belongs to a later step.
  void leave_step();
  /// Waits for all work. Returns the records, in order, of the steps that `leave_step` has ended since `take_steps` was
  /// called last. The labels of their waits stay valid until the next `begin_step`.
  std::vector<StepRecord> take_steps();
  /// Ends the step and waits for its work. The returned record stays valid until the next `begin_step`.
  const StepRecord& end_step();
  /// Returns the record of background tasks since the last call of this function. It is empty unless
  /// `keep_background` was called.
  StepRecord take_background() { return background_log_.take(); }
  void keep_background(bool yes) { background_log_.set_recording(yes); }
  /// Later steps record when each of `tensors` gradients was ready (0: they do not). Cost: a time stamp for each.
  void keep_ready(std::size_t tensors) { ready_time_count_ = tensors; }
  /// The totals of all steps so far, over calls that are done.
  Totals totals();
  /// True if no call of any step is under way, neither the worker's nor a background task's.
  bool idle();

  void submit(std::string_view label, runtime::Cost cost, const runtime::Work& work) override {
    if (in_step_) ++steps_.back().submitted;
    inner_.submit(label, cost, work);
  }
  void enter_layer(int layer) override {
    if (in_step_) steps_.back().layers.push_back({layer, steps_.back().submitted});
  }
  std::vector<double>* ready_times() override {
    return in_step_ && ready_time_count_ > 0 ? &steps_.back().ready : inner_.ready_times();
  }
  Ticket start(const FabricCall& call) override { return keep(inner_.start(call)); }
  void wait(const Ticket&) override;
  Ports open(Group, const PortOptions&) override;
  std::unique_ptr<BackgroundTask> launch(BackgroundProgram) override;

 private:
  class WatchedPort;
  void note_wait(std::string_view why, double begin);
  Ticket keep(Ticket t) {
    if (in_step_) tickets_.push_back(t);
    return t;
  }
  /// The records of steps whose work may be under way, the present step last. In a deque, since the fabric writes times
  /// to the records, which must keep their addresses.
  std::deque<StepRecord> steps_;
  StepRecord ended_;  ///< the record that `end_step` returned last
  /// Calls posted in the present step, and calls of earlier steps that were not done when the last step ended.
  std::vector<Ticket> tickets_;
  std::vector<Ticket> kept_;  ///< calls that own the labels of waits in the returned records
  bool in_step_ = false;
  /// The most computations of any step so far, for which the next step's record reserves room.
  std::size_t most_submitted_ = 0;
  std::size_t ready_time_count_ = 0;
  CallLog background_log_;
};

}  // namespace gradmeter::dataparallel
