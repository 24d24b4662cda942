#include "model/network.hpp"

#include <stdexcept>

#include "kernels/problems/shape.hpp"

namespace gradmeter::model {

Network::Network(std::string name, std::vector<std::unique_ptr<Layer>> layers, const Part& part,
                 kernels::Precision loss)
    : part_(std::move(name), std::move(layers), part), stage_(part_, part.peers), pipeline_(stage_, part, loss) {}

std::vector<std::string> Network::layer_names() const {
  std::vector<std::string> names;
  for (const auto& layer : part_.layers()) names.push_back(layer->name());
  return names;
}

double Network::step_flops(std::size_t samples) const {
  double flops = 0;
  for (const RepeatedProblem& p : part_.problems(samples, true)) flops += kernels::run_flops(p.problem);
  return flops;
}

void Network::check(Buffers buffers, const Batch& batch) const {
  kernels::require_elements("network: parameters", buffers.parameters.count(), element_count());
  if (batch.samples() == 0) throw std::invalid_argument("network: the batch is empty");
  kernels::require_elements("network: inputs", batch.inputs.count(), batch.samples() * input_features());
  kernels::require_elements("network: labels of a sample", batch.labels_each, labels());
}

std::vector<ConstBuffer> Network::layer_outputs(Queue& queue, Buffers buffers, const Batch& batch) {
  check(buffers, batch);
  return pipeline_.layer_outputs(queue, buffers, batch);
}

void Network::run_forward(Queue& queue, Buffers buffers, const Batch& batch, const OutcomePlace& outcome) {
  check(buffers, batch);
  pipeline_.forward(queue, buffers, batch, outcome);
}

void Network::run_pass(Queue& queue, Buffers buffers, const Batch& batch, const Ready& ready,
                       const OutcomePlace& outcome) {
  check(buffers, batch);
  kernels::require_elements("network: gradients", buffers.gradients.count(), element_count());
  pipeline_.pass(queue, buffers, batch, ready, outcome);
}

}  // namespace gradmeter::model
