// SPDX-License-Identifier: Apache-2.0
// A model that is a list of layers with softmax cross-entropy on top: either whole, or the part of it that one rank
// holds. A model is split in two ways: pipeline stages hold runs of consecutive layers, and the tensor ranks of a stage
// share its layers. The network runs micro-batches through the layers: it decides their order, their inputs, and the
// memory of their activations.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "model/network/pipeline.hpp"

namespace gradmeter::model {

struct NetworkOptions {
  kernels::Precision loss = kernels::Precision::fp32;  ///< precision of the softmax cross-entropy, see submit_loss
  /// False: there is no loss. The last layer supplies the gradient of its output, labels are not needed, and the
  /// outcome only counts samples.
  bool learns = true;
  std::string note = {};  ///< see Model::note
};

/// A part has its share of the whole network's tensors and initial weights (`HeldLayers` says which). Its gradients
/// have the same bits as those of a whole network that accumulates as many micro-batches; with tensor ranks, they
/// differ by the rounding of sums. Gradients of tensors that all tensor ranks hold have equal bits on all of them. All
/// ranks of one replica get the same batch and make their calls together. Tensor rank 0 of the last stage reports the
/// outcome; on all other ranks the outcome is zero.
///
/// A pass cuts the batch into Part::micro_batches micro-batches. Gradients are averaged over micro-batches in their
/// order (`GradientSum`), and `Ready` is called for the tensors in the backward pass of the last micro-batch. A forward
/// pass takes a batch of any size; a part cuts it into micro-batches for which it has memory.
///
/// Cost of a micro-batch of n samples: that of the layers, and the messages of `pass_traffic`. Tensor ranks share
/// layers in pairs, the first cut by outputs and the second by inputs (`Cut`). For each pair they sum one buffer
/// forward [n × outputs of the pair] and one backward [n × inputs of the pair]; a pair that begins with the network's
/// first layer has no backward sum. Between two stages one message [n × width] goes each way; if a stage ends inside a
/// pair, each tensor rank sends only its share of the width. In each pass, a weight that the last stage shares with the
/// first is sent to the last stage once, and its gradient back once (`TiedWeight`). Memory: the activations of
/// `most_in_flight` micro-batches. A part allocates this memory once; a whole network allocates anew whenever a batch
/// is larger than all before.
/// Errors: those of `HeldLayers`; UsageError when a batch does not divide into the micro-batches; std::invalid_argument
/// for buffers or batches of the wrong size; std::logic_error when a part is run without peers, or with more samples
/// than it was made for. Sources: GPipe and 1F1B, as in `part.hpp`.
class Network : public Model {
 public:
  /// layers: those of the whole network, for any part.
  Network(std::string name, std::vector<std::unique_ptr<Layer>> layers, const Part& = {}, NetworkOptions = {});

  const std::string& name() const override { return held_.name(); }
  std::span<const Tensor> tensors() const override { return held_.tensors(); }
  std::size_t element_count() const override { return held_.element_count(); }
  std::size_t input_features() const override { return held_.input_features(); }
  std::size_t classes() const override { return held_.classes(); }
  std::size_t labels() const override { return held_.labels(); }
  bool learns() const override { return options_.learns; }
  std::string note() const override { return options_.note; }
  std::vector<std::string> layer_names() const override;
  /// Covers all passes of the layers held, except the gradient with respect to the network's input.
  double step_flops(std::size_t samples) const override { return flops_of(held_.problems(samples, true)); }
  std::vector<RepeatedProblem> pass_problems(std::size_t samples) const override;
  std::vector<RepeatedProblem> forward_problems(std::size_t samples) const override;
  /// Activations, their gradients, the sums of gradients over micro-batches, and `Layer::run_bytes`. The memory from
  /// Peers is not counted, nor are packed operands and scratch of layers without run_bytes.
  std::size_t workspace_bytes(std::size_t samples) const override;
  PeerNeeds peer_needs() const override;
  PeerTraffic pass_traffic(std::size_t samples) const override;
  PeerTraffic forward_traffic(std::size_t samples) const override;

