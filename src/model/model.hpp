// A network as the training strategies see it: parameters and gradients in two flat buffers, tensors in the order in
// which their gradients become ready, a forward pass, and a backward pass that announces each ready tensor.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/problems/problem.hpp"
#include "model/part.hpp"
#include "model/peers.hpp"
#include "runtime/buffer.hpp"
#include "runtime/pending.hpp"
#include "runtime/queue.hpp"

namespace gradmeter::model {

using runtime::Buffer;
using runtime::ConstBuffer;
using runtime::Cost;
using runtime::Queue;

/// A tensor's place in the flat buffers [elements]. Tensors are in the order in which their gradients become ready:
/// tensor 0 is the last layer's, so a bucket of consecutive tensors is one contiguous span.
struct Tensor {
  std::string name;
  std::vector<std::size_t> shape;
  std::size_t offset, count;
  bool is_part = false;   ///< other tensor ranks hold the rest of it, cut so that all have parts of the same tensors
  WholePlace whole = {};  ///< columns 0: the model is not split, and offset and count are the place
};

/// The result of a forward pass over this rank's batch. Of the ranks of one replica of a split model, one has it and
/// the others have zeros, so sums over all ranks are right.
struct Outcome {
  double loss_sum = 0;      ///< summed over the batch's labels, float64
  std::size_t correct = 0;  ///< top-1
  std::size_t samples = 0;  ///< labels, of which a sentence has one a token
  /// Of ranks that do not have the loss: 0.
  double mean_loss() const { return samples > 0 ? loss_sum / static_cast<double>(samples) : 0; }
};

/// Known when the queue has done the pass.
using PendingOutcome = runtime::Pending<Outcome>;
/// For work to add to.
using OutcomePlace = std::shared_ptr<Outcome>;

/// inputs [samples × features] fp32, row-major; labels [samples × labels_each] int32. On the host or on a device, as
/// the model is.
struct Batch {
  runtime::ConstBuffer inputs;
  runtime::ConstBuffer labels;
  std::size_t labels_each = 1;  ///< of a sample: as many as a sentence has tokens
  /// What the loss' gradient is multiplied by, [1] fp32, read when the pass runs; empty: 1.
  runtime::ConstBuffer loss_scale = runtime::no_floats;
  std::size_t samples() const { return labels.count() / labels_each; }
};

/// The flat buffers, of element_count floats each. The owner chooses where they are (an arena that peers can read, a
/// device).
struct Buffers {
  runtime::Buffer parameters;
  runtime::Buffer gradients;
};

/// An operation that is run `times` times.
struct RepeatedProblem {
  kernels::Problem problem;
  std::size_t times = 1;
};

class Model {
 public:
  using Ready = std::function<void(std::size_t tensor)>;

  virtual ~Model() = default;
  virtual const std::string& name() const = 0;  ///< canonical: "mlp:784-1024-1024-10"
  virtual std::span<const Tensor> tensors() const = 0;
  virtual std::size_t element_count() const = 0;
  virtual std::size_t input_features() const = 0;
  virtual std::size_t classes() const = 0;
  virtual std::size_t labels() const { return 1; }  ///< that it predicts for a sample
  /// Floating-point operations of forward and backward over `samples` samples, multiply and add counted as two.
  virtual double step_flops(std::size_t samples) const = 0;
  /// False: its loss says nothing, it only computes and exchanges what a real network would.
  virtual bool learns() const { return true; }
  /// What a reader of its times must know; empty: nothing.
  virtual std::string note() const { return {}; }
  /// By the numbers that its passes give to `Queue::enter_layer`; empty: they give none.
  virtual std::vector<std::string> layer_names() const { return {}; }
  /// The operations of a pass, whose FLOP are step_flops, and of a forward pass alone: as they are run here.
  virtual std::vector<RepeatedProblem> pass_problems(std::size_t samples) const {
    return (void)samples, std::vector<RepeatedProblem>();
  }
  virtual std::vector<RepeatedProblem> forward_problems(std::size_t n) const {
    return (void)n, std::vector<RepeatedProblem>();
  }
  /// Bytes of activations and work space at this batch, the flat buffers not counted.
  virtual std::size_t workspace_bytes(std::size_t samples) const = 0;
  /// Of the ranks that hold other parts of it; nothing when it is whole.
  virtual PeerNeeds peer_needs() const { return {}; }
  virtual PeerTraffic pass_traffic(std::size_t samples) const { return (void)samples, PeerTraffic{}; }
  virtual PeerTraffic forward_traffic(std::size_t samples) const { return (void)samples, PeerTraffic{}; }

  /// Equal on every rank for equal seeds.
  virtual void initialise(Queue&, Buffers, std::uint64_t seed) const = 0;

  /// Buffers.gradients may be empty here: validation needs none. Cost: 2·params FLOP a sample.
  PendingOutcome forward(Queue& queue, Buffers b, const Batch& batch) {
    PendingOutcome outcome(queue);
    run_forward(queue, b, batch, outcome.place());
    return outcome;
  }
  /// Forward and backward, in whatever order the model likes (micro-batches, stages). Overwrites the gradients with
  /// those of the batch's *mean* loss, times its scale; calls `ready(i)` once the work is submitted after which tensor
  /// i's gradient is final, i ascending from 0. The first layer's input gradient is not computed.
  PendingOutcome pass(Queue& queue, Buffers b, const Batch& batch, const Ready& ready) {
    PendingOutcome outcome(queue);
    run_pass(queue, b, batch, ready, outcome.place());
    return outcome;
  }

  /// The same, adding to an outcome, so that passes over parts of a batch make one.
  virtual void run_forward(Queue&, Buffers, const Batch&, const OutcomePlace&) = 0;
  virtual void run_pass(Queue&, Buffers, const Batch&, const Ready&, const OutcomePlace&) = 0;
};

}  // namespace gradmeter::model
