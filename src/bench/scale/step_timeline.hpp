// SPDX-License-Identifier: Apache-2.0
// The times at which each layer of a step was computed and each bucket exchanged, from what the probe has recorded.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/scale/causes.hpp"
#include "bench/scale/measure.hpp"
#include "core/result.hpp"
#include "dataparallel/buckets.hpp"
#include "model/model.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::bench {

/// Times [s] count from the begin of the step.
struct StepTimeline {
  double step_s = 0;
  /// Consecutive computations of one layer and pass form one span. Without layers, consecutive computations of one
  /// label form one span, if no exchange ended between them.
  core::Spans compute;
  core::Spans exchange;  ///< one span for each call, in the order in which calls were posted
  core::Spans exposed;   ///< the parts of calls that overlap neither computations nor earlier calls
};

/// layers: the names of the layers by number (Model::layer_names). buckets: spans that name the buckets, without times
/// (bucket_spans); if there are as many calls as buckets, calls get these names, else they keep their own labels.
StepTimeline make_timeline(const dataparallel::StepRecord&, std::span<const std::string> layers,
                           std::span<const core::Span> buckets);

/// The buckets of a model's gradients, named by their tensors.
core::Spans bucket_spans(std::span<const model::Tensor>, std::span<const dataparallel::Bucket>);

/// Writes the timeline of a typical step into the first rank's metrics. This step is from the block with the median
/// step time: the sample nearest to the block's median, on the rank that computed longest in the block. Writes nothing
/// where no steps were kept, or the step has over 1000 spans. Collective.
void fill_timeline(const runtime::Communicator&, const Measurement&, std::span<const std::string> layers,
                   std::span<const core::Span> buckets, core::Metrics&);

// The times at which each bucket of the gradients was ready and was exchanged, to show why it was exposed.

/// The times of one bucket on the rank that computed longest, from the begin of the step [s]. Each time is the median
/// over blocks of the blocks' medians, with its 95 % interval, like the parts of a step in the row.
struct BucketTimes {
  std::string first, last;  ///< names of its first and last tensor, in the order in which they become ready
  std::size_t tensors = 0;
  std::string largest;       ///< name of its largest tensor
  double largest_share = 0;  ///< the largest tensor's share of the elements
  std::size_t bytes = 0;
  Estimate ready, begin, end;  ///< `ready`: when the bucket was given to the fabric; `begin` and `end`: of its exchange
  /// Time from when all ranks had begun the call to its end; empty if the clocks cannot tell.
  std::optional<Estimate> wire;
  Estimate exposed;  ///< the part of the exchange's time that overlaps neither computation nor earlier calls
};

/// The times of all buckets, from the blocks whose steps have one call for each bucket; empty where there is no such
/// block.
std::vector<BucketTimes> bucket_times(std::span<const model::Tensor>, std::span<const dataparallel::Bucket>,
                                      const Measurement&);

/// The part of an exchange that no cut into buckets can hide [s]: the time for which the link is still busy after
/// backward and the updates, if each gradient is sent as soon as it is ready on all ranks and the link is free, and if
/// a call takes no time besides that of its bytes (least_exchange_end). exchange_s: the time that the link needs for
/// all gradients. Returns the median over blocks; empty if no block has ready times, or if exchange_s is 0 or unknown.
std::optional<double> least_exposed(std::span<const model::Tensor>, double exchange_s, const Measurement&);

}  // namespace gradmeter::bench
