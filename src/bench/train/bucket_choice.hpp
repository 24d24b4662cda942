// `--bucket auto`: the bucket size that is fastest here, found by steps of the very training.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "bench/engine/session.hpp"
#include "bench/train/layout.hpp"
#include "model/dataset.hpp"

namespace gradmeter::bench {

/// Sizes worth a trial, each with buckets that no other has: one bucket for all (0), then 256 KiB to 25 MiB.
std::vector<std::size_t> bucket_candidates(std::span<const model::Tensor>, std::size_t element_count);

/// The place of the smallest median. times: by candidate, steps that are as long as on the slowest rank [s].
std::size_t fastest_candidate(const std::vector<std::vector<double>>& times);

/// The configuration with a bucket size of its own: where it is automatic and matters, the fastest of a few steps of
/// each candidate on trainings that are thrown away; else as it is, or as usual.
/// Collective over the communicator; all ranks choose alike.
/// Cost:   twice, for every candidate, a training set up and four steps of it.
/// Errors: UsageError where the configuration cannot be trained; Interrupted.
TrainingConfig with_chosen_bucket(Session&, const runtime::Communicator&, const model::DataSplit&, TrainingConfig);

}  // namespace gradmeter::bench
