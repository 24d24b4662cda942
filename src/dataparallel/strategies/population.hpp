// Population search: many models, of which the best stay and breed the others' successors.
#pragma once
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {

/// `size` models (rounded up to a multiple of the ranks), the same number on each rank, begin as so many random
/// initialisations. A step evaluates each on its own rank's part of the batch. Since ranks judge on different samples,
/// whose difficulty differs by more than models do, each also evaluates one model that all share, the best of the last
/// step: what is gathered and compared is a model's loss less that one's on the same samples. The `survivors` best
/// stay where they are, by rank 0's account of them, which all are told, and every other place gets a child of
/// survivors that all ranks draw alike from the seed: with breeding=1 the mean of two, else a copy of one, disturbed by
/// mutation·decay^step in every weight (signs.hpp). A survivor travels once to each rank that needs it, the best to
/// all. It takes no optimizer and no step size. What `step` returns is the outcome of this rank's best model. What the
/// run hands over is the best of the last step. Of a copy of the model on several ranks one has the losses and tells
/// the others; weights and noise are drawn by places in the whole model, and a survivor's parts travel each among the
/// ranks that hold such parts. Bytes: those of an all-gather of `size` floats and a broadcast of 3 · survivors, as many
/// told within copies, and at most survivors · (P-1) · M of all ranks together. Memory: (size/P + survivors) · M a
/// rank. Source: truncation selection: Such et al., "Deep neuroevolution", 2017, algorithm 1; intermediate
/// recombination: Beyer & Schwefel, "Evolution strategies", Natural Computing 2002.
std::unique_ptr<Strategy> make_population(const core::ParsedName&, const StrategyOptions&);

}  // namespace gradmeter::dataparallel
