// A model that is a list of layers with softmax cross-entropy on top: whole, or the part of it that one rank holds,
// where tensor ranks share layers and pipeline stages hold runs of layers.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "model/pipeline.hpp"

namespace gradmeter::model {

/// A part's tensors and first weights are this part of the whole network's (`NetworkPart` says which). So are the
/// gradients: up to the rounding of sums over tensor ranks, or with the bits of an accumulating whole network where
/// there are none. Gradients of tensors that all tensor ranks hold have equal bits on them. All ranks of one replica
/// get the same batch and make their calls together; tensor rank 0 of the last stage reports the outcome, the others'
/// is zero.
/// Cost: the layers', and what `Pipeline` sends: a pair of layers that is shared is summed once forward [n × out] and
/// once backward [n × in], the network's first pair not backward; a border of stages carries one [n × width] each way,
/// of a rank's share where it lies inside a pair.
/// Errors: those of `NetworkPart` and `Pipeline`; std::invalid_argument on buffers or batches of the wrong size.
class Network : public Model {
 public:
  /// layers: of the whole network, whatever the part. loss: precision of the softmax cross-entropy, see submit_loss.
  Network(std::string name, std::vector<std::unique_ptr<Layer>> layers, const Part& = {},
          kernels::Precision loss = kernels::Precision::fp32);

  const std::string& name() const override { return part_.name(); }
  std::span<const Tensor> tensors() const override { return part_.tensors(); }
  std::size_t element_count() const override { return part_.element_count(); }
  std::size_t input_features() const override { return part_.input_features(); }
  std::size_t classes() const override { return part_.classes(); }
  std::size_t labels() const override { return part_.labels(); }
  /// All passes of all layers held, but for the gradient of the network's input.
  double step_flops(std::size_t samples) const override;
  std::vector<std::string> layer_names() const override;
  std::vector<RepeatedProblem> pass_problems(std::size_t n) const override { return pipeline_.pass_problems(n); }
  std::vector<RepeatedProblem> forward_problems(std::size_t n) const override { return pipeline_.forward_problems(n); }
  /// Activations and their gradients, without the memory that its peers provide; what the layers hold (packed
  /// operands, scratch) is not counted.
  std::size_t workspace_bytes(std::size_t samples) const override { return pipeline_.workspace_bytes(samples); }
  PeerNeeds peer_needs() const override { return pipeline_.peer_needs(); }
  PeerTraffic pass_traffic(std::size_t samples) const override { return pipeline_.pass_traffic(samples); }
  PeerTraffic forward_traffic(std::size_t samples) const override { return pipeline_.forward_traffic(samples); }

  void initialise(Queue& queue, Buffers b, std::uint64_t seed) const override { part_.initialise(queue, b, seed); }
  void run_forward(Queue&, Buffers, const Batch&, const OutcomePlace&) override;
  void run_pass(Queue&, Buffers, const Batch&, const Ready&, const OutcomePlace&) override;

  std::span<const std::unique_ptr<Layer>> layers() const { return part_.layers(); }
  std::vector<ConstBuffer> layer_parameters(const ConstBuffer& flat, std::size_t layer) const {
    return part_.parts_of(flat, layer);
  }
  /// A forward pass without its loss: the outputs of all layers, until the next pass. The last ones are the logits.
  std::vector<ConstBuffer> layer_outputs(Queue&, Buffers, const Batch&);

 private:
  void check(Buffers, const Batch&) const;

  NetworkPart part_;
  Stage stage_;
  Pipeline pipeline_;
};

}  // namespace gradmeter::model
