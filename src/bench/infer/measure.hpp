// SPDX-License-Identifier: Apache-2.0
// Measures the accuracy that a precision loses against fp32 on the same validation samples, and the latency of a pass.
#pragma once
#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "bench/engine/machine_state.hpp"
#include "bench/engine/rounds.hpp"
#include "bench/infer/infer.hpp"
#include "core/random.hpp"

namespace gradmeter::bench {

/// A mean difference of paired samples, with its 95 % interval.
struct PairedMean {
  double value = 0, low = 0, high = 0;
};
/// The mean of n differences within ±1, from their sum and their sum of squares. A pair has four outcomes, since it is
/// right or wrong in each of the two precisions. The interval is Wald's after half a pair is added to each outcome, so
/// that the interval has a width even where no pair differs. Source: Agresti & Min, Statistics in Medicine 2005, on
/// matched proportions.
PairedMean paired_mean(double n, double sum, double sum_of_squares);

/// The accuracy of a trained network in a precision, on the validation set.
struct PrecisionAccuracy {
  double accuracy = 0;  ///< accuracy in the precision
  PairedMean lost;      ///< loss of accuracy against fp32, in which the network was trained
  double error = 0;  ///< ‖logits − reference‖ / ‖reference‖, where the reference is the host's logits in fp32
  /// The fault that kernels::CallCheck found in an operation on the host, in the precision's own passes or the fp32
  /// passes that they are compared with; empty: nothing.
  std::string fault = {};
};
/// The reason why the logits cannot be the network's; empty: they can be. Their error must be below 1e-3 in fp32, 0.1
/// in bf16, 0.25 in int8, and 1 in other precisions: a network unrelated to the trained one has an error of 1 or more.
std::string accuracy_fault(kernels::Precision, const PrecisionAccuracy&);
/// As `accuracy_fault`, for the logits of one batch. reference: the host's logits in fp32, which have been checked.
std::string logits_fault(kernels::Precision, std::span<const float> logits, std::span<const float> reference);

/// Measures the accuracy. Collective over `c`. Each rank measures its part of the validation set on its session's
/// device. `weights` are the model's, in that device's memory. Errors: UsageError, on all ranks, if the network has no
/// inference in the precision on some rank; BackendError for a lost GPU.
PrecisionAccuracy measure_accuracy(Session&, const runtime::Communicator& c, TrainedModel&,
                                   const runtime::ConstBuffer& weights, kernels::Precision,
                                   const model::Dataset& validation);

// Times one forward pass on all ranks at once.

/// A forward pass and its checks, on one rank. The functions that check return the fault in one line; empty: nothing is
/// wrong.
struct TimedPass {
  std::function<void()> run;
  /// In each block of samples, one pass is drawn at random. Before this pass `renew` writes other inputs, and after it
  /// `judge` checks that the result belongs to these inputs; both are outside the pass's time.
  std::function<void()> renew = [] {};
  std::function<std::string()> judge = [] { return std::string(); };
  /// Makes and checks one more pass, which is no sample. It is called after a block of samples, unless such checks have
  /// taken more than a tenth of the time so far.
  std::function<std::string()> check = [] { return std::string(); };
};

struct LatencyFindings {
  std::string fault = {};            ///< a fault of a pass on any rank, the same on all ranks
  core::Blocks times = {};           ///< times of the rank with the longest median [s]
  std::vector<double> medians = {};  ///< median of each rank, on rank 0
  core::Stop stop = core::Stop::none;
  double warmup_s = 0;
  std::size_t warmup_samples = 0;
  MachineNoise noise = {};
};

/// Times every pass by itself, so that the tail of the times is the tail that requests see. Each rank has a copy of the
/// model; all ranks begin a block together. Collective over `c`, which must outlive this object. Errors: Interrupted;
/// BackendError on all ranks if a pass cannot be built again.
class LatencyBenchmark {
 public:
  /// rebuilder: the object that built the pass. build_pass: builds another pass like it, for later blocks.
  LatencyBenchmark(Session&, const runtime::Communicator& c, TimedPass, std::function<TimedPass()> build_pass,
                   Rebuilder rebuilder, const core::StoppingRule&);

  void warm_up();
  /// Makes a block. Returns true if no more blocks are needed: there are enough, or the time is spent.
  bool turn();
  LatencyFindings findings() const;

 private:
  void build_anew();
  std::vector<double> run_block(std::size_t passes, bool keep);
  std::string check();

  Session& session_;
  const runtime::Communicator& c_;
  TimedPass pass_;
  std::function<TimedPass()> build_pass_;
  Rebuilder rebuilder_;
  core::Random judged_passes_;       ///< draws for each block the pass that is judged
  std::uint64_t blocks_ = 0;         ///< number of blocks of samples
  std::string fault_;                ///< the first fault of this rank
  core::Blocks times_;               ///< this rank's times
  double begin_ = 0, checks_s_ = 0;  ///< begin of the warm-up by the host clock; time of all extra checks [s]
  NoiseSampler noise_{session_.gpu_gauge()};
  Rounds rounds_;
};

// Turns the findings for a model in one precision into a row.

/// Fills in the accuracy; the status is wrong where the logits cannot be the network's.
void fill_accuracy(const InferPoint&, const PrecisionAccuracy&, core::Point& row);
/// Fills in the times. Where a timed pass was wrong, the status is wrong and there are no times. ranks: the number of
/// ranks that ran the pass at once. host_of: the host of a rank.
void fill_latency(const InferPoint&, const LatencyFindings&, int ranks,
                  const std::function<std::string(int rank)>& host_of, core::Point& row);
/// Fills in the speedup over fp32 with the same model and batch.
void fill_speedup(const core::Point& fp32, core::Point& row);

}  // namespace gradmeter::bench
