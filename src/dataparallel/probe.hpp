// Watches a strategy from outside: collects the intervals that the fabric itself took of every computation and call,
// so that all strategies share one trace and one interval arithmetic, and none has a timer.
#pragma once
#include <mutex>
#include <vector>

#include "dataparallel/decomposition.hpp"
#include "dataparallel/forwarding.hpp"

namespace gradmeter::dataparallel {

/// Everything that a rank has sent in steps, its server's answers to steps among it; not what was beside any step:
/// weights that are judged, goodbyes.
struct Totals {
  std::uint64_t bytes_sent = 0, bytes_between_nodes = 0, bytes_due = 0, calls = 0;
  bool bytes_known = true;  ///< false: a vendor's call was among them
  void add(const Completion&);
};

/// What programs beside the worker did. Any thread.
class BackgroundLog {
 public:
  /// Records are kept until somebody takes them, if at all; totals always.
  void keep(bool);
  void add(const ComputeLog&);
  void add(const Ticket&);
  /// What is done since the last time.
  StepRecord take();
  /// Of a call that a step's record has.
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

/// A fabric that passes everything on and remembers it. One at a time over a fabric.
class Probe final : public Forwarding {
 public:
  explicit Probe(Fabric& inner) : Forwarding(inner) {}
  ~Probe() override { inner_.log_to(nullptr); }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  /// Calls that are posted between begin and end are the step's; those beside any step are nobody's.
  void begin_step();
  /// Calls that are not done yet will be part of the step in which they are. The record stays valid until the next
  /// `begin_step`.
  const StepRecord& end_step();
  /// What servers beside the worker did since the last time, if it is kept.
  StepRecord take_background() { return background_log_.take(); }
  void keep_background(bool yes) { background_log_.keep(yes); }
  /// Of all steps so far, as far as it is done.
  Totals totals();
  /// No call of any step is under way, here or beside.
  bool idle();

  Ticket all_reduce(Group g, Buffer b, allreduce::Op op, Ready r,
                    const allreduce::TensorLayout& tensor_layout) override {
    return keep(inner_.all_reduce(g, b, op, std::move(r), tensor_layout));
  }
  Ticket reduce_scatter(Group g, Buffer b, allreduce::Op op, Ready r) override {
    return keep(inner_.reduce_scatter(g, b, op, std::move(r)));
  }
  Ticket all_gather(Group g, Buffer b, Ready r) override { return keep(inner_.all_gather(g, b, std::move(r))); }
  Ticket broadcast(Group g, Buffer b, int root, Ready r) override {
    return keep(inner_.broadcast(g, b, root, std::move(r)));
  }
  Ticket send(Group g, int peer, ConstBuffer b, Ready r) override {
    return keep(inner_.send(g, peer, b, std::move(r)));
  }
  Ticket receive(Group g, int peer, Buffer b) override { return keep(inner_.receive(g, peer, b)); }
  void wait(const Ticket&) override;
  Ports open(Group, const PortOptions&) override;
  std::unique_ptr<BackgroundTask> launch(std::function<void(Fabric&)> program) override;

 private:
  void note_wait(std::string_view why, double begin);
  Ticket keep(Ticket t) {
    if (in_step_) tickets_.push_back(t);
    return t;
  }
  StepRecord record_;
  std::vector<Ticket> tickets_;  ///< posted in a step, not done when it ended
  std::vector<Ticket> kept_;     ///< of the record: it has their labels
  bool in_step_ = false;
  BackgroundLog background_log_;
};

}  // namespace gradmeter::dataparallel
