// `--bucket auto`: the bucket size that is fastest here, measured by steps of the same training.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "bench/engine/session.hpp"
#include "bench/train/layout.hpp"
#include "model/dataset.hpp"

namespace gradmeter::bench {

/// Candidate sizes, each with other buckets: one bucket for all (0), then 256 KiB to 25 MiB.
std::vector<std::size_t> bucket_candidates(std::span<const model::Tensor>, std::size_t element_count);

/// The index of the smallest median. times: by candidate, of steps, each as long as on the slowest rank [s].
std::size_t fastest_candidate(const std::vector<std::vector<double>>& times);

/// The configuration with a bucket size of its own. Where the size is automatic and matters, it is the fastest in a few
/// steps of each candidate, in trainings that are dropped; else as given, or as usual.
/// Collective over the communicator; all ranks choose alike.
/// Cost:   twice, for every candidate, a training set up and four steps of it.
/// Errors: UsageError where the configuration cannot be trained; Interrupted.
TrainingConfig with_chosen_bucket(Session&, const runtime::Communicator&, const model::DataSplit&, TrainingConfig);

}  // namespace gradmeter::bench