  void initialise(Queue& queue, Buffers buffers, std::uint64_t seed) const override {
    held_.initialise(queue, buffers, seed);
  }
  void run_forward(Queue&, Buffers, const Batch&, const OutcomePlace&) override;
  void run_pass(Queue&, Buffers, const Batch&, const Ready&, const OutcomePlace&) override;

  std::span<const std::unique_ptr<Layer>> layers() const { return held_.layers(); }
  std::vector<ConstBuffer> layer_parameters(const ConstBuffer& flat, std::size_t layer) const {
    return held_.parts_of(flat, layer);
  }
  /// For a whole network: makes a forward pass without its loss. Returns the outputs of all layers, valid until the
  /// next pass; the last ones are the logits.
  std::vector<ConstBuffer> layer_outputs(Queue&, Buffers, const Batch&);

 private:
  /// The messages of the micro-batch in one slot (`StageSlot`) that have begun and have not been waited for. `input`
  /// and `top_delta` are received, the others are sent.
  struct Messages {
    TransferPtr input, output_sent, top_delta, input_gradient_sent;
  };
  /// The pass, or the forward pass alone, that is being submitted.
  struct Run;
  bool is_first() const { return part_.stage == 0; }
  bool is_last() const { return part_.stage + 1 == part_.stages; }
  std::size_t output_width() const { return held_.widths().back(); }
  /// The samples of the largest micro-batch in a pass, and in a forward pass alone, over a batch of this size.
  std::size_t pass_samples(std::size_t batch) const;
  std::size_t forward_samples(std::size_t batch) const;
  /// Floats of each sum over tensor ranks in a forward pass over so many samples, or in both passes.
  std::vector<std::size_t> sum_lengths(std::size_t samples, bool backward) const;
  void check(Buffers, const Batch&) const;

  /// Takes the memory of all slots from the planner.
  std::vector<StageSlot> lay_out(std::size_t samples, MemoryPlanner&) const;
  MemoryPlanner needed_memory(std::size_t samples) const;
  void provide_memory(Queue&, std::size_t samples);
  /// Runs a pass of a whole network in one micro-batch. If the pass before had the same operands, this pass's work is
  /// recorded (`RecordedPass`); later passes with these operands submit the recorded work.
  void whole_pass(const Run&);
  void run_schedule(const Run&, const std::vector<PipelineStep>&);
  /// Posts the receive of a micro-batch's input from the previous stage; does nothing on the first stage. in_use: work
  /// that was submitted may still read the buffer, so the message may overwrite it only after that work.
  void expect_input(const Run&, std::size_t micro_batch, bool in_use);
  void forward_micro_batch(const Run&, std::size_t micro_batch);
  void backward_micro_batch(const Run&, std::size_t micro_batch);
  void submit_outcome(const Run&, std::size_t micro_batch);
  Stage::Pass stage_pass(const Run&, std::size_t micro_batch) const;

  Part part_;
  HeldLayers held_;
  Stage stage_;
  NetworkOptions options_;
  std::vector<PipelineStep> steps_;
  std::vector<Messages> messages_;  ///< by slot
  GradientSum gradient_sum_;
  TiedWeight tied_weight_;
  Buffer peer_memory_ = empty_buffer;  ///< from Peers::memory
  std::size_t memory_samples_ = 0;     ///< samples of a micro-batch for which `slots_` are made
  runtime::OwnedBuffer own_memory_ = {};
  std::vector<StageSlot> slots_;
  bool may_record_;  ///< no layer draws new random numbers in each pass
  RecordedPass recorded_;
  bool inputs_in_use_ = false;  ///< work that reads the inputs may still be under way after the last run
};

}  // namespace gradmeter::model
