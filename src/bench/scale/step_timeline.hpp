// SPDX-License-Identifier: Apache-2.0
// When each layer of one step was computed, and each bucket exchanged: from the intervals that the probe has of every
// measured step anyhow.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/scale/causes.hpp"
#include "bench/scale/measure.hpp"
#include "core/result.hpp"
#include "dataparallel/strategy.hpp"
#include "model/model.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::bench {

/// Times from the begin of the step.
struct StepTimeline {
  double step_s = 0;
  core::Spans compute;   ///< computations of one layer and pass that follow each other are one span, and others of one
                         ///< label between which no exchange ended
  core::Spans exchange;  ///< one for each call, in the order in which they were given to the fabric
  core::Spans exposed;   ///< their parts outside computations and the calls before
};

/// layers: their names by number (Model::layer_names); buckets: without times, used where there are as many calls,
/// which else are named by their labels.
StepTimeline make_timeline(const dataparallel::StepRecord&, std::span<const std::string> layers,
                           std::span<const core::Span> buckets);

/// The buckets of a model's gradients, named by their tensors.
core::Spans bucket_spans(std::span<const model::Tensor>, std::size_t elements, std::size_t bucket_bytes);

/// Collective: the step in the middle of those measured (the block with the median step, of it the sample next to its
/// median), on the rank that computed longest in its block, goes to the first rank's metrics. Nothing where the
/// measurement has kept no steps, or the step has over a thousand spans.
void fill_timeline(const runtime::Communicator&, const Measurement&, std::span<const std::string> layers,
                   std::span<const core::Span> buckets, core::Metrics&);

// When each bucket of the gradients was ready, under way and waited for: why communication was exposed.

/// One bucket on the rank that computed longest, as the row's own parts of a step: medians over the blocks of each
/// block's median [s], from the begin of the step, with their intervals.
struct BucketTimes {
  std::string first, last;  ///< tensors, in the order in which they become ready
  std::size_t tensors = 0;
  std::string largest;       ///< of them
  double largest_share = 0;  ///< of the bucket's elements
  std::size_t bytes = 0;
  Estimate ready, begin, end;    ///< given to the fabric; its exchange
  std::optional<Estimate> wire;  ///< since all ranks had begun; nothing where the clocks cannot tell
  Estimate exposed;              ///< of the exchange outside computation; time of several counts for the first
};

/// Of the blocks whose steps had one call for each bucket. Empty: none had.
std::vector<BucketTimes> bucket_times(std::span<const model::Tensor>, std::size_t elements, std::size_t bucket_bytes,
                                      const Measurement&);

}  // namespace gradmeter::bench
