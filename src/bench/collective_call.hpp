// One iteration of a collective on this rank, as lean as it goes: what stands between the two clock readings is the
// call and nothing else.
#pragma once
#include <functional>
#include <vector>

#include "bench/collective_stage.hpp"
#include "runtime/backoff.hpp"
#include "runtime/cadence.hpp"

namespace gradmeter::bench {

/// Copies `in` to `out` on each rank at once: what the memory of one node allows. In place: half onto the other half
/// and back, so that as many bytes move.
class ConcurrentCopy final : public allreduce::Collective {
 public:
  const std::string& name() const override { return name_; }
  void start(const allreduce::Call&) override;
  bool advance() override { return true; }

 private:
  std::string name_ = "memcpy";
};

class CollectiveCaller {
 public:
  CollectiveCaller(runtime::Activity& activity, runtime::Patience patience, allreduce::Collective& c, const char* label,
                   const allreduce::Call& call, std::size_t calls)
      : activity_(activity), backoff_(patience), collective_(c), label_(label), call_(call), calls_(calls) {}

  /// `calls` calls, one after another.
  void run() {
    for (std::size_t i = 0; i < calls_; ++i) {
      collective_.start(call_);
      if (!collective_.advance()) wait();
    }
  }
  std::size_t calls() const { return calls_; }
  /// The watchdog is told once a block that a vendor's call may be where this rank is stuck.
  void announce() { activity_.waiting({.operation = label_}); }
  void retire() { activity_.arrived(); }

 private:
  void wait();

  runtime::Activity& activity_;
  runtime::Backoff backoff_;
  allreduce::Collective& collective_;
  const char* label_;
  allreduce::Call call_;
  std::size_t calls_;
};

/// How iterations are paced and their times become one. Collective over `c`.
struct Pace {
  const runtime::Communicator& c;
  runtime::SharedClock& clock;
  runtime::Cadence cadence;
  Reduction reduction;
};

/// Times of iterations on all ranks, reduced to one each; those that any rank began too late for its window are left
/// out. What was timed in one iteration may have several parts (alone, together): `parts` of them, iteration-major.
class TimeTable {
 public:
  TimeTable(const Pace& p, std::size_t parts) : pace_(p), parts_(parts) {}
  void clear() { begin_.clear(), end_.clear(), in_time_.clear(); }
  void reserve(std::size_t iterations);
  void add(bool in_time, double begin, double end) {
    begin_.push_back(begin);
    end_.push_back(end);
    in_time_.push_back(in_time ? 1 : 0);
  }
  /// Collective. [iterations that count × parts]
  std::vector<std::vector<double>> reduce() const;

 private:
  double reduce_one(const std::vector<double>& begin, const std::vector<double>& end, std::size_t at) const;

  Pace pace_;
  std::size_t parts_;
  std::vector<double> begin_, end_;
  std::vector<char> in_time_;
};

}  // namespace gradmeter::bench
