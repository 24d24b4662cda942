// Watches a strategy from outside: collects the intervals that the fabric itself took of every computation and call,
// so that all strategies share one trace and one interval arithmetic, and none has a timer.
#pragma once
#include <string_view>
#include <vector>

#include "dataparallel/fabric.hpp"
#include "dataparallel/intervals.hpp"

namespace gradmeter::dataparallel {

/// One call of one rank in one step.
struct CallRecord {
  std::string_view label;
  Completion completion;
};
/// What one rank did in one step.
struct StepRecord {
  Interval step;
  ComputeLog computations;
  std::vector<CallRecord> calls;
};

/// A fabric that passes everything on and remembers it. One at a time over a fabric.
class Probe final : public Fabric {
 public:
  explicit Probe(Fabric& inner) : inner_(inner) {}
  ~Probe() override { inner_.log_to(nullptr); }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  void begin_step();
  /// All of the step's calls must be done. The record stays valid until the next `begin_step`.
  const StepRecord& end_step();

  int rank(Group g) const override { return inner_.rank(g); }
  int size(Group g) const override { return inner_.size(g); }
  Group split(int color, int key) override { return inner_.split(color, key); }
  Ticket all_reduce(Group g, Buffer b, allreduce::Op op, Ready ready, const allreduce::Contents& contents) override {
    return keep(inner_.all_reduce(g, b, op, std::move(ready), contents));
  }
  Ticket broadcast(Group g, Buffer b, int root, Ready ready) override {
    return keep(inner_.broadcast(g, b, root, std::move(ready)));
  }
  Ticket send(Group g, int peer, ConstBuffer b, Ready ready) override {
    return keep(inner_.send(g, peer, b, std::move(ready)));
  }
  Ticket receive(Group g, int peer, Buffer b) override { return keep(inner_.receive(g, peer, b)); }
  void wait(const Ticket& t) override { inner_.wait(t); }
  Ready record() override { return inner_.record(); }
  void compute(std::string_view label, model::Cost cost, const std::function<void()>& work) override {
    inner_.compute(label, cost, work);
  }
  void log_to(ComputeLog* log) override { inner_.log_to(log); }
  void settle() override { inner_.settle(); }
  double now() const override { return inner_.now(); }

 private:
  Ticket keep(Ticket t) {
    tickets_.push_back(t);
    return t;
  }
  Fabric& inner_;
  StepRecord record_;
  std::vector<Ticket> tickets_;
};

/// A step taken apart [s]. compute + exposed + idle = step, where idle is what is neither computation nor a call.
struct Decomposition {
  double step = 0, compute = 0;
  double communication = 0;  ///< the union of the calls, from start to finish
  double exposed = 0;        ///< communication outside computation: union − compute
  double overlap = 0;        ///< compute + communication − union
  double skew = 0;           ///< of the exposed part, waiting for peers that had not started the call yet
  std::uint64_t bytes_sent = 0, bytes_between_nodes = 0, bytes_due = 0;
  bool bytes_known = true;  ///< false: a vendor's call was among them
  double encode = 0, decode = 0;
};

/// `last_start[i]`: when the last rank started call i, in this rank's clock; empty: skew is not known (0).
Decomposition decompose(const StepRecord&, std::span<const double> last_start);

}  // namespace gradmeter::dataparallel
