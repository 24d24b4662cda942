// The time of one forward pass on all ranks at once.
#pragma once
#include <functional>
#include <string>

#include "bench/engine/noise_sampler.hpp"
#include "bench/engine/rebuilding.hpp"
#include "bench/engine/rounds.hpp"
#include "core/random.hpp"

namespace gradmeter::bench {

/// A forward pass and its checks, on one rank. Faults are lines; empty: nothing is wrong.
struct TimedPass {
  std::function<void()> run;
  /// Around one pass of each block that counts, at a place drawn at random, and outside its time: other inputs, and
  /// whether its result is that of these.
  std::function<void()> renew = [] {};
  std::function<std::string()> judge = [] { return std::string(); };
  /// Behind such a block, for as long as that takes a tenth of the time: whether a pass that is no sample is right.
  std::function<std::string()> check = [] { return std::string(); };
};

struct LatencyFindings {
  std::string fault = {};            ///< of a pass on any rank, the same on all
  core::Blocks times = {};           ///< of the rank with the longest median [s]
  std::vector<double> medians = {};  ///< of each rank, on rank 0
  core::Stop stop = core::Stop::none;
  double warmup_s = 0;
  std::size_t warmup_samples = 0;
  Noise noise = {};
};

/// Every call is timed by itself: its tail is the tail that a request sees. Ranks have a copy each and begin a block
/// together. Collective over `c`, which must outlive it. Errors: Interrupted; BackendError on all ranks where a pass
/// cannot be made anew.
class LatencyBenchmark {
 public:
  /// `building` has built the pass; anew: another like it, for later blocks.
  LatencyBenchmark(Session&, const runtime::Communicator& c, TimedPass, std::function<TimedPass()> anew,
                   Rebuilding building, const core::StoppingRule&);

  void warm_up();
  /// A block; whether there are enough.
  bool turn();
  LatencyFindings findings() const;

 private:
  void build_anew();
  std::vector<double> run_block(std::size_t passes, bool keep);
  std::string check();

  Session& session_;
  const runtime::Communicator& c_;
  TimedPass pass_;
  std::function<TimedPass()> anew_;
  Rebuilding building_;
  core::Random places_;       ///< of the passes that are judged
  std::uint64_t blocks_ = 0;  ///< that count
  std::string fault_;         ///< the first of this rank's
  core::Blocks times_;        ///< this rank's
  double begin_ = 0, checks_s_ = 0;
  NoiseSampler noise_{session_.gpu_gauge()};
  Rounds rounds_;
};

}  // namespace gradmeter::bench
