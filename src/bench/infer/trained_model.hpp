// A model that was trained in fp32, with what its quantization needs to know.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/engine/session.hpp"
#include "bench/train/layout.hpp"
#include "kernels/aligned.hpp"
#include "model/dataset.hpp"
#include "model/inference.hpp"

namespace gradmeter::bench {

struct TrainedModel {
  std::unique_ptr<model::Network> network;
  kernels::AlignedVector<float> weights;
  std::vector<model::ActivationRange> ranges;  ///< of each layer's inputs, over the calibration's samples

  model::Buffers buffers() { return {.parameters = weights, .gradients = runtime::no_floats}; }
};

struct TrainOnce {
  TrainingConfig config;  ///< of one rank
  std::size_t epochs = 2;
  std::size_t calibration_samples = 512;  ///< the first of the training set
};

/// Told on rank 0: "step 64 of 312, loss 0.41".
using TrainingProgress = std::function<void(const std::string&)>;

/// Collective over `c`. Rank 0 trains while the others sleep, so the weights are the same for any number of ranks; each
/// rank calibrates for itself. Errors: WrongResult for a loss that is not finite; Interrupted.
TrainedModel train_once(Session&, const runtime::Communicator& c, const model::DataSplit&, const TrainOnce&,
                        const TrainingProgress&);

}  // namespace gradmeter::bench
