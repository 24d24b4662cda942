// The time of one forward pass on all ranks at once.
#pragma once
#include <functional>
#include <string>

#include "bench/engine/noise_sampler.hpp"
#include "bench/engine/rounds.hpp"

namespace gradmeter::bench {

struct LatencyFindings {
  core::Blocks times = {};           ///< of the rank with the longest median [s]
  std::vector<double> medians = {};  ///< of each rank, on rank 0
  core::Stop stop = core::Stop::none;
  double warmup_s = 0;
  std::size_t warmup_samples = 0;
  Noise noise = {};
};

/// Every call is timed by itself: its tail is the tail that a request sees. Ranks have a copy each and begin a block
/// together. Collective over `c`, which must outlive it. Errors: Interrupted.
class LatencyBenchmark {
 public:
  LatencyBenchmark(Session&, const runtime::Communicator& c, std::function<void()> pass, const core::StoppingRule&);

  void warm_up() { rounds_.warm_up(); }
  /// A block; whether there are enough.
  bool turn();
  LatencyFindings findings() const;

 private:
  std::vector<double> run_block(std::size_t passes, bool keep);

  Session& session_;
  const runtime::Communicator& c_;
  std::function<void()> pass_;
  core::Blocks times_;  ///< this rank's
  NoiseSampler noise_{session_.gpu_gauge()};
  Rounds rounds_;
};

}  // namespace gradmeter::bench
