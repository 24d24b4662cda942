// SPDX-License-Identifier: Apache-2.0
// A network as training strategies see it: parameters and gradients in two flat buffers, tensors in the order in which
// their gradients become ready, a forward pass, and a backward pass that calls `Model::Ready` for each tensor when its
// gradient is ready.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/problems/problem.hpp"
#include "model/network/part.hpp"
#include "runtime/buffer.hpp"
#include "runtime/device.hpp"

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
  /// True if this is only a part of a tensor, of which the other tensor ranks hold the other parts.
  bool is_part = false;
  /// The elements' places in the flat buffers of the whole model. If `columns` is 0, the model is not split, and
  /// `offset` and `count` give the place.
  WholePlace whole = {};
};

/// The result of a forward pass over this rank's batch. In a split model one rank of the replica has it, and the others
/// have zeros, so that sums over all ranks are right.
struct Outcome {
  double loss_sum = 0;      ///< summed over the batch's labels, float64
  std::size_t correct = 0;  ///< number of right top-1 predictions
  std::size_t labels = 0;   ///< number of labels; a sentence has one for each token
  /// The mean over labels; 0 on ranks without the loss.
  double mean_loss() const { return labels > 0 ? loss_sum / static_cast<double>(labels) : 0; }
};

/// An outcome that becomes known when the queue has done the pass.
using PendingOutcome = runtime::Pending<Outcome>;
/// The outcome to which the work of a pass adds its result. The work shares it, since it may run after the call.
using OutcomePlace = std::shared_ptr<Outcome>;

/// inputs [samples × features] fp32, row-major; labels [samples × labels_each] int32. They are on the same device as
/// the model.
struct Batch {
  runtime::ConstBuffer inputs;
  runtime::ConstBuffer labels;
  std::size_t labels_each = 1;  ///< labels of a sample; a sentence has one for each token
  /// Factor [1] fp32 that multiplies the gradient of the loss, read when the pass runs; empty: the factor is 1.
  runtime::ConstBuffer loss_scale = runtime::empty_buffer;
  std::size_t samples() const { return labels.count() / labels_each; }
};

/// The flat buffers, with element_count floats each. Their owner decides where they are (in an arena that peers can
/// read, on a device).
struct Buffers {
  runtime::Buffer parameters;
  runtime::Buffer gradients;
};

/// An operation that is run `times` times.
struct RepeatedProblem {
  kernels::Problem problem;
  std::size_t times = 1;
};
/// FLOP, with multiply and add counted as two.
inline double flops_of(const std::vector<RepeatedProblem>& problems) {
  double flops = 0;
  for (const RepeatedProblem& p : problems) flops += static_cast<double>(p.times) * kernels::run_flops(p.problem);
  return flops;
}

class Model {
 public:
  using Ready = std::function<void(std::size_t tensor)>;

  virtual ~Model() = default;
  virtual const std::string& name() const = 0;  ///< canonical: "mlp:784-1024-1024-10"
  virtual std::span<const Tensor> tensors() const = 0;
  virtual std::size_t element_count() const = 0;
  virtual std::size_t input_features() const = 0;
  virtual std::size_t classes() const = 0;
  virtual std::size_t labels() const { return 1; }  ///< labels that the model predicts for a sample
  /// Floating-point operations of forward and backward over `samples` samples, multiply and add counted as two.
  virtual double step_flops(std::size_t samples) const = 0;
  /// False: the loss has no meaning, since the model only computes and exchanges as a real network would.
  virtual bool learns() const { return true; }
  /// A note that a user needs to judge the model's times; empty: none.
  virtual std::string note() const { return {}; }
  /// The names of the model's layers. Passes give indices of this list to `Queue::enter_layer`. Empty: passes do not
  /// call `enter_layer`.
  virtual std::vector<std::string> layer_names() const { return {}; }
  /// The operations that this rank runs: pass_problems in a forward and backward pass, forward_problems in a forward
  /// pass alone. Only the layers that the rank holds are counted. Each operation's shape has as many samples as the
  /// model computes at once (a micro-batch). The FLOP of pass_problems add up to step_flops.
  virtual std::vector<RepeatedProblem> pass_problems(std::size_t samples) const {
    return (void)samples, std::vector<RepeatedProblem>();
  }
  virtual std::vector<RepeatedProblem> forward_problems(std::size_t samples) const {
    return (void)samples, std::vector<RepeatedProblem>();
  }
  /// Bytes of activations and work space for `samples` samples, without the flat buffers.
  virtual std::size_t workspace_bytes(std::size_t samples) const = 0;
  /// The memory that this part takes from `Peers`, and the length of its longest sum; both 0 if the model is whole.
  virtual PeerNeeds peer_needs() const { return {}; }
  virtual PeerTraffic pass_traffic(std::size_t samples) const { return (void)samples, PeerTraffic{}; }
  virtual PeerTraffic forward_traffic(std::size_t samples) const { return (void)samples, PeerTraffic{}; }

  /// Sets the initial weights. Equal seeds give equal weights on every rank.
  virtual void initialise(Queue&, Buffers, std::uint64_t seed) const = 0;

  /// Runs a forward pass alone, as validation does. Buffers::gradients may be empty. Cost: that of forward_problems.
  PendingOutcome forward(Queue& queue, Buffers buffers, const Batch& batch) {
    PendingOutcome outcome(queue);
    run_forward(queue, buffers, batch, outcome.place());
    return outcome;
  }
  /// Runs forward and backward; the model chooses the order (micro-batches, stages). Overwrites the gradients with
  /// those of the batch's *mean* loss, times Batch::loss_scale. Calls `ready(i)`, for i from 0 upwards, as soon as the
  /// work that makes the gradient of tensor i final has been submitted. The gradient with respect to the model's input
  /// is not computed.
  PendingOutcome pass(Queue& queue, Buffers buffers, const Batch& batch, const Ready& ready) {
    PendingOutcome outcome(queue);
    run_pass(queue, buffers, batch, ready, outcome.place());
    return outcome;
  }

  /// Both functions below add to an outcome, so that several passes, each over a part of a batch, can add to the same
  /// one.
  virtual void run_forward(Queue&, Buffers, const Batch&, const OutcomePlace&) = 0;
  virtual void run_pass(Queue&, Buffers, const Batch&, const Ready&, const OutcomePlace&) = 0;
};

}  // namespace gradmeter::model
