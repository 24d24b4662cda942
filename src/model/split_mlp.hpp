// A fully connected network that several ranks hold together: tensor ranks share layers, pipeline stages hold runs of
// layers. All ranks of one replica get the same batch and make their calls together.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "kernels/gemm.hpp"
#include "model/accumulate.hpp"
#include "model/mlp_stage.hpp"

namespace gradmeter::model {

/// Tensors and first weights are this part of `Mlp`'s (`MlpShard` says which). So are the gradients: up to the rounding
/// of sums over tensor ranks, or with the bits of an accumulating `Mlp` where there are none. Gradients of tensors that
/// all tensor ranks hold have equal bits on them.
///
/// `pass` cuts the batch into the part's micro-batches; gradients are averaged over them in their order
/// (`GradientSum`), and tensors are announced in the last one's backward pass. `forward` takes a batch of any size, in
/// pieces that the memory is made for. `backward` alone repeats the forward pass, because `forward` keeps nothing. Of a
/// replica's ranks, tensor rank 0 of the last stage reports the outcome; the others' is zero.
///
/// Cost a micro-batch of n samples: a rank's share of Mlp's, and the messages of `pass_traffic`: a pair of layers that
/// is shared is summed once forward [n × out] and once backward [n × in], the network's first pair not backward; a
/// border of stages carries one [n × width] each way, of a rank's share where it lies inside a pair. Activations: those
/// of `most_in_flight` micro-batches. Errors: those of `MlpShard`, and UsageError when a batch does not divide into the
/// micro-batches. std::logic_error when run without peers, or with more samples than the part said. Sources:
/// Megatron-LM (tensor ranks), GPipe and 1F1B (stages): `mlp_shard.hpp`, `part.hpp`.
class SplitMlp final : public Model {
 public:
  SplitMlp(std::vector<std::size_t> widths, const Part&,
           std::string gemm_backend = std::string(kernels::gemm_backends().front().name));

  const std::string& name() const override { return shard_.name(); }  ///< the whole network's, as are the next two
  std::size_t input_features() const override { return shard_.widths().front(); }
  std::size_t classes() const override { return shard_.widths().back(); }
  std::span<const Tensor> tensors() const override { return shard_.tensors(); }
  std::size_t element_count() const override { return shard_.element_count(); }
  double step_flops(std::size_t samples) const override { return shard_.step_flops(samples); }
  std::vector<RepeatedProduct> pass_products(std::size_t samples) const override;
  std::vector<RepeatedProduct> forward_products(std::size_t samples) const override;
  /// Without the memory that its peers provide.
  std::size_t workspace_bytes(std::size_t samples) const override;
  PeerNeeds peer_needs() const override;
  PeerTraffic pass_traffic(std::size_t samples) const override;
  PeerTraffic forward_traffic(std::size_t samples) const override;

  void initialise(Buffers b, std::uint64_t seed) const override { shard_.initialise(b, seed); }
  Outcome forward(Queue&, Buffers, const Batch&) override;
  void backward(Queue& queue, Buffers b, const Batch& batch, const Ready& ready) override {
    pass(queue, b, batch, ready);
  }
  Outcome pass(Queue&, Buffers, const Batch&, const Ready&) override;

 private:
  /// Messages under way for the micro-batch in one slot.
  struct Post {
    TransferPtr input, output_left, delta, input_delta_left;
  };
  /// One pass, or one forward.
  struct Run {
    Queue& queue;
    Buffers buffers;
    const Batch& batch;
    std::size_t samples, pieces;  ///< of all but the last piece
    const Ready* ready;           ///< null: no backward
    Outcome outcome = {};
    std::size_t first(std::size_t piece) const { return piece * samples; }
    std::size_t count(std::size_t piece) const { return std::min(samples, batch.samples() - first(piece)); }
  };
  bool is_first() const { return part_.stage == 0; }
  bool is_last() const { return part_.stage + 1 == part_.stages; }
  std::size_t largest_piece(std::size_t batch) const;
  void check(Buffers, const Batch&) const;
  void play(Run&, const std::vector<PipelineStep>&);
  void expect_input(const Run&, std::size_t piece);
  void forward_piece(Run&, std::size_t piece);
  void backward_piece(Run&, std::size_t piece);
  void take_loss(Run&, std::size_t piece);
  MlpStage::Pass stage_pass(const Run&, std::size_t piece) const;

  MlpShard shard_;
  Part part_;
  MlpStage stage_;
  std::vector<PipelineStep> steps_;
  std::size_t slots_;
  GradientSum sum_;
  kernels::AlignedVector<float> own_;
  StageMemory memory_;
  std::vector<Post> posts_;  ///< by slot
};

}  // namespace gradmeter::model
