// SPDX-License-Identifier: Apache-2.0
#include "bench/allreduce/call.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "dataparallel/fabric/ranks/engine.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/host/memory.hpp"
#include "kernels/host/threads.hpp"
#include "runtime/clock.hpp"

namespace gradmeter::bench {

allreduce::Call call_of(const CollectivePoint& p, CollectiveBuffers b) {
  const bool on_device = b.device_in.count() > 0;
  const auto typed = [&](const runtime::Buffer& whole) { return runtime::Buffer(p.element, whole.device()); };
  return {.in = on_device ? typed(b.device_in) : runtime::Buffer(p.element, b.in),
          .out = on_device ? typed(b.device_out) : runtime::Buffer(p.element, b.out),
          .op = p.call_op(),
          .accumulate = p.accumulate_wide ? std::optional(core::Element::f32) : std::nullopt};
}

void CollectiveCaller::wait(allreduce::Collective& collective) {
  constexpr unsigned polls_between_notes = 64;  // telling the watchdog costs more than a poll
  for (unsigned polls = 1; !collective.advance(); ++polls) {
    if (polls % polls_between_notes == 0) {
      const auto w = collective.waiting();
      activity_.waiting({.operation = label_,
                         .peer = w.peer,
                         .round = w.rounds ? static_cast<int>(w.round) - 1 : -1,
                         .rounds = w.rounds ? static_cast<int>(w.rounds) : -1});
    }
    backoff_.wait();
  }
  backoff_.reset();
  activity_.beat();
}

void TimeTable::reserve(std::size_t iterations) {
  begin_.reserve(iterations * parts_);
  end_.reserve(iterations * parts_);
  in_time_.reserve(iterations * parts_);
}

std::vector<std::vector<double>> TimeTable::reduce() const {
  const std::vector<double> times = reduced_times();
  std::vector<double> late(in_time_.size());
  for (std::size_t i = 0; i < late.size(); ++i) late[i] = in_time_[i] ? 0 : 1;
  pace_.communicator.max(late);
  std::vector<std::vector<double>> out;
  for (std::size_t i = 0; i < times.size(); i += parts_) {
    const auto parts = static_cast<std::ptrdiff_t>(parts_), at = static_cast<std::ptrdiff_t>(i);
    if (std::all_of(late.begin() + at, late.begin() + at + parts, [](double l) { return l == 0; })) {
      out.emplace_back(times.begin() + at, times.begin() + at + parts);
    }
  }
  return out;
}

/// Reduces over the ranks element by element, so that no rank stores the times of all ranks.
std::vector<double> TimeTable::reduced_times() const {
  const std::size_t n = begin_.size();
  std::vector<double> out(n), first(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = end_[i] - begin_[i];
  switch (pace_.reduction) {
    case RankReduction::rank0:
      pace_.communicator.broadcast(std::span<double>(out));
      break;
    case RankReduction::average:
      pace_.communicator.sum(out);
      for (double& t : out) t /= pace_.communicator.size();
      break;
    case RankReduction::min:
      for (double& t : out) t = -t;
      pace_.communicator.max(out);
      for (double& t : out) t = -t;
      break;
    case RankReduction::max:
      pace_.communicator.max(out);
      break;
    case RankReduction::span:
      // Clocks of different hosts differ, so readings are converted to the reference clock before they are compared.
      for (std::size_t i = 0; i < n; ++i) {
        out[i] = pace_.clock.model().reference(end_[i]);
        first[i] = -pace_.clock.model().reference(begin_[i]);
      }
      pace_.communicator.max(out);
      pace_.communicator.max(first);
      for (std::size_t i = 0; i < n; ++i) out[i] += first[i];
      break;
  }
  return out;
}

namespace {

using runtime::host_clock;

constexpr double least_window_s = 1e-4;

class CallTask final : public CollectiveTask {
 public:
  CallTask(const Pace& p, const CollectiveCaller& caller)
      : pacer_(p.cadence, p.communicator, p.clock), caller_(caller), table_(p, 1) {}

  std::vector<double> run(std::size_t iterations, bool keep, double window_s) override {
    table_.clear();
    table_.reserve(iterations);
    pacer_.open(window_s);
    caller_.announce();
    std::vector<double> own;
    own.reserve(iterations);
    for (std::size_t i = 0; i < iterations; ++i) {
      before();
      const bool in_time = pacer_.next();
      const double begin = host_clock();
      caller_.run();
      const double end = host_clock();
      table_.add(in_time, begin, end);
      if (in_time) own.push_back((end - begin) / static_cast<double>(caller_.calls()));
    }
    after_last();
    caller_.announce_end();
    if (keep) own_times_.insert(own_times_.end(), own.begin(), own.end());
    std::vector<double> times;
    for (const auto& t : table_.reduce()) times.push_back(t.front() / static_cast<double>(caller_.calls()));
    return times;
  }

  void call_once() override {
    caller_.announce();
    caller_.run_one();
    caller_.announce_end();
  }

 private:
  runtime::Pacer pacer_;
  CollectiveCaller caller_;
  TimeTable table_;
};

/// A matrix product that is repeated so often that it takes about a given time on the slowest rank. All ranks repeat
/// the same product equally often.
class Work {
 public:
  /// Collective over `c`; `seconds` is the same on all ranks.
  Work(const runtime::Communicator& c, double seconds) {
    constexpr std::array<std::size_t, 4> sides{32, 96, 256, 512};
    for (const std::size_t side : sides) {
      const double kernel_s = c.max(prepare(side));
      repeats_ = std::max<std::size_t>(1, static_cast<std::size_t>(std::lround(seconds / kernel_s)));
      if (repeats_ < 40) break;  // a product as long as a kernel of training, and short enough to match the time
    }
  }
  void run() {
    for (std::size_t i = 0; i < repeats_; ++i) gemm_->run(a_, b_, {}, c_);
  }
  std::string implementation() const { return gemm_->implementation(); }

 private:
  double prepare(std::size_t side) {
    gemm_ = kernels::make_gemm({.m = side, .n = side, .k = side});
    a_.assign(side * side, 0.5f);
    b_.assign(side * side, 0.25f);
    c_.assign(side * side, 0.0f);
    gemm_->run(a_, b_, {}, c_);
    double best = 1e9;
    for (int i = 0; i < 5; ++i) {
      const double begin = host_clock();
      gemm_->run(a_, b_, {}, c_);
      best = std::min(best, host_clock() - begin);
    }
    return best;
  }
  std::unique_ptr<kernels::Gemm> gemm_;
  kernels::AlignedVector<float> a_, b_, c_;
  std::size_t repeats_ = 1;
};

runtime::SpinPolicy spin_policy_of_thread(const Session& s, int ranks, int threads) {
  const int runnable = s.ranks_per_node(ranks) * (threads + 1);
  auto p = runtime::spin_policy_for(runnable, s.cores_per_node());
  // A progress thread without a core of its own slows the computation that should hide the exchange.
  if (runnable > s.cores_per_node()) p.yields = 10;
  return p;
}

class OverlapTask final : public CollectiveTask {
 public:
  OverlapTask(const Pace& p, const OverlapSetup& s)
      : setup_(s),
        pacer_(p.cadence, p.communicator, p.clock),
        table_(p, 3),
        world_ranks_(static_cast<std::size_t>(p.communicator.size())),
        engine_(dataparallel::ProgressMode::thread, spin_policy_of_thread(s.session, p.communicator.size(), s.threads),
                s.session.activity()) {
    std::iota(world_ranks_.begin(), world_ranks_.end(), 0);
    kernels::set_compute_threads(s.threads);
    work_ = std::make_unique<Work>(p.communicator, exchange_time(p.communicator));
  }

  std::vector<double> run(std::size_t iterations, bool keep, double window_s) override {
    std::vector<double> own;
    table_.clear();
    pacer_.open(window_s);
    for (std::size_t i = 0; i < iterations; ++i) {
      bool in_time = timed([&] { wait(submit()); });
      in_time &= timed([&] { compute(); });
      in_time &= timed([&] { call_once(); });
      if (in_time) own.push_back(last_s_);
    }
    after_last();
    if (keep) own_times_.insert(own_times_.end(), own.begin(), own.end());
    std::vector<double> times;
    for (const auto& t : table_.reduce()) {
      times.push_back(t[2]);
      if (keep) part_times_.exchange_s.push_back(t[0]), part_times_.compute_s.push_back(t[1]);
    }
    return times;
  }

  void call_once() override {
    const auto ticket = submit();
    compute();
    wait(ticket);
  }

  PartTimes take_part_times() override { return std::exchange(part_times_, {}); }
  std::string implementation() const override { return work_->implementation(); }

 private:
  /// Returns whether this rank began the part in its time window.
  template <class Part>
  bool timed(Part part) {
    before();
    const bool in_time = pacer_.next();
    const double begin = host_clock();
    part();
    const double end = host_clock();
    table_.add(in_time, begin, end);
    last_s_ = end - begin;
    return in_time;
  }

  dataparallel::EngineTicket submit() {
    auto ticket = std::make_shared<dataparallel::CollectiveOperation>(setup_.label, 0, runtime::EventPtr{},
                                                                      setup_.collective, setup_.call, world_ranks_);
    engine_.submit(ticket);
    return ticket;
  }
  void wait(const dataparallel::EngineTicket& t) { engine_.wait(*t); }
  void compute() {
    const runtime::Computing note(setup_.session.activity(), "gemm");
    work_->run();
  }

  /// The time of one exchange [s], by which the length of the product is chosen; the same on all ranks, so that all
  /// compute alike. It is the shortest of several: other processes make some exchanges a hundred times as long, and the
  /// product must not become that long.
  double exchange_time(const runtime::Communicator& c) {
    std::vector<double> times;
    for (int i = 0; i < 7; ++i) {
      c.barrier();
      const double begin = host_clock();
      wait(submit());
      times.push_back(c.max(host_clock() - begin));
    }
    return c.broadcast_value(*std::min_element(times.begin(), times.end()));
  }

  OverlapSetup setup_;
  runtime::Pacer pacer_;
  TimeTable table_;
  std::vector<int> world_ranks_;
  std::unique_ptr<Work> work_;
  PartTimes part_times_;
  double last_s_ = 0;            ///< the time of the last part on this rank
  dataparallel::Engine engine_;  ///< declared last, so destroyed first: its thread uses the members above
};

}  // namespace

RunBlock blocks_of(CollectiveTask& task, std::size_t calls) {
  return [&task, calls, window = least_window_s](std::size_t iterations, bool keep) mutable {
    auto times = task.run(iterations, keep, window);
    if (!times.empty()) window = std::max(1.5 * core::median(times) * static_cast<double>(calls), least_window_s);
    return times;
  };
}

std::unique_ptr<CollectiveTask> make_call_task(const Pace& p, const CollectiveCaller& caller) {
  return std::make_unique<CallTask>(p, caller);
}

std::unique_ptr<CollectiveTask> make_overlap_task(const Pace& p, const OverlapSetup& s) {
  return std::make_unique<OverlapTask>(p, s);
}

}  // namespace gradmeter::bench
