// The layers of a network that one rank holds, forward and backward over one micro-batch: computation, and the sums
// over tensor ranks within it. `Pipeline` decides when micro-batches come, and from where.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "model/network_part.hpp"

namespace gradmeter::model {

using runtime::no_floats;

/// What one micro-batch keeps between its forward and its backward pass [samples × width].
struct StageSlot {
  Buffer input = no_floats;                 ///< that the previous stage sent; empty on the first
  std::vector<Buffer> outputs;              ///< of each layer
  std::vector<std::vector<Buffer>> shared;  ///< by layer, for the sums within it
  Buffer top_delta = no_floats;             ///< the loss's gradient by the last of them
  Buffer input_gradient = no_floats;        ///< and by the input, for the previous stage; empty on the first
};

/// One of the layers that a rank holds, as the memory and the messages around it need to know it.
struct StageLayer {
  std::size_t out = 0;  ///< floats of a sample
  LayerSums sums = {};  ///< over the tensor ranks; never of the gradient by a network's input
};

/// Memory beside what it is given: that of prepared layers, for each micro-batch that waits for its backward pass and
/// each number of samples that it is run with.
class Stage {
 public:
  /// The part must outlive it. Peers may be null where there are no others.
  Stage(const NetworkPart&, Peers*);

  const NetworkPart& part() const { return part_; }
  std::size_t in() const { return in_; }  ///< floats of a sample
  std::span<const StageLayer> layers() const { return layers_; }

  struct Pass {
    Queue& queue;
    ConstBuffer parameters;
    ConstBuffer input;
    std::size_t samples;
    std::size_t slot = 0;  ///< the micro-batch's place among those that wait for their backward pass
    /// Where the first stage lends a weight to the last: there, and where its gradient goes.
    ConstBuffer lent_weight = no_floats;
    Buffer lent_gradient = no_floats;
  };
  /// Fills the slot's outputs.
  void forward(const Pass&, const StageSlot&);
  /// From the slot's top delta, which it may overwrite, to its input gradient. `ready(i)` when tensor i's gradient and
  /// the gap behind it are submitted, i ascending.
  void backward(const Pass&, const StageSlot&, std::span<const Buffer> deltas, const Buffer& gradients,
                const Model::Ready&);

 private:
  using PreparedLayers = std::vector<std::unique_ptr<PreparedLayer>>;
  /// All layers at one number of samples, for one number of threads, one device and one slot.
  struct Prepared {
    std::size_t samples, slot;
    int threads;
    runtime::Device* device;
    PreparedLayers layers;
  };
  /// A layer's tensor in the flat buffers. What a pass asks of tensors and layers lies side by side: they themselves
  /// are out of the caches by the time a pass comes back to them.
  struct TensorPlace {
    std::size_t tensor;  ///< among those of the part, or of_another_stage
    std::size_t offset, count;
    bool is_lent;
  };
  const PreparedLayers& prepared(const Pass&);
  /// Fills `to` with the tensors of all layers in a flat buffer, layer by layer; `lent`: of another stage.
  template <class AnyBuffer>
  void list_tensors(const AnyBuffer& flat, const AnyBuffer& lent, std::vector<AnyBuffer>& to) const;
  template <class Listed>
  std::span<const Listed> of_layer(const std::vector<Listed>& listed, std::size_t layer) const {
    return std::span(listed).subspan(first_[layer], first_[layer + 1] - first_[layer]);
  }
  Buffer of_samples(const Buffer& memory, const Pass&, std::size_t layer) const;

  const NetworkPart& part_;
  Peers* peers_;
  std::size_t in_;
  std::vector<StageLayer> layers_;
  std::vector<TensorPlace> places_;      ///< of all layers' tensors, layer by layer
  std::vector<std::size_t> first_;       ///< by layer, of its tensors among these, and the end
  std::vector<Prepared> prepared_;       ///< a run sees few numbers of samples
  std::vector<ConstBuffer> parameters_;  ///< of the pass that is submitted, kept for their memory
  std::vector<Buffer> gradients_;
};

}  // namespace gradmeter::model
