// A fully connected network with ReLU between its layers and softmax cross-entropy on top: whole, or the part of it
// that one rank holds, where tensor ranks share layers and pipeline stages hold runs of layers. Almost all of its time
// is matrix products, so it suits experiments with batch, precision and exchange.
#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kernels/gemm.hpp"
#include "model/accumulate.hpp"
#include "model/mlp_stage.hpp"

namespace gradmeter::model {

/// Tensors as in `MlpShard`; a weight's gradient is computed before its bias's. A weight lies as [out × in], as in most
/// frameworks: measured with oneDNN 2.6 on AVX-512 at batch 16 and 256, a step's products take as long as with
/// [in × out] within 2 %, and the narrow last layer's gradient 0.6 times as long.
///
/// A part's tensors and first weights are this part of the whole network's (`MlpShard` says which). So are the
/// gradients: up to the rounding of sums over tensor ranks, or with the bits of an accumulating whole network where
/// there are none. Gradients of tensors that all tensor ranks hold have equal bits on them. All ranks of one replica
/// get the same batch and make their calls together; tensor rank 0 of the last stage reports the outcome, the others'
/// is zero.
///
/// A pass cuts the batch into the part's micro-batches; gradients are averaged over them in their order
/// (`GradientSum`), and tensors are announced in the last one's backward pass. A forward pass takes a batch of any
/// size, of a part in pieces that its memory is made for.
///
/// Cost a micro-batch of n samples: 2·(weights) FLOP a sample forward, backward twice that, less the first layer's
/// input gradient; of a part its share, and the messages of `pass_traffic`: a pair of layers that is shared is summed
/// once forward [n × out] and once backward [n × in], the network's first pair not backward; a border of stages carries
/// one [n × width] each way, of a rank's share where it lies inside a pair. Activations: those of `most_in_flight`
/// micro-batches, allocated once for a part, and for a whole network whenever a batch is larger than those before.
/// Errors: those of `MlpShard`; UsageError when a batch does not divide into the micro-batches; std::invalid_argument
/// on buffers or batches of the wrong size; std::logic_error when a part is run without peers, or with more samples
/// than it said. Sources: initialisation He et al., "Delving deep into rectifiers", ICCV 2015 (uniform, variance 2/in);
/// biases zero; Megatron-LM (tensor ranks), GPipe and 1F1B (stages): `mlp_shard.hpp`, `part.hpp`.
class Mlp final : public Model {
 public:
  /// widths: features, hidden layers, classes; of the whole network. gemm_backend: empty for the first of the table.
  explicit Mlp(std::vector<std::size_t> widths, const Part& = {}, std::string gemm_backend = {});

  const std::string& name() const override { return shard_.name(); }  ///< the whole network's, as are the next two
  std::size_t input_features() const override { return shard_.widths().front(); }
  std::size_t classes() const override { return shard_.widths().back(); }
  std::span<const Tensor> tensors() const override { return shard_.tensors(); }
  std::size_t element_count() const override { return shard_.element_count(); }
  /// Matrix products only: the rest is under 1 % and by convention not counted.
  double step_flops(std::size_t samples) const override { return shard_.step_flops(samples); }
  std::vector<RepeatedProblem> pass_problems(std::size_t samples) const override;
  std::vector<RepeatedProblem> forward_problems(std::size_t samples) const override;
  /// Activations and their gradients, without the memory that its peers provide; the GEMM library's own scratch is not
  /// counted.
  std::size_t workspace_bytes(std::size_t samples) const override;
  PeerNeeds peer_needs() const override;
  PeerTraffic pass_traffic(std::size_t samples) const override;
  PeerTraffic forward_traffic(std::size_t samples) const override;

  void initialise(Queue& queue, Buffers b, std::uint64_t seed) const override { shard_.initialise(queue, b, seed); }
  void run_forward(Queue&, Buffers, const Batch&, const OutcomePlace&) override;
  void run_pass(Queue&, Buffers, const Batch&, const Ready&, const OutcomePlace&) override;

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
    OutcomePlace outcome;
    std::size_t first(std::size_t piece) const { return piece * samples; }
    std::size_t count(std::size_t piece) const { return std::min(samples, batch.samples() - first(piece)); }
  };
  bool is_first() const { return part_.stage == 0; }
  bool is_last() const { return part_.stage + 1 == part_.stages; }
  std::size_t largest_piece(std::size_t batch) const;
  std::size_t forward_piece_samples(std::size_t batch) const;
  void check(Buffers, const Batch&) const;
  void provide_memory(Queue&, std::size_t samples);
  void play(const Run&, const std::vector<PipelineStep>&);
  /// in_use: work submitted before may still read what the memory holds.
  void expect_input(const Run&, std::size_t piece, bool in_use);
  void forward_piece(const Run&, std::size_t piece);
  void backward_piece(const Run&, std::size_t piece);
  void take_loss(const Run&, std::size_t piece);
  MlpStage::Pass stage_pass(const Run&, std::size_t piece) const;

  MlpShard shard_;
  Part part_;
  MlpStage stage_;
  std::vector<PipelineStep> steps_;
  std::size_t slots_;
  GradientSum sum_;
  Buffer seen_ = no_floats;         ///< by peers
  std::size_t memory_samples_ = 0;  ///< of a micro-batch, that `memory_` is made for
  runtime::OwnedBuffer own_ = {};
  StageMemory memory_;
  std::vector<Post> posts_;     ///< by slot
  bool inputs_in_use_ = false;  ///< the last run has not waited for the work that reads them
};

}  // namespace gradmeter::model
