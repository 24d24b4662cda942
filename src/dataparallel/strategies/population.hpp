// Population search: the best of many models stay, and the others are replaced by their descendants.
#pragma once
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {

/// `size` models (rounded up to a multiple of the ranks), the same number on each rank, begin as so many random
/// initialisations. A step evaluates each on its own rank's part of the batch. Ranks use different samples, whose
/// difficulty differs by more than models do. So each also evaluates one shared model, the best of the last step, and a
/// model is compared by its loss less that one's on the same samples. The `survivors` best stay where they are, by rank
/// 0's ranking, which is sent to all. Every other place gets a child of survivors that all ranks draw alike from the
/// seed: with breeding=1 the mean of two, else a copy of one, perturbed by mutation·decay^step in every weight
/// (signs.hpp). A survivor is sent once to each rank that needs it, the best to all. It takes no optimizer and no step
/// size. `step` returns the outcome of this rank's best model. The evaluation weights are the best model of the last
/// step. Of a replica on several ranks one has the losses and sends them to the others; weights and noise are drawn by
/// places in the whole model, and a survivor's parts travel each among the ranks that hold such parts. Bytes: those of
/// an all-gather of `size` floats and a broadcast of 3 · survivors, as many within replicas, and at most survivors ·
/// (P-1) · M of all ranks together. Memory: (size/P + survivors) · M a rank. Source: truncation selection: Such et al.,
/// "Deep neuroevolution", 2017, algorithm 1; intermediate recombination: Beyer & Schwefel, "Evolution strategies",
/// Natural Computing 2002.
std::unique_ptr<Strategy> make_population(const core::ParsedName&, const StrategyOptions&);

}  // namespace gradmeter::dataparallel
