// Micro-batches through the layers that one rank holds: in what order, from where, and where they are kept.
#pragma once
#include <algorithm>
#include <vector>

#include "model/accumulate.hpp"
#include "model/lent_weight.hpp"
#include "model/part.hpp"
#include "model/recorded_pass.hpp"
#include "model/stage.hpp"

namespace gradmeter::model {

/// Allocates floats, private ones and ones that peers see. Without memory it only counts them.
class Allotment {
 public:
  Allotment() = default;
  Allotment(const Buffer& own, const Buffer& seen) : own_{own}, seen_{seen} {}
  /// Aligned to a cache line. Empty while it only counts.
  Buffer take(std::size_t floats, bool seen_by_peers);
  std::size_t own() const { return own_.used; }
  std::size_t seen() const { return seen_.used; }

 private:
  struct Block {
    Buffer memory = no_floats;
    std::size_t used = 0;
  };
  Block own_, seen_;
};

struct StageMemory {
  std::vector<StageSlot> slots;
  std::vector<Buffer> deltas;  ///< by the outputs of all layers but the last, of the micro-batch that is in its
                               ///< backward pass
  Buffer lent_weight = no_floats, lent_gradient = no_floats;  ///< that the first and last stage share
};

/// A pass cuts the batch into the part's micro-batches; gradients are averaged over them in their order
/// (`GradientSum`), and tensors are announced in the last one's backward pass. A forward pass takes a batch of any
/// size, of a part in pieces that its memory is made for. The last stage has the loss; its tensor rank 0 reports it.
///
/// Cost a micro-batch of n samples: the stage's, and the messages of `pass_traffic`: a border of stages carries one
/// [n × width] each way, and a weight that the last stage shares with the first goes once each way in a pass
/// (`LentWeight`). Activations: those of `most_in_flight` micro-batches, allocated once for a part, and for a
/// whole network whenever a batch is larger than those before.
/// Errors: UsageError when a batch does not divide into the micro-batches; std::logic_error when a part is run without
/// peers, or with more samples than it said. Sources: GPipe and 1F1B, as in `part.hpp`.
class Pipeline {
 public:
  /// The stage must outlive it, and its sizes must be known by now. loss: precision of the softmax cross-entropy.
  Pipeline(Stage&, const Part&, kernels::Precision loss);

  std::size_t workspace_bytes(std::size_t samples) const;
  PeerNeeds peer_needs() const;
  PeerTraffic pass_traffic(std::size_t samples) const;
  PeerTraffic forward_traffic(std::size_t samples) const;
  std::vector<RepeatedProblem> pass_problems(std::size_t samples) const;
  std::vector<RepeatedProblem> forward_problems(std::size_t samples) const;

  void forward(Queue&, Buffers, const Batch&, const OutcomePlace&);
  void pass(Queue&, Buffers, const Batch&, const Model::Ready&, const OutcomePlace&);
  /// Of a whole network: a forward pass without its loss. The outputs of all layers, until the next pass.
  std::vector<ConstBuffer> layer_outputs(Queue&, Buffers, const Batch&);

 private:
  /// Messages under way for the micro-batch in one slot.
  struct Post {
    TransferPtr input, output_left, top_delta, input_gradient_left;
  };
  /// One pass, or one forward.
  struct Run {
    Queue& queue;
    Buffers buffers;
    const Batch& batch;
    std::size_t samples, pieces;  ///< of all but the last piece
    const Model::Ready* ready;    ///< null: no backward
    const OutcomePlace& outcome;
    std::size_t first(std::size_t piece) const { return piece * samples; }
    std::size_t count(std::size_t piece) const { return std::min(samples, batch.samples() - first(piece)); }
  };
  bool is_first() const { return part_.stage == 0; }
  bool is_last() const { return part_.stage + 1 == part_.stages; }
  std::size_t out() const { return stage_.layers().back().out; }
  std::size_t largest_piece(std::size_t batch) const;
  std::size_t forward_piece_samples(std::size_t batch) const;
  std::vector<std::size_t> sums(std::size_t samples, bool backward) const;
  StageMemory lay_out(std::size_t samples, Allotment&) const;
  void provide_memory(Queue&, std::size_t samples);
  /// A pass in one piece.
  void whole_pass(const Run&);
  void play(const Run&, const std::vector<PipelineStep>&);
  /// in_use: work submitted before may still read what the memory holds.
  void expect_input(const Run&, std::size_t piece, bool in_use);
  void forward_piece(const Run&, std::size_t piece);
  void backward_piece(const Run&, std::size_t piece);
  void take_loss(const Run&, std::size_t piece);
  Batch batch_of(const Run&, std::size_t piece) const;
  Stage::Pass stage_pass(const Run&, std::size_t piece) const;

  Stage& stage_;
  Part part_;
  kernels::Precision loss_;
  std::vector<PipelineStep> steps_;
  std::size_t slots_;
  GradientSum sum_;
  LentWeight lent_;
  Buffer seen_ = no_floats;         ///< by peers
  std::size_t memory_samples_ = 0;  ///< of a micro-batch, that `memory_` is made for
  runtime::OwnedBuffer own_ = {};
  StageMemory memory_;
  RecordedPass recorded_;
  std::vector<Post> posts_;     ///< by slot
  bool inputs_in_use_ = false;  ///< the last run has not waited for the work that reads them
};

}  // namespace gradmeter::model
